# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The links `current` and `previous` of a service container.

This module util is PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Callable

from ansible_collections.blackwell.inference.plugins.module_utils import _manifest
from ansible_collections.blackwell.inference.plugins.module_utils._durable import link_atomic
from ansible_collections.blackwell.inference.plugins.module_utils._refusal import Refusal


@dataclass(frozen=True)
class Links:
    current: str | None
    previous: str | None

    def described(self) -> str:
        return "".join(f"{name} -> {target}\n" for name, target in (("current", self.current), ("previous", self.previous)) if target)


def _target(path: str) -> str | None:
    try:
        return os.readlink(path)
    except FileNotFoundError:
        return None
    except OSError:
        raise Refusal(f"The path {path}", "something that is no link", "a link to a stack, or nothing", "Move it away") from None


def read(state: str) -> Links:
    return Links(_target(os.path.join(state, "current")), _target(os.path.join(state, "previous")))


def is_stack(path: str) -> bool:
    return _manifest.read(path) is not None


def decide(found: Links, path: str, is_stack: Callable[[str], bool]) -> Links:
    """A repeated switch keeps `previous`, so that rolling back still leads to the stack before; so does one away from
    a link that somebody bent to nowhere."""
    if found.current == path or not found.current or not is_stack(found.current):
        return Links(path, found.previous)
    return Links(path, found.current)


def require_stack(path: str | None) -> None:
    if not path or not is_stack(path):
        raise Refusal(
            f"The folder {path}",
            "no stack (a valid manifest is missing)",
            "a finished stack",
            "Run stack_build, and see that the store is mounted in this container",
        )


def apply(state: str, before: Links, after: Links) -> None:
    os.makedirs(state, mode=0o755, exist_ok=True)
    # `previous` first: a kill in between loses no way back.
    for name, old, new in (
        ("previous", before.previous, after.previous),
        ("current", before.current, after.current),
    ):
        if new and new != old:
            link_atomic(new, os.path.join(state, name))
