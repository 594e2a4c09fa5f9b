# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs a function in a child process that may hang in the kernel, and takes what it said until a deadline."""

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
MAX_ANSWER = 64 << 20
# The child's last line before it closes the pipe. Its exit, with the driver's clean-up in the kernel, is not waited for.
END = b"!\n"


@dataclass(frozen=True)
class Answer:
    said: list[Any]
    # None: it ended well. Else why what it said is not all.
    fault: str | None
    timed_out: bool


def ask(function: Callable[[Say], None], seconds: float) -> Answer:
    """Each value that `function` says is one JSON line through a pipe, so a hang loses only what came after it."""
    sys.stdout.flush()
    sys.stderr.flush()
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        _child(function, writing)
    os.close(writing)
    text, timed_out = b"", True
    try:
        text, timed_out = _collect(reading, time.monotonic() + seconds)
    finally:
        os.close(reading)
        complete = text == END or text.endswith(b"\n" + END)
        status = _end(pid, wait=not complete, patience=0 if timed_out else 0.5)
    said = [json.loads(line) for line in text.split(b"\n")[:-1] if line + b"\n" != END]
    if complete:
        return Answer(said, None, False)
    return Answer(said, f"no answer within {seconds:g} s" if timed_out else _reason(status), timed_out)


def _child(function: Callable[[Say], None], writing: int) -> None:
    code = 1
    try:
        # A parent that is killed must not leave a child waiting for a driver.
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nothing, descriptor)
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


def _collect(reading: int, deadline: float) -> tuple[bytes, bool]:
    parts: list[bytes] = []
    size = 0
    poll = select.poll()
    poll.register(reading, select.POLLIN | select.POLLHUP)
    while size < MAX_ANSWER:
        left = deadline - time.monotonic()
        if left <= 0:
            return b"".join(parts), True
        if poll.poll(left * 1000):
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
        return f"the process was ended by {signal.Signals(os.WTERMSIG(status)).name}"
    return f"the process ended with status {os.WEXITSTATUS(status)}"
