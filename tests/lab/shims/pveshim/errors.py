# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Failures as Proxmox VE reports them."""

from __future__ import annotations

from collections.abc import Mapping


class PveError(Exception):
    """A Perl `die`: one message on stderr and an exit status that means nothing but failure."""

    def __init__(self, message: str, code: int = 255) -> None:
        super().__init__(message)
        self.code = code


class ParameterError(PveError):
    """Wrong parameters: every finding on a line of its own."""

    def __init__(self, findings: Mapping[str, str], title: str = "400 Parameter verification failed.") -> None:
        lines = [title, *(f"{key}: {text}" for key, text in sorted(findings.items()))]
        super().__init__("\n".join(lines), 2)


class NotSimulated(PveError):
    """Real Proxmox VE may well know this call; the lab does not, and says so by its own name."""

    def __init__(self, what: str) -> None:
        super().__init__(f"bwlab: {what} is not simulated by the lab (tests/lab/shims)", 1)
