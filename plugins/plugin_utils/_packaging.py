# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The library packaging, in one place.

ansible-core depends on it, so it is always there; only the sanity test "import" imports plugins without ansible-core's
own dependencies, and must get past this line.
"""

from __future__ import annotations

import contextlib

with contextlib.suppress(ImportError):
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.tags import Tag, compatible_tags, cpython_tags
    from packaging.utils import InvalidWheelFilename, parse_wheel_filename
    from packaging.version import InvalidVersion, Version

__all__ = [
    "InvalidSpecifier",
    "InvalidVersion",
    "InvalidWheelFilename",
    "SpecifierSet",
    "Tag",
    "Version",
    "compatible_tags",
    "cpython_tags",
    "parse_wheel_filename",
]
