# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.blackwell.inference.plugins.module_utils import _pve_config as pve
from ansible_collections.blackwell.inference.plugins.module_utils._refusal import Refusal
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("key", "one", "other", "same"),
    [
        ("dev0", "/dev/nvidia0,mode=0666", "mode=0666,path=/dev/nvidia0", True),
        ("dev0", "/dev/nvidia0,mode=0666", "/dev/nvidia0", False),
        ("dev0", "/dev/nvidia0,mode=0666", "/dev/nvidia1,mode=0666", False),
        ("mp0", "/a,mp=/b", "mp=/b,volume=/a,ro=0", True),
        ("mp0", "/a,mp=/b", "/a,mp=/b,ro=1", False),
        ("net0", "name=eth0,bridge=vmbr0", "bridge=vmbr0,name=eth0", True),
        ("net0", "name=eth0,bridge=vmbr0", "name=eth0,bridge=vmbr1", False),
        ("features", "nesting=1,keyctl=0", "nesting=1", True),
        ("features", "nesting=0", "", True),
        ("features", "nesting=1", "nesting=0", False),
        ("startup", "order=2,up=5", "up=5,order=2", True),
        ("startup", "2,up=5", "order=2,up=5", True),
        ("tags", "a;b", "b, a", True),
        ("tags", "A;b", "a;b", True),
        ("tags", "a", "a;b", False),
        ("description", "text", "text\n", True),
        ("cores", "4", "4", True),
        ("cores", "4", "8", False),
        ("rootfs", "local:200/d.raw,size=8G", "size=8G,volume=local:200/d.raw", True),
    ],
)
def test_values_are_compared_by_meaning(key: str, one: str, other: str, same: bool) -> None:
    assert (pve.canonical(key, one) == pve.canonical(key, other)) is same


@given(st.dictionaries(st.from_regex(r"[a-z]{1,8}", fullmatch=True), st.from_regex(r"[^,=\s]{1,8}", fullmatch=True), max_size=5))
def test_properties_survive_a_round_trip(properties: dict[str, str]) -> None:
    for key in ("dev0", "mp3", "net0", "features", "startup"):
        assert pve.parse_properties(key, pve.render_properties(key, properties)) == properties


@given(st.text(max_size=60))
def test_any_text_is_parsed_and_its_canonical_form_is_stable(text: str) -> None:
    for key in ("dev0", "mp0", "net0", "features", "startup", "rootfs", "tags", "description", "cores"):
        once = pve.canonical(key, text)
        assert pve.canonical(key, once) == once


def test_the_answer_of_the_api_becomes_text() -> None:
    answer = {"cores": 4, "hostname": "x", "digest": "abc", "lxc": [["lxc.cap.drop", "sys_module"]]}
    assert pve.parse_config(answer) == ({"cores": "4", "hostname": "x"}, "abc", ["sys_module"])


def test_pending_values_are_new_ones_and_deletions() -> None:
    answer: list[dict[str, Any]] = [
        {"key": "cores", "value": 4},
        {"key": "memory", "value": 512, "pending": 1024},
        {"key": "dev0", "value": "/dev/nvidia0", "delete": 1},
        {"key": "features", "pending": "nesting=1"},
    ]
    assert pve.parse_pending(answer) == {"memory": "1024", "dev0": None, "features": "nesting=1"}


@pytest.mark.parametrize(
    ("rootfs", "size"),
    [
        ("local:200/d.raw,size=8G", 8),
        ("local:200/d.raw,size=8192M", 8),
        ("local:200/d.raw,size=1T", 1024),
        ("local:200/d.raw,size=8388608K", 8),
        ("local:200/d.raw,size=8589934592", 8),
        ("local:200/d.raw", None),
        ("local:200/d.raw,size=huge", None),
        ("", None),
    ],
)
def test_sizes(rootfs: str, size: float | None) -> None:
    assert pve.size_gib(rootfs) == size


CONTROL = ["/dev/nvidiactl", "/dev/nvidia-uvm"]
ALL = [*(f"/dev/nvidia{n}" for n in (0, 1, 2, 10)), *CONTROL, "/dev/nvidia-modeset", "/dev/nvidia-uvm-tools", "/dev/nvidia-caps"]
OPTIONAL = ["/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"]
UUID = "GPU-0000000a-1111-2222-3333-444444444444"


