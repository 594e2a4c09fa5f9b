# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The GPU code in every shared object below a folder, and whether all of it runs on a GPU."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from typing import Any

from ansible_collections.blackwell.inference.plugins.module_utils._elf import ElfError, FileReader, is_elf, read_elf
from ansible_collections.blackwell.inference.plugins.module_utils._fatbin import read_code, runs_as, set_runs_as

SHARED_OBJECT = re.compile(r"\.so(\.\d+)*$")
# Only libraries whose version is the CUDA major: libcufft.so.11 and libcurand.so.10, for example, are not. A wheel that
# brings a copy of its own has a hash in the name: libnvjpeg-1a359ba7.so.13.0.1.86, libcudart.3eda8113.so.13.
CUDA_LIBRARY = re.compile(
    r"^lib(?:cudart|cublas|cublasLt|cupti|nvblas|nvfatbin|nvJitLink|nvjpeg|nvrtc|nvrtc-builtins|npp[a-z]*)"
    r"(?:[-.][0-9a-f]{8})?\.so\.(\d+)(?:\.|$)"
)
# Of files and folders. A whole stack with SGLang has some 80,000; a mistaken path must end too.
MAX_FILES = 500_000


def cuda_major(needed: Iterable[str]) -> list[int]:
    found = {int(match.group(1)) for name in needed if (match := CUDA_LIBRARY.match(name))}
    return sorted(found)


def printable(path: str) -> str:
    """A file name as text that any JSON reader and any terminal takes: names need not be UTF-8, nor hold letters only."""
    text = os.fsencode(path).decode("utf-8", "backslashreplace")
    return re.sub(r"[\x00-\x1f\x7f]", lambda found: f"\\x{ord(found[0]):02x}", text)


def scan_file(path: str) -> dict[str, Any] | None:
    """What one file holds; None when it is gone or no ELF file for 64-bit processes."""
    try:
        with FileReader(path) as reader:
            if not reader.size:
                return _entry("it is empty")
            if not is_elf(reader):
                return None
            elf = read_elf(reader)
            code = read_code(reader, elf)
    except ElfError as broken:
        return _entry(str(broken))
    except FileNotFoundError:
        return None
    except OSError as denied:
        return _entry(f"it cannot be read: {denied.strerror}")
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
    that they hold; `cuda_major`: 12, 13 or None; `needed`; `problem`: None or one sentence. A folder stands here too,
    with a slash at its end, when what lies in it was not looked at. Links to folders are not followed.
    """
    paths, unread = find_objects(root)
    found = {printable(os.path.join(os.path.relpath(folder, root), "")): _entry(why) for folder, why in unread.items()}
    for path in sorted(paths):
        entry = scan_file(path)
        if entry and (entry["code"] or entry["units"] or entry["cuda_major"] or entry["problem"]):
            found[printable(os.path.relpath(path, root))] = entry
    return dict(sorted(found.items()))


def find_objects(root: str, limit: int = MAX_FILES) -> tuple[list[str], dict[str, str]]:
    """The shared objects below a folder, and why any folder in it was not looked at."""
    inside = os.path.join(os.path.realpath(root), "")
    paths: list[str] = []
    unread: dict[str, str] = {}
    folders = [root]
    seen = 0
    while folders:
        folder = folders.pop()
        try:
            with os.scandir(folder) as listing:
                for entry in listing:
                    seen += 1
                    if seen > limit:
                        unread[root] = f"more than {limit} files lie below it, and the rest was not looked at"
                        return paths, unread
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    elif ".so" in entry.name and SHARED_OBJECT.search(entry.name) and _is_own(entry, inside):
                        paths.append(entry.path)
        except OSError as denied:
            unread[folder] = f"the folder cannot be listed: {denied.strerror}"
    return paths, unread


def _is_own(entry: os.DirEntry[str], inside: str) -> bool:
    if entry.is_symlink():
        # libx.so -> libx.so.1 is one file; a link out of the tree, or to a file of another kind of name, is one of its own.
        target = os.path.realpath(entry.path)
        if target.startswith(inside) and SHARED_OBJECT.search(target):
            return False
    try:
        return stat.S_ISREG(entry.stat().st_mode)
    except FileNotFoundError:
        return False
    except OSError:
        # Reading it will fail too, and say why.
        return True


def verdict(
    code: dict[str, int], units: int, capability: str, sets: Iterable[dict[str, Any]] | None = None
) -> dict[str, Any]:
    """Whether an object runs on `capability`.

    how: native (every unit has machine code), ptx (the driver must compile some), partial (some units have nothing),
    none (no unit has anything). With `sets` the count is exact; without, it is the best case that the counts allow.
    Not counted: that the driver may link relocatable PTX anew when the linked code does not fit.
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
