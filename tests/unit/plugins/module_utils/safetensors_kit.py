# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Writes safetensors files of any size without writing the tensors: the data is a hole in the file."""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path
from typing import Any

from ansible_collections.blackwell.inference.plugins.module_utils._safetensors import DTYPES

Shapes = dict[str, tuple[str, list[int]]]


def header_of(tensors: Shapes) -> tuple[dict[str, Any], int]:
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, (dtype, shape) in tensors.items():
        size = math.prod(shape) * DTYPES[dtype] // 8
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    return entries, at


def pack(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


def write(path: Path, tensors: Shapes, cut: int = 0) -> None:
    """`cut` bytes are missing at the end."""
    entries, size = header_of(tensors)
    head = pack(json.dumps(entries).encode())
    with open(path, "wb") as handle:
        handle.write(head)
        handle.truncate(len(head) + size - cut)
