# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is PRIVATE to the collection.

"""Bring one container to its wanted state: read, decide, write, read again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Callable, NamedTuple

from ansible_collections.blackwell.inference.plugins.module_utils import _pve_config as pve
from ansible_collections.blackwell.inference.plugins.module_utils import _pve_refuse as refuse
from ansible_collections.blackwell.inference.plugins.module_utils._pve_api import ABSENT, Api, ApiError, Stale
from ansible_collections.blackwell.inference.plugins.module_utils._pve_config import Change, Config
from ansible_collections.blackwell.inference.plugins.module_utils._refusal import Refusal

ABSENT_STATUS = "absent"
ATTEMPTS = 3
SHUTDOWN_SECONDS = 60


class Node(NamedTuple):
    """What is asked of the node outside its API."""

    name: str
    # None: they cannot be asked for.
    character_devices: Callable[[], list[str] | None]
    # Minor number by GPU UUID.
    minors: Callable[[], dict[str, int]]
    is_directory: Callable[[str], bool]
    # Takes a container's lock away, which the API cannot. Returns the error's text, empty when it went well.
    unlock: Callable[[int], str]


class Container:
    def __init__(self, api: Api, node: Node, params: Mapping[str, Any], check: bool) -> None:
        self.api = api
        self.node = node
        self.params = params
        self.check = check
        self.vmid: int = params["vmid"]
        self.path = f"lxc/{self.vmid}"
        self.warnings: list[str] = []

    def reconcile(self) -> dict[str, Any]:
        resources = self.api.resources()
        there = refuse.is_there(self.vmid, self.node.name, resources)
        found, digest, status, pending = self._read() if there else ({}, "", ABSENT_STATUS, {})
        before = pve.shown(found, status)
        if there:
            refuse.not_ours(self.params, found)
        unfinished = self._unfinished(found)
        if unfinished and not self.check:
            self._unlock()
        if self.params["state"] == "absent":
            return self._absent(there, found, status, before)
        if unfinished:
            if not self.check:
                self._destroy(status)
            there, found, digest, status, pending = False, {}, "", ABSENT_STATUS, {}
        devices = self._devices(resources, found)
        change = self._plan(found, devices)
        power = self._power(status, bool(pending))
        changed = bool(change or not there or power)
        if self.check or not changed:
            after = pve.shown(pve.apply_change(found, change), self._status_after(status, power))
            return self._result(before, after, status, pending, changed)
        if there:
            self._wait_for_lock(status)
            self._update(found, digest, change, devices)
        else:
            self._create(change)
        found, _digest, status, pending = self._read()
        power = self._power(status, bool(pending))
        if power:
            self._switch(power)
            found, _digest, status, pending = self._read()
        left, power = self._plan(found, devices), self._power(status, bool(pending))
        refuse.not_reached(self.params, found, status, left, power)
        return self._result(before, pve.shown(found, status), status, pending, True)

    def _result(self, before: dict[str, str], after: dict[str, str], status: str, pending: Any, changed: bool) -> dict[str, Any]:
        return {
            "before": before,
            "after": after,
            "pending": pending,
            "status": status,
            "changed": changed,
            "tasks": self.api.tasks,
        }

    def _read(self) -> tuple[Config, str, str, dict[str, str | None]]:
        # Without `current` the answer holds pending values as if they were in force: what is wanted is compared with that.
        config, digest, _raw = pve.parse_config(self.api.get(f"{self.path}/config"))
        status = str(self.api.get(f"{self.path}/status/current").get("status", "unknown"))
        return config, digest, status, pve.parse_pending(self.api.get(f"{self.path}/pending"))

    def _unfinished(self, found: Config) -> bool:
        """Whether the task that was creating this is dead, as after a power cut. What it left is no container."""
        if found.get("lock") != "create":
            return False
        tasks = self.api.get("tasks", source="active", vmid=self.vmid)
        # The list may still hold a task whose process is gone; its own status looks at the process.
        return not any(self.api.get(f"tasks/{task['upid']}/status").get("status") == "running" for task in tasks)

    def _unlock(self) -> None:
        error = self.node.unlock(self.vmid)
        if error:
            raise Refusal(
                f"Container {self.vmid} is what a dead task left, and its lock stays",
                error,
                "no lock",
                f"See why `pct unlock {self.vmid}` fails on the node",
            )

    def _devices(self, resources: list[dict[str, Any]], found: Config) -> list[str] | None:
        gpus = self.params.get("gpus")
        if not gpus:
            return gpus
        try:
            devices = pve.gpu_paths(gpus, self.node.character_devices(), self.node.minors(), found)
        except pve.MissingDevices as exc:
            if not self.check:
                raise
            # A driver that check mode only promised has made no device nodes. What is there is the best prediction.
            self.warnings.append(f"Devices are not predicted. {exc}")
            return None
        configs: dict[int, tuple[Config, list[str]]] = {}
        for entry in resources if devices else []:
            vmid = int(entry["vmid"])
            if entry.get("type") == "lxc" and entry.get("node") == self.node.name and vmid != self.vmid:
                try:
                    config, _digest, raw = pve.parse_config(self.api.get(f"lxc/{vmid}/config"))
                except ApiError as exc:
                    if not ABSENT.search(str(exc)):
                        raise
                    continue
                configs[vmid] = (config, raw)
        refuse.shared_gpus(self.vmid, devices, configs)
        return devices

    def _plan(self, found: Config, devices: list[str] | None) -> Change:
        refuse.unusable_paths(self.params)
        refuse.taken_targets(self.params, found)
        for mount in self.params.get("mounts") or []:
            if not self.check and not self.node.is_directory(mount["source"]):
                # Proxmox VE accepts it, and the container then does not start.
                raise Refusal(
                    f"Mount source of container {self.vmid} is missing",
                    f"no directory {mount['source']} on the node",
                    "a directory",
                    "Create it on the node, or correct mounts",
                )
        wanted = pve.wanted_config(self.params, found, devices)
        if found:
            refuse.fixed_properties(self.params, found)
            wanted.update(pve.grown_rootfs(self.params, found))
        else:
            refuse.not_creatable(self.params)
            wanted["rootfs"] = "{storage}:{size_gib}".format(**self.params["rootfs"])
            wanted["unprivileged"] = str(int(self.params["unprivileged"]))
        return pve.difference(self.params, found, wanted, devices)

    def _wait_for_lock(self, status: str) -> None:
        deadline = self.api.deadline()
        while True:
            lock = self.api.get(f"{self.path}/status/current").get("lock")
            if not lock:
                return
            if self.api.clock() >= deadline:
                raise Refusal(
                    f"Container {self.vmid} is locked",
                    f"lock {lock}, container {status}",
                    "no lock",
                    f"Let that task end, or remove what a dead task left: pct unlock {self.vmid}",
                )
            self.api.sleep(2)

    def _create(self, change: Change) -> None:
        data = {**change.set, "vmid": self.vmid, "ostemplate": self.params["template"]}
        self._write("post", "lxc", data, f"Container {self.vmid} could not be created")

    def _update(self, found: Config, digest: str, change: Change, devices: list[str] | None) -> None:
        for attempt in range(ATTEMPTS):
            if not change:
                return
            size = pve.size_gib(change.set.get("rootfs", ""))
            data = {key: value for key, value in change.set.items() if key != "rootfs"}
            if change.delete:
                data["delete"] = ",".join(change.delete)
            try:
                if data:
                    text = f"Container {self.vmid} could not be changed"
                    self._write("put", f"{self.path}/config", {**data, "digest": digest}, text)
                if size is not None:
                    text = f"The root file system of container {self.vmid} could not grow"
                    self._write("put", f"{self.path}/resize", {"disk": "rootfs", "size": f"{size:g}G"}, text)
                return
            except Stale as exc:
                if attempt == ATTEMPTS - 1:
                    raise Refusal(
                        f"Container {self.vmid} could not be changed",
                        str(exc),
                        "nobody else changing it",
                        "Find what else changes this container, and run again",
                    ) from exc
                found, digest, _status, _pending = self._read()
                change = self._plan(found, devices)

    def _write(self, method: str, path: str, data: dict[str, Any], what: str) -> None:
        try:
            self.api.change(method, path, **data)
        except Stale:
            raise
        except ApiError as exc:
            # Neither an exit code nor an error proves that nothing was written, so what is there is said as well.
            raise Refusal(what, str(exc), "success", f"Correct the cause. Container {self.vmid} is {self._now()}") from exc

    def _now(self) -> str:
        try:
            config, _digest, status, _pending = self._read()
        except ApiError:
            return "not there, or not readable"
        return f"{status}, with " + ", ".join(f"{key}: {value}" for key, value in sorted(config.items()))

    def _power(self, status: str, pending: bool) -> list[str]:
        """The steps that lead to the wanted power state."""
        state = self.params["state"]
        if state == "started" and status != "running":
            return ["start"]
        if state == "stopped" and status == "running":
            return ["shutdown"]
        if state == "started" and pending and self.params["restart"]:
            return ["shutdown", "start"]
        return []

    def _status_after(self, status: str, power: list[str]) -> str:
        if power:
            return "running" if power[-1] == "start" else "stopped"
        return "stopped" if status == ABSENT_STATUS else status

    def _switch(self, power: list[str]) -> None:
        for step in power:
            data = {"timeout": SHUTDOWN_SECONDS, "forceStop": 1} if step == "shutdown" else {}
            text = f"Container {self.vmid} did not {'start' if step == 'start' else 'stop'}"
            self._write("post", f"{self.path}/status/{step}", data, text)

    def _absent(self, there: bool, found: Config, status: str, before: dict[str, str]) -> dict[str, Any]:
        gone = {"status": ABSENT_STATUS}
        if not there:
            return self._result(before, gone, ABSENT_STATUS, {}, False)
        refuse.unconfirmed(self.params)
        refuse.another_kind(self.params, found)
        if not self.check:
            self._destroy(status)
        return self._result(before, gone, status if self.check else ABSENT_STATUS, {}, True)

    def _destroy(self, status: str) -> None:
        self._wait_for_lock(status)
        if status == "running":
            self._write("post", f"{self.path}/status/stop", {}, f"Container {self.vmid} did not stop")
        self._write("delete", self.path, {"purge": 1}, f"Container {self.vmid} could not be destroyed")
        if refuse.is_there(self.vmid, self.node.name, self.api.resources()):
            raise Refusal(
                f"Container {self.vmid} was destroyed and is still there",
                self._now(),
                "no container",
                "Look at the node's task log",
            )
