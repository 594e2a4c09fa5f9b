# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What runs in the room: the containers' configuration, and the playbook that makes Ansible's payloads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import inside
import payloads
import pytest


def container(unprivileged: bool, tmp_path: Path) -> dict[str, Any]:
    binds = {"/dev/nvidia0": "/dev/nvidia0", "/srv/model": str(tmp_path), "/usr/bin/smi": str(tmp_path / "smi")}
    return {"name": "x", "unprivileged": unprivileged, "binds": binds, "files": {}, "run": {}}


@pytest.mark.parametrize("unprivileged", [True, False])
def test_configuration(unprivileged: bool, tmp_path: Path) -> None:
    lines = inside.config(container(unprivileged, tmp_path), "/trees/x", {"/dev/nvidia0": "195:0"}).splitlines()
    # The card can be opened for writing, everything else is for reading.
    assert "lxc.mount.entry = /dev/nvidia0 dev/nvidia0 none bind,create=file 0 0" in lines
    assert f"lxc.mount.entry = {tmp_path} srv/model none rbind,ro,create=dir 0 0" in lines
    assert f"lxc.mount.entry = {tmp_path}/smi usr/bin/smi none rbind,ro,create=file 0 0" in lines
    assert ("lxc.idmap = u 0 100000 65536" in lines, "lxc.idmap = g 0 100000 65536" in lines) == (unprivileged, unprivileged)
    # Rules in an unprivileged container would take /dev/urandom away.
    assert ("lxc.cgroup2.devices.allow = c 195:0 rw" in lines) is not unprivileged
    assert [line for line in lines if "devices" in line] == ([] if unprivileged else ["lxc.cgroup2.devices.allow = c 195:0 rw"])


def test_numbers_of_devices_only(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert inside.numbers(["/dev/null", str(tmp_path / "file"), str(tmp_path)]) == {"/dev/null": "1:3"}


def test_a_program_that_does_not_end_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inside, "RUN_SECONDS", 0.05)
    assert inside.call(["sleep", "60"]) == (124, "", "not done after 0.05 s")
    assert inside.call(["sh", "-c", "echo out; echo err >&2; exit 3"]) == (3, "out\n", "err\n")


def test_each_payload_is_left_in_a_folder_of_its_own() -> None:
    wanted = {"gpu": ["gpu_facts", {"vmid": 200}], "model": ["model_facts", {"path": "/srv/model"}]}
    (play,) = payloads.playbook(wanted)
    assert [task["vars"]["ansible_remote_tmp"] for task in play["tasks"]] == ["/tmp/parts/gpu", "/tmp/parts/model"]
    assert play["tasks"][0]["blackwell.inference.gpu_facts"] == {"vmid": 200}
    # A module that fails where it is made must not stop the others.
    assert all(task["ignore_errors"] for task in play["tasks"])
