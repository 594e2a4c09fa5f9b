#!/usr/bin/python
# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: completion
short_description: Fetch one completion from an OpenAI-compatible endpoint
description:
  - Sends one chat request with a prompt that was never used before and returns the answer. Changes nothing.
author:
  - blackwell.inference contributors (@blackwell-inference)
extends_documentation_fragment: blackwell.inference.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: N/A
    details: It only reads.
options:
  url:
    description: Address of the endpoint, without C(/v1).
    type: str
    required: true
  api_key:
    description: Key that is sent as bearer token.
    type: str
    required: true
  model:
    description: Name of the model. The default is the first one that the endpoint lists.
    type: str
  prompt:
    description: What to ask. The default holds a random number, so that no cache can answer.
    type: str
  max_tokens:
    description: Longest answer in tokens.
    type: int
    default: 32
  timeout:
    description: Seconds to wait for the answer.
    type: float
    default: 120
"""

EXAMPLES = r"""
- name: Fetch one completion
  blackwell.inference.completion:
    url: http://10.99.0.200:8000
    api_key: "{{ gateway_api_key }}"
"""

RETURN = r"""
model:
  description: Name of the model that answered.
  returned: success
  type: str
  sample: Qwen3.6-27B
prompt:
  description: What was asked.
  returned: success
  type: str
  sample: Say hello to 5f3c9a.
text:
  description: The answer.
  returned: success
  type: str
  sample: Hello, 5f3c9a.
seconds:
  description: Time from request to whole answer.
  returned: success
  type: float
  sample: 0.8
usage:
  description: Tokens as the endpoint counted them.
  returned: success
  type: dict
  sample: {prompt_tokens: 12, completion_tokens: 8, total_tokens: 20}
"""

import secrets

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.blackwell.inference.plugins.module_utils import _completion
from ansible_collections.blackwell.inference.plugins.module_utils._refusal import Refusal


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "url": {"type": "str", "required": True},
            "api_key": {"type": "str", "required": True, "no_log": True},
            "model": {"type": "str"},
            "prompt": {"type": "str"},
            "max_tokens": {"type": "int", "default": 32, "no_log": False},
            "timeout": {"type": "float", "default": 120},
        },
        supports_check_mode=True,
    )
    prompt = module.params["prompt"] or f"Say hello to {secrets.token_hex(6)}."
    try:
        result = _completion.complete(
            module.params["url"].rstrip("/"),
            module.params["api_key"],
            module.params["model"],
            prompt,
            module.params["max_tokens"],
            module.params["timeout"],
        )
    except Refusal as refusal:
        module.fail_json(**refusal.result(), prompt=prompt)
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
