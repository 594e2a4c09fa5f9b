# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is mounted where."""

from __future__ import annotations

from pathlib import Path


def mounts_below(folder: Path, mountinfo: str) -> list[str]:
    """Mount points at or below a folder, deepest first, from the text of /proc/self/mountinfo."""
    points = [line.split()[4].encode().decode("unicode_escape") for line in mountinfo.splitlines() if line]
    return sorted((point for point in points if Path(point).is_relative_to(folder)), key=len, reverse=True)
