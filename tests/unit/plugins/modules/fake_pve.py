# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node's API in memory, with the measured habits: late task failures, a fresh digest, pending values, hwaddr filled in."""

from __future__ import annotations

import hashlib
import itertools
import json
from typing import Any, Callable

# Values that a running container takes at its next start only.
COLD = ("features", "mp", "dev", "rootfs")


class ResourceException(Exception):
    """As proxmoxer raises it."""

    def __init__(self, content: str, exit_code: int = 2) -> None:
        super().__init__(content)
        self.content = content
        self.errors = None
        self.exit_code = exit_code


class FakePve:
    def __init__(self, node: str = "kpro6") -> None:
        self.node = node
        self.configs: dict[int, dict[str, Any]] = {}
        self.raw: dict[int, list[list[str]]] = {}
        self.pending: dict[int, dict[str, str | None]] = {}
        self.running: set[int] = set()
        self.elsewhere: list[dict[str, Any]] = []
        self.tasks: dict[str, tuple[str, str]] = {}
        self.calls: list[tuple[str, str, dict[str, Any]]] = []
        # Failures to come: {(method, end of path): [action, ...]}, each taken once.
        self.plans: dict[tuple[str, str], list[Callable[[], Any]]] = {}
        self.locks: dict[int, list[str]] = {}
        self.active: list[str] = []
        self._numbers = itertools.count(1)

    def __call__(self, path: str) -> Resource:
        return Resource(self, path)

    @property
    def writes(self) -> list[tuple[str, str, dict[str, Any]]]:
        return [call for call in self.calls if call[0] != "get"]

    def plan(self, method: str, end: str, *actions: Callable[[], Any]) -> None:
        self.plans.setdefault((method, end), []).extend(actions)

    def fail(self, text: str, exit_code: int = 2) -> Callable[[], Any]:
        def action() -> Any:
            raise ResourceException(text, exit_code)

        return action

    def task(self, kind: str, status: str = "OK", log: str = "") -> str:
        upid = f"UPID:{self.node}:0000C350:00016D33:{next(self._numbers):08X}:{kind}:200:root@pam:"
        self.tasks[upid] = (status, log)
        return upid

    def unlock(self, vmid: int) -> str:
        self.configs[vmid].pop("lock", None)
        return ""

    def digest(self, vmid: int) -> str:
        return hashlib.sha1(json.dumps([self.configs[vmid], self.pending.get(vmid)]).encode()).hexdigest()

    def request(self, method: str, path: str, data: dict[str, Any]) -> Any:
        self.calls.append((method, path, data))
        for (planned, end), actions in self.plans.items():
            if planned == method and path.endswith(end) and actions:
                answer = actions.pop(0)()
                if answer is not None:
                    return answer
        if path == "cluster/resources":
            return [{"type": "storage", "id": "storage/kpro6/local"}, *self._entries(), *self.elsewhere]
        below = path.split("/")[2:]
        if below == ["tasks"]:
            return [{"upid": upid} for upid in self.active]
        if below[0] == "tasks":
            status, log = self.tasks[below[1]]
            if status == "running":
                return {"status": status}
            return {"status": "stopped", "exitstatus": status} if below[2] == "status" else [{"n": 1, "t": log}]
        if below == ["lxc"]:
            return self._create(data)
        vmid = int(below[1])
        if vmid not in self.configs:
            raise ResourceException(f"Configuration file 'nodes/{self.node}/lxc/{vmid}.conf' does not exist")
        return self._container(method, vmid, "/".join(below[2:]), data)

    def _entries(self) -> list[dict[str, Any]]:
        return [{"type": "lxc", "vmid": vmid, "node": self.node, "name": config.get("hostname")} for vmid, config in self.configs.items()]

    def _create(self, data: dict[str, Any]) -> str:
        vmid = int(data.pop("vmid"))
        data.pop("ostemplate")
        storage, size = data["rootfs"].split(":")
        data["rootfs"] = f"{storage}:{vmid}/vm-{vmid}-disk-0.raw,size={size}G"
        data.setdefault("ostype", "debian")
        self.configs[vmid] = {key: self._stored(key, value) for key, value in data.items()}
        return self.task("vzcreate")

    def _stored(self, key: str, value: Any) -> Any:
        text = str(value)
        if key.startswith("net") and "hwaddr" not in text:
            return f"{text},hwaddr=BC:24:11:00:00:01,type=veth"
        if key == "description":
            return text + "\n"
        return int(text) if text.isdigit() else text

    def _container(self, method: str, vmid: int, rest: str, data: dict[str, Any]) -> Any:
        config, pending = self.configs[vmid], self.pending.setdefault(vmid, {})
        if (method, rest) == ("get", "config"):
            seen = {**config, **{k: v for k, v in pending.items() if v is not None}, "digest": self.digest(vmid)}
            seen = {k: v for k, v in seen.items() if pending.get(k, "") is not None}
            return {**seen, "lxc": self.raw[vmid]} if vmid in self.raw else seen
        if (method, rest) == ("get", "pending"):
            waiting = [{"key": k, "delete": 1} if v is None else {"key": k, "pending": v} for k, v in pending.items()]
            return [{"key": k, "value": v} for k, v in config.items() if k not in pending] + waiting
        if (method, rest) == ("get", "status/current"):
            lock = [str(config["lock"])] if "lock" in config else self.locks.get(vmid) or []
            return {"status": "running" if vmid in self.running else "stopped", **({"lock": lock.pop(0)} if lock else {})}
        if method == "put":
            if rest == "config" and data.pop("digest") != self.digest(vmid):
                raise ResourceException("detected modified configuration - file changed by other user? Try again.", 255)
            if rest == "resize":
                config["rootfs"] = f"{config['rootfs'].split(',')[0]},size={data['size']}"
                return self.task("resize")
            gone = dict.fromkeys(filter(None, data.pop("delete", "").split(",")))
            for key, value in {**{k: self._stored(k, v) for k, v in data.items()}, **gone}.items():
                cold = vmid in self.running and key.startswith(COLD)
                if cold:
                    pending[key] = value
                elif value is None:
                    config.pop(key, None)
                else:
                    config[key] = value
            # The local backend cannot tell an empty answer from an empty error.
            return {"errors": ""}
        if rest == "status/start":
            for key, value in pending.items():
                config.pop(key, None)
                config.update({} if value is None else {key: value})
            pending.clear()
            self.running.add(vmid)
            return self.task("vzstart")
        if rest in ("status/shutdown", "status/stop"):
            self.running.discard(vmid)
            return self.task("vzshutdown" if rest.endswith("shutdown") else "vzstop")
        if method == "delete":
            del self.configs[vmid]
            return self.task("vzdestroy")
        raise AssertionError(f"{method} {rest} is not a call of this module")


class Resource:
    def __init__(self, pve: FakePve, path: str) -> None:
        self._pve, self._path = pve, path

    def get(self, **data: Any) -> Any:
        return self._pve.request("get", self._path, data)

    def post(self, **data: Any) -> Any:
        return self._pve.request("post", self._path, data)

    def put(self, **data: Any) -> Any:
        return self._pve.request("put", self._path, data)

    def delete(self, **data: Any) -> Any:
        return self._pve.request("delete", self._path, data)
