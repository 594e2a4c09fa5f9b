# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writing a wheel: a zip file with a METADATA, a WHEEL and a RECORD, equal bytes for equal input."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Mapping
from pathlib import Path

from .releases import Wheel

# The oldest time that a zip file can hold: a wheel must not change with the day it is built on.
_EPOCH = (1980, 1, 1, 0, 0, 0)


def metadata(wheel: Wheel) -> str:
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {wheel.project}",
        f"Version: {wheel.version}",
        "Summary: A stand-in of the lab: real name, version, tags and pins, next to nothing inside",
        f"Requires-Python: {wheel.requires_python}",
        *(f"Provides-Extra: {extra}" for extra in wheel.extras),
        *(f"Requires-Dist: {requirement}" for requirement in wheel.requires),
    ]
    return "\n".join(lines) + "\n"


def _wheel_file(tag: str) -> str:
    python, abi, platforms = tag.split("-")
    tags = [f"Tag: {python}-{abi}-{platform}" for platform in platforms.split(".")]
    pure = "true" if abi == "none" and platforms == "any" else "false"
    return "\n".join(["Wheel-Version: 1.0", "Generator: bwlab", f"Root-Is-Purelib: {pure}", *tags]) + "\n"


def write_wheel(wheel: Wheel, files: Mapping[str, bytes], folder: Path) -> Path:
    """Writes the wheel of these files (path inside the wheel: content) into the folder."""
    info = f"{wheel.project.replace('-', '_')}-{wheel.version}.dist-info"
    members = {
        **files,
        f"{info}/METADATA": metadata(wheel).encode(),
        f"{info}/WHEEL": _wheel_file(wheel.tag).encode(),
    }
    record = []
    path = folder / wheel.filename
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(members, key=lambda n: (n.startswith(info), n)):
            digest = base64.urlsafe_b64encode(hashlib.sha256(members[name]).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(members[name])}")
            _add(archive, name, members[name])
        record.append(f"{info}/RECORD,,")
        _add(archive, f"{info}/RECORD", ("\n".join(record) + "\n").encode())
    return path


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    member = zipfile.ZipInfo(name, _EPOCH)
    member.compress_type = zipfile.ZIP_DEFLATED
    member.create_system = 3
    member.external_attr = (0o100755 if name.endswith(".so") else 0o100644) << 16
    archive.writestr(member, content)


def read_metadata(path: Path) -> bytes:
    """The METADATA file of a wheel, which the index offers beside it."""
    with zipfile.ZipFile(path) as archive:
        names = [n for n in archive.namelist() if n.count("/") == 1 and n.endswith(".dist-info/METADATA")]
        if len(names) != 1:
            raise ValueError(f"{path.name}: found {len(names)} METADATA files, wanted exactly one")
        return archive.read(names[0])
