# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`pct` and `pvesh` on a node where nothing runs: exit codes, texts, and what is in the file afterwards."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from pveshim import config, pct, pvesh, state

# How proxmoxer's command backends recognise a task in the output.
PROXMOXER_UPID = r"UPID:[\w-]+:[0-9a-fA-F]{8}:[0-9a-fA-F]{8}:[0-9a-fA-F]{8}:\w+:[\w\._-]+:[\w\.@_-]+:\w*"
MISSING = "Configuration file 'nodes/kpro6/lxc/200.conf' does not exist\n"


def test_list_of_none_has_no_header(node: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert pct.main(["list"]) == 0
    assert capsys.readouterr().out == ""


def test_list(ct200: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ct200.write_text(ct200.read_text() + "lock: backup\n")
    assert pct.main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["VMID", "Status", "Lock", "Name"]
    assert lines[1].split() == ["200", "stopped", "backup", "llm"]
    assert lines[1].index("stopped") == 11


@pytest.mark.parametrize(
    ("words", "code"),
    [(["config", "200"], 2), (["status", "200"], 2), (["set", "200", "--cores", "1"], 2), (["start", "200"], 255)],
)
def test_missing_container(node: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: int) -> None:
    assert pct.main(words) == code
    assert capsys.readouterr() == ("", MISSING)


REFUSED = [
    (["create", "200", "local:vztmpl/x"], 2, "CT 200 already exists on node 'kpro6'"),
    (["stop", "200"], 255, "CT 200 not running"),
    (["exec", "200"], 255, "missing command"),
    (["exec", "200", "--", "true"], 255, "container '200' not running!"),
    (["exec", "200", "ls", "-l"], 2, "Unknown option: l"),
    (["push", "200", "/etc/hostname", "/x"], 255, "can only push files to a running CT"),
    (["pull", "200", "/x", "/y"], 255, "can only pull files from a running VM"),
    (["set", "200"], 2, "no options specified"),
    (["set", "200", "--frob", "1"], 2, "Unknown option: frob"),
    (["set", "200", "--dev0", "/dev/nosuch"], 2, "Device /dev/nosuch does not exist"),
    (["set", "200", "--digest", "abc", "--cores", "1"], 255, "detected modified configuration"),
    (["set", "200", "--delete", "frob"], 2, "400 Parameter verification failed.\ndelete: unknown option 'frob'"),
    (["set", "200", "--delete", "rootfs"], 255, "unable to delete required option 'rootfs'"),
    (["set", "200", "--unprivileged", "0"], 255, "unable to modify read-only option: 'unprivileged'"),
    (["create", "201", "local:vztmpl/x", "--rootfs", "nosuch:4"], 2, "storage 'nosuch' does not exist"),
    (["create", "201", "local:vztmpl/x"], 255, "storage 'local' does not support container directories"),
    (["create", "201", "local:vztmpl/x", "--rootfs", "local-lvm:4", "--dev0", "/dev/nosuch"], 2, "Device /dev/nosuch"),
    (["create", "99", "local:vztmpl/x"], 2, "400 Parameter verification failed.\nvmid: invalid format"),
    (["config"], 2, "400 not enough arguments"),
    (["config", "200", "300"], 2, "400 too many arguments"),
    (["migrate", "200", "kpro7"], 1, "bwlab: pct migrate is not simulated"),
    (["status", "200", "--verbose"], 1, "bwlab: pct status --verbose is not simulated"),
    ([], 255, "ERROR: no command specified"),
]


@pytest.mark.parametrize(("words", "code", "message"), REFUSED)
def test_refusals(ct200: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: int, message: str) -> None:
    before = ct200.read_text()
    assert pct.main(words) == code
    assert capsys.readouterr().err.startswith(message)
    assert ct200.read_text() == before
    assert state.vmids() == [200]


def test_a_creation_that_fails_half_way_leaves_nothing(node: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert pct.main(["create", "201", "local:vztmpl/nosuch.tar.zst", "--rootfs", "local-lvm:4"]) == 255
    message = "unable to create CT 201 - volume 'local:vztmpl/nosuch.tar.zst' does not exist\n"
    assert capsys.readouterr().err == message
    assert state.vmids() == []
    assert not (node / "lxc/201").exists()


def test_a_missing_bridge_fails_after_the_file_was_written(ct200: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert pct.main(["set", "200", "--net0", "name=eth0,bridge=nosuch0"]) == 2
    assert capsys.readouterr().err == "bridge 'nosuch0' does not exist\n"
    assert "net0: name=eth0,bridge=nosuch0,hwaddr=BC:24:11:" in ct200.read_text()


def test_a_bad_value_in_the_file_fails_late_too(ct200: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ct200.write_text(ct200.read_text() + "memory: lots\n")
    assert pct.main(["config", "200"]) == 255
    assert capsys.readouterr().err.startswith("400 Result verification failed.\nmemory: type check")
    assert pct.main(["set", "200", "--cores", "1"]) == 255
    assert "cores: 1\n" in ct200.read_text()


def test_the_same_value_again_changes_nothing(ct200: Path) -> None:
    before = ct200.read_text()
    assert pct.main(["set", "200", "--cores", "2", "--features", "nesting=1"]) == 0
    assert ct200.read_text() == before


def test_a_network_card_keeps_its_address(ct200: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "check_bridges", lambda _values: None)
    assert pct.main(["set", "200", "--net0", "name=eth0,bridge=vmbr0,ip=10.99.0.200/24"]) == 0
    first = re.search(r"hwaddr=(BC:24:11(:[0-9A-F]{2}){3})", ct200.read_text())
    assert first
    assert pct.main(["set", "200", "--net0", "name=eth0,bridge=vmbr0,ip=10.99.0.201/24"]) == 0
    line = f"net0: name=eth0,bridge=vmbr0,hwaddr={first.group(1)},ip=10.99.0.201/24,type=veth\n"
    assert line in ct200.read_text()


def test_pending_in_a_running_container(ct200: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "running", lambda _vmid: True)
    assert pct.main(["set", "200", "--features", "nesting=1,keyctl=1", "--onboot", "1"]) == 0
    assert ct200.read_text().endswith("\n[pve:pending]\nfeatures: nesting=1,keyctl=1\n")
    assert "onboot: 1\n" in ct200.read_text().split("[pve:pending]")[0]
    assert pvesh.main(["get", "/nodes/kpro6/lxc/200/pending", "--output-format", "json"]) == 0
    entries = {entry["key"]: entry for entry in json.loads(capsys.readouterr().out)}
    assert entries["features"] == {"key": "features", "value": "nesting=1", "pending": "nesting=1,keyctl=1"}
    assert pct.main(["set", "200", "--delete", "features"]) == 0
    assert ct200.read_text().endswith("\n[pve:pending]\ndelete: features\n")
    # Setting what is there anyway takes the pending removal back.
    assert pct.main(["set", "200", "--features", "nesting=1"]) == 0
    assert "pve:pending" not in ct200.read_text()


def test_lock(ct200: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert pct.main(["set", "200", "--lock", "backup"]) == 0
    for words in (["start", "200"], ["set", "200", "--cores", "1"], ["set", "200", "--delete", "lock"], ["destroy", "200"]):
        assert pct.main(words) == 255
        assert capsys.readouterr().err == "CT is locked (backup)\n"
    assert pct.main(["unlock", "200"]) == 0
    assert pct.main(["set", "200", "--cores", "1"]) == 0


def test_start_without_the_device_stays_stopped(ct200: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ct200.write_text(ct200.read_text() + "dev0: /dev/nosuch,mode=0666\n")
    assert pct.main(["start", "200"]) == 255
    assert capsys.readouterr().err == "Device /dev/nosuch does not exist\n"
    assert state.status(200) == "stopped"


def test_protection_and_destruction(ct200: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert pct.main(["set", "200", "--protection", "1"]) == 0
    assert pct.main(["destroy", "200"]) == 255
    assert capsys.readouterr().err == "can't remove CT 200 - protection mode enabled\n"
    assert pct.main(["set", "200", "--protection", "0"]) == 0
    assert pct.main(["destroy", "200"]) == 0
    assert not ct200.exists()


def test_api_config(ct200: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ct200.write_text("#a note\n" + ct200.read_text() + "lxc.prlimit.nofile: 9\n")
    assert pvesh.main(["get", "nodes/kpro6/lxc/200/config", "--output-format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert re.fullmatch(r"[0-9a-f]{40}", found.pop("digest"))
    assert (found["cores"], found["unprivileged"], found["hostname"]) == (2, 1, "llm")
    assert (found["description"], found["lxc"]) == ("a note\n", [["lxc.prlimit.nofile", "9"]])


def test_api_change_prints_nothing(ct200: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["set", "/nodes/kpro6/lxc/200/config", "-cores", "4", "-onboot", "True", "--output-format", "json"]
    assert pvesh.main(words) == 0
    assert capsys.readouterr() == ("", "")
    assert "cores: 4\n" in ct200.read_text() and "onboot: 1\n" in ct200.read_text()


def test_api_task_that_fails_is_a_call_that_succeeds(node: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["-vmid", "201", "-ostemplate", "local:vztmpl/nosuch", "-rootfs", "local-lvm:4", "--output-format", "json"]
    assert pvesh.main(["create", "/nodes/kpro6/lxc", *words]) == 0
    out, err = capsys.readouterr()
    assert re.search(PROXMOXER_UPID, out)
    assert err == "unable to create CT 201 - volume 'local:vztmpl/nosuch' does not exist\n"
    upid = json.loads(out)
    assert pvesh.main(["get", f"/nodes/kpro6/tasks/{upid}/status", "--output-format", "json"]) == 0
    status = json.loads(capsys.readouterr().out)
    assert (status["status"], status["exitstatus"], status["type"]) == ("stopped", err.strip(), "vzcreate")
    assert pvesh.main(["get", f"/nodes/kpro6/tasks/{upid}/log", "--output-format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)[-1]["t"] == f"TASK ERROR: {err.strip()}"


API_REFUSED = [
    (["get", "/nodes/kpro6/lxc/999/config"], 2, "Configuration file 'nodes/kpro6/lxc/999.conf' does not exist"),
    (["set", "/nodes/kpro6/lxc/200/config", "-memory", "x"], 2, "400 Parameter verification failed.\nmemory: type"),
    (["set", "/nodes/kpro6/lxc/200/config", "-frob", "x"], 2, "Unknown option: frob"),
    (["create", "/nodes/kpro6/lxc", "-ostemplate", "x"], 2, "400 Parameter verification failed.\nvmid: property is"),
    (["create", "/nodes/kpro6/lxc", "-vmid", "300"], 2, "400 Parameter verification failed.\nostemplate: property is"),
    (["create", "/nodes/kpro6/lxc/200/status/stop"], 255, "CT 200 not running"),
    (["get", "/nodes/other/lxc"], 255, "hostname lookup 'other' failed"),
    (["get", "/nodes/kpro6/tasks/UPID:x/status"], 2, "unable to open file - no such task"),
    (["get", "/access/users"], 1, "bwlab: pvesh get /access/users is not simulated"),
    (["create", "/nodes/kpro6/qemu"], 1, "bwlab: pvesh create /nodes/kpro6/qemu is not simulated"),
    (["ls", "/nodes"], 1, "bwlab: pvesh ls is not simulated"),
    (["get", "/nodes"], 1, "bwlab: pvesh --output-format text of a table"),
    (["get"], 2, "400 not enough arguments"),
]


@pytest.mark.parametrize(("words", "code", "message"), API_REFUSED)
def test_api_refusals(ct200: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: int, message: str) -> None:
    assert pvesh.main(words) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(message)


def test_api_lists(ct200: Path, node: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (node / "templates/debian.tar.zst").write_bytes(b"12345")

    def get(path: str, *words: str) -> list[dict[str, object]]:
        assert pvesh.main(["get", path, *words, "--output-format", "json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert isinstance(found, list)
        return found

    templates = get("/nodes/kpro6/storage/local/content", "-content", "vztmpl")
    assert [(entry["volid"], entry["size"]) for entry in templates] == [("local:vztmpl/debian.tar.zst", 5)]
    resources = get("/cluster/resources", "-type", "vm")
    assert [(entry["vmid"], entry["status"], entry["type"]) for entry in resources] == [(200, "stopped", "lxc")]
    assert [entry["vmid"] for entry in get("/nodes/localhost/lxc")] == [200]
