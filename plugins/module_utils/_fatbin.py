# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which GPU code a binary holds, read from the headers of its fat binaries, and whether that runs on a GPU.

Format as measured (it equals cuobjdump on every library compared): the sections `.nv_fatbin` and `__nv_relfatbin`
hold containers, one for each compiled source file (a unit); a container holds entries, one for each architecture.
cuobjdump hides the family flag, so only the headers tell `sm_100f` from `sm_100`.
"""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import dataclass

from ansible_collections.blackwell.inference.plugins.module_utils._elf import Elf, ElfError, FileReader

SECTIONS = (".nv_fatbin", "__nv_relfatbin")
MAGIC = 0xBA55ED50
MAGIC_BYTES = struct.pack("<I", MAGIC)
KIND_PTX = 1
KIND_ELF = 2
FLAG_ARCHITECTURE = 0x100000
FLAG_FAMILY = 0x200000
FLAG_COMPRESSED = 0x2000 | 0x8000
# nvcc adds one unit that only registers the link: a cubin of some 1,500 bytes without a kernel, made for machine code
# targets alone. It needs nothing on the GPU, so that PTX-only support for an architecture is not "partial" through it.
MAX_STUB = 4096
# Real files stay far below; a hostile one must end.
MAX_CONTAINERS = 200_000
MAX_ENTRIES = 1_000_000
MAX_PADDING = 1 << 20
BLOCK = 4096

# NVIDIA's programming guide: binary code of one minor version runs on higher ones of the same major version, except to,
# from and between integrated (Tegra) GPUs.
INTEGRATED = frozenset({(5, 3), (6, 2), (7, 2), (8, 7), (10, 1), (11, 0)})


@dataclass(frozen=True)
class FileCode:
    """`code`: how many units hold each architecture, as cuobjdump counts them; `units`: those with a kernel in them;
    `sets`: the latter by the whole set of architectures that they hold."""

    code: dict[str, int]
    sets: dict[tuple[str, ...], int]
    units: int
    problem: str | None


def read_code(reader: FileReader, elf: Elf) -> FileCode:
    code: Counter[str] = Counter()
    units: Counter[tuple[str, ...]] = Counter()
    problem: str | None = None
    budget = [MAX_CONTAINERS, MAX_ENTRIES]
    for section in elf.sections:
        if section.name in SECTIONS and section.size:
            try:
                _walk_section(reader, section.offset, section.offset + section.size, code, units, budget)
            except ElfError as broken:
                problem = f"{section.name}: {broken}"
    return FileCode(
        code={name: code[name] for name in sorted(code, key=_order)},
        sets=dict(sorted(units.items())),
        units=sum(units.values()),
        problem=problem,
    )


def _order(name: str) -> tuple[str, int, str]:
    kind, arch, suffix = parse_arch(name)
    return (kind, arch, suffix)


def _walk_section(
    reader: FileReader, start: int, end: int, code: Counter[str], units: Counter[tuple[str, ...]], budget: list[int]
) -> None:
    if end > reader.size:
        raise ElfError(f"it ends at {end}, behind the end of the file")
    at = start
    while True:
        at = _next_container(reader, at, end)
        if at < 0:
            return
        budget[0] -= 1
        if budget[0] < 0:
            raise ElfError(f"more than {MAX_CONTAINERS} fat binaries")
        _magic, _version, header, body = struct.unpack("<IHHQ", reader.read(at, 16))
        if header < 16 or body > end - at - header:
            raise ElfError(f"the fat binary at {at} claims {header} + {body} bytes, {end - at} are left")
        stop = at + header + body
        names, kernels = _read_container(reader, at + header, stop, budget)
        code.update(names)
        if kernels:
            units[tuple(sorted(names, key=_order))] += 1
        at = stop


def _next_container(reader: FileReader, at: int, end: int) -> int:
    """Offset of the next container; padding (zeros) may stand between two. -1 at the end of the section."""
    skipped = 0
    while end - at >= 16:
        head = reader.read(at, 4)
        if head == MAGIC_BYTES:
            return at
        block = reader.read(at, min(BLOCK, end - at))
        used = len(block) - len(block.lstrip(b"\0"))
        # Containers are aligned to 8 bytes; the magic's first byte is not zero.
        step = used - used % 8
        if step == 0:
            raise ElfError(f"at {at} stands neither a fat binary nor padding")
        at += step
        skipped += step
        if skipped > MAX_PADDING:
            raise ElfError(f"more than {MAX_PADDING} bytes of padding at {at}")
    return -1


def _read_container(reader: FileReader, at: int, stop: int, budget: list[int]) -> tuple[set[str], bool]:
    """The distinct architectures in one container, and whether any of its code may hold a kernel."""
    names: set[str] = set()
    kernels = False
    while stop - at >= 64:
        budget[1] -= 1
        if budget[1] < 0:
            raise ElfError(f"more than {MAX_ENTRIES} entries")
        kind, _version, header, size = struct.unpack_from("<HHIQ", head := reader.read(at, 64))
        (arch,) = struct.unpack_from("<I", head, 28)
        (flags,) = struct.unpack_from("<Q", head, 40)
        if header < 64 or size > stop - at - header:
            raise ElfError(f"the entry at {at} claims {header} + {size} bytes, {stop - at} are left")
        if not 10 <= arch <= 9999:
            raise ElfError(f"the entry at {at} names architecture {arch}")
        suffix = "a" if flags & FLAG_ARCHITECTURE else "f" if flags & FLAG_FAMILY else ""
        if kind == KIND_ELF:
            names.add(f"sm_{arch}{suffix}")
            stub = size <= MAX_STUB and not flags & FLAG_COMPRESSED
            kernels = kernels or not (stub and b".text." not in reader.read(at + header, size))
        elif kind == KIND_PTX:
            names.add(f"compute_{arch}{suffix}")
            kernels = True
        at += header + size
    return names, kernels


def parse_arch(name: str) -> tuple[str, int, str]:
    """("sm", 120, "a") of "sm_120a"."""
    kind, separator, rest = name.partition("_")
    suffix = rest[-1:] if rest[-1:] in ("a", "f") else ""
    number = rest[: len(rest) - len(suffix)]
    if kind not in ("sm", "compute") or not separator or not (number.isascii() and number.isdigit()):
        raise ValueError(f"{name!r} is no architecture; wanted something like sm_120, sm_120a, sm_120f or compute_90")
    return kind, int(number), suffix


def parse_capability(capability: str) -> tuple[int, int]:
    major, separator, minor = capability.partition(".")
    if not (separator and major.isascii() and major.isdigit() and minor.isascii() and minor.isdigit()):
        raise ValueError(f"{capability!r} is no compute capability; wanted something like 12.0")
    return int(major), int(minor)


def runs_as(name: str, capability: str) -> str | None:
    """How one architecture's code runs on a GPU: "native", "ptx" (compiled by the driver at load), or not (None)."""
    kind, arch, suffix = parse_arch(name)
    gpu = parse_capability(capability)
    code = divmod(arch, 10)
    how = "native" if kind == "sm" else "ptx"
    if suffix == "a":
        return how if code == gpu else None
    related = code == gpu or not (code in INTEGRATED or gpu in INTEGRATED)
    if suffix == "f" or kind == "sm":
        return how if code[0] == gpu[0] and code[1] <= gpu[1] and related else None
    return how if code <= gpu else None


def set_runs_as(names: tuple[str, ...], capability: str) -> str | None:
    ways = {runs_as(name, capability) for name in names}
    return "native" if "native" in ways else "ptx" if "ptx" in ways else None
