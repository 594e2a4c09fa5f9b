# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.blackwell.inference.plugins.module_utils._fatbin import runs_as
from ansible_collections.blackwell.inference.plugins.plugin_utils import _knowledge
from ansible_collections.blackwell.inference.plugins.plugin_utils._conflicts import PlanError
from ansible_collections.blackwell.inference.plugins.plugin_utils._inputs import InputError
from ansible_collections.blackwell.inference.plugins.plugin_utils._resolver import resolve
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).resolve().parents[4]
BASE = yaml.safe_load((ROOT / "inventory/facts/rtx-pro-6000-x8.yml").read_text())
CASES = yaml.safe_load((ROOT / "tests/unit/cases/plan.yml").read_text())
BY_NAME = {case["name"]: case for case in CASES}
CAPABILITIES = ["8.0", "8.9", "9.0", "10.0", "10.3", "12.0", "12.1"]


def put(value: Any, path: list[str], new: Any) -> None:
    """Set what the path names; * names every entry of a list."""
    head, rest = path[0], path[1:]
    keys = range(len(value)) if head == "*" else [int(head) if isinstance(value, list) else head]
    for key in keys:
        if rest:
            put(value[key], rest, new)
        else:
            value[key] = copy.deepcopy(new)


def facts(changes: dict[str, Any] | None = None) -> dict[str, Any]:
    changed = copy.deepcopy(BASE)
    for path, new in (changes or {}).items():
        put(changed, path.split("."), new)
    return changed


