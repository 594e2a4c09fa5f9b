# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import socket
from typing import Any

import pytest
from ansible_collections.blackwell.inference.plugins.module_utils import _service
from ansible_collections.blackwell.inference.plugins.module_utils._files import FileState
from ansible_collections.blackwell.inference.plugins.module_utils._refusal import Refusal

UNIT = FileState("/etc/systemd/system/x.service", "[Unit]")
CONFIG = FileState("/etc/x.conf", "a=1")
RUNNING = {"ActiveState": "active", "UnitFileState": "enabled", "NeedDaemonReload": "no"}


@pytest.mark.parametrize(
    ("found", "unit", "newest", "started", "expected"),
    [
        pytest.param([UNIT, CONFIG], RUNNING, 10.0, 20.0, (0, False, False, False), id="nothing to do"),
        pytest.param([None, CONFIG], RUNNING, 10.0, 20.0, (1, True, False, True), id="unit file absent"),
        pytest.param([UNIT, None], RUNNING, 10.0, 20.0, (1, False, False, True), id="other file absent: no daemon-reload"),
        pytest.param([UNIT, CONFIG], {**RUNNING, "ActiveState": "failed"}, 10.0, 20.0, (0, False, False, True), id="failed"),
        pytest.param([UNIT, CONFIG], {**RUNNING, "UnitFileState": "disabled"}, 10.0, 20.0, (0, False, True, False), id="disabled"),
        pytest.param([UNIT, CONFIG], {**RUNNING, "NeedDaemonReload": "yes"}, 10.0, 20.0, (0, True, False, False), id="not reloaded"),
        pytest.param([UNIT, CONFIG], RUNNING, 30.0, 20.0, (0, False, False, True), id="interrupted between writing and restarting"),
    ],
)
def test_decide(
    found: list[FileState | None], unit: dict[str, str], newest: float, started: float, expected: tuple[int, bool, bool, bool]
) -> None:
    steps = _service.decide(found, [UNIT, CONFIG], unit, newest, started)
    assert (len(steps.write), steps.reload, steps.enable, steps.restart) == expected
    assert bool(steps) == any(expected)


def test_start_time_counts_from_boot() -> None:
    assert _service.start_time({"ActiveEnterTimestampMonotonic": "90000000"}, now=1000.0, monotonic=100.0) == 990.0
    assert _service.start_time({"ActiveEnterTimestampMonotonic": "0"}, now=1000.0, monotonic=100.0) == 0.0


def test_apply_stops_at_the_first_failure() -> None:
    calls: list[list[str]] = []

    def run(command: list[str]) -> tuple[int, str, str]:
        calls.append(command)
        return (1, "", "Unit refused") if command[1] == "restart" else (0, "", "")

    with pytest.raises(Refusal) as caught:
        _service.apply(run, "x.service", _service.Steps(reload=True, enable=True, restart=True))
    assert "Unit refused" in str(caught.value)
    assert [command[1] for command in calls] == ["daemon-reload", "enable", "reset-failed", "restart"]


def test_await_ready_returns_the_answer_once_it_holds_what_is_expected() -> None:
    answers: list[Any] = [OSError("refused"), {"status": "not ready"}, {"status": "ready", "healthy_workers": 8}]

    def get(dummy_url: str) -> dict[str, Any]:
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return dict(answer)

    assert _service.await_ready(get, "u", {"status": "ready"}, timeout=60, pause=0)["healthy_workers"] == 8


@pytest.mark.parametrize("answer", [{"status": "not ready"}, ConnectionRefusedError("refused"), ValueError("no JSON")])
def test_await_ready_gives_up_with_the_last_answer(answer: Any) -> None:
    def get(dummy_url: str) -> dict[str, Any]:
        if isinstance(answer, Exception):
            raise answer
        return dict(answer)

    with pytest.raises(Refusal) as caught:
        _service.await_ready(get, "u", {"status": "ready"}, timeout=0, pause=0)
    assert ("not ready" if isinstance(answer, dict) else str(answer)) in str(caught.value)


def test_get_json_refuses_a_closed_port() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(OSError, match="refused"):
        _service.get_json(f"http://127.0.0.1:{port}/")
