#!/usr/bin/python
# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: stack_build
short_description: Build an immutable stack from a lock and a wheelhouse
description:
  - Builds the folder C(stacks/<lock id>) of a store, a virtual environment with a compile toolkit in C(cuda), offline from the
    store's wheels. Its files are hard links into the store's cache.
  - The manifest, written last, makes the folder a stack. A folder without a valid one is removed.
  - A finished stack is never changed. Building never touches the one in use.
author:
  - blackwell.inference contributors (@blackwell-inference)
extends_documentation_fragment: blackwell.inference.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
options:
  lock:
    description: Text of the lock file.
    type: str
    required: true
  uv_lock:
    description: Text of the lock file that names uv, whose wheel must lie in the store too.
    type: str
    required: true
  store:
    description: Root of the store. It must be one mount of one file system.
    type: path
    default: /var/lib/inference
  wheels:
    description: The wheelhouse. The store's own by default.
    type: path
  python:
    description: The interpreter to base the stack on. By default the one on the search path whose version the lock names.
    type: path
  wait:
    description: Seconds to wait for another build in the same store.
    type: int
    default: 3600
"""

EXAMPLES = r"""
- name: Build the stack
  blackwell.inference.stack_build:
    lock: "{{ lookup('ansible.builtin.file', 'locks/4f1d2c3b4a596877.lock.txt') }}"
    uv_lock: "{{ lookup('ansible.builtin.file', 'uv.lock') }}"
"""

RETURN = r"""
path:
  description: The stack's folder.
  returned: success
  type: str
  sample: /var/lib/inference/stacks/4f1d2c3b4a596877
lock_id:
  description: The lock's id.
  returned: success
  type: str
  sample: 4f1d2c3b4a596877
removed:
  description: Folders without a valid manifest that were removed, or would be in check mode.
  returned: success
  type: list
  elements: str
  sample: []
"""

import os
import shutil
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.blackwell.inference.plugins.module_utils import _durable, _lock, _stack, _uv
from ansible_collections.blackwell.inference.plugins.module_utils._refusal import Refusal, from_os_error


def reconcile(params: dict[str, Any], check_mode: bool, run: _uv.Run) -> dict[str, Any]:
    lock = _lock.parse(params["lock"])
    store = _stack.Store(params["store"], params["wheels"] or os.path.join(params["store"], "wheels"))
    path = store.stack(lock.id)
    removed = _stack.leftovers(store.stacks)
    problem = _stack.problem(path) if os.path.isdir(path) else "it is absent"
    if (problem or removed) and not check_mode:
        os.umask(0o022)
        os.makedirs(store.stacks, mode=0o755, exist_ok=True)
        with _durable.exclusive(os.path.join(store.stacks, ".lock"), timeout=params["wait"]):
            _stack.clean(store)
            # Another run may have built it while this one waited.
            if problem and (not os.path.isdir(path) or _stack.problem(path)):
                python = _uv.interpreter(lock, params["python"], shutil.which)
                _uv.require_version(python, lock, run)
                _stack.build(store, lock, _uv.executable(params["uv_lock"], store.wheels, False), python, run)
    return {
        "changed": bool(problem or removed),
        "path": path,
        "lock_id": lock.id,
        "removed": removed,
        "diff": {
            "before": "".join(f"{store.stack(name)} unfinished\n" for name in removed),
            "after": f"{path} of {len(lock.requirements)} distributions\n" if problem else "",
        },
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "lock": {"type": "str", "required": True, "no_log": False},
            "uv_lock": {"type": "str", "required": True, "no_log": False},
            "store": {"type": "path", "default": "/var/lib/inference"},
            "wheels": {"type": "path"},
            "python": {"type": "path"},
            "wait": {"type": "int", "default": 3600},
        },
        supports_check_mode=True,
    )
    try:
        result = reconcile(module.params, module.check_mode, _uv.runner())
    except Refusal as refusal:
        module.fail_json(**refusal.result())
    except _lock.LockError as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        module.fail_json(**from_os_error(error, "The stack").result())
    module.exit_json(**result)


if __name__ == "__main__":
    main()
