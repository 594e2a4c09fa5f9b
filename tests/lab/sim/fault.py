# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults of a node's cards and driver. This file is one script for the node: the lab puts it there and runs it there.

fault.py make KIND [GPU]   makes a fault; GPU is an index or a UUID
fault.py end KIND [GPU]    ends it
fault.py list              one line a fault, as the two words that end it

busy        a process that is nobody's service holds the card
lost        the card has fallen off the bus
hung        whoever asks for the card waits for ever
mig         the card is split
ecc-errors  the card's memory had errors that could not be corrected
no-driver       as if no driver were installed: no libraries, nothing loaded, no device nodes
closed-module   the closed flavour of the kernel module is loaded
module-version  a module of another version than the libraries' is loaded
"""

from __future__ import annotations

import argparse
import ctypes
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

PROC = Path("/proc/driver/nvidia")
RUN = Path("/run/bwlab")
STATE = Path("/var/lib/nvidia")
BUSY_MIB = 91000

# What a fault writes into the card's line of the description that the libraries read.
CARD_FAULTS = {"lost": ("state", "lost"), "hung": ("state", "hung"), "mig": ("mig", "1"), "ecc-errors": ("ecc_errors", "2")}
HEALTHY = {"state": "ok", "mig": "0", "ecc_errors": "0"}

# The module that is loaded instead of the installed one; None stands for what is installed.
MODULE_FAULTS: dict[str, tuple[str | None, str | None]] = {"closed-module": (None, "closed"), "module-version": ("580.105.08", None)}

# What a driver is, by the top of its file system and the folder in it. Parked on the same file system, so that it comes back as
# it was: servers that hold a card go on holding it.
PARKED = ".bwlab-parked"
_DRIVER = {
    ("", "usr/lib/x86_64-linux-gnu"): ("libnvidia-ml.so*", "libcuda.so*"),
    ("", "usr/bin"): ("nvidia-modprobe", "nvidia-smi"),
    ("", "var/lib/nvidia"): ("module", "installed.json"),
    ("proc/driver", ""): ("nvidia",),
    ("dev", ""): ("nvidia*",),
}


class FaultError(Exception):
    """Why a fault could not be made or ended."""


def cards(proc: Path) -> list[dict[str, str]]:
    """The node's cards, in their order."""
    try:
        text = (proc / "lab" / "gpus.conf").read_text(encoding="ascii")
    except FileNotFoundError:
        raise FaultError("no driver is loaded on this node, so no card can have a fault; load it first") from None
    return [dict(f.split("=", 1) for f in line.split("\t")[1:]) for line in text.splitlines() if "\t" in line]


def find_card(proc: Path, name: str) -> str:
    """The card's UUID."""
    found = [card["uuid"] for card in cards(proc)]
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


def busy(proc: Path, run: Path, name: str, memory_mib: int = BUSY_MIB) -> int:
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


def set_card(proc: Path, name: str, field: str, value: str) -> None:
    """Writes one field of a card's line."""
    uuid = find_card(proc, name)
    changed = [{**card, field: value} if card["uuid"] == uuid else card for card in cards(proc)]
    lines = ["\t".join(["gpu", *(f"{key}={text}" for key, text in card.items())]) for card in changed]
    path = proc / "lab" / "gpus.conf"
    temporary = path.with_name(".gpus.conf")
    temporary.write_text("\n".join(lines) + "\n", encoding="ascii")
    temporary.rename(path)


def _load() -> None:
    subprocess.run(["nvidia-modprobe"], check=True)


def exchange_module(proc: Path, state: Path, wanted: tuple[str | None, str | None], load: Callable[[], None] = _load) -> None:
    """As after a restart with another module; who holds a card holds it still."""
    try:
        installed = json.loads((state / "installed.json").read_text(encoding="ascii"))
    except FileNotFoundError:
        raise FaultError("no driver is installed on this node; install it first") from None
    version, flavour = wanted
    text = f"{version or installed['version']} {flavour or installed['kernel_modules']}\n"
    (state / "module").write_text(text, encoding="ascii")
    (proc / "version").unlink(missing_ok=True)
    load()


