#!/usr/bin/python
# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: model_facts
short_description: Describe a model folder without loading its weights
author:
  - blackwell.inference contributors (@blackwell-inference)
description:
  - Reads C(config.json), the safetensors index and the headers of the safetensors files of a model folder, never a tensor,
    and returns C(ansible_facts.model).
  - Checks that every tensor that the index names lies whole in its file. Missing, truncated and damaged files, Git LFS
    pointers and formats that cannot be served become entries of RV(ansible_facts.model.problems).
extends_documentation_fragment:
  - blackwell.inference.attributes
  - blackwell.inference.attributes.facts
options:
  path:
    description: The folder that holds the model's C(config.json).
    type: path
    required: true
"""

EXAMPLES = r"""
- name: Describe the model
  blackwell.inference.model_facts:
    path: /var/lib/inference/models/Qwen3.6-27B
"""

RETURN = r"""
ansible_facts:
  description: The facts, under one key.
  returned: success
  type: dict
  contains:
    model:
      description: What the model is and whether it is whole.
      type: dict
      returned: success
      contains:
        path:
          description: The folder.
          type: str
          returned: success
        architectures:
          description: Model classes that C(config.json) names.
          type: list
          elements: str
          returned: success
        model_type:
          description: The model's type.
          type: str
          returned: success
        dtype:
          description: Type of the weights that are not quantized.
          type: str
          returned: success
        quantization:
          description: V(fp8), V(nvfp4), V(mxfp4), V(awq), V(gptq), ... or null.
          type: str
          returned: success
        parameters:
          description: Number of parameters that a server loads, from the headers. Packed ones count as what they stand for.
          type: int
          returned: success
        weight_bytes:
          description: Bytes of the tensors that a server loads.
          type: int
          returned: success
        layers:
          description: Number of layers.
          type: int
          returned: success
        attention:
          description: Layers with C(full), C(sliding) and C(linear) attention.
          type: dict
          returned: success
        kv_bytes_per_token:
          description: Bytes of keys and values that each token adds, in the model's own type.
          type: int
          returned: success
        state_bytes_per_request:
          description: Bytes of state that the linear layers hold for each running request. 0 without such layers.
          type: int
          returned: success
        vision:
          description: Whether the model takes images.
          type: bool
          returned: success
        max_context:
          description: Longest context in tokens.
          type: int
          returned: success
        mtp:
          description:
            - Multi-token prediction. C(configured) (the config announces it), C(indexed) (the index names its tensors),
              C(files) that hold some, C(usable), and the C(reason) for that.
          type: dict
          returned: success
        complete:
          description: Whether every tensor that the index names lies whole in its file.
          type: bool
          returned: success
        missing:
          description: Files that the index names and that are not there.
          type: list
          elements: str
          returned: success
        truncated:
          description: Files that are shorter than their headers say.
          type: list
          elements: str
          returned: success
        problems:
          description: What is not as it should be; each with C(code), C(severity), C(found), C(wanted) and C(remedy).
          type: list
          elements: dict
          returned: success
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.blackwell.inference.plugins.module_utils._model import describe, read_folder


def main() -> None:
    module = AnsibleModule(argument_spec={"path": {"type": "path", "required": True}}, supports_check_mode=True)
    path = module.params["path"]
    if not os.path.isdir(path):
        found = "a file" if os.path.exists(path) else "nothing"
        module.fail_json(msg=f"Found {found} at {path}; wanted the folder of a model; put the model there or correct path.")
    try:
        folder = read_folder(path)
    except OSError as denied:
        module.fail_json(msg=f"{path} cannot be read ({denied.strerror}); wanted a readable folder; run as root.")
    module.exit_json(changed=False, ansible_facts={"model": describe(folder)})


if __name__ == "__main__":
    main()
