# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's sgl_kernel: importing it loads the libraries that the real one loads on a Blackwell card."""

from __future__ import annotations

import ctypes
from pathlib import Path

import torch as torch  # type: ignore[import-not-found]

__version__ = "@VERSION@"

_here = Path(__file__).resolve().parent
_libraries = [ctypes.CDLL(str(_here / name)) for name in ("sm100/common_ops.abi3.so", "spatial_ops.abi3.so", "flash_ops.abi3.so")]
