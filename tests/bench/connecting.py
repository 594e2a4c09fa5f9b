# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The connection plugin on the lab: tasks in a container through its node, against the same tasks on the node."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from bench.table import Row

ROOT = Path(__file__).resolve().parents[2]
NODE, CONTAINER = "kpro6", "kpro6-200"
TASKS = 20
ROUNDS = 5
FOLDER = "/var/tmp/blackwell-bench"
ELAPSED = re.compile(r"elapsed=(\d+\.\d+)")
AGAINST = "the same on the node by ssh"


class NotMeasuredError(RuntimeError):
    """The message says why."""


def stat(_number: int) -> dict[str, Any]:
    return {"ansible.builtin.stat": {"path": "/etc/hostname"}}


def copy(number: int) -> dict[str, Any]:
    """Another content each time: a file that is right already would not be sent."""
    return {"ansible.builtin.copy": {"content": f"{uuid.uuid4()}\n", "dest": f"{FOLDER}/{number}", "mode": "0644"}}


def play(task: Callable[[int], dict[str, Any]]) -> list[dict[str, Any]]:
    """The connection is opened and the interpreter started once before the clock runs."""
    clock = "{{ now(utc=true).timestamp() }}"
    elapsed = "elapsed={{ '%.6f' | format((bench_end | float) - (bench_begin | float)) }}"
    timed = [
        {"ansible.builtin.file": {"path": FOLDER, "state": "directory", "mode": "0700"}},
        {"ansible.builtin.set_fact": {"bench_begin": clock}},
        *(task(number) for number in range(TASKS)),
        {"ansible.builtin.set_fact": {"bench_end": clock}},
        {"ansible.builtin.debug": {"msg": elapsed}},
    ]
    removed = [{"ansible.builtin.file": {"path": FOLDER, "state": "absent"}}]
    return [{"hosts": "all", "gather_facts": False, "tasks": [{"block": timed, "always": removed}]}]


def run(task: Callable[[int], dict[str, Any]], host: str, inventory: str) -> float:
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        book = Path(name, "play.yml")
        # JSON is YAML.
        book.write_text(json.dumps(play(task)), encoding="utf-8")
        command = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", inventory, "--limit", host, str(book)]
        try:
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
        except subprocess.TimeoutExpired as error:
            raise NotMeasuredError(f"ansible-playbook on {host} took more than {error.timeout:.0f} s") from error
    found = ELAPSED.search(done.stdout)
    if done.returncode or not found:
        # The words go to the person who runs this and not into the table, since they name addresses and paths.
        print(done.stdout + done.stderr, file=sys.stderr)
        raise NotMeasuredError(f"ansible-playbook failed on {host}: make demo")
    return float(found[1])


def require_lab() -> None:
    status = subprocess.run([str(ROOT / "tests/lab/lab"), "status"], capture_output=True, check=False, timeout=60)
    if status.returncode:
        raise NotMeasuredError("the lab is not up: make demo")


def connection() -> list[Row]:
    rows = []
    for task, goal in ((stat, "1.05"), (copy, "1.1")):
        measure = f"{TASKS} {task.__name__} in a container through pct"
        taken: dict[str, list[float]] = {CONTAINER: [], NODE: []}
        try:
            require_lab()
            for _ in range(ROUNDS):
                for host, values in taken.items():
                    values.append(run(task, host, "inventory/lab"))
        except NotMeasuredError as reason:
            rows.append(Row(measure, unit="s", base_name=AGAINST, goal=f"ratio {goal}", note=str(reason)))
        else:
            rows.append(Row(measure, median(taken[CONTAINER]), "s", median(taken[NODE]), AGAINST, goal=f"ratio {goal}"))
    return rows
