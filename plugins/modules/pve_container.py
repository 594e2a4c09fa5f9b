#!/usr/bin/python
# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: pve_container
short_description: Bring one LXC container of a Proxmox VE node to its wanted state
description:
  - Runs on the node as root, through proxmoxer's local backend, so it needs no credentials and has the rights that an
    API token never has (device passthrough and bind mounts). With O(api) it runs anywhere and asks the node by HTTPS.
  - Compares what is there with what is wanted, writes only the difference in one call, waits for the node's tasks, and
    reads back. An option that is not given is not managed.
  - A container without the tag C(blackwell-inference) is never touched unless O(adopt=true).
  - What a creation left that died with its node, locked for ever, is removed and created anew.
author:
  - blackwell.inference contributors (@blackwell-inference)
extends_documentation_fragment:
  - blackwell.inference.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
requirements:
  - proxmoxer 2.3.0
  - requests, for O(api)
options:
  vmid:
    description: Number of the container.
    type: int
    required: true
  api:
    description:
      - The node's API by HTTPS, instead of the node's own C(pvesh). Then O(gpus) are minor numbers, since the API does not tell
        the devices of a node, directories of O(mounts) are not looked for, and a container that a dead task left locked must be
        unlocked by hand.
      - Only V(root@pam) with its password may give a container devices, bind mounts and most features. Whatever the
        privileges of a token or of another user, Proxmox VE refuses that, and so does this module before it tries.
    type: dict
    suboptions:
      host:
        description: Address of any node of the cluster, as its certificate names it.
        type: str
        required: true
      port:
        description: Port of the API.
        type: int
        default: 8006
      node:
        description: Name of the node that has the container.
        type: str
        required: true
      user:
        description: User with its realm.
        type: str
        default: root@pam
      password:
        description: Password of the user. A ticket is made from it.
        type: str
      token_id:
        description: Name of an API token of the user, in place of a password.
        type: str
      token_secret:
        description: Secret of the token.
        type: str
      ca_file:
        description: Certificate that the node's one must be signed by, such as the cluster's C(/etc/pve/pve-root-ca.pem). Without it
          those that the machine trusts.
        type: path
  state:
    description:
      - V(started) and V(stopped) also see to the power state, V(present) leaves it alone.
      - V(absent) destroys the container, with O(confirm_destroy).
    type: str
    choices: [started, stopped, present, absent]
    default: started
  hostname:
    description: Name of the container. Needed to create it.
    type: str
  template:
    description: Volume of the template, such as C(local:vztmpl/debian-13-standard_13.1-2_amd64.tar.zst). Needed to create it.
    type: str
  rootfs:
    description: Root file system. Needed to create the container. Of an existing one only the size is managed, and it only grows.
    type: dict
    suboptions:
      storage:
        description: Storage of the node.
        type: str
        required: true
      size_gib:
        description: Size in GiB.
        type: int
        required: true
  cores:
    description: Number of cores.
    type: int
  memory_mib:
    description: Memory in MiB.
    type: int
  swap_mib:
    description: Swap in MiB.
    type: int
  network:
    description: The container's first network interface (C(net0)). What is not named here, such as a firewall flag, stays.
    type: dict
    suboptions:
      name:
        description: Name inside the container.
        type: str
        default: eth0
      bridge:
        description: Bridge of the node.
        type: str
        required: true
      address:
        description: IPv4 address with prefix length, or V(dhcp).
        type: str
        required: true
      gateway:
        description: IPv4 address of the gateway.
        type: str
      hwaddr:
        description: MAC address. Proxmox VE chooses one if it is not given.
        type: str
  gpus:
    description:
      - V(all), V(none), or minor numbers such as V(0) and UUIDs. The container gets C(/dev/nvidiaN), C(/dev/nvidiactl), C(/dev/nvidia-uvm)
        and, where the node has them, C(/dev/nvidia-uvm-tools) and C(/dev/nvidia-modeset), each with mode 0666.
      - Other devices are left alone. GPUs that another container of the node has are refused.
    type: list
    elements: str
  mounts:
    description: All bind mounts of the container. Others are removed. Volumes of a storage are left alone.
    type: list
    elements: dict
    suboptions:
      source:
        description: Directory of the node.
        type: path
        required: true
      target:
        description: Path in the container.
        type: path
        required: true
      read_only:
        description: Whether the container may only read.
        type: bool
        default: true
  features:
    description: Features of the container. Those not named here stay.
    type: dict
    suboptions:
      nesting:
        description: Lets systemd's sandboxing work under Proxmox VE's AppArmor profile.
        type: bool
      keyctl:
        description: Lets the container use the kernel's key management.
        type: bool
      fuse:
        description: Lets the container mount FUSE file systems.
        type: bool
  unprivileged:
    description: Whether the container's ids are mapped. It cannot be changed later.
    type: bool
    default: true
  onboot:
    description: Whether the node starts the container when it boots.
    type: bool
  startup:
    description: Order and delays at the node's boot.
    type: dict
    suboptions:
      order:
        description: Place in the order.
        type: int
      up:
        description: Seconds to wait before the next one starts.
        type: int
      down:
        description: Seconds to wait for it to shut down.
        type: int
  tags:
    description:
      - All tags. C(blackwell-inference) is added. Without this option other tags stay.
      - With O(state=absent), the tags without which the container is something else and is not destroyed.
    type: list
    elements: str
  description:
    description: Text shown in the notes of the container.
    type: str
  restart:
    description: Whether a running container may be restarted for values that wait for it.
    type: bool
    default: false
  adopt:
    description: Whether a container that does not have our tag may be taken over.
    type: bool
    default: false
  confirm_destroy:
    description: Must equal O(vmid) for O(state=absent).
    type: int
  timeout:
    description: Seconds to wait for one call, one task or one lock.
    type: int
    default: 300
