# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's flashinfer_cubin: a version. The real one holds ready kernels for data-centre cards only."""

from __future__ import annotations

__version__ = "@VERSION@"
