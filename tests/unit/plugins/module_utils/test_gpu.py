# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Recorded machines in, facts out. The machines lie in tests/unit/fixtures/gpu; each names its source."""

from __future__ import annotations

import ast
import copy
import json
import re
from pathlib import Path
from typing import Any, Callable

import pytest
from ansible_collections.blackwell.inference.plugins.module_utils import _gpu_problems
from ansible_collections.blackwell.inference.plugins.module_utils._gpu import assemble, parse_version, unit_of
from ansible_collections.blackwell.inference.plugins.module_utils._gpu_cards import parse_information, place
from ansible_collections.blackwell.inference.plugins.plugin_utils import _knowledge
from hypothesis import given
from hypothesis import strategies as st

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
    # It was measured in a container that may do all.
    assert codes(gpu) == [("container_privileged", "warning")]
    assert gpu["driver"]["library_version"] == "580.159.04"
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


def no_node(number: Any) -> Change:
    return path("nodes", f"/dev/nvidia{number}", value={"type": "missing", "path": "", "openable": None, "error": None})


def not_listed(which: int | slice) -> Change:
    return lambda raw: raw["nvml"]["devices"].__delitem__(which)


CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.126.09  Wed\n"


def silent(index: int, status: int, word: str | None = None) -> Change:
    def change(raw: dict[str, Any]) -> None:
        raw["nvml"]["devices"][index] = {"index": index, "status": status, "error": word}

    return change


def cuda(**values: Any) -> Change:
    return lambda raw: raw["cuda"].update({"devices": [], **values})


def closed(raw: dict[str, Any]) -> None:
    raw["proc"]["version"] = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.126.09  Wed\n"


def driver(version: str) -> Change:
    module = f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {version}\n"
    return both(path("proc", "version", value=module), path("nvml", "library_version", value=version))


def refused(number: int, reason: str) -> Change:
    return lambda raw: raw["nodes"][f"/dev/nvidia{number}"].update(openable=False, error=reason)


def in_proc(address: str, old: str, new: str) -> Change:
    def change(raw: dict[str, Any]) -> None:
        assert old in raw["proc"]["gpus"][address]
        raw["proc"]["gpus"][address] = raw["proc"]["gpus"][address].replace(old, new)

    return change


def bound_to(index: int, driver: str | None) -> Change:
    """A card that this driver does not have."""

    def change(raw: dict[str, Any]) -> None:
        address = raw["sysfs"][index]["address"]
        raw["sysfs"][index]["driver"] = driver
        raw["nvml"]["devices"] = [device for device in raw["nvml"]["devices"] if device["pci_address"] != address]
        del raw["proc"]["gpus"][address], raw["nodes"][f"/dev/nvidia{index}"]

    return change


def no_driver(raw: dict[str, Any]) -> None:
    no_library(raw)
    raw["proc"] = {"version": None, "gpus": {}}
    for card in raw["sysfs"]:
        card["driver"] = None


def all_to_machines(raw: dict[str, Any]) -> None:
    no_driver(raw)
    for card in raw["sysfs"]:
        card["driver"] = "vfio-pci"


def nothing(_raw: dict[str, Any]) -> None:
    pass


