# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes the driver installer file: the installer's script with libraries and programs behind it."""

from __future__ import annotations

import base64
import hashlib
import io
import tarfile
from pathlib import Path

from .. import toolkit
from ..releases import DRIVER_CUDA, DRIVER_VERSION

HERE = Path(__file__).resolve().parent
GPU_SOURCES = HERE.parent / "gpu"
FILENAME = f"NVIDIA-Linux-x86_64-{DRIVER_VERSION}.run"
LIBRARIES = {"libnvidia-ml": "nvml.c", "libcuda": "cuda.c"}
PAYLOAD_MARK = b"\n# PAYLOAD "


def build_library(name: str, folder: Path, defines: dict[str, str] | None = None) -> Path:
    """Compiles one of the two libraries; ``defines`` is for tests, which put its /proc and /dev elsewhere."""
    target = folder / f"{name}.so.{DRIVER_VERSION}"
    macros = {"LAB_VERSION": f'"{DRIVER_VERSION}"', "LAB_CUDA": str(DRIVER_CUDA), **(defines or {})}
    toolkit.compile_c([GPU_SOURCES / LIBRARIES[name], GPU_SOURCES / "lab.c"], target, f"{name}.so.1", macros)
    return target


def script(name: str, interpreter: str = "/usr/bin/python3") -> bytes:
    """A program of the driver, with the driver's version in it."""
    content = (HERE / name).read_bytes().replace(b"@DRIVER_VERSION@", DRIVER_VERSION.encode())
    return f"#!{interpreter}\n".encode() + content


def payload(work: Path) -> bytes:
    """The installer's files: a tar archive with equal bytes for equal content."""
    members = {name: (build_library(name, work).read_bytes(), 0o644) for name in LIBRARIES}
    members["nvidia-modprobe"] = (script("nvidia_modprobe.py"), 0o755)
    members["nvidia-smi"] = (script("nvidia_smi.py"), 0o755)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, (content, mode) in members.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(content), mode
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def write_installer(work: Path, folder: Path) -> Path:
    path = folder / FILENAME
    content = script("installer.py", "/bin/sh") + PAYLOAD_MARK + base64.b64encode(payload(work)) + b"\n"
    path.write_bytes(content)
    path.chmod(0o755)
    digest = hashlib.sha256(content).hexdigest()
    (folder / f"{FILENAME}.sha256").write_text(f"{digest}  {FILENAME}\n", encoding="ascii")
    return path
