# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Recorded machines in, facts out. The machines lie in tests/unit/fixtures/gpu; each names its source."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any, Callable

import pytest
from ansible_collections.blackwell.inference.plugins.module_utils import _gpu_problems
from ansible_collections.blackwell.inference.plugins.module_utils._gpu import (
    assemble,
    parse_information,
    parse_version,
    unit_of,
)
from ansible_collections.blackwell.inference.plugins.plugin_utils import _knowledge

FIXTURES = Path(__file__).parents[2] / "fixtures" / "gpu"
REFERENCE = "rtx-pro-6000-workstation-x8"
MIB = 1 << 20


def machine(name: str) -> dict[str, Any]:
    raw: dict[str, Any] = json.loads((FIXTURES / f"{name}.json").read_text())["raw"]
    return raw


def codes(gpu: dict[str, Any]) -> list[tuple[str, str]]:
    return [(problem["code"], problem["severity"]) for problem in gpu["problems"]]


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("*.json")), ids=lambda path: path.stem)
def test_every_recorded_machine_has_the_whole_shape(path: Path) -> None:
    document = json.loads(path.read_text())
    assert document["source"]
    gpu = assemble(document["raw"])
    json.dumps(gpu)
    assert set(gpu) == {
        "driver", "devices", "count", "compute_capabilities", "device_nodes", "container", "platform", "sources", "problems",
    }  # fmt: skip
    assert set(gpu["driver"]) == {"version", "flavour", "cuda", "library_version", "loaded", "matches"}
    for device in gpu["devices"]:
        assert set(device) == {
            "index", "uuid", "name", "pci_address", "pci_id", "compute_capability", "sm", "family", "memory_mib",
            "memory_used_mib", "shared_memory_per_block_optin", "multiprocessors", "ecc", "ecc_errors", "mig",
            "persistence", "power_limit_w", "pcie_width", "pcie_width_max", "numa_node", "minor", "node", "accessible",
            "processes", "holder_unknown", "lost",
        }  # fmt: skip
        assert device["name"] and device["compute_capability"] and device["family"]
    for problem in gpu["problems"]:
        assert all(problem[part] for part in ("code", "severity", "found", "wanted", "remedy"))


def test_the_reference_site() -> None:
    gpu = assemble(machine(REFERENCE), vmid=200)
    assert gpu["problems"] == []
    assert gpu["driver"] == {
        "version": "580.126.09", "flavour": "open", "cuda": "13.0", "library_version": "580.126.09", "loaded": True,
        "matches": True,
    }  # fmt: skip
    assert (gpu["count"], gpu["compute_capabilities"]) == (8, ["12.0"])
    assert gpu["container"] == {"type": "lxc", "unprivileged": True, "vmid": 200}
    assert gpu["devices"][0] == {
        "index": 0, "uuid": "GPU-00000000-1111-2222-3333-444444444444",
        "name": "NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "pci_address": "0000:01:00.0", "pci_id": "10de:2bb1",
        "compute_capability": "12.0", "sm": "sm_120", "family": "blackwell-workstation", "memory_mib": 97887,
        "memory_used_mib": 3, "shared_memory_per_block_optin": 101376, "multiprocessors": 188, "ecc": True, "ecc_errors": 0,
        "mig": False, "persistence": True, "power_limit_w": 600, "pcie_width": 16, "pcie_width_max": 16, "numa_node": 0,
        "minor": 0, "node": "/dev/nvidia0", "accessible": True, "processes": [], "holder_unknown": False, "lost": False,
    }  # fmt: skip
    assert gpu["sources"]["compute_capability"] == "nvml"
    assert gpu["sources"]["multiprocessors"] == "cuda"
    assert gpu["sources"]["numa_node"] == "sysfs"
    assert gpu["sources"]["driver"] == "proc"


@pytest.mark.parametrize(
    ("name", "capability", "family"),
    [
        ("rtx-pro-6000-server-x2", "12.0", "blackwell-workstation"),
        ("rtx-5090", "12.0", "blackwell-workstation"),
        ("b200", "10.0", "blackwell-datacenter"),
        ("b300", "10.3", "blackwell-datacenter"),
        ("gb10", "12.1", "blackwell-spark"),
        ("l40s", "8.9", "ada"),
        ("h200", "9.0", "hopper"),
    ],
)
def test_families(name: str, capability: str, family: str) -> None:
    device = assemble(machine(name))["devices"][0]
    assert (device["compute_capability"], device["family"]) == (capability, family)


