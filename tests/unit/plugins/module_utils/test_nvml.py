# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import ctypes
import struct
from typing import Any, Callable

import pytest
from ansible_collections.blackwell.inference.plugins.module_utils import _native, _nvml

MIB = 1 << 20


def put(target: Any, value: Any) -> int:
    """Stores behind a pointer made by byref, or into a buffer."""
    if isinstance(value, str):
        target.value = value.encode()
    else:
        target._obj.value = value
    return 0


class FakeNvml:
    """Two cards, the second lost, as the R580 driver answers. Functions can be taken away by name."""

    def __init__(self, *without: str, processes: int = 1, used: int = 500, stride: int = 24, cards: int = 2) -> None:
        self.without, self.processes, self.used, self.stride, self.cards = without, processes, used, stride, cards
        # What each function answers instead, by name.
        self.fails: dict[str, int] = {}
        self.recovery = 0
        self.drained = ""

    def __getattr__(self, name: str) -> Callable[..., int]:
        if name in self.without or not hasattr(type(self), f"do_{name}"):
            raise AttributeError(name)
        if name in self.fails:
            return lambda *_arguments: self.fails[name]
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
        return put(count, self.cards)

    def do_nvmlDeviceGetHandleByIndex_v2(self, index: Any, gpu: Any) -> int:
        gpu._obj.value = 4096
        return 0 if index.value == 0 else 15

    def do_nvmlDeviceGetPciInfo_v3(self, _gpu: Any, pci: Any) -> int:
        pci._obj.domain, pci._obj.bus, pci._obj.device = 0, 0xC1, 0
        pci._obj.id, pci._obj.subsystem = 0x2BB110DE, 0x204B10DE
        pci._obj.bus_id = b"00000000:C1:00.0"
        return 0

    def do_nvmlDeviceGetFieldValues(self, _gpu: Any, count: Any, field: Any) -> int:
        assert (count.value, field._obj.field, ctypes.sizeof(field._obj)) == (1, 230, 40)
        field._obj.value = self.recovery
        return 0

    def do_nvmlDeviceQueryDrainState(self, pci: Any, state: Any) -> int:
        return put(state, int(pci._obj.bus_id.decode() == self.drained))

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

    def fill(self, count: Any, buffer: Any) -> int:
        room = count._obj.value
        count._obj.value = self.processes
        if room < self.processes:
            return _nvml.INSUFFICIENT_SIZE
        for number in range(self.processes):
            memory = _nvml.NOT_AVAILABLE if number else 400 * MIB
            entry = struct.pack("<IxxxxQIIQ", 4242 + number, memory, 0xFFFFFFFF, 0xFFFFFFFF, 0)[: self.stride]
            ctypes.memmove(ctypes.addressof(buffer) + number * self.stride, entry, len(entry))
        return 0

    def do_nvmlDeviceGetComputeRunningProcesses_v3(self, _gpu: Any, count: Any, buffer: Any) -> int:
        return self.fill(count, buffer)

    def do_nvmlDeviceGetComputeRunningProcesses(self, _gpu: Any, count: Any, buffer: Any) -> int:
        return self.fill(count, buffer)

    def do_nvmlDeviceGetGraphicsRunningProcesses_v3(self, _gpu: Any, count: Any, buffer: Any) -> int:
        count._obj.value = 1
        entry = struct.pack("<IxxxxQII", 4242, _nvml.NOT_AVAILABLE, 0, 0)
        ctypes.memmove(ctypes.addressof(buffer), entry, len(entry))
        return 0


def read(monkeypatch: pytest.MonkeyPatch, fake: Any, listed: tuple[str, ...] = ()) -> dict[str, Any]:
    monkeypatch.setattr(_native, "load", lambda _name: (fake, None))
    said: list[Any] = []
    devices = _nvml.read(said.append, listed)
    assert devices == [line["device"] for line in said if "device" in line]
    system: dict[str, Any] = {}
    for line in said:
        system.update(line.get("system", {}))
    return {**system, "devices": devices, "said": said}


def test_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    found = read(monkeypatch, FakeNvml())
    assert found["driver_version"] == "580.126.09" and found["cuda_version"] == 13000 and found["drained"] == []
    assert found["devices"] == [
        {
            "index": 0, "status": 0, "pci_address": "0000:c1:00.0", "pci_id": "10de:2bb1", "pci_subsystem": "10de:204b",
            "memory": 97887 * MIB, "memory_used": 500 * MIB, "memory_reserved": 600 * MIB, "uuid": "GPU-1",
            "name": "NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "minor": 0, "capability": "12.0", "ecc": True,
            "mig": None, "power_limit_w": 600, "persistence": None, "pcie_width": None, "pcie_width_max": None,
            "ecc_errors": None, "recovery": 0, "lost": False, "processes": [{"pid": 4242, "memory": 400 * MIB}],
        },
        {"index": 1, "status": 15, "error": None},
    ]  # fmt: skip
    # Each step is said before it is taken, so that a hang can be named.
    assert [line["at"] for line in found["said"] if "at" in line] == ["loading libnvidia-ml.so.1", "nvmlInit", "GPU 0", "GPU 1"]


