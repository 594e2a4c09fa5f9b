# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads the header of a safetensors file and checks every claim in it against the file's size. Never reads a tensor."""

from __future__ import annotations

import errno
import json
import math
import os
import stat
import struct
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeGuard

# The format's own limit (safetensors, MAX_HEADER_SIZE).
MAX_HEADER = 100_000_000
MAX_DIMENSIONS = 64
_INTEGER = frozenset((int,))
LFS_MAGIC = b"version https://git-lfs"
KINDS = {
    stat.S_IFDIR: "a folder", stat.S_IFIFO: "a named pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}  # fmt: skip

# Bits an element, by the format's names.
DTYPES = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32,
    "I64": 64, "U64": 64, "F64": 64, "C64": 64,
}  # fmt: skip


class Tensor(NamedTuple):
    dtype: str
    elements: int
    bytes: int


@dataclass
class Header:
    tensors: dict[str, Tensor] = field(default_factory=dict)
    # Damage by kind: (code, sentence). Empty means that every tensor named lies whole in the file.
    faults: list[tuple[str, str]] = field(default_factory=list)
    size: int = 0

    @property
    def truncated(self) -> bool:
        return any(code in ("truncated", "empty", "lfs_pointer") for code, _text in self.faults)

    @property
    def damaged(self) -> bool:
        """Whether its names may not be all: bytes that belong to no tensor hide none."""
        return any(code != "gap" for code, _text in self.faults)

    @property
    def absent(self) -> bool:
        return any(code == "dangling_link" for code, _text in self.faults)


class _Duplicate(ValueError):
    pass


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for name, _value in pairs:
            if name in seen:
                raise _Duplicate(name)
            seen.add(name)
    return found


def loads_strict(text: str) -> Any:
    """JSON from an untrusted file. ValueError for everything that it may be instead of JSON."""
    try:
        return json.loads(text, object_pairs_hook=_unique)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def open_regular(path: str) -> tuple[int, os.stat_result]:
    """A descriptor of a regular file. A pipe or a device in its place is refused before it can block; OSError says why."""
    _require_regular(os.stat(path))
    # Whoever swaps the file for a pipe after the look does not stop us either.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        found = os.fstat(fd)
        _require_regular(found)
    except OSError:
        os.close(fd)
        raise
    return fd, found


def _require_regular(found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        kind = KINDS.get(stat.S_IFMT(found.st_mode), "something else")
        raise OSError(errno.EINVAL, f"it is {kind}, not a file")


def read_header(path: str) -> Header:
    header = Header()
    try:
        fd, found = open_regular(path)
    except FileNotFoundError:
        header.faults.append(_absent(path))
        return header
    except OSError as denied:
        header.faults.append(("unreadable", f"it cannot be opened: {denied.strerror}"))
        return header
    try:
        header.size = found.st_size
        start = os.pread(fd, 64, 0)
        length = _header_length(header, start)
        if length is not None:
            text = os.pread(fd, length, 8)
            if len(text) != length:
                header.faults.append(("truncated", "the file ended while its header was read"))
            else:
                _parse(header, text, header.size - 8 - length)
    except OSError as broken:
        header.faults.append(("unreadable", f"it cannot be read: {broken.strerror}"))
    finally:
        os.close(fd)
    return header


def _absent(path: str) -> tuple[str, str]:
    try:
        return "dangling_link", f"it is a link to {os.readlink(path):.300}, which is not there"
    except OSError:
        return "unreadable", "it is gone"


def _header_length(header: Header, start: bytes) -> int | None:
    if header.size == 0:
        header.faults.append(("empty", "the file has no bytes"))
    elif start.startswith(LFS_MAGIC):
        header.faults.append(("lfs_pointer", "it is a Git LFS pointer, not the file itself"))
    elif len(start) < 8:
        header.faults.append(("truncated", f"the file has {header.size} bytes, too few for a header"))
    else:
        (length,) = struct.unpack("<Q", start[:8])
        if length > MAX_HEADER:
            header.faults.append(("bad_header", f"its header claims {length} bytes, more than {MAX_HEADER}"))
        elif length > header.size - 8:
            header.faults.append(("truncated", f"its header claims {length} bytes, the file has {header.size}"))
        else:
            return int(length)
    return None


def _parse(header: Header, text: bytes, room: int) -> None:
    try:
        entries = loads_strict(text.decode("utf-8"))
    except _Duplicate as twice:
        header.faults.append(("duplicate_tensor", f"its header names {str(twice)!r:.200} twice"))
        return
    except ValueError as broken:
        header.faults.append(("bad_header", f"its header is not JSON: {broken}"))
        return
    if not isinstance(entries, dict):
        header.faults.append(("bad_header", "its header is not a JSON object"))
        return
    spans: list[tuple[int, int, str]] = []
    # A model has thousands of tensors of few shapes.
    shared: dict[Tensor, Tensor] = {}
    for name, entry in entries.items():
        if name == "__metadata__":
            continue
        try:
            begin, end, tensor = _tensor(entry)
        except ValueError as broken:
            header.faults.append(("bad_tensor", f"tensor {name!r:.200}: {broken}"))
            continue
        header.tensors[name] = shared.setdefault(tensor, tensor)
        if end > room:
            header.faults.append(("truncated", f"tensor {name!r:.200} ends at byte {end} of {room}"))
        spans.append((begin, end, name))
    _check_spans(header, sorted(spans), room)


def _tensor(entry: Any) -> tuple[int, int, Tensor]:
    if not isinstance(entry, dict):
        raise ValueError("its entry is not an object")
    dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise ValueError(f"unknown type {dtype!s:.50}")
    if not _are_sizes(shape) or len(shape) > MAX_DIMENSIONS:
        raise ValueError("its shape is not a list of sizes")
    if not _are_sizes(offsets) or len(offsets) != 2:
        raise ValueError("its offsets are not two positions")
    elements = math.prod(shape)
    begin, end = offsets
    bits = elements * DTYPES[dtype]
    if bits != (end - begin) * 8:
        raise ValueError(f"{end - begin} bytes for {bits // 8} bytes of {dtype}")
    return begin, end, Tensor(dtype, elements, end - begin)


def _are_sizes(numbers: Any) -> TypeGuard[list[int]]:
    """A list of whole numbers, none of them negative, absurd or a boolean. Built for speed: it sees each tensor twice."""
    return (
        isinstance(numbers, list)
        and _INTEGER.issuperset(map(type, numbers))
        and min(numbers, default=0) >= 0
        and max(numbers, default=0) < 1 << 62
    )


def _check_spans(header: Header, spans: list[tuple[int, int, str]], room: int) -> None:
    at = 0
    before = ""
    for begin, end, name in spans:
        if begin < at:
            header.faults.append(("overlap", f"tensors {before!r:.200} and {name!r:.200} share bytes"))
        elif begin > at:
            header.faults.append(("gap", f"{begin - at} bytes before tensor {name!r:.200} belong to none"))
        if end >= at:
            at, before = end, name
    if at < room and not any(code == "bad_tensor" for code, _text in header.faults):
        header.faults.append(("gap", f"{room - at} bytes at the end belong to no tensor"))
