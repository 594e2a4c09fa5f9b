# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads everything NVML and the CUDA driver API know about the GPUs, by ctypes, in one pass.

No CUDA context is made, so a running job loses nothing. A function that a driver does not have, or a card does not
support, leaves its fact at null: R535 to R6xx differ in both. Structures and names: NVIDIA's nvml.h and cuda.h.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
from ctypes import POINTER, byref, c_char, c_int, c_uint, c_ulonglong
from typing import Any

from ansible_collections.blackwell.inference.plugins.module_utils._child import Answer, Say, ask

INSUFFICIENT_SIZE = 7
NOT_AVAILABLE = (1 << 64) - 1
# The loader's own search first; then where installers put the libraries without telling it.
FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/lib/nvidia/current",
    "/usr/local/nvidia/lib64",
)
MULTIPROCESSORS = 16
MAJOR, MINOR = 75, 76
SHARED_MEMORY_OPTIN = 97


class _Pci(ctypes.Structure):
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


class _Process(ctypes.Structure):
    _fields_ = [("pid", c_uint), ("memory", c_ulonglong), ("gpu_instance", c_uint), ("compute_instance", c_uint)]


class _Process1(ctypes.Structure):
    _fields_ = [("pid", c_uint), ("memory", c_ulonglong)]


class Library:
    """A shared library whose functions may be missing."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    def call(self, name: str, *arguments: Any) -> int | None:
        """The function's status, or None when the library does not have it."""
        function = getattr(self._handle, name, None)
        return None if function is None else int(function(*arguments))

    def value(self, kind: Any, names: tuple[str, ...], *arguments: Any) -> Any:
        """What the first of `names` that answers stores behind its last argument, or None."""
        found = kind()
        for name in names:
            if self.call(name, *arguments, byref(found)) == 0:
                return found.value
        return None

    def pair(self, kind: Any, name: str, *arguments: Any) -> tuple[int, int] | None:
        first, second = kind(), kind()
        return (first.value, second.value) if self.call(name, *arguments, byref(first), byref(second)) == 0 else None

    def text(self, name: str, *arguments: Any, size: int = 96) -> str | None:
        buffer = ctypes.create_string_buffer(size)
        if self.call(name, *arguments, buffer, c_uint(size)) != 0:
            return None
        return buffer.value.decode("utf-8", "replace") or None


def load(name: str) -> tuple[Any | None, str | None]:
    reasons = []
    for path in (name, *(os.path.join(folder, name) for folder in FOLDERS)):
        if path != name and not os.path.exists(path):
            continue
        try:
            return ctypes.CDLL(path), None
        except OSError as broken:
            reasons.append(str(broken))
    return None, reasons[-1] if reasons else f"{name} was not found"


def loaded_path(name: str) -> str | None:
    """The file behind a loaded library; the driver's version is in its name even when nothing else answers."""
    with contextlib.suppress(OSError), open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        for line in maps:
            path = line.rstrip("\n").rpartition(" ")[2]
            if os.path.basename(path).startswith(name):
                return os.path.realpath(path)
    return None


def kernel_address(text: str) -> str | None:
    """A PCI address as /sys and /proc write it; NVML pads the domain to 8 digits, and some domains need more than 4."""
    match = re.fullmatch(r"([0-9A-Fa-f]{1,8}):([0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])", text)
    return f"{int(match.group(1), 16):04x}:{match.group(2).lower()}" if match else None


def version_in(path: str | None) -> str | None:
    match = re.search(r"\.so\.(\d{3,}\.\d+(?:\.\d+)?)$", path or "")
    return match.group(1) if match else None


def read(seconds: float, cuda: bool = False) -> dict[str, Any]:
    """The raw answers, from a child process with a time limit."""
    return gather(ask(_read_cuda if cuda else _read_nvml, seconds))


def gather(answer: Answer) -> dict[str, Any]:
    """One dictionary of the lines that the child said: {"system": ...}, {"at": ...}, {"device": ...}."""
    found: dict[str, Any] = {"loaded": None, "status": None, "devices": [], "fault": answer.fault}
    found["timed_out"] = answer.timed_out
    at = "the start"
    for line in answer.said:
        if "system" in line:
            found.update(line["system"])
        elif "device" in line:
            found["devices"].append(line["device"])
        at = line.get("at", at)
    if answer.fault:
        found["fault"] = f"{answer.fault} (at {at})"
    return found


