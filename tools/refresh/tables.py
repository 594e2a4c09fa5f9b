# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rows put into the files of the knowledge base. What does not change keeps its text, with its comments, to the letter."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from typing import Any

from packaging.version import Version

Row = Mapping[str, Any]
_KEY = re.compile(r'( *)"?([^":#\s][^":]*)"?:(?: |$)')
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


def _text(value: Any) -> str:
    """A value as the files write it: plain words bare, versions and everything else in quotes, lists and rows in one line."""
    if value is None:
        return "null"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_text(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_text(entry) for entry in value) + "]"
    # A hash of digits and one e would be read as a number.
    return value if _PLAIN.fullmatch(value) and not re.fullmatch(r"[0-9a-f]{64}", value) else json.dumps(value)


def release(version: str, row: Row) -> list[str]:
    return [f'  "{version}":', *(f"    {key}: {_text(value)}" for key, value in row.items())]


torch_build = release


def kernel(version: str, row: Row) -> list[str]:
    return [f'    "{version}": {_text(row)}']


def code(version: str, row: Row) -> list[str]:
    lines = [f'    "{version}":']
    for machine, found in row.items():
        start = f"      {machine}: {{"
        lines.append(f"{start}cuda_major: {found['cuda_major']}, runs: {_text(found['runs'])}" + ("," if "sha256" in found else "}"))
        if "sha256" in found:
            lines.append(f"{' ' * len(start)}sha256: {_text(found['sha256'])}}}")
    return lines


def _blocks(lines: list[str], indent: int) -> list[tuple[str, int, int]]:
    """(key, first line, line behind the last) of every entry at this depth."""
    starts = []
    for number, line in enumerate(lines):
        match = _KEY.match(line)
        if match and len(match[1]) == indent:
            starts.append((match[2], number))
    ends = [number for _key, number in starts[1:]] + [len(lines)]
    return [(key, start, end) for (key, start), end in zip(starts, ends, strict=True)]


def put(text: str, version: str, lines: list[str], package: str | None = None) -> str:
    """The text with one row replaced, or added at its place in the order of versions."""
    whole = text.splitlines()
    low, high, indent = 0, len(whole), 2
    if package is not None:
        packages = {key: (start, end) for key, start, end in _blocks(whole, 2)}
        if package not in packages:
            return "\n".join([*whole, f"  {package}:", *lines]) + "\n"
        low, high = packages[package]
        low, indent = low + 1, 4
    rows = _blocks(whole[low:high], indent)
    at, behind = high, high
    for key, start, end in rows:
        if Version(key) >= Version(version):
            at, behind = low + start, low + (end if Version(key) == Version(version) else start)
            break
    return "\n".join(whole[:at] + lines + whole[behind:]) + "\n"


def difference(name: str, before: str, after: str) -> str:
    return "".join(difflib.unified_diff(before.splitlines(True), after.splitlines(True), f"a/{name}", f"b/{name}"))
