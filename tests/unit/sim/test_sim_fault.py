# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from sim import container_fault, fault
from sim.driver import nvidia_modprobe
from sim.hardware import gpu_uuid, write_hardware

UUID = gpu_uuid("kpro6", 1)


class Node:
    """A node with two cards and a loaded driver, below a temporary folder."""

    def __init__(self, root: Path) -> None:
        self.root, self.proc, self.run, self.state = root, root / "proc/driver/nvidia", root / "run", root / "var/lib/nvidia"
        write_hardware(root / "hw", "kpro6", 2)
        self.state.mkdir(parents=True)
        (self.state / "module").write_text("580.126.09 open\n", encoding="ascii")
        installed = {"version": "580.126.09", "kernel_modules": "open"}
        (self.state / "installed.json").write_text(json.dumps(installed), encoding="ascii")
        self.load()

    def load(self) -> None:
        nvidia_modprobe.load(self.proc, self.root / "hw" / "gpus.conf", self.state / "module")

    def faults(self) -> list[str]:
        return fault.listed(self.proc, self.run, self.state, self.root)

    def card(self, field: str) -> list[str | None]:
        return [card.get(field) for card in fault.cards(self.proc)]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path)
    yield made
    fault.free(made.proc, made.run, UUID)


@pytest.fixture
def proc(node: Node) -> Path:
    return node.proc


