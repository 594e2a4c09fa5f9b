# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One shape for everything that is not as it should be: what was found, what was wanted, what to do."""

from __future__ import annotations

from typing import TypedDict


class Problem(TypedDict):
    code: str
    severity: str
    found: str
    wanted: str
    remedy: str


def error(code: str, found: str, wanted: str, remedy: str) -> Problem:
    return {"code": code, "severity": "error", "found": found, "wanted": wanted, "remedy": remedy}


def warning(code: str, found: str, wanted: str, remedy: str) -> Problem:
    return {"code": code, "severity": "warning", "found": found, "wanted": wanted, "remedy": remedy}


def sentence(problem: Problem) -> str:
    """One line for a failure message."""
    return f"{problem['code']}: found {problem['found']}; wanted {problem['wanted']}; {problem['remedy']}"
