# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines for tests: the recorded facts of the reference site, changed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from ansible_collections.blackwell.inference.plugins.plugin_utils._fleet import Machine

sys.path.insert(0, str(Path(__file__).parent))
from cases import facts

OLD_DRIVER = {"gpu.driver.version": "570.172.08", "gpu.driver.library_version": "570.172.08"}
# What the reference site had before anybody planned anything.
VENV = {"path": "/root/venv", "distributions": {"torch": "2.11.0+cu128", "numpy": "2.4.0"}, "cuda_major": {"lib/libtorch.so": 12}}
HOSTILE = "</td><script>alert(1)</script>&\"'\x1b[2J"


def machine(name: str, changes: dict[str, Any] | None = None, request: Any = None, stack: Any = None) -> Machine:
    """A machine with cards of its own: no UUID and no memory in use is another one's."""
    given = facts(changes)
    for number, device in enumerate(given["gpu"]["devices"]):
        device["uuid"] = f"GPU-{name}-{number}"
        device["memory_used_mib"] = len(name) + number
    return Machine(name, given["gpu"], given["model"], request, stack)
