# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads the raw material for the GPU facts: NVML, the CUDA driver API, /proc, /sys, /dev. Nothing is judged here.

The result is plain JSON, so that a recorded machine is a test's input.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ansible_collections.blackwell.inference.plugins.module_utils import _cuda, _native, _nvml, _pci_ids, _platform
from ansible_collections.blackwell.inference.plugins.module_utils._child import Answer, Say, ask, end_with_parent
from ansible_collections.blackwell.inference.plugins.module_utils._platform import read_text

CONTROL_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
OUR_UNITS = "inference@"
MAX_MAPS = 32 << 20
# Below this an idle card's use is the driver's own; a CUDA context takes hundreds of MiB.
IDLE_MIB = 64
# The user and group nobody, on every Linux.
UNPRIVILEGED = 65534


@dataclass(frozen=True)
class Roots:
    proc: str = "/proc"
    sys: str = "/sys"
    dev: str = "/dev"
    root: str = "/"


def collect(roots: Roots, service_user: str | None, seconds: float, cuda: str, path: str | None) -> dict[str, Any]:
    gpus = proc_gpus(roots.proc)
    account, fault = account_to_try(service_user)
    raw: dict[str, Any] = {}

    def measure(say: Say) -> None:
        """All that waits for the driver, in one process: while it lives, no card is shut down and started again."""
        devices = _nvml.read(say, gpus)
        say({"cards": len(devices)})
        finish(say, devices, True)

    def finish(say: Say, devices: list[dict[str, Any]], with_nodes: bool) -> None:
        say_processes(say, roots.proc, devices)
        if fault is None and with_nodes:
            try_nodes(say, device_nodes(roots.dev, minors(devices, gpus)), account)

    def look() -> None:
        """All that does not, in this one."""
        raw["proc"] = {"version": read_text(f"{roots.proc}/driver/nvidia/version"), "gpus": gpus}
        raw["sysfs"] = sysfs_gpus(roots.sys)
        raw["container"] = _platform.container(roots.proc, roots.root)
        raw["platform"] = _platform.platform(roots.proc, roots.root, path)

    answer = ask(measure, seconds, look)
    nvml = gather(answer)
    said = answer.said
    if answer.fault and not of_kind(said, "cards"):
        # The library ended that process, or it hangs: then opening a node would only hang again.
        again = ask(lambda say: finish(say, nvml["devices"], not answer.timed_out), seconds)
        said, fault = [*said, *again.said], fault or again.fault
    nodes = device_nodes(roots.dev, minors(nvml["devices"], gpus))
    for name, openable, reason in of_kind(said, "access"):
        if name in nodes:
            nodes[name].update(openable=openable, error=reason)
    return {
        **raw,
        "nvml": nvml,
        "cuda": ask_cuda(nvml, seconds, cuda),
        "nodes": nodes,
        "processes": of_kind(said, "process"),
        "services": of_kind(said, "service"),
        "user": {"name": service_user, "fault": next(iter(of_kind(said, "refused")), fault)},
    }


def of_kind(said: Iterable[dict[str, Any]], kind: str) -> list[Any]:
    return [line[kind] for line in said if kind in line]


def gather(answer: Answer) -> dict[str, Any]:
    """One dictionary of what a child said about a library: its "system" lines, its "device" lines, and where it ended."""
    found: dict[str, Any] = {"loaded": None, "status": None}
    for system in of_kind(answer.said, "system"):
        found.update(system)
    at = next(reversed(of_kind(answer.said, "at")), "the start")
    fault = f"{answer.fault} (at {at})" if answer.fault else None
    return {**found, "devices": of_kind(answer.said, "device"), "fault": fault, "timed_out": answer.timed_out}


def ask_cuda(nvml: dict[str, Any], seconds: float, when: str) -> dict[str, Any] | None:
    """Not a driver that just did not answer: that would only be the same wait once more."""
    devices = [device for device in nvml["devices"] if device.get("pci_address")]
    idle = bool(devices) and not any(map(in_use, devices))
    if nvml["timed_out"] or not (when == "always" or (when == "auto" and idle)):
        return None
    # One call starts all cards that are not kept initialised, one after the other.
    cold = sum(device.get("persistence") is False for device in devices)
    return gather(ask(_cuda.read, seconds * max(1, cold)))


def minors(devices: Iterable[dict[str, Any]], gpus: dict[str, str]) -> list[int]:
    found = {device["minor"] for device in devices if device.get("minor") is not None}
    found |= {int(minor) for text in gpus.values() for minor in re.findall(r"Device Minor:[ \t]*([0-9]{1,6})\b", text)}
    return sorted(found)


def in_use(device: dict[str, Any]) -> bool:
    """By an NVML answer: somebody's process, or more memory than the driver's own."""
    return bool(device.get("processes")) or (device.get("memory_used") or 0) >> 20 > IDLE_MIB


def proc_gpus(proc: str) -> dict[str, str]:
    folder = f"{proc}/driver/nvidia/gpus"
    names: list[str] = []
    with contextlib.suppress(OSError):
        names = sorted(os.listdir(folder))
    texts = {_native.kernel_address(name): read_text(f"{folder}/{name}/information") for name in names}
    return {address: text for address, text in texts.items() if address is not None and text is not None}


