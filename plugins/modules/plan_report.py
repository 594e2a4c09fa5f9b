# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: plan_report
short_description: Plan every host of a play at once and show one row for each class of hosts
description:
  - Chooses a stack, as M(blackwell.inference.stack_plan) does, for every host of the play or for every machine of a file of recorded
    facts. Hosts that differ in nothing that a plan is made from are planned once and are one class.
  - Prints one table, and can write it as JSON and as a page. A host without facts or without a plan is a row too; when there is one,
    the task fails after everything was shown and written.
  - Takes the facts of a host from what its tasks registered as C(plan_gpu) (M(blackwell.inference.gpu_facts)), C(plan_model)
    (M(blackwell.inference.model_facts)) and, if there is an environment to compare, C(plan_stack) (M(blackwell.inference.stack_facts)).
  - Takes the wishes from each host's variable C(stack_request) or, without it, from its C(inference_) variables, as the role
    C(stack) does.
  - Works on the controller and contacts no host; wants C(run_once).
author:
  - blackwell.inference contributors (@blackwell-inference)
extends_documentation_fragment: blackwell.inference.attributes
attributes:
  check_mode:
    support: full
    details: No target is changed. The files are what was asked for and are written in C(check_mode) as well.
  diff_mode:
    support: none
options:
  explain:
    description: Whether every choice and every rejection is printed with its reason.
    type: bool
    default: false
  facts_file:
    description:
      - Plan from this file of recorded facts and not from the hosts of the play.
      - Either C(gpu) and C(model) of one machine, or C(hosts), a dictionary with both for each name. What stands beside C(hosts) counts
        for each host that says nothing else. C(request) and C(stack) may stand beside them.
      - A record of a host (C(facts.yml.txt)) is such a file. Of a folder, every record below it counts.
    type: path
  plan_file:
    description: Write the plans here as JSON. The same facts give the same bytes.
    type: path
  page_file:
    description: Write the plans here as one HTML page that needs neither network nor scripts.
    type: path
"""

EXAMPLES = r"""
- name: Plan and report
  hosts: inference
  gather_facts: false
  tasks:
    - name: Measure the GPUs
      blackwell.inference.gpu_facts:
      register: plan_gpu
      ignore_errors: true
      ignore_unreachable: true

    - name: Read the model
      blackwell.inference.model_facts:
        path: /var/lib/inference/models/Qwen3.6-27B
      register: plan_model
      ignore_errors: true
      when: plan_gpu.ansible_facts is defined

    - name: Plan for all of them
      blackwell.inference.plan_report:
        plan_file: plan.json
        page_file: plan.html
      run_once: true
"""

RETURN = r"""
hosts:
  description: Number of hosts.
  returned: when the input could be read
  type: int
  sample: 8
planned:
  description: Number of hosts that have a plan.
  returned: when the input could be read
  type: int
  sample: 8
classes:
  description: One entry for each class, those with a plan first.
  returned: when every host has a plan; RV(ignore:plan_file) holds them always
  type: list
  elements: dict
  contains:
    state:
      description: V(planned), V(no plan), V(unusable facts), V(no facts) or V(unreachable).
      type: str
      sample: planned
    hosts:
      description:
        - What is each host's own, by its name. C(launch_id) and C(devices) (the UUIDs of each server's GPUs) where there is a plan,
          C(message) where the host was not reached.
      type: dict
    gpus:
      description: Kinds of GPU, each with C(count), C(name), C(compute_capability) and C(memory_mib).
      type: list
      elements: dict
    driver:
      description: Version of the driver.
      type: str
      sample: 580.126.09
    platform:
      description: C(machine), C(glibc) and C(pythons).
      type: dict
    model:
      description: C(path) and C(architectures).
      type: dict
    request:
      description: The wishes that count.
      type: dict
    plan:
      description:
        - The plan as RV(blackwell.inference.stack_plan#module:plan), without the C(launch_id) and C(launch.devices) of one host. Null
          where there is none.
      type: dict
    conflicts:
      description: The fewest facts and wishes that conflict, as RV(blackwell.inference.stack_plan#module:conflicts).
      type: list
      elements: dict
    needed:
      description: Changes that are needed in any case.
      type: list
      elements: str
    ways_out:
      description: Changes of which one is enough, beside those that are needed.
      type: list
      elements: str
    message:
      description: Why there is no plan, or null.
      type: str
    remarks:
      description: Warnings of the facts themselves, each with C(text) and the C(hosts) that it concerns.
      type: list
      elements: dict
    report:
      description: What O(explain) prints of this class.
      type: str
"""
