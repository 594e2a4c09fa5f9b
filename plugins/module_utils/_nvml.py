# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads everything NVML knows about the GPUs, in one pass, and says each piece as soon as it has it.

No CUDA context is made, so a running job loses nothing. A function that a driver does not have, or a card does not
support, leaves its fact at null: R535 to R6xx differ in both. Structures, names and numbers: NVIDIA's nvml.h.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from ctypes import byref, c_char, c_int, c_longlong, c_uint, c_ulonglong
from typing import Any

from ansible_collections.blackwell.inference.plugins.module_utils import _native
from ansible_collections.blackwell.inference.plugins.module_utils._child import Say

NAME = "libnvidia-ml.so.1"
INSUFFICIENT_SIZE, LOST, RESET_REQUIRED = 7, 15, 16
NOT_AVAILABLE = (1 << 64) - 1
RECOVERY_ACTION = 230
# No machine has more; a library that says so is not believed.
MAX_CARDS = 128
# Bytes of one entry of a process list. Which one a function writes is not told by its name: R535 up to 535.86 wrote 32
# where others write 24, and 16 was seen under the newest name (nvitop, pull requests 79, 89, 94 and 226).
STRIDES = (16, 24, 32)
ROOM = 64
FILL = 0xA5


class Pci(ctypes.Structure):
    _fields_ = [
        ("bus_id_legacy", c_char * 16),
        ("domain", c_uint),
        ("bus", c_uint),
        ("device", c_uint),
        ("id", c_uint),
        ("subsystem", c_uint),
        ("bus_id", c_char * 32),
    ]


class _Memory(ctypes.Structure):
    _fields_ = [("total", c_ulonglong), ("free", c_ulonglong), ("used", c_ulonglong)]


class _Memory2(ctypes.Structure):
    _fields_ = [
        ("version", c_uint),
        ("total", c_ulonglong),
        ("reserved", c_ulonglong),
        ("free", c_ulonglong),
        ("used", c_ulonglong),
    ]


class FieldValue(ctypes.Structure):
    _fields_ = [
        ("field", c_uint),
        ("scope", c_uint),
        ("timestamp", c_longlong),
        ("latency", c_longlong),
        ("kind", c_int),
        ("status", c_int),
        # A union of numbers; the one that is read here is an unsigned int.
        ("value", c_uint),
        ("rest", c_uint),
    ]


def read(say: Say, listed: Iterable[str] = ()) -> list[dict[str, Any]]:
    """The cards, each of which is said too. `listed`: the addresses that the kernel module has."""
    say({"at": f"loading {NAME}"})
    handle, fault = _native.load(NAME)
    if handle is None:
        say({"system": {"loaded": False, "load_error": fault}})
        return []
    nvml = _native.Library(handle)
    path = _native.loaded_path("libnvidia-ml.so")
    system: dict[str, Any] = {"loaded": True, "path": path, "library_version": _native.version_in(path)}
    say({"system": system, "at": "nvmlInit"})
    status = nvml.call("nvmlInit_v2")
    if status is None:
        status = nvml.call("nvmlInit")
    system["status"] = status
    if status:
        system["error"] = nvml.word("nvmlErrorString", status)
    # "13.580.126.09": the CUDA major, then the library's own version.
    system["nvml_version"] = nvml.text("nvmlSystemGetNVMLVersion")
    if status == 0:
        system["driver_version"] = nvml.text("nvmlSystemGetDriverVersion")
        versions = ("nvmlSystemGetCudaDriverVersion_v2", "nvmlSystemGetCudaDriverVersion")
        system["cuda_version"] = nvml.value(c_int, versions)
        system["count"] = nvml.value(c_uint, ("nvmlDeviceGetCount_v2", "nvmlDeviceGetCount"))
    say({"system": system})
    devices = []
    for index in range(min(system.get("count") or 0, MAX_CARDS)):
        # A card that is not kept initialised is started here, which takes seconds.
        say({"at": f"GPU {index}"})
        devices.append(_device(nvml, index))
        say({"device": devices[-1]})
    if status == 0:
        known = {device.get("pci_address") for device in devices}
        drained = [address for address in listed if address not in known and _is_drained(nvml, address)]
        say({"system": {"drained": drained}})
    # No nvmlShutdown: it takes milliseconds, and this process ends soon anyway.
    return devices


