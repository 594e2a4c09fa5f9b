# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The store of stacks: built once at their final path, complete with their manifest or not there at all.

This module util is PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

import os
import re
import stat
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass

from ansible_collections.blackwell.inference.plugins.module_utils import _manifest, _toolkit, _uv
from ansible_collections.blackwell.inference.plugins.module_utils._durable import (
    remove_tree,
    sweep,
    sync_file_system,
    sync_folder,
    write_atomic,
)
from ansible_collections.blackwell.inference.plugins.module_utils._lock import Lock
from ansible_collections.blackwell.inference.plugins.module_utils._manifest import Entry
from ansible_collections.blackwell.inference.plugins.module_utils._refusal import Refusal

LOCK_FILE = "stack.lock"
_LOCK_ID = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True)
class Store:
    """Folders of one store; one file system and one mount, since hard links cross neither."""

    root: str
    wheels: str

    @property
    def stacks(self) -> str:
        return os.path.join(self.root, "stacks")

    @property
    def cache(self) -> str:
        return os.path.join(self.root, "cache")

    def stack(self, lock_id: str) -> str:
        return os.path.join(self.stacks, lock_id)


class DamagedCache(Exception):
    """Files in the cache are not those of their wheel, as a power cut leaves them."""


def problem(path: str) -> str | None:
    """Why this folder is not a whole stack; None when it is one."""
    manifest = _manifest.read(path)
    return "it has no valid manifest" if manifest is None else _manifest.damage(path, manifest)


def leftovers(stacks: str) -> list[str]:
    """Names of folders that interrupted builds left: named like a stack, but without a valid manifest."""
    names = sorted(os.listdir(stacks)) if os.path.isdir(stacks) else []
    return [name for name in names if _LOCK_ID.fullmatch(name) and _manifest.read(os.path.join(stacks, name)) is None]


def clean(store: Store) -> None:
    sweep(store.stacks)
    for name in leftovers(store.stacks):
        remove_tree(store.stack(name))


def build(store: Store, lock: Lock, uv: str, python: str, run: _uv.Run) -> None:
    """Build one stack. A cache that a power cut damaged is dropped and filled again, once."""
    for requirement in lock.files():
        _uv.require_wheel(store.wheels, requirement)
    path = store.stack(lock.id)
    for attempt in (1, 2):
        if os.path.lexists(path):
            remove_tree(path)
        try:
            _build_once(store, lock, uv, python, run, path)
            return
        except DamagedCache as error:
            remove_tree(path)
            for name in ("uv", "toolkit"):
                if os.path.isdir(os.path.join(store.cache, name)):
                    remove_tree(os.path.join(store.cache, name))
            if attempt == 2:
                raise Refusal(
                    f"The new stack {path}",
                    str(error),
                    "every file as its wheel holds it",
                    "The cache was dropped and filled again without success: look at this host's disk and memory",
                ) from None
        except BaseException:
            if os.path.lexists(path):
                remove_tree(path)
            raise


def _build_once(store: Store, lock: Lock, uv: str, python: str, run: _uv.Run, path: str) -> None:
    os.mkdir(path, 0o755)
    requirements = os.path.join(path, LOCK_FILE)
    write_atomic(requirements, lock.text().encode())
    settings = _uv.environment(os.path.join(store.cache, "uv"))
    _uv.build(run, uv, python, path, lock, requirements, store.wheels, settings)
    if lock.toolkit:
        _add_toolkit(store, lock, os.path.join(path, "cuda"))
    entries = _manifest.read_files(path)
    compare(entries, contents(store, lock, _site_packages(path)))
    open_to_all(path)
    text = _manifest.compose(lock.id, os.path.basename(python), entries)
    # Everything the manifest speaks of is on disk before the manifest is.
    sync_file_system(path)
    write_atomic(os.path.join(path, _manifest.NAME), text)
    sync_folder(store.stacks)


def _add_toolkit(store: Store, lock: Lock, home: str) -> None:
    folders = []
    for requirement in lock.toolkit:
        wheel = _uv.require_wheel(store.wheels, requirement)
        folder = os.path.join(store.cache, "toolkit", requirement.sha256)
        if not os.path.isdir(folder):
            _uv.require_hash(wheel, requirement)
            os.makedirs(os.path.dirname(folder), mode=0o755, exist_ok=True)
            _toolkit.unpack(wheel, folder)
        folders.append(folder)
    _toolkit.merge(folders, home)
    _toolkit.finish(home)


def _site_packages(path: str) -> str:
    """Relative path of the folder that wheels are installed to."""
    library = os.path.join(path, "lib")
    versions = sorted(name for name in os.listdir(library) if name.startswith("python"))
    return os.path.join("lib", versions[-1], "site-packages")


def contents(store: Store, lock: Lock, site_packages: str) -> dict[str, set[tuple[int, int]]]:
    """What the wheels hold: (size, CRC) by path in the stack. Several wheels may bring one path; the last one wins."""
    wanted: dict[str, set[tuple[int, int]]] = {}
    for requirement in lock.requirements:
        with zipfile.ZipFile(os.path.join(store.wheels, requirement.filename)) as archive:
            for info in archive.infolist():
                first, _separator, rest = info.filename.partition("/")
                # An installer rewrites RECORD, and places *.data by rules of its own.
                if info.is_dir() or first.endswith(".data") or (first.endswith(".dist-info") and rest == "RECORD"):
                    continue
                path = os.path.join(site_packages, os.path.normpath(info.filename))
                wanted.setdefault(path, set()).add((info.file_size, info.CRC))
    for requirement in lock.toolkit:
        for path, info in _toolkit.members(os.path.join(store.wheels, requirement.filename)).items():
            wanted.setdefault(os.path.join("cuda", path), set()).add((info.file_size, info.CRC))
    return wanted


def compare(entries: Iterable[Entry], wanted: dict[str, set[tuple[int, int]]]) -> None:
    """Refuse files that differ from their wheel, and copies where links are wanted."""
    found = {entry.path: entry for entry in entries if entry.link is None}
    wrong = [path for path, versions in wanted.items() if path not in found or _key(found[path]) not in versions]
    if wrong:
        raise DamagedCache(f"{len(wrong)} files that differ from their wheel, first {min(wrong)}")
    # uv copies every file of the name RECORD, since it rewrites a distribution's own; vendored distributions bring more.
    copies = [path for path in wanted if found[path].links < 2 and os.path.basename(path) != "RECORD"]
    if copies:
        raise Refusal(
            "The new stack",
            f"{len(copies)} of {len(wanted)} files copied, first {min(copies)}",
            "hard links into the cache",
            "Mount the whole store once: cache, wheels and stacks on one file system that has hard links",
        )


def _key(entry: Entry) -> tuple[int, int]:
    return entry.size, entry.crc


def open_to_all(path: str) -> None:
    """a+rX: the service user of another container, with other ids, reads this."""
    for current, folders, names in os.walk(path):
        for name in (*folders, *names):
            full = os.path.join(current, name)
            mode = os.lstat(full).st_mode
            if stat.S_ISLNK(mode):
                continue
            wanted = mode | 0o444 | (0o111 if stat.S_ISDIR(mode) or mode & 0o111 else 0)
            if wanted != mode:
                os.chmod(full, stat.S_IMODE(wanted))
