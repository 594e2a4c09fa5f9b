# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.blackwell.inference.plugins.plugin_utils import _knowledge
from ansible_collections.blackwell.inference.plugins.plugin_utils._knowledge import KnowledgeError
from ansible_collections.blackwell.inference.plugins.plugin_utils._resolver import resolve
from ansible_collections.blackwell.inference.plugins.plugin_utils._rules import CONDITIONS

ROOT = Path(__file__).resolve().parents[4]
FACTS = yaml.safe_load((ROOT / "inventory/facts/rtx-pro-6000-x8.yml").read_text())
PLUGINS = ROOT / "plugins/plugin_utils"


@pytest.fixture
def tables() -> dict[str, Any]:
    return copy.deepcopy(_knowledge.read_tables())


def rule(tables: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(entry for entry in tables["rules"] if entry["id"] == name)
    return found


def test_the_tables_that_are_shipped_are_sound() -> None:
    knowledge = _knowledge.load()
    assert knowledge.newest_first[0] == "0.5.23" and knowledge.newest_first[-1] == "0.5.6"


def test_every_finding_of_the_code_has_a_rule_and_every_rule_a_finding() -> None:
    source = "".join(path.read_text() for path in PLUGINS.glob("_*.py"))
    written = {entry.applies["finds"] for entry in _knowledge.load().rules if "finds" in entry.applies}
    assert {name for name in written if f'"{name}"' not in source} == set()
    raised = set(re.findall(r'(?:yield|append\(\(|\[\(|\(\() ?\(?"([a-z_]+)", (?:\{|fields|told|words)', source))
    assert raised and raised <= written, raised - written


def test_the_schema_knows_every_condition() -> None:
    assert {key.removesuffix("?") for key in _knowledge._APPLIES} == set(CONDITIONS)


def test_the_chosen_pairs_are_those_that_are_known_to_work() -> None:
    knowledge = _knowledge.load()
    for name, release in knowledge.releases.items():
        declared = knowledge.kernels[release["pins"]["kernel"]["name"]][release["pins"]["kernel"]["version"]]["torch"]
        assert declared in (None, release["pins"]["torch"]), name


BROKEN = [
    (lambda t: rule(t, "driver-for-cuda-13").pop("because"), r"rules\.yml: rule driver-for-cuda-13\.because is missing"),
    (lambda t: rule(t, "driver-for-cuda-13").update(source=""), r"rule driver-for-cuda-13\.source"),
    (lambda t: rule(t, "driver-for-cuda-13")["applies"].update(cuda=13), r"rule driver-for-cuda-13: applies\.cuda is not a key"),
    (lambda t: rule(t, "driver-for-cuda-13")["then"].clear(), r"rule driver-for-cuda-13: then is empty"),
    (lambda t: rule(t, "driver-for-cuda-13")["then"].update(driver_minimum=580), r"then\.driver_minimum is 580"),
    (lambda t: rule(t, "as-of-0.5.21").update(releases="0.5.21 and up"), r"rule as-of-0\.5\.21\.releases"),
    (lambda t: rule(t, "driver-too-old").update(because="found {found"), r"rule driver-too-old: because has a brace"),
    (lambda t: rule(t, "nvfp4-on-12")["then"].update(support="good"), r"rule nvfp4-on-12: then\.support"),
    (lambda t: t["rules"].append(dict(rule(t, "driver-absent"))), r"rule driver-absent: the id stands twice"),
    (lambda t: t["releases"]["0.5.23"]["pins"].update(torch="9.9"), r"releases\.yml: 0\.5\.23 pins torch 9\.9"),
    (lambda t: t["releases"]["0.5.23"]["pins"]["kernel"].update(version="9.9"), r"pins sglang-kernel 9\.9"),
    (lambda t: t["releases"]["0.5.23"].update(upload="yesterday"), r"releases\.yml: releases\.0\.5\.23\.upload"),
    (lambda t: t["releases"]["0.5.23"].update(wheels={"pythons": "3.13"}), r"0\.5\.23\.wheels\.pythons"),
    (lambda t: t["proven"][0].update(release="0.4.0"), r"proven\.yml: release 0\.4\.0"),
    (lambda t: t["proven"][0].update(python=3.11), r"proven\.yml: proven\[0\]\.python is 3\.11"),
    (
        lambda t: t["code"]["torch"]["2.14.1"]["x86_64"].update(runs=["sm_120"]),
        r"kernel_code\.yml: code\.torch\.2\.14\.1\.x86_64\.runs\[0\]",
    ),
    (lambda t: t["policy"].update(as_of=20261130), r"policy\.yml: policy\.as_of"),
]


@pytest.mark.parametrize(("damage", "message"), BROKEN)
def test_a_broken_table_is_named_by_file_and_place(tables: dict[str, Any], damage: Any, message: str) -> None:
    damage(tables)
    with pytest.raises(KnowledgeError, match=message):
        _knowledge.build(tables)


@pytest.mark.parametrize("content", ["rules: [", "- a\n", "other: {}\n", ""])
def test_a_file_that_is_no_table_is_named(tmp_path: Path, content: str) -> None:
    for file in _knowledge.FILES.values():
        (tmp_path / file).write_bytes((_knowledge.FOLDER / file).read_bytes())
    (tmp_path / "rules.yml").write_text(content)
    with pytest.raises(KnowledgeError, match=r"rules\.yml"):
        _knowledge.read_tables(tmp_path)


def invent_release(tables: dict[str, Any]) -> None:
    tables["releases"]["0.6.0"] = {
        "upload": "2026-11-01T00:00:00Z",
        "requires_python": ">=3.11",
        "wheels": {"pythons": ["3.13"], "machines": ["x86_64"], "glibc": "2.34"},
        "pins": {"torch": "2.14.1", "kernel": {"name": "sglang-kernel", "version": "0.4.10"}, "flashinfer": "0.7.2"},
    }
    proof = next(row for row in tables["proven"] if row["release"] == "0.5.23" and row["python"] == "3.13")
    tables["proven"].append({**proof, "release": "0.6.0"})


def test_a_new_release_is_new_data(tables: dict[str, Any]) -> None:
    invent_release(tables)
    assert resolve(_knowledge.build(tables), FACTS["gpu"], FACTS["model"])["stack"]["sglang"] == "0.6.0"


def test_a_release_without_a_proof_is_not_chosen(tables: dict[str, Any]) -> None:
    invent_release(tables)
    tables["proven"].pop()
    made = resolve(_knowledge.build(tables), FACTS["gpu"], FACTS["model"])
    assert made["stack"]["sglang"] == "0.5.23"
    assert [entry["because"] for entry in made["rejected"] if entry["option"] == "SGLang 0.6.0"] == [
        "SGLang 0.6.0 was not really installed, imported and made to compile by us."
    ]


def test_a_release_that_is_too_young_is_not_chosen(tables: dict[str, Any]) -> None:
    invent_release(tables)
    tables["releases"]["0.6.0"]["upload"] = "2026-11-20T00:00:00Z"
    made = resolve(_knowledge.build(tables), FACTS["gpu"], FACTS["model"])
    assert made["stack"]["sglang"] == "0.5.23"
    assert any("10 days old" in entry["because"] for entry in made["rejected"])


def test_a_new_gpu_is_new_data(tables: dict[str, Any]) -> None:
    for package, number in (("sglang-kernel", "0.4.10"), ("torch", "2.14.1")):
        tables["code"][package][number]["x86_64"]["runs"].append("130")
    tables["rules"].append(
        {
            "id": "backends-13",
            "applies": {"capabilities": ["13.*"]},
            "then": {"attention_backends": {"allowed": ["flashinfer"]}},
            "because": "an invented card.",
            "source": "this test",
        }
    )
    facts = copy.deepcopy(FACTS)
    for device in facts["gpu"]["devices"]:
        device["compute_capability"] = "13.0"
    assert resolve(_knowledge.build(tables), facts["gpu"], facts["model"])["launch"]["attention_backend"] == "flashinfer"


def test_a_kernel_for_another_torch_or_cuda_major_is_refused(tables: dict[str, Any]) -> None:
    tables["releases"]["0.5.23"]["pins"]["torch"] = "2.9.1"
    made = resolve(_knowledge.build(tables), FACTS["gpu"], FACTS["model"])
    said = [entry["because"] for entry in made["rejected"] if entry["option"] == "SGLang 0.5.23"]
    assert any("two CUDA majors" in text for text in said) and any("was built for torch 2.14.1" in text for text in said)


def test_a_nccl_without_native_code_is_refused_for_tensor_parallel(tables: dict[str, Any]) -> None:
    tables["torch"]["2.14.1"]["nccl"] = "2.26.2"
    knowledge = _knowledge.build(tables)
    assert resolve(knowledge, FACTS["gpu"], FACTS["model"])["stack"]["sglang"] == "0.5.23"
    made = resolve(knowledge, FACTS["gpu"], FACTS["model"], {"tensor_parallel": 2})
    assert made["stack"]["sglang"] != "0.5.23"
    assert any("NCCL" in entry["because"] for entry in made["rejected"])


def test_a_toolkit_below_the_floor_is_refused(tables: dict[str, Any]) -> None:
    del tables["toolkits"]["13.0.2"]
    made = resolve(_knowledge.build(tables), FACTS["gpu"], FACTS["model"])
    assert made["stack"]["cuda_toolkit"] == "12.9.1"
    assert any("toolkit release" in entry["because"] for entry in made["rejected"])
