# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Releases whose plain installation fails, each in its own way, come out right from our lock: really installed.

0.5.12.post1 could not be imported, 0.5.18 has no closure of wheels, 0.5.15.post1 and 0.5.23 could not compile a kernel.
Needs root and 25 GB; wheels come from UV_DEFAULT_INDEX, else from uv's own default. Each takes some minutes.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from ansible_collections.blackwell.inference.plugins.plugin_utils import _knowledge

TOOL = Path(__file__).resolve().parents[2] / "tools" / "prove_release"
NEWEST = _knowledge.load().newest_first[0]


@pytest.mark.parametrize("release", sorted({"0.5.12.post1", "0.5.15.post1", "0.5.18", "0.5.23", NEWEST}))
def test_a_release_installs_imports_and_compiles(release: str, measured: Callable[[str], None]) -> None:
    done = subprocess.run([str(TOOL), "--no-write", release], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert done.stdout.rstrip().endswith(": ok")
    measured(done.stdout.rstrip())