@pytest.mark.parametrize(
    ("gpus", "present", "expected"),
    [
        (["none"], [], []),
        (["none"], None, []),
        (["all"], ALL, ["/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia2", "/dev/nvidia10", *CONTROL, *OPTIONAL]),
        (["10", "0", "0"], ALL, ["/dev/nvidia0", "/dev/nvidia10", *CONTROL, *OPTIONAL]),
        (["1"], ["/dev/nvidia1", *CONTROL], ["/dev/nvidia1", *CONTROL]),
        ([UUID, "0"], ALL, ["/dev/nvidia0", "/dev/nvidia10", *CONTROL, *OPTIONAL]),
        # By the API: nothing can be looked for, and what is there already stays.
        (["1"], None, ["/dev/nvidia1", *CONTROL, "/dev/nvidia-modeset"]),
    ],
)
def test_device_nodes(gpus: list[str], present: list[str] | None, expected: list[str]) -> None:
    found = {"dev3": "/dev/nvidia-modeset,mode=0666", "dev4": "path=/dev/fuse"}
    assert pve.gpu_paths(gpus, present, {UUID: 10}, found) == expected


@pytest.mark.parametrize(
    ("gpus", "present", "words"),
    [
        (["all"], CONTROL, "no character device /dev/nvidia0"),
        (["3"], ALL, "no character device /dev/nvidia3"),
        (["0"], ["/dev/nvidia0", "/dev/nvidiactl"], "no character device /dev/nvidia-uvm"),
        (["first"], ALL, "'first'"),
        (["all", "0"], ALL, "'all'"),
        (["none", "0"], ALL, "'none'"),
        (["-1"], ALL, "'-1'"),
        (["GPU-2"], ALL, f"GPU-2, and on the node {UUID}"),
        ([UUID], CONTROL, "no character device /dev/nvidia10"),
        (["all"], None, "all, by the API"),
    ],
)
def test_device_nodes_that_cannot_be_given(gpus: list[str], present: list[str] | None, words: str) -> None:
    with pytest.raises(Refusal, match=words):
        pve.gpu_paths(gpus, present, {UUID: 10}, {})


@pytest.mark.parametrize(
    ("config", "raw", "held"),
    [
        ({"dev0": "/dev/nvidia1,mode=0666"}, [], ["/dev/nvidia1"]),
        ({"dev4": "mode=0666,path=/dev/nvidia1"}, [], ["/dev/nvidia1"]),
        ({"dev0": "/dev/nvidia10,mode=0666"}, [], []),
        ({"dev0": "/dev/nvidiactl,mode=0666"}, [], []),
        ({"description": "/dev/nvidia1"}, [], []),
        ({}, ["/dev/nvidia1 dev/nvidia1 none bind,optional,create=file"], ["/dev/nvidia1"]),
        ({}, ["/dev/nvidia-uvm dev/nvidia-uvm none bind"], []),
    ],
)
def test_gpus_of_other_containers(config: dict[str, str], raw: list[str], held: list[str]) -> None:
    wanted = ["/dev/nvidia0", "/dev/nvidia1", *CONTROL]
    assert pve.gpu_holders(wanted, {201: (config, raw)}) == ({201: held} if held else {})


def test_devices_keep_their_keys_and_new_ones_take_free_ones() -> None:
    found = {"dev1": "/dev/nvidia0,mode=0666", "dev2": "/dev/dri/card0", "dev3": "/dev/nvidia7"}
    devices = ["/dev/nvidia0", "/dev/nvidia1"]
    wanted = pve.wanted_config({}, found, devices)
    assert {k: v for k, v in wanted.items() if k.startswith("dev")} == {
        "dev1": "/dev/nvidia0,mode=0666",
        "dev0": "/dev/nvidia1,mode=0666",
    }
    change = pve.difference({}, {**found, "tags": pve.TAG}, wanted, devices)
    assert change == pve.Change({"dev0": "/dev/nvidia1,mode=0666"}, ["dev3"])


def test_a_device_that_is_there_twice_is_left_once() -> None:
    found = {"dev0": "/dev/nvidia0,mode=0666", "dev1": "/dev/nvidia0,mode=0666", "tags": pve.TAG}
    wanted = pve.wanted_config({}, found, ["/dev/nvidia0"])
    assert pve.difference({}, found, wanted, ["/dev/nvidia0"]) == pve.Change({}, ["dev1"])


def test_a_gateway_that_is_not_wanted_goes_and_the_rest_of_the_interface_stays() -> None:
    found = {"net0": "name=eth0,bridge=vmbr0,ip=10.0.0.2/24,gw=10.0.0.1,firewall=1,hwaddr=AA:BB:CC:00:00:01,type=veth"}
    wanted = pve.wanted_config({"network": {"name": "eth0", "bridge": "vmbr0", "address": "dhcp"}}, found, None)
    assert pve.parse_properties("net0", wanted["net0"]) == {
        "name": "eth0",
        "bridge": "vmbr0",
        "ip": "dhcp",
        "firewall": "1",
        "hwaddr": "AA:BB:CC:00:00:01",
        "type": "veth",
    }
