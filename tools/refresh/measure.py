# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rows of the measured tables, from an index's files, their metadata and the wheels' own binaries."""

from __future__ import annotations

import email
import fnmatch
import re
import shutil
import tempfile
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ansible_collections.blackwell.inference.plugins.module_utils._gpu_code import scan_file
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import Version

from refresh.client import Client, File, RefreshError

KERNELS = ("sglang-kernel", "sgl-kernel")
MACHINES = ("x86_64", "aarch64")
# The objects that each server loads; the others are for single families of cards (rules.yml names them).
OBJECTS = {**dict.fromkeys(KERNELS, "sgl_kernel/*/common_ops.*"), "torch": "torch/lib/libtorch_cuda.so"}
_MANYLINUX = re.compile(r"manylinux(?:_2_(\d+)|(2014|2010|1))_(.+)")
_OLD_NAMES = {"2014": "17", "2010": "12", "1": "5"}
_CODE = re.compile(r"sm_(\d+[af]?)")

Row = dict[str, Any]


class Wheel:
    """A wheel's file with what its name says."""

    def __init__(self, file: File) -> None:
        _name, self.version, _build, tags = parse_wheel_filename(file.name)
        self.file = file
        self.interpreters = {tag.interpreter for tag in tags}
        self.abis = {tag.abi for tag in tags}
        self.platforms = {tag.platform for tag in tags}

    @property
    def linux(self) -> list[tuple[str, str]]:
        """(machine, glibc) of each manylinux tag."""
        matches = (_MANYLINUX.fullmatch(name) for name in self.platforms)
        return [(match[3], f"2.{match[1] or _OLD_NAMES[match[2]]}") for match in matches if match]

    @property
    def pythons(self) -> list[str]:
        """Those that the wheel is for, apart from builds without the interpreter lock."""
        names = (re.fullmatch(r"cp3(\d+)", name) for name in self.interpreters)
        return [f"3.{match[1]}" for match in names if match and not any(abi.endswith("t") for abi in self.abis)]


def wheels(client: Client, project: str) -> list[Wheel]:
    found = []
    for file in client.project(project):
        try:
            found.append(Wheel(file))
        except InvalidWheelFilename:
            continue
    return found


def of_version(listed: Iterable[Wheel], version: str) -> list[Wheel]:
    return [wheel for wheel in listed if wheel.version == Version(version)]


def newest(listed: Iterable[Wheel], count: int) -> list[str]:
    """The newest final versions, newest first."""
    versions = {wheel.version for wheel in listed if not wheel.version.is_prerelease}
    return [str(version) for version in sorted(versions, reverse=True)[:count]]


def _headers(text: str) -> Any:
    return email.message_from_string(text)


def pins(metadata: str, machine: str = "x86_64") -> dict[str, str]:
    """Name to version of every requirement with one exact version that counts on Linux without an extra."""
    found = {}
    surroundings = {"extra": "", "platform_system": "Linux", "sys_platform": "linux", "platform_machine": machine, "python_version": "3.12"}
    for line in _headers(metadata).get_all("Requires-Dist") or []:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        exact = [entry.version for entry in requirement.specifier if entry.operator == "=="]
        if exact and (requirement.marker is None or requirement.marker.evaluate(surroundings)):
            found[requirement.name.lower().replace("_", "-")] = exact[0]
    return found


def _pin(found: Mapping[str, str], names: Iterable[str], what: str) -> tuple[str, str]:
    for name in names:
        if name in found:
            return name, found[name]
    raise RefreshError(f"{what} pins none of {', '.join(names)}; the tables cannot describe such a release. Look at its metadata.")


def _common(listed: list[Wheel], what: str) -> tuple[list[str], str]:
    """(machines, the least glibc that every one of the wheels runs on)."""
    tags = [tag for wheel in listed for tag in wheel.linux]
    machines = [machine for machine in MACHINES if any(machine == tag[0] for tag in tags)]
    if not machines:
        raise RefreshError(f"{what} has no wheel for Linux on the index.")
    # A wheel with several tags runs where the easiest of them holds.
    least = [min((glibc for _machine, glibc in wheel.linux), key=Version) for wheel in listed if wheel.linux]
    return machines, max(least, key=Version)


