# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The compile toolkit: NVIDIA's wheels of one release, laid out as the one folder that CUDA_HOME names.

The wheels unpack to nvidia/cu13/{bin,include,lib,nvvm}, those of CUDA 12 to nvidia/cuda_nvcc/..., nvidia/cuda_runtime/...;
compilers and flashinfer want bin, include, lib64 and nvvm side by side, and libraries under the name that -l looks for.

This module util is PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

import os
import re
import shutil
import zipfile
from collections.abc import Iterable

from ansible_collections.blackwell.inference.plugins.module_utils._refusal import Refusal

_LIBRARY = re.compile(r"(?P<stem>lib[^/]+\.so)\.[0-9.]+")


def placed(name: str) -> str | None:
    """Where a wheel's member goes below CUDA_HOME; None for what is not a part of the toolkit."""
    parts = name.split("/")
    if len(parts) < 4 or parts[0] != "nvidia" or any(part in ("", ".", "..") for part in parts):
        return None
    # .metadata holds the packager's own notes, which every wheel brings under the same names.
    if parts[2].startswith("."):
        return None
    return "/".join(parts[2:])


def members(wheel: str) -> dict[str, zipfile.ZipInfo]:
    with zipfile.ZipFile(wheel) as archive:
        found = ((placed(info.filename), info) for info in archive.infolist() if not info.is_dir())
        return {path: info for path, info in found if path is not None}


def unpack(wheel: str, folder: str) -> None:
    """Unpack once into the cache; a later stack with the same wheel links to the same files."""
    if os.path.isdir(folder):
        return
    temporary = f"{folder}.tmp"
    shutil.rmtree(temporary, ignore_errors=True)
    with zipfile.ZipFile(wheel) as archive:
        for path, info in members(wheel).items():
            target = os.path.join(temporary, path)
            os.makedirs(os.path.dirname(target), mode=0o755, exist_ok=True)
            with archive.open(info) as source, open(target, "wb") as file:
                shutil.copyfileobj(source, file, 1 << 20)
            os.chmod(target, 0o755 if (info.external_attr >> 16) & 0o111 else 0o644)
    os.makedirs(temporary, mode=0o755, exist_ok=True)
    os.rename(temporary, folder)


def merge(folders: Iterable[str], home: str) -> None:
    """Link every part into one tree."""
    os.makedirs(home, mode=0o755, exist_ok=True)
    for folder in folders:
        for current, _folders, names in os.walk(folder):
            target = os.path.join(home, os.path.relpath(current, folder))
            os.makedirs(target, mode=0o755, exist_ok=True)
            for name in names:
                _link(os.path.join(current, name), os.path.join(target, name))


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except FileExistsError:
        with open(source, "rb") as one, open(target, "rb") as other:
            same = one.read() == other.read()
        if not same:
            raise Refusal(
                f"The toolkit's file {target}",
                "two parts that bring it with different content",
                "parts of one toolkit release",
                "Pin all toolkit parts of the plan to one release",
            ) from None


def finish(home: str) -> None:
    """Add the names under which compilers and linkers look: lib64, and libx.so beside libx.so.13."""
    library = os.path.join(home, "lib")
    if os.path.isdir(library):
        if not os.path.lexists(os.path.join(home, "lib64")):
            os.symlink("lib", os.path.join(home, "lib64"))
        for name in sorted(os.listdir(library)):
            found = _LIBRARY.fullmatch(name)
            # nvrtc's .alt libraries are for callers that name them in full.
            if found and ".alt." not in name and not os.path.lexists(os.path.join(library, found["stem"])):
                os.symlink(name, os.path.join(library, found["stem"]))
    if not os.access(os.path.join(home, "bin", "nvcc"), os.X_OK):
        raise Refusal(
            f"The toolkit {home}",
            "no executable bin/nvcc",
            "a toolkit that compiles",
            "Name nvidia-cuda-nvcc among the toolkit parts of the plan, then make the lock again",
        )
