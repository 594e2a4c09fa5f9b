# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The outer containers: configuration, start, hard stop, state."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from . import names
from .proc import LabError, run


def render_config(node: str, *, template_tarball: str, unified: bool) -> str:
    """LXC configuration of a node. `unified`: this machine has only cgroup v2.

    Everything the lab adds that a real node does not have is a mount below /usr/lib/bwlab, a tmpfs on /proc/driver or
    the bind over /sys/bus/pci/devices.
    """
    hardware = names.node_state(node) / "hw"
    lines = [
        "lxc.include = /usr/share/lxc/config/common.conf",
        "lxc.include = /usr/share/lxc/config/nesting.conf",
        "lxc.arch = linux64",
        f"lxc.rootfs.path = dir:{names.rootfs(node)}",
        f"lxc.uts.name = {node}",
        "lxc.apparmor.profile = unconfined",
        "lxc.mount.auto = cgroup:rw:force proc:rw sys:rw",
        "lxc.cap.drop =",
        "lxc.cgroup2.devices.allow = a" if unified else "lxc.cgroup.devices.allow = a",
        "lxc.net.0.type = veth",
        f"lxc.net.0.veth.pair = {names.veth(node)}",
        f"lxc.net.0.link = {names.BRIDGE}",
        "lxc.net.0.name = eth0",
        f"lxc.net.0.hwaddr = {names.node_mac(node)}",
        "lxc.net.0.flags = up",
        # A hard power cut must not wait for a clean shutdown, nor leave anything that a real one would not.
        "lxc.signal.stop = SIGKILL",
        f"lxc.log.file = {names.node_state(node)}/lxc.log",
        "lxc.log.level = INFO",
        f"lxc.mount.entry = {names.STATE}/shims usr/lib/bwlab/shims none bind,ro,create=dir 0 0",
        f"lxc.mount.entry = {hardware} usr/lib/bwlab/hw none bind,ro,create=dir 0 0",
        f"lxc.mount.entry = {template_tarball} var/lib/vz/template/cache/{names.TEMPLATE_FILE} none bind,ro,create=file 0 0",
        "lxc.mount.entry = tmpfs proc/driver tmpfs rw,mode=755,size=4m 0 0",
        f"lxc.mount.entry = {hardware}/pci sys/bus/pci/devices none bind,ro 0 0",
    ]
    return "\n".join(lines) + "\n"


def host_is_unified() -> bool:
    return Path("/sys/fs/cgroup/cgroup.controllers").exists()


def _lxc(program: str, node: str, *arguments: str) -> list[str]:
    return [program, "-P", str(names.LXC_PATH), "-n", names.container(node), *arguments]


def init_pid(node: str) -> int | None:
    """Pid of the node's systemd on this machine, None when the node is off."""
    if not (names.LXC_PATH / names.container(node) / "config").exists():
        return None
    done = run(_lxc("lxc-info", node, "-p", "-H"), check=False, timeout=20)
    text = done.stdout.strip()
    return int(text) if done.returncode == 0 and text.isdigit() and int(text) > 0 else None


def monitor_pids(node: str | None = None) -> list[int]:
    """Monitors of the lab's outer containers; they outlive the lab's command line and even their own folder."""
    wanted = f"[lxc monitor] {names.LXC_PATH} {names.container(node) if node else names.PREFIX + '-'}"
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            command = (entry / "cmdline").read_bytes().split(b"\0")[0].decode(errors="replace").strip()
        except OSError:
            continue
        if command == wanted or (node is None and command.startswith(wanted)):
            found.append(int(entry.name))
    return found


def start(node: str) -> None:
    done = run(_lxc("lxc-start", node, "-d"), check=False, timeout=60)
    if done.returncode != 0:
        log = names.node_state(node) / "lxc.log"
        lines = [line for line in log.read_text(errors="replace").splitlines() if " ERROR " in line][-8:]
        raise LabError(f"node {node} does not start ({done.stderr.strip()}):\n" + "\n".join(lines))


def kill(node: str, seconds: float = 20) -> None:
    """Cut the node's power: its first process is killed, which kills every other one, nested containers included."""
    pid = init_pid(node)
    if pid is not None:
        os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + seconds
    while monitor_pids(node):
        if time.monotonic() > deadline:
            for monitor in monitor_pids(node):
                os.kill(monitor, signal.SIGKILL)
            break
        time.sleep(0.05)


def attach(node: str, command: list[str]) -> list[str]:
    """Command line that runs `command` in the node with a clean environment."""
    path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return _lxc("lxc-attach", node, "--clear-env", "-v", "HOME=/root", "-v", path, "--", *command)