def sysfs_gpus(sys: str) -> list[dict[str, Any]]:
    folder = f"{sys}/bus/pci/devices"
    names: list[str] = []
    with contextlib.suppress(OSError):
        names = sorted(os.listdir(folder))
    found = []
    for name in names:
        path, address = f"{folder}/{name}", _native.kernel_address(name)
        # One read for each device that is not of interest: a server has hundreds.
        if address is None or (read_text(f"{path}/vendor") or "").strip() != f"0x{_pci_ids.VENDOR}":
            continue
        # A part of a card that is shared with virtual machines is no card of its own.
        if not (read_text(f"{path}/class") or "").startswith(_pci_ids.DISPLAY_CLASSES) or os.path.lexists(f"{path}/physfn"):
            continue
        device = re.fullmatch(r"0x([0-9a-f]{4})", (read_text(f"{path}/device") or "").strip().lower())
        found.append(
            {
                "address": address,
                "pci_id": f"{_pci_ids.VENDOR}:{device.group(1)}" if device else None,
                "numa_node": _integer(read_text(f"{path}/numa_node")),
                "width": _integer(read_text(f"{path}/current_link_width")),
                "width_max": _integer(read_text(f"{path}/max_link_width")),
                "driver": _link_name(f"{path}/driver"),
            }
        )
    return found


def _integer(text: str | None) -> int | None:
    found = (text or "").strip()
    return int(found) if re.fullmatch(r"-?[0-9]{1,9}", found) else None


def _link_name(path: str) -> str | None:
    try:
        return os.path.basename(os.readlink(path))
    except OSError:
        return None


def device_nodes(dev: str, minors: Iterable[int]) -> dict[str, dict[str, Any]]:
    """By the path that services use, whatever folder `dev` is."""
    names = {f"nvidia{minor}" for minor in minors} | {os.path.basename(node) for node in CONTROL_NODES}
    with contextlib.suppress(OSError):
        names |= {name for name in os.listdir(dev) if re.fullmatch(r"nvidia[0-9]{1,6}", name)}
    found: dict[str, dict[str, Any]] = {}
    for name in sorted(names, key=lambda name: (len(name) if name[-1].isdigit() else 0, name)):
        path = os.path.join(dev, name)
        try:
            mode = os.stat(path).st_mode
            kind = "char" if stat.S_ISCHR(mode) else "other"
        except OSError:
            kind = "missing"
        found[f"/dev/{name}"] = {"type": kind, "path": path, "openable": None, "error": None}
    return found


def account_of(service_user: str) -> tuple[int, int, list[int]]:
    """User, group and further groups of the service user; one that is still to be created can do what nobody can."""
    try:
        entry = pwd.getpwnam(service_user)
    except KeyError:
        return UNPRIVILEGED, UNPRIVILEGED, []
    return entry.pw_uid, entry.pw_gid, os.getgrouplist(entry.pw_name, entry.pw_gid)


Account = tuple[int, int, list[int]]


def account_to_try(service_user: str | None) -> tuple[Account | None, str | None]:
    """Whom to become before the nodes are opened, None for nobody else; or why that cannot be tried."""
    account = account_of(service_user) if service_user is not None else None
    if account is None or account[0] == os.geteuid():
        return None, None
    return account, None if os.geteuid() == 0 else f"only root can open files as {service_user}"


def try_nodes(say: Say, nodes: dict[str, dict[str, Any]], account: Account | None) -> None:
    """Opens each node as the service user: root can open what the service cannot. This process stays that user."""
    if account is not None:
        user, group, groups = account
        try:
            os.setgroups(groups)
            os.setgid(group)
            os.setuid(user)
        except OSError as refused:
            say({"refused": f"this process cannot become user {user}: {refused.strerror}"})
            return
        end_with_parent()
    for name, node in nodes.items():
        if node["type"] != "char":
            continue
        say({"at": name})
        try:
            os.close(os.open(node["path"], os.O_RDWR | os.O_CLOEXEC))
            say({"access": [name, True, None]})
        except OSError as denied:
            say({"access": [name, False, denied.strerror]})


def say_processes(say: Say, proc: str, devices: list[dict[str, Any]]) -> None:
    """Also here, since reading about a process can wait as long as the process does, and that may be for the driver."""
    for pid in sorted({entry["pid"] for device in devices for entry in device.get("processes") or []}):
        say({"at": f"process {pid}"})
        say({"process": process(proc, pid)})
    if any(in_use(device) for device in devices):
        say({"at": "our own services"})
        for service in our_services(proc):
            say({"service": service})


def process(proc: str, pid: int) -> dict[str, Any]:
    """A process that NVML names. `holds`: whether it has the driver open; False also when there is no such pid here,
    as for a pid of the host seen from a container: NVML does not always translate."""
    comm = read_text(f"{proc}/{pid}/comm") if pid > 0 else None
    return {
        "pid": pid,
        "name": comm.strip() if comm else None,
        "cgroup": read_text(f"{proc}/{pid}/cgroup") if comm else None,
        "holds": _holds_driver(f"{proc}/{pid}/maps") if comm else False,
    }


def _holds_driver(path: str) -> bool | None:
    text = read_text(path, MAX_MAPS)
    if text is None:
        return None
    return "/dev/nvidia" in text or "libcuda.so" in text or "libnvidia-ml.so" in text


def our_services(proc: str) -> list[dict[str, Any]]:
    """Processes of our units with the cards that their environment names: the only trace where NVML shows no pids."""
    found = []
    names: list[str] = []
    with contextlib.suppress(OSError):
        names = sorted((name for name in os.listdir(proc) if name.isdigit()), key=int)
    for name in names:
        cgroup = read_text(f"{proc}/{name}/cgroup") or ""
        if OUR_UNITS not in cgroup:
            continue
        environment = read_text(f"{proc}/{name}/environ") or ""
        visible = re.search(r"(?:^|\0)CUDA_VISIBLE_DEVICES=([^\0]*)", environment)
        comm = read_text(f"{proc}/{name}/comm")
        found.append(
            {
                "pid": int(name),
                "name": (comm or "").strip() or None,
                "cgroup": cgroup,
                "visible": visible.group(1) if visible else None,
            }
        )
    return found
