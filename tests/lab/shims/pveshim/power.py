# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Starting and stopping containers."""

from __future__ import annotations

import os
import subprocess
import time

from . import config, lxcconf, schema, state, tasks
from .errors import NotSimulated, PveError
from .schema import parse_properties
from .tasks import Task

START_TIMEOUT = 60


def unit(vmid: int) -> str:
    return f"pve-container@{vmid}.service"


def start(vmid: int) -> Task:
    """A container runs as a unit of the node's systemd, so it outlives the session that started it."""
    state.load(vmid, missing_code=255)
    if state.running(vmid):
        raise PveError(f"CT {vmid} already running")

    def work() -> None:
        with state.locked(vmid):
            boot(vmid)

    return tasks.run("vzstart", vmid, work)


def boot(vmid: int) -> None:
    conf = state.load(vmid)
    state.check_lock(conf)
    if conf.apply_pending():
        state.store(vmid, conf)
    if "lock" not in conf.values and any(key in schema.UNSIMULATED for key in conf.values):
        raise NotSimulated(f"container option '{next(key for key in conf.values if key in schema.UNSIMULATED)}'")
    config.verify(conf.values)
    # Devices are looked at before any hook could make them; this order makes the boot unit of a node necessary.
    lxcconf.check_devices(conf.values)
    folder = state.LXC / str(vmid)
    lxcconf.make_device_nodes(folder / "devices", conf.values)
    text = lxcconf.render(vmid, conf, folder=folder, cgroups=lxcconf.cgroup_kind(), processors=os.cpu_count() or 1)
    (folder / "config").write_text(text)
    for _key, value in lxcconf.indexed(conf.values, "mp"):
        source = parse_properties(value, "volume")["volume"]
        if not os.path.exists(source):
            print(f"directory '{source}' does not exist")
            raise PveError(f"startup for container '{vmid}' failed")
    try:
        config.check_bridges(conf.values)
    except PveError as error:
        print(error)
        raise PveError(f"startup for container '{vmid}' failed") from None
    os.makedirs("/var/log/lxc", exist_ok=True)
    subprocess.run(["systemctl", "reset-failed", unit(vmid)], capture_output=True, check=False)
    done = subprocess.run(["systemctl", "start", unit(vmid)], capture_output=True, text=True, check=False)
    deadline = time.monotonic() + START_TIMEOUT
    while done.returncode == 0 and not state.running(vmid):
        if time.monotonic() > deadline or not _unit_alive(vmid):
            break
        time.sleep(0.05)
    else:
        if done.returncode == 0:
            return
    print(done.stderr.strip() or _last_error(vmid))
    raise PveError(f"startup for container '{vmid}' failed")


def _unit_alive(vmid: int) -> bool:
    done = subprocess.run(["systemctl", "is-active", unit(vmid)], capture_output=True, text=True, check=False)
    return done.stdout.strip() in ("active", "activating")


def _last_error(vmid: int) -> str:
    try:
        with open(f"/var/log/lxc/{vmid}.log", errors="replace") as handle:
            errors = [line.strip() for line in handle if " ERROR " in line]
    except OSError:
        errors = []
    return errors[-1] if errors else "no message in the container's log"


def _require_running(vmid: int, word: str = "CT") -> None:
    state.load(vmid)
    if not state.running(vmid):
        raise PveError(f"{word} {vmid} not running")


def stop(vmid: int) -> Task:
    """Kill everything in the container at once."""
    _require_running(vmid)

    def work() -> None:
        with state.locked(vmid):
            state.check_lock(state.load(vmid))
            halt(vmid, kill=True)

    return tasks.run("vzstop", vmid, work)


def shutdown(vmid: int, *, timeout: int = 60, force_stop: bool = False) -> Task:
    _require_running(vmid)

    def work() -> None:
        with state.locked(vmid):
            state.check_lock(state.load(vmid))
            halt(vmid, kill=False, timeout=timeout, force_stop=force_stop)

    return tasks.run("vzshutdown", vmid, work)


def reboot(vmid: int, *, timeout: int = 60) -> Task:
    _require_running(vmid, word="VM")

    def work() -> None:
        with state.locked(vmid):
            halt(vmid, kill=False, timeout=timeout)
            boot(vmid)

    return tasks.run("vzreboot", vmid, work)


def halt(vmid: int, *, kill: bool, timeout: int = 60, force_stop: bool = False) -> None:
    if kill:
        command = ["lxc-stop", "-n", str(vmid), "--kill"]
    elif force_stop:
        command = ["lxc-stop", "-n", str(vmid), "--timeout", str(timeout)]
    else:
        command = ["lxc-stop", "-n", str(vmid), "--nokill", "--timeout", str(timeout)]
    subprocess.run(command, capture_output=True, check=False)
    deadline = time.monotonic() + 10
    while state.running(vmid) or _unit_alive(vmid):
        if time.monotonic() > deadline or (state.running(vmid) and not kill and not force_stop):
            raise PveError(f"command '{' '.join(command)}' failed: container did not stop")
        time.sleep(0.05)


def start_all() -> Task:
    """Start what has onboot, in the order of `startup`, as the node does after its own boot."""

    def work() -> None:
        wanted = []
        for vmid in state.vmids():
            values = state.load(vmid).values
            if values.get("onboot") == "1":
                startup = parse_properties(values.get("startup", "order=1000000"), "order")
                wanted.append((int(startup.get("order", "1000000")), vmid, int(startup.get("up", "0"))))
        for _order, vmid, delay in sorted(wanted):
            if state.running(vmid):
                continue
            print(f"Starting CT {vmid}")
            if start(vmid).ok:
                time.sleep(delay)
            else:
                print(f"Starting CT {vmid} failed: its own task says why")

    return tasks.run("startall", "", work)


def stop_all() -> Task:
    def work() -> None:
        for vmid in state.vmids():
            if state.running(vmid):
                print(f"Stopping CT {vmid}")
                shutdown(vmid, timeout=60, force_stop=True)

    return tasks.run("stopall", "", work)
