# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A bounded reader of 64-bit little-endian ELF files: section headers and what the loader needs, nothing else.

Reads by pread and never maps the file: a file that shrinks while it is read gives an error, not a SIGBUS.
"""

from __future__ import annotations

import os
import stat
import struct
from dataclasses import dataclass
from types import TracebackType

MAX_SECTIONS = 65_536
MAX_PROGRAM_HEADERS = 4_096
MAX_STRINGS = 4 << 20
MAX_DYNAMIC = 65_536
MAX_NEEDED = 1_024
MAX_NAME = 1_024
# Names of sections are only compared with the few that are looked for; an object may have tens of thousands.
SECTION_NAME = 32

PT_LOAD = 1
PT_DYNAMIC = 2
SHT_NOBITS = 8
DT_NEEDED = 1
DT_STRTAB = 5
DT_STRSZ = 10
DT_SONAME = 14


class ElfError(Exception):
    """The file is no ELF file that can be read; the message says why."""


class FileReader:
    """Reads at offsets, and refuses what lies outside the file."""

    def __init__(self, path: str) -> None:
        # Opening a FIFO that nobody writes to would wait for ever.
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            status = os.fstat(self._fd)
            if not stat.S_ISREG(status.st_mode):
                raise ElfError("it is no regular file")
            # Headers lie far apart: without this the kernel reads ahead megabytes for each of them.
            os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_RANDOM)
        except BaseException:
            os.close(self._fd)
            raise
        self.size = status.st_size

    def read(self, offset: int, length: int) -> bytes:
        if offset < 0 or length < 0 or offset + length > self.size:
            raise ElfError(f"{length} bytes at {offset} lie outside the file of {self.size} bytes")
        data = os.pread(self._fd, length, offset)
        if len(data) != length:
            raise ElfError(f"the file ended while {length} bytes at {offset} were read")
        return data

    def __enter__(self) -> FileReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._fd)


@dataclass(frozen=True)
class Section:
    """`name` is cut after SECTION_NAME bytes."""

    name: str
    kind: int
    offset: int
    size: int


@dataclass(frozen=True)
class Elf:
    machine: int
    sections: tuple[Section, ...]
    needed: tuple[str, ...]
    soname: str | None


def is_elf(reader: FileReader) -> bool:
    """Whether a 64-bit process here could load it. Linker scripts and objects for 32-bit processes are named .so too."""
    head = reader.read(0, min(6, reader.size))
    return len(head) >= 4 and b"\x7fELF\x02\x01".startswith(head)


def read_elf(reader: FileReader) -> Elf:
    if reader.size < 64:
        raise ElfError(f"{reader.size} bytes are too few for an ELF header")
    head = reader.read(0, 64)
    if head[:4] != b"\x7fELF":
        raise ElfError("it does not begin with the ELF magic")
    if head[4] != 2 or head[5] != 1:
        raise ElfError("it is not a 64-bit little-endian ELF file")
    (machine,) = struct.unpack_from("<H", head, 18)
    program_offset, section_offset = struct.unpack_from("<QQ", head, 32)
    program_size, program_count, section_size, section_count, name_index = struct.unpack_from("<HHHHH", head, 54)
    sections = _read_sections(reader, section_offset, section_size, section_count, name_index)
    needed, soname = _read_dynamic(reader, program_offset, program_size, program_count)
    return Elf(machine, sections, needed, soname)


def _read_sections(
    reader: FileReader, offset: int, size: int, count: int, name_index: int
) -> tuple[Section, ...]:
    if offset == 0:
        return ()
    if size != 64:
        raise ElfError(f"section headers of {size} bytes, not 64")
    if count == 0 or name_index == 0xFFFF:
        # Extended numbering: the first header holds what does not fit into 16 bits.
        first = reader.read(offset, 64)
        if count == 0:
            (count,) = struct.unpack_from("<Q", first, 32)
        if name_index == 0xFFFF:
            (name_index,) = struct.unpack_from("<I", first, 40)
    if count > MAX_SECTIONS:
        raise ElfError(f"{count} sections, more than {MAX_SECTIONS}")
    if count == 0:
        return ()
    rows = list(struct.iter_unpack("<IIQQQQIIQQ", reader.read(offset, 64 * count)))
    if name_index >= count:
        raise ElfError(f"section {name_index} should hold the names, but there are {count} sections")
    _name, _kind, _flags, _address, names_at, names_size = rows[name_index][:6]
    if names_size > MAX_STRINGS:
        raise ElfError(f"section names of {names_size} bytes, more than {MAX_STRINGS}")
    names = reader.read(names_at, names_size)
    found = []
    for row in rows:
        name, kind, _flags, _address, start, length = row[:6]
        if kind == 0:
            continue
        if name >= len(names):
            raise ElfError(f"a section's name lies at {name}, outside its string table of {len(names)} bytes")
        text = names[name : name + SECTION_NAME].partition(b"\0")[0].decode("utf-8", "replace")
        if kind != SHT_NOBITS and start + length > reader.size:
            raise ElfError(f"section {text} ends at {start + length}, behind the end of the file")
        found.append(Section(text, kind, start, length))
    return tuple(found)


def _read_dynamic(reader: FileReader, offset: int, size: int, count: int) -> tuple[tuple[str, ...], str | None]:
    """NEEDED and SONAME by way of the program headers, as the loader finds them."""
    if offset == 0 or count == 0:
        return (), None
    if size != 56:
        raise ElfError(f"program headers of {size} bytes, not 56")
    if count > MAX_PROGRAM_HEADERS:
        raise ElfError(f"{count} program headers, more than {MAX_PROGRAM_HEADERS}")
    loads: list[tuple[int, int, int]] = []
    dynamic: tuple[int, int] | None = None
    for kind, _flags, start, address, _physical, length, _memory, _align in struct.iter_unpack(
        "<IIQQQQQQ", reader.read(offset, 56 * count)
    ):
        if kind == PT_LOAD:
            loads.append((address, start, length))
        elif kind == PT_DYNAMIC:
            dynamic = (start, length)
    if dynamic is None:
        return (), None
    start, length = dynamic
    if length > 16 * MAX_DYNAMIC:
        raise ElfError(f"a dynamic section of {length} bytes, more than {16 * MAX_DYNAMIC}")
    entries: list[tuple[int, int]] = []
    for tag, value in struct.iter_unpack("<QQ", reader.read(start, length - length % 16)):
        if tag == 0:
            break
        entries.append((tag, value))
    tags = dict(entries)
    names = [value for tag, value in entries if tag == DT_NEEDED]
    if len(names) > MAX_NEEDED:
        raise ElfError(f"it names {len(names)} libraries, more than {MAX_NEEDED}")
    if not names and DT_SONAME not in tags:
        return (), None
    if DT_STRTAB not in tags or DT_STRSZ not in tags:
        raise ElfError("it names libraries but has no string table for them")
    if tags[DT_STRSZ] > MAX_STRINGS * 16:
        raise ElfError(f"dynamic strings of {tags[DT_STRSZ]} bytes, more than {MAX_STRINGS * 16}")
    table = _Strings(reader, _file_offset(loads, tags[DT_STRTAB]), tags[DT_STRSZ])
    soname = table.at(tags[DT_SONAME]) if DT_SONAME in tags else None
    return tuple(table.at(value) for value in names), soname


class _Strings:
    """A string table that may be large (C++ symbols): only the names asked for are read."""

    def __init__(self, reader: FileReader, offset: int, size: int) -> None:
        self._reader, self._offset, self._size = reader, offset, size

    def at(self, where: int) -> str:
        if where >= self._size:
            raise ElfError(f"a name lies at {where}, outside its string table of {self._size} bytes")
        name, end, _rest = self._reader.read(self._offset + where, min(MAX_NAME, self._size - where)).partition(b"\0")
        if not end:
            raise ElfError(f"a name at {where} does not end within {MAX_NAME} bytes or its string table")
        return name.decode("utf-8", "replace")


def _file_offset(loads: list[tuple[int, int, int]], address: int) -> int:
    for base, start, length in loads:
        if base <= address < base + length:
            return start + address - base
    raise ElfError(f"address {address:#x} lies in no loaded segment")
