# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A room for real LXC containers on a machine that has none: a tree of its own, in namespaces that take all with them.

    with Room(archive) as room:
        room.add_tree("unprivileged", SHIFT)    # room.work is a folder on the machine that goes with the room
        text = room.run(["/usr/bin/python3", "/test/program.py"], text, binds, seconds)

The tree (tests/gpu/bundle) brings systemd, LXC and Python. A plain chroot does not do: the kernel makes no user
namespaces in one. So the room has a mount namespace whose root is the tree, a pid namespace whose end kills whatever
runs in it, and one control group that holds all that LXC makes. The room has control groups of version 2 only, mounted
afresh: it matters neither how the machine mounts its own, nor in which group the test was started.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path
from types import TracebackType

PREFIX = "blackwell-room-"
# Where an unprivileged container's root lies among the ids of the machine, as on Proxmox VE.
SHIFT = 100_000

# $1 the tree, $2 the control group, $3 the binds ("target <tab> source <tab> mode", one a line), then the program.
# The group comes first: it becomes the root of the control groups that the room sees.
ENTER = r"""
set -e
mount -t cgroup2 cgroup2 "$1/mnt"
mkdir "$1/mnt/$2"
echo $$ >"$1/mnt/$2/cgroup.procs"
umount "$1/mnt"
exec unshare --cgroup sh -c "$FURNISH" sh "$@"
"""
# LXC makes its groups below the one of pid 1, and asks for every controller that it finds there. None can be had in a
# group that has processes; below a group that hands none down there is none to ask for.
FURNISH = r"""
set -e
mount --bind "$1" "$1"
mount -o remount,bind,exec,suid,dev "$1"
mount --rbind /sys "$1/sys"
# The kernel refuses to mount what is mounted in the same place.
while umount -l "$1/sys/fs/cgroup" 2>/dev/null; do :; done
mount -t cgroup2 cgroup2 "$1/sys/fs/cgroup"
mkdir "$1/sys/fs/cgroup/room"
echo $$ >"$1/sys/fs/cgroup/room/cgroup.procs"
mount --rbind /dev "$1/dev"
mount -t tmpfs tmpfs "$1/run"
mount -t tmpfs tmpfs "$1/tmp"
tab=$(printf '\t')
printf '%s' "$3" | while IFS=$tab read -r target source mode; do
    if [ -d "$source" ]; then mkdir -p "$1$target"; else mkdir -p "$(dirname "$1$target")"; : >>"$1$target"; fi
    mount --rbind "$source" "$1$target"
    mount -o "remount,bind,$mode,exec,suid,dev" "$1$target"
done
exec unshare --pid --fork --kill-child sh -c "$SETTLE" sh "$@"
"""
SETTLE = r"""
set -e
mount -t proc proc "$1/proc"
mkdir -p "$1/mnt/old"
cd "$1"
shift 3
pivot_root . mnt/old
cd /
umount -l /mnt/old
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 "$@"
"""
# $1 an empty folder, then names of control groups. What was killed a moment ago is still there for some.
SWEEP = r"""
mount -t cgroup2 cgroup2 "$1" && cd "$1" && shift || exit 1
for group in "$@"; do
    [ -d "$group" ] || continue
    [ ! -e "$group/cgroup.kill" ] || echo 1 >"$group/cgroup.kill"
    tries=0
    until find "$group" -depth -type d -exec rmdir {} + 2>/dev/null; do
        tries=$((tries + 1))
        [ "$tries" -lt 200 ] || { echo "control group $group has processes that do not end"; break; }
        sleep 0.05
    done
done
"""


class RoomError(RuntimeError):
    """The room or a container in it did not come up; the message holds the last lines of its log."""


def shifted(member: tarfile.TarInfo, shift: int) -> tarfile.TarInfo:
    return member.replace(uid=member.uid + shift, gid=member.gid + shift, deep=False)


def unpack(archive: Path, folder: Path, shift: int = 0) -> None:
    """Owners go up by `shift`: no file system here has to know mapped ids."""
    folder.mkdir()
    os.chown(folder, shift, shift)
    with tarfile.open(archive) as tar:
        tar.extractall(folder, numeric_owner=True, filter=lambda member, _folder: shifted(member, shift))


