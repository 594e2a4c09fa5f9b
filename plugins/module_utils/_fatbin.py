# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which GPU code a binary holds, read from the headers of its fat binaries, and whether that runs on a GPU.

Format as measured: the sections `.nv_fatbin` and `__nv_relfatbin` hold containers, one for each compiled source file (a
unit); a container holds entries, one for each architecture. `__nv_relfatbin` is what the device linker took; what it made
is one more unit of `.nv_fatbin`. What is found equals the lists of `cuobjdump --all-fatbin`, which hides the family flag
of machine code: only the headers tell `sm_100f` from `sm_100`.

Not seen, and neither by cuobjdump: code that a library keeps as plain data (newer cuFFT) or in files of its own (.cubin).
"""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import dataclass, field

from ansible_collections.blackwell.inference.plugins.module_utils._elf import Elf, ElfError, FileReader

LINKED = ".nv_fatbin"
RELOCATABLE = "__nv_relfatbin"
MAGIC = 0xBA55ED50
MAGIC_BYTES = struct.pack("<I", MAGIC)
# No GPU runs LTO-IR: the device linker makes machine code of it. Other kinds were not seen in any library.
KINDS = {1: "compute", 2: "sm", 8: "lto"}
FLAG_ARCHITECTURE = 0x100000
FLAG_FAMILY = 0x200000
FLAG_COMPRESSED = 0x2000 | 0x8000
# nvcc adds one unit that only registers the link: a cubin of some 1,500 bytes without a kernel, made for machine code
# targets alone. It needs nothing on the GPU, so that PTX-only support for an architecture is not "partial" through it.
MAX_STUB = 4096
# Real files stay far below; a hostile one must end, and soon.
MAX_CONTAINERS = 200_000
MAX_ENTRIES = 1_000_000
MAX_PADDING = 1 << 20
MAX_ARCHITECTURES = 256
MAX_SETS = 4_096
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


@dataclass
class _Walk:
    """What was found so far, and what a hostile file may still cost."""

    code: Counter[str] = field(default_factory=Counter)
    units: Counter[frozenset[str]] = field(default_factory=Counter)
    containers: int = 0
    entries: int = 0
    padding: int = 0

    def add(self, names: set[str], kernels: bool) -> None:
        self.code.update(names)
        if kernels:
            self.units[frozenset(names)] += 1
        if len(self.code) > MAX_ARCHITECTURES or len(self.units) > MAX_SETS:
            raise ElfError(f"more than {MAX_ARCHITECTURES} architectures or {MAX_SETS} sets of them")


def read_code(reader: FileReader, elf: Elf) -> FileCode:
    walk = _Walk()
    problem = _walk_sections(reader, elf, LINKED, walk)
    linked = Counter(walk.units)
    problem = _walk_sections(reader, elf, RELOCATABLE, walk) or problem
    sets = {}
    for names, count in walk.units.items():
        # Where linked code stands beside it, relocatable LTO-IR has become part of that.
        counted = linked[names] if linked and any(map(_is_lto, names)) else count
        if counted:
            sets[tuple(sorted(names, key=parse_arch))] = counted
    return FileCode(
        code={name: walk.code[name] for name in sorted(walk.code, key=parse_arch)},
        sets=dict(sorted(sets.items())),
        units=sum(sets.values()),
        problem=problem,
    )


def _is_lto(name: str) -> bool:
    return name.startswith("lto_")


def _walk_sections(reader: FileReader, elf: Elf, name: str, walk: _Walk) -> str | None:
    """What is wrong with the sections of this name; what was found before that is kept."""
    problem = None
    for section in elf.sections:
        if section.name == name and section.size:
            try:
                _walk_section(reader, section.offset, section.offset + section.size, walk)
            except ElfError as broken:
                problem = f"{name}: {broken}"
    return problem


def _walk_section(reader: FileReader, start: int, end: int, walk: _Walk) -> None:
    if end > reader.size:
        raise ElfError(f"it ends at {end}, behind the end of the file")
    at = start
    while True:
        at = _next_container(reader, at, end, walk)
        if at < 0:
            return
        walk.containers += 1
        if walk.containers > MAX_CONTAINERS:
            raise ElfError(f"more than {MAX_CONTAINERS} fat binaries")
        _magic, _version, header, body = struct.unpack("<IHHQ", reader.read(at, 16))
        if header < 16 or body > end - at - header:
            raise ElfError(f"the fat binary at {at} claims {header} + {body} bytes, {end - at} are left")
        stop = at + header + body
        walk.add(*_read_container(reader, at + header, stop, walk))
        at = stop


def _next_container(reader: FileReader, at: int, end: int, walk: _Walk) -> int:
    """Offset of the next container; padding (zeros) may stand between two. -1 at the end of the section."""
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
        walk.padding += step
        if walk.padding > MAX_PADDING:
            raise ElfError(f"more than {MAX_PADDING} bytes of padding at {at}")
    return -1


def _read_container(reader: FileReader, at: int, stop: int, walk: _Walk) -> tuple[set[str], bool]:
    """The distinct architectures in one container, and whether any of its code may hold a kernel."""
    names: set[str] = set()
    kernels = False
    while stop - at >= 64:
        walk.entries += 1
        if walk.entries > MAX_ENTRIES:
            raise ElfError(f"more than {MAX_ENTRIES} entries")
        kind, _version, header, size = struct.unpack_from("<HHIQ", head := reader.read(at, 64))
        (arch,) = struct.unpack_from("<I", head, 28)
        (flags,) = struct.unpack_from("<Q", head, 40)
        if header < 64 or size > stop - at - header:
            raise ElfError(f"the entry at {at} claims {header} + {size} bytes, {stop - at} are left")
        if not 10 <= arch <= 9999:
            raise ElfError(f"the entry at {at} names architecture {arch}")
        if kind in KINDS:
            suffix = "a" if flags & FLAG_ARCHITECTURE else "f" if flags & FLAG_FAMILY else ""
            names.add(f"{KINDS[kind]}_{arch}{suffix}")
        stub = kind == 2 and size <= MAX_STUB and not flags & FLAG_COMPRESSED
        kernels = kernels or not (stub and b".text." not in reader.read(at + header, size))
        at += header + size
    return names, kernels


def parse_arch(name: str) -> tuple[str, int, str]:
    """("sm", 120, "a") of "sm_120a"."""
    kind, separator, rest = name.partition("_")
    suffix = rest[-1:] if rest[-1:] in ("a", "f") else ""
    number = rest[: len(rest) - len(suffix)]
    if kind not in KINDS.values() or not separator or not (number.isascii() and number.isdigit()):
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
    if kind == "lto":
        return None
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
