# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The one state behind all commands: configuration files, locks, and what LXC says is running."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from . import conf as conf_module
from .conf import Conf
from .errors import PveError

LXC = Path("/var/lib/lxc")
PVE = Path("/etc/pve")
LOCKS = Path("/run/lock/lxc")
LOCK_TIMEOUT = 10


def node_name() -> str:
    return os.uname().nodename


def conf_path(vmid: int) -> Path:
    return PVE / "lxc" / f"{vmid}.conf"


def vmids() -> list[int]:
    return sorted(int(path.stem) for path in (PVE / "lxc").glob("*.conf") if re.fullmatch(r"[1-9]\d{2,8}", path.stem))


def load(vmid: int, missing_code: int = 2) -> Conf:
    try:
        return conf_module.parse(conf_path(vmid).read_text())
    except FileNotFoundError:
        name = f"nodes/{node_name()}/lxc/{vmid}.conf"
        raise PveError(f"Configuration file '{name}' does not exist", missing_code) from None


def store(vmid: int, conf: Conf) -> None:
    path = conf_path(vmid)
    temporary = path.parent.resolve() / f".{vmid}.conf.{os.getpid()}"
    with temporary.open("w") as handle:
        handle.write(conf_module.render(conf))
        handle.flush()
        os.fsync(handle.fileno())
    temporary.chmod(0o640)
    temporary.rename(path.resolve())
    conf.digest = conf_module.parse(path.read_text()).digest


@contextlib.contextmanager
def locked(vmid: int) -> Iterator[None]:
    """The lock that every change of one container takes; another holder is waited for, not forever."""
    LOCKS.mkdir(parents=True, exist_ok=True)
    path = LOCKS / f"pve-config-{vmid}.lock"
    with path.open("w") as handle:
        deadline = time.monotonic() + LOCK_TIMEOUT
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise PveError(f"can't lock file '{path}' - got timeout") from None
                time.sleep(0.05)
        yield


def check_lock(conf: Conf) -> None:
    if lock := conf.values.get("lock"):
        raise PveError(f"CT is locked ({lock})")


def init_pid(vmid: int) -> int | None:
    """Pid of the container's init as the node sees it; None when it does not run."""
    if not (LXC / str(vmid) / "config").exists():
        return None
    done = subprocess.run(["lxc-info", "-n", str(vmid), "-p", "-H"], capture_output=True, text=True, check=False)
    return int(done.stdout) if done.returncode == 0 and done.stdout.strip().isdigit() else None


def running(vmid: int) -> bool:
    return init_pid(vmid) is not None


def status(vmid: int) -> str:
    return "running" if running(vmid) else "stopped"


def remove_folder(vmid: int) -> None:
    folder = LXC / str(vmid)
    if folder.exists():
        shutil.rmtree(folder)


def remove(vmid: int) -> None:
    """Remove a container: its configuration first, so that a kill leaves no container that looks whole."""
    conf_path(vmid).unlink(missing_ok=True)
    remove_folder(vmid)
