# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is PRIVATE to the collection.

"""A Proxmox VE container's configuration as data: parse, compare, and what is wanted of it. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ansible_collections.blackwell.inference.plugins.module_utils._refusal import Refusal

TAG = "blackwell-inference"

# The property that may stand without its name, by kind of key.
DEFAULT_PROPERTY = {"dev": "path", "mp": "volume", "rootfs": "volume", "startup": "order", "net": "", "features": ""}

# Absent and "0" mean the same for these.
FLAGS = ("ro", "nesting", "keyctl", "fuse")

# Without the first two there is no CUDA. The others are given when the node has them.
CONTROL_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm")
OPTIONAL_NODES = ("/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")

GPU_NODE = re.compile(r"/dev/nvidia(\d+)\b")

Config = dict[str, str]


class MissingDevices(Refusal):
    """The node has not the device nodes of the wanted GPUs."""


class Change(NamedTuple):
    set: Config
    delete: list[str]

    def __bool__(self) -> bool:
        return bool(self.set or self.delete)


def kind_of(key: str) -> str:
    """`dev` for `dev12`, `rootfs` for `rootfs`."""
    match = re.fullmatch(r"(dev|mp|net)\d+", key)
    return match.group(1) if match else key


def parse_properties(key: str, value: str) -> dict[str, str]:
    """`/dev/nvidia0,mode=0666` as {path: /dev/nvidia0, mode: 0666}."""
    properties: dict[str, str] = {}
    for part in filter(None, value.split(",")):
        name, equals, rest = part.partition("=")
        if equals:
            properties[name] = rest
        else:
            properties[DEFAULT_PROPERTY.get(kind_of(key), "")] = part
    return properties


def render_properties(key: str, properties: Mapping[str, str]) -> str:
    # "order=1" is easier to read than "1", which means the same.
    default = DEFAULT_PROPERTY.get(kind_of(key), "") if key != "startup" else None
    bare = [properties[default]] if default is not None and default in properties else []
    return ",".join(bare + [f"{name}={value}" for name, value in properties.items() if name != default])


def split_tags(text: str) -> list[str]:
    # Proxmox VE ignores the case of tags unless told otherwise, and stores them in lower case.
    return sorted(set(filter(None, re.split(r"[;, ]+", text.lower()))))


def canonical(key: str, value: str) -> str:
    """One spelling for all that Proxmox VE reads as the same value."""
    kind = kind_of(key)
    if kind in DEFAULT_PROPERTY:
        properties = parse_properties(key, value)
        kept = {name: properties[name] for name in sorted(properties)}
        return render_properties(key, {n: v for n, v in kept.items() if not (n in FLAGS and v == "0")})
    if key == "tags":
        return ";".join(split_tags(value))
    return value.strip() if key == "description" else value


def parse_config(answer: Mapping[str, Any]) -> tuple[Config, str, list[str]]:
    """The API's configuration as ({key: text}, digest, raw `lxc.` values)."""
    raw = [str(entry[1]) for entry in answer.get("lxc") or []]
    plain = {k: str(v) for k, v in answer.items() if k not in ("digest", "lxc") and not isinstance(v, (list, dict))}
    return plain, str(answer.get("digest", "")), raw


def parse_pending(answer: Iterable[Mapping[str, Any]]) -> dict[str, str | None]:
    """What waits for a restart: the new value by key, None for a key that will go."""
    pending: dict[str, str | None] = {}
    for item in answer:
        if item.get("delete"):
            pending[str(item["key"])] = None
        elif "pending" in item:
            pending[str(item["key"])] = str(item["pending"])
    return pending


