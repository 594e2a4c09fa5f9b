# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`pct push` and `pct pull`: tasks whose failure does not reach the exit status."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from . import lxcconf, state, tasks
from .errors import PveError
from .tasks import Task

# Runs inside the container's name spaces: creates the destination with the container's own ids and reads stdin.
_RECEIVER = """
import grp, os, pwd, sys
path, perms, user, group = sys.argv[1:5]
try:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
except OSError as error:
    sys.exit(f"failed to create file: {path}: {error.strerror}")
if perms:
    os.fchmod(descriptor, int(perms, 8))
try:
    uid = -1 if not user else int(user) if user.isdigit() else pwd.getpwnam(user).pw_uid
    gid = -1 if not group else int(group) if group.isdigit() else grp.getgrnam(group).gr_gid
except KeyError as error:
    sys.exit(f"failed to get id for: {error}")
os.fchown(descriptor, uid, gid)
while block := sys.stdin.buffer.read(1 << 20):
    os.write(descriptor, block)
"""


def _enter(vmid: int, user_namespace: bool) -> list[str]:
    pid = state.init_pid(vmid)
    return ["nsenter", "-t", str(pid), "-m", *(["-U"] if user_namespace else []), "--"]


def push(vmid: int, source: str, destination: str, options: Mapping[str, str]) -> Task:
    values = state.load(vmid).values
    if not state.running(vmid):
        raise PveError("can only push files to a running CT")

    def work() -> None:
        try:
            descriptor = os.open(source, os.O_RDONLY)
        except OSError:
            raise PveError(f"failed to open {source} for reading") from None
        command = _enter(vmid, lxcconf.unprivileged(values))
        wanted = [destination, options.get("perms", ""), options.get("user", ""), options.get("group", "")]
        # A directory opens, and reading it yields nothing: an empty file is the result, as with the real command.
        stdin = subprocess.DEVNULL if Path(source).is_dir() else descriptor
        done = subprocess.run([*command, "python3", "-c", _RECEIVER, *wanted], stdin=stdin, capture_output=True, text=True, check=False)
        os.close(descriptor)
        if done.returncode != 0:
            raise PveError(done.stderr.strip())

    return tasks.run("push_file", vmid, work)


def pull(vmid: int, source: str, destination: str, options: Mapping[str, str]) -> Task:
    state.load(vmid)
    if not state.running(vmid):
        raise PveError("can only pull files from a running VM")

    def work() -> None:
        try:
            descriptor = os.open(destination, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        except OSError as error:
            raise PveError(f"failed to create file: {destination}: {error.strerror}") from None
        with os.fdopen(descriptor, "wb") as target:
            if "perms" in options:
                os.fchmod(target.fileno(), int(options["perms"], 8))
            for option, database in (("user", "passwd"), ("group", "group")):
                if option in options:
                    shutil.chown(destination, **{option: _id(options[option], database)})
            command = [*_enter(vmid, False), "cat", "--", source]
            done = subprocess.run(command, stdout=target, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            reason = done.stderr.strip().rpartition(": ")[2]
            raise PveError(f"failed to open {source}: {reason}")

    return tasks.run("pull_file", vmid, work)


def _id(name: str, database: str) -> int:
    if name.isdigit():
        return int(name)
    done = subprocess.run(["getent", database, name], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise PveError(f"failed to get id for: {name}")
    return int(done.stdout.split(":")[2])
