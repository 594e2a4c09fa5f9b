# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.blackwell.inference.plugins.plugin_utils import _knowledge
from ansible_collections.blackwell.inference.plugins.plugin_utils._conflicts import PlanError
from ansible_collections.blackwell.inference.plugins.plugin_utils._inputs import InputError
from ansible_collections.blackwell.inference.plugins.plugin_utils._resolver import resolve

sys.path.insert(0, str(Path(__file__).parent))
from cases import PLANS, ROOT, check, facts, plan, tables


@pytest.mark.parametrize("case", PLANS, ids=[case["name"] for case in PLANS])
def test_case(case: dict[str, Any]) -> None:
    check(case, _knowledge.build(tables(case["tables"])) if "tables" in case else _knowledge.load())


def test_every_choice_and_rejection_has_its_reason_and_source() -> None:
    made = plan({"gpu.driver.version": "570.172.08", "gpu.driver.library_version": "570.172.08"})
    assert made["rejected"]
    for entry in made["decisions"] + made["rejected"]:
        assert entry["because"].strip() and entry["source"].strip()
        assert "unknown" not in entry["because"], entry


def test_pins_equal_the_releases_own() -> None:
    knowledge = _knowledge.load()
    for release in ("0.5.9", "0.5.10.post1", "0.5.12.post1", "0.5.15.post1", "0.5.23"):
        stack = plan(request={"sglang_version": release})["stack"]
        pins = knowledge.releases[release]["pins"]
        assert (stack["torch"], stack["flashinfer"], stack["sgl_kernel"]) == (pins["torch"], pins["flashinfer"], pins["kernel"])


def test_toolkit_is_one_release_and_overrides_only_where_needed() -> None:
    new = plan()["stack"]["extra"]
    assert "nvidia-cuda-nvcc==13.0.88" in new["toolkit"] and "nvidia-cuda-nvcc==13.0.88" in new["overrides"]
    assert not any("cuda-tile" in entry for entry in new["overrides"])
    assert "cuda-tile==1.6.0" in plan(request={"sglang_version": "0.5.21"})["stack"]["extra"]["overrides"]
    old = plan(request={"sglang_version": "0.5.12.post1"})["stack"]["extra"]
    assert not any("nvcc" in entry for entry in old["overrides"])
    python_3_11 = plan({"gpu.platform.pythons": {"3.11": "/usr/bin/python3.11"}})["stack"]["extra"]
    assert not any("outlines" in entry for entry in python_3_11["overrides"])


def test_volatile_facts_enter_no_id() -> None:
    reference = plan()
    changed = plan(
        {
            "gpu.devices.*.memory_used_mib": 40,
            "gpu.devices.*.power_limit_w": 450,
            "gpu.devices.0.processes": [{"pid": 1, "name": "x", "memory_mib": 10, "unit": None}],
        }
    )
    assert (changed["stack_id"], changed["launch_id"]) == (reference["stack_id"], reference["launch_id"])


def test_wishes_change_the_launch_and_not_the_stack() -> None:
    reference, changed = plan(), plan(request={"port_base": 31000, "instances": 4})
    assert plan(request={"port_base": "31000", "instances": "4"}) == changed
    assert changed["stack_id"] == reference["stack_id"] and changed["launch_id"] != reference["launch_id"]


def test_memory_share_follows_the_measured_sizes() -> None:
    def fraction(made: dict[str, Any]) -> float:
        args = made["launch"]["args"]
        return float(args[args.index("--mem-fraction-static") + 1])

    reference = fraction(plan())
    assert 0.7 < reference < 0.85
    assert fraction(plan({"model.vision": False})) > reference
    assert fraction(plan(request={"max_running_requests": 16})) > reference
    assert fraction(plan({"gpu.devices.*.memory_mib": 183359})) > reference
    text = {"model.vision": False, "gpu.devices.*.memory_mib": 1 << 20}
    assert fraction(plan(text)) == 0.95


@pytest.mark.parametrize("release", ["0.5.12.post1", "0.5.23"])
def test_every_flag_is_one_of_the_releases_own(release: str) -> None:
    known = set((ROOT / f"tests/lab/sim/engine/flags-{release}.txt").read_text().split())
    usable = {"model.mtp": {"configured": True, "indexed": True, "files": [], "usable": True}}
    wishes = {"tensor_parallel": 2, "context_length": 4096, "max_running_requests": 8}
    for changes, request in (
        ({}, {}),
        (usable, {**wishes, "speculative": "mtp", "mamba_strategy": "extra_buffer"}),
        ({}, {"mamba_strategy": "no_buffer"}),
    ):
        args = plan(changes, {**request, "sglang_version": release})["launch"]["args"]
        assert {entry for entry in args if entry.startswith("--")} <= known