def _read_nvml(say: Say) -> None:
    say({"at": "loading libnvidia-ml.so.1"})
    handle, fault = load("libnvidia-ml.so.1")
    if handle is None:
        say({"system": {"loaded": False, "load_error": fault}})
        return
    nvml = Library(handle)
    path = loaded_path("libnvidia-ml.so")
    system: dict[str, Any] = {"loaded": True, "path": path, "library_version": version_in(path)}
    say({"system": system, "at": "nvmlInit"})
    status = nvml.call("nvmlInit_v2")
    if status is None:
        status = nvml.call("nvmlInit")
    system["status"] = status
    # "13.580.126.09": the CUDA major, then the library's own version.
    system["nvml_version"] = nvml.text("nvmlSystemGetNVMLVersion")
    if status == 0:
        system["driver_version"] = nvml.text("nvmlSystemGetDriverVersion")
        versions = ("nvmlSystemGetCudaDriverVersion_v2", "nvmlSystemGetCudaDriverVersion")
        system["cuda_version"] = nvml.value(c_int, versions)
        system["count"] = nvml.value(c_uint, ("nvmlDeviceGetCount_v2", "nvmlDeviceGetCount"))
    say({"system": system})
    for index in range(system.get("count") or 0):
        say({"at": f"GPU {index}"})
        say({"device": _nvml_device(nvml, index)})
    # No nvmlShutdown: it takes milliseconds, and this process ends here anyway.


def _nvml_device(nvml: Library, index: int) -> dict[str, Any]:
    gpu = ctypes.c_void_p()
    status = nvml.call("nvmlDeviceGetHandleByIndex_v2", c_uint(index), byref(gpu))
    found: dict[str, Any] = {"index": index, "status": status}
    if status != 0:
        return found
    pci = _Pci()
    found["status"] = nvml.call("nvmlDeviceGetPciInfo_v3", gpu, byref(pci))
    if found["status"] == 0:
        # Its text holds the function as well, which is not 0 for a part of a shared card.
        text = pci.bus_id.decode("ascii", "replace")
        found["pci_address"] = kernel_address(text) or f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}.0"
        found["pci_id"] = f"{pci.id & 0xFFFF:04x}:{pci.id >> 16:04x}"
        found["pci_subsystem"] = f"{pci.subsystem & 0xFFFF:04x}:{pci.subsystem >> 16:04x}"
    capability = nvml.pair(c_int, "nvmlDeviceGetCudaComputeCapability", gpu)
    ecc = nvml.pair(c_uint, "nvmlDeviceGetEccMode", gpu)
    mig = nvml.pair(c_uint, "nvmlDeviceGetMigMode", gpu)
    limit = nvml.value(c_uint, ("nvmlDeviceGetPowerManagementLimit", "nvmlDeviceGetEnforcedPowerLimit"), gpu)
    found.update(_memory(nvml, gpu))
    found.update(
        uuid=nvml.text("nvmlDeviceGetUUID", gpu),
        name=nvml.text("nvmlDeviceGetName", gpu),
        minor=nvml.value(c_uint, ("nvmlDeviceGetMinorNumber",), gpu),
        capability=None if capability is None else f"{capability[0]}.{capability[1]}",
        ecc=None if ecc is None else bool(ecc[0]),
        mig=None if mig is None else bool(mig[0]),
        power_limit_w=None if limit is None else round(limit / 1000),
        persistence=_flag(nvml.value(c_uint, ("nvmlDeviceGetPersistenceMode",), gpu)),
        pcie_width=nvml.value(c_uint, ("nvmlDeviceGetCurrPcieLinkWidth",), gpu),
        pcie_width_max=nvml.value(c_uint, ("nvmlDeviceGetMaxPcieLinkWidth",), gpu),
        # Uncorrected errors since the driver was loaded.
        ecc_errors=nvml.value(c_ulonglong, ("nvmlDeviceGetTotalEccErrors",), gpu, c_uint(1), c_uint(0)),
        processes=_processes(nvml, gpu),
    )
    return found


def _flag(value: int | None) -> bool | None:
    return None if value is None else bool(value)


