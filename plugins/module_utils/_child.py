# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs a function in a child process that may hang in the kernel, and takes what it said until it falls silent."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Say = Callable[[Any], None]
PR_SET_PDEATHSIG = 1
MAX_ANSWER = 8 << 20
# The child's last line before it closes the pipe. Its exit, with the driver's clean-up in the kernel, is not waited for.
END = b"!\n"


@dataclass(frozen=True)
class Answer:
    said: list[Any]
    # None: it ended well. Else why what it said is not all.
    fault: str | None
    timed_out: bool


def ask(function: Callable[[Say], None], seconds: float, meanwhile: Callable[[], None] | None = None) -> Answer:
    """Each value that `function` says is one JSON line through a pipe, so a hang loses only what came after it.
    `seconds` is how long it may be silent: eight slow cards are no hang, one that says nothing is. `meanwhile` is what this
    process does before it listens.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    reading, writing = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        _child(function, writing, parent)
    os.close(writing)
    text, timed_out = b"", True
    try:
        if meanwhile is not None:
            meanwhile()
        text, timed_out = _collect(reading, seconds)
    finally:
        os.close(reading)
        complete = text == END or text.endswith(b"\n" + END)
        status = _end(pid, wait=not complete, patience=0 if timed_out or len(text) >= MAX_ANSWER else 0.5)
    said = [json.loads(line) for line in text.split(b"\n")[:-1] if line + b"\n" != END]
    if complete:
        return Answer(said, None, False)
    if timed_out:
        return Answer(said, f"no answer within {seconds:g} s", True)
    return Answer(said, f"more than {MAX_ANSWER >> 20} MiB of answers" if len(text) >= MAX_ANSWER else _reason(status), False)


def end_with_parent() -> None:
    """A parent that is killed must not leave a child waiting for a driver. Changing the user undoes it: call it again."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _keep_only(writing: int) -> None:
    """A child that the driver never lets go must hold nothing of its parent's: no lock, no pipe that somebody reads."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    inherited: list[str] = []
    with contextlib.suppress(OSError):
        inherited = os.listdir("/proc/self/fd")
    for descriptor in map(int, inherited):
        if descriptor not in (0, 1, 2, writing):
            with contextlib.suppress(OSError):
                os.close(descriptor)


def _child(function: Callable[[Say], None], writing: int, parent: int) -> None:
    code = 1
    try:
        end_with_parent()
        if os.getppid() != parent:
            return
        _keep_only(writing)
        with os.fdopen(writing, "wb", buffering=0) as pipe:

            def say(value: Any) -> None:
                data = json.dumps(value).encode() + b"\n"
                while data:
                    data = data[pipe.write(data) or 0 :]

            function(say)
            pipe.write(END)
        code = 0
    finally:
        # No handler of the parent (Ansible's cleanup among them) may run here.
        os._exit(code)


def _collect(reading: int, seconds: float) -> tuple[bytes, bool]:
    parts: list[bytes] = []
    size = 0
    poll = select.poll()
    poll.register(reading, select.POLLIN | select.POLLHUP)
    while size < MAX_ANSWER:
        if not poll.poll(seconds * 1000):
            return b"".join(parts), True
        data = os.read(reading, 1 << 16)
        if not data:
            break
        parts.append(data)
        size += len(data)
    return b"".join(parts), False


def _end(pid: int, wait: bool, patience: float) -> int | None:
    """Reap the child; one that even SIGKILL does not end (it waits in the driver) is left to the kernel."""
    until = time.monotonic() + patience
    killed = False
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status
        if not wait:
            return None
        if time.monotonic() > until:
            if killed:
                return None
            killed = True
            until = time.monotonic() + 0.5
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.001)


def _reason(status: int | None) -> str:
    if status is None:
        return "the process does not end"
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return f"the process was ended by {next((one.name for one in signal.Signals if one == number), f'signal {number}')}"
    return f"the process ended with status {os.WEXITSTATUS(status)}"
