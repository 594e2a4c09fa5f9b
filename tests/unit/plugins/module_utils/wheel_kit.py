# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tiny wheels, locks and a real uv for the tests of everything that installs."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import sys
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

from ansible_collections.blackwell.inference.plugins.module_utils._lock import Lock, Requirement

PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"


def real_uv() -> str:
    """The uv of the development environment; its absence is a failure of the test run, not a reason to skip."""
    beside = os.path.join(os.path.dirname(sys.executable), "uv")
    found = beside if os.path.exists(beside) else shutil.which("uv")
    assert found, "uv is missing: install the development lock"
    return found


def write_wheel(
    folder: Path,
    name: str,
    version: str = "1.0",
    files: dict[str, bytes] | None = None,
    executable: tuple[str, ...] = (),
    metadata: str = "",
) -> Requirement:
    """One valid wheel; returns its line in a lock."""
    stem = f"{name.replace('-', '_')}-{version}"
    info = f"{stem}.dist-info"
    content = dict(files if files is not None else {f"{name.replace('-', '_')}/__init__.py": b"value = 1\n"})
    content[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{metadata}".encode()
    content[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: kit\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    record = ""
    for path, data in content.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{path},sha256={digest},{len(data)}\n"
    content[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
    wheel = folder / f"{stem}-py3-none-any.whl"
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(wheel, "w") as archive:
        for member, data in content.items():
            entry = zipfile.ZipInfo(member)
            entry.external_attr = (0o100755 if member in executable else 0o100644) << 16
            archive.writestr(entry, data)
    data = wheel.read_bytes()
    return Requirement(name, version, hashlib.sha256(data).hexdigest(), wheel.name, len(data))


def lock_of(requirements: list[Requirement], toolkit: list[Requirement] | None = None, python: str = PYTHON) -> Lock:
    def by_name(one: Requirement) -> str:
        return one.name

    return Lock(
        python,
        "x86_64-manylinux_2_28",
        None,
        None,
        sorted(requirements, key=by_name),
        sorted(toolkit or [], key=by_name),
    )


def uv_wheel(folder: Path) -> Requirement:
    """The real uv in a wheel of its own, laid out as its publisher does."""
    member = "uv-0.0.1.data/scripts/uv"
    return write_wheel(folder, "uv", "0.0.1", {member: Path(real_uv()).read_bytes()}, executable=(member,))


TOOLKIT_FILES = {
    "nvidia-cuda-nvcc": ({"nvidia/cu13/bin/nvcc": b"#!/bin/sh\n"}, ("nvidia/cu13/bin/nvcc",)),
    "nvidia-cuda-runtime": (
        {"nvidia/cu13/include/cuda.h": b"/* */\n", "nvidia/cu13/lib/libcudart.so.13": b"\x7fELF"},
        (),
    ),
}


def toolkit_wheels(folder: Path) -> list[Requirement]:
    return [write_wheel(folder, name, "13.0.88", files, executable) for name, (files, executable) in TOOLKIT_FILES.items()]


@dataclass
class Site:
    """One node's store with a small lock in its wheelhouse."""

    root: Path
    requirements: list[Requirement] = field(default_factory=list)
    toolkit: list[Requirement] = field(default_factory=list)

    @property
    def wheels(self) -> Path:
        return self.root / "wheels"

    @property
    def lock(self) -> Lock:
        return lock_of(self.requirements, self.toolkit)


def small_site(root: Path) -> Site:
    site = Site(root)
    (root / "cache").mkdir(parents=True)
    (root / "stacks").mkdir()
    site.requirements = [
        write_wheel(site.wheels, "alpha", files={"alpha/__init__.py": b"value = 1\n", "alpha/empty.py": b""}),
        # Not every file of a real wheel compiles, and not every one is readable for others.
        write_wheel(site.wheels, "beta", "2.0", {"beta/__init__.py": b"value = 2\n", "beta/template.py": b"def (:\n"}),
    ]
    site.toolkit = toolkit_wheels(site.wheels)
    return site
