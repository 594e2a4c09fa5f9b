# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waiting for many servers at once, and the reason when one does not come up.

This module util is PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

import concurrent.futures
import http.client
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Callable

from ansible_collections.blackwell.inference.plugins.module_utils._instances import show
from ansible_collections.blackwell.inference.plugins.module_utils._journal import SECRET_NAME, Run, last_lines
from ansible_collections.blackwell.inference.plugins.module_utils._units import Instance

# The health check generates a token and takes a second at its best; a compiling server answers later.
REQUEST_TIMEOUT = 15.0
PAUSE = 1.0
# A server that fails again and again does not get healthy by waiting for the rest of the time.
RESTARTS = 3


@dataclass(frozen=True)
class Health:
    ok: bool
    detail: str


def http_status(url: str) -> str:
    """The status of an answer, or why there is none. Loopback is never reached through a proxy."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=REQUEST_TIMEOUT) as answer:
            return str(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return str(error.code)
    except (OSError, http.client.HTTPException) as error:
        return f"no answer ({getattr(error, 'reason', None) or type(error).__name__})"


def await_all(
    run: Run,
    instances: list[Instance],
    host: str,
    timeout: float,
    get: Callable[[str], str] = http_status,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[int, Health]:
    """Poll all of them at the same time until each is healthy, has failed for good, or the time is over."""
    done: dict[int, Health] = {}
    deadline = clock() + timeout
    first = {index: _restarts(unit) for index, unit in show(run, instances).items()}
    pending = list(instances)
    while pending:
        with concurrent.futures.ThreadPoolExecutor(max_workers=len(pending)) as pool:
            answers = list(pool.map(lambda one: get(f"http://{host}:{one.port}/health"), pending))
        units = show(run, pending)
        late = clock() >= deadline
        for one, answer in zip(pending, answers):
            unit = units[one.index]
            restarts = _restarts(unit) - first[one.index]
            state = f"{unit.get('ActiveState')} ({unit.get('SubState')}, {unit.get('Result')}), /health: {answer}"
            # The answer of a process that ended meanwhile, or of another one on that port, counts for nothing.
            if answer == "200" and unit.get("ActiveState") == "active":
                done[one.index] = Health(True, "200")
            elif unit.get("ActiveState") == "failed" or restarts >= RESTARTS:
                done[one.index] = Health(False, f"{state}, {restarts} restarts")
            elif late:
                done[one.index] = Health(False, f"{state} after {timeout:g} s")
        pending = [one for one in pending if one.index not in done]
        if pending:
            sleep(PAUSE)
    return done


def _restarts(unit: dict[str, str]) -> int:
    text = unit.get("NRestarts", "0")
    return int(text) if text.isdigit() else 0


def _secrets(instance: Instance) -> list[str]:
    return [value for name, value in instance.env.items() if SECRET_NAME.search(name)]


def message(run: Run, instances: list[Instance], health: dict[int, Health], since: float) -> str:
    """One paragraph for each server that is not healthy."""
    failed = [one for one in instances if not health[one.index].ok]
    lines = [f"{len(failed)} of {len(instances)} inference servers are not healthy:"]
    for one in failed:
        lines.append(
            f"- {one.unit} (port {one.port}, {one.gpu}): found {health[one.index].detail}; wanted active, /health: 200."
            f" Its last lines:\n{last_lines(run, one.unit, _secrets(one), since)}"
        )
    lines.append(
        "See `journalctl -u <unit>` for more. Whether stack and GPU fit is checked by stack_verify, whether somebody else"
        " holds the GPU by gpu_facts; correct the cause and run this again"
    )
    return "\n".join(lines)
