# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA's own reader of GPU code, fetched by hash, and its lists as counts that the scanner's can be held against."""

from __future__ import annotations

import hashlib
import re
import subprocess
import zipfile
from collections import Counter
from pathlib import Path

from sim.store import build_once
from sim.toolkit import download

LOCK = Path(__file__).with_name("cuobjdump.lock")
KINDS = {"--list-elf": "sm", "--list-ptx": "compute"}
_LINE = re.compile(r"(?:ELF|PTX) file +\d+: .*\.sm_(\d+[af]?)\.(?:cubin|ptx)")
# Its answer to a file without GPU code, with a status that other failures share.
NOTHING = "does not contain device code"


def fetch(cache: Path) -> Path:
    """The program, fetched when it is not there."""

    def unpack(folder: Path) -> None:
        download(LOCK, folder)
        for wheel in folder.glob("*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(folder)
        program(folder).chmod(0o755)

    return program(build_once(cache, "cuobjdump", hashlib.sha256(LOCK.read_bytes()).hexdigest()[:16], unpack))


def program(folder: Path) -> Path:
    return folder / "nvidia" / "cu13" / "bin" / "cuobjdump"


def listed(cuobjdump: Path, library: Path, *options: str) -> Counter[str]:
    """How often it names each architecture."""
    found: Counter[str] = Counter()
    for option, kind in KINDS.items():
        command = [str(cuobjdump), option, *options, str(library)]
        answer = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        if NOTHING in answer.stderr:
            continue
        assert answer.returncode == 0, answer.stderr
        for line in answer.stdout.splitlines():
            match = _LINE.fullmatch(line)
            assert match, f"cuobjdump says something that is not understood: {line!r}"
            found[f"{kind}_{match.group(1)}"] += 1
    return as_it_shows(found)


def as_it_shows(code: dict[str, int]) -> Counter[str]:
    """It shows the f of PTX and hides that of machine code, and lists no LTO-IR."""
    shown: Counter[str] = Counter()
    for name, count in code.items():
        if not name.startswith("lto_"):
            shown[name.removesuffix("f") if name.startswith("sm_") else name] += count
    return shown
