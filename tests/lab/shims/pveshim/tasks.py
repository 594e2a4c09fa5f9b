# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tasks: work with an id (UPID), a log and an end status, run in the foreground as the command line does."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from .errors import ParameterError, PveError
from .state import node_name

LOGS = Path("/var/log/pve/tasks")
_UPID = re.compile(
    r"UPID:(?P<node>[\w-]+):(?P<pid>[0-9A-F]{8}):(?P<pstart>[0-9A-F]{8}):(?P<starttime>[0-9A-F]{8})"
    r":(?P<type>\w+):(?P<id>[^:\s]*):(?P<user>[^:\s]+):"
)


@dataclass(frozen=True)
class Task:
    upid: str
    ok: bool


class _Tee:
    """Writes to the screen and to the task's log."""

    def __init__(self, screen: TextIO, log: TextIO) -> None:
        self.screen, self.log = screen, log

    def write(self, text: str) -> int:
        self.screen.write(text)
        return self.log.write(text)

    def flush(self) -> None:
        self.screen.flush()
        self.log.flush()


def run(kind: str, vmid: int | str, work: Callable[[], None]) -> Task:
    """Run work as a task. Its failure is one line on stderr and the task's status, never an exception."""
    pid = os.getpid()
    ticks = _start_ticks(pid)
    upid = f"UPID:{node_name()}:{pid:08X}:{ticks:08X}:{int(time.time()):08X}:{kind}:{vmid}:root@pam:"
    path = _log_path(upid)
    path.parent.mkdir(parents=True, exist_ok=True)
    screen = sys.stdout
    with path.open("a") as log:
        sys.stdout = _Tee(screen, log)
        try:
            work()
            log.write("TASK OK\n")
            return Task(upid, True)
        except PveError as error:
            message = " ".join(str(error).split("\n"))
            log.write(f"\nTASK ERROR: {message}\n")
            screen.flush()
            print(message, file=sys.stderr)
            return Task(upid, False)
        finally:
            sys.stdout = screen
            screen.flush()


def _start_ticks(pid: int) -> int:
    """When the process started, which tells it from a later one of the same number; 0 for none."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except FileNotFoundError:
        return 0


def _log_path(upid: str) -> Path:
    match = _UPID.fullmatch(upid)
    if match is None:
        raise ParameterError({"upid": "unable to parse worker upid"})
    return LOGS / match["starttime"][-1] / upid


def _parts(upid: str) -> dict[str, str | int]:
    match = _UPID.fullmatch(upid)
    if match is None or not _log_path(upid).exists():
        raise PveError(f"unable to open file - no such task '{upid}'", 2)
    numbers = {key: int(match[key], 16) for key in ("pid", "pstart", "starttime")}
    return {"upid": upid, "node": match["node"], "type": match["type"], "id": match["id"], "user": match["user"]} | numbers


def status(upid: str) -> dict[str, str | int]:
    """Status as the API shows it; a task whose process was killed before its last line has an unexpected status."""
    found = _parts(upid)
    lines = _log_path(upid).read_text().splitlines()
    last = lines[-1] if lines else ""
    if last == "TASK OK":
        return found | {"status": "stopped", "exitstatus": "OK"}
    if last.startswith("TASK ERROR: "):
        return found | {"status": "stopped", "exitstatus": last.removeprefix("TASK ERROR: ")}
    if _start_ticks(int(found["pid"])) == found["pstart"]:
        return found | {"status": "running"}
    return found | {"status": "stopped", "exitstatus": "unexpected status"}


def log(upid: str, start: int = 0, limit: int = 50) -> list[dict[str, str | int]]:
    _parts(upid)
    lines = _log_path(upid).read_text().splitlines()
    return [{"n": start + number, "t": line} for number, line in enumerate(lines[start : start + limit], 1)]


def listing(source: str, vmid: str) -> list[dict[str, str | int]]:
    if source not in ("archive", "active", "all"):
        raise ParameterError({"source": f"value '{source}' does not have a value in the enumeration 'archive, active, all'"})
    names = sorted((path.name for path in LOGS.glob("*/UPID:*")), key=lambda name: name.split(":")[4], reverse=True)
    found = []
    for name in names:
        entry = status(name)
        running = entry["status"] == "running"
        if running:
            del entry["status"]
        else:
            entry["status"] = entry.pop("exitstatus")
        if source in ("all", "active" if running else "archive") and vmid in ("", entry["id"]):
            found.append(entry)
    return found
