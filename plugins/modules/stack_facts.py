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
  - Imports nothing and loads nothing. GPU code is read from the headers of the binaries; of the programs found, only
    C(nvcc --version) is run.
  - Looked at is every file named C(*.so) or C(*.so.N) below the folder. Links to folders are not followed, and a link to
    another such file of the same folder is not counted again. Not seen is GPU code in other files (C(.cubin), C(.a)) and
    code that a library keeps as plain data; C(cuobjdump) does not see the latter either.
extends_documentation_fragment:
  - blackwell.inference.attributes
  - blackwell.inference.attributes.facts
options:
  path:
    description: The stack folder or virtual environment.
    type: path
    required: true
  service_path:
    description:
      - The search path that services run with, to find a C++ compiler and ninja on. The folder's own C(bin) and C(cuda/bin)
        are first, as they are for services.
    type: str
    default: /usr/local/bin:/usr/bin:/bin
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
          sample: 0123456789abcdef
        distributions:
          description: Version by normalised distribution name, from the metadata of C(dist-info) and C(egg-info).
          type: dict
          returned: success
          sample: {"torch": "2.14.1", "sglang-kernel": "0.4.10"}
        cuda_major:
          description:
            - Major version of CUDA by relative path, for each shared object that needs a library whose version is CUDA's own
              (C(libcudart.so.13)).
          type: dict
          returned: success
          sample: {"lib/python3.13/site-packages/sgl_kernel/flash_ops.abi3.so": 13}
        code:
          description:
            - GPU code by relative path, as the number of compiled source files (units) by architecture. V(sm_120) is machine
              code for one version and its later minor ones, V(sm_120a) for this version alone, V(sm_120f) for its family;
              V(compute_120) is PTX, which the driver compiles; V(lto_120) is for the device linker and does not run.
            - Relocatable code is included, as C(cuobjdump --all-fatbin) lists it.
          type: dict
          returned: success
          sample: {"lib/python3.13/site-packages/sgl_kernel/flash_ops.abi3.so": {"sm_80": 372, "sm_86": 372, "sm_90a": 372}}
        units:
          description: Number of compiled source files that hold a kernel, by relative path.
          type: dict
          returned: success
          sample: {"lib/python3.13/site-packages/sgl_kernel/flash_ops.abi3.so": 372}
        toolkit:
          description: What compiles kernels at run time.
          type: dict
          returned: success
          contains:
            nvcc:
              description: Version of the folder's own nvcc, or null.
              type: str
              returned: success
              sample: 13.0.88
            nvcc_path:
              description: Path of that nvcc, or null.
              type: str
              returned: success
            python_headers:
              description: Whether the C headers of the base interpreter are there.
              type: bool
              returned: success
            cxx:
              description: Path of C(g++) on the search path of services, or null.
              type: str
              returned: success
            ninja:
              description: Path of C(ninja) on the search path of services, or null.
              type: str
              returned: success
        problems:
          description:
            - What is not as it should be, or could not be looked at.
            - The codes are V(binary_damaged), V(not_scanned), V(mixed_cuda), V(metadata_broken), V(distribution_twice),
              V(no_distributions) and V(nvcc_fails).
          type: list
          elements: dict
          returned: success
          contains:
            code:
              description: Its short name, for programs.
              type: str
              returned: always
            severity:
              description: V(error) or V(warning).
              type: str
              returned: always
            found:
              description: What was found.
              type: str
              returned: always
            wanted:
              description: What was wanted.
              type: str
              returned: always
            remedy:
              description: What to do.
              type: str
              returned: always
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.blackwell.inference.plugins.module_utils._stack_facts import describe


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "service_path": {"type": "str", "default": "/usr/local/bin:/usr/bin:/bin"},
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
