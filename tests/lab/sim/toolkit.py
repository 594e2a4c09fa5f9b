# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The real wheels of packages.lock, and the CUDA compiler made of some of them.

The compiler of the machine is never used: a user's machine has none, so it must not be what makes a test pass.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .store import BuildError, build_once

LOCK = Path(__file__).parent / "packages.lock"
_LINE = re.compile(
    r"(?P<project>[a-z0-9-]+)==(?P<version>\S+) --hash=sha256:(?P<sha256>[0-9a-f]{64})"
    r"  # (?P<filename>\S+\.whl) (?P<size>\d+) (?P<upload_time>\S+Z) (?P<requires_python>\S+)"
)
_COMPILER_PARTS = ("nvidia-cuda-nvcc", "nvidia-cuda-crt", "nvidia-nvvm", "nvidia-cuda-runtime")


@dataclass(frozen=True)
class Package:
    """One line of packages.lock."""

    project: str
    version: str
    sha256: str
    filename: str
    size: int
    upload_time: str
    requires_python: str | None


def parse_lock(text: str) -> list[Package]:
    packages = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if not match:
            raise BuildError(f"packages.lock line {number}: found {line[:60]!r}, wanted the form of its neighbours")
        values = match.groupdict()
        python = values["requires_python"]
        packages.append(
            Package(
                **{k: values[k] for k in ("project", "version", "sha256", "filename", "upload_time")},
                size=int(values["size"]),
                requires_python=None if python == "-" else python,
            )
        )
    return packages


def download(lock: Path, folder: Path) -> None:
    """Fetches every wheel of a lock, by hash."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary=:all:", "--require-hashes", "--python-version", "3.13", "--implementation", "cp"]
    command += [f"--abi={abi}" for abi in ("cp313", "abi3", "none")]
    command += [f"--platform=manylinux{name}_x86_64" for name in ("2014", "_2_28", "2010")]
    result = subprocess.run([*command, "--dest", str(folder), "--requirement", str(lock)], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise BuildError(
            f"pip could not fetch the wheels of {lock.name}; wanted: all of them, by hash. "
            f"Check the network and pip's configuration. pip said: {result.stderr.strip()[-1500:]}"
        )
    for package in parse_lock(lock.read_text(encoding="utf-8")):
        path = folder / package.filename
        found = hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else "no such file"
        if found != package.sha256:
            raise BuildError(f"{package.filename}: found {found}, wanted sha256 {package.sha256} as in {lock.name}")


def fetch_packages(cache: Path) -> Path:
    """The folder that holds the real wheels, fetched when it is not there."""
    key = hashlib.sha256(LOCK.read_bytes()).hexdigest()[:16]
    return build_once(cache, "packages", key, lambda folder: download(LOCK, folder))


def unpack_compiler(cache: Path, packages: Path) -> Path:
    """The prefix of a CUDA toolkit with just what compiling for many architectures needs."""
    parts = [p for p in parse_lock(LOCK.read_text(encoding="utf-8")) if p.project in _COMPILER_PARTS]
    key = hashlib.sha256("".join(p.sha256 for p in parts).encode()).hexdigest()[:16]

    def unpack(folder: Path) -> None:
        for part in parts:
            with zipfile.ZipFile(packages / part.filename) as archive:
                archive.extractall(folder)
        for name in ("bin", "nvvm/bin"):  # zipfile forgets permissions
            for path in (folder / "nvidia" / "cu13" / name).iterdir():
                path.chmod(0o755)

    return build_once(cache, "toolkit", key, unpack) / "nvidia" / "cu13"


def require_host_compilers() -> None:
    missing = [name for name in ("gcc", "g++") if shutil.which(name) is None]
    if missing:
        raise BuildError(f"{', '.join(missing)}: not found; the lab compiles C and C++. Install gcc and g++")


def compile_unit(prefix: Path, source: Path, architectures: Sequence[str], target: Path) -> None:
    """Compiles one CUDA file for exactly these architectures, machine code only (no PTX)."""
    nvcc = prefix / "bin" / "nvcc"
    if "site-packages" in str(nvcc) or not nvcc.is_relative_to(prefix) or str(nvcc).startswith("/usr/"):
        raise BuildError(f"{nvcc} is not the lab's own compiler")
    codes = [f"--generate-code=arch=compute_{arch},code=sm_{arch}" for arch in architectures]
    # A bare environment: nvcc looks at PATH, CUDA_HOME and NVCC_*_FLAGS, and none of them may lead it elsewhere.
    environment = {"PATH": "/usr/bin:/bin", "TMPDIR": str(target.parent), "LC_ALL": "C"}
    _run(
        [nvcc, "--compile", "--compiler-options=-fPIC", "--threads=2", *codes, source, "--output-file", target],
        environment,
        target.parent,
    )


def link_library(prefix: Path, objects: Sequence[Path], target: Path) -> None:
    # An object may be named several times, hence muldefs: what counts is the container of GPU code that each copy brings.
    command: list[str | Path] = ["g++", "-shared", "-s", "-Wl,--build-id=none,-z,muldefs", *objects, "-o", target]
    command += [f"-L{prefix / 'lib'}", "-l:libcudart.so.13"]
    _run(command, {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}, target.parent)


def compile_c(sources: Sequence[Path], target: Path, soname: str, defines: dict[str, str]) -> None:
    """One of the simulated driver's libraries."""
    macros = [f"-D{name}={value}" for name, value in defines.items()]
    command = ["gcc", "-std=c11", "-O1", "-s", "-Wall", "-Wextra", "-Werror", "-fPIC", "-fvisibility=hidden", "-shared"]
    _run([*command, f"-Wl,-soname,{soname}", *macros, *sources, "-o", target], dict(os.environ), target.parent)


def _run(command: Sequence[str | Path], environment: dict[str, str], folder: Path) -> None:
    words = [str(word) for word in command]
    result = subprocess.run(words, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise BuildError(f"{Path(words[0]).name} failed ({result.returncode}): {' '.join(words)}\n{result.stderr[-3000:]}")
