# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults of one running container. This file is one script for its node: the lab puts it there and runs it there.

container_fault.py make KIND VMID[/DEVICE]   makes a fault; DEVICE is a name such as nvidia0 or nvidia-uvm
container_fault.py end KIND VMID[/DEVICE]    ends it; a start of the container ends those of its devices too
container_fault.py list                      one line a fault, as the two words that end it

library         the driver's libraries in the container are of another version
device-missing  the container does not have the device node
device-file     it has an empty file there, as after a start while the node did not have the device
device-private  only the container's root can open it
device-foreign  nobody in the container can open it, not even its root
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

LXC = Path("/var/lib/lxc")
LIBRARIES = "usr/lib/x86_64-linux-gnu"
# As long as the driver's own version, so that one can stand for the other in a binary.
OTHER_VERSION = "580.105.08"

# Whether the twin that hides a device belongs to the container's root. None: there is no twin, the device itself is taken away.
DEVICE_FAULTS = {"device-missing": None, "device-file": None, "device-private": True, "device-foreign": False}

# <linux/mount.h>, <sched.h>; these numbers of the two newer calls are the same on every architecture.
OPEN_TREE, MOVE_MOUNT = 428, 429
AT_FDCWD, OPEN_TREE_CLONE, MOVE_MOUNT_F_EMPTY_PATH, MNT_DETACH, CLONE_NEWNS = -100, 1, 4, 2, 0x20000


class FaultError(Exception):
    """Why a fault could not be made or ended."""


def pid_of(vmid: str) -> int:
    """The pid of the container's first process."""
    done = subprocess.run(["lxc-info", "-n", vmid, "-p", "-H"], capture_output=True, text=True, check=False)
    if not done.stdout.strip().isdigit():
        raise FaultError(f"container {vmid!r} does not run; start it first")
    return int(done.stdout)


def split(argument: str) -> tuple[str, str]:
    vmid, _, device = argument.partition("/")
    if not vmid.isdigit():
        raise FaultError(f"found {argument!r}, wanted a container's number, and for a device its name too, as in 200/nvidia0")
    return vmid, device


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise FaultError(f"{what}: {os.strerror(number)}")
    return result


