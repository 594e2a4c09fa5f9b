# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Folders that are built once, named by the hash of what they are made of."""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path


class BuildError(Exception):
    """Something a person has to put right: what was found, what was wanted, what to do."""


def build_once(cache: Path, kind: str, key: str, build: Callable[[Path], None]) -> Path:
    """Returns ``cache/kind/key``, made by ``build`` when it is not there.

    Whoever is killed half-way leaves only a folder under another name, which the next builder removes. A folder's name
    says that it is complete, so a second process waits for the first instead of building too.
    """
    folder = cache / kind
    target = folder / key
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_dir():
            for stale in folder.glob(".unfinished-*"):
                shutil.rmtree(stale)
            unfinished = Path(tempfile.mkdtemp(prefix=".unfinished-", dir=folder))
            build(unfinished)
            unfinished.chmod(0o755)
            unfinished.rename(target)
    return target
