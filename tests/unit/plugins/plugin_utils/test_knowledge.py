# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.blackwell.inference.plugins.module_utils import _pci_ids
from ansible_collections.blackwell.inference.plugins.plugin_utils import _knowledge, _schema
from ansible_collections.blackwell.inference.plugins.plugin_utils._conflicts import PlanError
from ansible_collections.blackwell.inference.plugins.plugin_utils._knowledge import KnowledgeError
from ansible_collections.blackwell.inference.plugins.plugin_utils._resolver import resolve
from ansible_collections.blackwell.inference.plugins.plugin_utils._rules import CONDITIONS

ROOT = Path(__file__).resolve().parents[4]
FACTS = yaml.safe_load((ROOT / "inventory/facts/rtx-pro-6000-x8.yml").read_text())


@pytest.fixture
def tables() -> dict[str, Any]:
    return copy.deepcopy(_knowledge.read_tables())


def rule(tables: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(entry for entry in tables["rules"] if entry["id"] == name)
    return found


def test_the_tables_that_are_shipped_are_sound() -> None:
    knowledge = _knowledge.load()
    assert knowledge.newest_first[0] == "0.5.23" and knowledge.newest_first[-1] == "0.5.6"


def test_the_schema_knows_every_condition() -> None:
    assert {key.removesuffix("?") for key in _schema.APPLIES} - {"finds"} == set(CONDITIONS)


def test_the_families_are_those_that_the_facts_name() -> None:
    gpus = _knowledge.load().gpus
    assert {capability: row["family"] for capability, row in gpus.items()}.items() <= _pci_ids.FAMILIES.items()
    assert {"12.0", "12.1", "10.0", "10.3", "9.0"} <= set(gpus)


def test_every_release_pins_the_torch_that_its_kernel_wheel_was_built_for() -> None:
    for name, release in _knowledge.load().prepared.items():
        built_for = release.kernel_torch or next(
            (rule.then["kernel_needs_torch"] for rule, _conditions in release.rules if "kernel_needs_torch" in rule.then), None
        )
        assert built_for in (None, release.pins["torch"]), name
        assert built_for or release.pins["kernel"]["name"] == "sgl-kernel", name


def then(name: str, **more: Any) -> Any:
    return lambda tables: rule(tables, name)["then"].update(more)


def applies(name: str, **more: Any) -> Any:
    return lambda tables: rule(tables, name)["applies"].update(more)


def words(name: str, **more: str) -> Any:
    return lambda tables: rule(tables, name).update(more)


def without(name: str) -> Any:
    return lambda tables: tables["rules"].remove(rule(tables, name))


BROKEN = [
    # A rule that lacks something or says too much.
    (lambda t: rule(t, "driver-for-cuda-13").pop("because"), r"rules\.yml: rule driver-for-cuda-13\.because is missing"),
    (lambda t: rule(t, "driver-for-cuda-13").pop("source"), r"rules\.yml: rule driver-for-cuda-13\.source is missing"),
    (words("driver-for-cuda-13", source=""), r"rule driver-for-cuda-13\.source"),
    (words("driver-for-cuda-13", note="x"), r"rule driver-for-cuda-13\.note is not a key"),
    (lambda t: t["rules"].append("a text"), r"rules\.yml: rule \d+ is 'a text'; wanted: a dictionary"),
    (lambda t: t["rules"].append(dict(rule(t, "driver-absent"))), r"rule driver-absent: the id stands twice"),
    # Conditions.
    (applies("driver-for-cuda-13", cuda=13), r"rule driver-for-cuda-13: applies\.cuda is not a key"),
    (words("as-of-0.5.21", releases="0.5.21 and up"), r"rule as-of-0\.5\.21\.releases"),
    (
        applies("nvcc-for-flashinfer-0.5", flashinfer="0.6"),
        r"rule nvcc-for-flashinfer-0\.5: applies\.flashinfer is '0\.6'; wanted: a version range",
    ),
    (applies("backends-9", capabilities=["sm_90"]), r"rule backends-9: applies\.capabilities has 'sm_90'; wanted"),
    (applies("backends-9", capabilities=["9"]), r"rule backends-9: applies\.capabilities has '9'"),
    (
        applies("driver-absent", finds="driver_abscent"),
        r"applies\.finds is 'driver_abscent', which nothing finds; did you mean driver_absent",
    ),
    (words("card-busy", releases=">=0.5.9"), r"rule card-busy: releases cannot be asked beside card_busy"),
    (applies("card-busy", torch=">=2"), r"rule card-busy: torch cannot be asked beside card_busy"),
    # Effects.
    (lambda t: rule(t, "driver-for-cuda-13")["then"].clear(), r"rule driver-for-cuda-13: then is empty"),
    (then("driver-for-cuda-13", driver_minimum=580), r"then\.driver_minimum is 580"),
    (
        then("driver-for-cuda-13", driver_minimun="580"),
        r"then\.driver_minimun is not a key that is known here; did you mean driver_minimum",
    ),
    (then("driver-too-old", driver_minimum="580"), r"rule driver-too-old: then\.driver_minimum does nothing in a rule about a finding"),
    (then("card-busy", support="expected"), r"rule card-busy: then\.support does nothing"),
    (then("backends-9", remedy="x"), r"rule backends-9: then\.remedy does nothing without refuse or defer"),
    (then("backends-9", defer="x"), r"rule backends-9: then\.defer does nothing"),
    (lambda t: rule(t, "too-young").update(then={"support": "expected"}), r"rule too-young: then has none of refuse, defer, warn"),
    (then("nvfp4-on-12", support="good"), r"rule nvfp4-on-12: then\.support is 'good'"),
    (
        then("backends-9", attention_backends={"allowed": ["fa3"], "support": {"fa3": "good"}}),
        r"attention_backends\.support\.fa3 is 'good'",
    ),
    (
        then("backends-9", attention_backends={"allowed": ["fa3"], "support": {"fa2": "expected"}}),
        r"names fa2, which is not among the allowed",
    ),
    # Words of a sentence.
    (words("driver-too-old", because="found {found"), r"rule driver-too-old: because has a brace"),
    (words("driver-too-old", because="{fuond}"), r"because has the word \{fuond\}, which does not exist for this rule; did you mean found"),
    (then("driver-too-old", remedy="{driver}"), r"then\.remedy has the word \{driver\}"),
    (then("nvfp4-on-12", warn="{}"), r"then\.warn has the word \{\}"),
    (then("nvfp4-on-12", warn="{found}"), r"then\.warn has the word \{found\}"),
    (words("card-busy", source="{sglang}"), r"rule card-busy: source has the word \{sglang\}"),
    (words("backends-9", because="{allowed}"), r"rule backends-9: because has the word \{allowed\}"),
    (words("driver-too-old", because="{found!r}"), r"because formats the word \{found\}"),
    # What is found must not be passed over.
    (without("card-busy"), r"rules\.yml: no rule is about card_busy"),
    (applies("toolkit-absent", python=["3.13"]), r"rules\.yml: no rule refuses toolkit_absent whatever else holds"),
    # Tables.
    (lambda t: t["releases"]["0.5.23"]["pins"].update(torch="9.9"), r"releases\.yml: 0\.5\.23 pins torch 9\.9"),
    (lambda t: t["releases"]["0.5.23"]["pins"]["kernel"].update(version="9.9"), r"pins sglang-kernel 9\.9"),
    (lambda t: t["releases"]["0.5.23"].update(upload="yesterday"), r"releases\.yml: releases\.0\.5\.23\.upload"),
    (
        lambda t: t["releases"]["0.5.23"].update(upload="2026-02-30T00:00:00Z"),
        r"releases\.yml: 0\.5\.23\.upload is .* no day of the calendar",
    ),
    (lambda t: t["releases"]["0.5.23"]["wheels"].update(pythons="3.13"), r"0\.5\.23\.wheels\.pythons"),
    (lambda t: t["releases"].update(newest=t["releases"]["0.5.23"]), r"releases\.yml: the key newest is 'newest'; wanted: a version"),
    (lambda t: t["proven"][0].update(release="0.4.0"), r"proven\.yml: release 0\.4\.0"),
    (lambda t: t["proven"][0].update(python=3.11), r"proven\.yml: proven\[0\]\.python is 3\.11"),
    (
        lambda t: t["code"]["torch"]["2.14.1"]["x86_64"].update(runs=["sm_120"]),
        r"kernel_code\.yml: code\.torch\.2\.14\.1\.x86_64\.runs\[0\]",
    ),
    (lambda t: t["code"]["torch"].update(latest=t["code"]["torch"]["2.14.1"]), r"kernel_code\.yml\.torch: the key latest"),
    (lambda t: t["gpus"].update(sm_130=t["gpus"]["12.0"]), r"gpus\.yml: the key sm_130 is 'sm_130'; wanted: a compute capability"),
    (lambda t: t["gpus"]["12.0"].update(shared_memory="99 KB"), r"gpus\.yml: gpus\.12\.0\.shared_memory"),
    (lambda t: t["policy"].update(as_of=20261130), r"policy\.yml: policy\.as_of"),
    (lambda t: t["policy"].update(as_of="2026-13-01"), r"policy\.yml: policy\.as_of is .* no day of the calendar"),
]


@pytest.mark.parametrize(("damage", "message"), BROKEN)
def test_a_broken_table_is_named_by_file_and_place(tables: dict[str, Any], damage: Any, message: str) -> None:
    damage(tables)
    with pytest.raises(KnowledgeError, match=message) as raised:
        _knowledge.build(tables)
    assert str(raised.value).count("\n") == 1


def test_many_problems_are_counted_and_not_all_listed(tables: dict[str, Any]) -> None:
    tables["rules"] = [{**entry, "source": ""} for entry in tables["rules"]]
    with pytest.raises(KnowledgeError, match=rf"and {len(tables['rules']) - 20} more$"):
        _knowledge.build(tables)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("rules: [", r"rules\.yml"),
        ("- a\n", r"rules\.yml"),
        ("other: {}\n", r"rules\.yml"),
        ("", r"rules\.yml"),
        (b"\xff\xfe", r"rules\.yml"),
        ("rules:\n  - {id: a, then: {refuse: x}, then: {}}\n", r"rules\.yml: the key then stands twice[\s\S]*line 2"),
        (None, r"rules\.yml: .*No such file"),
    ],
)
def test_a_file_that_is_no_table_is_named(tmp_path: Path, content: str | bytes | None, message: str) -> None:
    for file in _schema.FILES.values():
        (tmp_path / file).write_bytes((_knowledge.FOLDER / file).read_bytes())
    (tmp_path / "rules.yml").unlink()
    if content is not None:
        (tmp_path / "rules.yml").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(KnowledgeError, match=message):
        _knowledge.read_tables(tmp_path)