def show(vmid: str, device: str, source: Path | None) -> None:
    """Puts ``source`` where the container sees the device, without its doing; None: only takes away what is there.

    A device node made in the container's own /dev would not open, and a bind mount does not cross mount name spaces: so the
    mount is made here, detached, and attached there.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    tree = None if source is None else _checked(
        libc.syscall(OPEN_TREE, AT_FDCWD, bytes(source), OPEN_TREE_CLONE | os.O_CLOEXEC), f"open_tree {source}"
    )  # fmt: skip
    target = Path("/dev") / device
    space = os.open(f"/proc/{pid_of(vmid)}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    _checked(libc.setns(space, CLONE_NEWNS), "setns")
    libc.umount2(bytes(target), MNT_DETACH)  # fails where nothing is mounted, which is as good
    if tree is None:
        return
    if not target.exists():
        owner = target.parent.stat().st_uid
        os.setegid(owner)  # ids of the node have no place in the container's file system
        os.seteuid(owner)
        target.touch()
        os.seteuid(0)
        os.setegid(0)
    _checked(libc.syscall(MOVE_MOUNT, tree, b"", AT_FDCWD, bytes(target), MOVE_MOUNT_F_EMPTY_PATH), f"move_mount {target}")


def in_child(vmid: str, device: str, source: Path | None) -> None:
    """show() leaves its process in the container's name space."""
    pid = os.fork()
    if pid == 0:
        try:
            show(vmid, device, source)
        except (FaultError, OSError) as error:
            print(f"fault: {error}", file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    if os.waitpid(pid, 0)[1] != 0:
        raise FaultError(f"device {device} of container {vmid} was left as it was")


def real_device(vmid: str, device: str) -> Path:
    """The node that the container got at its start."""
    folder = LXC / vmid / "devices" / "dev"
    path = folder / device
    if not device or "/" in device or not path.exists():
        there = ", ".join(sorted(path.name for path in folder.glob("*"))) or "none"
        raise FaultError(f"device {device!r}: container {vmid} has {there}")
    return path


def twin(kind: str, real: Path) -> Path:
    """Where the node lies that hides the real one. The next start of the container removes it."""
    return real.parent.parent / kind / real.name


def make_twin(kind: str, real: Path) -> Path:
    path = twin(kind, real)
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    status = real.stat()
    os.mknod(path, stat.S_IFCHR | 0o600, status.st_rdev)
    if DEVICE_FAULTS[kind]:
        os.chown(path, status.st_uid, status.st_gid)
    return path


def device_fault(seen: Path, real: Path) -> str | None:
    """What is wrong with a device as the container sees it."""
    if not seen.exists():
        return "device-missing"
    if not stat.S_ISCHR(seen.stat().st_mode):
        return "device-file"
    twins = [kind for kind, own in DEVICE_FAULTS.items() if own is not None and twin(kind, real).exists()]
    return next((kind for kind in twins if twin(kind, real).samefile(seen)), None)


def exchange_libraries(root: Path, old: str, new: str) -> None:
    """Another version's libraries: what they say of themselves, their names, and the links to them."""
    for path in (root / LIBRARIES).glob(f"lib*.so.{old}"):
        status = path.stat()
        target = path.with_name(path.name.replace(old, new))
        target.write_bytes(path.read_bytes().replace(old.encode(), new.encode()))
        link = path.with_name(f"{path.name.removesuffix(old)}1")
        link.unlink()
        link.symlink_to(target.name)
        for made in (target, link):
            os.chown(made, status.st_uid, status.st_gid, follow_symlinks=False)
        path.unlink()


def library_versions(root: Path) -> set[str]:
    return {path.name.partition(".so.")[2] for path in (root / LIBRARIES).glob("libnvidia-ml.so.*.*")}


def running() -> list[str]:
    done = subprocess.run(["lxc-ls", "-1", "--running"], capture_output=True, text=True, check=True)
    return done.stdout.split()


def listed() -> list[str]:
    found = []
    for vmid in running():
        seen = Path(f"/proc/{pid_of(vmid)}/root/dev")
        for real in sorted((LXC / vmid / "devices" / "dev").glob("*")):
            if kind := device_fault(seen / real.name, real):
                found.append(f"{kind} {vmid}/{real.name}")
        if OTHER_VERSION in library_versions(LXC / vmid / "rootfs"):
            found.append(f"library {vmid}")
    return found


def change_libraries(root: Path, wanted: str | None) -> None:
    """To a version; None: to the one that was installed. Nothing is done where an installer has been there since."""
    try:
        installed = json.loads((root / "var/lib/nvidia/installed.json").read_text(encoding="ascii"))["version"]
    except FileNotFoundError:
        raise FaultError("no driver is installed in this container; install it first") from None
    for found in library_versions(root) - {wanted or installed}:
        exchange_libraries(root, found, wanted or installed)


def make(kind: str, argument: str) -> None:
    vmid, device = split(argument)
    if kind == "library":
        pid_of(vmid)
        change_libraries(LXC / vmid / "rootfs", OTHER_VERSION)
        return
    real = real_device(vmid, device)
    in_child(vmid, device, real)  # one fault may follow another
    if kind == "device-missing":
        in_child(vmid, device, None)
        (Path(f"/proc/{pid_of(vmid)}/root/dev") / device).unlink()
    else:
        # The start of the container made an empty file to mount the device on.
        in_child(vmid, device, None if kind == "device-file" else make_twin(kind, real))


def end(kind: str, argument: str) -> None:
    vmid, device = split(argument)
    if kind == "library":
        change_libraries(LXC / vmid / "rootfs", None)
    else:
        in_child(vmid, device, real_device(vmid, device))


def main() -> int:
    parser = argparse.ArgumentParser(description="Faults of one container of a simulated node.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("make", "end"):
        command = commands.add_parser(name)
        command.add_argument("kind", choices=["library", *DEVICE_FAULTS])
        command.add_argument("argument", help="VMID or VMID/DEVICE")
    commands.add_parser("list")
    options = parser.parse_args()
    try:
        if options.command == "list":
            print("\n".join(listed()))
        else:
            {"make": make, "end": end}[options.command](options.kind, options.argument)
    except (FaultError, OSError, subprocess.CalledProcessError) as error:
        print(f"fault: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