def size_gib(rootfs: str) -> float | None:
    """Size of `local:200/vm-200-disk-0.raw,size=8G` in GiB."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?)", parse_properties("rootfs", rootfs).get("size", ""))
    if not match:
        return None
    return float(match.group(1)) * {"": 2**-30, "K": 2**-20, "M": 2**-10, "G": 1, "T": 2**10}[match.group(2)]


def gpu_paths(gpus: list[str], node_devices: Iterable[str] | None, minors: Mapping[str, int], found: Config) -> list[str]:
    """The device nodes a container must get.

    node_devices: the node's character devices, None where they cannot be asked for; minors: minor number by GPU UUID.
    """
    if gpus == ["none"]:
        return []
    there = None if node_devices is None else set(node_devices)
    if gpus == ["all"]:
        if there is None:
            raise Refusal("Option gpus", "all, by the API", "minor numbers: the API does not tell a node's devices", "Name them")
        cards = sorted((p for p in there if GPU_NODE.fullmatch(p)), key=lambda p: int(p[len("/dev/nvidia") :]))
        cards = cards or ["/dev/nvidia0"]
    else:
        cards = [f"/dev/nvidia{minor}" for minor in sorted({_minor(gpu, minors) for gpu in gpus})]
    if there is None:
        given = {parse_properties(key, value).get("path") for key, value in found.items() if kind_of(key) == "dev"}
        return [*cards, *CONTROL_NODES, *(path for path in OPTIONAL_NODES if path in given)]
    missing = [path for path in (*cards, *CONTROL_NODES) if path not in there]
    if missing:
        raise MissingDevices(
            "The node lacks device nodes of its GPUs",
            f"no character device {', '.join(missing)}",
            f"{', '.join((*cards, *CONTROL_NODES))} as character devices",
            "Install and load the driver on the node (role nvidia_driver), or correct gpus",
        )
    return [*cards, *CONTROL_NODES, *(path for path in OPTIONAL_NODES if path in there)]


def _minor(gpu: str, minors: Mapping[str, int]) -> int:
    if re.fullmatch(r"\d{1,3}", gpu):
        return int(gpu)
    if gpu.startswith("GPU-"):
        if gpu not in minors:
            known = ", ".join(sorted(minors)) or "none known (no driver, or by the API)"
            raise MissingDevices("Option gpus", f"{gpu}, and on the node {known}", "a GPU of the node", "Correct gpus")
        return minors[gpu]
    raise Refusal("Option gpus is wrong", repr(gpu), 'all, none, minor numbers such as "0", or UUIDs', "Correct gpus")


def gpu_holders(paths: Iterable[str], others: Mapping[int, tuple[Config, list[str]]]) -> dict[int, list[str]]:
    """Which other containers hold one of these GPUs, by devN or by a raw line."""
    cards = {path for path in paths if GPU_NODE.fullmatch(path)}
    holders: dict[int, list[str]] = {}
    for vmid, (config, raw) in others.items():
        texts = [value for key, value in config.items() if kind_of(key) == "dev"] + raw
        held = cards & {match.group(0) for text in texts for match in GPU_NODE.finditer(text)}
        if held:
            holders[vmid] = sorted(held)
    return holders


def _slots(kind: str, found: Config, identity: str) -> dict[str, str]:
    """{device path or mount target: key} of what is there."""
    slots: dict[str, str] = {}
    for key in sorted(found, key=lambda k: (len(k), k)):
        if kind_of(key) == kind and key != kind:
            slots.setdefault(parse_properties(key, found[key]).get(identity, ""), key)
    return slots


def _place(kind: str, found: Config, identity: str, entries: Mapping[str, dict[str, str]]) -> Config:
    """Give each entry the key it has already, or the lowest free one."""
    slots = _slots(kind, found, identity)
    placed: Config = {}
    number = 0
    for name, properties in entries.items():
        key = slots.get(name)
        while key is None:
            candidate = f"{kind}{number}"
            number += 1
            if candidate not in found and candidate not in placed:
                key = candidate
        kept = parse_properties(key, found.get(key, "")) if kind == "mp" else {}
        placed[key] = render_properties(key, {**kept, **properties})
    return placed


def _network(found: str, network: Mapping[str, Any]) -> str:
    # What is not declared (hwaddr and type, which Proxmox VE fills in, or a firewall flag) stays.
    properties = parse_properties("net0", found)
    properties.pop("gw", None)
    wanted = {"name": "name", "bridge": "bridge", "address": "ip", "gateway": "gw", "hwaddr": "hwaddr"}
    properties.update({key: str(network[option]) for option, key in wanted.items() if network.get(option)})
    return render_properties("net0", properties)


def wanted_config(params: Mapping[str, Any], found: Config, devices: list[str] | None) -> Config:
    """The managed keys as they must be. Options that are not given are not managed."""
    wanted: Config = {}
    for option, key in (("hostname", "hostname"), ("cores", "cores"), ("memory_mib", "memory"), ("swap_mib", "swap")):
        if params.get(option) is not None:
            wanted[key] = str(params[option])
    if params.get("onboot") is not None:
        wanted["onboot"] = "1" if params["onboot"] else "0"
    if params.get("description") is not None:
        wanted["description"] = params["description"]
    given = {name: str(value) for name, value in (params.get("startup") or {}).items() if value is not None}
    if given:
        wanted["startup"] = render_properties("startup", given)
    own = params["tags"] if params.get("tags") is not None else split_tags(found.get("tags", ""))
    wanted["tags"] = ";".join(split_tags(";".join([TAG, *own])))
    features = {n: "1" if v else "0" for n, v in (params.get("features") or {}).items() if v is not None}
    if features:
        features = {**parse_properties("features", found.get("features", "")), **features}
        wanted["features"] = render_properties("features", features)
    if params.get("network"):
        wanted["net0"] = _network(found.get("net0", ""), params["network"])
    if devices is not None:
        # Proxmox VE's own default of 0660 root:root shuts out the service user.
        wanted.update(_place("dev", found, "path", {path: {"path": path, "mode": "0666"} for path in devices}))
    if params.get("mounts") is not None:
        entries = {
            mount["target"]: {
                "volume": mount["source"],
                "mp": mount["target"],
                "ro": "1" if mount["read_only"] else "0",
            }
            for mount in params["mounts"]
        }
        wanted.update(_place("mp", found, "mp", entries))
    return wanted


def grown_rootfs(params: Mapping[str, Any], found: Config) -> Config:
    """The root file system at its wanted size, when that is larger."""
    rootfs, size = params.get("rootfs"), size_gib(found.get("rootfs", ""))
    if not rootfs or size is None or size >= rootfs["size_gib"]:
        return {}
    grown = {**parse_properties("rootfs", found["rootfs"]), "size": f"{rootfs['size_gib']}G"}
    return {"rootfs": render_properties("rootfs", grown)}


def foreign_binds(params: Mapping[str, Any], found: Config) -> dict[str, str]:
    """Bind mounts that are there and not declared, by key."""
    if params.get("mounts") is None:
        return {}
    targets = {mount["target"] for mount in params["mounts"]}
    parsed = {key: parse_properties(key, value) for key, value in found.items() if kind_of(key) == "mp"}
    return {
        key: f"{mount['volume']} at {mount.get('mp')}"
        for key, mount in parsed.items()
        if mount.get("volume", "").startswith("/") and mount.get("mp") not in targets
    }


def difference(params: Mapping[str, Any], found: Config, wanted: Config, devices: list[str] | None) -> Change:
    """The least that turns what is there into what is wanted. Volumes and devices of others stay."""
    surplus = list(foreign_binds(params, found))
    if devices is not None:
        for key in found:
            path = parse_properties(key, found[key]).get("path", "") if kind_of(key) == "dev" else ""
            if path.startswith("/dev/nvidia") and key not in wanted:
                surplus.append(key)
    # A flag that is off in a key that is absent is no difference, and a key left without any property goes.
    altered = {k: v for k, v in wanted.items() if canonical(k, v) != canonical(k, found.get(k, ""))}
    surplus += [key for key, value in altered.items() if not canonical(key, value) and key in found]
    return Change({k: v for k, v in altered.items() if k not in surplus}, sorted(surplus))


def apply_change(found: Config, change: Change) -> Config:
    after = {key: value for key, value in found.items() if key not in change.delete}
    after.update(change.set)
    return after


def shown(config: Config, status: str) -> dict[str, str]:
    """A configuration as it is returned and shown in a difference."""
    return {"status": status, **{key: canonical(key, config[key]) for key in sorted(config)}}
