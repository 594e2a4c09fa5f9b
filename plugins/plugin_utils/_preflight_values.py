# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Values that have the right type and still cannot work. Pure; private to the collection."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import Any, Callable, NamedTuple

INDEXES = ("pve_host_index_url", "stack_index_url", "gateway_index_url")
HIDDEN = frozenset({"gateway_api_key", *INDEXES})
_KEY = re.compile(r"[!-~]{16,}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_HOSTNAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*")
# Empty is what the default is without UV_DEFAULT_INDEX; the roles ask for one.
_INDEX = re.compile(r"(https?://[^\s/@]+(/\S*)?)?")
_PATH = re.compile(r"/[^\x00-\x1f\x7f]*")


class Rule(NamedTuple):
    """What a variable may hold. A value of another type is somebody else's finding."""

    kind: type
    holds: Callable[[Any], bool]
    wanted: str


def _between(low: int, high: int | None = None) -> Rule:
    wanted = f"{low} or more" if high is None else f"{low} to {high}"
    return Rule(int, lambda value: value >= low and (high is None or value <= high), wanted)


def _text(pattern: re.Pattern[str], wanted: str) -> Rule:
    return Rule(str, lambda value: pattern.fullmatch(value) is not None, wanted)


def _gpus(value: list[Any]) -> bool:
    return value in (["all"], ["none"]) or (bool(value) and all(re.fullmatch(r"\d{1,3}", str(one)) for one in value))


def _network(value: Mapping[str, Any]) -> bool:
    if not value:
        return True
    address, gateway = str(value.get("address")), value.get("gateway")
    try:
        return bool(
            value.get("bridge")
            and (address == "dhcp" or ("/" in address and ipaddress.ip_interface(address)))
            and (gateway is None or ipaddress.ip_address(str(gateway)))
        )
    except ValueError:
        return False


_VMID = _between(100, 999_999_999)
_SOME = _between(1)
# An unprivileged service opens no port below 1024.
_PORT = _between(1024, 65_535)

RULES: dict[str, Rule] = {
    **dict.fromkeys(INDEXES, _text(_INDEX, "http:// or https:// and no user or password in it, which belong into a netrc file")),
    "nvidia_driver_sha256": _text(_SHA256, "64 lower-case hexadecimal digits"),
    "pve_container_vmid": _VMID,
    "pve_container_build_vmid": _VMID,
    "pve_container_hostname": _text(_HOSTNAME, "a name of letters, digits and hyphens"),
    "pve_container_cores": _SOME,
    "pve_container_memory_mib": _between(16),
    "pve_container_rootfs_gib": _SOME,
    "pve_container_gpus": Rule(list, _gpus, 'all, none, or a list of minor numbers such as "0"'),
    "pve_container_network": Rule(dict, _network, "bridge, address with its prefix or dhcp, and no gateway or an address"),
    "model_path": _text(_PATH, "an absolute path without control characters"),
    "inference_instances": _SOME,
    "inference_tensor_parallel": _SOME,
    "inference_context_length": _SOME,
    "inference_max_running_requests": _SOME,
    "inference_port_base": _PORT,
    "inference_stop_timeout": _SOME,
    "inference_health_timeout": _SOME,
    "gateway_port": _PORT,
    "gateway_metrics_port": _PORT,
    "gateway_ready_timeout": _SOME,
    "gateway_api_key": _text(_KEY, "at least 16 printable characters without spaces, for instance from openssl rand -hex 24"),
}


def unusable(name: str, value: Any) -> tuple[str, str] | None:
    """What was found and what was wanted; None for a value that can work."""
    rule = RULES.get(name)
    if rule is None or isinstance(value, bool) or not isinstance(value, rule.kind) or rule.holds(value):
        return None
    return f"{name} {'(not shown)' if name in HIDDEN else repr(value)[:200]}", rule.wanted
