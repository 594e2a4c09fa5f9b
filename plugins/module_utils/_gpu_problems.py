# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What stands in the way of serving on these GPUs: one entry for each state, with what was found and what to do.

docs/facts.md explains each code; a test holds its table and this file equal.
"""

from __future__ import annotations

import errno
import os
from typing import Any

from ansible_collections.blackwell.inference.plugins.module_utils import _gpu_cards
from ansible_collections.blackwell.inference.plugins.module_utils._gpu_sources import IDLE_MIB, OUR_UNITS
from ansible_collections.blackwell.inference.plugins.module_utils._problems import Problem, error, warning

# CUDA 12.x needs 525, CUDA 13 needs 580: below 525 no build of the knowledge base runs.
OLDEST_DRIVER = 525
NO_PERMISSION, LOST, RESET_REQUIRED, MISMATCH = 4, 15, 16, 18
DENIED = os.strerror(errno.EACCES)
# A control group refuses the device, whatever its mode.
FORBIDDEN = os.strerror(errno.EPERM)
OPTIONAL_NODES = ("/dev/nvidia-uvm-tools",)
# They sit beside the processor and report a slot that they do not have (Syllo/nvtop, issue 426).
WITHOUT_SLOT = ("blackwell-spark", "blackwell-thor")
# Statuses of cuInit that say more than their number.
CUDA_REMEDIES = {
    100: "allow this container the device nodes, or make instances if the cards are split (MIG)",
    802: "start nvidia-fabricmanager of the driver's version on the node; with confidential computing, set the GPUs ready",
    803: "install the user space of the loaded driver here; libcuda is of another version",
    804: "remove the forward compatibility package (cuda-compat); it does not support this card",
    999: "load nvidia-uvm on the node and pass its device node; then look at dmesg there",
}
# What the driver asks for after a fault (NVML_GPU_RECOVERY_ACTION_...).
RECOVERY = {
    1: "a reset of the card",
    2: "a restart of the node",
    3: "an end of all peer-to-peer programs and a reset of the card",
    4: "an end of all programs on it and a reset of the card",
    5: "a reset of the card's bus",
    6: "a restart of the node",
}
AFTER_FAULT = "look at dmesg of the node for its Xid; it needs a reset (nvidia-smi -r) or a restart of the node"


def find(gpu: dict[str, Any], raw: dict[str, Any], expected: str | None) -> list[Problem]:
    problems: list[Problem] = []
    problems += _hardware(gpu, raw)
    problems += _driver(gpu, raw)
    problems += _nodes(gpu, raw)
    if not any(problem["severity"] == "error" for problem in problems):
        problems += _cuda(gpu, raw)
    for device in gpu["devices"]:
        problems += _device(device, gpu, raw)
    problems += _beside(gpu, raw)
    problems += _modes(gpu)
    problems += _capabilities(gpu, expected)
    problems += _container(raw["container"])
    return problems


def _hardware(gpu: dict[str, Any], raw: dict[str, Any]) -> list[Problem]:
    if gpu["devices"]:
        return []
    if raw["sysfs"] and all(map(_gpu_cards.given_away, raw["sysfs"])):
        return [
            error("gpus_given_away", f"{len(raw['sysfs'])} NVIDIA GPUs, each bound to {raw['sysfs'][0]['driver']}",
                  "at least one GPU for this node itself", "measure in the virtual machine that has them, or bind one to the "
                  "nvidia driver")
        ]  # fmt: skip
    known = len(raw["proc"]["gpus"]) or len(raw["sysfs"])
    if known:
        return [
            error("no_gpu_here", f"{known} NVIDIA GPUs on the node, none with a device node here", "at least one GPU",
                  "pass the device nodes into this container, or start it again after the driver made them")
        ]  # fmt: skip
    return [
        error("no_nvidia_hardware", "no NVIDIA GPU on the PCI bus", "at least one GPU",
              "check the card, its power and the firmware's PCIe settings (lspci -d 10de:)")
    ]  # fmt: skip


def _fault(answer: dict[str, Any]) -> Problem:
    """A library did not answer, or ended the process that asked it."""
    return error("driver_hangs" if answer["timed_out"] else "driver_query_died", answer["fault"], "an answer from the driver",
                 "look at dmesg for Xid errors; a hung driver needs a restart of the node")  # fmt: skip


def _status(answer: dict[str, Any]) -> str:
    return f"{answer['status']}" + (f" ({answer['error']})" if answer.get("error") else "")


def _driver(gpu: dict[str, Any], raw: dict[str, Any]) -> list[Problem]:
    driver, nvml = gpu["driver"], raw["nvml"]
    found: list[Problem] = []
    if nvml["fault"]:
        found.append(_fault(nvml))
    if not driver["loaded"]:
        if gpu["devices"]:
            bound = sorted({card["driver"] for card in raw["sysfs"] if card["driver"] and not _gpu_cards.given_away(card)})
            found.append(
                error("driver_not_loaded", f"{gpu['count']} NVIDIA GPUs and no loaded driver"
                      + (f" of NVIDIA (bound to {', '.join(bound)})" if bound else ""),
                      "the NVIDIA kernel module, open flavour", "install the driver on the node (role nvidia_driver)")
            )  # fmt: skip
        return found
    if nvml["loaded"] is False and nvml.get("load_error"):
        found.append(
            error("driver_library_broken", f"libnvidia-ml.so.1 cannot be loaded: {nvml['load_error']}",
                  f"user space of driver {driver['version']}",
                  "remove that file, then install the same driver file here with --no-kernel-modules")
        )  # fmt: skip
    elif nvml["loaded"] is False:
        found.append(
            error("driver_library_missing", f"kernel module {driver['version']}, no libnvidia-ml.so.1 here",
                  f"user space of driver {driver['version']}",
                  "install the same driver file here with --no-kernel-modules")
        )  # fmt: skip
    elif nvml["status"] == MISMATCH or driver["matches"] is False:
        library = driver["library_version"] or "of another version"
        found.append(
            error("driver_library_mismatch", f"kernel module {driver['version']}, library {library}",
                  "the same full version of both", f"install the user space of driver {driver['version']} here")
        )  # fmt: skip
    elif nvml["status"] == NO_PERMISSION:
        found.append(
            error("driver_no_permission", "NVML is refused", "access to /dev/nvidiactl and /dev/nvidia*",
                  "run as root, or give the device nodes mode 0666")
        )  # fmt: skip
    elif nvml["status"] != 0 and not nvml["fault"]:
        answer = "is not in the library" if nvml["status"] is None else f"answered {_status(nvml)}"
        found.append(error("driver_query_failed", f"nvmlInit {answer}", "0", "look at dmesg and nvidia-smi here"))
    blackwell = [d["name"] or d["pci_id"] for d in gpu["devices"] if (d["family"] or "").startswith("blackwell")]
    if driver["flavour"] == "closed" and blackwell:
        found.append(
            error("closed_kernel_module", f"the closed kernel module with {blackwell[0]}", "the open kernel module",
                  "install the driver with -m=kernel-open: Blackwell does not start with the closed one")
        )  # fmt: skip
    major = (driver["version"] or "").partition(".")[0]
    if major.isdigit() and int(major) < OLDEST_DRIVER:
        found.append(
            error("driver_too_old", f"driver {driver['version']}", f"driver {OLDEST_DRIVER} or newer",
                  "install driver 580 or newer on the node and in its containers")
        )  # fmt: skip
    return found


def _nodes(gpu: dict[str, Any], raw: dict[str, Any]) -> list[Problem]:
    if not gpu["driver"]["loaded"]:
        return []
    found: list[Problem] = []
    nodes, user = gpu["device_nodes"], raw["user"]
    inside = gpu["container"]["type"] != "none"
    into = ", then pass it into the container" if inside else ""
    owned = {device["node"] for device in gpu["devices"]}
    elsewhere: list[str] = []
    for path in nodes["missing"]:
        if path in OPTIONAL_NODES or not gpu["devices"]:
            continue
        if path == "/dev/nvidia-uvm":
            found.append(
                error("uvm_missing", f"no {path}", "a character device",
                      f"load nvidia-uvm and make its node on the node (nvidia-modprobe -u -c=0){into}")
            )  # fmt: skip
        elif path in owned or path == "/dev/nvidiactl":
            found.append(
                error("device_node_missing", f"no {path}", "a character device",
                      f"make it on the node (nvidia-modprobe -c N){into}")
            )  # fmt: skip
        else:
            elsewhere.append(path)
    if elsewhere:
        found.append(
            warning("device_node_absent", f"no {', '.join(elsewhere)} here, though the node has these GPUs", "a device node for each "
                    "GPU that this container should own", "pass it into the container if it should serve there")
        )  # fmt: skip
    for path in nodes["not_char"]:
        found.append(
            error("device_node_not_char", f"{path} is no character device", "a character device", "the node was absent when "
                  "the container started: make it on the node, remove the file, start the container again")
        )  # fmt: skip
    who = user["name"] or "this user"
    for path in nodes["unreadable"]:
        reason = raw["nodes"][path]["error"]
        what = f"{path} cannot be opened by {who} ({reason})"
        if reason == DENIED:
            remedy = "give the container's devN entry mode=0666" if inside else "give it mode 0666 (NVreg_DeviceFileMode)"
        elif reason == FORBIDDEN:
            remedy = "allow this device in the container's control group; a devN entry does"
        else:
            found.append(error("device_node_dead", f"{path} cannot be opened ({reason})", "a GPU that answers", AFTER_FAULT))
            continue
        found.append(error("device_node_not_accessible", what, f"read and write access for {who}", remedy))
    if user["fault"]:
        found.append(
            warning("access_not_checked", user["fault"], f"a test of the device nodes as {who}", "run as root")
        )
    return found


def _cuda(gpu: dict[str, Any], raw: dict[str, Any]) -> list[Problem]:
    """Only where nothing else explains it: without nvidia-uvm, for example, cuInit fails as a consequence."""
    cuda = raw["cuda"]
    if cuda is None or not gpu["devices"]:
        return []
    if cuda["fault"]:
        return [_fault(cuda)]
    if cuda["loaded"] is False:
        reason = cuda.get("load_error") or "no libcuda.so.1 here, though NVML works"
        return [
            error("cuda_library_missing", reason, f"libcuda of driver {gpu['driver']['version']}",
                  "install the whole user space of the driver; in a container of Docker's kind, ask for the capability compute")
        ]  # fmt: skip
    if cuda["status"] == 0:
        return []
    return [
        error("cuda_init_failed", f"cuInit answered {_status(cuda)}", "0",
              CUDA_REMEDIES.get(cuda["status"], "look at dmesg of the node, and at cuda.h for the number"))
    ]  # fmt: skip


def _device(device: dict[str, Any], gpu: dict[str, Any], raw: dict[str, Any]) -> list[Problem]:
    found: list[Problem] = []
    label = f"GPU {device['index']} ({device['pci_address']})"
    answer: dict[str, Any] = next((one for one in raw["nvml"]["devices"] if one.get("pci_address") == device["pci_address"]), {})
    if device["lost"]:
        found.append(error("gpu_lost", f"{label} is listed but the driver cannot reach it", "a GPU that answers", AFTER_FAULT))
    elif answer.get("recovery"):
        asks = RECOVERY.get(answer["recovery"], f"recovery action {answer['recovery']}")
        found.append(error("gpu_needs_reset", f"the driver asks for {asks}: {label}", "a GPU without a fault", AFTER_FAULT))
    for entry in device["processes"]:
        memory = entry["memory_mib"]
        if not (entry["unit"] or "").startswith(OUR_UNITS) and (memory is None or memory > IDLE_MIB):
            found.append(
                error("gpu_busy", f"{label} is held by pid {entry['pid']} ({entry['name'] or 'name unknown'}, "
                      f"{entry['unit'] or 'no unit'}, {'unknown' if memory is None else memory} MiB)", "a free GPU",
                      "stop that process, or leave this GPU out")
            )  # fmt: skip
    if device["holder_unknown"]:
        inside = " (holders outside a container cannot be seen from inside)" if gpu["container"]["type"] != "none" else ""
        found.append(
            error("gpu_held_unknown", f"{device['memory_used_mib']} MiB of {label} are in use and no process is visible"
                  + inside, "a free GPU", "find the holder on the node (nvidia-smi), stop it or leave this GPU out")
        )  # fmt: skip
    if device["ecc_errors"]:
        found.append(
            warning("ecc_errors", f"{device['ecc_errors']} uncorrected memory errors on {label}", "none",
                    "reset the GPU; replace the card if they come back")
        )  # fmt: skip
    width, most = device["pcie_width"], device["pcie_width_max"]
    if width and most and width < most and device["family"] not in WITHOUT_SLOT:
        found.append(
            warning("pcie_width_reduced", f"{label} has {width} of {most} PCIe lanes", f"{most} lanes",
                    "measure again under load; then seat the card again, check the riser and the slot's wiring")
        )  # fmt: skip
    return found


def _beside(gpu: dict[str, Any], raw: dict[str, Any]) -> list[Problem]:
    """Cards beside those that work: of another kernel driver or none, without an address, or taken away by the operator."""
    if not gpu["driver"]["loaded"]:
        return []
    bound = {card["address"]: card["driver"] for card in raw["sysfs"]}
    found = [
        error("gpu_without_driver", f"GPU {device['index']} ({device['pci_address']}) is bound to "
              f"{bound[device['pci_address']] or 'no kernel driver'}", "the nvidia kernel driver",
              "blacklist the other driver (nouveau) and restart the node, or look at dmesg for why nvidia refused the card")
        for device in gpu["devices"]
        if device["pci_address"] in bound and bound[device["pci_address"]] != "nvidia"
        and device["pci_address"] not in raw["proc"]["gpus"]
    ]  # fmt: skip
    # In a container, NVML also counts the node's other cards; that it may not touch them is as it should be.
    inside = gpu["container"]["type"] != "none"
    silent = [
        device for device in raw["nvml"]["devices"]
        if not device.get("pci_address")
        and (device["status"] in (LOST, RESET_REQUIRED) or (not inside and device["status"] != NO_PERMISSION))
    ]  # fmt: skip
    answered = {device["pci_address"] for device in raw["nvml"]["devices"] if device.get("pci_address")}
    named = [device for device in gpu["devices"] if device["pci_address"] not in answered]
    if len(silent) > len(named):
        numbers = ", ".join(str(device["index"]) for device in silent)
        found.append(
            error("gpu_unreachable", f"NVML's GPU {numbers} does not answer ({_status(silent[0])}) and cannot be told apart",
                  "GPUs that answer", AFTER_FAULT)
        )  # fmt: skip
    for address, how in _gpu_cards.taken_away(raw).items():
        if how == "drained":
            found.append(
                warning("gpu_drained", f"the GPU at {address} is drained", "a GPU for programs",
                        f"nvidia-smi drain -p {address} -m 0, if it should serve")
            )  # fmt: skip
        else:
            found.append(
                warning("gpu_excluded", f"the GPU at {address} is excluded by the driver's options", "a GPU for programs",
                        "remove it from NVreg_ExcludedGpus and load the driver again, if it should serve")
            )  # fmt: skip
    return found


def _modes(gpu: dict[str, Any]) -> list[Problem]:
    """What is usually the same on all GPUs of a node: one entry for all of them."""
    found: list[Problem] = []

    def matching(fact: str, bad: bool, what: str) -> str | None:
        indexes = [str(device["index"]) for device in gpu["devices"] if device[fact] is bad]
        return f"{len(indexes)} of {gpu['count']} GPUs {what} ({', '.join(indexes)})" if indexes else None

    if text := matching("mig", True, "split (MIG)"):
        found.append(warning("mig_enabled", text, "whole GPUs", "switch MIG off on the node"))
    if text := matching("ecc", False, "without ECC"):
        found.append(warning("ecc_off", text, "ECC on", "switch it on on the node, then restart it"))
    if text := matching("persistence", False, "not kept initialised"):
        found.append(warning("persistence_off", text, "persistence mode", "run nvidia-persistenced on the node"))
    return found


def _capabilities(gpu: dict[str, Any], expected: str | None) -> list[Problem]:
    found: list[Problem] = []
    measured = gpu["compute_capabilities"]
    if expected and measured and measured != [expected]:
        found.append(
            warning("capability_differs", f"measured {', '.join(measured)}, expected {expected}", expected,
                    "the measured value stands; correct inference_expected_compute_capability")
        )  # fmt: skip
    if len(measured) > 1:
        found.append(
            warning("mixed_capabilities", f"GPUs of {', '.join(measured)}", "one compute capability",
                    "the plan serves what all of them can run; use one container for each kind for more")
        )  # fmt: skip
    return found


def _container(container: dict[str, Any]) -> list[Problem]:
    found: list[Problem] = []
    if container["privileged"]:
        found.append(
            warning("container_privileged", "a privileged container: its root is the node's", "an unprivileged container",
                    "GPUs work in an unprivileged one: create it anew as one (pve_container with unprivileged: true)")
        )  # fmt: skip
    if container["nested"]:
        found.append(
            warning("container_nested", f"a container in a container ({container['nested']})", "a container of the node itself",
                    "device nodes, driver libraries and limits must be right in the outer one as well: measure there too")
        )  # fmt: skip
    return found
