# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From raw answers to `ansible_facts.gpu`. Pure: every input was read before (_gpu_sources.py)."""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.blackwell.inference.plugins.module_utils import _gpu_cards, _gpu_problems, _pci_ids
from ansible_collections.blackwell.inference.plugins.module_utils._gpu_sources import IDLE_MIB, OUR_UNITS

VERSION = r"\d{3,}\.\d+(?:\.\d+)?"


def assemble(raw: dict[str, Any], expected: str | None = None, vmid: int | None = None) -> dict[str, Any]:
    driver = _driver(raw)
    devices = _devices(raw, driver)
    gpu: dict[str, Any] = {
        "driver": driver,
        "devices": devices,
        "count": len(devices),
        "compute_capabilities": sorted({d["compute_capability"] for d in devices if d["compute_capability"]}, key=_number),
        "device_nodes": _device_nodes(raw["nodes"]),
        "container": {"type": raw["container"]["type"], "unprivileged": raw["container"]["unprivileged"], "vmid": vmid},
        "platform": raw["platform"],
        "sources": _sources(raw, devices, driver),
    }
    gpu["problems"] = _gpu_problems.find(gpu, raw, expected)
    for device in devices:
        del device["sources"]
    return gpu


def _number(capability: str) -> tuple[int, ...]:
    return tuple(int(part) for part in capability.split("."))


def parse_version(text: str | None) -> tuple[str | None, str | None]:
    """(version, flavour) of /proc/driver/nvidia/version."""
    line = next((line for line in (text or "").splitlines() if "Kernel Module" in line), "")
    match = re.search(VERSION, line)
    if not match:
        return None, None
    return match.group(0), "open" if "Open Kernel Module" in line else "closed"


def _driver(raw: dict[str, Any]) -> dict[str, Any]:
    nvml = raw["nvml"]
    version, flavour = parse_version(raw["proc"]["version"])
    version = version or nvml.get("driver_version")
    library = nvml.get("library_version")
    if library is None:
        match = re.fullmatch(rf"(?:\d\d\.)?({VERSION})", nvml.get("nvml_version") or "")
        library = match.group(1) if match else None
    number = nvml.get("cuda_version")
    return {
        "version": version,
        "flavour": flavour,
        "cuda": f"{number // 1000}.{number % 1000 // 10}" if number and number > 0 else None,
        "library_version": library,
        "loaded": version is not None or nvml["status"] == 0,
        "matches": version == library if version and library else None,
    }


def _devices(raw: dict[str, Any], driver: dict[str, Any]) -> list[dict[str, Any]]:
    nvml = {device["pci_address"]: device for device in raw["nvml"]["devices"] if device.get("pci_address")}
    proc = {address: _gpu_cards.parse_information(text) for address, text in raw["proc"]["gpus"].items()}
    sysfs = {card["address"]: card for card in raw["sysfs"] if not _gpu_cards.given_away(card)}
    cuda = {d["pci_address"]: d for d in (raw["cuda"] or {"devices": []})["devices"] if d.get("pci_address")}
    addresses = _gpu_cards.ours(raw, driver["loaded"], nvml, proc, sysfs) - set(_gpu_cards.taken_away(raw))
    devices = [
        _device(raw, address, nvml.get(address), proc.get(address), sysfs.get(address), cuda.get(address), driver["flavour"])
        for address in sorted(addresses, key=_gpu_cards.place)
    ]
    for index, device in enumerate(devices):
        device["index"] = index
    return devices


def _lanes(*numbers: Any) -> int | None:
    """A number of PCIe lanes that can be: a card that does not answer gives all ones."""
    return max((number for number in numbers if number is not None and 1 <= number <= 32), default=None)


