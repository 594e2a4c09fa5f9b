# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: stack_plan
short_description: Choose SGLang, torch, kernels, toolkit and launch arguments from facts
description:
  - Finds the newest SGLang release that the GPUs, the driver, the platform and the model can run, and how it is started.
  - Works on the controller from facts and from the collection's knowledge base; contacts no host and writes nothing.
  - Fails, with the fewest facts that conflict and the nearest ways out, when there is no such release.
author:
  - blackwell.inference contributors (@blackwell-inference)
extends_documentation_fragment: blackwell.inference.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: N/A
    details: Nothing is changed.
options:
  gpu:
    description: What M(blackwell.inference.gpu_facts) returns as RV(blackwell.inference.gpu_facts#module:ansible_facts.gpu).
    type: dict
    required: true
  model:
    description: What M(blackwell.inference.model_facts) returns as RV(blackwell.inference.model_facts#module:ansible_facts.model).
    type: dict
    required: true
  request:
    description:
      - What the operator wants. What is left out or null is chosen.
      - What is asked for wins, unless it cannot work; then the task fails and says why.
    type: dict
    suboptions:
      sglang_version:
        description: Pins one release. A release that was not proven is accepted and warned about.
        type: str
      attention_backend:
        description: Attention backend of the text model.
        type: str
      tensor_parallel:
        description: GPUs for each instance. Default V(1), one independent server for each GPU.
        type: int
      instances:
        description: Number of servers. Default is as many as the GPUs allow.
        type: int
      gpus:
        description: Indexes or UUIDs of the GPUs to use. Default is all of them.
        type: list
        elements: raw
      speculative:
        description:
          - V(off) is the default, V(auto) uses the MTP head when it is really usable, V(mtp) fails when it is not.
        type: str
        choices: ['off', auto, mtp]
      expected_compute_capability:
        description: What the operator believes. The measured capability counts, and a difference is reported.
        type: str
      mamba_strategy:
        description: Value of the release's flag for the cache of linear attention.
        type: str
      port_base:
        description: Port of the first instance. Default V(30000).
        type: int
      context_length:
        description: Longest context that is served. Default is the model's own.
        type: int
      served_model_name:
        description: Name of the model in the API. Default is the name of its folder.
        type: str
      max_running_requests:
        description: Requests that one instance runs at once. Default is SGLang's own.
        type: int
  stack:
    description: What M(blackwell.inference.stack_facts) found, to have it compared with the plan. It is never changed.
    type: dict
"""

EXAMPLES = r"""
- name: Choose the stack from the facts
  blackwell.inference.stack_plan:
    gpu: "{{ ansible_facts['gpu'] }}"
    model: "{{ ansible_facts['model'] }}"
    request:
      sglang_version: 0.5.12.post1
  register: planned

- name: Show the plan with its reasons
  ansible.builtin.debug:
    msg: "{{ planned.report }}"
"""

RETURN = r"""
plan:
  description: The plan.
  returned: success
  type: dict
  contains:
    stack_id:
      description: Names what is installed; equal for hosts that get the same stack.
      type: str
      sample: 0f0c3a2b7d1e4f56
    launch_id:
      description: Names how it is started.
      type: str
      sample: 93390d757aed6a5e
    stack:
      description: Versions of everything that is installed, and what the lock is made with.
      type: dict
    launch:
      description: Mode, number of instances, ports, GPUs, arguments and environment.
      type: dict
    support:
      description:
        - V(verified) when this release served on such a card with this Python.
        - V(expected) when the evidence says that it works.
        - V(functional) when it works but not in the best way, or nobody has proven it.
      type: str
      sample: expected
    decisions:
      description: Every choice with its reason and the source of that reason.
      type: list
      elements: dict
    rejected:
      description: What was looked at and not chosen, with the reason and its source.
      type: list
      elements: dict
    warnings:
      description: What the operator should know.
      type: list
      elements: str
servers:
  description: One entry for each instance, as M(blackwell.inference.inference_instances) takes them.
  returned: success
  type: list
  elements: dict
  contains:
    index:
      description: Number of the instance.
      type: int
      sample: 0
    port:
      description: Its port.
      type: int
      sample: 30000
    gpu:
      description: UUID of its GPU.
      type: str
      sample: GPU-00000000-0000-4000-8000-000000000000
    compute_capability:
      description: Measured capability of that GPU.
      type: str
      sample: '12.0'
    args:
      description: Arguments of SGLang, without host and port.
      type: list
      elements: str
    env:
      description: Environment of the server.
      type: dict
report:
  description: The plan as a table for people.
  returned: success
  type: str
conflicts:
  description: The fewest facts and wishes that conflict.
  returned: when there is no plan
  type: list
  elements: dict
  contains:
    subject:
      description: The fact or the wish.
      type: str
      sample: driver
    option:
      description: What it rules out.
      type: str
      sample: SGLang 0.5.12
    because:
      description: Why.
      type: str
      sample: the driver is 570.172.08 and SGLang 0.5.12 (CUDA 13) needs 580 or newer.
    source:
      description: Where that is known from.
      type: str
needed:
  description: Changes that are needed in any case.
  returned: when there is no plan
  type: list
  elements: str
  sample: [install the open kernel modules]
ways_out:
  description: Changes of which one is enough, beside those that are needed.
  returned: when there is no plan
  type: list
  elements: str
  sample: ['driver 580 or newer: unlocks SGLang 0.5.12']
"""
