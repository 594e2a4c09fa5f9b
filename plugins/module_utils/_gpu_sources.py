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

from ansible_collections.blackwell.inference.plugins.module_utils import _nvml, _pci_ids, _platform
from ansible_collections.blackwell.inference.plugins.module_utils._child import Say, ask
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
    nvml = _nvml.read(seconds)
    gpus = proc_gpus(roots.proc)
    minors = {device["minor"] for device in nvml["devices"] if device.get("minor") is not None}
    minors |= {int(match) for text in gpus.values() for match in re.findall(r"Device Minor:\s*(\d+)", text)}
    raw: dict[str, Any] = {
        "nvml": nvml,
        "cuda": None,
        "proc": {"version": read_text(f"{roots.proc}/driver/nvidia/version"), "gpus": gpus},
        "sysfs": sysfs_gpus(roots.sys),
        "nodes": device_nodes(roots.dev, sorted(minors)),
        "processes": [
            process(roots.proc, pid)
            for pid in sorted({entry["pid"] for device in nvml["devices"] for entry in device.get("processes") or []})
        ],
        "services": [],
        "container": _platform.container(roots.proc, roots.root),
        "platform": _platform.platform(roots.proc, roots.root, path),
    }
    raw["user"] = check_access(raw["nodes"], service_user, seconds)
    if any(in_use(device) for device in nvml["devices"]):
        raw["services"] = our_services(roots.proc)
    # A driver that did not answer once is not asked again: that would only be the same wait.
    idle = nvml["status"] == 0 and not any(map(in_use, nvml["devices"]))
    if not nvml["timed_out"] and (cuda == "always" or (cuda == "auto" and idle)):
        raw["cuda"] = _nvml.read(seconds, cuda=True)
    return raw


def in_use(device: dict[str, Any]) -> bool:
    """By an NVML answer: somebody's process, or more memory than the driver's own."""
    return bool(device.get("processes")) or (device.get("memory_used") or 0) >> 20 > IDLE_MIB


def proc_gpus(proc: str) -> dict[str, str]:
    folder = f"{proc}/driver/nvidia/gpus"
    names: list[str] = []
    with contextlib.suppress(OSError):
        names = sorted(os.listdir(folder))
    texts = {name.lower(): read_text(f"{folder}/{name}/information") for name in names}
    return {name: text for name, text in texts.items() if text is not None}


def sysfs_gpus(sys: str) -> list[dict[str, Any]]:
    folder = f"{sys}/bus/pci/devices"
    names: list[str] = []
    with contextlib.suppress(OSError):
        names = sorted(os.listdir(folder))
    found = []
    for name in names:
        values = {key: (read_text(f"{folder}/{name}/{key}") or "").strip() for key in ("vendor", "class")}
        if values["vendor"] != f"0x{_pci_ids.VENDOR}" or not values["class"].startswith(_pci_ids.DISPLAY_CLASSES):
            continue
        device = (read_text(f"{folder}/{name}/device") or "").strip()
        found.append(
            {
                "address": name.lower(),
                "pci_id": f"{_pci_ids.VENDOR}:{device[2:].lower()}" if device.startswith("0x") else None,
                "numa_node": _integer(read_text(f"{folder}/{name}/numa_node")),
                "width": _integer(read_text(f"{folder}/{name}/current_link_width")),
                "width_max": _integer(read_text(f"{folder}/{name}/max_link_width")),
                "driver": _link_name(f"{folder}/{name}/driver"),
            }
        )
    return found


def _integer(text: str | None) -> int | None:
    try:
        return int((text or "").strip())
    except ValueError:
        return None


def _link_name(path: str) -> str | None:
    try:
        return os.path.basename(os.readlink(path))
    except OSError:
        return None


def device_nodes(dev: str, minors: Iterable[int]) -> dict[str, dict[str, Any]]:
    """By the path that services use, whatever folder `dev` is."""
    names = {f"nvidia{minor}" for minor in minors} | {os.path.basename(node) for node in CONTROL_NODES}
    with contextlib.suppress(OSError):
        names |= {name for name in os.listdir(dev) if re.fullmatch(r"nvidia\d+", name)}
    found: dict[str, dict[str, Any]] = {}
    for name in sorted(names):
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


def check_access(nodes: dict[str, dict[str, Any]], service_user: str | None, seconds: float) -> dict[str, Any]:
    """Opens each node as the service user: root can open what the service cannot."""
    state: dict[str, Any] = {"name": service_user, "fault": None}
    account = account_of(service_user) if service_user is not None else None
    if account is not None and account[0] == os.geteuid():
        account = None
    if account is not None and os.geteuid() != 0:
        return {**state, "fault": f"only root can open files as {service_user}"}
    paths = [node["path"] for node in nodes.values() if node["type"] == "char"]

    def try_open(say: Say) -> None:
        if account is not None:
            user, group, groups = account
            os.setgroups(groups)
            os.setgid(group)
            os.setuid(user)
        for path in paths:
            try:
                os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))
                say([path, True, None])
            except OSError as denied:
                say([path, False, denied.strerror])

    answer = ask(try_open, seconds)
    said = {path: (openable, reason) for path, openable, reason in answer.said}
    for node in nodes.values():
        node["openable"], node["error"] = said.get(node["path"], (None, None))
    return {**state, "fault": answer.fault}


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
