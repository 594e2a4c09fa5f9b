# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that must survive a power cut, or vanish without a trace.

This module util is PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Iterator
from typing import Callable

from ansible_collections.blackwell.inference.plugins.module_utils._refusal import Refusal

CHUNK = 1 << 20
REMOVING = ".removing-"


def sha256_of(path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def sync_folder(path: str) -> None:
    """Make renames and new names in this folder durable."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_file_system(path: str) -> None:
    """Make everything written below this path durable; one call, where fsync of 60,000 files takes minutes."""
    handle = os.open(path, os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(handle) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), path)
    finally:
        os.close(handle)


def write_atomic(path: str, data: bytes, mode: int = 0o644, owner: tuple[int, int] | None = None) -> None:
    """Either the old content or the new one, never a part, also after a power cut."""
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name}.{os.getpid()}.tmp")
    # What a killed run left: in a container the next one easily has the same number.
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary)
    try:
        # O_EXCL: never write through a link that somebody else laid there.
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            if owner is not None:
                os.fchown(file.fileno(), *owner)
            os.fchmod(file.fileno(), mode)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    sync_folder(folder)


def link_atomic(target: str, path: str) -> None:
    """Point a symbolic link somewhere else in one step."""
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name}.{os.getpid()}.tmp")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary)
    os.symlink(target, temporary)
    os.replace(temporary, path)
    sync_folder(folder)


def remove_tree(path: str) -> None:
    """Remove a folder so that a kill half-way leaves no part of it under its name."""
    folder, name = os.path.split(path.rstrip("/"))
    doomed = os.path.join(folder, f"{REMOVING}{name}")
    if os.path.lexists(doomed):
        shutil.rmtree(doomed)
    os.rename(path, doomed)
    shutil.rmtree(doomed)


def sweep(folder: str) -> list[str]:
    """Finish the removals that a kill interrupted."""
    names = [name for name in os.listdir(folder) if name.startswith(REMOVING)] if os.path.isdir(folder) else []
    for name in names:
        shutil.rmtree(os.path.join(folder, name))
    return names


def existing_parent(path: str) -> str:
    """The path itself, or the nearest folder above it that exists."""
    path = os.path.abspath(path)
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    return path


def require_space(path: str, needed: int, free: Callable[[str], int]) -> None:
    where = existing_parent(path)
    available = free(where)
    if available < needed:
        raise Refusal(
            f"Disk space below {where}",
            f"{available} bytes free",
            f"{needed} bytes",
            "Free some space or give this path a larger file system; nothing was written",
        )


def free_bytes(path: str) -> int:
    return shutil.disk_usage(path).free


@contextlib.contextmanager
def exclusive(path: str, timeout: float, sleep: Callable[[float], None] = time.sleep) -> Iterator[None]:
    """One at a time; the kernel drops the lock when its holder dies, so a killed run never blocks the next."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    waited = 0.0
    try:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if waited >= timeout:
                    raise Refusal(
                        f"The lock {path}",
                        f"another run that has held it for more than {timeout:.0f} s",
                        "to be the only one",
                        "Wait for the other run, or see with `fuser -v` on that file who holds it",
                    ) from None
                sleep(0.5)
                waited += 0.5
        yield
    finally:
        os.close(handle)
