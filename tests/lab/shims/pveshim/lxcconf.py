# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From a Proxmox VE configuration to the LXC configuration and the device nodes of the container."""

from __future__ import annotations

import os
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path

from .conf import Conf
from .errors import PveError
from .schema import parse_properties

ID_BASE = 100000
ID_COUNT = 65536
DEFAULT_MODE = "0660"

# The two lines below that no real node has: they show the lab's simulated driver state and PCI devices.
SIMULATION = (
    "# simulation: the driver's state and the PCI devices, which the kernel shows by itself on a real node",
    "lxc.mount.entry = /proc/driver proc/driver none rbind,rw 0 0",
    "lxc.mount.entry = /sys/bus/pci/devices sys/bus/pci/devices none bind,ro 0 0",
)


@dataclass(frozen=True)
class Device:
    """A `devN` entry: what the container gets, whatever mode and owner the node's own device has."""

    key: str
    path: str
    mode: int
    uid: int
    gid: int


def unprivileged(values: dict[str, str]) -> bool:
    return values.get("unprivileged", "0") == "1"


def indexed(values: dict[str, str], prefix: str) -> list[tuple[str, str]]:
    """Entries like dev0, dev1, ... in numerical order."""
    keys = [key for key in values if key.startswith(prefix) and key[len(prefix) :].isdigit()]
    return [(key, values[key]) for key in sorted(keys, key=lambda key: int(key[len(prefix) :]))]


def devices(values: dict[str, str]) -> list[Device]:
    found = []
    for key, value in indexed(values, "dev"):
        entry = parse_properties(value, "path")
        mode = int(entry.get("mode", DEFAULT_MODE), 8)
        found.append(Device(key, entry["path"], mode, int(entry.get("uid", "0")), int(entry.get("gid", "0"))))
    return found


def check_devices(values: dict[str, str]) -> None:
    """As Proxmox VE does before anything else, at `set` and at every start."""
    for device in devices(values):
        if not os.path.exists(device.path):
            raise PveError(f"Device {device.path} does not exist", 2)
        if not stat.S_ISCHR(os.stat(device.path).st_mode) and not stat.S_ISBLK(os.stat(device.path).st_mode):
            raise PveError(f"{device.path} is not a device", 2)


def make_device_nodes(folder: Path, values: dict[str, str]) -> None:
    """Fresh nodes for this start, with the numbers that the node's devices have now."""
    if folder.exists():
        shutil.rmtree(folder)
    base = ID_BASE if unprivileged(values) else 0
    for device in devices(values):
        status = os.stat(device.path)
        target = folder / device.path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        os.mknod(target, stat.S_IFMT(status.st_mode) | device.mode, status.st_rdev)
        os.chmod(target, device.mode)
        os.chown(target, base + device.uid, base + device.gid)


def render(vmid: int, conf: Conf, *, folder: Path, cgroups: str, processors: int) -> str:
    """LXC configuration of a container. `cgroups`: v1, v2 or none, where limits can be set."""
    values = conf.values
    lines = ["# Written at each start from /etc/pve/lxc; changes here are lost.", *_base(vmid, values, folder)]
    lines += _network(values)
    lines += _limits(values, cgroups, processors)
    for device in devices(values):
        target = device.path.lstrip("/")
        lines.append(f"lxc.mount.entry = {folder}/devices/{target} {target} none bind,create=file 0 0")
        if not unprivileged(values):
            lines += _allow(device)
    for _key, value in indexed(values, "mp"):
        entry = parse_properties(value, "volume")
        options = "bind,create=dir" + (",ro" if entry.get("ro", "0") == "1" else "")
        source, target = _escape(entry["volume"]), _escape(entry["mp"].lstrip("/"))
        lines.append(f"lxc.mount.entry = {source} {target} none {options} 0 0")
    lines += SIMULATION
    lines += [f"{key} = {value}" for key, value in conf.lxc]
    return "".join(f"{line}\n" for line in lines)


def _base(vmid: int, values: dict[str, str], folder: Path) -> list[str]:
    lines = ["lxc.include = /usr/share/lxc/config/common.conf"]
    if unprivileged(values):
        lines += [
            "lxc.include = /usr/share/lxc/config/userns.conf",
            f"lxc.idmap = u 0 {ID_BASE} {ID_COUNT}",
            f"lxc.idmap = g 0 {ID_BASE} {ID_COUNT}",
        ]
    return [
        *lines,
        "lxc.arch = amd64",
        f"lxc.uts.name = {values.get('hostname', f'CT{vmid}')}",
        f"lxc.rootfs.path = dir:{folder}/rootfs",
        "lxc.apparmor.profile = unconfined",
        "lxc.mount.auto = cgroup:rw:force proc:mixed sys:mixed",
        "lxc.environment = TERM=linux",
        "lxc.monitor.unshare = 1",
        "lxc.cgroup.relative = 0",
        f"lxc.cgroup.dir.monitor = lxc.monitor/{vmid}",
        f"lxc.cgroup.dir.container = lxc/{vmid}",
        "lxc.cgroup.dir.container.inner = ns",
        f"lxc.log.file = /var/log/lxc/{vmid}.log",
        "lxc.log.level = INFO",
    ]


def _network(values: dict[str, str]) -> list[str]:
    lines: list[str] = []
    for index, (_key, value) in enumerate(indexed(values, "net")):
        entry = parse_properties(value)
        lines += [
            f"lxc.net.{index}.type = veth",
            f"lxc.net.{index}.name = {entry['name']}",
            f"lxc.net.{index}.flags = up",
        ]
        for key, option in (("link", "bridge"), ("hwaddr", "hwaddr"), ("mtu", "mtu"), ("ipv4.gateway", "gw")):
            if option in entry:
                lines.append(f"lxc.net.{index}.{key} = {entry[option]}")
        if "/" in entry.get("ip", ""):
            lines.append(f"lxc.net.{index}.ipv4.address = {entry['ip']}")
    return lines or ["lxc.net.0.type = empty"]


def _limits(values: dict[str, str], cgroups: str, processors: int) -> list[str]:
    memory = int(values.get("memory", "512")) * 1024 * 1024
    cores = int(values.get("cores", "0"))
    lines = []
    if cgroups == "v1":
        lines.append(f"lxc.cgroup.memory.limit_in_bytes = {memory}")
    elif cgroups == "v2":
        lines.append(f"lxc.cgroup2.memory.max = {memory}")
    if cgroups != "none" and 0 < cores < processors:
        name = "lxc.cgroup2.cpuset.cpus" if cgroups == "v2" else "lxc.cgroup.cpuset.cpus"
        lines.append(f"{name} = 0-{cores - 1}")
    return lines


def _allow(device: Device) -> list[str]:
    status = os.stat(device.path)
    letter = "b" if stat.S_ISBLK(status.st_mode) else "c"
    rule = f"{letter} {os.major(status.st_rdev)}:{os.minor(status.st_rdev)} rw"
    return [f"lxc.cgroup.devices.allow = {rule}", f"lxc.cgroup2.devices.allow = {rule}"]


def _escape(path: str) -> str:
    return path.replace("\\", "\\134").replace(" ", "\\040").replace("\t", "\\011")


def cgroup_kind() -> str:
    """Where this node can set limits."""
    root = Path("/sys/fs/cgroup")
    if (root / "memory").is_dir():
        return "v1"
    controllers = root / "cgroup.controllers"
    return "v2" if controllers.exists() and "memory" in controllers.read_text().split() else "none"
