#!/usr/bin/python
# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: stack_verify
short_description: Prove that a stack runs on the GPUs of this host
description:
  - Compares a stack with its lock, looks into every binary for code of each GPU's compute capability, and lets the installed
    engine import and list its flags as the service user.
  - Writes a proof for each GPU when everything is right. Services start only with one. A valid proof is not repeated.
  - Creates the service user when it is absent.
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
    description: The stack's folder.
    type: path
    required: true
  gpus:
    description:
      - The GPUs, as C(ansible_facts.gpu.devices) lists them. Only C(uuid) and C(compute_capability) are read, so that the
        list can be given as it is.
    type: list
    elements: dict
    required: true
  driver_version:
    description: Version of the loaded driver.
    type: str
    required: true
  mode:
    description: V(static) looks at files and imports, without using a GPU.
    type: str
    choices: [static]
    default: static
  exempt:
    description: Binaries that hold no code for these GPUs by design.
    type: list
    elements: dict
    default: []
    suboptions:
      file:
        description: Pattern of the path below C(site-packages).
        type: str
        required: true
      because:
        description: Why it does not matter.
        type: str
        required: true
      source:
        description: Where that is known from.
        type: str
  flags:
    description: Flags that the installed engine must know.
    type: list
    elements: str
    default: []
  state:
    description: Folder of the proofs.
    type: path
    default: /var/lib/inference-state
  user:
    description: The service user.
    type: str
    default: inference
  timeout:
    description: Seconds for the engine to import and list its flags.
    type: float
    default: 300
"""

EXAMPLES = r"""
- name: Prove the stack
  blackwell.inference.stack_verify:
    path: /var/lib/inference/stacks/4f1d2c3b4a596877
    gpus: "{{ ansible_facts['gpu']['devices'] }}"
    driver_version: "{{ ansible_facts['gpu']['driver']['version'] }}"
    flags: [--model-path, --attention-backend]
"""

RETURN = r"""
ok:
  description: Whether the stack is proven on every GPU. Null in check mode while the stack does not exist.
  returned: always
  type: bool
  sample: true
checks:
  description: Every check, with what was found and wanted and the remedy of a failed one.
  returned: always
  type: list
  elements: dict
  sample:
    - name: gpu_code 12.0
      ok: true
      found: 14 objects that run on 12.0
      wanted: code for 12.0 in every unit of every object that is not exempt
      remedy: ""
failures:
  description: The failed checks.
  returned: always
  type: list
  elements: dict
  sample: []
proven:
  description: UUIDs of the GPUs that a proof was written for in this run, or would be in check mode.
  returned: success
  type: list
  elements: str
  sample: [GPU-9e3c1f0a-0000-4000-8000-000000000000]
"""

import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.blackwell.inference.plugins.module_utils import _account, _manifest, _proof, _switch, _verify
from ansible_collections.blackwell.inference.plugins.module_utils._refusal import Refusal, from_os_error


def subjects(params: dict[str, Any], lock_id: str, manifest: str) -> dict[str, _proof.Subject]:
    """One subject for each proof's path."""
    demands = _proof.demands(params["flags"], params["exempt"])
    found = {}
    for gpu in params["gpus"]:
        uuid, capability = _proof.identity(gpu)
        path = _proof.proof_path(params["state"], lock_id, uuid, params["driver_version"])
        found[path] = _proof.Subject(
            lock_id,
            uuid,
            capability,
            params["driver_version"],
            params["mode"],
            manifest,
            demands,
        )
    return found


def reconcile(module: AnsibleModule) -> dict[str, Any]:
    params = module.params
    path: str = params["path"].rstrip("/")
    is_stack = _manifest.read(path) is not None
    if not module.check_mode:
        _switch.require_stack(path)
    wanted = subjects(params, os.path.basename(path), _manifest.digest(path) if is_stack else "")
    proofs = {proof: _proof.read_proof(proof, subject) for proof, subject in wanted.items()}
    open_ones = {proof: subject for proof, subject in wanted.items() if proofs[proof] is None}
    known_user = _account.exists(params["user"])
    if not known_user and not module.check_mode:
        _account.create(params["user"], module.run_command)
    result: dict[str, Any] = {
        "changed": bool(open_ones) or not known_user,
        "ok": None if open_ones else True,
        "checks": [check for checks in list(proofs.values())[:1] for check in checks or []],
        "failures": [],
        "proven": [subject.uuid for subject in open_ones.values()],
        "diff": {"before": "", "after": "".join(f"{proof}\n" for proof in open_ones)},
    }
    # In check mode on a new container neither the stack nor its user exists yet: there is nothing to look at.
    if open_ones and is_stack and _account.exists(params["user"]):
        output = _proof.engine_help(path, params["user"], params["timeout"])
        evidence = _proof.gather(path, params["exempt"], output)
        capabilities = [subject.capability for subject in open_ones.values()]
        result["checks"] = _verify.run_checks(evidence, capabilities, params["flags"])
        result["failures"] = [check for check in result["checks"] if not check["ok"]]
        result["ok"] = not result["failures"]
        if result["ok"] and not module.check_mode:
            for proof, subject in open_ones.items():
                _proof.write_proof(proof, subject, result["checks"])
    return result


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "gpus": {"type": "list", "elements": "dict", "required": True},
            "driver_version": {"type": "str", "required": True},
            "mode": {"type": "str", "choices": ["static"], "default": "static"},
            "exempt": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "file": {"type": "str", "required": True},
                    "because": {"type": "str", "required": True},
                    "source": {"type": "str"},
                },
            },
            "flags": {"type": "list", "elements": "str", "default": []},
            "state": {"type": "path", "default": "/var/lib/inference-state"},
            "user": {"type": "str", "default": "inference"},
            "timeout": {"type": "float", "default": 300},
        },
        supports_check_mode=True,
    )
    try:
        result = reconcile(module)
    except Refusal as refusal:
        module.fail_json(ok=False, checks=[], failures=[], **refusal.result())
    except OSError as error:
        module.fail_json(ok=False, checks=[], failures=[], **from_os_error(error, "The proof").result())
    if result["failures"]:
        module.fail_json(msg=_verify.message(module.params["path"], result["failures"]), **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
