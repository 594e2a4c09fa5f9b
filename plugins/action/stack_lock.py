# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Make the lock of a plan on the controller, once: hosts that share a plan share its lock."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.blackwell.inference.plugins.module_utils import _lock
from ansible_collections.blackwell.inference.plugins.module_utils._durable import write_atomic
from ansible_collections.blackwell.inference.plugins.plugin_utils import _compile, _locker
from ansible_collections.blackwell.inference.plugins.plugin_utils._plan_shape import PLAN
from ansible_collections.blackwell.inference.plugins.plugin_utils._shape import problems

ARGUMENTS: dict[str, Any] = {
    "plan": {"type": "dict", "required": True},
    "path": {"type": "path", "required": True},
    "index_url": {"type": "str", "no_log": False},
    "uv": {"type": "path"},
    "timeout": {"type": "int", "default": 600},
}


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hosts are worked on in parallel: the first one makes the lock, the others wait for it."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def existing(file: Path, plan: dict[str, Any]) -> _lock.Lock | None:
    """The lock that is there already; one that cannot be used is never made anew behind the operator's back."""
    try:
        text = file.read_text(encoding="utf-8")
        lock = _lock.parse(text)
    except FileNotFoundError:
        return None
    except (UnicodeDecodeError, _lock.LockError) as error:
        raise _compile.LockingError(f"{file}: {error}. Restore the file, or remove it to have it made again.") from error
    wrong = _locker.differences(lock, plan)
    if lock.stack_id != plan["stack_id"]:
        wrong.insert(0, f"it says that it is of stack {lock.stack_id}, wanted {plan['stack_id']}")
    if wrong:
        raise _compile.LockingError(
            f"{file} is not the lock of this plan: {'; '.join(wrong[:5])}. Restore the file, or remove it to have it made again."
        )
    return lock


def refused(result: dict[str, Any], message: str) -> dict[str, Any]:
    """Returned and not raised: failed_when is asked only about a result."""
    return {**result, "failed": True, "msg": message}


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        _validated, arguments = self.validate_argument_spec(argument_spec=ARGUMENTS)
        plan = json.loads(json.dumps(arguments["plan"]))
        wrong = problems(plan, PLAN, "plan")
        if wrong:
            return refused(result, "The plan cannot be used; wanted: the plan that stack_plan returned.\n  - " + "\n  - ".join(wrong))
        if _compile.CREDENTIALS.search(arguments["index_url"] or ""):
            return refused(
                result,
                f"The option index_url holds a user or a password; wanted: an address alone, since tasks are logged. {_compile.SIGN_IN}",
            )
        folder = Path(arguments["path"])
        # A folder of locks lies in the inventory's folder, where ansible reads every file but those with an ending such as .txt.
        file = folder / f"{plan['stack_id']}.lock.txt"
        try:
            lock, changed = self._get(plan, file, arguments)
        except _compile.LockingError as error:
            return refused(result, str(error))
        except OSError as error:
            wanted = "wanted: a folder on the controller that can be written"
            return refused(result, f"The folder of locks {folder} cannot be used: {error.strerror}; {wanted}.")
        content = lock.text()
        files = [{"name": entry.name, "filename": entry.filename, "sha256": entry.sha256, "size": entry.size} for entry in lock.files()]
        result |= {"changed": changed, "path": str(file), "lock_id": lock.id, "stack_id": plan["stack_id"]}
        result |= {"content": content, "files": files}
        if self._task.diff:
            before = "" if changed else content
            result["diff"] = {"before": before, "after": content, "before_header": str(file), "after_header": str(file)}
        return result

    def _get(self, plan: dict[str, Any], file: Path, arguments: dict[str, Any]) -> tuple[_lock.Lock, bool]:
        if self._task.check_mode and not file.parent.is_dir():
            return self._make(plan, arguments), True
        file.parent.mkdir(parents=True, exist_ok=True)
        with alone(file.parent):
            found = existing(file, plan)
            if found:
                return found, False
            lock = self._make(plan, arguments)
            if not self._task.check_mode:
                write_atomic(str(file), lock.text().encode())
            return lock, True

    @staticmethod
    def _make(plan: dict[str, Any], arguments: dict[str, Any]) -> _lock.Lock:
        uv = _compile.find_uv(arguments["uv"])
        environ = _compile.environment(os.environ, arguments["index_url"])
        return _locker.make(_compile.runner(arguments["timeout"]), uv, plan, environ)