def _device(
    raw: dict[str, Any], address: str, nvml: Any, proc: Any, sysfs: Any, cuda: Any, flavour: str | None
) -> dict[str, Any]:
    from_nvml, from_proc, from_sysfs, from_cuda = nvml or {}, proc or {}, sysfs or {}, cuda or {}
    if from_nvml.get("mig"):
        # CUDA describes a slice of it.
        from_cuda = {}
    pci_id = from_nvml.get("pci_id") or from_sysfs.get("pci_id")
    table_name, table_capability = _pci_ids.card(pci_id)
    sources: dict[str, str] = {}

    def first(fact: str, *candidates: tuple[str, Any]) -> Any:
        for source, value in candidates:
            if value is not None:
                sources[fact] = source
                return value
        return None

    capability = first(
        "compute_capability", ("nvml", from_nvml.get("capability")), ("cuda", from_cuda.get("capability")),
        ("pci", table_capability),
    )  # fmt: skip
    family = _pci_ids.family(capability)
    minor = first("minor", ("nvml", from_nvml.get("minor")), ("proc", from_proc.get("minor")))
    node = None if minor is None else f"/dev/nvidia{minor}"
    state = raw["nodes"].get(node or "", {})
    memory, used = from_nvml.get("memory"), from_nvml.get("memory_used")
    numa = from_sysfs.get("numa_node")
    # NVML names the most that card and slot can do together, the kernel what the card could.
    most = _lanes(from_nvml.get("pcie_width_max"), from_sysfs.get("width_max"))
    device = {
        "index": None,
        "uuid": first("uuid", ("nvml", from_nvml.get("uuid")), ("cuda", from_cuda.get("uuid")), ("proc", from_proc.get("uuid"))),
        "name": first("name", ("nvml", from_nvml.get("name")), ("proc", from_proc.get("name")), ("pci", table_name)),
        "pci_address": address,
        "pci_id": first("pci_id", ("nvml", from_nvml.get("pci_id")), ("sysfs", from_sysfs.get("pci_id"))),
        "compute_capability": capability,
        "sm": f"sm_{capability.replace('.', '')}" if capability else None,
        "family": family,
        "memory_mib": first("memory_mib", ("nvml", None if memory is None else memory >> 20)),
        "memory_used_mib": first("memory_used_mib", ("nvml", None if used is None else used >> 20)),
        "shared_memory_per_block_optin": first(
            "shared_memory_per_block_optin", ("cuda", from_cuda.get("shared_memory_per_block_optin"))
        ),
        "multiprocessors": first("multiprocessors", ("cuda", from_cuda.get("multiprocessors"))),
        "ecc": first("ecc", ("nvml", from_nvml.get("ecc"))),
        "ecc_errors": first("ecc_errors", ("nvml", from_nvml.get("ecc_errors"))),
        "mig": first("mig", ("nvml", from_nvml.get("mig"))),
        "persistence": first("persistence", ("nvml", from_nvml.get("persistence"))),
        "power_limit_w": first("power_limit_w", ("nvml", from_nvml.get("power_limit_w"))),
        "pcie_width": first("pcie_width", ("nvml", _lanes(from_nvml.get("pcie_width"))), ("sysfs", _lanes(from_sysfs.get("width")))),
        "pcie_width_max": first(
            "pcie_width_max", ("nvml", most if most == from_nvml.get("pcie_width_max") else None), ("sysfs", most)
        ),
        # The kernel says -1 for a machine with one node or an unknown one.
        "numa_node": first("numa_node", ("sysfs", numa if numa is not None and numa >= 0 else None)),
        "minor": minor,
        "node": node,
        "accessible": state.get("openable") if state.get("type") == "char" else False if state else None,
        "lost": _lost(raw, nvml, proc, from_sysfs.get("driver"), state, flavour == "closed", family),
        "sources": sources,
    }
    if device["accessible"] is not None:
        sources["accessible"] = "dev"
    device["processes"], ours = _processes(raw, device, from_nvml.get("processes"))
    busy = device["memory_used_mib"] is not None and device["memory_used_mib"] > IDLE_MIB
    device["holder_unknown"] = bool(busy and not device["processes"] and not ours and not device["mig"])
    return device


def _lost(raw: dict[str, Any], nvml: Any, proc: Any, bound: str | None, state: dict[str, Any], closed: bool, family: str | None) -> bool:
    """The driver has this card and NVML works, but not on it, though nothing here keeps it from the card's node."""
    if nvml is not None:
        return bool(nvml.get("lost"))
    if raw["nvml"]["status"] != 0 or raw["nvml"]["fault"]:
        return False
    if proc is None and bound != "nvidia":
        return False
    # The closed module lists a Blackwell card and cannot start it: that is a problem of its own, and no reset helps.
    if closed and (family or "").startswith("blackwell"):
        return False
    return not state or (state["type"] == "char" and state["openable"] is not False)


def unit_of(cgroup: str | None) -> str | None:
    """The systemd unit in /proc/<pid>/cgroup: the innermost service or scope of its path."""
    units = [
        part
        for line in (cgroup or "").splitlines()
        for part in line.rpartition(":")[2].split("/")
        if part.endswith((".service", ".scope"))
    ]
    return units[-1].replace("\\x2d", "-") if units else None


def _processes(raw: dict[str, Any], device: dict[str, Any], listed: Any) -> tuple[list[dict[str, Any]], bool]:
    """(processes on the card that can be seen from here, whether a unit of ours is active on it)."""
    known = {entry["pid"]: entry for entry in raw["processes"]}
    found = {}
    for entry in listed or []:
        seen = known.get(entry["pid"])
        if seen is None or seen["holds"] is False:
            continue
        memory = entry["memory"]
        found[entry["pid"]] = {
            "pid": entry["pid"],
            "name": seen["name"],
            "memory_mib": None if memory is None else memory >> 20,
            "unit": unit_of(seen["cgroup"]),
        }
    for service in raw["services"]:
        visible = [name.strip() for name in (service["visible"] or "").split(",")]
        if device["uuid"] in visible and service["pid"] not in found:
            unit = unit_of(service["cgroup"])
            found[service["pid"]] = {"pid": service["pid"], "name": service["name"], "memory_mib": None, "unit": unit}
    processes = [found[pid] for pid in sorted(found)]
    return processes, any((entry["unit"] or "").startswith(OUR_UNITS) for entry in processes)


def _device_nodes(nodes: dict[str, Any]) -> dict[str, list[str]]:
    return {
        "missing": [path for path, node in nodes.items() if node["type"] == "missing"],
        "not_char": [path for path, node in nodes.items() if node["type"] == "other"],
        "unreadable": [path for path, node in nodes.items() if node["type"] == "char" and node["openable"] is False],
    }


def _sources(raw: dict[str, Any], devices: list[dict[str, Any]], driver: dict[str, Any]) -> dict[str, str]:
    found: dict[str, set[str]] = {}
    for device in devices:
        for fact, source in device["sources"].items():
            found.setdefault(fact, set()).add(source)
        if device["processes"]:
            found.setdefault("processes", set()).add("nvml" if raw["processes"] else "proc")
    if driver["version"]:
        found["driver"] = {"proc" if raw["proc"]["version"] else "nvml"}
    if driver["library_version"]:
        found["driver_library"] = {"file" if raw["nvml"].get("library_version") else "nvml"}
    if driver["cuda"]:
        found["driver_cuda"] = {"nvml"}
    return {fact: ",".join(sorted(names)) for fact, names in sorted(found.items())}
