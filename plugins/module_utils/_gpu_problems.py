# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What stands in the way of serving on these GPUs: one entry for each state, with what was found and what to do."""

from __future__ import annotations

import errno
import os
from typing import Any

from ansible_collections.blackwell.inference.plugins.module_utils._gpu_sources import IDLE_MIB, OUR_UNITS
from ansible_collections.blackwell.inference.plugins.module_utils._problems import Problem, error, warning

# CUDA 12.x needs 525, CUDA 13 needs 580: below 525 no build of the knowledge base runs.
OLDEST_DRIVER = 525
NO_PERMISSION, LOST, MISMATCH = 4, 15, 18
DENIED = (os.strerror(errno.EACCES), os.strerror(errno.EPERM))
OPTIONAL_NODES = ("/dev/nvidia-uvm-tools",)


def find(gpu: dict[str, Any], raw: dict[str, Any], expected: str | None) -> list[Problem]:
    problems: list[Problem] = []
    problems += _hardware(gpu, raw)
    problems += _driver(gpu, raw)
    problems += _nodes(gpu, raw)
    for device in gpu["devices"]:
        problems += _device(device, gpu)
    problems += _unbound(gpu, raw)
    problems += _modes(gpu)
    problems += _capabilities(gpu, expected)
    if gpu["container"]["type"] == "lxc" and gpu["container"]["unprivileged"] is False:
        problems.append(
            warning("container_privileged", "a privileged container", "an unprivileged container",
                    "GPUs work in an unprivileged one: create it with unprivileged: true")
        )  # fmt: skip
    if raw["container"].get("nested"):
        problems.append(
            warning("container_nested", "a container in a container", "a container of the node itself",
                    "device nodes and driver libraries must be right in the outer one as well: measure there too")
        )  # fmt: skip
    return problems


def _hardware(gpu: dict[str, Any], raw: dict[str, Any]) -> list[Problem]:
    if gpu["devices"]:
        return []
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


def _driver(gpu: dict[str, Any], raw: dict[str, Any]) -> list[Problem]:
    driver, nvml = gpu["driver"], raw["nvml"]
    found: list[Problem] = []
    if nvml["timed_out"] or (nvml["fault"] and nvml["status"] is None):
        found.append(
            error("driver_hangs" if nvml["timed_out"] else "driver_query_died", nvml["fault"], "an answer from the driver",
                  "look at dmesg for Xid errors; a hung driver needs a restart of the node")
        )  # fmt: skip
    if not driver["loaded"]:
        if gpu["devices"]:
            found.append(
                error("driver_not_loaded", f"{gpu['count']} NVIDIA GPUs and no loaded driver",
                      "the NVIDIA kernel module, open flavour", "install the driver on the node (role nvidia_driver)")
            )  # fmt: skip
        return found
    if nvml["loaded"] is False:
        found.append(
            error("driver_library_missing", f"kernel module {driver['version']}, no libnvidia-ml.so.1 here",
                  f"user space of driver {driver['version']}",
                  "install the same driver file here with --no-kernel-modules")
        )  # fmt: skip
    elif nvml["status"] == MISMATCH or driver["matches"] is False:
        found.append(
            error("driver_library_mismatch", f"kernel module {driver['version']}, library {driver['library_version']}",
                  "the same full version of both", f"install the user space of driver {driver['version']} here")
        )  # fmt: skip
    elif nvml["status"] == NO_PERMISSION:
        found.append(
            error("driver_no_permission", "NVML is refused", "access to /dev/nvidiactl and /dev/nvidia*",
                  "run as root, or give the device nodes mode 0666")
        )  # fmt: skip
    elif nvml["status"] not in (0, None):
        found.append(
            error("driver_query_failed", f"nvmlInit answered {nvml['status']}", "0", "look at dmesg and nvidia-smi here")
        )
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
    owned = {device["node"] for device in gpu["devices"]}
    elsewhere: list[str] = []
    for path in nodes["missing"]:
        if path in OPTIONAL_NODES or not gpu["devices"]:
            continue
        if path == "/dev/nvidia-uvm":
            found.append(
                error("uvm_missing", f"no {path}", "a character device", "load nvidia-uvm and make its node on the node "
                      "(nvidia-modprobe -u -c=0), then pass it into the container")
            )  # fmt: skip
        elif path in owned or path == "/dev/nvidiactl":
            found.append(
                error("device_node_missing", f"no {path}", "a character device",
                      "make it on the node (nvidia-modprobe -c N) and pass it into the container")
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
        if raw["nodes"][path]["error"] not in DENIED:
            found.append(
                error("device_node_dead", f"{path} cannot be opened ({raw['nodes'][path]['error']})", "a GPU that answers",
                      "look at dmesg of the node for its Xid; it needs a reset or a restart of the node")
            )  # fmt: skip
            continue
        found.append(
            error("device_node_not_accessible", f"{path} cannot be opened by {who} ({raw['nodes'][path]['error']})",
                  f"read and write access for {who}", "give the container's devN entry mode=0666")
        )  # fmt: skip
    if user["fault"]:
        found.append(
            warning("access_not_checked", user["fault"], f"a test of the device nodes as {who}", "run as root")
        )
    return found


def _device(device: dict[str, Any], gpu: dict[str, Any]) -> list[Problem]:
    found: list[Problem] = []
    label = f"GPU {device['index']} ({device['pci_address']})"
    if device["lost"]:
        found.append(
            error("gpu_lost", f"{label} is listed but the driver cannot reach it", "a GPU that answers",
                  "look at dmesg for its Xid; it needs a reset or a restart of the node")
        )  # fmt: skip
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
    if width and most and width < most:
        found.append(
            warning("pcie_width_reduced", f"{label} has {width} of {most} PCIe lanes", f"{most} lanes",
                    "seat the card again, check the riser and the slot's wiring")
        )  # fmt: skip
    return found


def _unbound(gpu: dict[str, Any], raw: dict[str, Any]) -> list[Problem]:
    """Cards beside working ones that another kernel driver has, or none."""
    if not gpu["driver"]["loaded"]:
        return []
    bound = {card["address"]: card["driver"] for card in raw["sysfs"]}
    return [
        error("gpu_without_driver", f"GPU {device['index']} ({device['pci_address']}) is bound to "
              f"{bound[device['pci_address']] or 'no kernel driver'}", "the nvidia kernel driver",
              "blacklist the other driver (nouveau) and restart the node, or look at dmesg for why nvidia refused the card")
        for device in gpu["devices"]
        if device["pci_address"] in bound and bound[device["pci_address"]] != "nvidia"
        and device["pci_address"] not in raw["proc"]["gpus"]
    ]  # fmt: skip


def _modes(gpu: dict[str, Any]) -> list[Problem]:
    """What is usually the same on all GPUs of a node: one entry for all of them."""
    found: list[Problem] = []
    for fact, bad, code, what, wanted, remedy in (
        ("mig", True, "mig_enabled", "split (MIG)", "whole GPUs", "switch MIG off on the node"),
        ("ecc", False, "ecc_off", "without ECC", "ECC on", "switch it on on the node, then restart it"),
        ("persistence", False, "persistence_off", "not kept initialised", "persistence mode",
         "run nvidia-persistenced on the node"),
    ):  # fmt: skip
        indexes = [str(device["index"]) for device in gpu["devices"] if device[fact] is bad]
        if indexes:
            text = f"{len(indexes)} of {gpu['count']} GPUs {what} ({', '.join(indexes)})"
            found.append(warning(code, text, wanted, remedy))
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