def test_a_real_h200() -> None:
    gpu = assemble(machine("h200"))
    assert gpu["problems"] == [] and gpu["driver"]["library_version"] == "580.159.04"
    assert gpu["devices"][0] == {
        "index": 0, "uuid": "GPU-00000000-1111-2222-3333-444444444444", "name": "NVIDIA H200",
        "pci_address": "0000:00:06.0", "pci_id": "10de:2335", "compute_capability": "9.0", "sm": "sm_90",
        "family": "hopper", "memory_mib": 143771, "memory_used_mib": 0, "shared_memory_per_block_optin": 232448,
        "multiprocessors": 132, "ecc": True, "ecc_errors": 0, "mig": False, "persistence": True, "power_limit_w": 700,
        "pcie_width": 16, "pcie_width_max": 16, "numa_node": None, "minor": 0, "node": "/dev/nvidia0", "accessible": True,
        "processes": [], "holder_unknown": False, "lost": False,
    }  # fmt: skip


def test_a_node_without_a_numa_number_and_unified_memory_are_unknown() -> None:
    device = assemble(machine("gb10"))["devices"][0]
    assert device["numa_node"] is None and device["memory_mib"] is None


def test_a_host_without_driver_names_its_cards() -> None:
    gpu = assemble(machine("no-driver"))
    assert gpu["count"] == 8 and gpu["compute_capabilities"] == ["12.0"]
    assert gpu["devices"][7]["name"] == "NVIDIA RTX PRO 6000 Blackwell Workstation Edition"
    assert gpu["devices"][7]["accessible"] is None and gpu["devices"][7]["uuid"] is None
    assert gpu["driver"]["loaded"] is False and gpu["sources"]["compute_capability"] == "pci"
    assert codes(gpu) == [("driver_not_loaded", "error")]


def test_mixed_capabilities_are_sorted_as_numbers() -> None:
    gpu = assemble(machine("mixed"))
    assert gpu["compute_capabilities"] == ["8.9", "12.0"]
    assert codes(gpu) == [("mixed_capabilities", "warning")]


def test_the_closed_module_is_no_problem_before_blackwell() -> None:
    assert codes(assemble(machine("l40s"))) == []


Change = Callable[[dict[str, Any]], None]


def path(*keys: Any, value: Any) -> Change:
    def change(raw: dict[str, Any]) -> None:
        target = raw
        for key in keys[:-1]:
            target = target[key]
        target[keys[-1]] = value

    return change


def both(*changes: Change) -> Change:
    def change(raw: dict[str, Any]) -> None:
        for one in changes:
            one(raw)

    return change


def gpu_0(**values: Any) -> Change:
    return lambda raw: raw["nvml"]["devices"][0].update(values)


def held(unit: str | None, memory: int | None, holds: bool | None = True) -> Change:
    def change(raw: dict[str, Any]) -> None:
        used = memory if memory is not None else 90_000
        raw["nvml"]["devices"][0].update(
            processes=[{"pid": 4242, "memory": None if memory is None else memory * MIB}], memory_used=used * MIB
        )
        cgroup = f"0::/system.slice/{unit}\n" if unit else "0::/\n"
        raw["processes"] = [{"pid": 4242, "name": "python", "cgroup": cgroup, "holds": holds}]

    return change


def no_library(raw: dict[str, Any]) -> None:
    raw["nvml"] = {"loaded": False, "status": None, "devices": [], "fault": None, "timed_out": False}
    raw["cuda"] = None


def nvml_fails(status: int) -> Change:
    return lambda raw: raw["nvml"].update(status=status, devices=[], driver_version=None, cuda_version=None)


def hangs(raw: dict[str, Any]) -> None:
    raw["nvml"].update(fault="no answer within 10 s (at GPU 3)", timed_out=True, devices=raw["nvml"]["devices"][:3])


def loses_gpu_3(raw: dict[str, Any]) -> None:
    raw["nvml"]["devices"][3] = {"index": 3, "status": 15}


def no_node(number: Any) -> Change:
    return path("nodes", f"/dev/nvidia{number}", value={"type": "missing", "path": "", "openable": None, "error": None})


def not_listed(index: int) -> Change:
    return lambda raw: raw["nvml"]["devices"].pop(index)


CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.126.09  Wed\n"
STATES: list[tuple[str, Change, list[tuple[str, str]], str]] = [
    ("nothing", both(path("sysfs", value=[]), path("proc", value={"version": None, "gpus": {}}), no_library),
     [("no_nvidia_hardware", "error")], "no NVIDIA GPU on the PCI bus"),
    ("library absent", no_library, [("driver_library_missing", "error")], "kernel module 580.126.09, no libnvidia-ml"),
    ("library of another version", both(path("nvml", "library_version", value="580.95.05"), nvml_fails(18)),
     [("driver_library_mismatch", "error")], "kernel module 580.126.09, library 580.95.05"),
    ("library differs and still answers", path("nvml", "library_version", value="580.126.10"),
     [("driver_library_mismatch", "error")], "library 580.126.10"),
    ("closed module", path("proc", "version", value=CLOSED),
     [("closed_kernel_module", "error")], "with NVIDIA RTX PRO 6000"),
    ("driver too old", both(path("proc", "version", value="NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  515.48.07\n"),
     path("nvml", "library_version", value="515.48.07")), [("driver_too_old", "error")], "driver 515.48.07"),
    ("no permission", nvml_fails(4), [("driver_no_permission", "error")], "NVML is refused"),
    ("NVML fails", nvml_fails(999), [("driver_query_failed", "error")], "999"),
    ("driver hangs", hangs, [("driver_hangs", "error")], "no answer within 10 s (at GPU 3)"),
    ("library crashes", lambda raw: raw.update(nvml={
        "loaded": None, "status": None, "devices": [], "fault": "the process was ended by SIGSEGV (at nvmlInit)",
        "timed_out": False}), [("driver_query_died", "error")], "SIGSEGV"),
    ("uvm missing", no_node("-uvm"), [("uvm_missing", "error")], "no /dev/nvidia-uvm"),
    ("uvm tools missing", no_node("-uvm-tools"), [], ""),
    ("control node missing", no_node("ctl"), [("device_node_missing", "error")], "no /dev/nvidiactl"),
    ("own node missing", no_node(2), [("device_node_missing", "error")], "no /dev/nvidia2"),
    ("a card of the node that is not ours", both(no_node(7), not_listed(7)), [("device_node_absent", "warning")], "/dev/nvidia7"),
    ("two cards of the node that are not ours", both(no_node(6), no_node(7), not_listed(7), not_listed(6)),
     [("device_node_absent", "warning")], "no /dev/nvidia6, /dev/nvidia7 here"),
    ("a dead card", both(path("nodes", "/dev/nvidia1", "openable", value=False),
     path("nodes", "/dev/nvidia1", "error", value="Input/output error")),
     [("device_node_dead", "error")], "/dev/nvidia1 cannot be opened (Input/output error)"),
    ("a container in a container", path("container", "nested", value=True), [("container_nested", "warning")], "in a container"),
    ("a closed module that starts no card", both(path("proc", "version", value=CLOSED),
     path("nvml", "devices", value=[])), [("closed_kernel_module", "error")], "with NVIDIA RTX PRO 6000"),
    ("a file instead of a node", path("nodes", "/dev/nvidia1", "type", value="other"),
     [("device_node_not_char", "error")], "/dev/nvidia1"),
    ("not for the service user", both(path("nodes", "/dev/nvidia1", "openable", value=False),
     path("nodes", "/dev/nvidia1", "error", value="Permission denied")),
     [("device_node_not_accessible", "error")], "cannot be opened by inference (Permission denied)"),
    ("not root", path("user", "fault", value="only root can open files as inference"), [("access_not_checked", "warning")], "only root"),
    ("lost", loses_gpu_3, [("gpu_lost", "error")], "GPU 3 (0000:61:00.0)"),
    ("MIG", gpu_0(mig=True), [("mig_enabled", "warning")], "1 of 8 GPUs"),
    ("ECC off", gpu_0(ecc=False), [("ecc_off", "warning")], "1 of 8 GPUs"),
    ("ECC errors", gpu_0(ecc_errors=2), [("ecc_errors", "warning")], "2 uncorrected"),
    ("persistence off", gpu_0(persistence=False), [("persistence_off", "warning")], "1 of 8 GPUs"),
    ("narrow link", gpu_0(pcie_width=8), [("pcie_width_reduced", "warning")], "8 of 16"),
    ("privileged", path("container", "unprivileged", value=False), [("container_privileged", "warning")], "privileged"),
    ("held by somebody", held("train.service", 91000), [("gpu_busy", "error")], "pid 4242 (python, train.service, 91000 MiB)"),
    ("held, memory unknown", held(None, None), [("gpu_busy", "error")], "no unit, unknown MiB"),
    ("a display server", held("display.service", 20), [], ""),
    ("held by us", held("system-inference.slice/inference@0.service", 91000), [], ""),
    ("held by a pid of another namespace", held(None, 91000, holds=False), [("gpu_held_unknown", "error")],
     "holders outside a container cannot be seen"),
    ("memory in use and no process", gpu_0(memory_used=91000 * MIB), [("gpu_held_unknown", "error")], "91000 MiB of GPU 0"),
]  # fmt: skip