def bind_lines(binds: dict[str, str], writable: Collection[str]) -> str:
    """`binds`: target in the room -> source on the machine, in the order in which they are to be mounted."""
    for path in (*binds, *binds.values()):
        if "\t" in path or "\n" in path:
            raise RoomError(f"found: {path!r}; wanted: a path without tabs and line feeds")
    return "".join(f"{target}\t{source}\t{'rw' if target in writable else 'ro'}\n" for target, source in binds.items())


def abandoned(names: Collection[str], proc: Path = Path("/proc")) -> list[str]:
    """Of folders of rooms, those whose test is gone: killed at once, it could not clean up."""
    return [name for name in names if not (proc / name.removeprefix(PREFIX).partition("-")[0]).exists()]


class Room:
    def __init__(self, archive: Path) -> None:
        self._archive = archive
        self._trees: list[str] = []
        self.folder = Path()
        self.work = Path()

    def __enter__(self) -> Room:
        base = Path(tempfile.gettempdir())
        for name in abandoned([path.name for path in base.glob(f"{PREFIX}*")]):
            _remove(base / name)
        self.folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
        try:
            # Mapped root must get through to its tree.
            self.folder.chmod(0o755)
            self.work = self.folder / "work"
            self.work.mkdir()
            unpack(self._archive, self.folder / "tree")
            for name in ("subuid", "subgid"):
                (self.folder / "tree" / "etc" / name).write_text(f"root:{SHIFT}:65536\n")
        except BaseException:
            _remove(self.folder)
            raise
        return self

    def add_tree(self, name: str, shift: int) -> None:
        """One more of the same tree, for containers: /trees/NAME in the room, writable."""
        unpack(self._archive, self.folder / f"tree-{name}", shift)
        self._trees.append(name)

    def run(self, argv: Sequence[str], text: str, binds: dict[str, str], seconds: float, writable: Collection[str] = ()) -> str:
        """Run a program in the room with `text` as its input, and return what it printed. Raises RoomError.

        When it ends, and when this process is killed, whatever it started is killed.
        """
        trees = {f"/trees/{name}": str(self.folder / f"tree-{name}") for name in self._trees}
        lines = bind_lines({**trees, **binds}, {*trees, *writable})
        enter = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "sh", "-c", ENTER, "sh", str(self.folder / "tree")]
        environ = {**os.environ, "FURNISH": FURNISH, "SETTLE": SETTLE}
        try:
            done = subprocess.run([*enter, self.folder.name, lines, *argv], input=text, capture_output=True, text=True,
                                  errors="replace", timeout=seconds, check=False, env=environ)  # fmt: skip
        except subprocess.TimeoutExpired as late:
            said = (late.stderr or b"").decode(errors="replace")
            raise RoomError(f"{argv[-1]} was not done after {seconds:.0f} s: {said[-1500:]}") from None
        finally:
            _sweep(self.folder)
        if done.returncode:
            raise RoomError(f"{argv[-1]} ended with {done.returncode}: {done.stderr[-4000:]}")
        return done.stdout

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        _remove(self.folder)


def _sweep(folder: Path) -> None:
    """Remove the control group that is named as the folder. Its mount is private: the machine's may be read-only."""
    point = folder / "sweep"
    point.mkdir(exist_ok=True)
    subprocess.run(["unshare", "--mount", "sh", "-c", SWEEP, "sh", str(point), folder.name], check=False)


def _remove(folder: Path) -> None:
    _sweep(folder)
    shutil.rmtree(folder, ignore_errors=True)


def left_behind() -> list[str]:
    """Folders, control groups and mounts of this process's rooms that are still there."""
    own = f"{PREFIX}{os.getpid()}-"
    found = [str(path) for path in Path(tempfile.gettempdir()).glob(f"{own}*")]
    with tempfile.TemporaryDirectory(prefix="blackwell-look-") as point:
        script = 'mount -t cgroup2 cgroup2 "$1" && find "$1" -maxdepth 1 -name "$2*"'
        look = ["unshare", "--mount", "sh", "-c", script, "sh", point, own]
        listing = subprocess.run(look, capture_output=True, text=True, check=True).stdout
    found += [f"control group {line.rpartition('/')[2]}" for line in listing.splitlines()]
    return found + [f"mount {line.split()[4]}" for line in Path("/proc/self/mountinfo").read_text().splitlines() if own in line]
