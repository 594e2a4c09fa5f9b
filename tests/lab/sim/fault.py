# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults of a node's cards. This file is one script for the node: the lab puts it there and runs it there.

fault.py busy GPU [--memory MIB]   a process that is nobody's service takes the card (GPU: index or UUID)
fault.py free GPU                  ends that process
fault.py no-driver                 as if no driver were installed: no libraries, nothing loaded, no device nodes
fault.py driver-back               undoes it; nvidia-modprobe then loads the module again
fault.py list                      one line a fault
"""

from __future__ import annotations

import argparse
import ctypes
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

PROC = Path("/proc/driver/nvidia")
RUN = Path("/run/bwlab")
PARKED = Path("/var/lib/bwlab-parked-driver")
# What the installer file puts on a node; parked as a whole, so that the node looks like one without a driver.
_INSTALLED = ("usr/lib/x86_64-linux-gnu", "usr/bin", "var/lib/nvidia")
_PATTERNS = {
    "usr/lib/x86_64-linux-gnu": ("libnvidia-ml.so*", "libcuda.so*"),
    "usr/bin": ("nvidia-modprobe", "nvidia-smi"),
    "var/lib/nvidia": ("module", "installed.json"),
}


class FaultError(Exception):
    """Why a fault could not be made or ended."""


def cards(proc: Path) -> list[str]:
    """The UUIDs of the node's cards, in their order."""
    try:
        text = (proc / "lab" / "gpus.conf").read_text(encoding="ascii")
    except FileNotFoundError:
        raise FaultError("no driver is loaded on this node, so no card can be taken; load it first") from None
    fields = [dict(f.split("=", 1) for f in line.split("\t")[1:]) for line in text.splitlines() if "\t" in line]
    return [card["uuid"] for card in fields]


def find_card(proc: Path, name: str) -> str:
    found = cards(proc)
    if name in found:
        return name
    if name.isdigit() and int(name) < len(found):
        return found[int(name)]
    raise FaultError(f"card {name!r}: found {len(found)} cards, wanted an index below that or one of {', '.join(found)}")


def hold(card: Path, memory_mib: int, ready: int) -> None:
    """Takes the card and keeps it until SIGTERM. ``ready`` is told how it went: one byte when it is held."""
    fd = os.open(card, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os._exit(1)
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{memory_mib}\n".encode(), 0)
    ctypes.CDLL(None).prctl(15, b"foreign-job", 0, 0, 0)  # the name that others see in /proc/<pid>/comm
    os.write(ready, b".")
    os.close(ready)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    while True:
        signal.pause()


def _holder_pid(run: Path, uuid: str) -> int | None:
    """The holder's pid; None when there is none. A pid file outlives a power cut, so the process must be ours too."""
    try:
        pid = int((run / f"holder-{uuid}.pid").read_text(encoding="ascii"))
        name, _, rest = (Path("/proc") / str(pid) / "stat").read_text(encoding="ascii").rpartition(")")
    except (OSError, ValueError):
        return None
    return pid if name.endswith("(foreign-job") and rest.split()[0] != "Z" else None


def busy(proc: Path, run: Path, name: str, memory_mib: int) -> int:
    """Starts the holder in the background. Returns its pid."""
    uuid = find_card(proc, name)
    if (pid := _holder_pid(run, uuid)) is not None:
        return pid
    run.mkdir(exist_ok=True)
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        hold(proc / "lab" / "cards" / uuid, memory_mib, writer)
    os.close(writer)
    held = os.read(reader, 1)
    os.close(reader)
    if not held:
        os.waitpid(pid, 0)
        raise FaultError(f"{uuid} is already held by another process; end that first")
    (run / f"holder-{uuid}.pid").write_text(f"{pid}\n", encoding="ascii")
    return pid


def free(proc: Path, run: Path, name: str) -> None:
    # By UUID it works without a driver too: the process outlives the driver's removal.
    uuid = name if name.startswith("GPU-") else find_card(proc, name)
    pid = _holder_pid(run, uuid)
    if pid is not None:
        os.kill(pid, signal.SIGTERM)
        limit = time.monotonic() + 5
        while _holder_pid(run, uuid) is not None and time.monotonic() < limit:
            time.sleep(0.02)
    (run / f"holder-{uuid}.pid").unlink(missing_ok=True)


def no_driver(root: Path, parked: Path) -> None:
    for folder in _INSTALLED:
        for pattern in _PATTERNS[folder]:
            for path in (root / folder).glob(pattern):
                target = parked / path.relative_to(root)
                target.parent.mkdir(parents=True, exist_ok=True)
                path.rename(target)
    loaded = root / PROC.relative_to("/")
    if loaded.exists():
        shutil.rmtree(loaded)
    for path in (root / "dev").glob("nvidia*"):
        path.unlink()


def driver_back(root: Path, parked: Path) -> None:
    for path in sorted(p for p in parked.rglob("*") if p.is_symlink() or p.is_file()):
        target = root / path.relative_to(parked)
        if not (target.exists() or target.is_symlink()):  # a driver installed meanwhile stays
            target.parent.mkdir(parents=True, exist_ok=True)
            path.rename(target)
    shutil.rmtree(parked, ignore_errors=True)


def listed(run: Path, parked: Path) -> list[str]:
    found = [f"busy {path.stem.removeprefix('holder-')}" for path in sorted(run.glob("holder-*.pid"))]
    found = [line for line in found if _holder_pid(run, line.split()[1]) is not None]
    return found + (["no-driver"] if parked.exists() else [])


def main() -> int:
    parser = argparse.ArgumentParser(description="Faults of a simulated node's cards.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("busy", "free"):
        command = commands.add_parser(name)
        command.add_argument("gpu", help="index or UUID")
        if name == "busy":
            command.add_argument("--memory", type=int, default=91000, metavar="MIB")
    for name in ("no-driver", "driver-back", "list"):
        commands.add_parser(name)
    options = parser.parse_args()
    try:
        if options.command == "busy":
            print(busy(PROC, RUN, options.gpu, options.memory))
        elif options.command == "free":
            free(PROC, RUN, options.gpu)
        elif options.command == "no-driver":
            no_driver(Path("/"), PARKED)
            subprocess.run(["ldconfig"], check=True)
        elif options.command == "driver-back":
            driver_back(Path("/"), PARKED)
            subprocess.run(["ldconfig"], check=True)
        else:
            print("\n".join(listed(RUN, PARKED)))
    except (FaultError, OSError, subprocess.CalledProcessError) as error:
        print(f"fault: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
