# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The GPU code in every shared object below a folder, and whether all of it runs on a GPU."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from typing import Any

from ansible_collections.blackwell.inference.plugins.module_utils._elf import ElfError, FileReader, is_elf, read_elf
from ansible_collections.blackwell.inference.plugins.module_utils._fatbin import read_code, runs_as, set_runs_as

SHARED_OBJECT = re.compile(r"\.so(\.\d+)*$")
# Only libraries whose version is the CUDA major: libcufft.so.11 and libcurand.so.10, for example, are not.
CUDA_LIBRARY = re.compile(r"^lib(?:cudart|cublas|cublasLt|nvrtc|nvJitLink|nvjpeg|npp[a-z]*)\.so\.(\d+)(?:\.|$)")
MAX_FILES = 200_000


def cuda_major(needed: Iterable[str]) -> list[int]:
    found = {int(match.group(1)) for name in needed if (match := CUDA_LIBRARY.match(name))}
    return sorted(found)


def scan_file(path: str) -> dict[str, Any] | None:
    """What one file holds; None when it is no ELF file."""
    try:
        with FileReader(path) as reader:
            if not is_elf(reader):
                return None
            elf = read_elf(reader)
            code = read_code(reader, elf)
    except ElfError as broken:
        return _entry(problem=str(broken))
    except OSError as denied:
        return _entry(problem=f"cannot be read: {denied.strerror}")
    majors = cuda_major(elf.needed)
    problem = code.problem
    if len(majors) > 1:
        problem = problem or "it links CUDA " + " and ".join(str(major) for major in majors) + " at once"
    return {
        "code": code.code,
        "units": code.units,
        "sets": [{"archs": list(names), "units": count} for names, count in code.sets.items()],
        "cuda_major": majors[0] if majors else None,
        "needed": list(elf.needed),
        "problem": problem,
    }


def _entry(problem: str) -> dict[str, Any]:
    return {"code": {}, "units": 0, "sets": [], "cuda_major": None, "needed": [], "problem": problem}


def scan_tree(root: str) -> dict[str, dict[str, Any]]:
    """By path relative to `root`: each shared object that holds GPU code, links CUDA or cannot be read.

    `code`: {"sm_120a": units}; `units`: compiled source files with GPU code; `sets`: units by the set of architectures
    that they hold; `cuda_major`: 12, 13 or None; `needed`; `problem`: None or one sentence.
    """
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(_shared_objects(root)):
        entry = scan_file(path)
        if entry and (entry["code"] or entry["cuda_major"] or entry["problem"]):
            found[os.path.relpath(path, root)] = entry
    return found


def _shared_objects(root: str) -> Iterator[str]:
    inside = os.path.realpath(root) + os.sep
    folders = [root]
    seen = 0
    while folders:
        try:
            with os.scandir(folders.pop()) as listing:
                entries = list(listing)
        except OSError:
            continue
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)
            elif SHARED_OBJECT.search(entry.name):
                # libx.so -> libx.so.1 is one file; a link that leads out of the tree is one of its own.
                if entry.is_symlink() and os.path.realpath(entry.path).startswith(inside):
                    continue
                if not entry.is_file():
                    continue
                seen += 1
                if seen > MAX_FILES:
                    return
                yield entry.path


def verdict(
    code: dict[str, int], units: int, capability: str, sets: Iterable[dict[str, Any]] | None = None
) -> dict[str, Any]:
    """Whether an object runs on `capability`.

    how: native (every unit has machine code), ptx (the driver must compile some), partial (some units have nothing),
    none (no unit has anything). With `sets` the count is exact; without, it is the most that the counts prove.
    """
    if sets is not None:
        ways = {"native": 0, "ptx": 0}
        for group in sets:
            way = set_runs_as(tuple(group["archs"]), capability)
            if way:
                ways[way] += group["units"]
        native, running = ways["native"], ways["native"] + ways["ptx"]
    else:
        able = {name: runs_as(name, capability) for name in code}
        native = max((count for name, count in code.items() if able[name] == "native"), default=0)
        running = max((count for name, count in code.items() if able[name]), default=0)
    missing = max(0, units - running)
    if missing == 0:
        return {"how": "native" if native >= units else "ptx", "missing_units": 0}
    return {"how": "partial" if running else "none", "missing_units": missing}
