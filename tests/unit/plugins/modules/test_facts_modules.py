# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The three facts modules as Ansible runs them: one process, JSON in, JSON out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

MODULES = Path(__file__).parents[4] / "plugins" / "modules"


def run(name: str, check: bool = False, **options: Any) -> dict[str, Any]:
    arguments = {**options, "_ansible_check_mode": check}
    answer = subprocess.run(
        [sys.executable, str(MODULES / f"{name}.py")],
        input=json.dumps({"ANSIBLE_MODULE_ARGS": arguments}),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "99"},
    )
    assert answer.stderr == ""
    result: dict[str, Any] = json.loads(answer.stdout)
    return result


@pytest.mark.parametrize("check", [False, True])
def test_gpu_facts(check: bool) -> None:
    result = run("gpu_facts", check, vmid=200, cuda_attributes="never")
    assert result["changed"] is False
    assert list(result["ansible_facts"]) == ["gpu"]
    assert result["ansible_facts"]["gpu"]["container"]["vmid"] == 200


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"expected_compute_capability": "sm_120"}, "expected_compute_capability is 'sm_120'; wanted something like 12.0"),
        ({"timeout": 0}, "timeout is 0; wanted at least 1 second"),
        ({"cuda_attributes": "often"}, "value of cuda_attributes must be one of"),
        ({"devices": 1}, "Unsupported parameters"),
    ],
)
def test_gpu_facts_refuses_wrong_options(options: dict[str, Any], says: str) -> None:
    result = run("gpu_facts", **options)
    assert result["failed"] and says in result["msg"]


@pytest.mark.parametrize("check", [False, True])
def test_model_facts(tmp_path: Path, check: bool) -> None:
    (tmp_path / "config.json").write_text('{"num_hidden_layers": 2}')
    result = run("model_facts", check, path=str(tmp_path))
    assert result["changed"] is False
    assert result["ansible_facts"]["model"]["layers"] == 2


@pytest.mark.parametrize("check", [False, True])
def test_stack_facts(tmp_path: Path, check: bool) -> None:
    result = run("stack_facts", check, path=str(tmp_path))
    assert result["changed"] is False
    assert result["ansible_facts"]["stack"]["path"] == str(tmp_path)


@pytest.mark.parametrize("name", ["model_facts", "stack_facts"])
def test_a_path_that_is_no_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    assert run(name, path=str(tmp_path / "nothing"))["msg"].startswith(f"Found nothing at {tmp_path}/nothing; wanted")
    assert run(name, path=str(tmp_path / "file"))["msg"].startswith(f"Found a file at {tmp_path}/file; wanted")
