# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""site.yml as a person runs it, against a lab that has converged once."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
LAB = ROOT / "tests" / "lab" / "lab"
LAB_STATE = Path("/var/lib/bwlab")
NODE = "kpro6"
VMID = "200"


@dataclass(frozen=True)
class Run:
    """What one run of ansible-playbook said."""

    status: int
    output: str

    @property
    def tasks(self) -> list[str]:
        """Names of the tasks that began, without their role, in order."""
        return re.findall(r"^TASK \[(?:[\w.]+ : )?(.*)\] \*+$", self.output, re.MULTILINE)

    @property
    def changed(self) -> list[tuple[str, str]]:
        """(task, host) of every change, in order."""
        result = []
        task = ""
        for line in self.output.splitlines():
            if match := re.match(r"(?:TASK|RUNNING HANDLER) \[(?:[\w.]+ : )?(.*)\] \*+$", line):
                task = match[1]
            elif match := re.match(r"changed: \[([^\] ]+)", line):
                result.append((task, match[1]))
        return result

    @property
    def errors(self) -> list[str]:
        return re.findall(r"^(?:fatal|failed): \[.*|^\[ERROR\].*", self.output, re.MULTILINE)

    @property
    def said(self) -> str:
        """The output as one line, so that a folded sentence can be searched."""
        return re.sub(r"\s+", " ", self.output)


def playbook(*arguments: str, cwd: Path = ROOT, environment: dict[str, str] | None = None) -> Run:
    command = [str(Path(sys.executable).with_name("ansible-playbook")), *arguments]
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, "ANSIBLE_NOCOLOR": "1", "COLUMNS": "300", **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return Run(done.returncode, done.stdout)


def site(*arguments: str) -> Run:
    return playbook("-i", "inventory/lab", "site.yml", *arguments)


def lab(*arguments: str) -> str:
    done = subprocess.run([str(LAB), *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, f"lab {' '.join(arguments)}: {done.stdout}"
    return done.stdout


def in_node(script: str) -> str:
    return lab("shell", NODE, "--", "sh", "-c", script)


def in_container(script: str, vmid: str = VMID) -> str:
    return lab("shell", NODE, vmid, "--", "sh", "-c", script)