def test_existing_environment_is_compared_and_left_alone() -> None:
    there = {"path": "/root/venv", "distributions": {"torch": "2.11.0+cu128", "numpy": "2.4.0"}}
    reference, made = plan(), plan(stack=there)
    entry = next(entry for entry in made["decisions"] if entry["subject"] == "existing environment")
    assert entry["choice"] == "not compatible" and "2.11.0+cu128" in entry["because"] and "/root/venv" in entry["because"]
    assert made["stack_id"] == reference["stack_id"]
    equal = {"sglang": "0.5.23", "torch": "2.14.1+cu130", "sglang_kernel": "0.4.10", "flashinfer-python": "0.7.2"}
    entry = next(entry for entry in plan(stack={"distributions": equal})["decisions"] if entry["subject"] == "existing environment")
    assert entry["choice"] == "compatible"


def test_the_conflict_is_minimal_and_the_ways_out_are_nearest() -> None:
    with pytest.raises(PlanError) as raised:
        plan({"gpu.driver.version": "570.172.08", "gpu.driver.library_version": "570.172.08"}, {"sglang_version": "0.5.12"})
    conflict, _heading, ways = str(raised.value).partition("What would resolve it:")
    assert conflict.count("\n  - ") == 2
    assert "driver 580 or newer: unlocks SGLang 0.5.12" in ways
    assert "unlocks SGLang 0.5.10.post1" in ways
    assert " and " not in ways.splitlines()[1]


def test_everything_that_stands_in_the_way_of_the_host_is_said_at_once() -> None:
    with pytest.raises(PlanError) as raised:
        plan({"gpu.driver.flavour": "closed", "gpu.devices.1.lost": True}, {"instances": 9, "port_base": 60000})
    for word in ("open", "bus", "9 instances", "55535"):
        assert word in str(raised.value)


WRONG_INPUT = [
    ({"gpu.driver.version": 580}, {}, "gpu.driver.version"),
    ({"gpu.devices.2.compute_capability": "sm_120"}, {}, "gpu.devices[2].compute_capability"),
    ({"gpu.devices": []}, {}, "gpu.devices"),
    ({"gpu.devices": "none"}, {}, "gpu.devices"),
    ({"gpu.devicez": []}, {}, "did you mean devices"),
    ({"gpu.platform.pythons": ["3.13"]}, {}, "gpu.platform.pythons"),
    ({"model.weight_bytes": "54 GB"}, {}, "model.weight_bytes"),
    ({"model.archs": []}, {}, "model.archs"),
    ({"model.attention": {"full": "all"}}, {}, "model.attention.full"),
    ({}, {"sglang": "0.5.23"}, "request.sglang"),
    ({}, {"instances": "four"}, "request.instances"),
    ({}, {"instances": 0}, "request.instances"),
    ({}, {"instances": True}, "request.instances"),
    ({}, {"sglang_version": "latest"}, "request.sglang_version"),
    ({}, {"speculative": "yes"}, "request.speculative"),
    ({}, {"gpus": []}, "request.gpus"),
    ({}, {"gpus": [0.5]}, "request.gpus[0]"),
    ({}, {"expected_compute_capability": "sm_121"}, "request.expected_compute_capability"),
]


@pytest.mark.parametrize(("changes", "request_", "place"), WRONG_INPUT)
def test_wrong_input_is_named_by_its_place(changes: dict[str, Any], request_: dict[str, Any], place: str) -> None:
    with pytest.raises(InputError) as raised:
        plan(changes, request_)
    assert place in str(raised.value)


def test_missing_facts_are_named() -> None:
    given_facts = facts()
    del given_facts["gpu"]["driver"]["version"], given_facts["model"]["architectures"]
    with pytest.raises(InputError, match=r"gpu\.driver\.version is missing[\s\S]*model\.architectures is missing"):
        resolve(_knowledge.load(), given_facts["gpu"], given_facts["model"])
    for wrong in (None, [], "facts", 3):
        with pytest.raises(InputError, match="gpu is"):
            resolve(_knowledge.load(), wrong, given_facts["model"])


def test_null_wishes_leave_the_choice_open() -> None:
    open_wishes = dict.fromkeys(("sglang_version", "attention_backend", "gpus", "instances", "context_length", "speculative"))
    assert plan(request=open_wishes) == plan()
    assert plan(request={"speculative": False}) == plan()
