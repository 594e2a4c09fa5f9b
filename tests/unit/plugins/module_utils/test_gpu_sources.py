# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ansible_collections.blackwell.inference.plugins.module_utils import _gpu_sources as sources


def put(path: Path, text: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_sysfs_lists_nvidia_display_devices_only(tmp_path: Path) -> None:
    devices = tmp_path / "bus/pci/devices"
    for address, vendor, kind in (
        ("0000:01:00.0", "0x10de", "0x030000"),
        ("0000:21:00.0", "0x10de", "0x030200"),
        ("0000:01:00.1", "0x10de", "0x040300"),  # its sound device
        ("0000:02:00.0", "0x1a03", "0x030000"),  # the board's own graphics
        ("0000:03:00.0", "", ""),
    ):
        put(devices / address / "vendor", vendor + "\n")
        put(devices / address / "class", kind + "\n")
        put(devices / address / "device", "0x2BB1\n")
    put(devices / "0000:01:00.0/numa_node", "-1\n")
    put(devices / "0000:01:00.0/current_link_width", "8\n")
    put(devices / "0000:01:00.0/max_link_width", "16\n")
    (devices / "0000:01:00.0/driver").symlink_to("../../../bus/pci/drivers/vfio-pci")
    assert sources.sysfs_gpus(str(tmp_path)) == [
        {"address": "0000:01:00.0", "pci_id": "10de:2bb1", "numa_node": -1, "width": 8, "width_max": 16, "driver": "vfio-pci"},
        {"address": "0000:21:00.0", "pci_id": "10de:2bb1", "numa_node": None, "width": None, "width_max": None, "driver": None},
    ]


def test_no_sysfs_and_no_driver(tmp_path: Path) -> None:
    assert sources.sysfs_gpus(str(tmp_path)) == []
    assert sources.proc_gpus(str(tmp_path)) == {}


def test_device_nodes(tmp_path: Path) -> None:
    (tmp_path / "nvidia0").symlink_to("/dev/null")
    put(tmp_path / "nvidia1", "an empty file, as an optional mount entry leaves it")
    (tmp_path / "nvidia9").symlink_to("/dev/null")
    put(tmp_path / "nvidia-modeset")
    (tmp_path / "nvidiactl").symlink_to("/dev/null")
    found = sources.device_nodes(str(tmp_path), [0, 1, 2])
    assert {path: node["type"] for path, node in found.items()} == {
        "/dev/nvidia-uvm": "missing",
        "/dev/nvidia-uvm-tools": "missing",
        "/dev/nvidia0": "char",
        "/dev/nvidia1": "other",
        "/dev/nvidia2": "missing",
        "/dev/nvidia9": "char",
        "/dev/nvidiactl": "char",
    }


def nodes(tmp_path: Path) -> dict[str, dict[str, object]]:
    """A node that everybody may open, and one that only root may."""
    (tmp_path / "nvidia0").symlink_to("/dev/null")
    os.mknod(tmp_path / "nvidia1", 0o600 | 0o020000, os.makedev(1, 3))
    tmp_path.chmod(0o755)
    return sources.device_nodes(str(tmp_path), [0, 1])


@pytest.fixture
def open_path(tmp_path: Path) -> Path:
    """pytest's own folders are closed to other users."""
    own = [folder for folder in (tmp_path, *tmp_path.parents) if any("pytest-of-" in part for part in folder.parts)]
    for folder in own:
        folder.chmod(0o755)
    return tmp_path


def test_access_is_tried_as_the_service_user(open_path: Path) -> None:
    found = nodes(open_path)
    state = sources.check_access(found, "nobody", 10)
    assert state == {"name": "nobody", "fault": None}
    assert (found["/dev/nvidia0"]["openable"], found["/dev/nvidia0"]["error"]) == (True, None)
    assert (found["/dev/nvidia1"]["openable"], found["/dev/nvidia1"]["error"]) == (False, "Permission denied")
    assert found["/dev/nvidiactl"]["openable"] is None
    assert os.geteuid() == 0, "only the child changed its user"


def test_the_service_user_has_none_of_roots_groups(open_path: Path) -> None:
    os.mknod(open_path / "nvidia0", 0o660 | 0o020000, os.makedev(1, 3))
    (open_path / "nvidia0").chmod(0o660)
    found = sources.device_nodes(str(open_path), [0])
    before = os.getgroups()
    os.setgroups([0])
    try:
        sources.check_access(found, "nobody", 10)
    finally:
        os.setgroups(before)
    assert found["/dev/nvidia0"]["openable"] is False


def test_root_can_open_both(open_path: Path) -> None:
    found = nodes(open_path)
    sources.check_access(found, None, 10)
    assert found["/dev/nvidia1"]["openable"] is True


def test_a_user_that_is_still_to_be_created_has_no_right_that_nobody_lacks(open_path: Path) -> None:
    found = nodes(open_path)
    assert sources.check_access(found, "surely-no-account-has-this-name", 10)["fault"] is None
    assert found["/dev/nvidia0"]["openable"] is True
    assert found["/dev/nvidia1"]["openable"] is False


def process(root: Path, pid: int, unit: str, maps: str = "", environ: str = "", comm: str = "python") -> None:
    put(root / str(pid) / "cgroup", f"0::/system.slice/{unit}\n")
    put(root / str(pid) / "maps", maps)
    put(root / str(pid) / "environ", environ)
    put(root / str(pid) / "comm", comm + "\n")


def test_a_pid_counts_only_when_it_has_the_driver_open(tmp_path: Path) -> None:
    process(tmp_path, 10, "inference@0.service", "7f00-7f01 r--s 00000000 00:05 7 /dev/nvidia0\n")
    process(tmp_path, 11, "cron.service", "7f00-7f01 r--s 00000000 00:05 7 /usr/lib/libc.so.6\n")
    assert sources.process(str(tmp_path), 10) == {
        "pid": 10, "name": "python", "cgroup": "0::/system.slice/inference@0.service\n", "holds": True,
    }  # fmt: skip
    # NVML may give the host's pid: here that is another process, or none
    assert sources.process(str(tmp_path), 11)["holds"] is False
    assert sources.process(str(tmp_path), 12) == {"pid": 12, "name": None, "cgroup": None, "holds": False}
    assert sources.process(str(tmp_path), 0)["holds"] is False


def test_our_services_are_found_by_their_unit(tmp_path: Path) -> None:
    process(tmp_path, 20, "system-inference.slice/inference@3.service", environ="A=1\0CUDA_VISIBLE_DEVICES=GPU-3\0")
    process(tmp_path, 21, "cron.service", environ="CUDA_VISIBLE_DEVICES=GPU-4\0")
    put(tmp_path / "meminfo")
    found = sources.our_services(str(tmp_path))
    assert [(entry["pid"], entry["visible"]) for entry in found] == [(20, "GPU-3")]


@pytest.mark.parametrize(
    ("device", "used"),
    [
        ({"processes": [], "memory_used": 3 << 20}, False),
        ({"processes": None, "memory_used": None}, False),
        ({}, False),
        ({"processes": [{"pid": 1}], "memory_used": 3 << 20}, True),
        ({"processes": [], "memory_used": 500 << 20}, True),
    ],
)
def test_in_use(device: dict[str, object], used: bool) -> None:
    assert sources.in_use(device) is used


def test_collect_on_this_machine_is_json_and_quick(tmp_path: Path) -> None:
    import json
    import time

    started = time.monotonic()
    raw = sources.collect(sources.Roots(), None, 10, "never", None)
    assert time.monotonic() - started < 5
    json.dumps(raw)
    assert raw["cuda"] is None


@pytest.mark.parametrize(("timed_out", "asked"), [(False, [False, True]), (True, [False])])
def test_a_driver_that_did_not_answer_is_not_asked_again(monkeypatch: pytest.MonkeyPatch, timed_out: bool, asked: list[bool]) -> None:
    calls: list[bool] = []

    def read(_seconds: float, cuda: bool = False) -> dict[str, object]:
        calls.append(cuda)
        return {"status": 0, "devices": [], "timed_out": timed_out, "fault": None}

    monkeypatch.setattr(sources._nvml, "read", read)
    sources.collect(sources.Roots(), None, 10, "always", None)
    assert calls == asked
