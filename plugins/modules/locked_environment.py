#!/usr/bin/python
# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: locked_environment
short_description: A virtual environment that holds exactly what a lock names
description:
  - Makes a virtual environment from the wheels of a wheelhouse, offline, each verified by its hash.
  - An environment made from another lock is replaced as a whole. Nothing is ever installed into an existing one.
  - A run that was interrupted leaves nothing that a later run takes for done.
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
    description: Where the environment lies.
    type: path
    required: true
  lock:
    description: Text of the lock file.
    type: str
    required: true
  uv_lock:
    description: Text of the lock file that names uv, whose wheel must lie in O(wheels) too.
    type: str
    required: true
  wheels:
    description: The wheelhouse.
    type: path
    default: /var/lib/inference/wheels
  python:
    description:
      - The interpreter that the environment is based on.
      - Without it, the one on the search path whose version the lock names.
    type: path
"""

EXAMPLES = r"""
- name: Make the environment that pve_container runs in
  blackwell.inference.locked_environment:
    path: /opt/inference/pve
    lock: "{{ lookup('ansible.builtin.file', 'pve.lock') }}"
    uv_lock: "{{ lookup('ansible.builtin.file', 'uv.lock') }}"
"""

RETURN = r"""
path:
  description: Where the environment lies.
  returned: success
  type: str
  sample: /opt/inference/pve
lock_id:
  description: The lock's id.
  returned: success
  type: str
  sample: 4f1d2c3b4a596877
"""

import os
import shutil
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.blackwell.inference.plugins.module_utils import _environment, _lock, _uv
from ansible_collections.blackwell.inference.plugins.module_utils._refusal import Refusal, from_os_error


def reconcile(params: dict[str, Any], check_mode: bool, run: _uv.Run) -> dict[str, Any]:
    lock = _lock.parse(params["lock"])
    python = _uv.interpreter(lock, params["python"], shutil.which)
    version = _uv.require_version(python, lock, run)
    wanted = _environment.Wanted(params["path"].rstrip("/") or "/", lock, python, version)
    before = _environment.read_manifest(wanted.path)
    current = _environment.is_current(wanted)
    if not current:
        _environment.require_ours(wanted.path)
        uv = _uv.executable(params["uv_lock"], params["wheels"], check_mode)
        if not check_mode:
            os.umask(0o022)
            _environment.build(wanted, uv, params["wheels"], run)
    return {
        "changed": not current,
        "path": wanted.path,
        "lock_id": lock.id,
        "diff": {
            "before": _environment.describe(before),
            "after": _environment.describe(wanted.manifest()),
            "before_header": wanted.path,
            "after_header": wanted.path,
        },
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "lock": {"type": "str", "required": True, "no_log": False},
            "uv_lock": {"type": "str", "required": True, "no_log": False},
            "wheels": {"type": "path", "default": "/var/lib/inference/wheels"},
            "python": {"type": "path"},
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
        module.fail_json(**from_os_error(error, "The environment").result())
    module.exit_json(**result)


if __name__ == "__main__":
    main()
