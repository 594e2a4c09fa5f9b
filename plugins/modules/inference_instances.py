#!/usr/bin/python
# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: inference_instances
short_description: All inference servers of a container, one for each GPU
description:
  - Writes the template unit C(inference@.service), its start script and one environment file for each instance, enables and
    starts the instances, and removes those that are not listed.
  - Restarts only what changed, is not active, or was started with an earlier configuration or on another stack.
  - Waits for the health of all at the same time, and shows the journal of those that do not come up.
  - Creates the service user when it is absent.
author:
  - blackwell.inference contributors (@blackwell-inference)
extends_documentation_fragment: blackwell.inference.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
    details: Values of variables whose names speak of keys, tokens, secrets or passwords are not shown.
options:
  instances:
    description: The servers. Those that exist and are not listed are stopped and removed.
    type: list
    elements: dict
    required: true
    suboptions:
      index:
        description: Number of the instance, the part of the unit's name after the C(@).
        type: int
        required: true
      port:
        description: Port that it listens on.
        type: int
        required: true
      gpu:
        description: UUID of its GPU, the only one that it sees.
        type: str
        required: true
      compute_capability:
        description: The GPU's measured compute capability. It names the folder of compiled kernels.
        type: str
        required: true
      args:
        description: Arguments of the engine. Host and port are added.
        type: list
        elements: str
        default: []
      env:
        description: Further variables of its environment.
        type: dict
        default: {}
  stack:
    description: The stack that the instances run on. It must be the current one already, see M(blackwell.inference.stack_switch).
    type: path
    required: true
  host:
    description: Address that the instances listen on.
    type: str
    default: 127.0.0.1
  user:
    description: The service user, whose group has the same name.
    type: str
    default: inference
  state:
    description: Folder of the link to the current stack and of the proofs.
    type: path
    default: /var/lib/inference-state
  stop_timeout:
    description: Seconds that a server gets to finish its requests before it is killed with all its processes.
    type: int
    default: 30
  health_timeout:
    description: Seconds until every server must be healthy. The first start on a new stack compiles kernels for minutes.
    type: float
    default: 900
"""

EXAMPLES = r"""
- name: Run one server on each GPU
  blackwell.inference.inference_instances:
    stack: /var/lib/inference/stacks/4f1d2c3b4a596877
    instances:
      - index: 0
        port: 30000
        gpu: GPU-9e3c1f0a-0000-4000-8000-000000000000
        compute_capability: "12.0"
        args: [--model-path, /var/lib/inference/models/Qwen3.6-27B, --attention-backend, flashinfer]
"""

RETURN = r"""
instances:
  description: Every instance. In check mode, C(health) is null.
  returned: success
  type: list
  elements: dict
  sample:
    - index: 0
      port: 30000
      gpu: GPU-9e3c1f0a-0000-4000-8000-000000000000
      unit: inference@0.service
      pid: 4242
      active: true
      changed: false
      reasons: []
      health: "200"
removed:
  description: Names of the instances that were removed, or would be in check mode.
  returned: success
  type: list
  elements: str
  sample: ["8"]
"""

import os
import time
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.blackwell.inference.plugins.module_utils import _account, _health, _instances
from ansible_collections.blackwell.inference.plugins.module_utils._refusal import Refusal, from_os_error
from ansible_collections.blackwell.inference.plugins.module_utils._units import Instance, Settings

INSTANCE = {
    "index": {"type": "int", "required": True},
    "port": {"type": "int", "required": True},
    "gpu": {"type": "str", "required": True},
    "compute_capability": {"type": "str", "required": True},
    "args": {"type": "list", "elements": "str", "default": []},
    "env": {"type": "dict", "default": {}},
}


def require_current(settings: Settings) -> None:
    """The start script follows the link; services on another stack than the one asked for must not be started."""
    link = os.path.join(settings.state, "current")
    found = os.readlink(link) if os.path.islink(link) else "no link"
    if found != settings.stack:
        raise Refusal(f"The link {link}", found, settings.stack, "Run stack_switch with this stack first")


def reconcile(module: AnsibleModule) -> dict[str, Any]:
    params = module.params
    began = time.time()
    settings = Settings(
        stack=params["stack"].rstrip("/"),
        host=params["host"],
        user=params["user"],
        state=params["state"],
        stop_timeout=params["stop_timeout"],
    )
    instances = [Instance(**{**one, "env": {name: str(value) for name, value in one["env"].items()}}) for one in params["instances"]]
    _instances.validate(instances)
    wanted = _instances.wanted_files(instances, settings)
    found = _instances.gather(module.run_command, instances, settings, wanted)
    steps = _instances.decide(found, wanted, instances, settings)
    known_user = _account.exists(settings.user)
    units, health = found.units, {}
    if not module.check_mode:
        require_current(settings)
        if not known_user:
            _account.create(settings.user, module.run_command)
        _instances.apply(module.run_command, steps, instances, settings)
        health = _health.await_all(module.run_command, instances, settings.host, params["health_timeout"])
        if not all(one.ok for one in health.values()):
            module.fail_json(msg=_health.message(module.run_command, instances, health, began))
        units = _instances.show(module.run_command, instances)
    return {
        "changed": bool(steps) or not known_user,
        "instances": [
            {
                "index": one.index,
                "port": one.port,
                "gpu": one.gpu,
                "unit": one.unit,
                "pid": int(units[one.index].get("MainPID") or 0) or None,
                "active": units[one.index].get("ActiveState") == "active",
                "changed": bool(steps.reasons[one.index]),
                "reasons": steps.reasons[one.index],
                "health": health[one.index].detail if one.index in health else None,
            }
            for one in instances
        ],
        "removed": steps.remove,
        "diff": _instances.diff(found, steps, instances),
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "instances": {"type": "list", "elements": "dict", "required": True, "options": INSTANCE},
            "stack": {"type": "path", "required": True},
            "host": {"type": "str", "default": "127.0.0.1"},
            "user": {"type": "str", "default": "inference"},
            "state": {"type": "path", "default": "/var/lib/inference-state"},
            "stop_timeout": {"type": "int", "default": 30},
            "health_timeout": {"type": "float", "default": 900},
        },
        supports_check_mode=True,
    )
    try:
        result = reconcile(module)
    except Refusal as refusal:
        module.fail_json(**refusal.result())
    except OSError as error:
        module.fail_json(**from_os_error(error, "The services").result())
    module.exit_json(**result)


if __name__ == "__main__":
    main()
