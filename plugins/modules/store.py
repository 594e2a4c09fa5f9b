#!/usr/bin/python
# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: store
short_description: Folders of the node's store for wheels, stacks and models
description:
  - Creates C(wheels), C(cache), C(stacks) and C(models) under one root on a Proxmox node, with the owners that let the node
    fetch, the build container build, and nobody else write.
  - Refuses a store whose folders lie on different file systems, since a new stack is made of hard links into the cache.
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
    description: Root of the store.
    type: path
    default: /var/lib/inference
  container_root:
    description: The node's user and group id of root in the unprivileged containers.
    type: int
    default: 100000
"""

EXAMPLES = r"""
- name: Prepare the store
  blackwell.inference.store:
"""

RETURN = r"""
path:
  description: Root of the store.
  returned: always
  type: str
  sample: /var/lib/inference
free_bytes:
  description: Free space of the file system, null in check mode before the folder exists.
  returned: always
  type: int
  sample: 900000000000
"""

import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.blackwell.inference.plugins.module_utils._refusal import Refusal, from_os_error


def wanted_folders(root: str, container_root: int) -> dict[str, tuple[int, int, int]]:
    """Return each folder's owner, group and mode."""
    return {
        root: (0, 0, 0o755),
        os.path.join(root, "wheels"): (0, 0, 0o755),
        os.path.join(root, "models"): (0, 0, 0o755),
        os.path.join(root, "cache"): (container_root, container_root, 0o755),
        os.path.join(root, "stacks"): (container_root, container_root, 0o755),
    }


def found_folder(path: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    if not os.path.isdir(path):
        raise Refusal(f"The path {path}", "not a folder", "a folder of the store", "Move it away")
    return status.st_uid, status.st_gid, status.st_mode & 0o7777


def make(path: str, owner: int, group: int, mode: int) -> None:
    os.makedirs(path, exist_ok=True)
    os.chown(path, owner, group)
    os.chmod(path, mode)


def shown(folders: dict[str, tuple[int, int, int] | None]) -> str:
    return "".join(f"{path} {state[0]}:{state[1]} {state[2]:04o}\n" for path, state in folders.items() if state)


def reconcile(root: str, container_root: int, check_mode: bool) -> dict[str, Any]:
    wanted = wanted_folders(root, container_root)
    found = {path: found_folder(path) for path in wanted}
    changed = [path for path, state in wanted.items() if found[path] != state]
    if not check_mode:
        for path in changed:
            make(path, *wanted[path])
    devices = {os.stat(path).st_dev: path for path in wanted if os.path.isdir(path)}
    if len(devices) > 1:
        raise Refusal(
            f"The store {root}",
            f"{', '.join(sorted(devices.values()))} on different file systems",
            "all of it on one, since a stack is made of hard links",
            f"Mount one file system at {root}",
        )
    statistics = os.statvfs(root) if os.path.isdir(root) else None
    return {
        "changed": bool(changed),
        "path": root,
        "free_bytes": statistics.f_bavail * statistics.f_frsize if statistics else None,
        "diff": {"before": shown(found), "after": shown({**wanted})},
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "default": "/var/lib/inference"},
            "container_root": {"type": "int", "default": 100000},
        },
        supports_check_mode=True,
    )
    try:
        result = reconcile(module.params["path"], module.params["container_root"], module.check_mode)
    except Refusal as refusal:
        module.fail_json(**refusal.result())
    except OSError as error:
        module.fail_json(**from_os_error(error, f"The store {module.params['path']}").result())
    module.exit_json(**result)


if __name__ == "__main__":
    main()