@pytest.mark.parametrize(("state", "change", "expected", "says"), STATES, ids=[row[0] for row in STATES])
def test_states(state: str, change: Change, expected: list[tuple[str, str]], says: str) -> None:
    raw = machine(REFERENCE)
    change(raw)
    gpu = assemble(raw)
    assert codes(gpu) == expected
    if says:
        assert says in gpu["problems"][0]["found"]


def test_every_problem_code_has_a_row() -> None:
    """What the code can say, by its own text, against what this table and the other tests show."""
    source = Path(_gpu_problems.__file__).read_text(encoding="utf-8")
    known = set(re.findall(r'(?:error|warning)\(\s*"(\w+)"', source)) | set(re.findall(r'"(\w+)" if nvml', source))
    known |= {code for code in ("driver_query_died", "mig_enabled", "ecc_off", "persistence_off") if f'"{code}"' in source}
    shown = {code for _state, _change, expected, _says in STATES for code, _severity in expected}
    elsewhere = {"driver_not_loaded", "capability_differs", "mixed_capabilities", "gpu_without_driver", "no_gpu_here"}
    assert known == shown | elsewhere
    table = (Path(__file__).parents[4] / "docs" / "facts.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)` \| (?:error|warning) ", table, re.MULTILINE)) == known


def test_the_oldest_driver_is_the_knowledge_bases() -> None:
    """The target cannot read the knowledge base, so the number stands twice."""
    floors = [rule.then["driver_minimum"] for rule in _knowledge.load().rules if "driver_minimum" in rule.then]
    assert min(int(str(floor).split(".")[0]) for floor in floors) == _gpu_problems.OLDEST_DRIVER


def test_the_devices_stay_when_the_library_is_absent() -> None:
    raw = machine(REFERENCE)
    no_library(raw)
    gpu = assemble(raw)
    assert gpu["count"] == 8 and gpu["devices"][0]["uuid"].startswith("GPU-")
    assert gpu["devices"][0]["memory_mib"] is None
    assert gpu["sources"]["name"] == "proc" and gpu["sources"]["compute_capability"] == "pci"


def test_a_lost_gpu_keeps_its_identity_and_the_others_their_order() -> None:
    raw = machine(REFERENCE)
    loses_gpu_3(raw)
    devices = assemble(raw)["devices"]
    assert [device["lost"] for device in devices] == [index == 3 for index in range(8)]
    assert devices[3]["uuid"] == "GPU-00000003-1111-2222-3333-444444444444" and devices[3]["memory_mib"] is None


def test_a_card_that_the_service_may_not_open_is_not_lost() -> None:
    raw = machine(REFERENCE)
    raw["nvml"]["devices"].pop(3)
    raw["nodes"]["/dev/nvidia3"].update(openable=False, error="Permission denied")
    gpu = assemble(raw)
    assert gpu["count"] == 8 and gpu["devices"][3]["lost"] is False
    assert codes(gpu) == [("device_node_not_accessible", "error")]


@pytest.mark.parametrize(("bound", "says"), [("nouveau", "bound to nouveau"), (None, "bound to no kernel driver")])
def test_a_card_of_another_driver_is_named_and_not_lost(bound: str | None, says: str) -> None:
    raw = machine("rtx-pro-6000-server-x2")
    address = raw["sysfs"][1]["address"]
    raw["sysfs"][1]["driver"] = bound
    raw["nvml"]["devices"].pop()
    del raw["proc"]["gpus"][address], raw["nodes"]["/dev/nvidia1"]
    gpu = assemble(raw)
    assert [device["lost"] for device in gpu["devices"]] == [False, False]
    assert codes(gpu) == [("gpu_without_driver", "error")] and says in gpu["problems"][0]["found"]


def test_a_container_with_some_of_the_nodes_cards() -> None:
    raw = machine(REFERENCE)
    for number in (4, 5, 6, 7):
        del raw["nodes"][f"/dev/nvidia{number}"]
    raw["nvml"]["devices"] = raw["nvml"]["devices"][:4]
    gpu = assemble(raw)
    assert gpu["count"] == 4 and gpu["problems"] == []


