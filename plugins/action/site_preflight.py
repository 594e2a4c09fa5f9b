# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Validate the whole inventory at once, on the controller, before any host is contacted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase
from ansible_collections.blackwell.inference.plugins.plugin_utils import _preflight

ROLES = Path(__file__).parents[2] / "roles"


def role_specs(roles: Path) -> dict[str, dict[str, Any]]:
    """Return each role's public variables: role -> option -> specification."""
    specs: dict[str, dict[str, Any]] = {}
    for path in sorted(roles.glob("*/meta/argument_specs.yml")):
        entry_points = yaml.safe_load(path.read_text(encoding="utf-8"))["argument_specs"].values()
        specs[path.parts[-3]] = {name: option for entry in entry_points for name, option in entry.get("options", {}).items()}
    return specs


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        self.validate_argument_spec(argument_spec={})
        variables = task_vars or {}
        specs = role_specs(ROLES)
        groups: dict[str, dict[str, dict[str, Any]]] = {}
        result: list[_preflight.Finding] = []
        for group in _preflight.ROLES_OF_GROUP:
            groups[group] = {}
            for host in variables["groups"].get(group, []):
                groups[group][host], unreadable = self._templated(host, variables["hostvars"], specs)
                result += unreadable
        result += _preflight.findings(groups, specs)
        lines = list(dict.fromkeys(str(finding) for finding in result))
        if lines:
            return {"failed": True, "findings": lines, "msg": "The inventory cannot be used; nothing was touched.\n- " + "\n- ".join(lines)}
        return {"changed": False, "findings": []}

    def _templated(
        self, host: str, hostvars: Any, specs: dict[str, Any]
    ) -> tuple[dict[str, Any], list[_preflight.Finding]]:
        """Return the variables that matter, and a finding for each that cannot be templated."""
        prefixes = (*(f"{role}_" for role in specs), "ansible_connection", "ansible_host", "ansible_pct_vmid")
        raw = hostvars.raw_get(host)
        # Another host's variables come without hostvars and groups, which inventories use to name a container's node.
        templar = self._templar.copy_with_new_env(available_variables={**raw, "hostvars": hostvars, "groups": raw.get("groups", {})})
        values: dict[str, Any] = {}
        unreadable = []
        for name in raw:
            if not name.startswith(prefixes):
                continue
            try:
                values[name] = templar.template(raw[name])
            except AnsibleError as error:
                unreadable.append(_preflight.Finding(host, f"variable {name}: {error.message}", "a value", "mend its expression"))
        return values, unreadable
