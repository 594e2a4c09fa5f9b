# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds what the lab simulates: ``python3 -m sim.build all CACHE | hardware FOLDER NODE | model FOLDER``."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

from . import driver, toolkit
from .catalog import Catalog, entry_of_built, entry_of_package
from .hardware import PROFILES, write_hardware
from .model import write_model
from .releases import WHEELS, Unit, Wheel, without_code_for
from .store import BuildError, build_once
from .wheels import write_wheel

__all__ = ["BuildError", "build_all", "write_hardware", "write_model"]

HERE = Path(__file__).resolve().parent
# Where the sources of each package of a wheel lie; the engine is a folder of its own because tests import it too.
_SOURCES = {name: HERE / "packages" / name for name in ("torch", "sgl_kernel", "flashinfer", "flashinfer_cubin")}
_SOURCES["sglang"] = HERE / "engine"
# What does not end up in anything built.
_NOT_BUILT = {"README.md", "index.py", "fault.py", "container_fault.py", "hardware.py", "model.py", "model_tensors.py"}


def recipe_key() -> str:
    """Changes with every source file that takes part in the build."""
    digest = hashlib.sha256()
    for path in sorted(p for p in HERE.rglob("*") if p.is_file() and "__pycache__" not in p.parts):
        if path.name not in _NOT_BUILT:
            content = path.read_bytes()
            digest.update(f"{path.relative_to(HERE)} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:16]


def package_files(wheel: Wheel) -> dict[str, bytes]:
    """The Python sources of a wheel, with its version filled in; of the engine's flag lists, the one of its release."""
    files = {}
    source = _SOURCES[wheel.package]
    for path in sorted(source.rglob("*.py")):
        text = path.read_text(encoding="utf-8").replace("@VERSION@", wheel.version).replace("@CUDA@", wheel.cuda)
        files[f"{wheel.package}/{path.relative_to(source)}"] = text.encode()
    if wheel.package == "sglang":
        files["sglang/flags.txt"] = (source / f"flags-{wheel.version}.txt").read_bytes()
    return files


class _Libraries:
    """Libraries with GPU code. Each set of architectures is compiled once, however many libraries want it."""

    def __init__(self, prefix: Path, work: Path) -> None:
        self._prefix, self._work = prefix, work

    def _object(self, architectures: tuple[str, ...]) -> Path:
        target = self._work / ("unit-" + "-".join(architectures) + ".o")
        if not target.exists():
            toolkit.compile_unit(self._prefix, HERE / "unit.cu", architectures, target)
        return target

    def library(self, units: Iterable[Unit]) -> bytes:
        objects = [self._object(architectures) for count, architectures in units for _ in range(count)]
        target = self._work / "library.so"
        toolkit.link_library(self._prefix, objects, target)
        return target.read_bytes()


def _build_wheel(wheel: Wheel, libraries: _Libraries, folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    code = {path: libraries.library(units) for path, units in wheel.code.items()}
    return write_wheel(wheel, {**package_files(wheel), **code}, folder)


def _build(folder: Path, cache: Path) -> None:
    packages = toolkit.fetch_packages(cache)
    prefix = toolkit.unpack_compiler(cache, packages)
    work = folder / "work"
    work.mkdir()
    libraries = _Libraries(prefix, work)
    catalog = Catalog()
    for package in toolkit.parse_lock(toolkit.LOCK.read_text(encoding="utf-8")):
        (folder / "files").mkdir(exist_ok=True)
        os.link(packages / package.filename, folder / "files" / package.filename)
        catalog.add(entry_of_package(package, folder))
    for wheel in WHEELS:
        _build_wheel(wheel, libraries, folder / "files")
        catalog.add(entry_of_built(wheel, folder, "files"))
        if wheel.project == "sglang-kernel":
            _build_wheel(without_code_for(wheel, "120"), libraries, folder / "wrong")
            catalog.replace_in_wrong_channel(entry_of_built(wheel, folder, "wrong"))
    (folder / "driver").mkdir()
    driver.write_installer(work, folder / "driver")
    shutil.rmtree(work)
    (folder / "catalog.json").write_text(json.dumps(catalog.as_json(), indent=1) + "\n", encoding="utf-8")


def build_all(cache: Path) -> Path:
    """Wheels, driver file and catalogue of the package index. Returns their folder; seconds when nothing changed."""
    toolkit.require_host_compilers()
    return build_once(cache, "sim", recipe_key(), lambda folder: _build(folder, cache))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="sim.build", description="Build what the lab simulates.")
    commands = parser.add_subparsers(dest="command", required=True)
    everything = commands.add_parser("all", help="wheels, driver file and index catalogue; prints their folder")
    everything.add_argument("cache", type=Path)
    hardware = commands.add_parser("hardware", help="the cards of one node")
    hardware.add_argument("folder", type=Path)
    hardware.add_argument("node")
    hardware.add_argument("--gpus", type=int, default=8)
    hardware.add_argument("--profile", choices=sorted(PROFILES), default="rtx-pro-6000")
    model = commands.add_parser("model", help="the model folder")
    model.add_argument("folder", type=Path)
    options = parser.parse_args(arguments)
    try:
        if options.command == "all":
            print(build_all(options.cache))
        elif options.command == "hardware":
            write_hardware(options.folder, options.node, options.gpus, options.profile)
        else:
            write_model(options.folder)
    except BuildError as error:
        print(f"sim.build: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