def release_row(client: Client, listed: list[Wheel], version: str) -> Row:
    files = of_version(listed, version)
    pure = [wheel for wheel in files if wheel.platforms == {"any"}]
    built = [wheel for wheel in files if wheel.linux]
    if not files:
        raise RefreshError(f"The index has no wheel of sglang {version}. Name another version.")
    text = client.metadata((pure or built)[0].file)
    found, what = pins(text), f"sglang {version}"
    kernel, number = _pin(found, KERNELS, what)
    form: Any = "any"
    if not pure:
        machines, glibc = _common(built, what)
        form = {"pythons": sorted({name for wheel in built for name in wheel.pythons}, key=Version), "machines": machines, "glibc": glibc}
    return {
        # The last one: a lock as of the first would not find the wheels of other Pythons (0.5.11 came over two days).
        "upload": f"{max(wheel.file.upload for wheel in files)[:19]}Z",
        "requires_python": _headers(text)["Requires-Python"],
        "wheels": form,
        "pins": {
            "torch": _pin(found, ["torch"], what)[1],
            "kernel": {"name": kernel, "version": number},
            "flashinfer": _pin(found, ["flashinfer-python"], what)[1],
        },
    }


def kernel_row(client: Client, listed: list[Wheel], package: str, version: str) -> Row:
    what = f"{package} {version}"
    files = [wheel for wheel in of_version(listed, version) if wheel.linux]
    machines, glibc = _common(files, what)
    oldest = min((name for wheel in files for name in wheel.pythons), key=Version)
    return {"python": oldest, "machines": machines, "glibc": glibc, "torch": pins(client.metadata(files[0].file)).get("torch")}


def _cuda(found: Mapping[str, str]) -> str | None:
    """The CUDA release that a torch wheel's own requirements speak of."""
    for name, number in found.items():
        if name == "cuda-toolkit" or re.fullmatch(r"nvidia-cuda-runtime(-cu\d+)?", name):
            return ".".join(number.split(".")[:2])
    return None


def torch_row(client: Client, listed: list[Wheel], version: str) -> Row:
    what = f"torch {version}"
    files = [wheel for wheel in of_version(listed, version) if wheel.linux and wheel.pythons]
    machines, glibc = _common(files, what)
    build, cuda, nccl = {}, None, None
    for machine in machines:
        found = pins(client.metadata(_wheel_for(files, machine).file), machine)
        here = _cuda(found)
        build[machine] = f"cu{here.replace('.', '')}" if here else "cpu"
        cuda = cuda or here
        nccl = nccl or next((number for name, number in found.items() if name.startswith("nvidia-nccl")), None)
    if cuda is None or nccl is None:
        raise RefreshError(f"{what} on the index is not built with CUDA; the tables cannot describe it.")
    return {
        "cuda_major": int(cuda.split(".")[0]),
        "cuda": cuda,
        "build": build,
        "pythons": sorted({name for wheel in files for name in wheel.pythons}, key=Version),
        "glibc": glibc,
        "nccl": nccl,
    }


def _wheel_for(files: list[Wheel], machine: str) -> Wheel:
    """One wheel for the machine: the code inside is the same for every Python, so the newest stands for all."""
    able = [wheel for wheel in files if any(machine == tag[0] for tag in wheel.linux)]
    return max(able, key=lambda wheel: max(Version(name) for name in wheel.pythons))


def code_row(client: Client, package: str, files: list[Wheel], machine: str, known: Mapping[str, Any] | None) -> Row:
    """The code that every unit of the wheel's main objects holds; a wheel is fetched only when its hash is new."""
    file = _wheel_for(files, machine).file
    if known is not None and known.get("sha256") == file.sha256:
        return dict(known)
    row = client.kept(file)
    if row is None:
        path = client.wheel(file)
        try:
            row = scan(path, OBJECTS[package])
        finally:
            path.unlink()
        client.keep(file, row)
    return {**row, "sha256": file.sha256}


def scan(wheel: Path, pattern: str) -> Row:
    held: set[str] | None = None
    majors: set[int] = set()
    with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory(dir=wheel.parent) as folder:
        for member in sorted(name for name in archive.namelist() if fnmatch.fnmatchcase(name, pattern)):
            path = Path(folder) / "object.so"
            with archive.open(member) as source, path.open("wb") as out:
                shutil.copyfileobj(source, out, 1 << 20)
            found = scan_file(str(path))
            if found is None or found["problem"]:
                raise RefreshError(f"{member} of {wheel.name} cannot be read: {found['problem'] if found else 'it is no ELF file'}.")
            majors |= {found["cuda_major"]} if found["cuda_major"] else set()
            for group in found["sets"]:
                here = {match[1] for name in group["archs"] if (match := _CODE.fullmatch(name))}
                held = here if held is None else held & here
    if held is None or len(majors) != 1:
        links = "CUDA " + " and ".join(map(str, sorted(majors))) if majors else "no CUDA library"
        raise RefreshError(
            f"{wheel.name}: found {'no GPU code' if held is None else 'GPU code'} that links {links} in {pattern}; wanted: GPU code "
            "that links one CUDA major. The layout of the wheel may have changed: look inside."
        )
    return {"cuda_major": majors.pop(), "runs": sorted(held, key=lambda name: (int(name.rstrip("af")), name))}
