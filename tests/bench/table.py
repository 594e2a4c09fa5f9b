# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rows of measurements and the table between the markers of a document. Nothing here measures or touches a file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

BEGIN = "<!-- bench: begin, written by make bench -->"
END = "<!-- bench: end -->"
COLUMNS = ("measure", "this", "against", "ratio", "MB peak", "goal")


class MarkerError(ValueError):
    """The document has no place for the table; the message says what to do."""


@dataclass(frozen=True)
class Row:
    """One measure: `value` against `base`, both in `unit`; without a value, `note` says why there is none."""

    measure: str
    value: float | None = None
    unit: str = "ms"
    base: float | None = None
    base_name: str = ""
    peak_mb: float | None = None
    goal: str = ""
    note: str = ""

    @property
    def ratio(self) -> float | None:
        return self.value / self.base if self.value is not None and self.base else None

    def as_json(self) -> dict[str, Any]:
        return {**self.__dict__, "ratio": self.ratio}


def number(value: float | None) -> str:
    """Three digits that count, never an exponent."""
    if value is None:
        return "-"
    if value >= 100:
        return f"{value:.0f}"
    digits = next((digits for digits in range(1, 6) if abs(value) >= 10 ** (2 - digits)), 6)
    return f"{value:.{digits}f}"


def cells(row: Row) -> list[str]:
    this = f"{number(row.value)} {row.unit}" if row.value is not None else "not measured"
    base = f"{number(row.base)} {row.unit}" if row.base is not None else ""
    against = ": ".join(part for part in (row.base_name, base) if part)
    measure = f"{row.measure} ({row.note})" if row.note else row.measure
    ratio = number(row.ratio) if row.ratio is not None else ""
    peak = f"{row.peak_mb:.0f}" if row.peak_mb is not None else ""
    return [text.replace("|", "\\|").replace("\n", " ") for text in (measure, this, against, ratio, peak, row.goal)]


def grid(rows: Iterable[Row]) -> str:
    lines = [f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}"]
    return "\n".join([*lines, *(f"| {' | '.join(cells(row))} |" for row in rows)])


def render(rows: Iterable[Row], day: str, cpus: int) -> str:
    """The block between the markers. No name or path of the machine: a reader needs the day and the CPU count."""
    return f"Measured on {day} on {cpus} CPUs by `make bench`.\n\n{grid(rows)}"


def insert(document: str, block: str) -> str:
    """The document with `block` between its two markers."""
    if document.count(BEGIN) != 1 or document.count(END) != 1 or document.index(END) < document.index(BEGIN):
        raise MarkerError(f"wanted: the lines {BEGIN} and {END}, once each and in this order. Put them where the table belongs.")
    before, _begin, rest = document.partition(BEGIN)
    _old, _end, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{block}\n\n{END}{after}"