def _device(nvml: _native.Library, index: int) -> dict[str, Any]:
    nvml.refusals.clear()
    gpu = ctypes.c_void_p()
    status = nvml.call("nvmlDeviceGetHandleByIndex_v2", c_uint(index), byref(gpu))
    pci = Pci()
    if status == 0:
        status = nvml.call("nvmlDeviceGetPciInfo_v3", gpu, byref(pci))
    found: dict[str, Any] = {"index": index, "status": status}
    if status != 0:
        found["error"] = None if status is None else nvml.word("nvmlErrorString", status)
        return found
    # Its text holds the function as well, which is not 0 for a part of a shared card.
    text = pci.bus_id.decode("ascii", "replace")
    capability = nvml.pair(c_int, "nvmlDeviceGetCudaComputeCapability", gpu)
    ecc = nvml.pair(c_uint, "nvmlDeviceGetEccMode", gpu)
    mig = nvml.pair(c_uint, "nvmlDeviceGetMigMode", gpu)
    limit = nvml.value(c_uint, ("nvmlDeviceGetPowerManagementLimit", "nvmlDeviceGetEnforcedPowerLimit"), gpu)
    found.update(
        pci_address=_native.kernel_address(text) or f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}.0",
        pci_id=f"{pci.id & 0xFFFF:04x}:{pci.id >> 16:04x}",
        pci_subsystem=f"{pci.subsystem & 0xFFFF:04x}:{pci.subsystem >> 16:04x}",
    )
    found.update(_memory(nvml, gpu))
    found.update(
        uuid=nvml.text("nvmlDeviceGetUUID", gpu),
        name=nvml.text("nvmlDeviceGetName", gpu),
        minor=nvml.value(c_uint, ("nvmlDeviceGetMinorNumber",), gpu),
        capability=_native.capability(capability),
        ecc=None if ecc is None else bool(ecc[0]),
        mig=None if mig is None else bool(mig[0]),
        power_limit_w=None if limit is None else round(limit / 1000),
        persistence=_flag(nvml.value(c_uint, ("nvmlDeviceGetPersistenceMode",), gpu)),
        pcie_width=nvml.value(c_uint, ("nvmlDeviceGetCurrPcieLinkWidth",), gpu),
        pcie_width_max=nvml.value(c_uint, ("nvmlDeviceGetMaxPcieLinkWidth",), gpu),
        # Uncorrected errors since the driver was loaded.
        ecc_errors=nvml.value(c_ulonglong, ("nvmlDeviceGetTotalEccErrors",), gpu, c_uint(1), c_uint(0)),
        recovery=_recovery(nvml, gpu),
        processes=_processes(nvml, gpu),
    )
    # The handle and what NVML remembers are given for a card that is gone; whatever must ask the card says so.
    found["lost"] = LOST in nvml.refusals.values()
    if RESET_REQUIRED in nvml.refusals.values() and not found["recovery"]:
        found["recovery"] = 1
    return found


def _flag(value: int | None) -> bool | None:
    return None if value is None else bool(value)


def _memory(nvml: _native.Library, gpu: Any) -> dict[str, int | None]:
    """Version 2 keeps the driver's own reserve apart, version 1 counts it as used."""
    second = _Memory2(version=ctypes.sizeof(_Memory2) | 2 << 24)
    if nvml.call("nvmlDeviceGetMemoryInfo_v2", gpu, byref(second)) == 0:
        return {"memory": second.total, "memory_used": second.used, "memory_reserved": second.reserved}
    first = _Memory()
    if nvml.call("nvmlDeviceGetMemoryInfo", gpu, byref(first)) == 0:
        return {"memory": first.total, "memory_used": first.used, "memory_reserved": None}
    return {"memory": None, "memory_used": None, "memory_reserved": None}


def _recovery(nvml: _native.Library, gpu: Any) -> int | None:
    """What the driver asks for after a fault: 0 nothing. A card can answer everything else and still run no program."""
    field = FieldValue(field=RECOVERY_ACTION)
    if nvml.call("nvmlDeviceGetFieldValues", gpu, c_int(1), byref(field)) != 0 or field.status != 0:
        return None
    return int(field.value)


def _is_drained(nvml: _native.Library, address: str) -> bool:
    """Taken away from new programs by nvidia-smi drain, which also hides the card from NVML's list."""
    domain, bus, rest = address.split(":")
    pci = Pci(domain=int(domain, 16), bus=int(bus, 16), device=int(rest.partition(".")[0], 16))
    pci.bus_id = f"{pci.domain:08X}:{pci.bus:02X}:{pci.device:02X}.0".encode()
    pci.bus_id_legacy = f"{pci.domain & 0xFFFF:04X}:{pci.bus:02X}:{pci.device:02X}.0".encode()
    state = c_uint()
    return nvml.call("nvmlDeviceQueryDrainState", byref(pci), byref(state)) == 0 and state.value == 1


def _processes(nvml: _native.Library, gpu: Any) -> list[dict[str, Any]] | None:
    found: dict[int, int | None] = {}
    answered = False
    for kind in ("Compute", "Graphics", "MPSCompute"):
        for suffix, stride in (("_v3", 24), ("_v2", 24), ("", 16)):
            entries = _process_list(nvml, f"nvmlDeviceGet{kind}RunningProcesses{suffix}", stride, gpu)
            if entries is not None:
                answered = True
                # A process may stand in two lists, and only one of them may know its memory.
                found.update({pid: memory if memory is not None else found.get(pid) for pid, memory in entries.items()})
                break
    if not answered:
        return None
    return [{"pid": pid, "memory": memory} for pid, memory in sorted(found.items())]


def _process_list(nvml: _native.Library, name: str, stride: int, gpu: Any) -> dict[int, int | None] | None:
    room = ROOM
    for _attempt in range(4):
        count = c_uint(room)
        buffer = (ctypes.c_ubyte * (room * max(STRIDES)))()
        ctypes.memset(buffer, FILL, len(buffer))
        status = nvml.call(name, gpu, byref(count), buffer)
        if status == 0:
            return process_entries(bytes(buffer), min(count.value, room), room, stride)
        if status != INSUFFICIENT_SIZE:
            return None
        room = min(max(2 * room, count.value + 16), 65_536)
    return None


def process_entries(data: bytes, count: int, room: int, usual: int) -> dict[int, int | None]:
    """Memory by pid, from a buffer that was filled with one value before: how far it was written tells the stride."""
    written = len(data.rstrip(bytes([FILL])))
    strides = [written // entries for entries in (count, room) if entries and written % entries == 0]
    stride = next((stride for stride in strides if stride in STRIDES), usual)
    found: dict[int, int | None] = {}
    for start in range(0, count * stride, stride):
        memory = int.from_bytes(data[start + 8 : start + 16], "little")
        found[int.from_bytes(data[start : start + 4], "little")] = None if memory == NOT_AVAILABLE else memory
    return found
