# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy
import datetime
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.blackwell.inference.plugins.plugin_utils import _fleet, _fleet_report, _knowledge, _page, _servers
from ansible_collections.blackwell.inference.plugins.plugin_utils._conflicts import PlanError
from ansible_collections.blackwell.inference.plugins.plugin_utils._inputs import InputError, check, plain
from ansible_collections.blackwell.inference.plugins.plugin_utils._resolver import resolve
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))
import cases
import fleet_kit as kit

GONE = object()


def everything() -> dict[str, Any]:
    """Facts, wishes and an environment in which every key that is known stands."""
    whole = cases.facts()
    whole["gpu"]["devices"] = whole["gpu"]["devices"][:3]
    whole["gpu"]["devices"][0]["processes"] = [{"pid": 1, "name": "python", "memory_mib": 3000, "unit": "inference@0.service"}]
    whole["gpu"]["problems"] = [{"code": "persistence_off", "severity": "warning", "found": "a", "wanted": "b", "remedy": "c"}]
    whole["request"] = {
        "attention_backend": "flashinfer",
        "context_length": 4096,
        "expected_compute_capability": "12.0",
        "gpus": [0, 1, "GPU-00000002-0000-4000-8000-000000000002"],
        "instances": 1,
        "mamba_strategy": "no_buffer",
        "max_running_requests": 4,
        "port_base": 30000,
        "served_model_name": "name",
        "sglang_version": "0.5.23",
        "speculative": "auto",
        "tensor_parallel": 1,
    }
    whole["stack"] = copy.deepcopy(kit.VENV) | {"problems": []}
    return whole


def put(value: Any, path: list[Any], new: Any) -> None:
    for key in path[:-1]:
        value = value[key]
    if new is GONE:
        del value[path[-1]]
    else:
        value[path[-1]] = new


# Where, what stands there, and every word that the message must hold.
WRONG: list[tuple[str, list[Any], Any, list[str]]] = [
    ("the wrong kind of facts", ["gpu"], [1], ["gpu is [1]", "a dictionary"]),
    ("no facts", ["gpu"], None, ["gpu is None"]),
    ("no model", ["model"], "Qwen", ["model is 'Qwen'"]),
    ("a number for a version", ["gpu", "driver", "version"], 580.126, ["gpu.driver.version is 580.126", "a version in quotes"]),
    ("no version", ["gpu", "driver", "version"], "newest", ["gpu.driver.version is 'newest'"]),
    ("glibc without quotes", ["gpu", "platform", "glibc"], 2.41, ["gpu.platform.glibc is 2.41", "in quotes"]),
    ("text for a size", ["gpu", "devices", 2, "memory_mib"], "96 GB", ["gpu.devices[2].memory_mib is '96 GB'", "a whole number"]),
    ("no memory", ["gpu", "devices", 2, "memory_mib"], 0, ["gpu.devices[2].memory_mib is 0", "at least 1"]),
    ("more memory than there is", ["gpu", "devices", 2, "memory_mib"], 10**30, ["gpu.devices[2].memory_mib"]),
    ("a boolean for a number", ["gpu", "devices", 0, "index"], True, ["gpu.devices[0].index is True"]),
    (
        "an architecture for a capability",
        ["gpu", "devices", 1, "compute_capability"],
        "sm_120",
        ["gpu.devices[1].compute_capability", '"12.0"'],
    ),
    (
        "two names in one",
        ["gpu", "devices", 1, "uuid"],
        "GPU-1,GPU-2",
        ["gpu.devices[1].uuid is 'GPU-1,GPU-2'", "without blanks and commas"],
    ),
    (
        "text for memory of a process",
        ["gpu", "devices", 0, "processes", 0, "memory_mib"],
        "3 GB",
        ["gpu.devices[0].processes[0].memory_mib"],
    ),
    ("a list for a dictionary", ["gpu", "platform", "pythons"], ["3.13"], ["gpu.platform.pythons is ['3.13']"]),
    ("an unknown key at the top", ["gpu", "devicez"], [], ["gpu.devicez is not a key", "did you mean devices"]),
    ("a key unlike any", ["gpu", "colour"], "green", ["gpu.colour is not a key", "known: "]),
    ("a text for parameters", ["model", "weight_bytes"], "54 GB", ["model.weight_bytes is '54 GB'"]),
    ("a key of another tool", ["model", "archs"], [], ["model.archs is not a key"]),
    ("text in attention", ["model", "attention"], {"full": "all", "linear": 48}, ["model.attention.full is 'all'"]),
    ("a negative size", ["model", "kv_bytes_per_token"], -1, ["model.kv_bytes_per_token is -1"]),
    ("an unknown wish", ["request", "sglang_versoin"], "0.5.23", ["request.sglang_versoin is not a key", "did you mean sglang_version"]),
    ("wishes in a text", ["request"], "sglang_version=0.5.12", ["request is 'sglang_version=0.5.12'", "a dictionary"]),
    ("a wish for none", ["request", "instances"], 0, ["request.instances is 0", "at least 1"]),
    ("a wish for the newest", ["request", "sglang_version"], "latest", ["request.sglang_version is 'latest'"]),
    ("an unknown choice", ["request", "speculative"], "yes", ["request.speculative is 'yes'", "off, auto, mtp"]),
    ("half a card", ["request", "gpus"], [0.5], ["request.gpus[0] is 0.5"]),
    ("an environment that is a path", ["stack"], "/root/venv", ["stack is '/root/venv'"]),
    (
        "an environment without contents",
        ["stack", "distributions"],
        GONE,
        ["stack.distributions is missing", "with this collection's stack_facts"],
    ),
    ("a number for a version of it", ["stack", "distributions", "torch"], 2.11, ["stack.distributions.torch is 2.11"]),
    # Facts of an older schema: keys that are not there yet, or that were called otherwise.
    (
        "facts without a platform",
        ["gpu", "platform"],
        GONE,
        ["gpu.platform is missing", "measure gpu again with this collection's gpu_facts"],
    ),
    (
        "a card without a capability",
        ["gpu", "devices", 1, "compute_capability"],
        GONE,
        ["gpu.devices[1].compute_capability is missing", "gpu_facts"],
    ),
    ("a model without attention", ["model", "attention"], GONE, ["model.attention is missing", "measure model again", "model_facts"]),
    ("a slip inside", ["gpu", "devices", 1, "acessible"], False, []),
]


