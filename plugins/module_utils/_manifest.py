# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The manifest of a stack: every file with its size and hash, and whether a folder still is what it says.

This module util is PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import json
import os
import stat
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ansible_collections.blackwell.inference.plugins.module_utils._durable import CHUNK, sha256_of
from ansible_collections.blackwell.inference.plugins.module_utils._refusal import Refusal

NAME = "manifest.json"
VERSION = 1
# Both digests release Python's lock, so that this many files are read at a time.
THREADS = 4


@dataclass(frozen=True)
class Entry:
    """One file or link below the root; `crc` is not kept, it only compares a fresh file with its wheel."""

    path: str
    size: int
    sha256: str | None = None
    link: str | None = None
    crc: int = 0
    links: int = 0

    def listed(self) -> dict[str, Any]:
        if self.link is not None:
            return {"path": self.path, "link": self.link}
        return {"path": self.path, "size": self.size, "sha256": self.sha256}


def walk(root: str) -> Iterator[tuple[str, os.stat_result]]:
    """Every file and link below the root but the manifest itself, as (relative path, lstat)."""
    folders = [""]
    while folders:
        relative = folders.pop()
        with os.scandir(os.path.join(root, relative)) as entries:
            for entry in entries:
                path = os.path.join(relative, entry.name)
                if entry.is_dir(follow_symlinks=False):
                    folders.append(path)
                elif path != NAME:
                    yield path, entry.stat(follow_symlinks=False)


def _entry(root: str, path: str, status: os.stat_result) -> Entry:
    full = os.path.join(root, path)
    if stat.S_ISLNK(status.st_mode):
        return Entry(path, 0, link=os.readlink(full))
    if not stat.S_ISREG(status.st_mode):
        raise Refusal(f"The file {full}", "neither a file nor a link", "only files, folders and links", "Look at what made it")
    digest, crc, size = hashlib.sha256(), 0, 0
    with open(full, "rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
            crc = zlib.crc32(chunk, crc)
            size += len(chunk)
    return Entry(path, size, sha256=digest.hexdigest(), crc=crc, links=status.st_nlink)


def read_files(root: str) -> list[Entry]:
    """Read and hash everything below the root, sorted by path."""
    with concurrent.futures.ThreadPoolExecutor(max_workers=THREADS) as pool:
        entries = list(pool.map(lambda found: _entry(root, *found), list(walk(root))))
    return sorted(entries, key=lambda entry: entry.path)


def compose(lock_id: str, python: str, entries: Iterable[Entry]) -> bytes:
    listed = [entry.listed() for entry in entries]
    content = {
        "version": VERSION,
        "lock_id": lock_id,
        "python": python,
        "count": len(listed),
        "bytes": sum(entry.get("size", 0) for entry in listed),
        "files": listed,
    }
    # One line a file: readable, and its difference to another stack's too.
    head = json.dumps({key: value for key, value in content.items() if key != "files"}, sort_keys=True)
    lines = ",\n".join(json.dumps(entry, sort_keys=True) for entry in listed)
    return f'{head[:-1]}, "files": [\n{lines}\n]}}\n'.encode()


def read(root: str) -> dict[str, Any] | None:
    """The manifest, or None for a folder that is no stack."""
    try:
        with open(os.path.join(root, NAME), encoding="utf-8") as file:
            content = json.load(file)
        sound = (
            content["version"] == VERSION
            and content["lock_id"] == os.path.basename(root.rstrip("/"))
            and content["count"] == len(content["files"])
            and all(isinstance(entry["path"], str) for entry in content["files"])
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return content if sound else None


def digest(root: str) -> str:
    """Hash of the manifest: what a proof was made for."""
    return sha256_of(os.path.join(root, NAME))


def damage(root: str, manifest: dict[str, Any]) -> str | None:
    """What differs between the folder and its manifest, by names and sizes only; None when nothing does."""
    wanted = {entry["path"]: entry for entry in manifest["files"]}
    for path, status in walk(root):
        entry = wanted.pop(path, None)
        if entry is None:
            return f"{path} is not in the manifest"
        if stat.S_ISLNK(status.st_mode):
            if entry.get("link") != os.readlink(os.path.join(root, path)):
                return f"{path} is another link than in the manifest"
        elif entry.get("size") != status.st_size:
            return f"{path} has {status.st_size} bytes, in the manifest {entry.get('size')}"
    return f"{sorted(wanted)[0]} is absent" if wanted else None
