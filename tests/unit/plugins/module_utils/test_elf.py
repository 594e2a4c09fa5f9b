# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from ansible_collections.blackwell.inference.plugins.module_utils._elf import Elf, ElfError, FileReader, is_elf, read_elf
from ansible_collections.blackwell.inference.tests.unit.plugins.module_utils.elf_kit import elf
from hypothesis import given, settings
from hypothesis import strategies as st

GOOD = elf({".text": b"abc", ".nv_fatbin": b"12345678"}, ("libcudart.so.13", "libc.so.6"), "libx.so.1")


def read(path: Path, data: bytes) -> Elf:
    path.write_bytes(data)
    with FileReader(str(path)) as reader:
        return read_elf(reader)


def test_reads_sections_needed_and_soname(tmp_path: Path) -> None:
    found = read(tmp_path / "x.so", GOOD)
    assert [section.name for section in found.sections] == [".text", ".nv_fatbin", ".shstrtab"]
    assert found.needed == ("libcudart.so.13", "libc.so.6")
    assert (found.soname, found.machine) == ("libx.so.1", 62)


def test_a_file_without_section_headers_still_tells_its_libraries(tmp_path: Path) -> None:
    stripped = bytearray(GOOD)
    struct.pack_into("<Q", stripped, 40, 0)
    found = read(tmp_path / "x.so", bytes(stripped))
    assert found.sections == ()
    assert found.needed == ("libcudart.so.13", "libc.so.6")


def test_the_running_interpreter(tmp_path: Path) -> None:
    with FileReader("/proc/self/exe") as reader:
        assert is_elf(reader)
        assert any(name.startswith("libc.so") for name in read_elf(reader).needed)


def patched(at: int, form: str, value: int) -> bytes:
    data = bytearray(GOOD)
    struct.pack_into(form, data, at, value)
    return bytes(data)


TABLE = struct.unpack_from("<Q", GOOD, 40)[0]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"\x7fELF", "too few"),
        (b"GARB" + GOOD[4:], "magic"),
        (GOOD[:4] + b"\x01" + GOOD[5:], "64-bit"),
        (GOOD[:5] + b"\x02" + GOOD[6:], "little-endian"),
        (GOOD[:-64], "outside the file"),
        (patched(40, "<Q", 1 << 60), "outside the file"),
        (patched(58, "<H", 40), "section headers of 40 bytes"),
        (patched(62, "<H", 99), "section 99 should hold the names"),
        (patched(TABLE + 64, "<I", 1 << 30), "outside its string table"),
        (patched(TABLE + 64 + 32, "<Q", 1 << 50), "behind the end"),
        (patched(TABLE + 3 * 64 + 32, "<Q", 1 << 30), "section names of"),
        (patched(54, "<H", 32), "program headers of 32 bytes"),
        (patched(64 + 16, "<Q", 0x900000), "no loaded segment"),
        (patched(120 + 32, "<Q", 1 << 40), "a dynamic section of"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, data: bytes, says: str) -> None:
    with pytest.raises(ElfError, match=says):
        read(tmp_path / "x.so", data)


def test_extended_numbering(tmp_path: Path) -> None:
    data = bytearray(GOOD)
    count, names = struct.unpack_from("<HH", data, 60)
    struct.pack_into("<HH", data, 60, 0, 0xFFFF)
    struct.pack_into("<Q", data, TABLE + 32, count)
    struct.pack_into("<I", data, TABLE + 40, names)
    assert len(read(tmp_path / "x.so", bytes(data)).sections) == 3


def test_a_file_that_shrinks_is_an_error_not_a_signal(tmp_path: Path) -> None:
    path = tmp_path / "x.so"
    path.write_bytes(GOOD)
    with FileReader(str(path)) as reader:
        path.write_bytes(GOOD[:70])
        with pytest.raises(ElfError, match="ended while"):
            read_elf(reader)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(GOOD) - 1), st.integers(0, 255)), min_size=1, max_size=12), st.integers(0, len(GOOD)))
def test_mutated_files_never_crash(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int]], keep: int
) -> None:
    data = bytearray(GOOD)
    for at, value in changes:
        data[at] = value
    for text in (bytes(data), bytes(data[:keep])):
        path = tmp_path_factory.getbasetemp() / "mutated.so"
        path.write_bytes(text)
        with FileReader(str(path)) as reader:
            try:
                found = read_elf(reader)
            except ElfError:
                continue
            assert all(section.offset + section.size <= reader.size for section in found.sections if section.kind != 8)
