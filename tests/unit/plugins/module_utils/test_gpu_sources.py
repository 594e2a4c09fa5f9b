# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.blackwell.inference.plugins.module_utils import _gpu_sources as sources
from ansible_collections.blackwell.inference.plugins.module_utils._child import Answer, Say, ask


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
        ("0000:21:00.4", "0x10de", "0x030200"),  # a part of the second card, for a virtual machine
        ("1000a:02:00.0", "0x10de", "0x030200"),
        ("not an address", "0x10de", "0x030200"),
    ):
        put(devices / address / "vendor", vendor + "\n")
        put(devices / address / "class", kind + "\n")
        put(devices / address / "device", "0x2BB1\n")
    put(devices / "0000:01:00.0/numa_node", "-1\n")
    put(devices / "0000:01:00.0/current_link_width", "8\n")
    put(devices / "0000:01:00.0/max_link_width", "16\n")
    put(devices / "0000:21:00.0/numa_node", "one\n")
    put(devices / "1000a:02:00.0/device", "0x\n")
    (devices / "0000:01:00.0/driver").symlink_to("../../../bus/pci/drivers/vfio-pci")
    (devices / "0000:21:00.4/physfn").symlink_to("../0000:21:00.0")
    assert sources.sysfs_gpus(str(tmp_path)) == [
        {"address": "0000:01:00.0", "pci_id": "10de:2bb1", "numa_node": -1, "width": 8, "width_max": 16, "driver": "vfio-pci"},
        {"address": "0000:21:00.0", "pci_id": "10de:2bb1", "numa_node": None, "width": None, "width_max": None, "driver": None},
        {"address": "1000a:02:00.0", "pci_id": None, "numa_node": None, "width": None, "width_max": None, "driver": None},
    ]


def test_proc_lists_what_has_an_address(tmp_path: Path) -> None:
    gpus = tmp_path / "driver/nvidia/gpus"
    put(gpus / "0000:C1:00.0/information", "Model: A\n")
    put(gpus / "03f8cfdd:00:00.0/information", "Model: B\n")
    put(gpus / "garbage/information", "Model: C\n")
    (gpus / "0000:02:00.0").mkdir()
    (gpus / "0000:03:00.0").mkdir()
    (gpus / "0000:03:00.0/information").write_bytes(b"\xff\x00: \x80")
    found = sources.proc_gpus(str(tmp_path))
    assert set(found) == {"0000:c1:00.0", "3f8cfdd:00:00.0", "0000:03:00.0"}
    assert found["3f8cfdd:00:00.0"] == "Model: B\n"


@pytest.mark.parametrize(
    ("devices", "texts", "found"),
    [
        ([{"minor": 3}, {"minor": None}, {}], ["Device Minor: \t 1\n", "Device Minor: \n7\n"], [1, 3]),
        ([], ["Device Minor: \u00b2\n", "Device Minor: 99999999999999999999\n", "", "\0\xff"], []),
    ],
)
def test_minors(devices: list[dict[str, Any]], texts: list[str], found: list[int]) -> None:
    assert sources.minors(devices, {str(number): text for number, text in enumerate(texts)}) == found


def test_no_sysfs_and_no_driver(tmp_path: Path) -> None:
    assert sources.sysfs_gpus(str(tmp_path)) == []
    assert sources.proc_gpus(str(tmp_path)) == {}


