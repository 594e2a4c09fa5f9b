# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Builds small ELF files with fat binaries in them, byte by byte, as nvcc and the linker lay them out."""

from __future__ import annotations

import struct

KINDS = {"compute": 1, "sm": 2, "lto": 8}
FLAGS = {"": 0x11, "a": 0x100011, "f": 0x200011}
KERNEL = b"\x7fELF....\0.text._Z1kPf\0"
STUB = b"\x7fELF....\0.nv.info\0"


def entry(name: str, payload: bytes = KERNEL, extra: int = 0) -> bytes:
    """One entry: "sm_120a", "compute_90", "lto_120", or with a number for a kind of its own: "64_120"."""
    kind, _underscore, rest = name.partition("_")
    suffix = rest[-1] if rest[-1] in "af" else ""
    arch = int(rest.rstrip("af"))
    payload += b"\0" * (-len(payload) % 8)
    head = struct.pack(
        "<HHIQIIHHIIIQQQ", KINDS.get(kind) or int(kind), 257, 64, len(payload), 0, 0, 8, 1, arch, 0, 0,
        FLAGS[suffix] | extra, 0, 0,
    )  # fmt: skip
    return head + payload


def container(*entries: bytes) -> bytes:
    body = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def elf(
    sections: dict[str, bytes] | None = None, needed: tuple[str, ...] = (), soname: str | None = None, machine: int = 62
) -> bytes:
    """Header, one load segment over the whole file, the dynamic segment, sections, section headers."""
    sections = sections or {}
    strings = b"\0"
    tags = []
    for tag, names in ((1, needed), (14, (soname,) if soname else ())):
        for name in names:
            tags.append((tag, len(strings)))
            strings += name.encode() + b"\0"
    body = bytearray(64 + 2 * 56)
    strings_at = len(body)
    body += strings
    body += b"\0" * (-len(body) % 8)
    dynamic_at = len(body)
    base = 0x400000
    for tag, value in [*tags, (5, base + strings_at), (10, len(strings)), (0, 0)]:
        body += struct.pack("<QQ", tag, value)
    dynamic_size = len(body) - dynamic_at
    placed = []
    names_table = b"\0"
    for name, data in sections.items():
        body += b"\0" * (-len(body) % 8)
        placed.append((len(names_table), 1, len(body), len(data)))
        names_table += name.encode() + b"\0"
        body += data
    placed.append((len(names_table), 3, len(body), len(names_table) + len(b".shstrtab\0")))
    names_table += b".shstrtab\0"
    body += names_table
    body += b"\0" * (-len(body) % 8)
    table_at = len(body)
    body += bytes(64)
    for name_at, kind, offset, size in placed:
        body += struct.pack("<IIQQQQIIQQ", name_at, kind, 0, 0, offset, size, 0, 0, 1, 0)
    count = len(placed) + 1
    body[:64] = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack(
        "<HHIQQQIHHHHHH", 3, machine, 1, 0, 64, table_at, 0, 64, 56, 2, 64, count, count - 1
    )  # fmt: skip
    body[64:120] = struct.pack("<IIQQQQQQ", 1, 5, 0, base, base, len(body), len(body), 4096)
    body[120:176] = struct.pack(
        "<IIQQQQQQ", 2, 6, dynamic_at, base + dynamic_at, base + dynamic_at, dynamic_size, dynamic_size, 8
    )
    return bytes(body)


def fat_elf(*units: tuple[str, ...], padding: int = 8, needed: tuple[str, ...] = ("libcudart.so.13",)) -> bytes:
    """One container for each unit, with padding between them."""
    data = (b"\0" * padding).join(container(*(entry(name) for name in unit)) for unit in units)
    return elf({".text": b"code", ".nv_fatbin": data}, needed)
