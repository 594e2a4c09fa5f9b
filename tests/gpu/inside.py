# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs in the room: starts each container of a job, runs programs in it, and says what they answered.

Reads a job from standard input: {"containers": [{"name", "unprivileged", "binds": {target: source}, "files": {path: text},
"run": {name: [argv]}}]}; "files" are written below the container's root before it starts.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import subprocess
import sys
import time
from typing import Any

LXC = "/lxc"
TREES = "/trees"
SHIFT = 100_000
READY_SECONDS = 90
RUN_SECONDS = 120
# An unprivileged container always has two failed units: sys-kernel-debug.mount and systemd-modules-load.service.
SETTLED = ("running", "degraded")


def config(container: dict[str, Any], rootfs: str, devices: dict[str, str]) -> str:
    """`devices`: numbers such as "195:0" by source.

    A privileged container may open these beside the usual ones. An unprivileged one may open whatever lies in it: rules of its
    own would be its only ones, and it could not open /dev/urandom any more.
    """
    lines = ["lxc.include = /usr/share/lxc/config/common.conf"]
    if container["unprivileged"]:
        lines += [
            "lxc.include = /usr/share/lxc/config/userns.conf",
            f"lxc.idmap = u 0 {SHIFT} 65536",
            f"lxc.idmap = g 0 {SHIFT} 65536",
        ]
    lines += [
        "lxc.arch = linux64",
        "lxc.uts.name = gpu-test",
        f"lxc.rootfs.path = dir:{rootfs}",
        "lxc.apparmor.profile = unconfined",
        "lxc.mount.auto = cgroup:rw:force proc:mixed sys:mixed",
        "lxc.net.0.type = empty",
        "lxc.signal.stop = SIGKILL",
    ]
    for target, source in container["binds"].items():
        kind = "dir" if os.path.isdir(source) else "file"
        mode = "bind" if source in devices else "rbind,ro"
        lines.append(f"lxc.mount.entry = {source} {target.lstrip('/')} none {mode},create={kind} 0 0")
        if source in devices and not container["unprivileged"]:
            lines.append(f"lxc.cgroup2.devices.allow = c {devices[source]} rw")
    return "\n".join(lines) + "\n"


def numbers(sources: list[str]) -> dict[str, str]:
    found = {}
    for source in sources:
        status = os.stat(source)
        if stat.S_ISCHR(status.st_mode):
            found[source] = f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
    return found


def call(argv: list[str]) -> tuple[int, str, str]:
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
                              timeout=RUN_SECONDS, check=False)  # fmt: skip
    except subprocess.TimeoutExpired:
        return 124, "", f"not done after {RUN_SECONDS} s"
    return done.returncode, done.stdout, done.stderr


def attach(name: str, argv: list[str]) -> tuple[int, str, str]:
    environ = ["HOME=/root", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"]
    options = [word for value in environ for word in ("-v", value)]
    return call(["lxc-attach", "-P", LXC, "-n", name, "--clear-env", *options, "--", *argv])


def log_of(name: str) -> str:
    with contextlib.suppress(OSError), open(f"/tmp/{name}.log", encoding="utf-8", errors="replace") as file:
        return "\n".join([line for line in file.read().splitlines() if " ERROR " in line or " WARN " in line][-12:])
    return "no log"


def await_ready(name: str) -> str:
    deadline = time.monotonic() + READY_SECONDS
    while True:
        _status, out, _err = attach(name, ["systemctl", "is-system-running"])
        state = out.strip()
        if state in SETTLED:
            return state
        if time.monotonic() > deadline:
            raise SystemExit(f"container {name} is {state or 'silent'} after {READY_SECONDS} s\n{log_of(name)}")
        time.sleep(0.1)


def write_files(rootfs: str, owner: int, files: dict[str, str]) -> None:
    for path, text in files.items():
        full = rootfs + path
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8") as file:
            file.write(text)
        os.chown(full, owner, owner)


def serve(container: dict[str, Any]) -> dict[str, Any]:
    name = container["name"]
    rootfs = f"{TREES}/{'unprivileged' if container['unprivileged'] else 'privileged'}"
    os.makedirs(f"{LXC}/{name}", exist_ok=True)
    write_files(rootfs, SHIFT if container["unprivileged"] else 0, container["files"])
    with open(f"{LXC}/{name}/config", "w", encoding="utf-8") as file:
        file.write(config(container, rootfs, numbers(list(container["binds"].values()))))
    started = time.monotonic()
    status, _out, err = call(["lxc-start", "-P", LXC, "-n", name, "-d", "-l", "INFO", "-o", f"/tmp/{name}.log"])
    if status:
        raise SystemExit(f"container {name} does not start: {err.strip()}\n{log_of(name)}")
    try:
        state = await_ready(name)
        ready = time.monotonic() - started
        answers = {}
        for label, argv in container["run"].items():
            code, out, err = attach(name, argv)
            answers[label] = {"status": code, "out": out, "err": err[-2000:]}
        return {"name": name, "state": state, "seconds": round(ready, 1), "run": answers}
    finally:
        call(["lxc-stop", "-P", LXC, "-n", name, "-k"])
        for path in container["files"]:
            os.unlink(rootfs + path)


def main() -> None:
    job = json.load(sys.stdin)
    json.dump([serve(container) for container in job["containers"]], sys.stdout)


if __name__ == "__main__":
    main()
