# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One systemd service with its unit and its files: what is, what must be done. Private to the collection."""

from __future__ import annotations

import json
import os
import time
import urllib.error
from dataclasses import dataclass, field
from typing import Any, Callable

from ansible.module_utils.urls import open_url
from ansible_collections.blackwell.inference.plugins.module_utils import _files
from ansible_collections.blackwell.inference.plugins.module_utils._files import FileState
from ansible_collections.blackwell.inference.plugins.module_utils._journal import Run
from ansible_collections.blackwell.inference.plugins.module_utils._refusal import Refusal

SHOWN = ("LoadState", "ActiveState", "SubState", "UnitFileState", "NeedDaemonReload", "MainPID", "ActiveEnterTimestampMonotonic")


@dataclass
class Steps:
    """What must be done, in the order in which it is done."""

    write: list[FileState] = field(default_factory=list)
    reload: bool = False
    enable: bool = False
    restart: bool = False

    def __bool__(self) -> bool:
        return bool(self.write or self.reload or self.enable or self.restart)


def show(run: Run, name: str) -> dict[str, str]:
    """Return the unit's properties; LoadState is not-found for a unit that does not exist."""
    code, out, err = run(["systemctl", "show", name, "--property", ",".join(SHOWN)])
    if code != 0:
        raise Refusal(f"systemctl show {name}", err.strip() or f"exit status {code}", "a running systemd", "Check the target's PID 1")
    return dict(line.split("=", 1) for line in out.splitlines() if "=" in line)


def decide(found: list[FileState | None], wanted: list[FileState], unit: dict[str, str], newest_file: float, started: float) -> Steps:
    """Compare files and unit with what is wanted.

    newest_file and started are seconds since the epoch. A file newer than the running service means that an earlier run
    was interrupted between writing and restarting: the service still runs with the old one.
    """
    steps = Steps(write=[new for old, new in zip(found, wanted) if _files.differs(old, new)])
    steps.reload = unit.get("NeedDaemonReload") == "yes" or any(new.path.startswith("/etc/systemd/system/") for new in steps.write)
    steps.enable = unit.get("UnitFileState") != "enabled"
    steps.restart = bool(steps.write) or unit.get("ActiveState") != "active" or newest_file > started
    return steps


def apply(run: Run, name: str, steps: Steps) -> None:
    for wanted in steps.write:
        _files.write(wanted)
    commands = []
    if steps.reload:
        commands.append(["systemctl", "daemon-reload"])
    if steps.enable:
        commands.append(["systemctl", "enable", name])
    if steps.restart:
        # A unit that hit its start limit refuses every later start until this is cleared.
        commands += [["systemctl", "reset-failed", name], ["systemctl", "restart", name]]
    for command in commands:
        code, out, err = run(command)
        if code != 0 and command[1] != "reset-failed":
            raise Refusal(" ".join(command), (err or out).strip(), "success", "See the unit's journal")


def start_time(unit: dict[str, str], now: float, monotonic: float) -> float:
    """Return when the unit became active, in seconds since the epoch; 0 when it is not active."""
    since_boot = int(unit.get("ActiveEnterTimestampMonotonic") or 0) / 1e6
    return now - (monotonic - since_boot) if since_boot else 0.0


def newest(paths: list[str]) -> float:
    return max((os.stat(path).st_mtime for path in paths if os.path.exists(path)), default=0.0)


def await_ready(
    get: Callable[[str], dict[str, Any]], url: str, expected: dict[str, Any], timeout: float, pause: float = 0.5
) -> dict[str, Any]:
    """Poll url until its JSON answer holds the expected values.

    Returns the answer. Raises Refusal after timeout seconds with the last answer or error.
    """
    deadline = time.monotonic() + timeout
    while True:
        try:
            answer = get(url)
            if all(answer.get(key) == value for key, value in expected.items()):
                return answer
            last = json.dumps(answer, sort_keys=True)
        except (OSError, ValueError) as error:
            last = str(error)
        if time.monotonic() >= deadline:
            wanted = json.dumps(expected, sort_keys=True)
            raise Refusal(f"Readiness at {url}", f"{last} after {timeout:g} s", wanted, "See the service's journal and its workers")
        time.sleep(pause)


def get_json(url: str) -> dict[str, Any]:
    """Fetch url; an HTTP error's body counts as the answer, since readiness endpoints explain themselves there."""
    try:
        with open_url(url, timeout=5, use_proxy=False) as response:
            body = response.read()
    except urllib.error.HTTPError as error:
        body = error.read()
    answer = json.loads(body or b"{}")
    return answer if isinstance(answer, dict) else {"answer": answer}
