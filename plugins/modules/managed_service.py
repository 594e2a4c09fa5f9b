#!/usr/bin/python
# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: managed_service
short_description: One systemd service, its unit and its files in one call
description:
  - Writes the files that a service consists of, enables it, and starts or restarts it when a file changed, when it is not
    active, or when an earlier run was interrupted between writing and restarting.
  - Waits until the service answers that it is ready, and shows its journal when it does not.
author:
  - blackwell.inference contributors (@blackwell-inference)
extends_documentation_fragment: blackwell.inference.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
options:
  name:
    description: Name of the unit, with its suffix.
    type: str
    required: true
  files:
    description: Every file of the service, the unit file in C(/etc/systemd/system) included.
    type: list
    elements: dict
    required: true
    suboptions:
      path:
        description: Absolute path.
        type: path
        required: true
      content:
        description: The whole content.
        type: str
        required: true
      mode:
        description: Permission bits in octal notation.
        type: str
        default: "0644"
      owner:
        description: Owning account.
        type: str
        default: root
      group:
        description: Owning group.
        type: str
        default: root
  secrets:
    description: Files of the service whose content must not appear in any output.
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description: Absolute path.
        type: path
        required: true
      content:
        description: The whole content.
        type: str
        required: true
      mode:
        description: Permission bits in octal notation.
        type: str
        default: "0600"
      owner:
        description: Owning account.
        type: str
        default: root
      group:
        description: Owning group.
        type: str
        default: root
  ready:
    description: How to ask the service whether it is ready. Without it, being active is enough.
    type: dict
    suboptions:
      url:
        description: Address that answers with a JSON object.
        type: str
        required: true
      expect:
        description: Keys of the answer and the values that mean ready.
        type: dict
        required: true
      timeout:
        description: Seconds to wait.
        type: float
        default: 60
"""

EXAMPLES = r"""
- name: Run the gateway
  blackwell.inference.managed_service:
    name: inference-gateway.service
    files:
      - path: /etc/systemd/system/inference-gateway.service
        content: "{{ lookup('ansible.builtin.template', 'inference-gateway.service.j2') }}"
    ready:
      url: http://127.0.0.1:8000/readiness
      expect:
        status: ready
"""

RETURN = r"""
written:
  description: Paths of the files that were written.
  returned: always
  type: list
  elements: str
  sample: [/etc/systemd/system/inference-gateway.service]
restarted:
  description: Whether the service was started or restarted.
  returned: always
  type: bool
  sample: true
ready:
  description: The service's own answer.
  returned: when O(ready) is given and the service runs
  type: dict
  sample: {status: ready, healthy_workers: 8}
"""

import time
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.blackwell.inference.plugins.module_utils import _files, _service
from ansible_collections.blackwell.inference.plugins.module_utils._journal import last_lines
from ansible_collections.blackwell.inference.plugins.module_utils._refusal import Refusal, from_os_error

FILE_OPTIONS: dict[str, dict[str, Any]] = {
    "path": {"type": "path", "required": True},
    "content": {"type": "str", "required": True},
    "mode": {"type": "str", "default": "0644"},
    "owner": {"type": "str", "default": "root"},
    "group": {"type": "str", "default": "root"},
}
SECRET_OPTIONS: dict[str, dict[str, Any]] = {
    **FILE_OPTIONS,
    "content": {"type": "str", "required": True, "no_log": True},
    "mode": {"type": "str", "default": "0600"},
}
READY_OPTIONS = {
    "url": {"type": "str", "required": True},
    "expect": {"type": "dict", "required": True},
    "timeout": {"type": "float", "default": 60},
}


def reconcile(module: AnsibleModule) -> dict[str, Any]:
    name: str = module.params["name"]
    wanted = [_files.FileState(**{**entry, "mode": int(entry["mode"], 8)}) for entry in module.params["files"]]
    wanted += [_files.FileState(**{**entry, "mode": int(entry["mode"], 8)}, secret=True) for entry in module.params["secrets"]]

    found = [_files.read(state.path) for state in wanted]
    unit = _service.show(module.run_command, name)
    started = _service.start_time(unit, time.time(), time.monotonic())
    steps = _service.decide(found, wanted, unit, _service.newest([state.path for state in wanted]), started)

    result: dict[str, Any] = {
        "changed": bool(steps),
        "written": [state.path for state in steps.write],
        "restarted": steps.restart,
        "diff": [_files.diff(old, new) for old, new in zip(found, wanted) if new in steps.write],
    }
    if not module.check_mode:
        _service.apply(module.run_command, name, steps)
    ready = module.params["ready"]
    if ready and not (module.check_mode and steps):
        result["ready"] = _service.await_ready(_service.get_json, ready["url"], ready["expect"], ready["timeout"])
    return result


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "files": {"type": "list", "elements": "dict", "required": True, "options": FILE_OPTIONS},
            "secrets": {"type": "list", "elements": "dict", "default": [], "options": SECRET_OPTIONS, "no_log": False},
            "ready": {"type": "dict", "options": READY_OPTIONS},
        },
        supports_check_mode=True,
    )
    try:
        result = reconcile(module)
    except Refusal as refusal:
        secrets = [entry["content"].strip() for entry in module.params["secrets"]]
        lines = last_lines(module.run_command, module.params["name"], secrets)
        module.fail_json(**{**refusal.result(), "msg": f"{refusal}. Its last lines:\n{lines}"})
    except OSError as error:
        module.fail_json(**from_os_error(error, f"Service {module.params['name']}").result())
    module.exit_json(**result)


if __name__ == "__main__":
    main()
