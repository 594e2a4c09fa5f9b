# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lab is no installed package: its folders come onto the path here."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

_LAB = Path(__file__).resolve().parents[2] / "lab"
sys.path[:0] = [str(_LAB), str(_LAB / "shims")]

from pveshim import state, storage, tasks


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A node's places below a temporary folder, with nothing running and the bridge vmbr0."""
    (tmp_path / "pve/lxc").mkdir(parents=True)
    (tmp_path / "lxc").mkdir()
    (tmp_path / "templates").mkdir()
    monkeypatch.setattr(state, "PVE", tmp_path / "pve")
    monkeypatch.setattr(state, "LXC", tmp_path / "lxc")
    monkeypatch.setattr(state, "LOCKS", tmp_path / "locks")
    monkeypatch.setattr(state, "node_name", lambda: "kpro6")
    monkeypatch.setattr(tasks, "LOGS", tmp_path / "tasks")
    monkeypatch.setattr(tasks, "node_name", lambda: "kpro6")
    monkeypatch.setattr(storage, "TEMPLATES", tmp_path / "templates")
    places = {name: facts | {"path": str(tmp_path)} for name, facts in storage.STORAGES.items()}
    monkeypatch.setattr(storage, "STORAGES", places)
    return tmp_path


CONFIG = """\
arch: amd64
cores: 2
features: nesting=1
hostname: llm
memory: 2048
ostype: debian
rootfs: local-lvm:vm-200-disk-0,size=8G
swap: 512
unprivileged: 1
"""


@pytest.fixture
def ct200(node: Path) -> Path:
    """The configuration file of a stopped container 200."""
    path = node / "pve/lxc/200.conf"
    path.write_text(CONFIG)
    return path
