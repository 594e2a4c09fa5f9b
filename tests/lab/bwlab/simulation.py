# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The door to tests/lab/sim: simulated GPUs, driver, wheels, package index and model.

The lab's core knows those parts by these few functions only.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

from sim import build as sim_build

from . import lxc, names
from .proc import LabError, run, step, write_atomic

_LOG_FILE = names.STATE / "index.log"


def build() -> Path:
    """Folder with everything built, from the cache when its sources are unchanged."""
    try:
        with step("simulated driver, wheels and model"):
            return sim_build.build_all(names.cache_dir())
    except sim_build.BuildError as error:
        raise LabError(str(error)) from None


def write_hardware(folder: Path, node: str) -> None:
    sim_build.write_hardware(folder, node)


def write_model(folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    sim_build.write_model(folder)


def publish_driver_hash(built: Path) -> None:
    """The installer's SHA-256, which an operator takes from the vendor's page."""
    files = sorted((built / "driver").glob("*.run"))
    if len(files) != 1:
        raise LabError(f"found {len(files)} driver files in {built}/driver, wanted one: remove {built} and try again")
    write_atomic(names.STATE / "driver.sha256", hashlib.sha256(files[0].read_bytes()).hexdigest() + "\n")


def index_url() -> str:
    return f"http://{names.HOST_ADDRESS}:{names.INDEX_PORT}/simple/"


def index_answers() -> bool:
    try:
        with urlopen(index_url(), timeout=2):
            return True
    except OSError:
        return False


def _index_command(built: Path) -> list[str]:
    bind = ["--bind", names.HOST_ADDRESS, "--port", str(names.INDEX_PORT)]
    return [sys.executable, "-B", "-m", "sim.index", str(built), *bind]


def index_pids() -> dict[int, list[str]]:
    """Index servers of this lab on this machine, also of a lab that was killed, with their command lines."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = [word.decode(errors="replace") for word in (entry / "cmdline").read_bytes().split(b"\0")]
            except OSError:
                continue
            if "sim.index" in words and names.HOST_ADDRESS in words:
                found[int(entry.name)] = words
    return found


def index_serves(built: Path) -> bool:
    running = index_pids()
    return len(running) == 1 and str(built) in next(iter(running.values())) and index_answers()


def start_index(built: Path) -> None:
    """Serve this very build: a server of an older one is replaced."""
    if index_serves(built):
        return
    stop_index()
    # Locks name the wheels of the build that was served before.
    shutil.rmtree(names.STATE / "locks", ignore_errors=True)
    with step(f"package index at {index_url()}"):
        with _LOG_FILE.open("ab") as log:
            process = subprocess.Popen(
                _index_command(built),
                cwd=names.LAB_DIR,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + 15
        while not index_answers():
            if process.poll() is not None or time.monotonic() > deadline:
                tail = _LOG_FILE.read_text(errors="replace").strip().splitlines()[-5:]
                raise LabError(f"the package index does not answer at {index_url()}:\n" + "\n".join(tail))
            time.sleep(0.05)


def stop_index(seconds: float = 5) -> None:
    deadline = time.monotonic() + seconds
    number = signal.SIGTERM
    while pids := index_pids():
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        if time.monotonic() > deadline:
            number = signal.SIGKILL
        time.sleep(0.05)


@dataclass(frozen=True)
class Fault:
    """A fault: the script that makes it, and what it is made on (GPU, VMID, VMID/DEVICE, or nothing)."""

    script: str
    target: str = ""


# What each one is stands in the scripts. A driver comes back before its cards do.
FAULTS = {
    "no-driver": Fault("fault.py"),
    "closed-module": Fault("fault.py"),
    "module-version": Fault("fault.py"),
    "busy": Fault("fault.py", "GPU"),
    "lost": Fault("fault.py", "GPU"),
    "hung": Fault("fault.py", "GPU"),
    "mig": Fault("fault.py", "GPU"),
    "ecc-errors": Fault("fault.py", "GPU"),
    "library": Fault("container_fault.py", "VMID"),
    "device-missing": Fault("container_fault.py", "VMID/DEVICE"),
    "device-file": Fault("container_fault.py", "VMID/DEVICE"),
    "device-private": Fault("container_fault.py", "VMID/DEVICE"),
    "device-foreign": Fault("container_fault.py", "VMID/DEVICE"),
}


def _fault(node: str, script: str, *words: str) -> str:
    """Run a script of sim/ in the node, from its standard input: the node keeps nothing of it."""
    text = (names.SIM_SOURCE / script).read_text()
    done = run(lxc.attach(node, ["python3", "-", *words]), stdin=text, check=False, timeout=60)
    if done.returncode != 0:
        raise LabError(done.stderr.strip() or f"{script} {' '.join(words)} ended with {done.returncode}")
    return done.stdout


def faults(node: str) -> list[str]:
    """Faults that are on now, such as `busy <uuid>` or `no-driver`."""
    scripts = sorted({fault.script for fault in FAULTS.values()})
    return [line for script in scripts for line in _fault(node, script, "list").splitlines() if line]


def make_fault(node: str, kind: str, target: str) -> None:
    _fault(node, FAULTS[kind].script, "make", kind, *([target] if target else []))


def end_faults(node: str, kind: str) -> None:
    """End the faults of a kind, or all of them (none)."""
    found = [line.split() for line in faults(node)]
    for words in sorted(found, key=lambda words: list(FAULTS).index(words[0])):
        if kind in (words[0], "none"):
            _fault(node, FAULTS[words[0]].script, "end", *words)
