# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import ctypes
import os
import time
from typing import Any, Callable

import pytest
from ansible_collections.blackwell.inference.plugins.module_utils import _nvml
from ansible_collections.blackwell.inference.plugins.module_utils._child import Answer

MIB = 1 << 20


def put(target: Any, value: Any) -> int:
    """Stores behind a pointer made by byref, or into a buffer."""
    if isinstance(value, str):
        target.value = value.encode()
    else:
        target._obj.value = value
    return 0


class FakeNvml:
    """One card, as the R580 driver answers. Functions can be taken away by name."""

    def __init__(self, *without: str, processes: int = 1, used: int = 500) -> None:
        self.without, self.processes, self.used = without, processes, used

    def __getattr__(self, name: str) -> Callable[..., int]:
        if name in self.without or not hasattr(FakeNvml, f"do_{name}"):
            raise AttributeError(name)
        function: Callable[..., int] = getattr(self, f"do_{name}")
        return function

    def do_nvmlInit_v2(self) -> int:
        return 0

    def do_nvmlSystemGetNVMLVersion(self, buffer: Any, _size: Any) -> int:
        return put(buffer, "13.580.126.09")

    def do_nvmlSystemGetDriverVersion(self, buffer: Any, _size: Any) -> int:
        return put(buffer, "580.126.09")

    def do_nvmlSystemGetCudaDriverVersion_v2(self, version: Any) -> int:
        return put(version, 13000)

    def do_nvmlDeviceGetCount_v2(self, count: Any) -> int:
        return put(count, 2)

    def do_nvmlDeviceGetHandleByIndex_v2(self, index: Any, gpu: Any) -> int:
        gpu._obj.value = 4096
        return 0 if index.value == 0 else 15

    def do_nvmlDeviceGetPciInfo_v3(self, _gpu: Any, pci: Any) -> int:
        pci._obj.domain, pci._obj.bus, pci._obj.device = 0, 0xC1, 0
        pci._obj.id, pci._obj.subsystem = 0x2BB110DE, 0x204B10DE
        return 0

    def do_nvmlDeviceGetUUID(self, _gpu: Any, buffer: Any, _size: Any) -> int:
        return put(buffer, "GPU-1")

    def do_nvmlDeviceGetName(self, _gpu: Any, buffer: Any, _size: Any) -> int:
        return put(buffer, "NVIDIA RTX PRO 6000 Blackwell Workstation Edition")

    def do_nvmlDeviceGetMinorNumber(self, _gpu: Any, minor: Any) -> int:
        return put(minor, 0)

    def do_nvmlDeviceGetCudaComputeCapability(self, _gpu: Any, major: Any, minor: Any) -> int:
        return put(major, 12) or put(minor, 0)

    def do_nvmlDeviceGetEccMode(self, _gpu: Any, current: Any, pending: Any) -> int:
        return put(current, 1) or put(pending, 0)

    def do_nvmlDeviceGetMigMode(self, _gpu: Any, _current: Any, _pending: Any) -> int:
        return 3

    def do_nvmlDeviceGetPowerManagementLimit(self, _gpu: Any, limit: Any) -> int:
        return put(limit, 600_000)

    def do_nvmlDeviceGetMemoryInfo_v2(self, _gpu: Any, memory: Any) -> int:
        assert memory._obj.version == 0x02000028
        memory._obj.total, memory._obj.reserved, memory._obj.used = 97887 * MIB, 600 * MIB, self.used * MIB
        return 0

    def do_nvmlDeviceGetMemoryInfo(self, _gpu: Any, memory: Any) -> int:
        memory._obj.total, memory._obj.used = 97887 * MIB, (self.used + 600) * MIB
        return 0

    def fill(self, count: Any, entries: Any) -> int:
        room = count._obj.value
        count._obj.value = self.processes
        if room < self.processes:
            return _nvml.INSUFFICIENT_SIZE
        for number in range(self.processes):
            entries[number].pid = 4242 + number
            entries[number].memory = _nvml.NOT_AVAILABLE if number else 400 * MIB
        return 0

    def do_nvmlDeviceGetComputeRunningProcesses_v3(self, _gpu: Any, count: Any, entries: Any) -> int:
        return self.fill(count, entries)

    def do_nvmlDeviceGetComputeRunningProcesses(self, _gpu: Any, count: Any, entries: Any) -> int:
        assert ctypes.sizeof(entries) == 64 * 16
        return self.fill(count, entries)


