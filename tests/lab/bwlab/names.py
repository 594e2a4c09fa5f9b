# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every name and place of the lab. Whatever the lab makes carries PREFIX or lies under STATE or the cache."""

from __future__ import annotations

import os
import re
from pathlib import Path

PREFIX = "bwlab"
STATE = Path("/var/lib/bwlab")
LXC_PATH = STATE / "lxc"
BRIDGE = "bwlab0"
# Without one of its own a bridge takes the lowest address of its ports, so it would change with every start.
BRIDGE_MAC = "02:62:77:6c:00:01"
NETWORK = "10.99.0"
HOST_ADDRESS = f"{NETWORK}.1"
INDEX_PORT = 8099
FIRST_NODE = 6
MAX_NODES = 8

LAB_DIR = Path(__file__).resolve().parent.parent
SHIMS_SOURCE = LAB_DIR / "shims"
SHIMS = ("pct", "pvesh", "pveversion")
SIM_SOURCE = LAB_DIR / "sim"

TEMPLATE_FILE = "debian-13-standard_13.1-2_amd64.tar.zst"
MODEL_NAME = "Qwen3.6-27B"

NODE_NAME = re.compile(r"kpro(\d+)")


def cache_dir() -> Path:
    chosen = os.environ.get("BLACKWELL_CACHE")
    return Path(chosen) if chosen else Path.home() / ".cache" / "blackwell-inference"


def node_names(count: int) -> list[str]:
    return [f"kpro{FIRST_NODE + index}" for index in range(count)]


def node_index(node: str) -> int:
    match = NODE_NAME.fullmatch(node)
    return int(match.group(1)) - FIRST_NODE if match else -1


def node_address(node: str) -> str:
    return f"{NETWORK}.{11 + node_index(node)}"


def node_mac(node: str) -> str:
    """One address for ever, as a real network card has: neighbours remember it across a power cut."""
    return f"02:62:77:6c:01:{11 + node_index(node):02x}"


def container(node: str) -> str:
    return f"{PREFIX}-{node}"


def veth(node: str) -> str:
    return f"{PREFIX}-{node}"


def rootfs(node: str) -> Path:
    return LXC_PATH / container(node) / "rootfs"


def node_state(node: str) -> Path:
    return STATE / "nodes" / node
