# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A room for real LXC containers on a machine that has none: a tree of its own, in namespaces that take all with them.

The tree (tests/gpu/bundle) brings systemd, LXC and Python. A plain chroot does not do: the kernel makes no user
namespaces in one. So the room is a mount namespace whose root is the tree, with a pid namespace for the clean-up.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

HERE = Path(__file__).resolve().parent
CGROUPS = Path("/sys/fs/cgroup")
# Where an unprivileged container's root lies among the ids of the machine, as on Proxmox VE.
SHIFT = 100_000

# $1: the tree; $2: folders and files to bind, each "source target", one a line.
ENTER = r"""
set -e
mount --make-rprivate /
mount --bind "$1" "$1"
mount -t proc proc "$1/proc"
mount --rbind /sys "$1/sys"
mount --rbind /dev "$1/dev"
mount -t tmpfs tmpfs "$1/run"
mount -t tmpfs tmpfs "$1/tmp"
printf '%s' "$2" | while read -r source target; do
    if [ -d "$source" ]; then mkdir -p "$1$target"; else mkdir -p "$(dirname "$1$target")"; : >>"$1$target"; fi
    mount --rbind "$source" "$1$target"
done
mkdir -p "$1/mnt/old"
cd "$1"
pivot_root . mnt/old
cd /
umount -l /mnt/old
exec /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 /usr/bin/python3 -B /test/inside.py
"""


class RoomError(RuntimeError):
    """The room or a container in it did not come up; the message holds the last lines of its log."""


def unpack(archive: Path, folder: Path, shift: int) -> None:
    """Owners go up by `shift`: no file system here has to know mapped ids."""

    def owned(member: tarfile.TarInfo, _folder: str) -> tarfile.TarInfo:
        return member.replace(uid=member.uid + shift, gid=member.gid + shift, deep=False)

    with tarfile.open(archive) as tar:
        tar.extractall(folder, numeric_owner=True, filter=owned)


class Room:
    """Unpacks the tree twice, once for the room and once for the containers; everything goes at the end."""

    def __init__(self, archive: Path) -> None:
        self._archive = archive
        self._folder = Path()

    def __enter__(self) -> Room:
        self._folder = Path(tempfile.mkdtemp(prefix="blackwell-room-"))
        self._folder.chmod(0o755)
        for name, shift in (("tree", 0), ("unprivileged", SHIFT), ("privileged", 0)):
            (self._folder / name).mkdir()
            unpack(self._archive, self._folder / name, shift)
        os.chown(self._folder / "unprivileged", SHIFT, SHIFT)
        for name in ("subuid", "subgid"):
            (self._folder / "tree" / "etc" / name).write_text(f"root:{SHIFT}:65536\n")
        return self

    def run(self, job: dict[str, Any], binds: dict[str, str], seconds: float) -> list[dict[str, Any]]:
        """What inside.py says of each container of the job. Raises RoomError."""
        listed = {
            str(self._folder / "unprivileged"): "/containers/unprivileged",
            str(self._folder / "privileged"): "/containers/privileged",
            str(HERE / "inside.py"): "/test/inside.py",
            **binds,
        }
        text = "".join(f"{source} {target}\n" for source, target in listed.items())
        # A group of its own: LXC makes its groups beside it, and none can be made where processes are.
        group = f"blackwell-room-{os.getpid()}"
        enter = f"{_join(group)}\n{ENTER}"
        argv = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", enter, "sh", str(self._folder / "tree"), text]
        try:
            done = subprocess.run(argv, input=json.dumps(job), capture_output=True, text=True, timeout=seconds, check=False)
        except subprocess.TimeoutExpired as late:
            raise RoomError(f"the containers were not done after {seconds:.0f} s: {(late.stderr or b'')[-1500:]!r}") from None
        finally:
            _remove_groups(group)
        if done.returncode:
            raise RoomError(f"status {done.returncode}: {done.stderr[-5000:]}")
        answer: list[dict[str, Any]] = json.loads(done.stdout)
        return answer

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


def _hierarchies() -> list[Path]:
    if (CGROUPS / "cgroup.controllers").exists():
        return [CGROUPS]
    return [path for path in CGROUPS.iterdir() if path.is_dir()]


def _join(group: str) -> str:
    lines = []
    for hierarchy in _hierarchies():
        folder = hierarchy / group
        lines.append(f"mkdir {folder}")
        for name in ("cpuset.cpus", "cpuset.mems"):
            # Old hierarchies want both before a process may enter.
            if (hierarchy / name).exists() and hierarchy != CGROUPS:
                lines.append(f"cat {hierarchy}/{name} >{folder}/{name}")
        lines.append(f"echo $$ >{folder}/cgroup.procs")
    return "\n".join(["set -e", *lines])


def _remove_groups(group: str) -> None:
    for hierarchy in _hierarchies():
        for top in (*hierarchy.glob(group), *hierarchy.glob("lxc.*.blackwell-*")):
            for folder in sorted((path for path in (top, *top.rglob("*")) if path.is_dir()), key=lambda path: -len(path.parts)):
                try:
                    folder.rmdir()
                except OSError:
                    # A group that is still in use is not ours any more to judge; the summary lists what stays.
                    continue
