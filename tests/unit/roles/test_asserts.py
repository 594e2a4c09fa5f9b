# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the roles refuse, shown to fire on bad input and to let good input pass.

The roles' own tasks run on this machine, in check mode, since it may be a node after all. Each case is a host of one run. What
only a node with cards can show is in tests/integration/test_faults.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from sim.model import write_model

# One run answers for all cases, so they belong to one worker.
pytestmark = pytest.mark.xdist_group("asserts")

ROOT = Path(__file__).parents[3]
RECORDED = yaml.safe_load((ROOT / "inventory" / "facts" / "rtx-pro-6000-x8.yml").read_text(encoding="utf-8"))["gpu"]
MODELS = "{{ case_folder }}/models"
PATH = "{{ case_folder }}/commands"
INDEX = {"pve_host_index_url": "http://192.0.2.1/simple"}
KEY = {"gateway_api_key": "a-key-of-some-length"}
CONTAINER = {
    "pve_container_vmid": 200,
    "pve_container_node": "node",
    "ansible_connection": "blackwell.inference.pct",
    "ansible_pct_vmid": 200,
    "ansible_host": "192.0.2.11",
}


@dataclass(frozen=True)
class Case:
    """One input of a role's tasks. `task`: the one that must fail; None: all must pass."""

    role: str
    tasks: str
    variables: Mapping[str, Any]
    task: str | None
    found: str = ""
    gpu: Mapping[str, Any] = field(default_factory=dict)


def loaded(version: str | None) -> dict[str, Any]:
    return {**RECORDED, "driver": {**RECORDED["driver"], "version": version}}


# The first task after an assert that is no assert shows that good input passed: without a node it cannot do its work.
FETCH = "Fetch the gateway's wheels to the node"
CASES = {
    "no package index": Case("pve_host", "main", {"pve_host_index_url": ""}, "Require a package index", 'pve_host_index_url is ""'),
    "no Proxmox VE": Case("pve_host", "main", INDEX, "Require Proxmox VE 8 or newer", "pveversion"),
    "old Proxmox VE": Case(
        "pve_host", "preflight", {**INDEX, "case_path": f"{PATH}/7"}, "Require Proxmox VE 8 or newer", "pve-manager/7.4-17"
    ),
    "a node": Case("pve_host", "preflight", {**INDEX, "case_path": f"{PATH}/9"}, None),
    "no plan": Case("inference", "main", {}, "Require a plan and a stack", "0 planned servers"),
    "a plan": Case("inference", "main", {"inference_servers": [{}], "inference_stack": "/x"}, "Run one server per GPU"),
    "short key": Case("gateway", "main", {"gateway_api_key": "too short"}, "Require a key", "too short"),
    "a key": Case("gateway", "main", KEY, FETCH),
    "model without a shard": Case(
        "model", "main", {"model_path": f"{MODELS}/missing"}, "Require a complete model", "model-00003-of-00014.safetensors"
    ),
    "model that is cut": Case(
        "model", "main", {"model_path": f"{MODELS}/cut"}, "Require a complete model", "model-00002-of-00014.safetensors"
    ),
    "model without a tokenizer": Case(
        "model", "main", {"model_path": f"{MODELS}/mute"}, "Require a model that the service can load", "tokenizer.json"
    ),
    "model of root alone": Case(
        "model", "main", {"model_path": f"{MODELS}/private"}, "Require a model that the service can load", "closed to other users"
    ),
    "model": Case("model", "main", {"model_path": f"{MODELS}/whole"}, None),
    "no number": Case("pve_container", "preflight", {}, "Require the container's number", "pve_container_vmid 0"),
    "no node": Case(
        "pve_container", "preflight", {**CONTAINER, "pve_container_node": "other"}, "Require the container's node", "'other'"
    ),
    "another connection": Case(
        "pve_container", "preflight", {**CONTAINER, "ansible_connection": "local"}, "Require the way into the container",
        "ansible_connection local",
    ),
    "another container": Case(
        "pve_container", "preflight", {**CONTAINER, "ansible_pct_vmid": 201}, "Require the way into the container",
        "ansible_pct_vmid 201",
    ),
    "another node": Case(
        "pve_container", "preflight", {**CONTAINER, "ansible_host": "192.0.2.12"}, "Require the way into the container",
        "ansible_host 192.0.2.12",
    ),
    "a container": Case("pve_container", "preflight", CONTAINER, None),
    "no cards": Case("nvidia_driver", "preflight", {}, "Require NVIDIA hardware", "no NVIDIA GPU", {**RECORDED, "count": 0}),
    "another driver": Case(
        "nvidia_driver", "preflight", {}, "Refuse to exchange a driver that is loaded", "driver 580.105.08", loaded("580.105.08")
    ),
    "no driver yet": Case("nvidia_driver", "preflight", {}, None, gpu=loaded(None)),
    "the driver": Case("nvidia_driver", "preflight", {}, None, gpu=RECORDED),
    "a driver that is not this machine's": Case(
        "nvidia_driver", "prove", {"nvidia_driver_version": "0.0.0"}, "Require the driver and every device node", "driver {"
    ),
}  # fmt: skip

