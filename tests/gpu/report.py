# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a test on a real GPU compares, and how it says what it found."""

from __future__ import annotations

from typing import Any

SKIPPED = 77
_rows: list[tuple[bool, str, Any, Any, str]] = []


def compare(field: str, ours: Any, theirs: Any, source: str, within: float = 0) -> None:
    equal = ours == theirs if not within else None not in (ours, theirs) and abs(ours - theirs) <= within
    _rows.append((equal, field, ours, theirs, source))


def note(field: str, value: Any) -> None:
    print(f"     {field}: {value}", flush=True)


def finish() -> int:
    """Print every row, those that are equal in short, and return the exit status."""
    for equal, field, ours, theirs, source in _rows:
        text = repr(ours)
        print(f"ok   {field}: {text[:60]}" if equal else f"DIFF {field}: {text}, {source} says {theirs!r}")
    different = sum(not row[0] for row in _rows)
    print(f"{len(_rows) - different} of {len(_rows)} fields equal")
    return 1 if different or not _rows else 0
