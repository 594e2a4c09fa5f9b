# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's torch: it loads its library and knows its version. There are no tensors in it."""

from __future__ import annotations

import ctypes
from pathlib import Path

from . import version as version
from .version import __version__ as __version__

_site = Path(__file__).resolve().parent.parent

# Like the real one, it finds the CUDA runtime in the package beside it and loads it for everybody who comes later.
ctypes.CDLL(str(_site / "nvidia" / "cu13" / "lib" / "libcudart.so.13"), mode=ctypes.RTLD_GLOBAL)
_library = ctypes.CDLL(str(_site / "torch" / "lib" / "libtorch_cuda.so"))
