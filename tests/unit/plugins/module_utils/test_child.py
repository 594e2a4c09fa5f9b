# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from ansible_collections.blackwell.inference.plugins.module_utils._child import Say, ask


def test_takes_what_the_child_says() -> None:
    def talk(say: Say) -> None:
        for number in range(3):
            say({"n": number, "text": "x" * 200_000})

    answer = ask(talk, 10)
    assert [line["n"] for line in answer.said] == [0, 1, 2]
    assert (answer.fault, answer.timed_out) == (None, False)


def test_a_hang_ends_at_the_limit_and_keeps_what_came_before(tmp_path: Path) -> None:
    def hang(say: Say) -> None:
        say({"at": "nvmlInit"})
        (tmp_path / "pid").write_text(str(os.getpid()))
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(60)

    started = time.monotonic()
    answer = ask(hang, 0.3)
    assert time.monotonic() - started < 3
    assert answer.said == [{"at": "nvmlInit"}]
    assert answer.timed_out and answer.fault == "no answer within 0.3 s"
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_a_crash_in_a_library_is_a_fault() -> None:
    answer = ask(lambda _say: os.kill(os.getpid(), signal.SIGKILL), 10)
    assert (answer.said, answer.fault, answer.timed_out) == ([], "the process was ended by SIGKILL", False)


def test_an_exception_is_a_fault_and_stays_quiet(capfd: pytest.CaptureFixture[str]) -> None:
    def fail(_say: Say) -> None:
        os.write(1, b"noise of a library")
        raise RuntimeError

    assert ask(fail, 10).fault == "the process ended with status 1"
    assert capfd.readouterr() == ("", "")


def test_a_half_line_is_not_taken() -> None:
    def die(say: Say) -> None:
        say({"whole": 1})
        [pipe] = [cell.cell_contents for cell in getattr(say, "__closure__", ())]
        pipe.write(b'{"half":')
        os._exit(0)

    assert ask(die, 10).said == [{"whole": 1}]
