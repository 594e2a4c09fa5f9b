#!/usr/bin/python
# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: wheelhouse
short_description: Every wheel and driver file once per node, verified
description:
  - Fetches the files of locks that a node does not have yet, several at a time, and verifies each by its sha256.
  - What was verified once is remembered with its size and time, so that a later run reads no file again.
  - An interrupted download is continued by the next run.
  - Removes nothing that is not wanted any more.
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
    description: The folder.
    type: path
    default: /var/lib/inference/wheels
  lock:
    description: Text of a lock file.
    type: str
  locks:
    description: Texts of more lock files.
    type: list
    elements: str
    default: []
  files:
    description: Single files of an index.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: Name of the project in the index.
        type: str
        required: true
      filename:
        description: Name of the file.
        type: str
        required: true
      sha256:
        description: Its hash; the file is looked up in the index by this.
        type: str
        required: true
      size:
        description: Its size in bytes.
        type: int
  extra:
    description: Files that lie in no index, such as a driver's installer.
    type: list
    elements: dict
    default: []
    suboptions:
      filename:
        description: Name that the file gets.
        type: str
        required: true
      url:
        description: Its address, http or https.
        type: str
        required: true
      sha256:
        description: Its hash.
        type: str
        required: true
      size:
        description: Its size in bytes. Without it, an interrupted download starts again.
        type: int
  index_url:
    description: Address of the package index, such that the project's page is below it. It must answer in JSON (PEP 691).
    type: str
  threads:
    description: Downloads at the same time.
    type: int
    default: 4
  retries:
    description: Further attempts after a failure that may pass.
    type: int
    default: 3
  timeout:
    description: Seconds without a byte after which a server counts as stalled.
    type: float
    default: 30
"""

EXAMPLES = r"""
- name: Fetch the wheels of a stack
  blackwell.inference.wheelhouse:
    lock: "{{ lookup('ansible.builtin.file', 'locks/4f1d2c3b4a596877.lock.txt') }}"
    index_url: https://index.example.com/simple/

- name: Fetch the driver's installer
  blackwell.inference.wheelhouse:
    extra:
      - filename: NVIDIA-Linux-x86_64-580.126.09.run
        url: https://mirror.example.com/NVIDIA-Linux-x86_64-580.126.09.run
        sha256: 0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0
"""

RETURN = r"""
path:
  description: The folder.
  returned: success
  type: str
  sample: /var/lib/inference/wheels
fetched:
  description: Names of the files that were fetched, or that would be in check mode.
  returned: success
  type: list
  elements: str
  sample: [torch-2.14.1-cp313-cp313-manylinux_2_28_x86_64.whl]
bytes:
  description: Their size together, as far as it is known.
  returned: success
  type: int
  sample: 8123
present:
  description: How many of the wanted files were already there.
  returned: success
  type: int
  sample: 203
msg:
  description: The same in one sentence.
  returned: success
  type: str
  sample: fetched 1 files, 8123 bytes
"""

import contextlib
import os
import time
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.blackwell.inference.plugins.module_utils import _durable, _fetch, _wheelhouse
from ansible_collections.blackwell.inference.plugins.module_utils._lock import LockError
from ansible_collections.blackwell.inference.plugins.module_utils._refusal import Refusal, from_os_error

FILE = {
    "filename": {"type": "str", "required": True},
    "sha256": {"type": "str", "required": True},
    "size": {"type": "int"},
}


def reconcile(params: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    folder: str = params["path"]
    locks = ([params["lock"]] if params["lock"] else []) + params["locks"]
    wanted = _wheelhouse.wanted_files(locks, params["files"], params["extra"])
    with contextlib.ExitStack() as held:
        if not check_mode:
            os.makedirs(folder, mode=0o755, exist_ok=True)
            held.enter_context(_durable.exclusive(os.path.join(folder, ".lock"), timeout=3600))
        found = _wheelhouse.inspect(folder, wanted)
        needed = found.bytes_needed(lambda sha256: _wheelhouse.partial_size(folder, sha256))
        if found.absent:
            _durable.require_space(folder, needed + _wheelhouse.SPARE_BYTES, _durable.free_bytes)
        if not check_mode:
            _wheelhouse.fill(
                folder,
                found,
                lambda: _fetch.Fetcher(
                    folder,
                    _fetch.opener(params["timeout"]),
                    time.sleep,
                    index_url=params["index_url"],
                    retries=params["retries"],
                    threads=params["threads"],
                ),
            )
    return _wheelhouse.result(folder, found, check_mode)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "default": "/var/lib/inference/wheels"},
            "lock": {"type": "str", "no_log": False},
            "locks": {"type": "list", "elements": "str", "default": [], "no_log": False},
            "files": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {"name": {"type": "str", "required": True}, **FILE},
            },
            "extra": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {"url": {"type": "str", "required": True}, **FILE},
            },
            "index_url": {"type": "str"},
            "threads": {"type": "int", "default": 4},
            "retries": {"type": "int", "default": 3},
            "timeout": {"type": "float", "default": 30},
        },
        supports_check_mode=True,
    )
    try:
        result = reconcile(module.params, module.check_mode)
    except Refusal as refusal:
        module.fail_json(**refusal.result())
    except LockError as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        module.fail_json(**from_os_error(error, "The wheelhouse").result())
    module.exit_json(**result)


if __name__ == "__main__":
    main()
