# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Asks the CUDA driver for what NVML lacks. No context is made. Names and numbers: NVIDIA's cuda.h."""

from __future__ import annotations

import ctypes
import os
from ctypes import POINTER, byref, c_int, c_uint
from typing import Any

from ansible_collections.blackwell.inference.plugins.module_utils import _native
from ansible_collections.blackwell.inference.plugins.module_utils._child import Say

NAME = "libcuda.so.1"
MULTIPROCESSORS = 16
MAJOR, MINOR = 75, 76
SHARED_MEMORY_OPTIN = 97
MAX_CARDS = 128


def read(say: Say) -> None:
    """cuInit hides what CUDA_VISIBLE_DEVICES does not name, so this process forgets it."""
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    say({"at": f"loading {NAME}"})
    handle, fault = _native.load(NAME)
    if handle is None:
        say({"system": {"loaded": False, "load_error": fault}})
        return
    cuda = _native.Library(handle)
    for name, arguments in (
        ("cuDeviceGetAttribute", [POINTER(c_int), c_int, c_int]),
        ("cuDeviceGetUuid", [ctypes.c_char_p, c_int]),
        ("cuDeviceGetPCIBusId", [ctypes.c_char_p, c_int, c_int]),
    ):
        if hasattr(handle, name):
            getattr(handle, name).argtypes = arguments
    say({"at": "cuInit"})
    status = cuda.call("cuInit", c_uint(0))
    count = cuda.value(c_int, ("cuDeviceGetCount",)) if status == 0 else 0
    say({"system": {"loaded": True, "path": _native.loaded_path("libcuda.so"), "status": status, "count": count}})
    for index in range(min(count or 0, MAX_CARDS)):
        say({"at": f"GPU {index} of CUDA"})
        say({"device": _device(cuda, index)})


def _device(cuda: _native.Library, index: int) -> dict[str, Any]:
    device = c_int()
    found: dict[str, Any] = {"index": index, "status": cuda.call("cuDeviceGet", byref(device), c_int(index))}
    if found["status"] != 0:
        return found

    def attribute(number: int) -> int | None:
        value = c_int()
        return value.value if cuda.call("cuDeviceGetAttribute", byref(value), number, device.value) == 0 else None

    buffer = ctypes.create_string_buffer(32)
    if cuda.call("cuDeviceGetPCIBusId", buffer, 32, device.value) == 0:
        found["pci_address"] = _native.kernel_address(buffer.value.decode("ascii", "replace"))
    raw = ctypes.create_string_buffer(16)
    if cuda.call("cuDeviceGetUuid", raw, device.value) == 0:
        text = raw.raw.hex()
        found["uuid"] = f"GPU-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
    major, minor = attribute(MAJOR), attribute(MINOR)
    found["capability"] = _native.capability(None if major is None or minor is None else (major, minor))
    found["multiprocessors"] = attribute(MULTIPROCESSORS)
    found["shared_memory_per_block_optin"] = attribute(SHARED_MEMORY_OPTIN)
    return found
