# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is PRIVATE to the collection.

"""Calls of one Proxmox VE node's API through proxmoxer, with what its answers leave open settled."""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any, Callable

from ansible_collections.blackwell.inference.plugins.module_utils._refusal import Refusal

UPID = re.compile(r"UPID:[^:\s\"]+:[0-9A-F]{8}:[0-9A-F]{8,}:[0-9A-F]{8}:(\w+):[^:\s]*:[^:\s]+:", re.IGNORECASE)

# Another task holds the container's or the storage's lock. Asking again later is right.
# What may pass by itself: somebody else's lock, a cluster that is just losing or finding a member. Nothing was done then.
PASSING = re.compile(r"is locked|can't lock file|got timeout|trying to acquire lock|no quorum|no route to host", re.IGNORECASE)
STALE = "detected modified configuration"
ABSENT = re.compile(r"does not exist|no such (?:container|ct)", re.IGNORECASE)

# The API gives the first 50 lines unless asked for more. The reason stands in the last ones.
LOG_LIMIT = 5000
LOG_LINES = 20


class ApiError(Exception):
    """The API refused a call. The text is the node's own."""


class Stale(ApiError):
    """Somebody else changed the configuration between reading and writing."""


class Api:
    """`client` is a ProxmoxAPI, or whatever answers `client(path).get(...)` as it does."""

    def __init__(
        self,
        client: Any,
        node: str,
        timeout: float,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
        tasks: list[dict[str, str]],
    ) -> None:
        self._client = client
        self._base = f"nodes/{node}"
        self._timeout = timeout
        self.clock = clock
        self.sleep = sleep
        # Of the caller, who shows them also when a call fails.
        self.tasks = tasks

    def deadline(self) -> float:
        return self.clock() + self._timeout

    def resources(self) -> list[dict[str, Any]]:
        """Every container and virtual machine of the cluster."""
        answer = self._patiently("get", "cluster/resources", type="vm")
        return [entry for entry in answer if "vmid" in entry]

    def get(self, path: str, **params: Any) -> Any:
        """Read below the node."""
        answer = self._patiently("get", f"{self._base}/{path}", **params)
        if isinstance(answer, dict) and set(answer) == {"errors"}:
            raise ApiError(f"GET {path}: {answer['errors'] or 'no answer'}")
        return answer

    def change(self, method: str, path: str, **params: Any) -> None:
        """Write below the node, and wait for the task if there is one. A task that met a lock is started again."""
        deadline = self.deadline()
        while True:
            task = UPID.search(str(self._patiently(method, f"{self._base}/{path}", **params)))
            try:
                if task:
                    self._finish(task.group(0), task.group(1))
                return
            except ApiError as exc:
                if not PASSING.search(str(exc)) or self.clock() >= deadline:
                    raise
                self.sleep(2)

    def _patiently(self, method: str, path: str, **params: Any) -> Any:
        deadline = self.deadline()
        while True:
            try:
                return self._call(method, path, **params)
            except Stale:
                raise
            except ApiError as exc:
                if not PASSING.search(str(exc)) or self.clock() >= deadline:
                    raise
                self.sleep(2)

    def _finish(self, upid: str, kind: str) -> None:
        deadline = self.deadline()
        while True:
            state = self.get(f"tasks/{upid}/status")
            if state.get("status") == "stopped":
                break
            if self.clock() >= deadline:
                raise ApiError(f"Task {kind} still runs after {self._timeout:g} s ({upid}).")
            self.sleep(1)
        status = str(state.get("exitstatus", "none"))
        self.tasks.append({"upid": upid, "type": kind, "exitstatus": status})
        if status != "OK" and not status.startswith("WARNINGS"):
            log = "\n".join(str(line.get("t", "")) for line in self.get(f"tasks/{upid}/log", limit=LOG_LIMIT)[-LOG_LINES:])
            raise ApiError(f"Task {kind} ended with: {status}. Its log:\n{log}")

    def _call(self, method: str, path: str, **params: Any) -> Any:
        try:
            return getattr(self._client(path), method)(**params)
        except subprocess.TimeoutExpired as exc:
            raise ApiError(f"{method.upper()} {path}: no answer within {exc.timeout:g} s") from exc
        except OSError as exc:
            if exc.filename is None:
                raise ApiError(f"{method.upper()} {path}: {exc}") from exc
            raise Refusal(
                "The Proxmox VE API cannot be called",
                f"{exc.strerror}: {exc.filename}",
                "pvesh",
                "Run this module on a Proxmox VE node, as root",
            ) from exc
        except Exception as exc:
            # proxmoxer's own exceptions, told by their attributes since the library is not there to import in tests.
            content = getattr(exc, "content", None)
            if content is None:
                raise
            if getattr(exc, "exit_code", None) == 0:
                # Its local backend takes any text on standard error, such as a warning about a locale, for a failure.
                return _json_tail(content)
            text = f"{content} {_details(getattr(exc, 'errors', None))}".strip()
            raise (Stale if STALE in text else ApiError)(f"{method.upper()} {path}: {text}") from exc


def _details(errors: Any) -> str:
    """What proxmoxer found besides the status line: messages by parameter, or a body that is no JSON."""
    if isinstance(errors, dict) and set(errors) == {"errors"}:
        errors = errors["errors"]
    if isinstance(errors, bytes):
        errors = errors.decode("utf-8", "replace")
    return str(errors or "")[:LOG_LIMIT]


def _json_tail(text: str) -> Any:
    """The JSON value at the end of pvesh's output, or the text itself."""
    lines = text.splitlines()
    for start in range(len(lines)):
        try:
            return json.loads("\n".join(lines[start:]))
        except ValueError:
            continue
    return text
