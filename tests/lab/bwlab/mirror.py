# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which Debian mirror to build from: the one that apt on this machine already uses."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_ONE_LINE = re.compile(r"^deb\s+(?:\[[^\]]*\]\s+)?(\S+)\s+(\S+)\s+(.+)$")


def _deb822(text: str) -> Iterator[tuple[str, list[str]]]:
    for paragraph in re.split(r"\n\s*\n", text):
        fields: dict[str, str] = {}
        name = ""
        for line in paragraph.splitlines():
            if line.startswith("#"):
                continue
            if line[:1] in (" ", "\t"):
                fields[name] = fields.get(name, "") + " " + line.strip()
            elif ":" in line:
                name, value = line.split(":", 1)
                name = name.strip().lower()
                fields[name] = value.strip()
        if fields.get("enabled", "yes").lower() == "no" or "deb" not in fields.get("types", "").split():
            continue
        for uri in fields.get("uris", "").split():
            yield uri, fields.get("components", "").split()


def _one_line(text: str) -> Iterator[tuple[str, list[str]]]:
    for line in text.splitlines():
        match = _ONE_LINE.match(line.split("#", 1)[0].strip())
        if match:
            yield match.group(1), match.group(3).split()


def debian_mirror(sources: Iterable[tuple[str, str]]) -> str | None:
    """Return the first archive that looks like Debian's own, from (file name, text) pairs; None when there is none.

    Debian's archive is recognised by its path, which every mirror keeps: `/debian` with the component `main`.
    """
    for name, text in sources:
        entries = _deb822(text) if name.endswith(".sources") else _one_line(text)
        for uri, components in entries:
            if uri.rstrip("/").endswith("/debian") and "main" in components:
                return uri.rstrip("/")
    return None
