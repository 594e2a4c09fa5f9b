# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a module refuses and why, in the one form that every message of this collection has: found, wanted, what to do.

This module util is PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

from typing import Any


class Refusal(Exception):
    """Something that the operator has to know and can act on; never a programming error."""

    def __init__(self, subject: str, found: str, wanted: str, remedy: str, **details: Any) -> None:
        super().__init__(f"{subject}: found {found}; wanted {wanted}. {remedy}")
        self.subject = subject
        self.found = found
        self.wanted = wanted
        self.remedy = remedy
        self.details = details

    def result(self) -> dict[str, Any]:
        """What a module returns when it fails."""
        return {
            "msg": str(self),
            "found": self.found,
            "wanted": self.wanted,
            "remedy": self.remedy,
            **self.details,
        }


def from_os_error(error: OSError, doing: str) -> Refusal:
    """A full disk, a read-only target or a missing permission, in words."""
    where = f" at {error.filename}" if error.filename else ""
    return Refusal(
        doing,
        f"{error.strerror or error}{where}",
        "a file system that can be read and written",
        "Look at free space, mounts and owners on this host, then run this again: what was half made is removed",
    )
