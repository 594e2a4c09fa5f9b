# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a killed lab leaves behind: recognised by the prefix and the state folder, and nothing else is touched."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable
from pathlib import Path

from . import lxc, names, network, node, simulation
from .mounts import mounts_below
from .proc import LabError, remove_tree, run

CGROUPS = Path("/sys/fs/cgroup")


def state_mounts() -> list[str]:
    return mounts_below(names.STATE, Path("/proc/self/mountinfo").read_text())


def control_groups(kept: Iterable[str] = ()) -> list[Path]:
    """Control groups of nodes that are not kept: a killed monitor cannot remove them any more. Deepest first."""
    keep = tuple(names.container(name) for name in kept)
    found = []
    # On a machine with the old hierarchies, each is a folder of the root; else the root itself is the hierarchy.
    for hierarchy in [CGROUPS] if lxc.host_is_unified() else [path for path in CGROUPS.iterdir() if path.is_dir()]:
        for top in hierarchy.glob(f"lxc.*.{names.PREFIX}-*"):
            if not top.name.split(".", 2)[2].startswith(keep or "-"):
                found += sorted((path for path in [top, *top.rglob("*")] if path.is_dir()), key=_depth, reverse=True)
    return found


def _depth(path: Path) -> int:
    return len(path.parts)


def lock_folder() -> Path:
    """Where LXC keeps a lock file for each container of the lab's folder."""
    return Path("/run/lxc/lock", *names.LXC_PATH.parts[1:])


def remove_leftovers(keep: Iterable[str]) -> list[str]:
    """Remove half-made nodes, links, mounts and monitors that belong to no complete node; return what was removed."""
    kept = set(keep)
    removed = []
    for name in node.existing():
        if name not in kept:
            node.remove(name)
            removed.append(f"half-made node {name}")
    known = {pid for name in kept for pid in lxc.monitor_pids(name)}
    for pid in lxc.monitor_pids():
        if pid not in known:
            _kill_tree(pid)
            removed.append(f"container monitor {pid}")
    for link in network.links():
        if link not in {names.BRIDGE, *(names.veth(name) for name in kept)}:
            run(["ip", "link", "delete", link], check=False)
            removed.append(f"network link {link}")
    for point in state_mounts():
        run(["umount", "-l", point], check=False)
        removed.append(f"mount {point}")
    groups = control_groups(kept)
    for group in groups:
        # Refused for a group that still has a process; whoever that is, it is none of the above.
        with contextlib.suppress(OSError):
            group.rmdir()
    if groups:
        removed.append(f"{len(groups)} control groups")
    return removed


def _kill_tree(monitor: int) -> None:
    children = Path(f"/proc/{monitor}/task/{monitor}/children")
    with contextlib.suppress(OSError):
        for child in children.read_text().split():
            os.kill(int(child), signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.kill(monitor, signal.SIGKILL)


def remains() -> list[str]:
    """Everything of the lab that is still on this machine."""
    found = [f"link {link}" for link in network.links()]
    found += [f"mount {point}" for point in state_mounts()]
    found += [f"process {pid}" for pid in (*lxc.monitor_pids(), *simulation.index_pids())]
    found += [f"folder {folder}" for folder in (names.STATE, lock_folder(), *control_groups()) if folder.exists()]
    return found


def remove_all() -> None:
    """Take everything down, then prove it."""
    simulation.stop_index()
    remove_leftovers(keep=())
    network.down()
    remove_tree(names.STATE)
    remove_tree(lock_folder())
    for folder in lock_folder().parents:
        # Only what the lab's own path made, and only while nobody else uses it.
        if folder == Path("/run/lxc/lock"):
            break
        with contextlib.suppress(OSError):
            folder.rmdir()
    left = remains()
    if left:
        raise LabError("could not remove: " + ", ".join(left) + ". Look who uses it, then take the lab down again")
