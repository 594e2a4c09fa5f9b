# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which configuration keys exist, what they may hold, and Proxmox VE's words when they hold something else."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .errors import NotSimulated, ParameterError

Check = Callable[[str], "str | None"]
MAX_INDEX = {"dev": 255, "mp": 255, "net": 31}


@dataclass(frozen=True)
class Kind:
    name: str
    check: Check


def _integer(minimum: int, maximum: int | None = None) -> Kind:
    def check(value: str) -> str | None:
        if not re.fullmatch(r"[+-]?\d+", value):
            return f"type check ('integer') failed - got '{value}'"
        if int(value) < minimum:
            return f"value must have a minimum value of {minimum}"
        if maximum is not None and int(value) > maximum:
            return f"value must have a maximum value of {maximum}"
        return None

    return Kind("integer", check)


def parse_boolean(value: str) -> str | None:
    if re.fullmatch(r"1|on|yes|true", value, re.IGNORECASE):
        return "1"
    return "0" if re.fullmatch(r"0|off|no|false", value, re.IGNORECASE) else None


def _boolean(value: str) -> str | None:
    return None if parse_boolean(value) is not None else f"type check ('boolean') failed - got '{value}'"


def _text(pattern: str = r".*", words: str = "value does not match the regex pattern") -> Kind:
    return Kind("string", lambda value: None if re.fullmatch(pattern, value, re.DOTALL) else words)


def _enum(*choices: str) -> Kind:
    words = "value '%s' does not have a value in the enumeration '{}'".format(", ".join(choices))
    return Kind("string", lambda value: None if value in choices else words % value)


def parse_properties(value: str, default: str | None = None) -> dict[str, str]:
    """`a=1,b=2` or `first,b=2` with a default key; raises ValueError in Proxmox VE's words."""
    found: dict[str, str] = {}
    for part in value.split(","):
        key, sign, text = part.partition("=")
        if not sign:
            if default is None or default in found:
                raise ValueError(f"invalid format - value without key, but schema does not define a default key: {part}")
            key, text = default, part
        if key in found:
            raise ValueError(f"invalid format - duplicate key in comma-separated list property: {key}")
        found[key] = text
    return found


BOOLEAN = Kind("boolean", _boolean)
ANY = _text()
_CIDR = r"(\d{1,3}\.){3}\d{1,3}/\d{1,2}"
_SUB: dict[str, tuple[str | None, dict[str, Kind], tuple[str, ...]]] = {
    "dev": (
        "path",
        {
            "path": _text(r"/dev/(?!.*\.\.).+", "not a valid passthrough device path"),
            "mode": _text(r"0[0-7]{3}"),
            "uid": _integer(0),
            "gid": _integer(0),
            "deny-write": BOOLEAN,
        },
        (),
    ),
    "mp": (
        "volume",
        {
            "volume": _text(r"/.*|[a-zA-Z][\w-]*:.+", "invalid volume"),
            "mp": _text(r"/(?!.*\.\.).+", "does not start with a '/' or contains '..'"),
            "ro": BOOLEAN,
            "backup": BOOLEAN,
            "shared": BOOLEAN,
            "replicate": BOOLEAN,
            "quota": BOOLEAN,
            "acl": BOOLEAN,
            "size": ANY,
            "mountoptions": ANY,
        },
        ("volume", "mp"),
    ),
    "rootfs": ("volume", {"volume": ANY, "size": ANY, "ro": BOOLEAN, "acl": BOOLEAN, "quota": BOOLEAN}, ("volume",)),
    "net": (
        None,
        {
            "name": _text(r"[-_.\w\d]+"),
            "bridge": _text(r"[-_.\w\d]+"),
            "hwaddr": _text(r"[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}", "value does not look like a valid unicast MAC address"),
            "ip": _text(rf"{_CIDR}|dhcp|manual", "invalid format - value does not look like a valid ipv4 network"),
            "gw": _text(r"(\d{1,3}\.){3}\d{1,3}", "value does not look like a valid ipv4 address"),
            "type": _enum("veth"),
            "firewall": BOOLEAN,
            "link_down": BOOLEAN,
            "mtu": _integer(64, 65535),
            "tag": _integer(1, 4094),
            "rate": ANY,
        },
        ("name",),
    ),
    "features": (
        None,
        {
            "nesting": BOOLEAN,
            "keyctl": BOOLEAN,
            "fuse": BOOLEAN,
            "mknod": BOOLEAN,
            "force_rw_sys": BOOLEAN,
            "mount": ANY,
        },
        (),
    ),
    "startup": ("order", {"order": _integer(0), "up": _integer(0), "down": _integer(0)}, ()),
}


