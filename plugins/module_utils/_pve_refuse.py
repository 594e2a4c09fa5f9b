# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is PRIVATE to the collection.

"""What is never done to a container, each with a message. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.blackwell.inference.plugins.module_utils import _pve_config as pve
from ansible_collections.blackwell.inference.plugins.module_utils._pve_config import Change, Config
from ansible_collections.blackwell.inference.plugins.module_utils._refusal import Refusal


def is_there(vmid: int, node: str, resources: list[dict[str, Any]]) -> bool:
    """Whether the number is a container of this node. Anything else that has it is refused."""
    for entry in resources:
        if int(entry["vmid"]) != vmid:
            continue
        if entry.get("type") == "lxc" and entry.get("node") == node:
            return True
        kind = "container" if entry.get("type") == "lxc" else "virtual machine"
        raise Refusal(
            f"Number {vmid} is taken",
            f"{kind} {entry.get('name', '?')} on node {entry.get('node', '?')}",
            f"no guest of that number, or a container on node {node}",
            "Choose another vmid, or run this on that node",
        )
    return False


def not_ours(params: Mapping[str, Any], found: Config) -> None:
    if pve.TAG in pve.split_tags(found.get("tags", "")):
        return
    vmid = params["vmid"]
    if not params["adopt"]:
        raise Refusal(
            f"Container {vmid} is not one of ours",
            f"hostname {found.get('hostname', '?')}, tags {found.get('tags') or 'none'}",
            f"tag {pve.TAG}, or adopt: true",
            "Choose another vmid, or set adopt (pve_container_adopt) to take it over",
        )
    binds = pve.foreign_binds(params, found)
    if binds and params["state"] != "absent":
        raise Refusal(
            f"Container {vmid} cannot be adopted as it is",
            "; ".join(f"{key}: {text}" for key, text in binds.items()),
            "every bind mount declared in mounts, because others would be removed",
            "Add them to mounts (pve_container_mounts_extra), or remove them by hand",
        )


def not_creatable(params: Mapping[str, Any]) -> None:
    missing = [name for name in ("template", "rootfs", "hostname") if not params.get(name)]
    if missing:
        raise Refusal(
            f"Container {params['vmid']} cannot be created",
            f"no {', '.join(missing)}",
            "template, rootfs and hostname for a container that does not exist yet",
            "Give them, or correct vmid",
        )


def shared_gpus(vmid: int, devices: list[str], others: Mapping[int, tuple[Config, list[str]]]) -> None:
    holders = pve.gpu_holders(devices, others)
    if holders:
        raise Refusal(
            f"Container {vmid} cannot have these GPUs",
            "; ".join(f"container {other} has {', '.join(paths)}" for other, paths in sorted(holders.items())),
            "GPUs that no other container of the node has",
            "Choose other gpus, or take them from that container first",
        )


def unusable_paths(params: Mapping[str, Any]) -> None:
    """A comma or a line feed would end the property in Proxmox VE's configuration."""
    for mount in params.get("mounts") or []:
        for path in (mount["source"], mount["target"]):
            if not path.startswith("/") or set(path) & set(",\n"):
                raise Refusal(
                    f"A mount of container {params['vmid']} has an unusable path",
                    repr(path),
                    "an absolute path without commas and line feeds",
                    "Correct mounts",
                )


def taken_targets(params: Mapping[str, Any], found: Config) -> None:
    """A volume at the target of a wanted bind mount holds data: it is never replaced."""
    targets = {mount["target"]: mount["source"] for mount in params.get("mounts") or []}
    for key, value in found.items():
        properties = pve.parse_properties(key, value) if pve.kind_of(key) == "mp" else {}
        if properties.get("mp") in targets and not properties.get("volume", "").startswith("/"):
            raise Refusal(
                f"Mount target {properties['mp']} of container {params['vmid']} is taken",
                f"{key}: {value}",
                f"a bind mount of {targets[properties['mp']]}",
                "Choose another target, or detach that volume by hand",
            )


def fixed_properties(params: Mapping[str, Any], found: Config) -> None:
    """What cannot be changed in an existing container."""
    kind = found.get("unprivileged", "0")
    if (kind == "1") != params["unprivileged"]:
        raise Refusal(
            f"Container {params['vmid']} cannot change its kind",
            f"unprivileged: {kind}",
            f"unprivileged: {int(params['unprivileged'])}",
            "Create it anew, or correct unprivileged (pve_container_unprivileged)",
        )
    rootfs, size = params.get("rootfs"), pve.size_gib(found.get("rootfs", ""))
    if rootfs and size is not None and size > rootfs["size_gib"]:
        raise Refusal(
            f"The root file system of container {params['vmid']} cannot shrink",
            f"{size:g} GiB",
            f"{rootfs['size_gib']} GiB",
            "Correct the size in rootfs (pve_container_rootfs_gib)",
        )


def unconfirmed(params: Mapping[str, Any]) -> None:
    if params["confirm_destroy"] != params["vmid"]:
        raise Refusal(
            f"Container {params['vmid']} is not destroyed without confirmation",
            f"confirm_destroy: {params['confirm_destroy']}",
            f"confirm_destroy: {params['vmid']}",
            "Set it if its data may really go",
        )


def another_kind(params: Mapping[str, Any], found: Config) -> None:
    """Tags say what a container is for: one without the tags of what is to be destroyed is something else."""
    missing = sorted({tag.lower() for tag in params.get("tags") or []} - set(pve.split_tags(found.get("tags", ""))))
    if missing:
        raise Refusal(
            f"Container {params['vmid']} is not what is to be destroyed",
            f"hostname {found.get('hostname', '?')}, tags {found.get('tags') or 'none'}",
            f"the tag {', '.join(missing)}",
            "Choose another vmid (pve_container_build_vmid), or correct tags",
        )


def not_reached(params: Mapping[str, Any], found: Config, status: str, left: Change, power: list[str]) -> None:
    """Nothing is reported as done that was not read back."""
    if not left and not power:
        return
    rest = [f"{key}: {found.get(key, 'absent')} instead of {value}" for key, value in left.set.items()]
    rest += [f"{key} still there" for key in left.delete] + [f"status {status}" for _step in power[:1]]
    raise Refusal(
        f"Container {params['vmid']} accepted the change and is not in its wanted state",
        "; ".join(rest),
        f"state {params['state']} with all options as given",
        "Look at the node's task log, and at other tools that change this container",
    )