"""

EXAMPLES = r"""
- name: Run a container with all GPUs of the node
  blackwell.inference.pve_container:
    vmid: 200
    hostname: inference-1
    template: local:vztmpl/debian-13-standard_13.1-2_amd64.tar.zst
    rootfs:
      storage: local
      size_gib: 16
    cores: 32
    memory_mib: 262144
    network:
      bridge: vmbr0
      address: 10.99.0.200/24
      gateway: 10.99.0.1
    gpus: [all]
    mounts:
      - source: /var/lib/inference/models
        target: /var/lib/inference/models
    features:
      nesting: true
    onboot: true
  vars:
    ansible_python_interpreter: /opt/inference/pve/bin/python

- name: Give an existing container more memory, from the controller
  blackwell.inference.pve_container:
    api:
      host: kpro6.example.com
      node: kpro6
      user: automation@pve
      token_id: inference
      token_secret: "{{ vault_pve_token }}"
      ca_file: /etc/ssl/kpro6.pem
    vmid: 200
    memory_mib: 524288
  delegate_to: localhost

- name: Destroy it
  blackwell.inference.pve_container:
    vmid: 200
    state: absent
    confirm_destroy: 200
  vars:
    ansible_python_interpreter: /opt/inference/pve/bin/python
"""

RETURN = r"""
before:
  description: The configuration as it was, with one spelling for equal values, and C(status).
  returned: success
  type: dict
  sample: {status: absent}
after:
  description: The configuration as it is, or as check mode predicts it.
  returned: success
  type: dict
  sample: {status: running, cores: "32", dev0: "/dev/nvidia0,mode=0666"}
pending:
  description: New values that wait for a restart, by key. A key that will go has none.
  returned: success
  type: dict
  sample: {features: nesting=1}
status:
  description: Power state as it is now, or V(absent).
  returned: success
  type: str
  sample: running
tasks:
  description: The node's tasks that this call started and saw end.
  returned: always
  type: list
  elements: dict
  sample: [{upid: "UPID:kpro6:0000C350:00016D33:692C5B2F:vzcreate:200:root@pam:", type: vzcreate, exitstatus: OK}]
