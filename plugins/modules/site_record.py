# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: site_record
short_description: Record what was measured, chosen and installed
description:
  - Writes files on the controller, each only when its content changed apart from values that differ from moment to moment
    (memory in use, processes, the time of the record).
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
    description: Folder on the controller.
    type: path
    required: true
  files:
    description:
      - File names, relative to O(path), and their content.
      - A string is written as it is, anything else as YAML. A dictionary gets the key C(recorded_at).
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Record the plan
  blackwell.inference.site_record:
    path: "{{ inference_record_dir }}/kpro6/200"
    files:
      plan.yml: "{{ plan }}"
"""

RETURN = r"""
path:
  description: The folder.
  returned: always
  type: str
  sample: /etc/ansible/records/kpro6/200
written:
  description: Files that were written, or would be in check mode.
  returned: always
  type: list
  elements: str
  sample: [/etc/ansible/records/kpro6/200/plan.yml]
"""
