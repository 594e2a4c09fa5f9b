# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The connection plugin on the lab: tasks in a container through its node, against ssh straight into the same container."""

from __future__ import annotations

import json
import os
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
LAB = ROOT / "tests" / "lab" / "lab"
NODE, CONTAINER, DIRECT = "kpro6", "kpro6-200", "direct"
TASKS = 20
ROUNDS = 5
FOLDER = "/var/tmp/blackwell-bench"
ELAPSED = re.compile(r"elapsed=(\d+\.\d+)")
MEGABYTES = 256
AGAINST = "the same by ssh straight into it"
# The container's template has no sshd, so the node's own goes in, with the node's host key, and runs as a unit.
FILES = "/usr/sbin/sshd /usr/lib/openssh /etc/ssh/ssh_host_ed25519_key /root/.ssh/authorized_keys"
LIBRARIES = "ldd /usr/sbin/sshd /usr/lib/openssh/sshd-session /usr/lib/openssh/sftp-server | grep -o '/[^ ]*[.]so[^ ]*' | sort -u"
INSIDE = "lxc-attach -n 200 --clear-env -v PATH=/usr/sbin:/usr/bin --"
LISTEN = f"""set -e
tar -C / -chf - $(for file in {FILES} $({LIBRARIES}); do echo "${{file#/}}"; done) | {INSIDE} tar xf - -C / --skip-old-files --no-same-owner
{INSIDE} sh -c 'getent passwd sshd >/dev/null || useradd --system --no-create-home --home-dir /run/sshd sshd
  mkdir -p /run/sshd; chmod 600 /etc/ssh/ssh_host_ed25519_key
  systemd-run --quiet --unit bench-sshd /usr/sbin/sshd -D -f /dev/null -h /etc/ssh/ssh_host_ed25519_key \\
    -o "Subsystem=sftp /usr/lib/openssh/sftp-server"'
"""
SILENCE = f"{INSIDE} sh -c 'systemctl stop bench-sshd; rm -rf {FILES}; userdel sshd'"


class NotMeasuredError(RuntimeError):
    """The message says why."""


def stat(_number: int) -> dict[str, Any]:
    return {"ansible.builtin.stat": {"path": "/etc/hostname"}}


def copy(number: int) -> dict[str, Any]:
    """Another content each time: a file that is right already would not be sent."""
    return {"ansible.builtin.copy": {"content": f"{uuid.uuid4()}\n", "dest": f"{FOLDER}/{number}", "mode": "0644"}}


def large(_number: int) -> dict[str, Any]:
    return {"ansible.builtin.copy": {"src": "large", "dest": f"{FOLDER}/large", "mode": "0644"}}


def play(task: Callable[[int], dict[str, Any]], count: int) -> list[dict[str, Any]]:
    """The connection is opened and the interpreter started once before the clock runs."""
    clock = "{{ now(utc=true).timestamp() }}"
    elapsed = "elapsed={{ '%.6f' | format((bench_end | float) - (bench_begin | float)) }}"
    timed = [
        {"ansible.builtin.file": {"path": FOLDER, "state": "directory", "mode": "0700"}},
        {"ansible.builtin.set_fact": {"bench_begin": clock}},
        *(task(number) for number in range(count)),
        {"ansible.builtin.set_fact": {"bench_end": clock}},
        {"ansible.builtin.debug": {"msg": elapsed}},
    ]
    removed = [{"ansible.builtin.file": {"path": FOLDER, "state": "absent"}}]
    return [{"hosts": "all", "gather_facts": False, "tasks": [{"block": timed, "always": removed}]}]


def direct() -> dict[str, Any]:
    """The container as a host of its own. It has the node's host key, and so goes by the node's name."""
    return {"all": {"hosts": {DIRECT: {"ansible_host": "10.99.0.200", "ansible_ssh_extra_args": "-o HostKeyAlias=10.99.0.11"}}}}


def run(task: Callable[[int], dict[str, Any]], count: int, host: str, inventory: str) -> float:
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        book, second = Path(name, "play.yml"), Path(name, "direct.yml")
        # JSON is YAML.
        book.write_text(json.dumps(play(task, count)), encoding="utf-8")
        second.write_text(json.dumps(direct()), encoding="utf-8")
        if task is large:
            Path(name, "large").write_bytes(os.urandom(MEGABYTES << 20))
        command = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", inventory, "-i", str(second), "--limit", host, str(book)]
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


def lab(*arguments: str) -> None:
    done = subprocess.run([str(LAB), *arguments], capture_output=True, text=True, check=False, timeout=120)
    if done.returncode:
        print(done.stdout + done.stderr, file=sys.stderr)
        raise NotMeasuredError("the lab is not up: make demo")


def connection() -> list[Row]:
    measures: list[tuple[str, Callable[[int], dict[str, Any]], int, int, str]] = [
        (f"{TASKS} stat in a container through pct", stat, TASKS, ROUNDS, "1.05"),
        (f"{TASKS} copy in a container through pct", copy, TASKS, ROUNDS, "1.1"),
        (f"copy of one file of {MEGABYTES} MiB through pct", large, 1, 3, "1"),
    ]
    try:
        lab("status")
        lab("shell", NODE, "--", "sh", "-c", LISTEN)
    except NotMeasuredError as reason:
        return [Row(name, unit="s", base_name=AGAINST, goal=f"ratio {goal}", note=str(reason)) for name, *_rest, goal in measures]
    try:
        return [measured(*measure) for measure in measures]
    finally:
        lab("shell", NODE, "--", "sh", "-c", SILENCE)


def measured(name: str, task: Callable[[int], dict[str, Any]], count: int, rounds: int, goal: str) -> Row:
    taken: dict[str, list[float]] = {CONTAINER: [], DIRECT: []}
    try:
        for _ in range(rounds):
            for host, values in taken.items():
                values.append(run(task, count, host, "inventory/lab"))
    except NotMeasuredError as reason:
        return Row(name, unit="s", base_name=AGAINST, goal=f"ratio {goal}", note=str(reason))
    return Row(name, median(taken[CONTAINER]), "s", median(taken[DIRECT]), AGAINST, goal=f"ratio {goal}")
