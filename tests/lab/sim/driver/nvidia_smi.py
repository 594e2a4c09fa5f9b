# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's nvidia-smi: ``-L``, ``--query-gpu=... --format=csv[,noheader][,nounits]``, or a short list."""

from __future__ import annotations

import ctypes
import sys

_NOT_LOADED = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
    "Make sure that the latest NVIDIA driver is installed and running.\n"
)
_UNITS = {"memory.total": "MiB", "memory.used": "MiB", "memory.free": "MiB", "power.limit": "W"}


class Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class Pci(ctypes.Structure):
    _fields_ = [
        ("legacy", ctypes.c_char * 16),
        *((name, ctypes.c_uint) for name in ("domain", "bus", "device", "id", "subsystem")),
        ("bus_id", ctypes.c_char * 32),
    ]


class SmiError(Exception):
    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


class Nvml:
    def __init__(self) -> None:
        try:
            self.library = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError as error:
            raise SmiError(_NOT_LOADED, 9) from error
        self.library.nvmlErrorString.restype = ctypes.c_char_p
        code = self.library.nvmlInit_v2()
        if code == 9:
            raise SmiError(_NOT_LOADED, 9)
        if code:
            text = self.library.nvmlErrorString(code).decode()
            raise SmiError(f"Failed to initialize NVML: {text}\n", code)

    def text(self, function: str, *arguments: object) -> str:
        buffer = ctypes.create_string_buffer(128)
        code = getattr(self.library, function)(*arguments, buffer, len(buffer))
        return buffer.value.decode() if code == 0 else "[N/A]"

    def number(self, function: str, device: ctypes.c_void_p) -> int | None:
        value = ctypes.c_uint()
        return value.value if getattr(self.library, function)(device, ctypes.byref(value)) == 0 else None

    def cards(self) -> list[dict[str, str]]:
        count = ctypes.c_uint()
        self.library.nvmlDeviceGetCount_v2(ctypes.byref(count))
        return [self._card(index) for index in range(count.value)]

    def _card(self, index: int) -> dict[str, str]:
        device = ctypes.c_void_p()
        if code := self.library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)):
            text = self.library.nvmlErrorString(code).decode()
            raise SmiError(f"Unable to determine the device handle for GPU {index}: {text}\n", code)
        memory, pci, major, minor = Memory(), Pci(), ctypes.c_int(), ctypes.c_int()
        mig, pending = ctypes.c_uint(), ctypes.c_uint()
        self.library.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory))
        self.library.nvmlDeviceGetPciInfo_v3(device, ctypes.byref(pci))
        self.library.nvmlDeviceGetCudaComputeCapability(device, ctypes.byref(major), ctypes.byref(minor))
        self.library.nvmlDeviceGetMigMode(device, ctypes.byref(mig), ctypes.byref(pending))
        power = self.number("nvmlDeviceGetPowerManagementLimit", device)
        return {
            "index": str(index),
            "name": self.text("nvmlDeviceGetName", device),
            "uuid": self.text("nvmlDeviceGetUUID", device),
            "driver_version": self.text("nvmlSystemGetDriverVersion"),
            "pci.bus_id": pci.bus_id.decode(),
            "compute_cap": f"{major.value}.{minor.value}",
            "memory.total": str(memory.total >> 20),
            "memory.used": str(memory.used >> 20),
            "memory.free": str(memory.free >> 20),
            "power.limit": "[N/A]" if power is None else f"{power / 1000:.2f}",
            "mig.mode.current": "Enabled" if mig.value else "Disabled",
        }


def query(cards: list[dict[str, str]], fields: list[str], options: list[str]) -> str:
    """The CSV of --query-gpu, with the real one's header and units."""
    lines = []
    if "noheader" not in options:
        units = {f: f" [{_UNITS[f]}]" for f in fields if f in _UNITS}
        lines.append(", ".join(f + units.get(f, "") for f in fields))
    for card in cards:
        values = []
        for field in fields:
            if field not in card:
                raise SmiError(f'Field "{field}" is not a valid field to query.\n', 2)
            unit = f" {_UNITS[field]}" if field in _UNITS and "nounits" not in options else ""
            values.append(card[field] + (unit if card[field] != "[N/A]" else ""))
        lines.append(", ".join(values))
    return "\n".join(lines)


def run(arguments: list[str]) -> str:
    fields: list[str] = []
    options: list[str] = []
    for word in arguments:
        if word.startswith("--query-gpu="):
            fields = word.partition("=")[2].split(",")
        elif word.startswith("--format=csv"):
            options = word.split(",")[1:]
        elif word not in ("-L", "--list-gpus"):
            raise SmiError(f'Invalid combination of input arguments. "{word}" is not known to this stand-in.\n', 2)
    cards = Nvml().cards()
    if not cards and not arguments:
        raise SmiError("No devices were found\n", 6)
    if fields:
        return query(cards, fields, options)
    if arguments:
        return "\n".join(f"GPU {c['index']}: {c['name']} (UUID: {c['uuid']})" for c in cards)
    lines = [f"NVIDIA-SMI @DRIVER_VERSION@   Driver Version: {cards[0]['driver_version']}   (the lab's stand-in)"]
    lines += [f"{c['index']:>3}  {c['name']}  {c['memory.used']}MiB / {c['memory.total']}MiB" for c in cards]
    return "\n".join(lines)


def main() -> int:
    try:
        print(run(sys.argv[1:]), flush=True)
    except SmiError as error:
        print(str(error), end="", file=sys.stderr if error.code == 2 else sys.stdout)
        return error.code
    except BrokenPipeError:  # piped into head
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