def plan(changes: dict[str, Any] | None = None, request: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    given_facts = facts(changes)
    knowledge = more.pop("knowledge", None) or _knowledge.load()
    return resolve(knowledge, given_facts["gpu"], given_facts["model"], request or {}, **more)


def at(value: Any, path: str) -> Any:
    for key in path.split("."):
        value = value[key]
    return value


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_case(case: dict[str, Any]) -> None:
    expect = case["expect"]
    if expect.get("fail"):
        with pytest.raises(PlanError) as raised:
            plan(case.get("set"), case.get("request"))
        said = str(raised.value)
        assert "What would resolve it" in said or "No single change" in said
    else:
        made = plan(case.get("set"), case.get("request"))
        for path, wanted in expect.get("choice", {}).items():
            assert at(made, path) == wanted, path
        for path, wanted in expect.get("range", {}).items():
            assert SpecifierSet(wanted).contains(at(made, path)), path
        args = made["launch"]["args"]
        assert set(expect.get("args", [])) <= set(args)
        assert not set(expect.get("no_args", [])) & set(args)
        if "same_as" in expect:
            other = BY_NAME[expect["same_as"]]
            reference = plan(other.get("set"), other.get("request"))
            assert (made["stack_id"], made["launch_id"]) == (reference["stack_id"], reference["launch_id"])
        for word in expect.get("warns", []):
            assert any(word in warning for warning in made["warnings"]), word
        for word in expect.get("silent", []):
            assert not any(word in warning for warning in made["warnings"]), word
        said = json.dumps([made["decisions"], made["rejected"], made["warnings"]])
    for word in expect.get("says", []):
        assert word in said, word


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


def test_only_proven_releases_are_chosen_unasked() -> None:
    proven = {row["release"] for row in _knowledge.load().proven}
    for driver in ("525.60.13", "570.172.08", "580.126.09"):
        made = plan({"gpu.driver.version": driver, "gpu.driver.library_version": driver})
        assert made["stack"]["sglang"] in proven


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


def test_order_of_gpus_does_not_matter() -> None:
    reference = plan()
    for seed in range(5):
        shuffled = facts()
        random.Random(seed).shuffle(shuffled["gpu"]["devices"])
        assert resolve(_knowledge.load(), shuffled["gpu"], shuffled["model"]) == reference


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
    wishes = {"speculative": "mtp", "tensor_parallel": 2, "context_length": 4096, "max_running_requests": 8, "mamba_strategy": "no_buffer"}
    for changes, request in (({}, {}), (usable, wishes)):
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


HOSTS = st.fixed_dictionaries(
    {
        "capabilities": st.lists(st.sampled_from(CAPABILITIES), min_size=1, max_size=4),
        "driver": st.sampled_from(["470.256.02", "525.60.13", "570.172.08", "580.126.09", "590.44.01"]),
        "machine": st.sampled_from(["x86_64", "aarch64"]),
        "glibc": st.sampled_from(["2.17", "2.31", "2.36", "2.41"]),
        "python": st.sampled_from(["3.9", "3.10", "3.11", "3.12", "3.13", "3.14"]),
        "text": st.booleans(),
    }
)
WISHES = st.fixed_dictionaries(
    {},
    optional={
        "attention_backend": st.sampled_from(["flashinfer", "triton", "fa3", "fa4", "trtllm_mha", "nothing"]),
        "instances": st.integers(1, 6),
        "tensor_parallel": st.sampled_from([1, 2, 4]),
        "speculative": st.sampled_from(["off", "auto", "mtp"]),
        "port_base": st.sampled_from([8000, 30000, 55530, 60000]),
        "context_length": st.sampled_from([4096, 262144, 500000]),
    },
)


def invented_host(host: dict[str, Any]) -> dict[str, Any]:
    changes = {
        "gpu.driver.version": host["driver"],
        "gpu.driver.library_version": host["driver"],
        "gpu.platform.machine": host["machine"],
        "gpu.platform.glibc": host["glibc"],
        "gpu.platform.pythons": {host["python"]: "/usr/bin/python"},
    }
    if host["text"]:
        changes |= {"model.architectures": ["Qwen3ForCausalLM"], "model.attention": {"full": 64, "linear": 0}, "model.vision": False}
    changed = facts(changes)
    devices = changed["gpu"]["devices"][: len(host["capabilities"])]
    for device, capability in zip(devices, host["capabilities"], strict=True):
        device["compute_capability"] = capability
        device["shared_memory_per_block_optin"] = None
    changed["gpu"]["devices"] = devices
    return changed


def outcome(given_facts: dict[str, Any], wishes: dict[str, Any]) -> dict[str, Any] | None:
    try:
        return resolve(_knowledge.load(), given_facts["gpu"], given_facts["model"], wishes)
    except PlanError as error:
        assert str(error)
        return None


@settings(max_examples=150, deadline=None)
@given(HOSTS, WISHES)
def test_no_plan_whose_wheels_lack_code_for_a_gpu(host: dict[str, Any], wishes: dict[str, Any]) -> None:
    knowledge = _knowledge.load()
    given_facts = invented_host(host)
    made = outcome(given_facts, wishes)
    assert made == outcome(copy.deepcopy(given_facts), dict(wishes)), "the same input gives the same plan"
    if made is None:
        return
    stack = made["stack"]
    used = {name for entry in made["launch"]["devices"] for name in entry.split(",")}
    for device in given_facts["gpu"]["devices"]:
        if device["uuid"] in used:
            for package, number in ((stack["sgl_kernel"]["name"], stack["sgl_kernel"]["version"]), ("torch", stack["torch"])):
                code = knowledge.code[package].get(number, {}).get(host["machine"])
                assert code is None or any(runs_as(f"sm_{arch}", device["compute_capability"]) for arch in code["runs"])


@settings(max_examples=150, deadline=None)
@given(HOSTS, WISHES)
def test_a_wish_more_never_turns_failure_into_success(host: dict[str, Any], wishes: dict[str, Any]) -> None:
    """Apart from the wishes that ask for less: fewer cards for each instance's memory, or a shorter context."""
    given_facts = invented_host(host)
    given_facts["model"]["weight_bytes"] = 1 << 30
    wishes.pop("tensor_parallel", None)
    if outcome(given_facts, {}) is None:
        # Fewer instances leave cards out, and with them what stood against the plan.
        wishes.pop("instances", None)
        assert outcome(given_facts, wishes) is None
