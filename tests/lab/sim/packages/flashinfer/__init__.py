# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's flashinfer: a version, no kernels. The real one compiles its kernels on the target."""

from __future__ import annotations

import torch as torch  # type: ignore[import-not-found]

__version__ = "@VERSION@"
