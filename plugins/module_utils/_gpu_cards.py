# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which cards there are, where, and whose they are. Pure, like _gpu.py."""

from __future__ import annotations

import re
from typing import Any


def parse_information(text: str) -> dict[str, Any]:
    """/proc/driver/nvidia/gpus/<address>/information."""
    fields = {name.strip(): value.strip() for name, colon, value in (line.partition(":") for line in text.splitlines()) if colon}
    minor = fields.get("Device Minor", "")
    uuid = fields.get("GPU UUID", "")
    return {
        "name": fields.get("Model") or None,
        # Before the first open the driver does not know it and prints question marks.
        "uuid": uuid if uuid.startswith("GPU-") and "?" not in uuid else None,
        "minor": int(minor) if re.fullmatch(r"[0-9]{1,6}", minor) else None,
        # By the driver's option NVreg_ExcludedGpus.
        "excluded": fields.get("GPU Excluded") == "Yes",
    }


def place(address: str) -> tuple[int, str]:
    """Domains are numbers and need not have equally many digits."""
    domain, _colon, rest = address.partition(":")
    return int(domain, 16), rest


def given_away(card: dict[str, Any]) -> bool:
    """To a virtual machine: vfio-pci, or one of its variants for one vendor's cards."""
    return "vfio" in (card["driver"] or "")


def has_node(raw: dict[str, Any], minor: int | None) -> bool:
    return raw["nodes"].get(f"/dev/nvidia{minor}", {}).get("type") in ("char", "other")


def taken_away(raw: dict[str, Any]) -> dict[str, str]:
    """Cards that the operator keeps from all programs, which no tool of the driver lists either: how, by address."""
    drained = raw["nvml"].get("drained") or ()
    found = {}
    for address, text in raw["proc"]["gpus"].items():
        card = parse_information(text)
        if raw["container"]["type"] != "none" and not has_node(raw, card["minor"]):
            continue
        if card["excluded"] or address in drained:
            found[address] = "excluded" if card["excluded"] else "drained"
    return dict(sorted(found.items(), key=lambda item: place(item[0])))


def ours(raw: dict[str, Any], loaded: bool, nvml: Any, proc: Any, sysfs: Any) -> set[str]:
    """A container sees the node's whole /proc and /sys, but owns only the cards whose device node it has."""
    if not loaded:
        return set(proc) | set(sysfs)
    if raw["container"]["type"] == "none":
        return set(nvml) | set(proc) | set(sysfs)
    return set(nvml) | {address for address, card in proc.items() if has_node(raw, card["minor"])}
