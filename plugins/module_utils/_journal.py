# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The last words of a unit, fit for Ansible's output.

This module util is PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Callable

LINES = 20
# Names of variables whose values nobody may see.
SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSWORD", re.IGNORECASE)
_SECRET_VALUE = re.compile(
    r"((?:api[_-]?key|password|secret|hf_token)[\"']?\s*[=:]\s*)(\"[^\"]*\"|'[^']*'|[^\s,)]+)", re.IGNORECASE
)

Run = Callable[["list[str]"], "tuple[int, str, str]"]


def redact(text: str, secrets: Iterable[str]) -> str:
    """Take out the values of keys that a server may print at its start."""
    for secret in filter(None, secrets):
        text = text.replace(secret, "(not shown)")
    return _SECRET_VALUE.sub(r"\1(not shown)", text)


def last_lines(run: Run, unit: str, secrets: Iterable[str] = (), since: float | None = None) -> str:
    """The last lines since that moment; where there are none, the last ones at all."""
    command = ["journalctl", "--unit", unit, "--lines", str(LINES), "--no-pager", "--output", "cat"]
    text = run([*command, "--since", f"@{since:.0f}"])[1].strip() if since is not None else ""
    if not text or text.startswith("-- No entries"):
        text = run(command)[1].strip()
    return redact(text, secrets) or "(none)"
