# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All inference services of a container: what is, what must be done, in which order.

This module util is PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.blackwell.inference.plugins.module_utils import _files, _units
from ansible_collections.blackwell.inference.plugins.module_utils._files import FileState
from ansible_collections.blackwell.inference.plugins.module_utils._journal import SECRET_NAME, Run
from ansible_collections.blackwell.inference.plugins.module_utils._refusal import Refusal
from ansible_collections.blackwell.inference.plugins.module_utils._units import Instance, Settings

PROPERTIES = ("Id", "ActiveState", "SubState", "UnitFileState", "NeedDaemonReload", "MainPID", "NRestarts", "Result")
WANTS = "/etc/systemd/system/multi-user.target.wants"
_NAME = re.compile(r"[A-Z_][A-Z0-9_]{0,99}", re.IGNORECASE)
_UNIT = re.compile(r"inference@(?P<name>[A-Za-z0-9:_.-]+)\.service")
_ENV_FILE = re.compile(r"(?P<name>[A-Za-z0-9:_.-]+)\.env")
_GPU = re.compile(r"(?:GPU|MIG)-[A-Za-z0-9-]{1,64}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_OURS = ("INFERENCE_", "CUDA_VISIBLE_DEVICES")


@dataclass
class Found:
    """What there is: files by path, unit properties and start records by instance, and names nobody wants."""

    files: dict[str, FileState | None]
    units: dict[int, dict[str, str]]
    started: dict[int, tuple[str, str] | None]
    surplus: list[str] = field(default_factory=list)


@dataclass
class Steps:
    """What must be done, in this order. `reasons` says for each instance why it is touched."""

    remove: list[str] = field(default_factory=list)
    write: list[FileState] = field(default_factory=list)
    reload: bool = False
    enable: list[int] = field(default_factory=list)
    restart: list[int] = field(default_factory=list)
    reasons: dict[int, list[str]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.remove or self.write or self.reload or self.enable or self.restart)


def _refuse(found: str, wanted: str) -> Refusal:
    return Refusal("The list of instances", found, wanted, "Correct the list; nothing was changed")


def validate(instances: Iterable[Instance]) -> None:
    seen: dict[tuple[str, Any], int] = {}
    for one in instances:
        for key in (("index", one.index), ("port", one.port), ("GPU", one.gpu)):
            if key in seen:
                raise _refuse(f"the {key[0]} {key[1]} of instances {seen[key]} and {one.index}", "each only once")
            seen[key] = one.index
        if one.index < 0 or not 1024 <= one.port <= 65535:
            raise _refuse(f"index {one.index} with port {one.port}", "an index from 0, a port from 1024 to 65535")
        if not _GPU.fullmatch(one.gpu) or not re.fullmatch(r"[0-9]{1,2}\.[0-9]", one.compute_capability):
            raise _refuse(f"GPU {one.gpu!r:.80} of {one.compute_capability!r:.20}", "a UUID and a compute capability")
        for text in (*one.args, *one.env.values()):
            if _CONTROL.search(text):
                raise _refuse(f"{text!r:.120} of instance {one.index}", "text without control characters")
        for name in one.env:
            if not _NAME.fullmatch(name) or name.startswith(_OURS):
                raise _refuse(f"the variable {name!r:.80} of instance {one.index}", "a name that is not set here already")


def wanted_files(instances: Iterable[Instance], settings: Settings) -> list[FileState]:
    unit, script = _units.unit(settings), _units.script(settings)
    files = [FileState(settings.unit_file, unit), FileState(settings.script, script, 0o755)]
    for one in instances:
        text = _units.env_file(one, settings, unit + script)
        # Not for everybody's eyes: an operator's variables may hold a token.
        files.append(FileState(_env_path(settings, one.index), text, 0o640, "root", settings.user))
    return files


def _env_path(settings: Settings, name: int | str) -> str:
    return os.path.join(settings.instances, f"{name}.env")


def parse_show(text: str) -> dict[str, dict[str, str]]:
    """`systemctl show` of several units: blocks of NAME=value, an empty line between them."""
    blocks = (dict(line.split("=", 1) for line in block.splitlines() if "=" in line) for block in text.split("\n\n"))
    return {block["Id"]: block for block in blocks if "Id" in block}


def show(run: Run, instances: Iterable[Instance]) -> dict[int, dict[str, str]]:
    """Properties of all units by one call."""
    listed = list(instances)
    if not listed:
        return {}
    code, out, err = run(["systemctl", "show", *(one.unit for one in listed), f"--property={','.join(PROPERTIES)}"])
    if code != 0:
        raise Refusal(
            "The services",
            f"systemctl's exit status {code}: {err.strip()[-300:]}",
            "a running systemd",
            "Run this in a host or container that was booted with systemd",
        )
    blocks = parse_show(out)
    return {one.index: blocks.get(one.unit, {}) for one in listed}


def _listing(folder: str) -> list[str]:
    return os.listdir(folder) if os.path.isdir(folder) else []


def surplus(run: Run, instances: Iterable[Instance], settings: Settings, wants: str = WANTS) -> list[str]:
    """Names of instances that exist in any form and that nobody wants."""
    _code, out, _err = run(["systemctl", "list-units", "--all", "--plain", "--no-legend", "inference@*.service"])
    names = [line.split()[0] for line in out.splitlines() if line.strip()] + _listing(wants)
    found = {match["name"] for name in names if (match := _UNIT.fullmatch(name))}
    found |= {match["name"] for name in _listing(settings.instances) if (match := _ENV_FILE.fullmatch(name))}
    return sorted(found - {str(one.index) for one in instances})


def read_started(settings: Settings, index: int) -> tuple[str, str] | None:
    """What the running server was started with; its folder goes when it stops."""
    with contextlib.suppress(OSError, ValueError):
        with open(os.path.join(settings.runtime, str(index), "started"), encoding="utf-8") as file:
            config, stack = file.read(4096).rstrip("\n").split(" ", 1)
        return config, stack
    return None


def gather(run: Run, instances: list[Instance], settings: Settings, wanted: list[FileState]) -> Found:
    return Found(
        files={state.path: _files.read(state.path) for state in wanted},
        units=show(run, instances),
        started={one.index: read_started(settings, one.index) for one in instances},
        surplus=surplus(run, instances, settings),
    )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _start_reasons(unit: dict[str, str], started: tuple[str, str] | None, config: str, settings: Settings) -> list[str]:
    state = unit.get("ActiveState", "inactive")
    if state not in ("active", "activating", "reloading"):
        return [f"it is {state}"]
    # A unit that is about to start again reads the new files by itself.
    if state != "active" or started is None:
        return []
    if started[1] != settings.stack:
        return [f"it runs on the stack {started[1]}"]
    return ["it runs with an earlier configuration"] if started[0] != config else []


def decide(found: Found, wanted: list[FileState], instances: list[Instance], settings: Settings) -> Steps:
    steps = Steps(remove=list(found.surplus))
    steps.write = [state for state in wanted if _files.differs(found.files[state.path], state)]
    written = {state.path for state in steps.write}
    steps.reload = settings.unit_file in written or any(unit.get("NeedDaemonReload") == "yes" for unit in found.units.values())
    texts = {state.path: state.content for state in wanted}
    for one in instances:
        unit = found.units.get(one.index, {})
        path = _env_path(settings, one.index)
        changed = [f"{name} differs" for name in (settings.unit_file, settings.script, path) if name in written]
        stopped = _start_reasons(unit, found.started.get(one.index), _digest(texts[path]), settings)
        if changed or stopped:
            steps.restart.append(one.index)
        if unit.get("UnitFileState") != "enabled":
            steps.enable.append(one.index)
            stopped = [*stopped, "it is not enabled"]
        steps.reasons[one.index] = changed + stopped
    return steps


def apply(run: Run, steps: Steps, instances: list[Instance], settings: Settings) -> None:
    """Files before the units that read them; whatever is cut off here is found and done by the next run."""
    units = {one.index: one.unit for one in instances}
    if steps.remove:
        _systemctl(run, ["disable", "--now", *(f"inference@{name}.service" for name in steps.remove)])
        for name in steps.remove:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(_env_path(settings, name))
    for state in steps.write:
        _files.write(state)
    if steps.reload:
        _systemctl(run, ["daemon-reload"])
    if steps.enable:
        _systemctl(run, ["enable", *(units[index] for index in steps.enable)])
    if steps.restart:
        names = [units[index] for index in steps.restart]
        # A unit that hit its start limit refuses every start until this is cleared; one that did not may refuse this.
        run(["systemctl", "reset-failed", *names])
        # Whether they really start is read back from their state and their health, with the reason.
        run(["systemctl", "restart", *names])


def _systemctl(run: Run, arguments: list[str]) -> None:
    code, out, err = run(["systemctl", *arguments])
    if code != 0:
        raise Refusal(
            f"`systemctl {' '.join(arguments)}`",
            f"exit status {code}: {(err or out).strip()[-500:]}",
            "status 0",
            "See `systemctl status` for the named unit (a masked unit must be unmasked by whoever masked it)",
        )


def masked(state: FileState | None) -> FileState | None:
    """The same file without the values that a diff must not show."""
    if state is None:
        return None
    lines = [
        f"{name}=(not shown)" if separator and SECRET_NAME.search(name) else line
        for line in state.content.split("\n")
        for name, separator, _value in [line.partition("=")]
    ]
    return FileState(state.path, "\n".join(lines), state.mode, state.owner, state.group)


def diff(found: Found, steps: Steps, instances: list[Instance]) -> list[dict[str, str]]:
    shown = []
    for state in steps.write:
        new = masked(state)
        if new is not None:
            shown.append(_files.diff(masked(found.files[state.path]), new))
    before = [f"inference@{name}.service present" for name in steps.remove]
    after = [f"inference@{name}.service absent" for name in steps.remove]
    for one in instances:
        if steps.reasons[one.index]:
            unit = found.units.get(one.index, {})
            enabled = unit.get("UnitFileState") or "disabled"
            before.append(f"{one.unit} {unit.get('ActiveState', 'inactive')}, {enabled}")
            after.append(f"{one.unit} active, enabled: {'; '.join(steps.reasons[one.index])}")
    if before:
        shown.append(
            {
                "before_header": "services",
                "after_header": "services",
                "before": "\n".join(before) + "\n",
                "after": "\n".join(after) + "\n",
            }
        )
    return shown
