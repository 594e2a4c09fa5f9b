# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Running programs, reporting steps, and the one error type of the lab."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path


class LabError(Exception):
    """Something the operator has to know; the message says found, wanted and what to do."""


# The Debian package that brings each program the lab calls.
PROGRAMS = {
    "debootstrap": "debootstrap",
    "ip": "iproute2",
    "lxc-attach": "lxc",
    "lxc-info": "lxc",
    "lxc-start": "lxc",
    "setpriv": "util-linux",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "tar": "tar",
    "unshare": "util-linux",
    "zstd": "zstd",
}


def require_root_and_programs() -> None:
    """Fail with everything that is missing at once."""
    if os.geteuid() != 0:
        raise LabError(f"the lab needs root (found uid {os.geteuid()}): run it with sudo")
    missing = sorted({package for program, package in PROGRAMS.items() if shutil.which(program) is None})
    if missing:
        raise LabError(
            f"programs of these packages are missing: {', '.join(missing)}. Install them, e.g. with: apt-get install {' '.join(missing)}"
        )


_DIE_WITH_LAB = ("setpriv", "--pdeathsig", "KILL", "--")


@contextlib.contextmanager
def step(text: str) -> Iterator[None]:
    """Print one line per step, with its seconds, also when it fails."""
    start = time.monotonic()
    try:
        yield
    except BaseException:
        print(f"lab: {text}: failed after {time.monotonic() - start:.1f} s", flush=True)
        raise
    print(f"lab: {text}: {time.monotonic() - start:.1f} s", flush=True)


def note(text: str) -> None:
    print(f"lab: {text}", flush=True)


def run(
    command: Sequence[str],
    *,
    check: bool = True,
    timeout: float | None = None,
    stdin: str | None = None,
    env: dict[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; its output is shown only when it fails.

    The program dies with the lab: an unpacking that went on after a kill would write into what the next call removes.
    What it has started in the background by then (a container) lives on.
    """
    try:
        done = subprocess.run(
            [*_DIE_WITH_LAB, *command],
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            env=env,
        )
    except subprocess.TimeoutExpired as error:
        raise LabError(f"{' '.join(command)} did not end within {timeout:.0f} s") from error
    if check and done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-15:])
        raise LabError(f"{' '.join(command)} ended with {done.returncode}:\n{tail}")
    return done


def run_dying(command: Sequence[str]) -> None:
    """Run a long build in name spaces of its own that die, mounts included, when the lab is killed."""
    unshare = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc"]
    run([*unshare, "--", *command])


def remove_tree(path: Path, seconds: float = 10) -> None:
    """Remove a folder in which a process of a killed lab may still be dying."""
    deadline = time.monotonic() + seconds
    while path.exists():
        try:
            shutil.rmtree(path)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.ENOENT) or time.monotonic() > deadline:
                raise LabError(f"cannot remove {path}: {error}") from error
            time.sleep(0.2)


@contextlib.contextmanager
def locked(path: Path, waiting: str) -> Iterator[None]:
    """Hold an flock; the kernel releases it when this process dies, however it dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"lab: {waiting}", file=sys.stderr, flush=True)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def write_atomic(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a file so that a reader sees the old or the new text, never half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "w") as handle:
        handle.write(text)
        handle.flush()
        os.fsync(handle.fileno())
    temporary.chmod(mode)
    temporary.rename(path)
