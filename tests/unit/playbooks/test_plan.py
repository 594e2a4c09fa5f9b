# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""playbooks/plan.yml as its user sees it: what it prints, writes and answers, as root and as a user who is not."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from sim.model import write_model

ROOT = Path(__file__).resolve().parents[3]
RECORDED = yaml.safe_load((ROOT / "inventory/facts/rtx-pro-6000-x8.yml").read_text(encoding="utf-8"))
LOCAL = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
# Without root's name and powers, in a user namespace: another account may not even read a checkout in root's home.
UNPRIVILEGED = ["unshare", "--user", "--map-user=1", "--map-group=1"] if os.geteuid() == 0 else []


def run(folder: Path, *arguments: str, through: list[str] | None = None) -> tuple[int, str]:
    """Return the exit code and everything that was printed."""
    environment = {
        **os.environ,
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "ANSIBLE_HOME": str(folder / "home"),
        "ANSIBLE_REMOTE_TEMP": str(folder / "home" / "tmp"),
        "ANSIBLE_NOCOLOR": "1",
        "HOME": str(folder / "home"),
        "TMPDIR": str(folder),
    }
    playbook = [str(Path(sys.executable).with_name("ansible-playbook")), str(ROOT / "playbooks" / "plan.yml")]
    command = [*(through or []), *playbook, *arguments]
    done = subprocess.run(command, env=environment, cwd=folder, text=True, capture_output=True, check=False, timeout=300)
    return done.returncode, done.stdout + done.stderr


def words(said: str) -> str:
    return " ".join(said.split())


def without_times(said: str) -> str:
    return said.partition("SECONDS PER STAGE")[0]


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    """A facts file with two hosts that are alike, one with an old driver and one that cannot be planned for."""
    gpu = RECORDED["gpu"]
    old = {**gpu, "driver": {**gpu["driver"], "version": "570.172.08", "library_version": "570.172.08"}}
    hosts: dict[str, Any] = {"kpro1": {"gpu": gpu}, "kpro2": {"gpu": gpu}, "old": {"gpu": old}}
    hosts["torn"] = {"gpu": old, "request": {"sglang_version": "0.5.12"}}
    (tmp_path / "facts.yml").write_text(yaml.safe_dump({"hosts": hosts, "model": RECORDED["model"]}), encoding="utf-8")
    return tmp_path


def test_a_fleet_is_one_table_and_fails_after_it_was_shown(fleet: Path) -> None:
    code, said = run(fleet, "-e", "facts_file=facts.yml", "-e", "plan_file=plan.json", "-e", "page_file=plan.html")
    assert code == 2, said
    for text in ("kpro[1-2] 8 x NVIDIA", "2 hosts", "old 8 x NVIDIA", "570.172.08 NO PLAN", "conflict driver: the driver is 570.172.08"):
        assert text in words(said), said
    assert said.count("HOSTS ") == 1 and said.index("one way out") < said.index("torn has no plan; the table above says why.")
    assert "BECAUSE" not in said
    made = json.loads((fleet / "plan.json").read_text(encoding="utf-8"))
    assert [list(entry["hosts"]) for entry in made["classes"]] == [["kpro1", "kpro2"], ["old"], ["torn"]]
    assert (fleet / "plan.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_check_mode_and_a_second_run_say_and_write_the_same(fleet: Path) -> None:
    arguments = ("-e", "facts_file=facts.yml", "-e", "plan_file=plan.json", "-e", "page_file=plan.html")
    first = run(fleet, "--check", *arguments)
    written = [(fleet / name).read_bytes() for name in ("plan.json", "plan.html")]
    second = run(fleet, *arguments)
    assert written == [(fleet / name).read_bytes() for name in ("plan.json", "plan.html")]
    assert first[0] == second[0] == 2
    assert without_times(first[1]).replace("changed: true", "changed: false") == without_times(second[1])


def test_the_reasons_come_on_demand_and_wishes_count(tmp_path: Path) -> None:
    facts = ROOT / "inventory/facts/rtx-pro-6000-x8.yml"
    code, said = run(
        tmp_path, "-e", f"facts_file={facts}", "-e", "explain=true", "-e", '{"stack_request": {"sglang_version": "0.5.12.post1"}}'
    )
    assert code == 0, said
    assert "== rtx-pro-6000-x8 =" in said and "BECAUSE" in said and "the request pins it." in said
    assert "SGLang 0.5.12.post1" in said and "asked for sglang_version 0.5.12.post1" in words(said)


def test_a_table_is_shown_even_when_no_host_can_be_measured(tmp_path: Path) -> None:
    hosts = {"deaf": {**LOCAL, "ansible_python_interpreter": "/none/python3"}}
    (tmp_path / "hosts.json").write_text(json.dumps({"inference": {"hosts": hosts, "vars": {"model_path": "/none"}}}), encoding="utf-8")
    code, said = run(tmp_path, "-i", "hosts.json")
    assert code == 2 and "deaf - - NO FACTS" in words(said) and "deaf has no plan; the table above says why." in said, said


def test_hosts_are_measured_without_root_and_left_as_they_are(tmp_path: Path) -> None:
    """No card is needed: what this user cannot see or reach is a row, and nothing is written on the way."""
    if UNPRIVILEGED:
        subprocess.run([*UNPRIVILEGED, "true"], check=True)
    write_model(tmp_path / "model")
    hosts: dict[str, Any] = {
        "here": LOCAL,
        "no_model": {**LOCAL, "model_path": str(tmp_path / "none")},
        "deaf": {**LOCAL, "ansible_python_interpreter": "/none/python3"},
        "gone1": {"ansible_host": "127.0.0.1", "ansible_port": 9},
        "gone2": {"ansible_host": "127.0.0.1", "ansible_port": 9},
    }
    inventory = {"inference": {"hosts": hosts, "vars": {"model_path": str(tmp_path / "model")}}}
    (tmp_path / "hosts.json").write_text(json.dumps(inventory), encoding="utf-8")
    before = sorted(path.name for path in tmp_path.iterdir())
    code, said = run(tmp_path, "-i", "hosts.json", through=UNPRIVILEGED)
    assert code == 2, said
    for text in (
        "here - - UNUSABLE FACTS - found The input of the plan cannot be used: - gpu.devices is empty",
        "no_model - - NO FACTS - found model_facts: Found nothing at",
        "deaf - - NO FACTS - found gpu_facts: The module interpreter '/none/python3' was not found",
        "gone[1-2] - - UNREACHABLE - 2 hosts found gone1:",
        "5 hosts in 4 classes: 0 with a plan, 5 without.",
    ):
        assert text in words(said), (text, said)
    assert said.count("HOSTS ") == 1
    recap = re.findall(r"^\w+ +: .*changed=(\d+)", said, re.MULTILINE)
    assert recap == ["0"] * 5
    assert sorted({path.name for path in tmp_path.iterdir()} - {"home"}) == before
    assert not re.search(r"sudo|become", said)
