# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
from typing import Any

import pytest
from ansible_collections.blackwell.inference.plugins.module_utils import _cuda, _native


class Function:
    """A function of ctypes, whose argument types can be told."""

    argtypes: Any = None

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def __call__(self, *arguments: Any) -> int:
        return int(self.answer(*arguments))


def store(pointer: Any, value: int) -> int:
    pointer._obj.value = value
    return 0


def attribute(pointer: Any, number: int, _device: int) -> int:
    known = {16: 188, 75: 12, 76: 0, 97: 101376}
    return store(pointer, known[number]) if number in known else 1


def text(buffer: Any, value: bytes) -> int:
    buffer.value = value
    return 0


def raw(buffer: Any, value: bytes) -> int:
    buffer.raw = value
    return 0


class Cuda:
    def __init__(self, status: int = 0, count: int = 1) -> None:
        self.seen: list[Any] = []
        self.cuInit = Function(lambda _flags: self.init(status))
        self.cuDeviceGetCount = Function(lambda pointer: store(pointer, count))
        self.cuDeviceGet = Function(lambda pointer, index: store(pointer, index.value) if index.value == 0 else 101)
        self.cuDeviceGetAttribute = Function(attribute)
        self.cuDeviceGetPCIBusId = Function(lambda buffer, _size, _device: text(buffer, b"0000:C1:00.0"))
        self.cuDeviceGetUuid = Function(lambda buffer, _device: raw(buffer, bytes(range(16))))

    def init(self, status: int) -> int:
        self.seen.append((os.environ.get("CUDA_VISIBLE_DEVICES"), os.environ["CUDA_DEVICE_ORDER"]))
        return status


def read(monkeypatch: pytest.MonkeyPatch, library: Any) -> list[Any]:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST")
    monkeypatch.setattr(_native, "load", lambda _name: library)
    said: list[Any] = []
    _cuda.read(said.append)
    return said


def test_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = Cuda(count=2)
    said = read(monkeypatch, (cuda, None))
    assert [line["device"] for line in said if "device" in line] == [
        {"index": 0, "status": 0, "pci_address": "0000:c1:00.0", "uuid": "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f",
         "capability": "12.0", "multiprocessors": 188, "shared_memory_per_block_optin": 101376},
        {"index": 1, "status": 101},
    ]  # fmt: skip
    assert cuda.seen == [(None, "PCI_BUS_ID")], "the environment hides no card"


def test_cuinit_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    said = read(monkeypatch, (Cuda(status=802), None))
    assert said[-1]["system"]["status"] == 802 and not any("device" in line for line in said)


def test_absurd_count(monkeypatch: pytest.MonkeyPatch) -> None:
    said = read(monkeypatch, (Cuda(count=2**31 - 1), None))
    assert sum("device" in line for line in said) == _cuda.MAX_CARDS


def test_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(monkeypatch, (None, "file too short"))[-1] == {"system": {"loaded": False, "load_error": "file too short"}}


def test_a_library_with_nothing_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(monkeypatch, (object(), None))[-1]["system"]["status"] is None
