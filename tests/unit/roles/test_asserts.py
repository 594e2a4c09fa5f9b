# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the roles refuse, shown to fire: each role runs on this machine, in check mode, since it may be a node after all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.parametrize(
    ("role", "variables", "task", "wanted"),
    [
        ("pve_host", {"pve_host_index_url": ""}, "Require a package index", "set pve_host_index_url"),
        ("pve_host", {"pve_host_index_url": "http://192.0.2.1/simple"}, "Require Proxmox VE 8 or newer", "a Proxmox VE node"),
        ("inference", {}, "Require a plan and a stack", "at least one server and a proven stack"),
        ("gateway", {"gateway_api_key": "too short"}, "Require a key", "at least 16 printable characters"),
    ],
)
def test_the_role_refuses(tmp_path: Path, role: str, variables: dict[str, Any], task: str, wanted: str) -> None:
    play = [{"hosts": "localhost", "connection": "local", "gather_facts": False, "roles": [f"blackwell.inference.{role}"]}]
    (tmp_path / "play.json").write_text(json.dumps(play), encoding="utf-8")
    extra = json.dumps({**variables, "ansible_python_interpreter": sys.executable})
    command = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", "localhost,", "-e", extra, "--check", "play.json"]
    environment = {**os.environ, "ANSIBLE_NOCOLOR": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    said = " ".join((done.stdout + done.stderr).split())
    assert done.returncode != 0, said
    last = [line for line in done.stdout.splitlines() if line.startswith("TASK [")][-1]
    assert task in last, said
    assert wanted in said
    assert "found:" in said and "do:" in said
