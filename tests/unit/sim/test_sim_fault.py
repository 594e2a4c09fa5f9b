# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from sim import fault
from sim.driver import nvidia_modprobe
from sim.hardware import gpu_uuid, write_hardware

UUID = gpu_uuid("kpro6", 1)


@pytest.fixture
def proc(tmp_path: Path) -> Iterator[Path]:
    write_hardware(tmp_path / "hw", "kpro6", 2)
    (tmp_path / "module").write_text("580.126.09 open\n", encoding="ascii")
    nvidia_modprobe.load(tmp_path / "proc", tmp_path / "hw" / "gpus.conf", tmp_path / "module")
    yield tmp_path / "proc"
    fault.free(tmp_path / "proc", tmp_path / "run", UUID)


def held(proc: Path) -> bool:
    with (proc / "lab" / "cards" / UUID).open("r+b") as card:
        try:
            fcntl.lockf(card, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
        return False


def test_busy_and_free(proc: Path, tmp_path: Path) -> None:
    run, parked = tmp_path / "run", tmp_path / "parked"
    pid = fault.busy(proc, run, "1", 91000)
    assert held(proc)
    assert (proc / "lab" / "cards" / UUID).read_text() == "91000\n"
    assert fault.listed(run, parked) == [f"busy {UUID}"]
    assert fault.busy(proc, run, UUID, 91000) == pid
    fault.free(proc, run, UUID)
    os.waitpid(pid, 0)
    assert not held(proc)
    assert fault.listed(run, parked) == []


def test_a_card_of_somebody_else_is_not_taken(proc: Path, tmp_path: Path) -> None:
    with (proc / "lab" / "cards" / UUID).open("r+b") as card:
        fcntl.lockf(card, fcntl.LOCK_EX)
        with pytest.raises(fault.FaultError, match="already held"):
            fault.busy(proc, tmp_path / "run", "1", 91000)


@pytest.mark.parametrize("name", ["2", "-1", "GPU-none", ""])
def test_no_such_card(proc: Path, name: str) -> None:
    with pytest.raises(fault.FaultError, match="found 2 cards"):
        fault.find_card(proc, name)


def test_without_a_driver_no_card_can_be_taken(tmp_path: Path) -> None:
    with pytest.raises(fault.FaultError, match="no driver is loaded"):
        fault.busy(tmp_path / "absent", tmp_path / "run", "0", 1)


def test_the_driver_goes_and_comes_back(tmp_path: Path) -> None:
    root, parked = tmp_path / "root", tmp_path / "parked"
    libraries = root / "usr/lib/x86_64-linux-gnu"
    for folder in (libraries, root / "usr/bin", root / "var/lib/nvidia", root / "dev", root / "proc/driver/nvidia/lab"):
        folder.mkdir(parents=True)
    (libraries / "libcuda.so.580.126.09").write_bytes(b"cuda")
    (libraries / "libcuda.so.1").symlink_to("libcuda.so.580.126.09")
    (libraries / "libc.so.6").touch()
    (root / "var/lib/nvidia/module").touch()
    (root / "dev/nvidia0").touch()
    fault.no_driver(root, parked)
    assert [p.name for p in libraries.iterdir()] == ["libc.so.6"]
    assert list((root / "dev").iterdir()) == []
    assert not (root / "proc/driver/nvidia").exists()
    assert fault.listed(tmp_path / "run", parked) == ["no-driver"]
    fault.driver_back(root, parked)
    assert (libraries / "libcuda.so.1").read_bytes() == b"cuda"
    assert (root / "var/lib/nvidia/module").exists()
    assert not parked.exists()
