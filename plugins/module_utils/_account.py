# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The account that services run as.

This module util is PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

import grp
import pwd
import re
from typing import Callable

from ansible_collections.blackwell.inference.plugins.module_utils._refusal import Refusal

_NAME = re.compile(r"[a-z_][a-z0-9_-]{0,30}")


def exists(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return _group_exists(name)


def _group_exists(name: str) -> bool:
    try:
        grp.getgrnam(name)
    except KeyError:
        return False
    return True


def create(name: str, run: Callable[[list[str]], tuple[int, str, str]]) -> None:
    """A system account without a home, a password or a shell, and a group of the same name."""
    if not _NAME.fullmatch(name):
        raise Refusal("The service user", repr(name[:60]), "a name of a system account", "Correct the name")
    group = ["--gid", name] if _group_exists(name) else ["--user-group"]
    account = ["--home-dir", "/nonexistent", "--no-create-home", "--shell", "/usr/sbin/nologin", name]
    code, _out, err = run(["useradd", "--system", *group, *account])
    if code != 0 or not exists(name):
        raise Refusal(
            f"The service user {name}",
            f"useradd's exit status {code}: {err.strip()[-300:]}",
            "a system account",
            "Create the account and a group of the same name, then run this again",
        )