def _structured(name: str) -> Kind:
    default, keys, required = _SUB[name]

    def check(value: str) -> str | None:
        try:
            found = parse_properties(value, default)
        except ValueError as error:
            return str(error)
        wrong = [
            f"{key}: {text}"
            for key, text in (
                *((key, "property is missing and it is not optional") for key in required if key not in found),
                *((key, keys[key].check(item)) for key, item in found.items() if key in keys),
                *(
                    (key, "property is not defined in schema and the schema does not allow additional properties")
                    for key in found
                    if key not in keys
                ),
            )
            if text
        ]
        return "invalid format - format error\n" + "\n".join(wrong) if wrong else None

    return Kind("string", check)


CONFIG: dict[str, Kind] = {
    "arch": _enum("amd64", "i386", "arm64", "armhf", "riscv32", "riscv64"),
    "cores": _integer(1, 8192),
    "description": ANY,
    "dev": _structured("dev"),
    "features": _structured("features"),
    "hostname": _text(
        r"(?=.{1,255}$)[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9-]+)*",
        "invalid format - value does not look like a valid DNS name",
    ),
    "lock": _enum("backup", "create", "destroyed", "disk", "fstrim", "migrate", "mounted", "rollback", "snapshot", "snapshot-delete"),
    "memory": _integer(16),
    "mp": _structured("mp"),
    "nameserver": ANY,
    "net": _structured("net"),
    "onboot": BOOLEAN,
    "ostype": _enum("debian", "devuan", "ubuntu", "centos", "fedora", "opensuse", "archlinux", "alpine", "gentoo", "nixos", "unmanaged"),
    "protection": BOOLEAN,
    "rootfs": _structured("rootfs"),
    "searchdomain": ANY,
    "startup": _structured("startup"),
    "swap": _integer(0),
    "tags": _text(
        r"([A-Za-z0-9_][A-Za-z0-9_\-+.]*)([;, ][A-Za-z0-9_][A-Za-z0-9_\-+.]*)*|",
        "invalid format - value does not look like a valid list of tags",
    ),
    "unprivileged": BOOLEAN,
}
# Real keys without any behaviour here: better refused than accepted without effect.
UNSIMULATED = {
    "cmode",
    "console",
    "cpulimit",
    "cpuunits",
    "debug",
    "entrypoint",
    "env",
    "hookscript",
    "template",
    "timezone",
    "tty",
}


def kind(key: str) -> Kind | None:
    """Kind of a configuration key, None when Proxmox VE has no such key."""
    if key in MAX_INDEX:
        return None
    match = re.fullmatch(r"(dev|mp|net)(\d+)", key)
    if match:
        return CONFIG[match.group(1)] if int(match.group(2)) <= MAX_INDEX[match.group(1)] else None
    return CONFIG.get(key)


def is_boolean(key: str) -> bool:
    return kind(key) is BOOLEAN


def check(values: Mapping[str, str]) -> dict[str, str]:
    """Check values given for a container; returns them normalised or raises with every finding."""
    findings: dict[str, str] = {}
    good: dict[str, str] = {}
    for key, value in values.items():
        if key in UNSIMULATED:
            raise NotSimulated(f"container option '{key}'")
        found = kind(key)
        if found is None:
            findings[key] = "property is not defined in schema and the schema does not allow additional properties"
        elif problem := found.check(value):
            findings[key] = _nested(key, problem)
        else:
            good[key] = (parse_boolean(value) or "") if found is BOOLEAN else value
    if findings:
        raise ParameterError(findings)
    return good


def _nested(key: str, problem: str) -> str:
    first, *rest = problem.split("\n")
    return "\n".join([first, *(f"{key}.{line}" for line in rest)])


def as_json(key: str, value: str) -> str | int:
    """A value as the API shows it: integers and booleans are numbers."""
    found = kind(key)
    return int(value) if found and found.name in ("integer", "boolean") and value.lstrip("-").isdigit() else value
