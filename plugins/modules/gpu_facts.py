#!/usr/bin/python
# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_facts
short_description: Measure NVIDIA GPUs, their driver and the machine around them
author:
  - blackwell.inference contributors (@blackwell-inference)
description:
  - Reads everything that a plan for GPU services needs, in one call, and returns it as C(ansible_facts.gpu).
  - Asks NVML in a child process with a time limit, then C(/proc/driver/nvidia), C(/sys/bus/pci) and the device nodes.
    Nothing has to be installed for it, neither C(nvidia-smi) nor PyTorch, and no CUDA context is made, so that a running
    service loses nothing.
  - Works on a node, in a virtual machine and in containers, with no GPU and with no driver. What is unknown is null,
    and RV(ansible_facts.gpu.problems) says why.
extends_documentation_fragment:
  - blackwell.inference.attributes
  - blackwell.inference.attributes.facts
options:
  service_user:
    description:
      - The user that services run as. Access to the device nodes is tried as this user, since root can open nodes that
        the service cannot. Without it the user that runs the module is meant. A user that is still to be created is
        tried as one without any rights of its own.
    type: str
  expected_compute_capability:
    description:
      - The compute capability that you expect, for example V(12.0). The measured one stands; a difference is reported.
    type: str
  vmid:
    description:
      - The container's number on its Proxmox node, returned as C(container.vmid). It cannot be known
        from inside.
    type: int
  timeout:
    description:
      - Seconds that the driver may be silent, 1 to 600. Each card is asked on its own, since one that is not kept
        initialised takes seconds to start. A driver that hangs becomes a problem entry, not a hanging run.
    type: int
    default: 10
  cuda_attributes:
    description:
      - Whether the CUDA driver is asked for what NVML does not know (multiprocessors and shared memory per block).
      - V(auto) asks only while no process is on any GPU, V(always) also then, V(never) does not.
    type: str
    choices: [auto, always, never]
    default: auto
"""

EXAMPLES = r"""
- name: Measure the GPUs
  blackwell.inference.gpu_facts:
    service_user: inference

- name: Show what stands in the way
  ansible.builtin.debug:
    var: ansible_facts.gpu.problems
"""

RETURN = r"""
ansible_facts:
  description: The facts, under one key.
  returned: always
  type: dict
  contains:
    gpu:
      description: Everything about the GPUs of this machine or container.
      type: dict
      returned: always
      contains:
        driver:
          description:
            - C(version) of the kernel module, its C(flavour) (V(open) or V(closed)), C(cuda) (newest version it runs),
              C(library_version) of the user space, C(loaded), and C(matches) (both versions are the same).
          type: dict
          returned: always
        devices:
          description:
            - One entry for each GPU, ordered by PCI address.
            - C(index), C(uuid), C(name), C(pci_address), C(pci_id), C(compute_capability), C(sm), C(family), C(minor),
              C(node) (device node), C(accessible) (the service user can open it), C(lost) (fallen off the bus).
            - C(memory_mib) and C(memory_used_mib) in MiB, C(shared_memory_per_block_optin) in bytes, C(multiprocessors),
              C(power_limit_w) in watts, C(pcie_width) and C(pcie_width_max) (what the card has) in lanes, C(numa_node).
            - C(ecc), C(ecc_errors) (uncorrected, since the driver was loaded), C(mig), C(persistence).
            - C(processes), each with C(pid), C(name), C(memory_mib) and C(unit) (systemd unit); C(holder_unknown) when
              memory is in use and no process can be seen.
          type: list
          elements: dict
          returned: always
        count:
          description: Number of GPUs.
          type: int
          returned: always
        compute_capabilities:
          description: The distinct compute capabilities, sorted.
          type: list
          elements: str
          returned: always
        device_nodes:
          description: Paths that are C(missing), C(not_char) (no character device), C(unreadable) for the service user.
          type: dict
          returned: always
        container:
          description: C(type) (V(none), V(lxc), V(docker), ...), C(unprivileged), C(vmid).
          type: dict
          returned: always
        platform:
          description:
            - C(machine), C(kernel), C(glibc), C(distribution), C(distribution_version), C(pythons) (path by version),
              C(shm_mib) and C(memory_mib) in MiB.
          type: dict
          returned: always
        sources:
          description:
            - Which source answered for each fact, V(nvml), V(cuda), V(proc), V(sysfs), V(pci) (the table of PCI ids), V(dev) (opening
              the device node) or V(file) (a library's name).
          type: dict
          returned: always
        problems:
          description: What is not as it should be. C(docs/facts.md) explains each code.
          type: list
          elements: dict
          returned: always
          contains:
            code:
              description: A fixed word for the state, for example V(driver_library_mismatch).
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
import re

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.blackwell.inference.plugins.module_utils._gpu import assemble
from ansible_collections.blackwell.inference.plugins.module_utils._gpu_sources import Roots, collect


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "service_user": {"type": "str"},
            "expected_compute_capability": {"type": "str"},
            "vmid": {"type": "int"},
            "timeout": {"type": "int", "default": 10},
            "cuda_attributes": {"type": "str", "choices": ["auto", "always", "never"], "default": "auto"},
        },
        supports_check_mode=True,
    )
    params = module.params
    expected = params["expected_compute_capability"]
    if expected is not None and not re.fullmatch(r"\d{1,2}\.\d", expected):
        module.fail_json(msg=f"expected_compute_capability is {expected!r}; wanted something like 12.0; quote it in YAML")
    if not 1 <= params["timeout"] <= 600:
        module.fail_json(msg=f"timeout is {params['timeout']}; wanted 1 to 600 seconds; leave it out for 10")
    raw = collect(
        Roots(), params["service_user"], params["timeout"], params["cuda_attributes"], os.environ.get("PATH")
    )
    module.exit_json(changed=False, ansible_facts={"gpu": assemble(raw, expected, params["vmid"])})


if __name__ == "__main__":
    main()
