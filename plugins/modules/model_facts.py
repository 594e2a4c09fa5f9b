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
  - Reads C(config.json), C(generation_config.json), the safetensors index and the headers of the safetensors files of a model
    folder, never a tensor, and returns C(ansible_facts.model).
  - Checks that every tensor that the index names lies whole in its file. Missing, truncated and damaged files, Git LFS
    pointers, pipes, links to nothing, names that lead out of the folder and formats that cannot be served become entries of
    RV(ansible_facts.model.problems).
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
          description: The folder, as given.
          type: str
          returned: success
        architectures:
          description: Model classes that C(config.json) names. Empty if it names none.
          type: list
          elements: str
          returned: success
        model_type:
          description: The model's type, or null.
          type: str
          returned: success
        dtype:
          description: Type of the weights that are not quantized, for example V(bfloat16), or null.
          type: str
          returned: success
        quantization:
          description:
            - Null for a model that is not quantized, else V(fp8), V(nvfp4), V(mxfp4), V(awq), V(gptq), V(int4), V(int8)
              or another method's name in lower case. V(compressed-tensors) if that holds several formats, V(unknown) if the
              section names none.
          type: str
          returned: success
        parameters:
          description:
            - Number of parameters that a server loads, from the headers. Packed ones count as what they stand for, scales not at all.
            - "Unit: parameters. Null if no tensor was found."
          type: int
          returned: success
        weight_bytes:
          description:
            - Size of the tensors that a server loads.
            - "Unit: bytes. Null if no tensor was found."
          type: int
          returned: success
        layers:
          description:
            - Depth of the language model, without layers for multi-token prediction.
            - "Unit: layers. Null if the config does not tell."
          type: int
          returned: success
        attention:
          description:
            - How many layers are of which kind. A layer with two kinds side by side counts in both, one without any in none.
            - Null if the config does not tell.
          type: dict
          returned: success
          contains:
            full:
              description: "Layers that attend to the whole context. Unit: layers."
              type: int
              returned: success
            linear:
              description: "Layers that hold a state of fixed size (Mamba, gated delta rule, convolution). Unit: layers."
              type: int
              returned: success
            sliding:
              description: "Layers that attend to a window. Unit: layers."
              type: int
              returned: success
        kv_bytes_per_token:
          description:
            - Keys and values that each token adds over all layers, in the model's own type, before any tensor parallelism.
              Sliding layers count too, though they keep no more than their window.
            - "Unit: bytes for each token. Null if the config does not tell, or lays its cache out in a way that is not known."
          type: int
          returned: success
        state_bytes_per_request:
          description:
            - State that the linear layers hold for each running request. 0 without such layers.
            - "Unit: bytes for each request. Null if the config does not tell."
          type: int
          returned: success
        vision:
          description: Whether the model takes images. Null if there is no readable config.
          type: bool
          returned: success
        max_context:
          description:
            - Longest context of one request, as SGLang derives it from the config.
            - "Unit: tokens. Null if the config does not tell."
          type: int
          returned: success
        mtp:
          description: Multi-token prediction.
          type: dict
          returned: success
          contains:
            configured:
              description: Whether the config announces layers for it.
              type: bool
              returned: success
            indexed:
              description: Whether the index (without one, the files) names tensors for it.
              type: bool
              returned: success
            files:
              description: Names of the files that hold some, in the index or not.
              type: list
              elements: str
              returned: success
            usable:
              description: Whether it is configured and all its tensors are indexed and there.
              type: bool
              returned: success
            reason:
              description: One sentence that says why it is usable or not.
              type: str
              returned: success
        complete:
          description: Whether every tensor that a server would load lies whole in its file, and no entry of C(problems) is an error.
          type: bool
          returned: success
        missing:
          description:
            - Names of files that are needed and not there. The index names them, or without one the others' names
              (C(model-00001-of-00003.safetensors)) count on to them, or they are links to nothing.
          type: list
          elements: str
          returned: success
        truncated:
          description: Names of files that are shorter than their headers say, empty, or Git LFS pointers.
          type: list
          elements: str
          returned: success
        problems:
          description: What is not as it should be.
          type: list
          elements: dict
          returned: success
          contains:
            code:
              description: Short name; the collection's page on facts lists them.
              type: str
              returned: success
            severity:
              description: V(error) makes the model incomplete, V(warning) does not.
              type: str
              returned: success
            found:
              description: What is there.
              type: str
              returned: success
            wanted:
              description: What should be there.
              type: str
              returned: success
            remedy:
              description: What to do.
              type: str
              returned: success
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.blackwell.inference.plugins.module_utils._model import describe
from ansible_collections.blackwell.inference.plugins.module_utils._model_folder import read_folder


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