def held(proc: Path) -> bool:
    with (proc / "lab" / "cards" / UUID).open("r+b") as card:
        try:
            fcntl.lockf(card, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
        return False


def test_busy_and_free(node: Node) -> None:
    pid = fault.busy(node.proc, node.run, "1", 91000)
    assert held(node.proc)
    assert (node.proc / "lab" / "cards" / UUID).read_text() == "91000\n"
    assert node.faults() == [f"busy {UUID}"]
    assert fault.busy(node.proc, node.run, UUID, 91000) == pid
    fault.free(node.proc, node.run, UUID)
    os.waitpid(pid, 0)
    assert not held(node.proc)
    assert node.faults() == []


@pytest.mark.parametrize("kind", fault.CARD_FAULTS)
def test_a_fault_of_one_card_comes_and_goes(node: Node, kind: str) -> None:
    before = (node.proc / "lab" / "gpus.conf").read_text()
    field, value = fault.CARD_FAULTS[kind]
    healthy = fault.HEALTHY[field]
    fault.set_card(node.proc, "1", field, value)
    assert node.faults() == [f"{kind} {UUID}"]
    assert node.card(field) == [node.card(field)[0], value]
    fault.set_card(node.proc, UUID, field, healthy)
    assert node.faults() == []
    assert (node.proc / "lab" / "gpus.conf").read_text().replace(f"\t{field}={healthy}", "") == before.replace(f"\t{field}={healthy}", "")


@pytest.mark.parametrize(
    ("kind", "loaded", "state"),
    [("closed-module", "NVIDIA UNIX x86_64 Kernel Module  580.126.09", "failed"), ("module-version", "580.105.08", "ok")],
)
def test_another_module_comes_and_goes(node: Node, kind: str, loaded: str, state: str) -> None:
    pid = fault.busy(node.proc, node.run, "1", 91000)
    fault.exchange_module(node.proc, node.state, fault.MODULE_FAULTS[kind], node.load)
    assert loaded in (node.proc / "version").read_text()
    assert node.card("state") == [state, state]
    assert node.faults() == [kind, f"busy {UUID}"]
    assert held(node.proc)
    fault.exchange_module(node.proc, node.state, (None, None), node.load)
    assert "Open Kernel Module for x86_64  580.126.09" in (node.proc / "version").read_text()
    assert node.card("state") == ["ok", "ok"]
    fault.free(node.proc, node.run, UUID)
    os.waitpid(pid, 0)
    assert node.faults() == []


def test_a_card_of_somebody_else_is_not_taken(proc: Path, tmp_path: Path) -> None:
    with (proc / "lab" / "cards" / UUID).open("r+b") as card:
        fcntl.lockf(card, fcntl.LOCK_EX)
        with pytest.raises(fault.FaultError, match="already held"):
            fault.busy(proc, tmp_path / "run", "1", 91000)


@pytest.mark.parametrize("name", ["2", "-1", "GPU-none", ""])
def test_no_such_card(proc: Path, name: str) -> None:
    with pytest.raises(fault.FaultError, match="found 2 cards"):
        fault.find_card(proc, name)


def test_without_a_driver_nothing_can_be_made_of_it(tmp_path: Path) -> None:
    with pytest.raises(fault.FaultError, match="no driver is loaded"):
        fault.busy(tmp_path / "absent", tmp_path / "run", "0", 1)
    with pytest.raises(fault.FaultError, match="no driver is installed"):
        fault.exchange_module(tmp_path / "absent", tmp_path / "absent", (None, "closed"), lambda: None)


def test_the_driver_goes_and_comes_back_as_it_was(node: Node) -> None:
    root = node.root
    libraries = root / "usr/lib/x86_64-linux-gnu"
    for folder in (libraries, root / "usr/bin", root / "dev"):
        folder.mkdir(parents=True)
    (libraries / "libcuda.so.580.126.09").write_bytes(b"cuda")
    (libraries / "libcuda.so.1").symlink_to("libcuda.so.580.126.09")
    (libraries / "libc.so.6").touch()
    (root / "dev/nvidia0").touch()
    pid = fault.busy(node.proc, node.run, "1", 91000)
    fault.remove_driver(root)
    fault.remove_driver(root)
    assert [p.name for p in libraries.iterdir()] == ["libc.so.6"]
    assert [p.name for p in (root / "dev").glob("nvidia*")] == []
    assert not node.proc.exists() and not (node.state / "module").exists()
    assert node.faults() == ["no-driver", f"busy {UUID}"]
    # What an installation puts there meanwhile gives way, the loaded module included.
    (libraries / "libcuda.so.1").symlink_to("libc.so.6")
    node.proc.mkdir()
    (node.proc / "version").touch()
    fault.put_driver_back(root)
    assert (libraries / "libcuda.so.1").read_bytes() == b"cuda"
    assert (node.state / "module").exists() and (root / "dev/nvidia0").exists()
    assert held(node.proc)
    assert list(root.rglob(fault.PARKED)) == []
    fault.free(node.proc, node.run, UUID)
    os.waitpid(pid, 0)
    assert node.faults() == []


def test_libraries_of_another_version_come_and_go(tmp_path: Path) -> None:
    libraries = tmp_path / container_fault.LIBRARIES
    libraries.mkdir(parents=True)
    for name in ("libcuda", "libnvidia-ml"):
        (libraries / f"{name}.so.580.126.09").write_bytes(b"\x7fELF 580.126.09 13.580.126.09")
        (libraries / f"{name}.so.1").symlink_to(f"{name}.so.580.126.09")
    with pytest.raises(container_fault.FaultError, match="no driver is installed"):
        container_fault.change_libraries(tmp_path, container_fault.OTHER_VERSION)
    (tmp_path / "var/lib/nvidia").mkdir(parents=True)
    (tmp_path / "var/lib/nvidia/installed.json").write_text('{"version": "580.126.09"}', encoding="ascii")
    for wanted in (container_fault.OTHER_VERSION, container_fault.OTHER_VERSION, None, None):
        container_fault.change_libraries(tmp_path, wanted)
        version = (wanted or "580.126.09").encode()
        assert container_fault.library_versions(tmp_path) == {version.decode()}
        assert (libraries / "libcuda.so.1").read_bytes() == b"\x7fELF " + version + b" 13." + version


@pytest.mark.parametrize(("argument", "message"), [("", "wanted a container's number"), ("two/nvidia0", "wanted a container's number")])
def test_no_such_container(argument: str, message: str) -> None:
    with pytest.raises(container_fault.FaultError, match=message):
        container_fault.split(argument)


@pytest.mark.parametrize("name", ["", "nvidia9", "../config"])
def test_no_such_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(container_fault, "LXC", tmp_path)
    (tmp_path / "200/devices/dev").mkdir(parents=True)
    (tmp_path / "200/devices/dev/nvidia0").touch()
    (tmp_path / "200/devices/config").touch()
    with pytest.raises(container_fault.FaultError, match="container 200 has nvidia0"):
        container_fault.real_device("200", name)


def test_what_is_wrong_with_a_device(tmp_path: Path) -> None:
    """A link to a character device stands for one, as making one needs root."""
    real, seen = tmp_path / "devices/dev/nvidia0", tmp_path / "seen"
    for kind in ("dev", "device-private", "device-foreign"):
        path = real.parent.parent / kind / "nvidia0"
        path.parent.mkdir(parents=True)
        path.symlink_to({"dev": "/dev/null", "device-private": "/dev/zero", "device-foreign": "/dev/full"}[kind])
    for target, kind in {
        None: "device-missing",
        str(real): None,
        "/dev/zero": "device-private",
        "/dev/full": "device-foreign",
        __file__: "device-file",
    }.items():
        seen.unlink(missing_ok=True)
        if target:
            seen.symlink_to(target)
        assert container_fault.device_fault(seen, real) == kind
