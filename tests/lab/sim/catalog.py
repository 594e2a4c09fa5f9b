# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the package index knows of its files: written when they are built, read when they are served."""

from __future__ import annotations

import hashlib
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .releases import Wheel
from .toolkit import Package
from .wheels import read_metadata

CHANNELS = ("simple", "wrong")


def normalise(project: str) -> str:
    """A project's name as the index spells it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", project).lower()


@dataclass(frozen=True)
class Entry:
    """One file. ``path`` is relative to the built folder, and to the server's root."""

    project: str
    version: str
    filename: str
    path: str
    sha256: str
    size: int
    upload_time: str
    requires_python: str | None
    metadata_sha256: str


def _entry(project: str, version: str, path: Path, root: Path, upload_time: str, requires_python: str | None) -> Entry:
    return Entry(
        normalise(project),
        version,
        path.name,
        str(path.relative_to(root)),
        hashlib.sha256(path.read_bytes()).hexdigest(),
        path.stat().st_size,
        upload_time,
        requires_python,
        hashlib.sha256(read_metadata(path)).hexdigest(),
    )


def entry_of_package(package: Package, root: Path) -> Entry:
    path = root / "files" / package.filename
    return _entry(package.project, package.version, path, root, package.upload_time, package.requires_python)


def entry_of_built(wheel: Wheel, root: Path, folder: str) -> Entry:
    path = root / folder / wheel.filename
    return _entry(wheel.project, wheel.version, path, root, wheel.upload_time, wheel.requires_python)


class Catalog:
    """The files of both channels; the second one equals the first but for the files that replace others."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.replacements: list[Entry] = []

    def add(self, entry: Entry) -> None:
        self.entries.append(entry)

    def replace_in_wrong_channel(self, entry: Entry) -> None:
        self.replacements.append(entry)

    def projects(self, channel: str) -> dict[str, list[Entry]]:
        replaced = {e.filename: e for e in self.replacements} if channel == "wrong" else {}
        found: dict[str, list[Entry]] = {}
        for entry in self.entries:
            found.setdefault(entry.project, []).append(replaced.get(entry.filename, entry))
        return found

    def as_json(self) -> dict[str, Any]:
        return {"entries": [asdict(e) for e in self.entries], "replacements": [asdict(e) for e in self.replacements]}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Catalog:
        catalog = cls()
        catalog.entries = [Entry(**entry) for entry in data["entries"]]
        catalog.replacements = [Entry(**entry) for entry in data["replacements"]]
        return catalog
