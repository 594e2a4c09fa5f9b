# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lab's bridge on this machine."""

from __future__ import annotations

from pathlib import Path

from . import names
from .proc import LabError, run


def is_whole() -> bool:
    """The bridge is there with its address, and every node's link hangs on it."""
    return names.BRIDGE in links() and _has_address() and not _loose_links()


def _has_address() -> bool:
    addresses = run(["ip", "-o", "-4", "address", "show", "dev", names.BRIDGE]).stdout
    return f" {names.HOST_ADDRESS}/24 " in addresses


def _loose_links() -> list[str]:
    """Links of running nodes that are on no bridge: somebody removed it under them."""
    return [link for link in links() if link != names.BRIDGE and not Path(f"/sys/class/net/{link}/master").exists()]


def up() -> bool:
    """Make the bridge with its address and the nodes on it; True when something had to be done."""
    changed = False
    if not Path(f"/sys/class/net/{names.BRIDGE}").exists():
        _refuse_taken_network()
        run(["ip", "link", "add", names.BRIDGE, "address", names.BRIDGE_MAC, "type", "bridge", "stp_state", "0", "forward_delay", "0"])
        changed = True
    if not _has_address():
        run(["ip", "address", "add", f"{names.HOST_ADDRESS}/24", "dev", names.BRIDGE])
        changed = True
    run(["ip", "link", "set", names.BRIDGE, "up"])
    for link in _loose_links():
        run(["ip", "link", "set", link, "master", names.BRIDGE, "up"])
        changed = True
    return changed


def _refuse_taken_network() -> None:
    for line in run(["ip", "-o", "-4", "route", "show"]).stdout.splitlines():
        if line.startswith(f"{names.NETWORK}."):
            raise LabError(
                f"this machine already has a route into {names.NETWORK}.0/24, the lab's network: {line.strip()}. "
                "Remove it before the lab is brought up"
            )


def links() -> list[str]:
    """Every network link with the lab's prefix."""
    return sorted(path.name for path in Path("/sys/class/net").iterdir() if path.name.startswith(names.PREFIX))


def down() -> None:
    for link in links():
        run(["ip", "link", "delete", link], check=False)
