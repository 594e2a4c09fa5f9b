# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What holds of every plan, on hosts and wishes that nobody thought of."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.blackwell.inference.plugins.module_utils._fatbin import runs_as
from ansible_collections.blackwell.inference.plugins.plugin_utils import _knowledge
from ansible_collections.blackwell.inference.plugins.plugin_utils._conflicts import PlanError
from ansible_collections.blackwell.inference.plugins.plugin_utils._resolver import resolve
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.version import Version

sys.path.insert(0, str(Path(__file__).parent))
from cases import facts

KNOWLEDGE = _knowledge.load()
CAPABILITIES = ["8.0", "8.9", "9.0", "10.0", "10.3", "12.0", "12.1"]
DRIVERS = ["470.256.02", "525.60.13", "570.172.08", "580.126.09", "590.44.01"]
GLIBCS = ["2.17", "2.31", "2.36", "2.41"]
MODELS = {"text": st.booleans(), "mtp": st.booleans()}
ANY_HOST = st.fixed_dictionaries(
    {
        **MODELS,
        "capabilities": st.lists(st.sampled_from(CAPABILITIES), min_size=1, max_size=4),
        "driver": st.sampled_from(DRIVERS),
        "machine": st.sampled_from(["x86_64", "aarch64"]),
        "glibc": st.sampled_from(GLIBCS),
        "pythons": st.lists(st.sampled_from(["3.9", "3.10", "3.11", "3.12", "3.13", "3.14"]), min_size=1, max_size=3, unique=True),
    }
)
# Most of the others get no plan.
USABLE_HOST = st.fixed_dictionaries(
    {
        **MODELS,
        "capabilities": st.lists(st.sampled_from(["9.0", "10.0", "12.0"]), min_size=2, max_size=4),
        "driver": st.just("580.126.09"),
        "machine": st.just("x86_64"),
        "glibc": st.just("2.41"),
        "pythons": st.just(["3.11", "3.13"]),
    }
)
HOSTS = ANY_HOST | USABLE_HOST
# Wishes that only narrow what is possible. Others may also widen it: fewer cards, cards by name, tensor parallel.
NARROWING: dict[str, list[Any]] = {
    "attention_backend": ["flashinfer", "triton", "fa3", "fa4", "trtllm_mha", "trtllm_mla", "nothing"],
    "speculative": ["auto", "mtp"],
    "mamba_strategy": ["auto", "no_buffer", "extra_buffer", "extra_buffer_lazy", "nothing"],
    "port_base": [30000, 55530],
    "context_length": [8192, 500000],
    "expected_compute_capability": ["12.0"],
    "sglang_version": ["0.5.8.post1", "0.5.9", "0.5.10.post1", "0.5.12.post1", "0.5.19", "0.5.23", "9.9"],
}
WIDENING: dict[str, list[Any]] = {"instances": [1, 2, 6], "tensor_parallel": [1, 2, 4], "gpus": [[0, 1]]}


