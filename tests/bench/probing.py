# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What reading the GPU facts costs: against a bare NVML, and on a real card against PyTorch.

Everything is timed in fresh processes, in turn, by a clock inside them that starts after their imports.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from bench.table import Row

HERE = Path(__file__).resolve().parent
ROUNDS = 7
GOAL = "ratio 1.5, 40 MB"
MEASURE, BARE = "gpu_facts from NVML", "bare NVML, the same values"
TORCH = """
import json, time
started = time.perf_counter()
import torch
torch.cuda.get_device_capability()
print(json.dumps({"seconds": time.perf_counter() - started}))
"""


class ProbeError(RuntimeError):
    """What was timed is not what was meant to be timed."""


def fresh(argv: list[str], environment: dict[str, str] | None = None) -> dict[str, Any]:
    environ = {**os.environ, **(environment or {})}
    done = subprocess.run([sys.executable, *argv], capture_output=True, text=True, check=True, env=environ)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def against_bare(cards: int | None, note: str, root: str = "", environment: dict[str, str] | None = None) -> Row:
    """`cards`: how many there must be, where that is known."""
    ours, bare, peak = [], [], 0.0
    for turn in range(ROUNDS + 1):
        there = fresh([str(HERE / "bare_nvml.py")], environment)
        mine = fresh([str(HERE / "gpu_once.py"), "never", *([root] if root else [])], environment)
        if mine["errors"] or mine["torch"] or {mine["count"], there["count"]} != {cards or there["count"]}:
            raise ProbeError(f"found {mine} and {there}; wanted {cards or 'the same number of'} cards without an error, and no torch")
        # The first turn warms the caches.
        if turn:
            ours.append(1e3 * mine["seconds"])
            bare.append(1e3 * there["seconds"])
            peak = max(peak, mine["peak_mb"])
    return Row(MEASURE, median(ours), "ms", median(bare), BARE, peak, GOAL, note)


def real() -> list[Row]:
    """On the card of this machine."""
    row = against_bare(None, "")
    rows = [row]
    against = "import torch and ask for the capability"
    try:
        torch = 1e3 * median(fresh(["-c", TORCH])["seconds"] for _round in range(3))
        rows.append(Row(MEASURE, row.value, "ms", torch, against, goal="ratio 0.05"))
    except subprocess.CalledProcessError:
        rows.append(Row(MEASURE, row.value, "ms", base_name=f"{against}: not measured, PyTorch is not here", goal="ratio 0.05"))
    always = 1e3 * median(fresh([str(HERE / "gpu_once.py"), "always"])["seconds"] for _round in range(ROUNDS))
    return [*rows, Row("gpu_facts with cuda_attributes: always", always, "ms", row.value, "without")]


def build_stand_in(folder: Path) -> Path:
    """The lab's NVML behind one that waits as a real driver does; returns the folder to load it from."""
    from sim import driver, toolkit

    defines = {"LAB_PROC": f'"{folder / "proc/driver/nvidia"}"', "LAB_DEV": f'"{folder / "dev"}"'}
    quick = driver.build_library("libnvidia-ml", folder, defines)
    libraries = folder / "lib"
    libraries.mkdir()
    slow = libraries / quick.name
    toolkit.compile_c([HERE / "slow_nvml.c"], slow, "libnvidia-ml.so.1", {"REAL": f'"{quick}"'})
    (libraries / "libnvidia-ml.so.1").symlink_to(slow.name)
    return libraries


def write_machine(folder: Path, cards: int) -> None:
    from sim.driver import nvidia_modprobe
    from sim.hardware import write_hardware

    write_hardware(folder / "hw", "bench", cards)
    (folder / "module").write_text("580.126.09 open\n", encoding="ascii")
    nvidia_modprobe.load(folder / "proc/driver/nvidia", folder / "hw/gpus.conf", folder / "module")
    (folder / "sys/bus/pci").mkdir(parents=True)
    (folder / "sys/bus/pci/devices").symlink_to(folder / "hw/pci")
    (folder / "dev").mkdir()
    for name in ("nvidiactl", "nvidia-uvm", *(f"nvidia{number}" for number in range(cards))):
        # A link to a character device does where making one needs root.
        (folder / "dev" / name).symlink_to("/dev/null")


def stand_in(cards: int) -> Row:
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        # The service user must reach the device nodes.
        folder.chmod(0o755)
        write_machine(folder, cards)
        libraries = build_stand_in(folder)
        plural = "s" if cards > 1 else ""
        note = f"no GPU here: the lab's NVML with {cards} card{plural}, as slow as an H200's"
        return against_bare(cards, note, name, {"LD_LIBRARY_PATH": str(libraries)})


def gpu() -> list[Row]:
    return real() if Path("/dev/nvidiactl").exists() else [stand_in(1), stand_in(8)]
