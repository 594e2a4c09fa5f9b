# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The wheelhouse: each wheel and driver file once per node, known by its sha256.

This module util is PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Callable

from ansible_collections.blackwell.inference.plugins.module_utils import _lock
from ansible_collections.blackwell.inference.plugins.module_utils._durable import sha256_of, write_atomic
from ansible_collections.blackwell.inference.plugins.module_utils._refusal import Refusal

VERIFIED = ".verified.json"
PARTIAL = ".partial"
# Room for what else grows on that file system while the files arrive.
SPARE_BYTES = 64 << 20

_FILENAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]{0,200}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Wanted:
    """One file, by its content; `project` names it in an index, `url` is where a file outside any index lies."""

    filename: str
    sha256: str
    size: int | None
    project: str | None = None
    url: str | None = None


@dataclass(frozen=True)
class Inspection:
    present: list[Wanted]
    absent: list[Wanted]
    wrong: list[str]
    verified: dict[str, dict[str, Any]]

    def bytes_needed(self, partial: Callable[[str], int]) -> int:
        return sum(max((wanted.size or 0) - partial(wanted.sha256), 0) for wanted in self.absent)


def wanted_files(
    locks: Iterable[str], files: Iterable[dict[str, Any]], extra: Iterable[dict[str, Any]]
) -> list[Wanted]:
    """Everything that must lie in the wheelhouse, each name once; refuse what cannot be right."""
    listed: list[Wanted] = []
    for text in locks:
        for requirement in _lock.parse(text).files():
            listed.append(Wanted(requirement.filename, requirement.sha256, requirement.size, project=requirement.name))
    listed += [Wanted(f["filename"], f["sha256"], f.get("size"), project=f["name"]) for f in files]
    listed += [Wanted(f["filename"], f["sha256"], f.get("size"), url=f["url"]) for f in extra]
    by_name: dict[str, Wanted] = {}
    for wanted in listed:
        if not _FILENAME.fullmatch(wanted.filename):
            raise Refusal(
                "A file for the wheelhouse",
                f"the name {wanted.filename[:120]!r}",
                "a plain file name",
                "Correct the list of files",
            )
        if not _SHA256.fullmatch(wanted.sha256):
            raise Refusal(
                f"The hash of {wanted.filename}",
                repr(wanted.sha256[:80]),
                "64 lower-case hexadecimal digits (sha256)",
                "Correct the list of files",
            )
        other = by_name.setdefault(wanted.filename, wanted)
        if other.sha256 != wanted.sha256:
            raise Refusal(
                f"The file {wanted.filename}",
                f"two hashes wanted, {other.sha256} and {wanted.sha256}",
                "one",
                "Two locks name the same file with different content: make both again against the same index",
            )
    return [by_name[name] for name in sorted(by_name)]


def read_verified(folder: str) -> dict[str, dict[str, Any]]:
    """What earlier runs hashed; a damaged note only costs hashing again."""
    try:
        with open(os.path.join(folder, VERIFIED), encoding="utf-8") as file:
            content = json.load(file)
    except (OSError, ValueError):
        return {}
    if not isinstance(content, dict):
        return {}
    return {name: entry for name, entry in content.items() if isinstance(entry, dict)}


def write_verified(folder: str, verified: dict[str, dict[str, Any]]) -> None:
    text = json.dumps(verified, indent=1, sort_keys=True) + "\n"
    write_atomic(os.path.join(folder, VERIFIED), text.encode())


def note(path: str, sha256: str) -> dict[str, Any]:
    status = os.stat(path)
    return {"sha256": sha256, "size": status.st_size, "mtime_ns": status.st_mtime_ns}


def inspect(folder: str, wanted: Iterable[Wanted], hasher: Callable[[str], str] = sha256_of) -> Inspection:
    """Sort the wanted files into those that are here and those to fetch; hash only what no earlier run has hashed."""
    known = read_verified(folder)
    verified = {name: entry for name, entry in known.items() if os.path.exists(os.path.join(folder, name))}
    present: list[Wanted] = []
    absent: list[Wanted] = []
    wrong: list[str] = []
    for one in wanted:
        path = os.path.join(folder, one.filename)
        if not os.path.isfile(path):
            absent.append(one)
            continue
        entry = note(path, one.sha256)
        if known.get(one.filename) != entry:
            right_size = one.size is None or entry["size"] == one.size
            if not right_size or hasher(path) != one.sha256:
                verified.pop(one.filename, None)
                wrong.append(one.filename)
                absent.append(one)
                continue
            verified[one.filename] = entry
        present.append(one)
    return Inspection(present, absent, wrong, verified)


def partial_size(folder: str, sha256: str) -> int:
    with contextlib.suppress(OSError):
        return os.stat(os.path.join(folder, PARTIAL, sha256)).st_size
    return 0


def fill(folder: str, found: Inspection, fetcher: Callable[[], Any]) -> None:
    """Fetch what is absent and remember what was verified, also when some of it fails."""
    verified = found.verified

    def done(wanted: Wanted, path: str) -> None:
        verified[wanted.filename] = note(path, wanted.sha256)

    try:
        for name in found.wrong:
            os.unlink(os.path.join(folder, name))
        if found.absent:
            fetcher().fetch(found.absent, done)
    finally:
        if verified != read_verified(folder):
            write_verified(folder, verified)


def result(folder: str, found: Inspection, check_mode: bool) -> dict[str, Any]:
    size = sum(wanted.size or 0 for wanted in found.absent)
    verb = "would download" if check_mode else "fetched"
    listing = "".join(f"{wanted.filename} {wanted.size or '?'}\n" for wanted in found.absent)
    return {
        "changed": bool(found.absent),
        "path": folder,
        "fetched": [wanted.filename for wanted in found.absent],
        "bytes": size,
        "present": len(found.present),
        "msg": f"{verb} {len(found.absent)} files, {size} bytes" if found.absent else "every file is there",
        "diff": {"before": "", "after": listing, "before_header": folder, "after_header": folder},
    }
