# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Many host names in few words: kpro[1-6], node[01-64]-gpu. Pure; private to the collection."""

from __future__ import annotations

import re
from collections.abc import Iterable

_NUMBERS = re.compile(r"([0-9]+)")


def natural(name: str) -> list[tuple[int, str]]:
    """Sorts kpro9 before kpro10."""
    parts = _NUMBERS.split(name)
    return [(int(part), part) if number % 2 else (-1, part) for number, part in enumerate(parts)]


def _follows(one: str, other: str) -> bool:
    """Whether the second number comes next: 9 and 10, 09 and 10, but not 9 and 010."""
    padded = one.startswith("0") or other.startswith("0")
    return int(other) == int(one) + 1 and (len(one) == len(other) or not padded)


def _ranges(numbers: list[str], most: int) -> str:
    runs: list[list[str]] = []
    for number in numbers:
        if runs and _follows(runs[-1][-1], number):
            runs[-1].append(number)
        else:
            runs.append([number])
    shown = [run[0] if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs[:most]]
    return ",".join(shown + ["..."] * (len(runs) > most))


def _folded_at(position: int, ordered: list[str], most: int) -> list[str]:
    """The names with those that differ only in the number at this position drawn together."""
    groups: dict[tuple[str, str], list[str]] = {}
    for name in ordered:
        parts = _NUMBERS.split(name)
        at = 2 * position + 1
        number = parts[at] if at < len(parts) else ""
        groups.setdefault(("".join(parts[:at]), "".join(parts[at + 1 :])), []).append(number)
    return [
        f"{before}{numbers[0]}{after}" if len(numbers) == 1 else f"{before}[{_ranges(numbers, most)}]{after}"
        for (before, after), numbers in groups.items()
    ]


def fold(names: Iterable[str], most: int) -> str:
    """The names in natural order, folded at the number that leaves the fewest pieces; no more than so many of each kind."""
    ordered = sorted(set(names), key=natural)
    positions = max((len(_NUMBERS.split(name)) // 2 for name in ordered), default=0)
    folded = (_folded_at(position, ordered, most) for position in reversed(range(positions)))
    pieces = min(folded, key=len, default=ordered)
    more = [f"and {len(pieces) - most} more"] if len(pieces) > most else []
    return ", ".join(pieces[:most] + more)