"""

import time
import traceback
from typing import Any

from ansible.module_utils.basic import AnsibleModule, missing_required_lib
from ansible_collections.blackwell.inference.plugins.module_utils._pve_api import Api, ApiError
from ansible_collections.blackwell.inference.plugins.module_utils._pve_client import beyond_rights, by_https, on_the_node
from ansible_collections.blackwell.inference.plugins.module_utils._pve_container import Container
from ansible_collections.blackwell.inference.plugins.module_utils._refusal import Refusal

PROXMOXER_ERROR: str | None = None
try:
    from proxmoxer import ProxmoxAPI
except ImportError:
    ProxmoxAPI = None
    PROXMOXER_ERROR = traceback.format_exc()

NETWORK = {
    "name": {"type": "str", "default": "eth0"},
    "bridge": {"type": "str", "required": True},
    "address": {"type": "str", "required": True},
    "gateway": {"type": "str"},
    "hwaddr": {"type": "str"},
}
MOUNT = {
    "source": {"type": "path", "required": True},
    "target": {"type": "path", "required": True},
    "read_only": {"type": "bool", "default": True},
}
ROOTFS = {"storage": {"type": "str", "required": True}, "size_gib": {"type": "int", "required": True}}

API = {
    "host": {"type": "str", "required": True},
    "port": {"type": "int", "default": 8006},
    "node": {"type": "str", "required": True},
    "user": {"type": "str", "default": "root@pam"},
    "password": {"type": "str", "no_log": True},
    "token_id": {"type": "str"},
    "token_secret": {"type": "str", "no_log": True},
    "ca_file": {"type": "path"},
}
API_RULES: dict[str, Any] = {
    "required_one_of": [["password", "token_id"]],
    "mutually_exclusive": [["password", "token_id"]],
    "required_together": [["token_id", "token_secret"]],
}

ARGUMENTS: dict[str, Any] = {
    "api": {"type": "dict", "options": API, **API_RULES},
    "vmid": {"type": "int", "required": True},
    "state": {"type": "str", "choices": ["started", "stopped", "present", "absent"], "default": "started"},
    "hostname": {"type": "str"},
    "template": {"type": "str"},
    "rootfs": {"type": "dict", "options": ROOTFS},
    "cores": {"type": "int"},
    "memory_mib": {"type": "int"},
    "swap_mib": {"type": "int"},
    "network": {"type": "dict", "options": NETWORK},
    "gpus": {"type": "list", "elements": "str"},
    "mounts": {"type": "list", "elements": "dict", "options": MOUNT},
    "features": {"type": "dict", "options": {name: {"type": "bool"} for name in ("nesting", "keyctl", "fuse")}},
    "unprivileged": {"type": "bool", "default": True},
    "onboot": {"type": "bool"},
    "startup": {"type": "dict", "options": {name: {"type": "int"} for name in ("order", "up", "down")}},
    "tags": {"type": "list", "elements": "str"},
    "description": {"type": "str"},
    "restart": {"type": "bool", "default": False},
    "adopt": {"type": "bool", "default": False},
    "confirm_destroy": {"type": "int"},
    "timeout": {"type": "int", "default": 300},
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    if ProxmoxAPI is None:
        module.fail_json(msg=missing_required_lib("proxmoxer"), exception=PROXMOXER_ERROR)
    timeout, credentials = module.params["timeout"], module.params["api"]
    tasks: list[dict[str, str]] = []
    try:
        if credentials is None:
            client, node = on_the_node(ProxmoxAPI, timeout)
        else:
            beyond_rights(credentials, module.params)
            client, node = by_https(ProxmoxAPI, credentials, timeout)
        api = Api(client, node.name, timeout, time.monotonic, time.sleep, tasks)
        container = Container(api, node, module.params, module.check_mode)
        result = container.reconcile()
    except Refusal as exc:
        module.fail_json(**exc.result(), tasks=tasks)
    except ApiError as exc:
        module.fail_json(msg=str(exc), tasks=tasks)
    for warning in container.warnings:
        module.warn(warning)
    module.exit_json(**result, diff={"before": result["before"], "after": result["after"]})


if __name__ == "__main__":
    main()
