# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Start the gateway with its key from a file: as an argument the key would stand in the process list.

usage: gateway.py KEY_FILE [ARGUMENTS OF smg launch]
"""

from __future__ import annotations

import sys
from pathlib import Path

from smg.cli import main

if __name__ == "__main__":
    main(["launch", *sys.argv[2:], "--api-key", Path(sys.argv[1]).read_text(encoding="ascii").strip()])