def test_device_nodes(tmp_path: Path) -> None:
    (tmp_path / "nvidia0").symlink_to("/dev/null")
    put(tmp_path / "nvidia1", "an empty file, as an optional mount entry leaves it")
    (tmp_path / "nvidia9").symlink_to("/dev/null")
    (tmp_path / "nvidia10").symlink_to("/dev/null")
    put(tmp_path / "nvidia-modeset")
    put(tmp_path / "nvidia\u00b2")
    (tmp_path / "nvidiactl").symlink_to("/dev/null")
    found = sources.device_nodes(str(tmp_path), [0, 1, 2])
    assert [name for name in found if name[-1].isdigit()] == [f"/dev/nvidia{number}" for number in (0, 1, 2, 9, 10)]
    assert {path: node["type"] for path, node in found.items()} == {
        "/dev/nvidia10": "char",
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


def try_as(found: dict[str, dict[str, Any]], user: str | None) -> str | None:
    """Opens the nodes as `user`, in a child process as always, and returns why not."""
    account, fault = sources.account_to_try(user)
    answer = ask(lambda say: sources.try_nodes(say, found, account), 10)
    for name, openable, error in sources.of_kind(answer.said, "access"):
        found[name].update(openable=openable, error=error)
    return next(iter(sources.of_kind(answer.said, "refused")), fault or answer.fault)


def test_access_is_tried_as_the_service_user(open_path: Path) -> None:
    found = nodes(open_path)
    assert try_as(found, "nobody") is None
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
        try_as(found, "nobody")
    finally:
        os.setgroups(before)
    assert found["/dev/nvidia0"]["openable"] is False


def test_root_can_open_both(open_path: Path) -> None:
    found = nodes(open_path)
    assert try_as(found, None) is None
    assert found["/dev/nvidia1"]["openable"] is True


def test_a_user_that_is_still_to_be_created_has_no_right_that_nobody_lacks(open_path: Path) -> None:
    found = nodes(open_path)
    assert try_as(found, "surely-no-account-has-this-name") is None
    assert found["/dev/nvidia0"]["openable"] is True
    assert found["/dev/nvidia1"]["openable"] is False


def test_only_root_can_try_as_somebody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert sources.account_to_try("root")[1] == "only root can open files as root"
    assert sources.account_to_try(None) == (None, None)


def test_a_container_that_may_not_change_users(open_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_groups: list[int]) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "setgroups", refuse)
    found = nodes(open_path)
    assert try_as(found, "nobody") == "this process cannot become user 65534: Operation not permitted"
    assert found["/dev/nvidia0"]["openable"] is None


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


@pytest.mark.parametrize(
    ("when", "devices", "timed_out", "seconds"),
    [
        ("auto", [{"pci_address": "0000:01:00.0", "processes": []}], False, 10),
        ("auto", [{"pci_address": "0000:01:00.0", "processes": [{"pid": 1}]}], False, None),
        ("auto", [], False, None),
        ("auto", [{"index": 0, "status": 15}], False, None),
        ("always", [{"pci_address": "0000:01:00.0", "processes": [{"pid": 1}]}], False, 10),
        ("always", [], False, 10),
        ("always", [], True, None),
        ("never", [{"pci_address": "0000:01:00.0", "processes": []}], False, None),
        ("auto", [{"pci_address": f"0000:0{number}:00.0", "persistence": number > 2} for number in range(8)], False, 30),
    ],
)
def test_when_cuda_is_asked(
    monkeypatch: pytest.MonkeyPatch, when: str, devices: list[dict[str, Any]], timed_out: bool, seconds: float | None
) -> None:
    limits: list[float] = []

    def note(_function: Any, limit: float) -> Answer:
        limits.append(limit)
        return Answer([{"system": {"loaded": True, "status": 0}}], None, False)

    monkeypatch.setattr(sources, "ask", note)
    found = sources.ask_cuda({"devices": devices, "timed_out": timed_out}, 10, when)
    assert limits == ([] if seconds is None else [seconds])
    assert (found is None) == (seconds is None)


def test_gather_keeps_what_came_before_a_fault() -> None:
    said = [{"at": "a"}, {"system": {"loaded": True, "status": 0}}, {"at": "GPU 0"}, {"device": {"index": 0}}, {"process": {"pid": 1}}]
    assert sources.gather(Answer(said, "no answer within 5 s", True)) == {
        "loaded": True, "status": 0, "devices": [{"index": 0}], "fault": "no answer within 5 s (at GPU 0)", "timed_out": True,
    }  # fmt: skip
    assert sources.gather(Answer([], "the process ended with status 1", False))["fault"].endswith("(at the start)")


def test_collect_on_this_machine_is_json_and_quick() -> None:
    started = time.monotonic()
    raw = sources.collect(sources.Roots(), None, 10, "never", None)
    assert time.monotonic() - started < 5
    json.dumps(raw)
    assert raw["cuda"] is None


@pytest.fixture
def roots(open_path: Path) -> sources.Roots:
    """A machine with one card, whose node only root may open."""
    put(open_path / "proc/driver/nvidia/gpus/0000:01:00.0/information", "Device Minor: \t 1\n")
    process(open_path / "proc", 20, "inference@3.service", "/dev/nvidia1", "CUDA_VISIBLE_DEVICES=GPU-3\0")
    (open_path / "dev").mkdir()
    nodes(open_path / "dev")
    return sources.Roots(str(open_path / "proc"), str(open_path / "sys"), str(open_path / "dev"), str(open_path / "root"))


DEVICE = {"pci_address": "0000:01:00.0", "minor": 1, "processes": [{"pid": 20, "memory": None}], "memory_used": 1 << 40}


def answering(say: Say, listed: Any = ()) -> list[dict[str, Any]]:
    say({"system": {"loaded": True, "status": 0}, "at": "GPU 0"})
    say({"device": DEVICE})
    assert list(listed) == ["0000:01:00.0"]
    return [DEVICE]


