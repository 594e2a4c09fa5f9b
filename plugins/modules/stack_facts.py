#!/usr/bin/python
# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: stack_facts
short_description: Describe what is installed in a stack
author:
  - blackwell.inference contributors (@blackwell-inference)
description:
  - For a stack folder or any other virtual environment, returns the versions of its distributions, the CUDA major and the
    GPU code of each shared object in it, and its compile toolkit, as C(ansible_facts.stack).
  - Imports nothing and loads nothing. GPU code is read from the headers of the binaries.
extends_documentation_fragment:
  - blackwell.inference.attributes
  - blackwell.inference.attributes.facts
options:
  path:
    description: The stack folder or virtual environment.
    type: path
    required: true
  service_path:
    description: The search path that services run with, to find a C++ compiler and ninja on. The folder's own C(bin) is first.
    type: str
    default: /usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
"""

EXAMPLES = r"""
- name: Describe the stack in use
  blackwell.inference.stack_facts:
    path: /var/lib/inference-state/current
"""

RETURN = r"""
ansible_facts:
  description: The facts, under one key.
  returned: success
  type: dict
  contains:
    stack:
      description: What is installed.
      type: dict
      returned: success
      contains:
        path:
          description: The folder, links resolved.
          type: str
          returned: success
        lock_id:
          description: Id of the lock that it was built from, or null for another virtual environment.
          type: str
          returned: success
        distributions:
          description: Version by normalised distribution name.
          type: dict
          returned: success
        cuda_major:
          description: Major version of the CUDA runtime that a shared object links, by relative path.
          type: dict
          returned: success
        code:
          description:
            - GPU code by relative path, as the number of compiled source files by architecture (V(sm_120a), V(compute_90), ...).
          type: dict
          returned: success
        units:
          description: Number of compiled source files with a kernel, by relative path.
          type: dict
          returned: success
        toolkit:
          description: C(nvcc) version and C(nvcc_path), C(python_headers), C(cxx) and C(ninja) (paths or null).
          type: dict
          returned: success
        problems:
          description: What is not as it should be; each with C(code), C(severity), C(found), C(wanted) and C(remedy).
          type: list
          elements: dict
          returned: success
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.blackwell.inference.plugins.module_utils._stack_facts import describe


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "service_path": {"type": "str", "default": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
        },
        supports_check_mode=True,
    )
    path = module.params["path"]
    if not os.path.isdir(path):
        found = "a file" if os.path.exists(path) else "nothing"
        module.fail_json(msg=f"Found {found} at {path}; wanted a stack or virtual environment; correct path or build it.")
    module.exit_json(changed=False, ansible_facts={"stack": describe(path, module.params["service_path"])})


if __name__ == "__main__":
    main()
