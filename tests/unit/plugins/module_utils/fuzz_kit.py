# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hostile binaries: changed files, made-up fat binaries, and a watch over what is read of them."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from unittest import mock

from ansible_collections.blackwell.inference.tests.unit.plugins.module_utils.elf_kit import KERNEL, STUB, elf
from hypothesis import strategies as st

FORMS = ("<B", "<H", "<I", "<Q")
# What breaks arithmetic: nothing, signs, and the edges of each width.
EDGES = (0, 1, 7, 8, 15, 16, 63, 64, 0x7F, 0xFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)


def changed(good: bytes) -> st.SearchStrategy[bytes]:
    """The file with some of its fields overwritten, and often cut off or made longer."""
    size = len(good)
    values = st.one_of(st.sampled_from(EDGES), st.integers(0, 2 * size), st.integers(0, (1 << 64) - 1))
    patch = st.tuples(st.integers(0, size - 1), st.sampled_from(FORMS), values)

    def build(patches: list[tuple[int, str, int]], keep: int, tail: bytes) -> bytes:
        data = bytearray(good)
        for at, form, value in patches:
            width = struct.calcsize(form)
            data[at : at + width] = struct.pack(form, value & ((1 << 8 * width) - 1))
        return bytes(data[:keep]) + tail

    keep = st.one_of(st.just(size), st.integers(0, size))
    return st.builds(build, st.lists(patch, min_size=1, max_size=12), keep, st.binary(max_size=64))


def _make_up(seed: int) -> bytes:
    """An object whose fat binaries are right in most fields and wrong in some."""
    random = Random(seed)

    def mostly(right: int, bits: int) -> int:
        if random.random() < 0.85:
            return right
        return random.choice((random.choice(EDGES), random.randrange(512), random.getrandbits(bits))) & ((1 << bits) - 1)

    def entry() -> bytes:
        payload = random.choice((KERNEL, STUB, random.randbytes(random.randrange(96))))
        kind, arch = random.choice((1, 2, 8)), random.choice((90, 100, 120))
        flags = random.choice((0x11, 0x100011, 0x200011, 0x8011))
        head = (mostly(kind, 16), 257, mostly(64, 32), mostly(len(payload), 64), 0, 0, 8, 1, mostly(arch, 32), 0, 0)
        return struct.pack("<HHIQIIHHIIIQQQ", *head, mostly(flags, 64), 0, 0) + payload

    def container() -> bytes:
        body = b"".join(entry() for _count in range(random.randrange(4)))
        head = struct.pack("<IHHQ", mostly(0xBA55ED50, 32), 1, mostly(16, 16), mostly(len(body), 64))
        return head + body + bytes(random.choice((0, 0, 1, 8, 24, 4096)))

    names = random.choice(((".nv_fatbin",), ("__nv_relfatbin",), (".nv_fatbin", "__nv_relfatbin")))
    return elf({name: b"".join(container() for _count in range(random.randrange(5))) for name in names})


# One number an example: drawing each field by itself takes ten times as long.
made_up = st.integers(0, (1 << 64) - 1).map(_make_up)


class Watch:
    """Counts the reads of a file and refuses those that reach outside it."""

    def __init__(self) -> None:
        self.reads = 0
        self._pread = os.pread

    def read(self, descriptor: int, length: int, offset: int) -> bytes:
        self.reads += 1
        assert offset >= 0 and offset + length <= os.fstat(descriptor).st_size
        return self._pread(descriptor, length, offset)


@contextmanager
def watched() -> Iterator[Watch]:
    watch = Watch()
    with mock.patch.object(os, "pread", watch.read):
        yield watch


def written(folder: Path, data: bytes) -> str:
    path = folder / "hostile.so"
    path.write_bytes(data)
    return str(path)