def invent_release(tables: dict[str, Any]) -> None:
    tables["releases"]["0.6.0"] = {
        "upload": "2026-11-01T00:00:00Z",
        "requires_python": ">=3.11",
        "wheels": {"pythons": ["3.13"], "machines": ["x86_64"], "glibc": "2.34"},
        "pins": {"torch": "2.14.1", "kernel": {"name": "sglang-kernel", "version": "0.4.10"}, "flashinfer": "0.7.2"},
    }
    tables["proven"].append(
        {
            **{"release": "0.6.0", "python": "3.13", "machine": "x86_64", "as_of": "2026-11-02", "day": "2026-11-30"},
            **{"toolkit": "13.0.2", "flags": 532, "compiled": ["120"], "served": [], "result": "ok"},
        }
    )


def test_a_new_release_is_new_data(tables: dict[str, Any]) -> None:
    invent_release(tables)
    assert resolve(_knowledge.build(tables), FACTS["gpu"], FACTS["model"])["stack"]["sglang"] == "0.6.0"


def test_the_highest_minimum_counts(tables: dict[str, Any]) -> None:
    tables["toolkits"]["13.1.0"] = {"cuda_major": 13, "parts": ["nvidia-cuda-nvcc==13.1.80"]}
    tables["rules"].append(
        {"id": "new", "applies": {}, "then": {"toolkit_minimum": "13.1"}, "because": "an invented floor.", "source": "this test"}
    )
    assert resolve(_knowledge.build(tables), FACTS["gpu"], FACTS["model"])["stack"]["cuda_toolkit"] == "13.1.0"


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
    tables["rules"][-1]["then"]["gpu_code_exempt"] = ["*invented*"]
    tables["rules"].append(
        {
            "id": "closed-13",
            "applies": {"finds": "closed_modules", "capabilities": ["13.*"]},
            "then": {"refuse": "driver flavour"},
            "because": "an invented card ({capability}).",
            "source": "this test",
        }
    )
    tables["gpus"]["13.0"] = {"family": "invented", "cards": "none", "machines": ["x86_64"], "shared_memory": 4096, "source": "this test"}
    rule(tables, "vision-attention-on-12")["applies"]["capabilities"].append("13.*")
    facts = copy.deepcopy(FACTS)
    for device in facts["gpu"]["devices"]:
        device.update(compute_capability="13.0", shared_memory_per_block_optin=None)
    knowledge = _knowledge.build(tables)
    made = resolve(knowledge, facts["gpu"], facts["model"])
    assert made["launch"]["attention_backend"] == "flashinfer"
    assert "*invented*" in [entry["file"] for entry in made["stack"]["extra"]["gpu_code_exempt"]]
    assert any("gives 4096" in warning for warning in made["warnings"])
    facts["gpu"]["driver"]["flavour"] = "closed"
    with pytest.raises(PlanError, match=r"an invented card \(13\.0\)"):
        resolve(knowledge, facts["gpu"], facts["model"])
