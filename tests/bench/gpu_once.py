#!/usr/bin/env python3
# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the GPU facts once, in a process that has read nothing before, and prints what it cost, after its imports.

usage: gpu_once.py never|auto|always [FOLDER with proc, sys and dev]
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import sys
import tempfile
import time
from pathlib import Path

# Works on a machine without Ansible: the helpers import nothing but the standard library and each other.
packages = tempfile.TemporaryDirectory(prefix="blackwell-bench-")
Path(packages.name, "ansible_collections/blackwell").mkdir(parents=True)
Path(packages.name, "ansible_collections/blackwell/inference").symlink_to(Path(__file__).resolve().parents[2])
sys.path.insert(0, packages.name)

from ansible_collections.blackwell.inference.plugins.module_utils import _gpu, _gpu_sources


def peak_mb() -> float:
    """The higher one of this process and of its children, which together share most of their memory."""
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()
    status = Path("/proc/self/status").read_text(encoding="ascii")
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return max(int(line.split()[1]), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss) / 1024


def main() -> None:
    cuda, *folders = sys.argv[1:]
    roots = _gpu_sources.Roots(*(f"{folder}/{name}" for folder in folders for name in ("proc", "sys", "dev", "")))
    started = time.perf_counter()
    facts = _gpu.assemble(_gpu_sources.collect(roots, "nobody", 60, cuda, os.environ.get("PATH")))
    seconds = time.perf_counter() - started
    errors = [problem["found"] for problem in facts["problems"] if problem["severity"] == "error"]
    answer = {"seconds": seconds, "count": facts["count"], "errors": errors, "peak_mb": peak_mb(), "torch": "torch" in sys.modules}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
