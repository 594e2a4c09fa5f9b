# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plan all hosts of a play, or recorded ones, in one task on the controller, and show the plan of each class of them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase
from ansible_collections.blackwell.inference.plugins.module_utils._durable import write_atomic
from ansible_collections.blackwell.inference.plugins.plugin_utils import _facts_file, _fleet, _fleet_report, _knowledge, _page
from ansible_collections.blackwell.inference.plugins.plugin_utils._inputs import REQUEST, InputError

ARGUMENTS: dict[str, Any] = {
    "explain": {"type": "bool", "default": False},
    "facts_file": {"type": "path"},
    "plan_file": {"type": "path"},
    "page_file": {"type": "path"},
}
MODULES = {"gpu": "gpu_facts", "model": "model_facts", "stack": "stack_facts"}


def machine(name: str, results: Mapping[str, Any], request: Any) -> _fleet.Machine:
    """A host from what its tasks registered as plan_gpu, plan_model and plan_stack."""
    facts: dict[str, Any] = {}
    for part, module in MODULES.items():
        result = results.get(f"plan_{part}") or {}
        found = (result.get("ansible_facts") or {}).get(part)
        if found is not None:
            facts[part] = found
            continue
        message = f"{module}: {result.get('msg') or 'it was not run'}"
        if result.get("unreachable"):
            return _fleet.Machine(name, message=str(result.get("msg")), unreachable=True)
        if part != "stack":
            return _fleet.Machine(name, message=message)
        remarks = (f"the existing environment cannot be read: {message}",) if result.get("failed") else ()
        return _fleet.Machine(name, **facts, request=request, remarks=remarks)
    return _fleet.Machine(name, **facts, request=request)


def merged(recorded: Any, wishes: Any) -> Any:
    """What is no dictionary stays, so that it is named when the wishes are checked."""
    if recorded is None or not isinstance(wishes, Mapping):
        return wishes
    return {**recorded, **wishes} if isinstance(recorded, Mapping) else recorded


def write(path: str, text: str) -> bool:
    """Write what differs; whether it did. A device or a folder is never replaced by a file."""
    path = os.path.realpath(path)
    if os.path.exists(path) and not os.path.isfile(path):
        raise InputError(f"found: {path}, which is no regular file; wanted: a file to write to; do: name another one")
    try:
        if os.path.exists(path) and Path(path).read_bytes() == text.encode():
            return False
        write_atomic(path, text.encode())
    except OSError as error:
        raise InputError(
            f"found: {path} cannot be written ({error.strerror}); wanted: a file in a folder that exists; do: make it, or name another"
        ) from error
    return True


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        _validated, arguments = self.validate_argument_spec(argument_spec=ARGUMENTS)
        try:
            return result | self._report(arguments, task_vars or {})
        except (InputError, _knowledge.KnowledgeError) as error:
            return {**result, "failed": True, "msg": str(error)}

    def _report(self, arguments: Mapping[str, Any], variables: Mapping[str, Any]) -> dict[str, Any]:
        knowledge = _knowledge.load()
        machines = self._recorded(arguments["facts_file"], variables) if arguments["facts_file"] else self._measured(variables)
        document = _fleet.document(knowledge, machines)
        self._display.display(_fleet_report.table(document, arguments["explain"]))
        texts = {
            arguments["plan_file"]: json.dumps(document, indent=2, sort_keys=True) + "\n",
            arguments["page_file"]: _page.render(document),
        }
        changed = [write(path, text) for path, text in texts.items() if path]
        result = {"changed": any(changed), "hosts": document["hosts"], "planned": document["planned"]}
        without = document["without_plan"]
        if without:
            # Without the classes: a failed task is shown with all it returns, and the table stands above already.
            have = "has" if len(without) == 1 else "have"
            return {**result, "failed": True, "msg": f"{_fleet_report.names(without)} {have} no plan; the table above says why."}
        return {**result, "classes": document["classes"]}

    def _recorded(self, path: str, variables: Mapping[str, Any]) -> list[_fleet.Machine]:
        """The command line's wishes win over those in the file."""
        wishes = self._wishes(variables["inventory_hostname"], variables["hostvars"])
        return [replace(entry, request=merged(entry.request, wishes)) for entry in _facts_file.read(Path(path))]

    def _measured(self, variables: Mapping[str, Any]) -> list[_fleet.Machine]:
        hostvars = variables["hostvars"]
        machines = []
        for name in variables["ansible_play_hosts_all"]:
            try:
                machines.append(machine(name, hostvars.raw_get(name), self._wishes(name, hostvars)))
            except InputError as error:
                machines.append(_fleet.Machine(name, message=str(error)))
        return machines

    def _wishes(self, name: str, hostvars: Any) -> Any:
        """As the role stack has them: `stack_request`, or else what the variables of the role inference ask for."""
        raw = hostvars.raw_get(name)
        # Another host's variables come without hostvars and groups, which inventories use.
        templar = self._templar.copy_with_new_env(available_variables={**raw, "hostvars": hostvars, "groups": raw.get("groups", {})})

        def value(name: str) -> Any:
            try:
                return templar.template(raw[name])
            except AnsibleError as error:
                raise InputError(f"variable {name}: {error.message}") from error

        if "stack_request" in raw:
            return value("stack_request")
        keys = (key.removesuffix("?") for key in REQUEST)
        return {key: value(f"inference_{key}") for key in keys if f"inference_{key}" in raw}
