#!/usr/bin/python
# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: stack_switch
short_description: Make a stack the current one
description:
  - Points the link C(current) to a stack and C(previous) to the one that was current before, each in one step.
  - Services that run keep their stack until they are restarted.
author:
  - blackwell.inference contributors (@blackwell-inference)
extends_documentation_fragment: blackwell.inference.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
options:
  path:
    description: The stack's folder.
    type: path
    required: true
  state:
    description: Folder of the two links.
    type: path
    default: /var/lib/inference-state
"""

EXAMPLES = r"""
- name: Switch to the new stack
  blackwell.inference.stack_switch:
    path: /var/lib/inference/stacks/4f1d2c3b4a596877
"""

RETURN = r"""
current:
  description: The stack that is current now.
  returned: success
  type: str
  sample: /var/lib/inference/stacks/4f1d2c3b4a596877
previous:
  description: The stack that was current before, null for none.
  returned: success
  type: str
  sample: /var/lib/inference/stacks/98a7b6c5d4e3f201
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.blackwell.inference.plugins.module_utils import _switch
from ansible_collections.blackwell.inference.plugins.module_utils._refusal import Refusal, from_os_error


def reconcile(params: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    before = _switch.read(params["state"])
    after = _switch.decide(before, params["path"].rstrip("/"), _switch.is_stack)
    if not check_mode:
        _switch.require_stack(after.current)
        if before != after:
            _switch.apply(params["state"], before, after)
    return {
        "changed": before != after,
        "current": after.current,
        "previous": after.previous,
        "diff": {"before": before.described(), "after": after.described()},
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "state": {"type": "path", "default": "/var/lib/inference-state"},
        },
        supports_check_mode=True,
    )
    try:
        result = reconcile(module.params, module.check_mode)
    except Refusal as refusal:
        module.fail_json(**refusal.result())
    except OSError as error:
        module.fail_json(**from_os_error(error, "The links to the stacks").result())
    module.exit_json(**result)


if __name__ == "__main__":
    main()
