# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which torch this is; the wheel writer fills in the version."""

from __future__ import annotations

__version__ = "@VERSION@+cu130"
debug = False
cuda: str | None = "@CUDA@"
hip: str | None = None
