# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Install the pinned pip from the wheel beside this file.

tests/lint copies this into the cache of ansible-test, which looks there before it downloads its own installer; so the
sanity tests need nothing but the package index that pip is configured for.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

if __name__ == "__main__":
    wheel = str(next(Path(__file__).parent.glob("pip-24.2-*.whl")))
    sys.path.insert(0, wheel)
    sys.argv = ["pip", "install", "--no-index", "--disable-pip-version-check", "--quiet", wheel]
    runpy.run_module("pip", run_name="__main__", alter_sys=True)