def crashing(say: Say, listed: Any = ()) -> list[dict[str, Any]]:
    answering(say, listed)
    os.kill(os.getpid(), signal.SIGSEGV)
    return []


def hanging(say: Say, listed: Any = ()) -> list[dict[str, Any]]:
    answering(say, listed)
    time.sleep(60)
    return []


def test_one_process_asks_all_that_waits_for_the_driver(monkeypatch: pytest.MonkeyPatch, roots: sources.Roots) -> None:
    children: list[float] = []
    monkeypatch.setattr(sources, "ask", lambda *arguments: children.append(arguments[1]) or ask(*arguments))
    monkeypatch.setattr(sources._nvml, "read", answering)
    raw = sources.collect(roots, "nobody", 10, "never", None)
    assert len(children) == 1
    assert raw["nvml"]["devices"] == [DEVICE] and raw["nvml"]["fault"] is None
    assert [(entry["pid"], entry["holds"]) for entry in raw["processes"]] == [(20, True)]
    assert [entry["visible"] for entry in raw["services"]] == ["GPU-3"]
    assert (raw["nodes"]["/dev/nvidia1"]["openable"], raw["user"]) == (False, {"name": "nobody", "fault": None})


def test_a_library_that_crashes_keeps_nothing_from_the_nodes(monkeypatch: pytest.MonkeyPatch, roots: sources.Roots) -> None:
    monkeypatch.setattr(sources._nvml, "read", crashing)
    raw = sources.collect(roots, "nobody", 10, "never", None)
    assert raw["nvml"]["devices"] == [DEVICE]
    assert raw["nvml"]["fault"] == "the process was ended by SIGSEGV (at GPU 0)"
    assert (raw["nodes"]["/dev/nvidia1"]["openable"], raw["user"]["fault"]) == (False, None)
    assert [entry["pid"] for entry in raw["processes"]] == [20] and len(raw["services"]) == 1


def test_a_driver_that_hangs_is_waited_for_once(monkeypatch: pytest.MonkeyPatch, roots: sources.Roots) -> None:
    waits: list[bool] = []

    def noting(*arguments: Any) -> Answer:
        answer = ask(*arguments)
        waits.append(answer.timed_out)
        return answer

    monkeypatch.setattr(sources, "ask", noting)
    monkeypatch.setattr(sources._nvml, "read", hanging)
    raw = sources.collect(roots, "nobody", 0.5, "always", None)
    assert waits.count(True) == 1
    assert raw["nvml"]["fault"] == "no answer within 0.5 s (at GPU 0)" and raw["nvml"]["devices"] == [DEVICE]
    assert (raw["nodes"]["/dev/nvidia1"]["openable"], raw["user"]["fault"], raw["cuda"]) == (None, None, None)
    # What does not wait for the driver is known all the same: whose the cards are that answered.
    assert [entry["pid"] for entry in raw["processes"]] == [20] and len(raw["services"]) == 1


def test_a_process_that_hangs_is_not_asked_again(monkeypatch: pytest.MonkeyPatch, roots: sources.Roots) -> None:
    children: list[float] = []
    monkeypatch.setattr(sources, "ask", lambda *arguments: children.append(arguments[1]) or ask(*arguments))
    monkeypatch.setattr(sources._nvml, "read", answering)
    monkeypatch.setattr(sources, "process", lambda *_arguments: time.sleep(60))
    raw = sources.collect(roots, "nobody", 0.3, "never", None)
    assert len(children) == 1
    assert raw["nvml"]["fault"] == "no answer within 0.3 s (at process 20)"


def test_who_is_not_root_opens_no_node_as_somebody_else(monkeypatch: pytest.MonkeyPatch, roots: sources.Roots) -> None:
    monkeypatch.setattr(sources._nvml, "read", answering)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    raw = sources.collect(roots, "nobody", 10, "never", None)
    assert raw["user"]["fault"] == "only root can open files as nobody"
    assert raw["nodes"]["/dev/nvidia0"]["openable"] is None


def test_a_refused_change_of_the_user_is_told(monkeypatch: pytest.MonkeyPatch, roots: sources.Roots) -> None:
    def refuse(_groups: list[int]) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(sources._nvml, "read", answering)
    monkeypatch.setattr(os, "setgroups", refuse)
    raw = sources.collect(roots, "nobody", 10, "never", None)
    assert raw["user"]["fault"] == "this process cannot become user 65534: Operation not permitted"
    assert raw["nvml"]["fault"] is None
