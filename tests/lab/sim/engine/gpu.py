# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Taking a card: a primary context through the CUDA driver library, and most of the card's memory."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass


class GpuError(Exception):
    """Why no card could be taken, in the words of the real engine."""


@dataclass(frozen=True)
class Card:
    uuid: str
    name: str
    capability: str
    memory_mib: int


def _uuid_text(raw: bytes) -> str:
    digits = raw.hex()
    return f"GPU-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


class Driver:
    """libcuda, as far as this engine needs it."""

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise GpuError(f"Found no NVIDIA driver on your system ({error})") from error
        self._call("No CUDA GPUs are available", "cuInit", 0)

    def _call(self, what: str, function: str, *arguments: object) -> None:
        code = getattr(self._library, function)(*arguments)
        if code:
            text = ctypes.c_char_p()
            self._library.cuGetErrorString(code, ctypes.byref(text))
            raise GpuError(f"{what}. CUDA error {code}: {(text.value or b'unrecognized error code').decode()}")

    def take(self, ordinal: int, memory_fraction: float) -> Card:
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self._call(f"GPU {ordinal} is not visible to this process", "cuDeviceGet", ctypes.byref(device), ordinal)
        raw, name = ctypes.create_string_buffer(16), ctypes.create_string_buffer(96)
        self._call("cuDeviceGetUuid", "cuDeviceGetUuid_v2", raw, device)
        self._call("cuDeviceGetName", "cuDeviceGetName", name, len(name), device)
        major, minor, total = ctypes.c_int(), ctypes.c_int(), ctypes.c_size_t()
        self._call("cuDeviceGetAttribute", "cuDeviceGetAttribute", ctypes.byref(major), 75, device)
        self._call("cuDeviceGetAttribute", "cuDeviceGetAttribute", ctypes.byref(minor), 76, device)
        self._call("cuDeviceTotalMem", "cuDeviceTotalMem_v2", ctypes.byref(total), device)
        uuid = _uuid_text(raw.raw)
        held = f"GPU {ordinal} ({uuid}) is held by another process"
        self._call(held, "cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        pointer = ctypes.c_ulonglong()
        size = ctypes.c_size_t(int(total.value * memory_fraction))
        self._call("Not enough memory", "cuMemAlloc_v2", ctypes.byref(pointer), size)
        return Card(uuid, name.value.decode(), f"{major.value}.{minor.value}", total.value >> 20)
