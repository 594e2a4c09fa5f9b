# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How things are timed: side by side in one process, in turn, so that what else the machine does hits both alike."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any


def seconds(function: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin


def alternate(functions: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Median seconds of each, after one round that warms caches and is not counted."""
    taken: dict[str, list[float]] = {name: [] for name in functions}
    for turn in range(rounds + 1):
        for name, function in functions.items():
            one = seconds(function)
            if turn:
                taken[name].append(one)
    return {name: median(values) for name, values in taken.items()}


def _peak(function: Callable[..., Any], arguments: tuple[Any, ...]) -> float:
    function(*arguments)
    # Not getrusage: its maximum is inherited from the process that started this one.
    status = Path("/proc/self/status").read_text(encoding="ascii")
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


def peak_mb(function: Callable[..., Any], *arguments: Any) -> float:
    """Peak resident memory of a fresh Python process that does this once, interpreter included."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_peak, function, arguments).result()
