# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: site_preflight
short_description: Validate the whole inventory before any host is contacted
description:
  - Checks the variables of every host in the groups C(pve_nodes) and C(inference) against the roles' argument specifications,
    names variables that have a role's prefix but that no role knows, and checks what must agree across hosts.
  - Lists all findings at once. Runs on the controller and contacts no host.
author:
  - blackwell.inference contributors (@blackwell-inference)
extends_documentation_fragment: blackwell.inference.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: N/A
    details: It only reads.
options: {}
"""

EXAMPLES = r"""
- name: Validate the inventory
  blackwell.inference.site_preflight:
  run_once: true
"""

RETURN = r"""
findings:
  description: One line for each thing that is wrong.
  returned: always
  type: list
  elements: str
  sample: ["kpro6-200: found: variable gateway_prot; wanted: a variable that a role knows; do: did you mean gateway_port?"]
"""
