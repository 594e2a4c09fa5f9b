# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ansible_collections.blackwell.inference.plugins.module_utils import _child
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


def test_this_process_works_meanwhile() -> None:
    done: list[int] = []
    answer = ask(lambda say: say("x" * 200_000), 10, lambda: done.append(1))
    assert done == [1] and answer.fault is None


def test_a_fault_meanwhile_leaves_no_child(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise KeyError

    fork, children = os.fork, []

    def noted() -> int:
        children.append(fork())
        return children[-1]

    monkeypatch.setattr(os, "fork", noted)
    with pytest.raises(KeyError):
        ask(lambda _say: time.sleep(60), 10, fail)
    with pytest.raises(ChildProcessError):
        os.waitpid(children[0], os.WNOHANG)


def test_silence_is_what_is_limited() -> None:
    def slow(say: Say) -> None:
        for number in range(6):
            time.sleep(0.2)
            say(number)

    answer = ask(slow, 0.9)
    assert answer.said == list(range(6)) and answer.fault is None


@pytest.mark.parametrize(
    ("number", "says"), [(signal.SIGKILL, "SIGKILL"), (signal.SIGABRT, "SIGABRT"), (signal.SIGRTMIN + 3, f"signal {signal.SIGRTMIN + 3}")]
)
def test_a_crash_in_a_library_is_a_fault(number: int, says: str) -> None:
    answer = ask(lambda _say: os.kill(os.getpid(), number), 10)
    assert (answer.said, answer.fault, answer.timed_out) == ([], f"the process was ended by {says}", False)


def test_a_library_that_ends_the_process_is_a_fault() -> None:
    def leave(say: Say) -> None:
        say(1)
        os._exit(0)

    answer = ask(leave, 10)
    assert (answer.said, answer.fault, answer.timed_out) == ([1], "the process ended with status 0", False)


def test_a_child_that_does_not_stop_talking() -> None:
    def talk(say: Say) -> None:
        while True:
            say("x" * 100_000)

    answer = ask(talk, 10)
    assert answer.fault == "more than 8 MiB of answers" and not answer.timed_out
    assert sum(map(len, answer.said)) < _child.MAX_ANSWER + 100_000


def test_a_child_holds_nothing_of_its_parent() -> None:
    reading, writing = os.pipe()

    def look(say: Say) -> None:
        say({name: os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")})

    try:
        said = ask(look, 10).said[0]
    finally:
        os.close(reading)
        os.close(writing)
    assert str(writing) not in said and str(reading) not in said
    assert [said[name] for name in "012"] == ["/dev/null"] * 3


def test_a_parent_that_ended_before_its_child_began() -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _child._child(lambda say: say("too late"), writing, parent=0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        assert pipe.read() == b""
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1


KILLED = """
import os, sys, time
from ansible_collections.blackwell.inference.plugins.module_utils._child import ask, end_with_parent
def hang(say):
    if sys.argv[1] == "other user":
        os.setuid(65534)
        end_with_parent()
    with open(sys.argv[2], "w") as note:
        note.write(f"{os.getpid()}\\n")
    time.sleep(60)
ask(hang, 60)
"""


@pytest.mark.parametrize("user", ["same user", "other user"])
def test_a_child_ends_with_its_parent(tmp_path: Path, user: str) -> None:
    note = tmp_path / "pid"
    note.touch()
    note.chmod(0o666)
    for folder in (tmp_path, *tmp_path.parents):
        if any("pytest-of-" in part for part in folder.parts):
            folder.chmod(0o755)
    parent = subprocess.Popen([sys.executable, "-c", KILLED, user, str(note)])
    try:
        deadline = time.monotonic() + 30
        while not note.read_text().endswith("\n"):
            assert time.monotonic() < deadline and parent.poll() is None
            time.sleep(0.01)
        child = int(note.read_text())
        # The child's end is seen through a descriptor of it: its number could go to somebody else.
        descriptor = os.pidfd_open(child)
    finally:
        parent.kill()
        parent.wait()
    try:
        ended, _writable, _failed = select.select([descriptor], [], [], 30)
        assert ended == [descriptor]
    finally:
        os.close(descriptor)


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
