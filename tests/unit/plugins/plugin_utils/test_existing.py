# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.blackwell.inference.plugins.plugin_utils import _existing, _fleet, _fleet_report, _knowledge
from ansible_collections.blackwell.inference.plugins.plugin_utils._resolver import resolve

sys.path.insert(0, str(Path(__file__).parent))
import cases
import fleet_kit as kit

EQUAL = {"sglang": "0.5.23", "torch": "2.14.1+cu130", "sglang_kernel": "0.4.10", "flashinfer-python": "0.7.2"}
CHOSEN = {
    "sglang": "0.5.23",
    "torch": "2.14.1",
    "torch_build": "cu130",
    "sgl_kernel": {"name": "sglang-kernel", "version": "0.4.10"},
    "flashinfer": "0.7.2",
}
STACKS: list[tuple[str, dict[str, Any], list[str]]] = [
    ("equal", {"distributions": EQUAL, "cuda_major": {"a.so": 13}}, []),
    ("without a local part", {"distributions": EQUAL | {"torch": "2.14.1"}}, []),
    ("another build", {"distributions": EQUAL | {"torch": "2.14.1+cu128"}}, ["the plan wants torch 2.14.1 (cu130)"]),
    ("another release", {"distributions": EQUAL | {"sglang": "0.5.9"}}, ["the plan wants sglang 0.5.23"]),
    ("binaries of another CUDA", {"distributions": EQUAL, "cuda_major": {"a.so": 12, "b.so": 13}}, ["binaries of CUDA 12"]),
    (
        "damaged",
        {"distributions": EQUAL, "problems": [{"code": "binary_damaged", "severity": "error", "found": "a.so: cut"}]},
        ["a.so: cut"],
    ),
    ("warned of", {"distributions": EQUAL, "problems": [{"code": "no_ninja", "severity": "warning", "found": "no ninja"}]}, []),
    ("of the reference site", kit.VENV, ["no sglang", "torch 2.11.0+cu128", "sglang 0.5.23", "CUDA 12"]),
    ("empty", {"distributions": {}}, ["no torch", "the plan wants sglang 0.5.23, torch"]),
]


@pytest.mark.parametrize(("stack", "says"), [entry[1:] for entry in STACKS], ids=[entry[0] for entry in STACKS])
def test_an_environment_is_compatible_or_not_and_why(stack: dict[str, Any], says: list[str]) -> None:
    before = copy.deepcopy(stack)
    entry = _existing.compare(stack, CHOSEN)
    assert stack == before
    assert entry["choice"] == ("not compatible" if says else "compatible")
    for word in says:
        assert word in entry["because"]
    assert entry["because"].endswith("It is left as it is.")


def test_the_table_and_the_reasons_say_it() -> None:
    knowledge = _knowledge.load()
    plan = resolve(knowledge, cases.BASE["gpu"], cases.BASE["model"])
    chosen = plan["stack"]
    kernel = chosen["sgl_kernel"]
    equal = {"sglang": chosen["sglang"], "torch": f"{chosen['torch']}+{chosen['torch_build']}", kernel["name"]: kernel["version"]}
    there = {"path": "/opt/venv", "distributions": equal | {"flashinfer_python": chosen["flashinfer"]}}
    for stack, verdict in ((kit.VENV, "not compatible, because the plan wants"), (there, "compatible, it holds")):
        document = _fleet.document(knowledge, [kit.machine("one", stack=stack)])
        table, report = _fleet_report.table(document, True).split("== one ")
        assert f"existing     {stack['path']}: " in table and f": {verdict}" in " ".join(table.split())
        assert f"\nEXISTING\n- {stack['path']}" in report and f": {verdict}" in " ".join(report.split())
        assert "existing environment" not in report, "it is said once"
        assert document["classes"][0]["plan"]["stack_id"] == plan["stack_id"], "what is there changes no plan"
