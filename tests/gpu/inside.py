# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs in the room: starts each container of a job, runs programs in it, and says what they answered.

Reads a job from standard input: {"containers": [{"name", "unprivileged", "binds": {source: target}, "files": {path: text},
"run": {name: [argv]}}]}; "files" are written below the container's root before it starts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any

LXC = "/lxc"
CONTAINERS = "/containers"
READY_SECONDS = 90
# The directories of the fixtures that systemd cannot mount in an unprivileged container fail as on every such host.
SETTLED = ("running", "degraded")


def config(container: dict[str, Any], rootfs: str) -> str:
    lines = ["lxc.include = /usr/share/lxc/config/common.conf"]
    if container["unprivileged"]:
        lines += [
            "lxc.include = /usr/share/lxc/config/userns.conf",
            "lxc.idmap = u 0 100000 65536",
            "lxc.idmap = g 0 100000 65536",
        ]
    lines += [
        "lxc.arch = amd64",
        "lxc.uts.name = gpu-test",
        f"lxc.rootfs.path = dir:{rootfs}",
        "lxc.apparmor.profile = unconfined",
        "lxc.mount.auto = cgroup:rw:force proc:mixed sys:mixed",
        "lxc.net.0.type = empty",
        "lxc.signal.stop = SIGKILL",
        "lxc.cgroup.devices.allow = c *:* rwm",
        "lxc.cgroup2.devices.allow = c *:* rwm",
    ]
    for source, target in container["binds"].items():
        kind = "dir" if os.path.isdir(source) else "file"
        mode = "bind" if source.startswith("/dev/") else "rbind,ro"
        lines.append(f"lxc.mount.entry = {source} {target.lstrip('/')} none {mode},create={kind} 0 0")
    return "\n".join(lines) + "\n"


def call(argv: list[str], seconds: float = 120) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=seconds, check=False)


def attach(name: str, argv: list[str]) -> subprocess.CompletedProcess[str]:
    environ = ["HOME=/root", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"]
    options = [word for value in environ for word in ("-v", value)]
    return call(["lxc-attach", "-P", LXC, "-n", name, "--clear-env", *options, "--", *argv])


def log_of(name: str) -> str:
    try:
        with open(f"/tmp/{name}.log", encoding="utf-8", errors="replace") as file:
            return "\n".join(line for line in file.read().splitlines() if " ERROR " in line or " WARN " in line)[:3000]
    except OSError:
        return "no log"


def await_ready(name: str) -> str:
    deadline = time.monotonic() + READY_SECONDS
    while True:
        state = attach(name, ["systemctl", "is-system-running"]).stdout.strip()
        if state in SETTLED:
            return state
        if time.monotonic() > deadline:
            raise SystemExit(f"container {name} is {state or 'silent'} after {READY_SECONDS} s\n{log_of(name)}")
        time.sleep(0.2)


def serve(container: dict[str, Any]) -> dict[str, Any]:
    name = container["name"]
    rootfs = f"{CONTAINERS}/{'unprivileged' if container['unprivileged'] else 'privileged'}"
    os.makedirs(f"{LXC}/{name}", exist_ok=True)
    owner = 100_000 if container["unprivileged"] else 0
    for path, text in container["files"].items():
        full = rootfs + path
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8") as file:
            file.write(text)
        os.chown(full, owner, owner)
    with open(f"{LXC}/{name}/config", "w", encoding="utf-8") as file:
        file.write(config(container, rootfs))
    started = time.monotonic()
    done = call(["lxc-start", "-P", LXC, "-n", name, "-d", "-l", "INFO", "-o", f"/tmp/{name}.log"])
    if done.returncode:
        raise SystemExit(f"container {name} does not start: {done.stderr.strip()}\n{log_of(name)}")
    try:
        state = await_ready(name)
        answers = {}
        for label, argv in container["run"].items():
            ran = attach(name, argv)
            answers[label] = {"status": ran.returncode, "out": ran.stdout, "err": ran.stderr[-2000:]}
        return {"name": name, "state": state, "seconds": round(time.monotonic() - started, 1), "run": answers}
    finally:
        call(["lxc-stop", "-P", LXC, "-n", name, "-k"])
        for path in container["files"]:
            os.unlink(rootfs + path)


def main() -> None:
    job = json.load(sys.stdin)
    json.dump([serve(container) for container in job["containers"]], sys.stdout)


if __name__ == "__main__":
    main()