def _memory(nvml: Library, gpu: Any) -> dict[str, int | None]:
    """Version 2 keeps the driver's own reserve apart, version 1 counts it as used."""
    second = _Memory2(version=ctypes.sizeof(_Memory2) | 2 << 24)
    if nvml.call("nvmlDeviceGetMemoryInfo_v2", gpu, byref(second)) == 0:
        return {"memory": second.total, "memory_used": second.used, "memory_reserved": second.reserved}
    first = _Memory()
    if nvml.call("nvmlDeviceGetMemoryInfo", gpu, byref(first)) == 0:
        return {"memory": first.total, "memory_used": first.used, "memory_reserved": None}
    return {"memory": None, "memory_used": None, "memory_reserved": None}


def _processes(nvml: Library, gpu: Any) -> list[dict[str, Any]] | None:
    found: dict[int, int | None] = {}
    answered = False
    for kind in ("Compute", "Graphics", "MPSCompute"):
        for suffix, layout in (("_v3", _Process), ("_v2", _Process), ("", _Process1)):
            entries = _process_list(nvml, f"nvmlDeviceGet{kind}RunningProcesses{suffix}", layout, gpu)
            if entries is not None:
                answered = True
                found.update(entries)
                break
    if not answered:
        return None
    return [{"pid": pid, "memory": memory} for pid, memory in sorted(found.items())]


def _process_list(nvml: Library, name: str, layout: Any, gpu: Any) -> dict[int, int | None] | None:
    size = 64
    for _attempt in range(4):
        count = c_uint(size)
        entries = (layout * size)()
        status = nvml.call(name, gpu, byref(count), entries)
        if status == 0:
            return {
                entry.pid: None if entry.memory == NOT_AVAILABLE else entry.memory
                for entry in entries[: min(count.value, size)]
            }
        if status != INSUFFICIENT_SIZE:
            return None
        size = min(max(2 * size, count.value + 16), 65_536)
    return None


def _read_cuda(say: Say) -> None:
    """Attributes NVML lacks. cuInit makes no context, but hides what CUDA_VISIBLE_DEVICES does not name."""
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    say({"at": "loading libcuda.so.1"})
    handle, fault = load("libcuda.so.1")
    if handle is None:
        say({"system": {"loaded": False, "load_error": fault}})
        return
    cuda = Library(handle)
    for name, arguments in (
        ("cuDeviceGetAttribute", [POINTER(c_int), c_int, c_int]),
        ("cuDeviceGetUuid", [ctypes.c_char_p, c_int]),
        ("cuDeviceGetUuid_v2", [ctypes.c_char_p, c_int]),
        ("cuDeviceGetPCIBusId", [ctypes.c_char_p, c_int, c_int]),
    ):
        if hasattr(handle, name):
            getattr(handle, name).argtypes = arguments
    say({"at": "cuInit"})
    status = cuda.call("cuInit", c_uint(0))
    count = cuda.value(c_int, ("cuDeviceGetCount",)) if status == 0 else 0
    say({"system": {"loaded": True, "path": loaded_path("libcuda.so"), "status": status, "count": count}})
    for index in range(count or 0):
        say({"at": f"GPU {index}"})
        say({"device": _cuda_device(cuda, index)})


def _cuda_device(cuda: Library, index: int) -> dict[str, Any]:
    device = c_int()
    found: dict[str, Any] = {"index": index, "status": cuda.call("cuDeviceGet", byref(device), c_int(index))}
    if found["status"] != 0:
        return found

    def attribute(number: int) -> int | None:
        value = c_int()
        return value.value if cuda.call("cuDeviceGetAttribute", byref(value), number, device.value) == 0 else None

    buffer = ctypes.create_string_buffer(32)
    if cuda.call("cuDeviceGetPCIBusId", buffer, 32, device.value) == 0:
        found["pci_address"] = kernel_address(buffer.value.decode("ascii", "replace"))
    raw = ctypes.create_string_buffer(16)
    if cuda.call("cuDeviceGetUuid", raw, device.value) == 0:
        text = raw.raw.hex()
        found["uuid"] = f"GPU-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
    major, minor = attribute(MAJOR), attribute(MINOR)
    found["capability"] = None if major is None or minor is None else f"{major}.{minor}"
    found["multiprocessors"] = attribute(MULTIPROCESSORS)
    found["shared_memory_per_block_optin"] = attribute(SHARED_MEMORY_OPTIN)
    return found