def read(monkeypatch: pytest.MonkeyPatch, fake: Any) -> dict[str, Any]:
    monkeypatch.setattr(_nvml, "load", lambda _name: (fake, None))
    said: list[Any] = []
    _nvml._read_nvml(said.append)
    return _nvml.gather(Answer(said, None, False))


def test_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    found = read(monkeypatch, FakeNvml())
    assert found["driver_version"] == "580.126.09" and found["cuda_version"] == 13000
    assert found["devices"] == [
        {
            "index": 0, "status": 0, "pci_address": "0000:c1:00.0", "pci_id": "10de:2bb1", "pci_subsystem": "10de:204b",
            "memory": 97887 * MIB, "memory_used": 500 * MIB, "memory_reserved": 600 * MIB, "uuid": "GPU-1",
            "name": "NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "minor": 0, "capability": "12.0", "ecc": True,
            "mig": None, "power_limit_w": 600, "persistence": None, "pcie_width": None, "pcie_width_max": None,
            "ecc_errors": None, "processes": [{"pid": 4242, "memory": 400 * MIB}],
        },
        {"index": 1, "status": 15},
    ]  # fmt: skip


def test_functions_that_an_older_driver_lacks_are_no_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeNvml("nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetMigMode")
    device = read(monkeypatch, fake)["devices"][0]
    assert device["memory_used"] == 1100 * MIB and device["memory_reserved"] is None
    assert device["processes"] == [{"pid": 4242, "memory": 400 * MIB}]


def test_a_library_with_nothing_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found = read(monkeypatch, object())
    assert (found["loaded"], found["status"], found["devices"]) == (True, None, [])


def test_many_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    found = read(monkeypatch, FakeNvml(processes=300))["devices"][0]["processes"]
    assert len(found) == 300 and found[1] == {"pid": 4243, "memory": None}


def test_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_nvml, "FOLDERS", ())
    handle, fault = _nvml.load("libsurely-not-there.so.1")
    assert handle is None and "libsurely-not-there.so.1" in (fault or "")


def test_a_driver_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hanging(FakeNvml):
        def do_nvmlDeviceGetPciInfo_v3(self, _gpu: Any, _pci: Any) -> int:
            time.sleep(60)
            return 0

    monkeypatch.setattr(_nvml, "load", lambda _name: (Hanging(), None))
    found = _nvml.read(0.5)
    assert found["timed_out"] and found["fault"] == "no answer within 0.5 s (at GPU 0)"
    assert found["driver_version"] == "580.126.09", "what came before the hang is kept"


def test_the_environment_of_cuda_is_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    class Cuda:
        def cuInit(self, _flags: Any) -> int:
            seen.append((os.environ.get("CUDA_VISIBLE_DEVICES"), os.environ["CUDA_DEVICE_ORDER"]))
            return 100

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST")
    monkeypatch.setattr(_nvml, "load", lambda _name: (Cuda(), None))
    said: list[Any] = []
    _nvml._read_cuda(said.append)
    assert seen == [(None, "PCI_BUS_ID")]
    assert _nvml.gather(Answer(said, None, False))["status"] == 100


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("00000000:C1:00.0", "0000:c1:00.0"),
        ("0000:c1:00.0", "0000:c1:00.0"),
        ("00010000:01:00.0", "10000:01:00.0"),
        ("00000001:01:02.4", "0001:01:02.4"),
        ("", None),
        ("c1:00.0", None),
        ("0000:c1:00.9", None),
    ],
)
def test_addresses_are_the_kernels(text: str, address: str | None) -> None:
    assert _nvml.kernel_address(text) == address


@pytest.mark.parametrize(
    ("path", "version"),
    [
        ("/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.126.09", "580.126.09"),
        ("/usr/lib64/libnvidia-ml.so.550.163.01", "550.163.01"),
        ("/usr/lib64/libcuda.so.615.71", "615.71"),
        ("/usr/lib64/libnvidia-ml.so.1", None),
        (None, None),
    ],
)
def test_version_in_a_file_name(path: str | None, version: str | None) -> None:
    assert _nvml.version_in(path) == version
