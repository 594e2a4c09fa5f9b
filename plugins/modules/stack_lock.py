# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: stack_lock
short_description: Lock every distribution of a plan with its hash
description:
  - Asks C(uv pip compile) on the controller for the closure of the plan's SGLang, as of the day that the plan names, wheels only,
    with the plan's constraints and overrides, and for the compile toolkit apart from it.
  - Writes one file, C(<stack_id>.lock.txt), with exactly one wheel and its sha256 for each distribution.
    The same plan gives the same bytes.
  - A lock that is already there is used without any network, so a site without network brings its locks from elsewhere.
    One that was changed, or is of another plan, is refused and kept.
author:
  - blackwell.inference contributors (@blackwell-inference)
extends_documentation_fragment: blackwell.inference.attributes
attributes:
  check_mode:
    support: full
    details: The lock is made, with the index's help, and not written.
  diff_mode:
    support: full
options:
  plan:
    description: What M(blackwell.inference.stack_plan) returns as RV(blackwell.inference.stack_plan#module:plan).
    type: dict
    required: true
  path:
    description: Folder on the controller in which the locks are kept, best under version control.
    type: path
    required: true
  index_url:
    description:
      - Simple API of the package index (PEP 691, with upload times), over http or https. Default is what uv's own environment
        variables say. A folder of wheels is refused, since nothing in it says when it came out.
      - Without credentials. Those belong into the netrc file of the controller's user.
    type: str
  uv:
    description: An executable of uv. Default is that of the Python package uv beside ansible-core.
    type: path
  timeout:
    description: Seconds for each of the two questions to the index.
    type: int
    default: 600
"""

EXAMPLES = r"""
- name: Lock the stack
  blackwell.inference.stack_lock:
    plan: "{{ planned.plan }}"
    path: "{{ inventory_dir }}/locks"
  register: locked
"""

RETURN = r"""
path:
  description: The lock file on the controller.
  returned: success
  type: str
  sample: /etc/ansible/locks/df8636182dbddad5.lock.txt
lock_id:
  description: Names the closure; the stack's folder has this name.
  returned: success
  type: str
  sample: e4e9413f56842967
stack_id:
  description: The plan's name for what is installed.
  returned: success
  type: str
  sample: df8636182dbddad5
content:
  description: The lock as text.
  returned: success
  type: str
files:
  description: Every wheel that the stack needs, those of the compile toolkit too.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Project.
      type: str
      sample: torch
    filename:
      description: File name of the wheel.
      type: str
      sample: torch-2.14.1-cp313-cp313-manylinux_2_28_x86_64.whl
    sha256:
      description: Its hash.
      type: str
    size:
      description: Its size in bytes.
      type: int
      sample: 554618164
"""
