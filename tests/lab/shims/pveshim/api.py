# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The calls of the Proxmox VE API that `pvesh` offers here, as a table of paths."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from . import config, lifecycle, options, power, schema, state, storage, tasks
from .conf import Conf
from .errors import NotSimulated, ParameterError, PveError
from .tasks import Task

VERSION = {"release": "9.1", "repoid": "lab", "version": "9.1.2"}
Parameters = Mapping[str, str]
Handler = Callable[[dict[str, str], Parameters], Any]


def _number(parameters: Parameters, key: str, default: int) -> int:
    text = parameters.get(key, str(default))
    if not text.isdigit():
        raise ParameterError({key: f"type check ('integer') failed - got '{text}'"})
    return int(text)


def _flag(parameters: Parameters, key: str) -> bool:
    return schema.parse_boolean(parameters.get(key, "0")) == "1"


def _vmid(path: Mapping[str, str]) -> int:
    return int(path["vmid"])


def _facts(vmid: int) -> dict[str, Any]:
    """Status of one container in the API's words."""
    conf: Conf = state.load(vmid)
    values = conf.values
    pid = state.init_pid(vmid)
    memory, swap = int(values.get("memory", "512")) << 20, int(values.get("swap", "512")) << 20
    found: dict[str, Any] = {
        "vmid": vmid,
        "type": "lxc",
        "name": values.get("hostname", f"CT{vmid}"),
        "status": "stopped" if pid is None else "running",
        "cpus": int(values.get("cores", os.cpu_count() or 1)),
        "maxmem": memory,
        "maxswap": swap,
        "uptime": 0 if pid is None else max(1, int(time.time() - os.stat(f"/proc/{pid}").st_ctime)),
    }
    for key in ("tags", "lock"):
        if key in values:
            found[key] = values[key]
    return found if pid is None else {**found, "pid": pid}


def _resources(_path: Mapping[str, str], parameters: Parameters) -> list[dict[str, Any]]:
    node = state.node_name()
    guests = [{**_facts(vmid), "id": f"lxc/{vmid}", "node": node, "template": 0} for vmid in state.vmids()]
    nodes = [{"id": f"node/{node}", "node": node, "type": "node", "status": "online", "maxcpu": os.cpu_count()}]
    stores = [
        {
            "id": f"storage/{node}/{entry['storage']}",
            "node": node,
            "type": "storage",
            "storage": entry["storage"],
            "plugintype": entry["type"],
            "content": entry["content"],
            "status": "available",
            "shared": 0,
        }
        for entry in storage.listing()
    ]
    chosen = {None: [*guests, *nodes, *stores], "vm": guests, "node": nodes, "storage": stores}
    wanted = parameters.get("type")
    if wanted not in chosen:
        raise NotSimulated(f"pvesh get /cluster/resources -type {wanted}")
    return chosen[wanted]


def _nodes(_path: Mapping[str, str], _parameters: Parameters) -> list[dict[str, Any]]:
    name = state.node_name()
    return [{"node": name, "id": f"node/{name}", "type": "node", "status": "online", "maxcpu": os.cpu_count()}]


def _next_id(_path: Mapping[str, str], _parameters: Parameters) -> str:
    used = set(state.vmids())
    return str(next(number for number in range(100, 10**9) if number not in used))


def _create(_path: Mapping[str, str], parameters: Parameters) -> Task:
    given = dict(parameters)
    vmid = given.pop("vmid", None)
    if vmid is None:
        raise ParameterError({"vmid": "property is missing and it is not optional"})
    return lifecycle.create(options.vmid(vmid, ""), given)


def _ha(facts: dict[str, Any]) -> dict[str, Any]:
    return {**facts, "ha": {"managed": 0}}


