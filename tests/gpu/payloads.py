# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs in the room: has Ansible make the very files that it sends to targets, one self-contained Python program each.

Reads {name: [module, {option: value}]} from standard input and writes NAME.py into the folder /payloads. Ansible makes such a file
when it runs the module, so each module runs here once, where nothing looks at its answer.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

PAYLOADS = Path("/payloads")
PARTS = Path("/tmp/parts")
ENVIRON = {
    "PYTHONPATH": "/controller",
    "ANSIBLE_COLLECTIONS_PATH": "/collections",
    "ANSIBLE_HOME": "/tmp/ansible",
    "ANSIBLE_KEEP_REMOTE_FILES": "1",
    "ANSIBLE_PIPELINING": "0",
    "ANSIBLE_LOCALHOST_WARNING": "0",
}


def playbook(wanted: dict[str, Any]) -> list[dict[str, Any]]:
    tasks = [
        {
            "name": name,
            f"blackwell.inference.{module}": options,
            "vars": {"ansible_remote_tmp": str(PARTS / name)},
            "ignore_errors": True,
        }
        for name, (module, options) in wanted.items()
    ]
    hosts = {"hosts": "localhost", "connection": "local", "gather_facts": False}
    return [{**hosts, "vars": {"ansible_python_interpreter": "/usr/bin/python3"}, "tasks": tasks}]


def main() -> None:
    wanted = json.load(sys.stdin)
    # JSON is YAML.
    book = Path("/tmp/payloads.yml")
    book.write_text(json.dumps(playbook(wanted)), encoding="utf-8")
    command = [sys.executable, "-B", "-m", "ansible", "playbook", str(book)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **ENVIRON})
    for name in wanted:
        found = list(PARTS.glob(f"{name}/*/AnsiballZ_*.py"))
        if len(found) != 1:
            raise SystemExit(f"Ansible made {len(found)} payloads for {name}: {(done.stdout + done.stderr)[-3000:]}")
        shutil.copyfile(found[0], PAYLOADS / f"{name}.py")


if __name__ == "__main__":
    main()