MISSING = {"loaded": None, "status": None, "devices": [], "timed_out": False}
HOST = "rtx-pro-6000-server-x2"
EXCLUDED = in_proc("0000:21:00.0", "GPU Excluded:\t No", "GPU Excluded:\t Yes")
# The state, the machine, what is changed on it, the codes that follow and no other, and what the first one says.
STATES: list[tuple[str, str, Change, list[tuple[str, str]], str]] = [
    ("all well in a container", REFERENCE, nothing, [], ""),
    ("all well on a host", HOST, nothing, [], ""),
    ("no hardware", REFERENCE, both(no_driver, path("sysfs", value=[])), [("no_nvidia_hardware", "error")], "no NVIDIA GPU on the PCI bus"),
    ("no driver", "no-driver", nothing, [("driver_not_loaded", "error")], "8 NVIDIA GPUs and no loaded driver"),
    ("nouveau instead", "no-driver", path("sysfs", 0, "driver", value="nouveau"), [("driver_not_loaded", "error")],
     "no loaded driver of NVIDIA (bound to nouveau)"),
    ("all cards given to virtual machines", HOST, all_to_machines, [("gpus_given_away", "error")], "2 NVIDIA GPUs, each bound to vfio-pci"),
    ("one of them", HOST, bound_to(1, "vfio-pci"), [], ""),
    ("one of them by another vfio driver", HOST, both(bound_to(1, "nvgrace_gpu_vfio_pci")), [], ""),
    ("a build container", REFERENCE, both(path("nodes", value={}), not_listed(slice(0, 8))), [("no_gpu_here", "error")],
     "8 NVIDIA GPUs on the node"),
    ("library absent", REFERENCE, no_library, [("driver_library_missing", "error")], "kernel module 580.126.09, no libnvidia-ml"),
    ("library is no library", REFERENCE, both(no_library, path("nvml", "load_error", value="libnvidia-ml.so.1: file too short")),
     [("driver_library_broken", "error")], "cannot be loaded: libnvidia-ml.so.1: file too short"),
    ("library of another version", REFERENCE, both(path("nvml", "library_version", value="580.95.05"), nvml_fails(18)),
     [("driver_library_mismatch", "error")], "kernel module 580.126.09, library 580.95.05"),
    ("library differs in the last number and still answers", REFERENCE, path("nvml", "library_version", value="580.126.10"),
     [("driver_library_mismatch", "error")], "library 580.126.10"),
    ("library of an unknown other version", REFERENCE,
     both(nvml_fails(18), path("nvml", "library_version", value=None), path("nvml", "nvml_version", value=None)),
     [("driver_library_mismatch", "error")], "kernel module 580.126.09, library of another version"),
    ("closed module", REFERENCE, closed, [("closed_kernel_module", "error")], "with NVIDIA RTX PRO 6000"),
    ("closed module that starts no card", REFERENCE, both(closed, path("nvml", "devices", value=[])),
     [("closed_kernel_module", "error")], "with NVIDIA RTX PRO 6000"),
    ("closed module before Blackwell", "l40s", nothing, [], ""),
    ("driver too old", REFERENCE, driver("515.48.07"), [("driver_too_old", "error")], "driver 515.48.07"),
    ("driver just new enough", REFERENCE, driver("525.60.13"), [], ""),
    ("no permission", REFERENCE, nvml_fails(4), [("driver_no_permission", "error")], "NVML is refused"),
    ("NVML fails", REFERENCE, both(nvml_fails(9), path("nvml", "error", value="Driver Not Loaded")),
     [("driver_query_failed", "error")], "nvmlInit answered 9 (Driver Not Loaded)"),
    ("a library without nvmlInit", REFERENCE, path("nvml", value={**MISSING, "loaded": True, "fault": None}),
     [("driver_query_failed", "error")], "nvmlInit is not in the library"),
    ("driver hangs", REFERENCE, hangs, [("driver_hangs", "error")], "no answer within 10 s (at GPU 3)"),
    ("library crashes", REFERENCE, path("nvml", value={**MISSING, "fault": "the process was ended by SIGSEGV (at nvmlInit)"}),
     [("driver_query_died", "error")], "SIGSEGV (at nvmlInit)"),
    ("library crashes at the fourth card", REFERENCE, both(hangs, path("nvml", "timed_out", value=False),
     path("nvml", "fault", value="the process was ended by SIGABRT (at GPU 3)")), [("driver_query_died", "error")], "SIGABRT (at GPU 3)"),
    ("uvm missing", REFERENCE, no_node("-uvm"), [("uvm_missing", "error")], "no /dev/nvidia-uvm"),
    ("uvm missing and CUDA fails", REFERENCE, both(no_node("-uvm"), cuda(status=999)), [("uvm_missing", "error")], "no /dev/nvidia-uvm"),
    ("uvm tools missing", REFERENCE, no_node("-uvm-tools"), [], ""),
    ("control node missing", REFERENCE, no_node("ctl"), [("device_node_missing", "error")], "no /dev/nvidiactl"),
    ("own node missing", REFERENCE, no_node(2), [("device_node_missing", "error")], "no /dev/nvidia2"),
    ("a card of the node that is not ours", REFERENCE, both(no_node(7), not_listed(7)),
     [("device_node_absent", "warning")], "/dev/nvidia7"),
    ("two cards of the node that are not ours", REFERENCE, both(no_node(6), no_node(7), not_listed(7), not_listed(6)),
     [("device_node_absent", "warning")], "no /dev/nvidia6, /dev/nvidia7 here"),
    ("NVML counts the node's other card and may not touch it", REFERENCE, both(no_node(7), silent(7, 4)),
     [("device_node_absent", "warning")], "/dev/nvidia7"),
    ("a file instead of a node", REFERENCE, path("nodes", "/dev/nvidia1", "type", value="other"),
     [("device_node_not_char", "error")], "/dev/nvidia1"),
    ("not for the service user", REFERENCE, refused(1, "Permission denied"),
     [("device_node_not_accessible", "error")], "cannot be opened by inference (Permission denied)"),
    ("not for this container", REFERENCE, refused(1, "Operation not permitted"),
     [("device_node_not_accessible", "error")], "cannot be opened by inference (Operation not permitted)"),
    ("a node that is dead", REFERENCE, refused(1, "Input/output error"), [("device_node_dead", "error")],
     "/dev/nvidia1 cannot be opened (Input/output error)"),
    ("not root", REFERENCE, path("user", "fault", value="only root can open files as inference"),
     [("access_not_checked", "warning")], "only root"),
    ("no libcuda", REFERENCE, cuda(loaded=False, status=None), [("cuda_library_missing", "error")], "no libcuda.so.1 here"),
    ("libcuda is no library", REFERENCE, cuda(loaded=False, status=None, load_error="libcuda.so.1: invalid ELF header"),
     [("cuda_library_missing", "error")], "invalid ELF header"),
    ("no fabric manager", "b200", cuda(status=802), [("cuda_init_failed", "error")], "cuInit answered 802"),
    ("CUDA fails for another reason", REFERENCE, cuda(status=46), [("cuda_init_failed", "error")], "cuInit answered 46"),
    ("CUDA hangs", REFERENCE, cuda(status=None, fault="no answer within 10 s (at cuInit)", timed_out=True),
     [("driver_hangs", "error")], "at cuInit"),
    ("CUDA crashes", REFERENCE, cuda(status=None, fault="the process was ended by SIGBUS (at cuInit)"),
     [("driver_query_died", "error")], "SIGBUS"),
    ("CUDA was not asked", REFERENCE, path("cuda", value=None), [], ""),
    ("lost", REFERENCE, silent(3, 15), [("gpu_lost", "error")], "GPU 3 (0000:61:00.0)"),
    ("lost, and NVML still knows its handle", REFERENCE, lambda raw: raw["nvml"]["devices"][3].update(lost=True, memory=None),
     [("gpu_lost", "error")], "GPU 3 (0000:61:00.0)"),
    ("lost, and no /proc to name it", HOST, both(silent(1, 15, "GPU is lost"), lambda raw: raw["proc"]["gpus"].pop("0000:21:00.0"),
     lambda raw: raw["sysfs"].pop()), [("gpu_unreachable", "error")], "NVML's GPU 1 does not answer (15 (GPU is lost))"),
    ("lost in a container, and no /proc to name it", REFERENCE, both(silent(7, 15), lambda raw: raw["proc"]["gpus"].pop("0000:e1:00.0")),
     [("gpu_unreachable", "error")], "NVML's GPU 7 does not answer (15)"),
    ("bound to nvidia, and nothing else has it", HOST, bound_to(1, "nvidia"), [("gpu_lost", "error")], "GPU 1 (0000:21:00.0)"),
    ("the kernel does not tell who has it", HOST, path("sysfs", 1, "driver", value=None), [], ""),
    ("it wants a reset", REFERENCE, gpu_0(recovery=1),
     [("gpu_needs_reset", "error")], "asks for a reset of the card: GPU 0 (0000:01:00.0)"),
    ("it wants something new", REFERENCE, gpu_0(recovery=9), [("gpu_needs_reset", "error")], "asks for recovery action 9"),
    ("another kernel driver has one", HOST, bound_to(1, "nouveau"), [("gpu_without_driver", "error")], "bound to nouveau"),
    ("no kernel driver has one", HOST, bound_to(1, None), [("gpu_without_driver", "error")], "bound to no kernel driver"),
    ("drained", HOST, both(path("nvml", "drained", value=["0000:21:00.0"]), not_listed(1)),
     [("gpu_drained", "warning")], "0000:21:00.0 is drained"),
    ("excluded", HOST, both(EXCLUDED, not_listed(1)), [("gpu_excluded", "warning")], "0000:21:00.0 is excluded"),
    ("excluded, and not ours", REFERENCE, both(in_proc("0000:e1:00.0", "GPU Excluded:\t No", "GPU Excluded:\t Yes"), not_listed(7),
     lambda raw: raw["nodes"].pop("/dev/nvidia7")), [], ""),
    ("MIG", REFERENCE, gpu_0(mig=True), [("mig_enabled", "warning")], "1 of 8 GPUs split (MIG) (0)"),
    ("ECC off", REFERENCE, gpu_0(ecc=False), [("ecc_off", "warning")], "1 of 8 GPUs without ECC (0)"),
    ("a card without ECC", REFERENCE, gpu_0(ecc=None), [], ""),
    ("ECC errors", REFERENCE, gpu_0(ecc_errors=2), [("ecc_errors", "warning")], "2 uncorrected"),
    ("persistence off", REFERENCE, gpu_0(persistence=False), [("persistence_off", "warning")], "1 of 8 GPUs not kept initialised (0)"),
    ("narrow link", REFERENCE, gpu_0(pcie_width=8), [("pcie_width_reduced", "warning")], "8 of 16"),
    ("a slot too narrow for its card", REFERENCE, gpu_0(pcie_width=8, pcie_width_max=8), [("pcie_width_reduced", "warning")], "8 of 16"),
    ("a card beside the processor", "gb10", nothing, [], ""),
    ("privileged", REFERENCE, path("container", "privileged", value=True), [("container_privileged", "warning")], "privileged"),
    ("a container in a container", REFERENCE, path("container", "nested", value="two managers"),
     [("container_nested", "warning")], "(two managers)"),
    ("held by somebody", REFERENCE, held("train.service", 91000), [("gpu_busy", "error")], "pid 4242 (python, train.service, 91000 MiB)"),
    ("held, memory unknown", REFERENCE, held(None, None), [("gpu_busy", "error")], "no unit, unknown MiB"),
    ("held, name unknown", REFERENCE, both(held(None, 91000), lambda raw: raw["processes"][0].update(name=None)),
     [("gpu_busy", "error")], "pid 4242 (name unknown"),
    ("a display server", REFERENCE, held("display.service", 20), [], ""),
    ("held by us", REFERENCE, held("system-inference.slice/inference@0.service", 91000), [], ""),
    ("held by a pid of another namespace", REFERENCE, held(None, 91000, holds=False), [("gpu_held_unknown", "error")],
     "holders outside a container cannot be seen"),
    ("memory in use and no process", REFERENCE, gpu_0(memory_used=91000 * MIB), [("gpu_held_unknown", "error")], "91000 MiB of GPU 0"),
    ("cards of two kinds", "mixed", nothing, [("mixed_capabilities", "warning")], "GPUs of 8.9, 12.0"),
]  # fmt: skip


