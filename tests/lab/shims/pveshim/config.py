# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reading and changing a container's configuration."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import lxcconf, schema, state
from .conf import Conf
from .errors import NotSimulated, ParameterError, PveError
from .schema import parse_properties

# What takes effect in a running container at once; everything else waits for its next start.
AT_ONCE = {"description", "hostname", "lock", "memory", "onboot", "protection", "startup", "swap", "tags"}


def verify(values: Mapping[str, str]) -> None:
    """A value that somebody wrote into the file by hand and that the schema refuses."""
    try:
        schema.check({key: value for key, value in values.items() if key not in schema.UNSIMULATED})
    except ParameterError as error:
        raise PveError(str(error).replace("Parameter", "Result", 1)) from None


def show(vmid: int, *, current: bool = False) -> dict[str, Any]:
    """Configuration as the API returns it, with pending values unless `current`."""
    conf = state.load(vmid)
    values = conf.values if current else conf.effective()
    verify(values)
    shown: dict[str, Any] = {key: schema.as_json(key, value) for key, value in values.items()}
    if conf.lxc:
        shown["lxc"] = [list(pair) for pair in conf.lxc]
    return {**shown, "digest": conf.digest}


def pending(vmid: int) -> list[dict[str, Any]]:
    """Every key with its current and its pending value."""
    conf = state.load(vmid)
    found = []
    for key in sorted({*conf.values, *conf.pending}):
        entry: dict[str, Any] = {"key": key}
        if key in conf.values:
            entry["value"] = schema.as_json(key, conf.values[key])
        if key in conf.pending:
            entry["pending"] = schema.as_json(key, conf.pending[key])
        if key in conf.pending_delete:
            entry["delete"] = 1
        found.append(entry)
    return [*found, {"key": "digest", "value": conf.digest}]


def normalise(values: Mapping[str, str], old: Mapping[str, str]) -> dict[str, str]:
    """Values as Proxmox VE stores them: network cards complete, tags sorted."""
    done = dict(values)
    for key, value in values.items():
        if re.fullmatch(r"net\d+", key):
            done[key] = _network(value, old.get(key, ""))
        elif key == "tags":
            done[key] = ";".join(sorted({tag.lower() for tag in re.split(r"[;, ]+", value) if tag}))
    return done


def _network(value: str, old: str) -> str:
    entry = {**parse_properties(value)}
    known = parse_properties(old).get("hwaddr") if old else None
    # Proxmox Server Solutions' own prefix; a card keeps its address unless told otherwise.
    entry.setdefault("hwaddr", known or "BC:24:11:" + ":".join(f"{random.randrange(256):02X}" for _ in range(3)))
    entry["hwaddr"] = entry["hwaddr"].upper()
    entry["type"] = "veth"
    first = {"name": entry.pop("name")}
    return ",".join(f"{key}={text}" for key, text in (first | dict(sorted(entry.items()))).items())


def check_bridges(values: Mapping[str, str]) -> None:
    for _key, value in lxcconf.indexed(dict(values), "net"):
        bridge = parse_properties(value).get("bridge")
        if bridge and not Path(f"/sys/class/net/{bridge}").exists():
            raise PveError(f"bridge '{bridge}' does not exist", 2)


def update(vmid: int, parameters: Mapping[str, str], *, code: int = 2) -> None:
    """What `pct set` and the API's PUT do. The file is written before the last checks, as in Proxmox VE."""
    given = dict(parameters)
    digest = given.pop("digest", None)
    delete = [key for key in re.split(r"[,;\s]+", given.pop("delete", "")) if key]
    revert = [key for key in re.split(r"[,;\s]+", given.pop("revert", "")) if key]
    if not given and not delete and not revert:
        raise PveError("no options specified", code)
    _check_names("delete", delete, given)
    _check_names("revert", revert, given)
    values = schema.check(given)
    with state.locked(vmid):
        conf = state.load(vmid)
        state.check_lock(conf)
        if digest and digest != conf.digest:
            raise PveError("detected modified configuration - file changed by other user? Try again.")
        lxcconf.check_devices(values)
        values = normalise(values, conf.values)
        live = state.running(vmid)
        for key in revert:
            conf.pending.pop(key, None)
            conf.pending_delete = [name for name in conf.pending_delete if name != key]
        for key in delete:
            _delete(conf, key, live)
        for key, value in values.items():
            _set(conf, key, value, live)
        if live and "memory" in values:
            _limit_memory(vmid, values["memory"])
        state.store(vmid, conf)
        check_bridges(conf.effective())
        verify(conf.effective())


def unlock(vmid: int) -> None:
    with state.locked(vmid):
        conf = state.load(vmid)
        if conf.values.pop("lock", None):
            state.store(vmid, conf)


def _check_names(option: str, keys: list[str], given: Mapping[str, str]) -> None:
    for key in keys:
        if key in schema.UNSIMULATED:
            raise NotSimulated(f"container option '{key}'")
        if schema.kind(key) is None:
            raise ParameterError({option: f"unknown option '{key}'"})
        if key in given:
            raise ParameterError({option: f"you can't use '-{key}' and -{option} {key}' at the same time"})


def _delete(conf: Conf, key: str, live: bool) -> None:
    if key == "rootfs":
        raise PveError("unable to delete required option 'rootfs'")
    conf.pending.pop(key, None)
    if key not in conf.values:
        return
    if live and key not in AT_ONCE:
        conf.pending_delete = sorted({*conf.pending_delete, key})
    else:
        del conf.values[key]


def _set(conf: Conf, key: str, value: str, live: bool) -> None:
    if key == "rootfs" and value != conf.values.get("rootfs"):
        raise NotSimulated("a change of 'rootfs'")
    if key == "unprivileged" and value != conf.values.get("unprivileged", "0"):
        raise PveError("unable to modify read-only option: 'unprivileged'")
    conf.pending_delete = [name for name in conf.pending_delete if name != key]
    conf.pending.pop(key, None)
    if live and key not in AT_ONCE and conf.values.get(key) != value:
        conf.pending[key] = value
    else:
        conf.values[key] = value


def _limit_memory(vmid: int, mebibytes: str) -> None:
    """Limit the container's own cgroup, above the one it sees as its root."""
    path = {
        "v1": f"/sys/fs/cgroup/memory/lxc/{vmid}/memory.limit_in_bytes",
        "v2": f"/sys/fs/cgroup/lxc/{vmid}/memory.max",
    }.get(lxcconf.cgroup_kind())
    if path:
        try:
            Path(path).write_text(str(int(mebibytes) * 1024 * 1024))
        except OSError as error:
            raise PveError(f"unable to set memory of running CT {vmid} - {error.strerror}") from None
