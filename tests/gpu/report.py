# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a test on a real GPU compares, and how it says what it found: one line for each part, and one for each difference."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

SKIPPED = 77
WIDTH = 170


def _cut(text: str, width: int = WIDTH) -> str:
    return text if len(text) <= width else f"{text[: width - 3]}..."


@dataclass
class Row:
    part: str
    name: str
    ours: Any
    theirs: Any
    source: str
    equal: bool

    def __str__(self) -> str:
        if self.equal:
            return f"ok    {self.part}: {self.name}: {self.ours!r}"
        return f"DIFF  {self.part}: {self.name}: {self.ours!r}, {self.source}: {self.theirs!r}"


@dataclass
class Report:
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    untried: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    part: str = ""

    def begin(self, part: str) -> None:
        self.part = part

    def compare(self, name: str, ours: Any, theirs: Any, source: str, within: float = 0) -> None:
        equal = ours == theirs if not within else None not in (ours, theirs) and abs(ours - theirs) <= within
        self.rows.append(Row(self.part, name, ours, theirs, source, bool(equal)))

    def note(self, name: str, value: Any) -> None:
        self.notes.append(f"note  {self.part}: {name}: {value}")

    def not_tried(self, what: str, why: str) -> None:
        """Said in the last line too: what was left out must not look like what passed."""
        self.untried.append(what)
        self.note(f"NOT TRIED: {what}", why)

    @property
    def different(self) -> int:
        return sum(not row.equal for row in self.rows)

    def table(self) -> str:
        lines = []
        for part in dict.fromkeys(row.part for row in self.rows):
            rows = [row for row in self.rows if row.part == part]
            failed = [row for row in rows if not row.equal]
            lines.append(f"{'FAIL' if failed else 'PASS'}  {part}: {len(rows) - len(failed)} of {len(rows)} equal")
            lines += [f"      {_cut(str(row))}" for row in failed[:20]]
            if len(failed) > 20:
                lines.append(f"      and {len(failed) - 20} more")
        lines += [f"FAIL  {text}" for text in self.failures]
        return "\n".join([*(_cut(line) for line in self.notes), *lines])

    def everything(self) -> str:
        return "\n".join([*self.notes, *map(str, self.rows), *(f"FAIL  {text}" for text in self.failures)]) + "\n"

    def summary(self, on: str) -> str:
        parts = [f"{len(self.rows) - self.different} of {len(self.rows)} equal on {on}"]
        if self.failures:
            parts.append(f"{len(self.failures)} steps not done")
        if self.untried:
            parts.append(f"NOT TRIED: {', '.join(self.untried)}")
        return "; ".join(parts)

    def status(self) -> int:
        """Nothing compared is no success either."""
        return 1 if self.different or self.failures or not self.rows else 0
