# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Choose a stack from facts. All of it happens on the controller: no host is contacted and nothing is written."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.blackwell.inference.plugins.plugin_utils import _knowledge, _report, _resolver, _servers
from ansible_collections.blackwell.inference.plugins.plugin_utils._conflicts import PlanError
from ansible_collections.blackwell.inference.plugins.plugin_utils._inputs import InputError, plain

ARGUMENTS: dict[str, Any] = {
    "gpu": {"type": "dict", "required": True},
    "model": {"type": "dict", "required": True},
    "request": {"type": "dict"},
    "stack": {"type": "dict"},
}


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        _validated, arguments = self.validate_argument_spec(argument_spec=ARGUMENTS)
        try:
            gpu, model, request, stack = (plain(arguments[name], name) for name in ARGUMENTS)
            plan = _resolver.resolve(_knowledge.load(), gpu, model, request, stack)
        except PlanError as error:
            told = error.failure
            conflicts = [entry.entry() for entry in told.conflicts]
            return {**result, "failed": True, "msg": str(error), "conflicts": conflicts, "needed": told.needed, "ways_out": told.ways_out}
        except (InputError, _knowledge.KnowledgeError) as error:
            # Returned and not raised: failed_when is asked only about a result.
            return {**result, "failed": True, "msg": str(error)}
        report = _report.render(plan, _report.host(gpu, model))
        return {**result, "changed": False, "plan": plan, "servers": _servers.servers(plan["launch"], gpu), "report": report}
