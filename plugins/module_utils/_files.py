# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Managed files: what is there, what is wanted, written in one step. Private to the collection."""

from __future__ import annotations

import grp
import os
import pwd
import stat
from dataclasses import dataclass

from ansible_collections.blackwell.inference.plugins.module_utils._durable import write_atomic
from ansible_collections.blackwell.inference.plugins.module_utils._refusal import Refusal


@dataclass(frozen=True)
class FileState:
    """One file's whole state; a secret one never shows its content in a diff."""

    path: str
    content: str
    mode: int = 0o644
    owner: str = "root"
    group: str = "root"
    secret: bool = False


def read(path: str) -> FileState | None:
    """Return what is there, None for nothing."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        raise Refusal(f"The path {path}", "not a regular file", "a file that this collection writes", "Move it away")
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        content = file.read()
    return FileState(path, content, status.st_mode & 0o7777, _user(status.st_uid), _group(status.st_gid))


def differs(old: FileState | None, new: FileState) -> bool:
    if old is None:
        return True
    return (old.content, old.mode, old.owner, old.group) != (new.content, new.mode, new.owner, new.group)


def write(new: FileState) -> None:
    """Write atomically and read back; the folder above is made when absent."""
    try:
        owner = (pwd.getpwnam(new.owner).pw_uid, grp.getgrnam(new.group).gr_gid)
    except KeyError:
        raise Refusal(
            f"The owner of {new.path}",
            f"no account {new.owner}:{new.group}",
            "that account",
            "Create it first, as inference_instances does",
        ) from None
    os.makedirs(os.path.dirname(new.path), mode=0o755, exist_ok=True)
    write_atomic(new.path, new.content.encode("utf-8", "surrogateescape"), new.mode, owner)
    if differs(read(new.path), new):
        raise Refusal(f"The file {new.path}", "another state than was written", "the new one", "See who else writes it")


def diff(old: FileState | None, new: FileState) -> dict[str, str]:
    return {
        "before_header": new.path,
        "after_header": new.path,
        "before": _shown(old, new.secret),
        "after": _shown(new, new.secret),
    }


def _shown(state: FileState | None, secret: bool) -> str:
    if state is None:
        return ""
    head = f"# {state.mode:04o} {state.owner}:{state.group}\n"
    return head + ("(content not shown)\n" if secret else state.content)


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def _group(number: int) -> str:
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)