@pytest.mark.parametrize(("state", "name", "change", "expected", "says"), STATES, ids=[row[0] for row in STATES])
def test_states(state: str, name: str, change: Change, expected: list[tuple[str, str]], says: str) -> None:
    raw = machine(name)
    change(raw)
    gpu = assemble(raw)
    assert codes(gpu) == expected
    if says:
        assert says in gpu["problems"][0]["found"]
    else:
        assert not expected


def possible() -> set[tuple[str, str]]:
    """The codes that the code can say, with their severity: the texts in the first argument of each call."""
    tree = ast.parse(Path(_gpu_problems.__file__).read_text(encoding="utf-8"))
    found = set()
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in ("error", "warning"):
            texts = [node.value for node in ast.walk(call.args[0]) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
            found |= {(text, call.func.id) for text in texts if text != "timed_out"}
    return found


DOCUMENT = (Path(__file__).parents[4] / "docs" / "facts.md").read_text(encoding="utf-8")
GPU_CHAPTER = DOCUMENT.partition("## gpu_facts\n")[2].partition("\n## ")[0]


def test_each_problem_is_shown_by_a_state_and_told_in_the_documentation() -> None:
    shown = {problem for _state, _name, _change, expected, _says in STATES for problem in expected}
    assert shown | {("capability_differs", "warning")} == possible()
    rows = re.findall(r"^\| `(\w+)` \| (error|warning) \|(.+)\|(.+)\|(.+)\|$", GPU_CHAPTER, re.MULTILINE)
    assert {row[:2] for row in rows} == possible()
    assert len(rows) == len(possible())
    assert all(text.strip() for row in rows for text in row)


def keys_of(facts: dict[str, Any], prefix: str = "") -> set[str]:
    found = set()
    for key, value in facts.items():
        if key in ("devices", "processes", "problems"):
            found |= keys_of(value[0], f"{prefix}{key}[].")
        elif isinstance(value, dict) and key not in ("pythons", "sources"):
            found |= keys_of(value, f"{prefix}{key}.")
        else:
            found.add(prefix + key)
    return found


def test_the_documentation_has_each_key() -> None:
    raw = machine(REFERENCE)
    held("train.service", 91000)(raw)
    returns = GPU_CHAPTER.partition("### What it returns\n")[2].partition("\n### ")[0]
    rows = re.findall(r"^\| `([\w.\[\]]+)` \|(.+)\|$", returns, re.MULTILINE)
    assert {key for key, _text in rows} == keys_of(assemble(raw))
    assert all(text.strip() for _key, text in rows)


def test_the_oldest_driver_is_the_knowledge_bases() -> None:
    """The target cannot read the knowledge base, so the number stands twice."""
    floors = [rule.then["driver_minimum"] for rule in _knowledge.load().rules if "driver_minimum" in rule.then]
    assert min(int(str(floor).split(".", maxsplit=1)[0]) for floor in floors) == _gpu_problems.OLDEST_DRIVER


def test_the_devices_stay_when_the_library_is_absent() -> None:
    raw = machine(REFERENCE)
    no_library(raw)
    gpu = assemble(raw)
    assert gpu["count"] == 8 and gpu["devices"][0]["uuid"].startswith("GPU-")
    assert gpu["devices"][0]["memory_mib"] is None
    assert gpu["sources"]["name"] == "proc" and gpu["sources"]["compute_capability"] == "pci"


def test_a_part_of_a_split_card_is_not_the_card() -> None:
    """CUDA sees the first instance of a card that is split, with a part of its multiprocessors."""
    raw = machine(REFERENCE)
    gpu_0(mig=True)(raw)
    raw["cuda"]["devices"][0].update(multiprocessors=46, shared_memory_per_block_optin=101376)
    device = assemble(raw)["devices"][0]
    assert (device["multiprocessors"], device["shared_memory_per_block_optin"]) == (None, None)


@pytest.mark.parametrize(
    ("nvml", "sysfs", "expected", "source"),
    [
        ((16, 16), (16, 16), (16, 16), ("nvml", "nvml")),
        ((8, 8), (8, 16), (8, 16), ("nvml", "sysfs")),
        ((None, None), (8, 16), (8, 16), ("sysfs", "sysfs")),
        ((16, 16), (63, 255), (16, 16), ("nvml", "nvml")),
        ((None, None), (0, 63), (None, None), (None, None)),
    ],
)
def test_lanes(nvml: tuple[Any, Any], sysfs: tuple[Any, Any], expected: tuple[Any, Any], source: tuple[Any, Any]) -> None:
    raw = machine("rtx-5090")
    raw["nvml"]["devices"][0].update(pcie_width=nvml[0], pcie_width_max=nvml[1])
    raw["sysfs"][0].update(width=sysfs[0], width_max=sysfs[1])
    gpu = assemble(raw)
    device = gpu["devices"][0]
    assert (device["pcie_width"], device["pcie_width_max"]) == expected
    assert (gpu["sources"].get("pcie_width"), gpu["sources"].get("pcie_width_max")) == source


def test_each_fact_says_who_answered() -> None:
    raw = machine(REFERENCE)
    held("train.service", 91000)(raw)
    assert assemble(raw)["sources"] == {
        **dict.fromkeys(("compute_capability", "ecc", "ecc_errors", "memory_mib", "memory_used_mib", "mig", "minor", "name",
                         "pci_id", "pcie_width", "pcie_width_max", "persistence", "power_limit_w", "processes", "uuid",
                         "driver_cuda"), "nvml"),
        "accessible": "dev", "driver": "proc", "driver_library": "file", "numa_node": "sysfs",
        "multiprocessors": "cuda", "shared_memory_per_block_optin": "cuda",
    }  # fmt: skip


def test_a_lost_gpu_keeps_its_identity_and_the_others_their_order() -> None:
    raw = machine(REFERENCE)
    silent(3, 15)(raw)
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
    assert parse_information(text) == {"name": "NVIDIA B200", "uuid": None, "minor": 3, "excluded": False}
    assert parse_information("Device Minor: \u00b2\n: \nDevice Minor\n\0") == parse_information("")
    assert parse_information("") == {"name": None, "uuid": None, "minor": None, "excluded": False}


@pytest.mark.parametrize(
    ("addresses", "order"),
    [
        (["0000:c1:00.0", "0000:21:00.0", "10000:01:00.0", "2000:01:00.0"], [1, 0, 3, 2]),
        (["0000:01:00.1", "0000:01:00.0"], [1, 0]),
    ],
)
def test_addresses_are_sorted_as_numbers(addresses: list[str], order: list[int]) -> None:
    assert sorted(addresses, key=place) == [addresses[number] for number in order]


UNKNOWN = st.dictionaries(st.sampled_from(["capability", "minor", "memory", "pcie_width", "uuid"]), st.none())


@given(st.text(), st.text(), st.text(), UNKNOWN)
def test_garbage_is_unknown_and_no_traceback(version: str, information: str, cgroup: str, nvml: dict[str, Any]) -> None:
    raw = machine(REFERENCE)
    held("train.service", 91000)(raw)
    raw["processes"][0]["cgroup"] = cgroup
    raw["proc"]["version"] = f"Kernel Module {version}"
    raw["proc"]["gpus"]["0000:01:00.0"] = f"{information}\nDevice Minor: {version}\nGPU Excluded: {information}\n"
    raw["nvml"]["devices"][0].update(nvml)
    raw["sysfs"] = []
    gpu = assemble(raw)
    json.dumps(gpu)
    assert gpu["count"] == 8
    assert {len(device) for device in gpu["devices"]} == {26}


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