@pytest.mark.parametrize(("path", "value", "says"), [entry[1:] for entry in WRONG], ids=[entry[0] for entry in WRONG])
def test_wrong_input_is_named_by_its_place(path: list[Any], value: Any, says: list[str]) -> None:
    whole = everything()
    put(whole, path, value)
    if not says:
        # Facts may say more than a plan needs, as long as what it needs is there too.
        check(whole["gpu"], whole["model"], whole["request"], whole["stack"])
        return
    with pytest.raises(InputError) as raised:
        check(whole["gpu"], whole["model"], whole["request"], whole["stack"])
    for word in says:
        assert word in str(raised.value)
    assert str(raised.value).count("\n  - ") == 1, "one fault is one line"


def test_a_slip_of_the_pen_in_a_key_that_may_be_left_out_is_named() -> None:
    whole = everything()
    device = whole["gpu"]["devices"][1]
    device["acessible"] = device.pop("accessible")
    with pytest.raises(InputError, match=r"gpu\.devices\[1\]\.acessible is not a key that is known here; did you mean accessible"):
        check(whole["gpu"], whole["model"], whole["request"])


def test_everything_that_is_wrong_is_said_at_once() -> None:
    whole = everything()
    for entry in (["gpu", "driver", "version"], ["model", "weight_bytes"]):
        put(whole, entry, ["x"])
    del whole["gpu"]["platform"], whole["model"]["architectures"]
    with pytest.raises(InputError) as raised:
        check(whole["gpu"], whole["model"], whole["request"])
    assert str(raised.value).count("\n  - ") == 4
    assert "measure gpu again" in str(raised.value) and "measure model again" in str(raised.value)


PLAIN: list[tuple[Any, Any]] = [
    ({"a": (1, 2.5, None, True)}, {"a": [1, 2.5, None, True]}),
    ({1: datetime.date(2026, 11, 30)}, {"1": "2026-11-30"}),
    (datetime.datetime(2026, 11, 30, 1, 2), "2026-11-30T01:02:00"),
]
NOT_PLAIN: list[Any] = [b"x", {"x"}, float("nan"), float("inf"), object()]


@pytest.mark.parametrize(("value", "expected"), PLAIN)
def test_values_are_made_plain(value: Any, expected: Any) -> None:
    assert plain(value, "gpu") == expected


@pytest.mark.parametrize("value", NOT_PLAIN, ids=lambda value: type(value).__name__)
def test_what_cannot_be_made_plain_is_named(value: Any) -> None:
    with pytest.raises(InputError, match=r"gpu\.devices\[1\] is of type"):
        plain({"devices": [1, value]}, "gpu")


def test_what_holds_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(InputError, match="nested without an end"):
        plain(endless, "gpu")


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, entry in entries for place in places(entry, (*path, key)))]


PLACES = [place for place in places(everything()) if place]
ODD = [
    *(None, True, False, 0, -1, 1, 1 << 70, 10**400, 1.5, "", "x", "12.0", "9.9", "0.5.9", "{", "{x}", "%s", "a,b", "\x1b", "9" * 400),
    *([], {}, [1], ["x"], [[]], [{}], {"a": 1}, {1: 2}, b"x", {"x"}, float("nan"), GONE),
]


@settings(max_examples=400, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(PLACES), st.sampled_from(ODD)), min_size=1, max_size=3))
def test_whatever_stands_in_the_input_there_is_an_answer(changes: list[tuple[tuple[Any, ...], Any]]) -> None:
    """A plan, or a message: never another exception, alone or in a fleet's report."""
    whole = everything()
    for place, value in changes:
        try:
            put(whole, list(place), value)
        except (KeyError, IndexError, TypeError, AttributeError):
            continue
    given_values = [whole.get(name) for name in ("gpu", "model", "request", "stack")]
    document = _fleet.document(_knowledge.load(), [_fleet.Machine("one", *given_values)])
    json.dumps(document, allow_nan=False)
    assert _fleet_report.table(document, True) and _page.render(document)
    try:
        gpu, model, request, stack = (
            plain(value, name) for value, name in zip(given_values, ("gpu", "model", "request", "stack"), strict=True)
        )
        plan = resolve(_knowledge.load(), gpu, model, request, stack)
    except (InputError, PlanError):
        assert document["planned"] == 0
        return
    assert len(_servers.servers(plan["launch"], gpu)) == plan["launch"]["instances"]
    assert document["planned"] == 1
