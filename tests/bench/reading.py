# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The target's side: what reads binaries and model folders."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from statistics import median

from ansible_collections.blackwell.inference.plugins.module_utils._gpu_code import scan_tree
from ansible_collections.blackwell.inference.plugins.module_utils._model import describe
from ansible_collections.blackwell.inference.plugins.module_utils._model_folder import INDEX, read_folder
from ansible_collections.blackwell.inference.tests.unit.sim import cuobjdump_kit
from bwlab.names import cache_dir
from elf_kit import KERNEL, container, elf, entry
from sim.model import write_model
from sim.store import BuildError

from bench.table import Row
from bench.timing import alternate, peak_mb, seconds

COMPRESSED = 0x8000
# Files, units in each, architectures, bytes of one entry: the shape of one real kernel wheel (1.2 GB, 500 units).
SHAPE = (
    (1, 372, ("sm_80", "sm_86", "sm_90a"), 1_000_000),
    (1, 57, ("sm_90a", "sm_100f", "sm_103a"), 140_000),
    (2, 35, ("sm_80", "sm_89", "sm_90", "sm_90a", "sm_100f", "sm_120a"), 58_000),
)
WARM, COLD = "50 ms, 50 MB", "500 ms"


def write_library(path: Path, units: int, names: tuple[str, ...], size: int) -> None:
    """A library whose code is holes: the scanner reads headers, and what lies between them takes no disk."""
    data = bytearray(elf({".nv_fatbin": b""}, ("libcudart.so.13",)))
    entries = [entry(name, KERNEL + bytes(size), COMPRESSED) for name in names]
    body = sum(map(len, entries))
    unit = len(container()) + body
    # The code goes behind the rest, and the first section's header says where.
    (table,) = struct.unpack_from("<Q", data, 40)
    struct.pack_into("<QQ", data, table + 64 + 24, len(data), units * unit)
    with path.open("wb") as file:
        file.write(data)
        for number in range(units):
            at = len(data) + number * unit
            file.seek(at)
            file.write(container()[:8] + struct.pack("<Q", body))
            at += len(container())
            for one in entries:
                file.seek(at)
                file.write(one[: 64 + len(KERNEL)])
                at += len(one)
        file.truncate(len(data) + units * unit)


def write_tree(folder: Path) -> None:
    for number, (files, units, names, size) in enumerate(SHAPE):
        for copy in range(files):
            write_library(folder / f"lib{number}{copy}.so", units, names, size)


def libraries(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*.so*") if path.is_file())


def weight(folder: Path) -> str:
    files = libraries(folder)
    return f"{len(files)} libraries, {sum(path.stat().st_size for path in files) / 1e6:.0f} MB"


def read_all(folder: Path) -> None:
    for path in libraries(folder):
        with path.open("rb", buffering=0) as file:
            while file.read(1 << 20):
                pass


def forget(folder: Path) -> None:
    """Out of the page cache with what these files hold. Names and inodes stay in memory, as on any host that runs."""
    for path in libraries(folder):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def cold_seconds(folder: Path, rounds: int = 5) -> float:
    taken = []
    for _round in range(rounds):
        forget(folder)
        taken.append(seconds(lambda: scan_tree(str(folder))))
    return median(taken)


def unpack_kernels(folder: Path) -> str | None:
    """A kernel wheel to compare on: the real one that `make test-real` fetched, else the lab's own, made by nvcc too."""
    for name, pattern in (
        ("the real kernel wheel", "real/*/sgl*_kernel-*.whl"),
        ("the lab's kernel wheel", "sim/*/files/sglang_kernel-*.whl"),
    ):
        wheels = sorted(cache_dir().glob(pattern), key=lambda path: path.stat().st_mtime)
        if wheels:
            with zipfile.ZipFile(wheels[-1]) as archive:
                archive.extractall(folder, [member for member in archive.namelist() if ".so" in member])
            return name
    return None


def find_cuobjdump() -> str | None:
    try:
        return shutil.which("cuobjdump") or str(cuobjdump_kit.fetch(cache_dir()))
    except BuildError:
        return None


def against_cuobjdump(tree: Path, named: str, cuobjdump: str | None) -> list[Row]:
    coded = [str(tree / name) for name, entry in scan_tree(str(tree)).items() if entry["code"]]
    base, against = None, "cuobjdump --list-elf of each with GPU code"

    def reference() -> None:
        for path in coded:
            subprocess.run([str(cuobjdump), "--list-elf", path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)

    functions: dict[str, Callable[[], object]] = {"scan": lambda: scan_tree(str(tree))}
    try:
        taken = alternate({**functions, "cuobjdump": reference} if cuobjdump else functions, 5)
    except subprocess.CalledProcessError as error:
        taken, cuobjdump = alternate(functions, 5), None
        against += f": not measured, it failed with status {error.returncode}"
    else:
        against += "" if cuobjdump else ": not measured, it is not here and could not be fetched"
    if cuobjdump:
        base = 1e3 * taken["cuobjdump"]
    peak = peak_mb(scan_tree, str(tree))
    return [
        Row(f"scan of {named}, warm", 1e3 * taken["scan"], "ms", base, against, peak, WARM, weight(tree)),
        Row(f"scan of {named}, cold", 1e3 * cold_seconds(tree), goal=COLD, note=weight(tree)),
    ]


def scanner(tree: Path | None, cuobjdump: str | None) -> list[Row]:
    cuobjdump = cuobjdump or find_cuobjdump()
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        made, kernels = Path(name, "made"), Path(name, "kernels")
        made.mkdir()
        write_tree(made)
        taken = alternate({"scan": lambda: scan_tree(str(made)), "read": lambda: read_all(made)}, 5)
        peak = peak_mb(scan_tree, str(made))
        measure = "scan of a tree shaped like one real kernel wheel"
        base = 1e3 * taken["read"]
        rows = [
            Row(f"{measure}, warm", 1e3 * taken["scan"], "ms", base, "reading its files once", peak, WARM, weight(made)),
            Row(f"{measure}, cold", 1e3 * cold_seconds(made), goal=COLD, note=weight(made)),
        ]
        if tree:
            rows += against_cuobjdump(tree, "the tree that was named", cuobjdump)
        elif wheel := unpack_kernels(kernels):
            rows += against_cuobjdump(kernels, wheel, cuobjdump)
        else:
            rows.append(Row("scan of a kernel wheel", note="none is here: make test-real, or make lab-up"))
    return rows


def model_of(path: str) -> None:
    describe(read_folder(path))


def model() -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        write_model(folder, "indexed")
        index = folder / INDEX
        count = len(json.loads(index.read_text(encoding="utf-8"))["weight_map"])
        taken = alternate({"facts": lambda: model_of(name), "json": lambda: json.loads(index.read_bytes())}, 15)
        peak = peak_mb(model_of, name)
    measure = f"model_facts of a folder like Qwen3.6-27B, {count} tensors, warm"
    return [Row(measure, 1e3 * taken["facts"], "ms", 1e3 * taken["json"], "json.load of its index", peak, "500 ms")]