def remove_driver(root: Path) -> None:
    if (root / PARKED).exists():
        return
    for (top, folder), patterns in _DRIVER.items():
        parked = root / top / PARKED / folder
        for path in [path for pattern in patterns for path in (root / top / folder).glob(pattern)]:
            parked.mkdir(parents=True, exist_ok=True)
            path.rename(parked / path.name)
    (root / PARKED).mkdir(exist_ok=True)


def put_driver_back(root: Path) -> None:
    """All as it was, also where something was installed meanwhile."""
    for top, folder in _DRIVER:
        parked = root / top / PARKED / folder
        for path in list(parked.iterdir()) if parked.is_dir() else []:
            target = root / top / folder / path.name
            if target.is_dir():
                shutil.rmtree(target)
            path.rename(target)
    for top in {top for top, _ in _DRIVER}:
        shutil.rmtree(root / top / PARKED, ignore_errors=True)


def listed(proc: Path, run: Path, state: Path, root: Path) -> list[str]:
    found = ["no-driver"] if (root / PARKED).exists() else _module_faults(state) + _card_faults(proc)
    holders = [path.stem.removeprefix("holder-") for path in sorted(run.glob("holder-*.pid"))]
    return found + [f"busy {uuid}" for uuid in holders if _holder_pid(run, uuid) is not None]


def _module_faults(state: Path) -> list[str]:
    try:
        installed = json.loads((state / "installed.json").read_text(encoding="ascii"))
        version, flavour = (state / "module").read_text(encoding="ascii").split()
    except FileNotFoundError:
        return []
    expected = {
        kind: (other or installed["version"], kind_of or installed["kernel_modules"]) for kind, (other, kind_of) in MODULE_FAULTS.items()
    }
    return [kind for kind, wanted in expected.items() if wanted == (version, flavour)]


def _card_faults(proc: Path) -> list[str]:
    if not (proc / "lab" / "gpus.conf").exists():
        return []
    found = cards(proc)
    return [f"{kind} {card['uuid']}" for card in found for kind, (field, value) in CARD_FAULTS.items() if card.get(field) == value]


def make(kind: str, gpu: str) -> None:
    if kind == "busy":
        busy(PROC, RUN, gpu)
    elif kind in CARD_FAULTS:
        set_card(PROC, gpu, *CARD_FAULTS[kind])
    elif kind in MODULE_FAULTS:
        exchange_module(PROC, STATE, MODULE_FAULTS[kind])
    else:
        remove_driver(Path("/"))
        subprocess.run(["ldconfig"], check=True)


def end(kind: str, gpu: str) -> None:
    if kind == "busy":
        free(PROC, RUN, gpu)
    elif kind in CARD_FAULTS:
        field, _ = CARD_FAULTS[kind]
        set_card(PROC, gpu, field, HEALTHY[field])
    elif kind in MODULE_FAULTS:
        exchange_module(PROC, STATE, (None, None))
    else:
        put_driver_back(Path("/"))
        subprocess.run(["ldconfig"], check=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="Faults of a simulated node's cards and driver.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("make", "end"):
        command = commands.add_parser(name)
        command.add_argument("kind", choices=["busy", *CARD_FAULTS, *MODULE_FAULTS, "no-driver"])
        command.add_argument("gpu", nargs="?", default="", help="index or UUID, for a fault of one card")
    commands.add_parser("list")
    options = parser.parse_args()
    try:
        if options.command == "list":
            print("\n".join(listed(PROC, RUN, STATE, Path("/"))))
        else:
            {"make": make, "end": end}[options.command](options.kind, options.gpu)
    except (FaultError, OSError, subprocess.CalledProcessError) as error:
        print(f"fault: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
