# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A virtual environment made from a lock: complete with its manifest, or unfinished and removed by the next run.

This module util is PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any

from ansible_collections.blackwell.inference.plugins.module_utils import _manifest, _uv
from ansible_collections.blackwell.inference.plugins.module_utils._durable import (
    remove_tree,
    sweep,
    sync_file_system,
    sync_folder,
    write_atomic,
)
from ansible_collections.blackwell.inference.plugins.module_utils._lock import Lock
from ansible_collections.blackwell.inference.plugins.module_utils._refusal import Refusal

MANIFEST = ".environment.json"
UNFINISHED = ".unfinished"


@dataclass(frozen=True)
class Wanted:
    path: str
    lock: Lock
    python: str
    python_version: str

    def manifest(self) -> dict[str, Any]:
        return {"lock_id": self.lock.id, "python": self.python, "python_version": self.python_version}


def read_manifest(path: str) -> dict[str, Any] | None:
    try:
        with open(os.path.join(path, MANIFEST), encoding="utf-8") as file:
            content = json.load(file)
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def is_current(wanted: Wanted) -> bool:
    # A base interpreter that is gone (a distribution upgrade) leaves a link that leads nowhere.
    whole = os.access(os.path.join(wanted.path, "bin", "python"), os.X_OK)
    unfinished = os.path.lexists(os.path.join(wanted.path, UNFINISHED))
    manifest = dict(read_manifest(wanted.path) or {})
    files = manifest.pop("files", None)
    return whole and not unfinished and manifest == wanted.manifest() and isinstance(files, dict) and _holds(wanted.path, files)


def _files(path: str) -> dict[str, int]:
    return {name: status.st_size for name, status in _manifest.walk(path) if name not in (MANIFEST, UNFINISHED)}


def _holds(path: str, files: dict[str, int]) -> bool:
    """Whether every file of the finished environment is there with its size. Bytecode may have come since."""
    return files.items() <= _files(path).items()


def require_ours(path: str) -> None:
    """Never remove a folder that this module did not make."""
    if not os.path.lexists(path):
        return
    if os.path.isdir(path) and not os.path.islink(path):
        names = set(os.listdir(path))
        if not names or names & {MANIFEST, UNFINISHED}:
            return
    raise Refusal(
        f"The path {path}",
        "something that this module did not make",
        "nothing, or an environment made by it",
        "Choose another path, or move away what is there",
    )


def build(wanted: Wanted, uv: str, wheels: str, run: _uv.Run) -> None:
    """Make it at its final path. Whatever interrupts this, the manifest is absent until everything is on disk."""
    path = wanted.path
    parent = os.path.dirname(path)
    for requirement in wanted.lock.requirements:
        _uv.require_wheel(wheels, requirement)
    require_ours(path)
    os.makedirs(parent, mode=0o755, exist_ok=True)
    sweep(parent)
    if os.path.lexists(path):
        remove_tree(path)
    os.mkdir(path, 0o755)
    try:
        write_atomic(os.path.join(path, UNFINISHED), b"")
        requirements = os.path.join(path, "requirements.lock")
        write_atomic(requirements, wanted.lock.text().encode())
        _uv.build(run, uv, wanted.python, path, wanted.lock, requirements, wheels, _uv.environment(cache=None))
        sync_file_system(path)
        text = json.dumps({**wanted.manifest(), "files": _files(path)}, indent=1, sort_keys=True) + "\n"
        write_atomic(os.path.join(path, MANIFEST), text.encode())
        os.unlink(os.path.join(path, UNFINISHED))
        sync_folder(path)
    except BaseException:
        remove_tree(path)
        raise


def describe(manifest: dict[str, Any] | None) -> str:
    """One side of a diff, without the list of files."""
    manifest = {name: value for name, value in (manifest or {}).items() if name != "files"}
    return json.dumps(manifest, indent=1, sort_keys=True) + "\n" if manifest else ""
