# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import struct
import tracemalloc
from pathlib import Path

import pytest
from ansible_collections.blackwell.inference.plugins.module_utils import _elf
from ansible_collections.blackwell.inference.plugins.module_utils._elf import Elf, ElfError, FileReader, is_elf, read_elf
from ansible_collections.blackwell.inference.tests.unit.plugins.module_utils.elf_kit import elf
from ansible_collections.blackwell.inference.tests.unit.plugins.module_utils.fuzz_kit import changed, watched, written
from hypothesis import given

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
        (patched(56, "<H", 9_999), "9999 program headers"),
        (elf({}, ("n" * 2_000,)), "does not end within 1024 bytes"),
        (elf({}, ("libx.so",) * 1_100), "names 1100 libraries"),
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


@pytest.mark.parametrize(
    ("data", "answer"),
    [
        (GOOD, True),
        # cut off, but nothing else than such a file
        (b"\x7fELF", True),
        (b"\x7fELF\x02", True),
        (b"\x7fELF\x02\x01", True),
        (b"", False),
        (b"\x7fEL", False),
        (b"INPUT(libncurses.so.6 -ltinfo)", False),
        # for 32-bit processes, for big-endian machines, for macOS
        (GOOD[:4] + b"\x01" + GOOD[5:], False),
        (GOOD[:5] + b"\x02" + GOOD[6:], False),
        (b"\xcf\xfa\xed\xfe" + GOOD[4:], False),
    ],
)
def test_what_a_64_bit_process_here_could_load(tmp_path: Path, data: bytes, answer: bool) -> None:
    (tmp_path / "x.so").write_bytes(data)
    with FileReader(str(tmp_path / "x.so")) as reader:
        assert is_elf(reader) is answer


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.so")
    before = len(os.listdir("/proc/self/fd"))
    for path in (str(tmp_path / "pipe.so"), str(tmp_path), "/dev/zero"):
        with pytest.raises(ElfError, match="no regular file"):
            FileReader(path)
    assert len(os.listdir("/proc/self/fd")) == before


def test_many_long_names_take_little_memory(tmp_path: Path) -> None:
    """65,000 sections that share one name of 4 MB: the names alone would be gigabytes."""
    path = written(tmp_path, shared_name(65_000, 4_000_000))
    tracemalloc.start()
    try:
        with FileReader(path) as reader:
            assert len(read_elf(reader).sections) == 64_999
        assert tracemalloc.get_traced_memory()[1] < 40 << 20
    finally:
        tracemalloc.stop()


def shared_name(sections: int, length: int) -> bytes:
    names = b"n" * length + b"\0"
    head = bytearray(GOOD[:64])
    struct.pack_into("<QQ", head, 32, 0, 64 + len(names))
    struct.pack_into("<HHHHH", head, 54, 0, 0, 64, sections, sections - 1)
    row = struct.pack("<IIQQQQIIQQ", 0, 1, 0, 0, 64, len(names), 0, 0, 1, 0)
    return bytes(head) + names + bytes(64) + row * (sections - 1)


@given(changed(GOOD))
def test_changed_files_never_crash_hang_or_read_outside(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    with watched() as watch, FileReader(written(tmp_path_factory.getbasetemp(), data)) as reader:
        try:
            found = read_elf(reader)
        except ElfError:
            found = None
        assert watch.reads <= 8 + _elf.MAX_NEEDED
        if found:
            assert all(section.offset + section.size <= reader.size for section in found.sections if section.kind != 8)