_LXC = "/nodes/{node}/lxc/{vmid}"
# (method, path) -> (handler, parameters it knows; None: configuration keys as well)
ROUTES: dict[tuple[str, str], tuple[Handler, set[str] | None]] = {
    ("get", "/version"): (lambda _path, _given: VERSION, set()),
    ("get", "/nodes"): (_nodes, set()),
    ("get", "/nodes/{node}/version"): (lambda _path, _given: VERSION, set()),
    ("get", "/cluster/resources"): (_resources, {"type"}),
    ("get", "/cluster/nextid"): (_next_id, set()),
    ("get", "/nodes/{node}/storage"): (lambda _path, _given: storage.listing(), set()),
    ("get", "/nodes/{node}/storage/{storage}/content"): (
        lambda path, given: storage.content(path["storage"], given.get("content")),
        {"content"},
    ),
    ("get", "/nodes/{node}/lxc"): (lambda _path, _given: [_facts(vmid) for vmid in state.vmids()], set()),
    ("create", "/nodes/{node}/lxc"): (_create, None),
    ("delete", _LXC): (
        lambda path, given: lifecycle.destroy(_vmid(path), force=_flag(given, "force")),
        {"force", "purge", "destroy-unreferenced-disks"},
    ),
    ("get", f"{_LXC}/config"): (
        lambda path, given: config.show(_vmid(path), current=_flag(given, "current")),
        {"current"},
    ),
    ("set", f"{_LXC}/config"): (lambda path, given: config.update(_vmid(path), given), None),
    ("get", f"{_LXC}/pending"): (lambda path, _given: config.pending(_vmid(path)), set()),
    ("get", f"{_LXC}/status/current"): (lambda path, _given: _ha(_facts(_vmid(path))), set()),
    ("create", f"{_LXC}/status/start"): (lambda path, _given: power.start(_vmid(path)), set()),
    ("create", f"{_LXC}/status/stop"): (lambda path, _given: power.stop(_vmid(path)), set()),
    ("create", f"{_LXC}/status/shutdown"): (
        lambda path, given: power.shutdown(_vmid(path), timeout=_number(given, "timeout", 60), force_stop=_flag(given, "forceStop")),
        {"timeout", "forceStop"},
    ),
    ("create", f"{_LXC}/status/reboot"): (
        lambda path, given: power.reboot(_vmid(path), timeout=_number(given, "timeout", 60)),
        {"timeout"},
    ),
    ("create", "/nodes/{node}/startall"): (lambda _path, _given: power.start_all(), set()),
    ("create", "/nodes/{node}/stopall"): (lambda _path, _given: power.stop_all(), set()),
    ("get", "/nodes/{node}/tasks"): (
        lambda _path, given: tasks.listing(given.get("source", "archive"), given.get("vmid", "")),
        {"source", "vmid"},
    ),
    ("get", "/nodes/{node}/tasks/{upid}/status"): (lambda path, _given: tasks.status(path["upid"]), set()),
    ("get", "/nodes/{node}/tasks/{upid}/log"): (
        lambda path, given: tasks.log(path["upid"], _number(given, "start", 0), _number(given, "limit", 50)),
        {"start", "limit"},
    ),
}
# Parameters of a change of configuration, and of a creation, that are no configuration keys.
CHANGE_ONLY = {"set": {"delete", "revert", "digest"}, "create": lifecycle.CREATE_ONLY | {"vmid", "pool", "restore"}}
BOOLEANS = {"current", "force", "purge", "forceStop", "start", "unique", "destroy-unreferenced-disks"} | {
    key for key, kind in schema.CONFIG.items() if kind is schema.BOOLEAN
}


def find(method: str, path: str) -> tuple[Handler, set[str] | None, dict[str, str]]:
    """Handler, known parameters and the values in the path."""
    clean = "/" + "/".join(part for part in path.split("/") if part)
    for (known_method, template), (handler, known) in ROUTES.items():
        pattern = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", template)
        match = re.fullmatch(pattern, clean)
        if match and known_method == method:
            return handler, known, match.groupdict()
    raise NotSimulated(f"pvesh {method} {clean}")


def check_path(values: Mapping[str, str]) -> None:
    node = values.get("node")
    if node not in (None, "localhost", state.node_name()):
        raise PveError(f"hostname lookup '{node}' failed - failed to get address info for: {node}: Name or service not known")
    if "vmid" in values:
        options.vmid(values["vmid"], "")


def is_parameter(method: str, known: set[str] | None, name: str) -> bool:
    if known is not None:
        return name in known
    return name in CHANGE_ONLY[method] or schema.kind(name) is not None or name in schema.UNSIMULATED
