# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make test-real`: what needs real packages, gigabytes of them, and is no part of CI.

Wheels come from the index that pip is configured for, and stay in the project's cache under their hash. What is unpacked of
them is removed with each test. Measures are printed at the end.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from bwlab.names import cache_dir
from sim.store import build_once

_MEASURES: list[str] = []


def pip(*words: str) -> str:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *words, "--no-deps", "--only-binary=:all:"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, f"{' '.join(command)}: {answer.stderr[-2000:]}"
    return answer.stdout


def fetch(requirement: str) -> Path:
    """The wheel of one pinned project for this machine's Python."""
    report = json.loads(pip("install", "--dry-run", "--ignore-installed", "--report=-", requirement))
    (found,) = report["install"]
    digest = found["download_info"]["archive_info"]["hashes"]["sha256"]

    def download(folder: Path) -> None:
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as lock:
            lock.write(f"{requirement} --hash=sha256:{digest}\n")
            lock.flush()
            pip("download", "--require-hashes", f"--requirement={lock.name}", f"--dest={folder}")

    (wheel,) = build_once(cache_dir(), "real", digest[:16], download).glob("*.whl")
    return wheel


@pytest.fixture
def unpacked() -> Iterator[Callable[[str], Path]]:
    """Gives the folder with the shared objects of a pinned project's wheel."""
    with tempfile.TemporaryDirectory(prefix="blackwell-real-") as name:

        def unpack(requirement: str) -> Path:
            with zipfile.ZipFile(fetch(requirement)) as archive:
                archive.extractall(name, [member for member in archive.namelist() if ".so" in member])
            return Path(name)

        yield unpack


@pytest.fixture
def measured() -> Callable[[str], None]:
    return _MEASURES.append


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in _MEASURES:
        terminalreporter.write_line(line)