def test_functions_that_an_older_driver_lacks_are_no_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeNvml("nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetMigMode",
                    "nvmlDeviceGetFieldValues", "nvmlDeviceQueryDrainState", stride=16)  # fmt: skip
    found = read(monkeypatch, fake, ("0000:c1:00.0", "0000:e1:00.0"))
    device = found["devices"][0]
    assert device["memory_used"] == 1100 * MIB and device["memory_reserved"] is None
    assert device["processes"] == [{"pid": 4242, "memory": 400 * MIB}]
    assert (device["recovery"], device["lost"], found["drained"]) == (None, False, [])


def test_a_library_with_nothing_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found = read(monkeypatch, object())
    assert (found["loaded"], found["status"], found["devices"]) == (True, None, [])


def test_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[Any] = []
    monkeypatch.setattr(_native, "load", lambda _name: (None, "file too short"))
    assert _nvml.read(said.append) == []
    assert said[-1] == {"system": {"loaded": False, "load_error": "file too short"}}


@pytest.mark.parametrize("stride", _nvml.STRIDES)
@pytest.mark.parametrize("processes", [1, 2, 3, 64, 300])
def test_process_lists_of_every_driver(monkeypatch: pytest.MonkeyPatch, processes: int, stride: int) -> None:
    """Under one name, releases of the driver write entries of 16, 24 and 32 bytes."""
    found = read(monkeypatch, FakeNvml(processes=processes, stride=stride))["devices"][0]["processes"]
    expected = [{"pid": 4242 + number, "memory": None if number else 400 * MIB} for number in range(processes)]
    assert found == expected


def test_a_process_list_that_was_cleared_as_a_whole() -> None:
    entries = b"".join(struct.pack("<IxxxxQII", pid, 5 * MIB, 0, 0) for pid in (7, 8))
    data = entries + bytes(24 * 62) + bytes([_nvml.FILL]) * (8 * 64)
    assert _nvml.process_entries(data, 2, 64, 16) == {7: 5 * MIB, 8: 5 * MIB}


def test_no_process_and_nonsense() -> None:
    assert _nvml.process_entries(bytes([_nvml.FILL]) * 2048, 0, 64, 24) == {}
    # Written as no driver does: the usual layout is believed.
    assert _nvml.process_entries(struct.pack("<IxxxxQ", 7, MIB) + bytes(3) + bytes([_nvml.FILL]) * 2000, 1, 64, 24) == {7: MIB}


@pytest.mark.parametrize("status", [15, 999, 3])
def test_a_card_that_is_gone_and_still_has_a_handle(monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    fake = FakeNvml()
    fake.fails = {"nvmlDeviceGetMemoryInfo_v2": status, "nvmlDeviceGetMemoryInfo": status}
    device = read(monkeypatch, fake)["devices"][0]
    assert device["memory"] is None and device["lost"] is (status == 15)


def test_a_lost_card_is_not_held_against_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeNvml()
    monkeypatch.setattr(fake, "do_nvmlDeviceGetHandleByIndex_v2", lambda index, _gpu: 15 if index.value == 0 else 0, raising=False)
    devices = read(monkeypatch, fake)["devices"]
    assert devices[0]["status"] == 15 and devices[1]["lost"] is False


@pytest.mark.parametrize(
    ("recovery", "fails", "found"), [(0, {}, 0), (2, {}, 2), (0, {"nvmlDeviceGetUUID": 16}, 1), (3, {"nvmlDeviceGetUUID": 16}, 3)]
)
def test_a_card_that_must_be_reset(monkeypatch: pytest.MonkeyPatch, recovery: int, fails: dict[str, int], found: int) -> None:
    fake = FakeNvml()
    fake.recovery, fake.fails = recovery, fails
    assert read(monkeypatch, fake)["devices"][0]["recovery"] == found


def test_drained_cards_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeNvml(cards=1)
    fake.drained = "00010000:0A:00.0"
    assert read(monkeypatch, fake, ("0000:c1:00.0", "0000:e1:00.0", "10000:0a:00.0"))["drained"] == ["10000:0a:00.0"]
    fake.drained = "00000000:C1:00.0"
    assert read(monkeypatch, fake, ("0000:c1:00.0",))["drained"] == [], "a card that answers is in nobody's way"


class Absurd(FakeNvml):
    def do_nvmlDeviceGetCudaComputeCapability(self, _gpu: Any, major: Any, minor: Any) -> int:
        return put(major, -1) or put(minor, 7)

    def do_nvmlDeviceGetName(self, _gpu: Any, buffer: Any, _size: Any) -> int:
        buffer.value = b"\xff\xfe card"
        return 0


def test_absurd_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Absurd(cards=(1 << 31) - 1)
    found = read(monkeypatch, fake)
    assert len(found["devices"]) == _nvml.MAX_CARDS
    assert found["devices"][0]["capability"] is None
    assert found["devices"][0]["name"] == "\ufffd\ufffd card"


def test_a_refused_init_has_the_librarys_word(monkeypatch: pytest.MonkeyPatch) -> None:
    class Word:
        restype: Any = None

        def __call__(self, status: int) -> bytes:
            assert self.restype is ctypes.c_char_p
            return {9: b"Driver Not Loaded"}[status]

    fake = FakeNvml()
    fake.fails = {"nvmlInit_v2": 9}
    monkeypatch.setattr(fake, "do_nvmlErrorString", Word(), raising=False)
    monkeypatch.setattr(FakeNvml, "do_nvmlErrorString", None, raising=False)
    found = read(monkeypatch, fake)
    assert (found["status"], found["error"], found["devices"]) == (9, "Driver Not Loaded", [])
    assert "drained" not in found