def run_entry(role: str, tasks: str) -> dict[str, Any]:
    """The play of the cases that run these tasks."""
    recorded = {"ansible.builtin.set_fact": {"gpu": "{{ case_gpu }}", "cacheable": True}, "when": "case_gpu | length > 0"}
    include = {"ansible.builtin.include_role": {"name": f"blackwell.inference.{role}", "tasks_from": tasks}}
    failed = {"task": "{{ ansible_failed_task.name }}", "msg": "{{ ansible_failed_result.msg }}"}
    return {
        "hosts": f"{role}_{tasks}",
        "gather_facts": False,
        "environment": {"PATH": "{{ case_path | default(case_folder) }}"},
        "tasks": [{"block": [recorded, include], "rescue": [{"ansible.builtin.set_fact": {"case_failed": failed}}]}],
    }


WRITE = {
    "hosts": "writer",
    "gather_facts": False,
    "tasks": [
        {
            "ansible.builtin.copy": {
                "dest": "{{ case_folder }}/outcome.json",
                "content": "{{ dict(groups.cases | zip(groups.cases | map('extract', hostvars) "
                "| map(attribute='case_failed', default={}))) | to_json }}",
                "mode": "0644",
            },
            "check_mode": False,
        }
    ],
}


def playbook(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("ansible-playbook")), *arguments]
    environment = {**os.environ, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_FORKS": "2"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def write_models(folder: Path) -> None:
    for name in ("whole", "missing", "cut", "mute", "private"):
        write_model(folder / name)
    (folder / "missing" / "model-00003-of-00014.safetensors").unlink()
    (folder / "mute" / "tokenizer.json").unlink()
    (folder / "private" / "model-00001-of-00014.safetensors").chmod(0o600)
    shard = folder / "cut" / "model-00002-of-00014.safetensors"
    os.truncate(shard, shard.stat().st_size - 1)


def write_commands(folder: Path) -> None:
    for version in ("7.4-17", "9.0.3"):
        command = folder / version[0] / "pveversion"
        command.parent.mkdir(parents=True)
        command.write_text(f"#!/bin/sh\necho pve-manager/{version}/0\n", encoding="ascii")
        command.chmod(0o755)


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, dict[str, str]]]:
    """The failed task and its message by case; empty where nothing failed."""
    folder = tmp_path_factory.mktemp("cases")
    write_models(folder / "models")
    write_commands(folder / "commands")
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "case_folder": str(folder)}
    hosts = {name: {**local, **case.variables, "case_gpu": case.gpu} for name, case in CASES.items()}
    entries = sorted({(case.role, case.tasks) for case in CASES.values()})
    groups = {
        f"{role}_{tasks}": {"hosts": {name: {} for name, case in CASES.items() if (case.role, case.tasks) == (role, tasks)}}
        for role, tasks in entries
    }
    others = {"node": {"ansible_host": "192.0.2.11"}, "writer": local}
    inventory = {"all": {"hosts": others, "children": {"cases": {"hosts": hosts}, **groups}}}
    (folder / "hosts.json").write_text(json.dumps(inventory), encoding="utf-8")
    plays = [*(run_entry(role, tasks) for role, tasks in entries), WRITE]
    (folder / "play.json").write_text(json.dumps(plays), encoding="utf-8")
    done = playbook(folder, "-i", "hosts.json", "--check", "play.json")
    assert done.returncode == 0, done.stdout + done.stderr
    yield json.loads((folder / "outcome.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", CASES)
def test_the_role_refuses_bad_input_and_nothing_else(outcome: dict[str, dict[str, str]], name: str) -> None:
    case, failed = CASES[name], outcome[name]
    assert failed.get("task") == case.task, failed
    if case.found:
        found, wanted, do = (failed["msg"].find(word) for word in ("found: ", "wanted: ", "do: "))
        assert 0 == found < wanted < do, failed["msg"]
        assert case.found in failed["msg"][:wanted]


FACTS = {"no facts": "[1, 2]", "no model": "gpu: {}", "nothing": "", "no YAML": "gpu: ["}


@pytest.mark.parametrize("text", FACTS.values(), ids=FACTS)
def test_the_plan_refuses_what_is_no_facts(tmp_path: Path, text: str) -> None:
    facts = tmp_path / "facts.yml"
    facts.write_text(text, encoding="utf-8")
    done = playbook(ROOT, "playbooks/plan.yml", "-e", f"facts_file={facts}")
    said = " ".join((done.stdout + done.stderr).split())
    assert done.returncode != 0, said
    assert f"found: {facts}: " in said
    assert "wanted: gpu and model" in said and "do: begin from a file" in said
    assert "Choose the stack" not in said


def test_the_plan_takes_recorded_facts() -> None:
    done = playbook(ROOT, "playbooks/plan.yml", "-e", "facts_file=inventory/facts/rtx-pro-6000-x8.yml")
    assert done.returncode == 0, done.stdout


def asserts() -> set[str]:
    """Names of all tasks that assert or fail, in the roles and in the playbooks."""
    found = set()

    def look(entry: Any) -> None:
        if isinstance(entry, list):
            for part in entry:
                look(part)
        elif isinstance(entry, dict):
            if {"ansible.builtin.assert", "ansible.builtin.fail"} & set(entry):
                found.add(entry["name"])
            for value in entry.values():
                look(value)

    for folder in ("roles", "playbooks"):
        for path in (ROOT / folder).rglob("*.yml"):
            look(yaml.safe_load(path.read_text(encoding="utf-8")))
    return found


def test_every_assert_is_shown_to_fire() -> None:
    here = {case.task for case in CASES.values() if case.found}
    in_the_lab = (ROOT / "tests" / "integration" / "test_faults.py").read_text(encoding="utf-8")
    assert {name for name in asserts() - here if f'"{name}"' not in in_the_lab} == set()
