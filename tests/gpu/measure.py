# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What reading the GPU facts costs on this machine's card, as `make bench` measures it too: a table for docs/benchmarks.md."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from bench import probing
from bench.table import Row, grid

BEGIN, END = "<!-- gpu bench: begin, written by make test-gpu -->", "<!-- gpu bench: end -->"
ROUNDS = 5


def whole(argv: list[str]) -> float:
    """Milliseconds of a whole process, its start and imports included."""
    taken = []
    for _round in range(ROUNDS):
        started = time.perf_counter()
        subprocess.run([sys.executable, *argv], capture_output=True, check=True)
        taken.append(1e3 * (time.perf_counter() - started))
    return median(taken)


def whole_processes() -> Row:
    ours = whole([str(ROOT / "tests/bench/gpu_once.py"), "never"])
    torch = whole(["-c", "import torch; torch.cuda.get_device_capability()"])
    return Row("the same, whole processes", ours, "ms", torch, "import torch and ask for the capability")


def table(card: str, driver: str, with_torch: bool) -> str:
    rows = probing.real()
    if with_torch:
        rows.append(whole_processes())
    return f"Measured on {time.strftime('%Y-%m-%d')} on {card}, driver {driver}.\n\n{grid(rows)}"


def inserted(document: str, text: str) -> str:
    """The document with the text between the marks, which must stand in it once each and in order."""
    before, begin, rest = document.partition(BEGIN)
    _old, end, after = rest.partition(END)
    if not (begin and end) or BEGIN in after or END in before:
        raise ValueError(f"found no single pair of the marks; wanted {BEGIN} and {END}; put them back into the document")
    return f"{before}{BEGIN}\n\n{text}\n\n{END}{after}"
