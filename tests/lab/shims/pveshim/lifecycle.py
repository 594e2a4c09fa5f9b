# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Making and destroying containers."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from . import config, lxcconf, power, schema, state, storage, tasks
from .conf import Conf
from .errors import NotSimulated, ParameterError, PveError
from .tasks import Task

# Parameters of a creation that are no configuration keys.
CREATE_ONLY = {"force", "ignore-unpack-errors", "ostemplate", "password", "ssh-public-keys", "start", "storage", "unique"}
_REFUSED = {"bwlimit", "ha-managed", "pool", "restore"}


def create(vmid: int, parameters: Mapping[str, str]) -> Task:
    given = dict(parameters)
    if refused := _REFUSED & set(given):
        raise NotSimulated(f"creating a container with '{sorted(refused)[0]}'")
    extra = {key: given.pop(key) for key in CREATE_ONLY if key in given}
    if "ostemplate" not in extra:
        raise ParameterError({"ostemplate": "property is missing and it is not optional"})
    rootfs = given.pop("rootfs", None)
    values = schema.check(given)
    if state.conf_path(vmid).exists():
        raise PveError(f"CT {vmid} already exists on node '{state.node_name()}'", 2)
    lxcconf.check_devices(values)
    volume = storage.allocate_root(vmid, rootfs, extra.get("storage"))
    values = {
        "arch": "amd64",
        "hostname": f"CT{vmid}",
        "memory": "512",
        "ostype": "debian",
        "rootfs": volume,
        "swap": "512",
        "unprivileged": "1",
        **config.normalise(values, {}),
    }
    return tasks.run("vzcreate", vmid, lambda: _create(vmid, values, extra))


def _create(vmid: int, values: dict[str, str], extra: Mapping[str, str]) -> None:
    with state.locked(vmid):
        if state.conf_path(vmid).exists():
            raise PveError(f"CT {vmid} already exists on node '{state.node_name()}'", 2)
        conf = Conf(values={**values, "lock": "create"})
        state.store(vmid, conf)
        try:
            config.check_bridges(values)
            _unpack(vmid, values, storage.template_path(extra["ostemplate"]))
            _set_up(vmid, values, extra)
        except (PveError, OSError) as error:
            state.remove(vmid)
            raise PveError(f"unable to create CT {vmid} - {error}") from None
        conf.values.pop("lock")
        state.store(vmid, conf)
    if schema.parse_boolean(extra.get("start", "0")) == "1":
        with state.locked(vmid):
            power.boot(vmid)


def _unpack(vmid: int, values: dict[str, str], template: Path) -> None:
    folder = state.LXC / str(vmid)
    # A creation that was killed may have left files; without a configuration nobody owns them.
    state.remove_folder(vmid)
    root = folder / "rootfs"
    root.mkdir(parents=True)
    folder.chmod(0o755)
    print(f"extracting archive '{template}'")
    command = ["tar", "--zstd", "--numeric-owner", "--exclude=./dev/*", "-xpf", str(template), "-C", str(root)]
    if lxcconf.unprivileged(values):
        os.chown(root, lxcconf.ID_BASE, lxcconf.ID_BASE)
        mapping = f"0:{lxcconf.ID_BASE}:{lxcconf.ID_COUNT}"
        command = ["lxc-usernsexec", "-m", f"u:{mapping}", "-m", f"g:{mapping}", "--", *command]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise PveError(f"command '{' '.join(command)}' failed: {done.stderr.strip()}")
    print("Detected container architecture: amd64")


def _set_up(vmid: int, values: dict[str, str], extra: Mapping[str, str]) -> None:
    """What Proxmox VE writes into a new container's own files."""
    root = state.LXC / str(vmid) / "rootfs"
    owner = lxcconf.ID_BASE if lxcconf.unprivileged(values) else 0
    name = values["hostname"]
    texts = {"etc/hostname": f"{name.split('.')[0]}\n", "etc/hosts": f"127.0.0.1 localhost\n127.0.1.1 {name}\n"}
    if "nameserver" in values:
        servers = re.split(r"[\s,]+", values["nameserver"])
        texts["etc/resolv.conf"] = "".join(f"nameserver {server}\n" for server in servers)
    if keys := extra.get("ssh-public-keys"):
        texts["root/.ssh/authorized_keys"] = keys if keys.endswith("\n") else f"{keys}\n"
    for path, text in texts.items():
        target = root / path
        if not target.parent.exists():
            target.parent.mkdir(mode=0o700)
            os.chown(target.parent, owner, owner)
        target.unlink(missing_ok=True)
        target.write_text(text)
        os.chown(target, owner, owner)


def destroy(vmid: int, *, force: bool = False) -> Task:
    conf = state.load(vmid)
    state.check_lock(conf)
    if conf.values.get("protection") == "1":
        raise PveError(f"can't remove CT {vmid} - protection mode enabled")
    if state.running(vmid) and not force:
        raise PveError(f"unable to destroy CT {vmid} - container is running")

    def work() -> None:
        with state.locked(vmid):
            if state.running(vmid):
                power.halt(vmid, kill=True)
            state.remove(vmid)

    return tasks.run("vzdestroy", vmid, work)
