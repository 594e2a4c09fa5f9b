# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The simulation is no installed package: tests/lab comes onto the path here."""

from __future__ import annotations

import sys
from pathlib import Path

_LAB = str(Path(__file__).resolve().parents[2] / "lab")
if _LAB not in sys.path:
    sys.path.insert(0, _LAB)