def test_a_build_container_without_any_card() -> None:
    raw = machine(REFERENCE)
    no_library(raw)
    raw["nodes"] = {}
    gpu = assemble(raw)
    assert gpu["count"] == 0
    assert ("no_gpu_here", "error") in codes(gpu)


def test_a_card_given_to_a_virtual_machine_is_not_ours() -> None:
    raw = machine("rtx-pro-6000-server-x2")
    raw["sysfs"][1]["driver"] = "vfio-pci"
    raw["proc"]["gpus"].pop(raw["sysfs"][1]["address"])
    raw["nvml"]["devices"].pop()
    assert assemble(raw)["count"] == 1


def test_our_service_is_recognised_where_nvml_shows_no_process() -> None:
    raw = machine(REFERENCE)
    gpu_0(memory_used=91000 * MIB)(raw)
    uuid = raw["nvml"]["devices"][0]["uuid"]
    raw["services"] = [
        {"pid": 77, "name": "sglang", "cgroup": "0::/system.slice/inference@0.service\n", "visible": uuid},
        {"pid": 78, "name": "sglang", "cgroup": "0::/system.slice/inference@1.service\n", "visible": "GPU-other"},
    ]
    gpu = assemble(raw)
    assert gpu["problems"] == [] and gpu["devices"][0]["holder_unknown"] is False
    assert gpu["devices"][0]["processes"] == [
        {"pid": 77, "name": "sglang", "memory_mib": None, "unit": "inference@0.service"}
    ]


@pytest.mark.parametrize(
    ("expected", "result"), [(None, []), ("12.0", []), ("12.1", [("capability_differs", "warning")])]
)
def test_the_measured_capability_stands(expected: str | None, result: list[tuple[str, str]]) -> None:
    gpu = assemble(machine(REFERENCE), expected)
    assert gpu["compute_capabilities"] == ["12.0"]
    assert codes(gpu) == result


@pytest.mark.parametrize("count", [0, 1, 16])
def test_any_number_of_gpus(count: int) -> None:
    raw = machine("rtx-5090")
    one = {key: raw[key] for key in ("nvml", "proc", "sysfs", "cuda")}
    template = copy.deepcopy(one)
    for values in (raw["nvml"]["devices"], raw["sysfs"], raw["cuda"]["devices"]):
        values.clear()
    raw["proc"]["gpus"] = {}
    for number in reversed(range(count)):
        address = f"0000:{number * 16 + 1:02x}:00.0"
        raw["nvml"]["devices"].append({**template["nvml"]["devices"][0], "pci_address": address, "minor": number})
        raw["sysfs"].append({**template["sysfs"][0], "address": address})
    gpu = assemble(raw)
    assert [device["minor"] for device in gpu["devices"]] == list(range(count))
    assert [device["index"] for device in gpu["devices"]] == list(range(count))


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  590.48.01  Release Build", ("590.48.01", "open")),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14  Thu Feb 22", ("550.54.14", "closed")),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  615.71  Release", ("615.71", "open")),
        ("GCC version:  gcc version 14.2.0", (None, None)),
        (None, (None, None)),
    ],
)
def test_the_driver_version_file(text: str | None, result: tuple[str | None, str | None]) -> None:
    assert parse_version(text) == result


def test_information_before_the_first_open() -> None:
    text = "Model: \t\t NVIDIA B200\nGPU UUID: \t GPU-????????-????-????-????-????????????\nDevice Minor: \t 3\n"
    assert parse_information(text) == {"name": "NVIDIA B200", "uuid": None, "minor": 3}
    assert parse_information("") == {"name": None, "uuid": None, "minor": None}


@pytest.mark.parametrize(
    ("cgroup", "unit"),
    [
        ("0::/system.slice/system-inference.slice/inference@0.service\n", "inference@0.service"),
        ("0::/lxc/200/ns/system.slice/system-inference.slice/inference@7.service\n", "inference@7.service"),
        ("0::/system.slice/inference@0.service/payload\n", "inference@0.service"),
        ("12:devices:/system.slice/train.service\n0::/\n", "train.service"),
        ("0::/user.slice/user-0.slice/session-1.scope\n", "session-1.scope"),
        ("0::/\n", None),
        (None, None),
    ],
)
def test_unit_of(cgroup: str | None, unit: str | None) -> None:
    assert unit_of(cgroup) == unit