def wishes_of(known: dict[str, list[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    chosen = st.lists(st.sampled_from(sorted(known)), max_size=3, unique=True)
    return chosen.flatmap(lambda names: st.fixed_dictionaries({name: st.sampled_from(known[name]) for name in names}))


ANY = wishes_of({**NARROWING, **WIDENING})


def invented(host: dict[str, Any]) -> dict[str, Any]:
    changes = {
        "gpu.driver.version": host["driver"],
        "gpu.driver.library_version": host["driver"],
        "gpu.platform.machine": host["machine"],
        "gpu.platform.glibc": host["glibc"],
        "gpu.platform.pythons": {python: f"/usr/bin/python{python}" for python in host["pythons"]},
        "model.weight_bytes": 1 << 30,
        "model.mtp": {"configured": True, "indexed": host["mtp"], "files": [], "usable": host["mtp"]},
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
        return resolve(KNOWLEDGE, given_facts["gpu"], given_facts["model"], wishes)
    except PlanError as error:
        assert str(error)
        return None


@settings(max_examples=200, deadline=None)
@given(HOSTS, ANY)
def test_no_plan_whose_wheels_lack_code_for_a_gpu(host: dict[str, Any], wishes: dict[str, Any]) -> None:
    given_facts = invented(host)
    made = outcome(given_facts, wishes)
    if made is None:
        return
    stack = made["stack"]
    used = {name for entry in made["launch"]["devices"] for name in entry.split(",")}
    for package, number in ((stack["sgl_kernel"]["name"], stack["sgl_kernel"]["version"]), ("torch", stack["torch"])):
        code = KNOWLEDGE.code[package].get(number, {}).get(host["machine"])
        if package != "torch" and "sglang_version" not in wishes:
            assert code is not None, "a kernel wheel that nobody looked into is never chosen unasked"
        for device in given_facts["gpu"]["devices"]:
            if device["uuid"] in used and code is not None:
                assert any(runs_as(f"sm_{arch}", device["compute_capability"]) for arch in code["runs"])


@settings(max_examples=100, deadline=None)
@given(HOSTS, ANY)
def test_a_plan_says_why_and_leaves_its_input_alone(host: dict[str, Any], wishes: dict[str, Any]) -> None:
    given_facts = invented(host)
    before = copy.deepcopy((given_facts, wishes))
    made = outcome(given_facts, wishes)
    assert (given_facts, wishes) == before
    if made is not None:
        chosen = {entry["subject"]: entry["choice"] for entry in made["decisions"]}
        assert chosen["SGLang"] == made["stack"]["sglang"] and chosen["attention backend"] == made["launch"]["attention_backend"]
        for entry in made["decisions"] + made["rejected"]:
            assert entry["because"].strip() and entry["source"].strip() and "{" not in entry["because"] + entry["source"]


@settings(max_examples=100, deadline=None)
@given(HOSTS, ANY, st.randoms(use_true_random=False))
def test_the_order_of_gpus_pythons_and_keys_does_not_matter(host: dict[str, Any], wishes: dict[str, Any], random: Any) -> None:
    given_facts = invented(host)
    reference = outcome(given_facts, wishes)
    random.shuffle(given_facts["gpu"]["devices"])
    keys = list(given_facts["gpu"]["platform"]["pythons"])
    random.shuffle(keys)
    given_facts["gpu"]["platform"]["pythons"] = {key: given_facts["gpu"]["platform"]["pythons"][key] for key in keys}
    made = outcome(given_facts, dict(reversed(wishes.items())))
    assert json.dumps(made) == json.dumps(reference)


@pytest.mark.parametrize("text", [True, False])
def test_no_second_wish_turns_failure_into_success(text: bool) -> None:
    given_facts = invented(
        {
            **{"text": text, "mtp": False, "capabilities": ["12.0"], "driver": "580.126.09"},
            **{"machine": "x86_64", "glibc": "2.41", "pythons": ["3.13"]},
        }
    )
    pairs = [(name, value) for name, values in NARROWING.items() for value in values]
    failing = [(name, value) for name, value in pairs if outcome(given_facts, {name: value}) is None]
    assert len(failing) > 5
    for name, value in failing:
        for other, more in pairs:
            assert other == name or outcome(given_facts, {name: value, other: more}) is None, (name, value, other, more)


@settings(max_examples=100, deadline=None)
@given(HOSTS, wishes_of(NARROWING))
def test_a_wish_more_never_turns_failure_into_success(host: dict[str, Any], wishes: dict[str, Any]) -> None:
    given_facts = invented(host)
    if outcome(given_facts, wishes) is None:
        for name in set(NARROWING) - set(wishes):
            for value in NARROWING[name]:
                assert outcome(given_facts, {**wishes, name: value}) is None, (name, value)


@settings(max_examples=300, deadline=None)
@given(HOSTS, wishes_of(NARROWING), st.data())
def test_a_poorer_host_never_turns_failure_into_success(host: dict[str, Any], wishes: dict[str, Any], data: Any) -> None:
    if outcome(invented(host), wishes) is not None:
        return
    what = data.draw(st.sampled_from(["driver", "glibc", "pythons", "card"]))
    poorer = copy.deepcopy(host)
    if what == "driver":
        poorer["driver"] = data.draw(st.sampled_from([name for name in DRIVERS if Version(name) <= Version(host["driver"])]))
    elif what == "glibc":
        poorer["glibc"] = data.draw(st.sampled_from([name for name in GLIBCS if Version(name) <= Version(host["glibc"])]))
    elif what == "pythons":
        poorer["pythons"] = host["pythons"][:-1]
    else:
        poorer["capabilities"] = [*host["capabilities"], data.draw(st.sampled_from(CAPABILITIES))]
    assert outcome(invented(poorer), wishes) is None


SEVERAL = """
import json, sys
sys.path.insert(0, sys.argv[1])
import cases
from ansible_collections.blackwell.inference.plugins.plugin_utils import _knowledge
print(json.dumps([cases.answer(case, _knowledge.load()) for case in cases.PLANS if "tables" not in case]))
"""


def test_another_process_gives_the_same_bytes() -> None:
    """Sets and hashes of text differ from process to process."""
    said = {
        subprocess.run(
            [sys.executable, "-c", SEVERAL, str(Path(__file__).parent)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(said) == 1 and len(said.pop()) > 10_000
