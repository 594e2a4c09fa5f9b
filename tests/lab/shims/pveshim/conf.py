# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Files /etc/pve/lxc/<vmid>.conf: reading and writing them in Proxmox VE's own syntax."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from urllib.parse import quote, unquote

_KEY = re.compile(r"^([a-z][a-z_]*\d*):\s*(.*?)\s*$")
_LXC = re.compile(r"^(lxc\.[a-z0-9_.-]+)\s*[:=]\s*(.*?)\s*$", re.IGNORECASE)
_SECTION = re.compile(r"^\[([A-Za-z0-9:_.-]+)\]\s*$")
PENDING = "pve:pending"


@dataclass
class Conf:
    """One container's configuration. All values are strings, as in the file."""

    values: dict[str, str] = field(default_factory=dict)
    lxc: list[tuple[str, str]] = field(default_factory=list)
    pending: dict[str, str] = field(default_factory=dict)
    pending_delete: list[str] = field(default_factory=list)
    digest: str = ""

    def effective(self) -> dict[str, str]:
        """Values as they will be after the next start."""
        merged = {key: value for key, value in self.values.items() if key not in self.pending_delete}
        return {**merged, **self.pending}

    def apply_pending(self) -> bool:
        """Make pending values current, as a start does; True when there were any."""
        changed = bool(self.pending or self.pending_delete)
        self.values = self.effective()
        self.pending, self.pending_delete = {}, []
        return changed


def parse(text: str) -> Conf:
    """Comments anywhere are the description; a repeated key's last value wins silently; unknown lines are dropped."""
    conf = Conf(digest=hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())
    description = ""
    section = ""
    for line in text.splitlines():
        if match := _SECTION.match(line):
            section = match.group(1)
        elif line.startswith("#"):
            if not section:
                description += unquote(line[1:]) + "\n"
        elif section not in ("", PENDING):
            continue
        elif match := _LXC.match(line):
            if not section:
                conf.lxc.append((match.group(1), match.group(2)))
        elif match := _KEY.match(line):
            key, value = match.groups()
            if not section:
                conf.values[key] = value
            elif key == "delete":
                conf.pending_delete = [name for name in re.split(r"[,;\s]+", value) if name]
            else:
                conf.pending[key] = value
    if description:
        conf.values["description"] = description
    return conf


def encode_description(text: str) -> str:
    return quote(text, safe=" !\"$&'()*,-./;<=>?@[\\]^_`{|}~+")


def render(conf: Conf) -> str:
    """Description first, keys sorted, raw lxc lines, then what is pending."""
    lines = [f"#{encode_description(line)}" for line in conf.values.get("description", "").splitlines()]
    lines += [f"{key}: {conf.values[key]}" for key in sorted(conf.values) if key != "description"]
    lines += [f"{key}: {value}" for key, value in conf.lxc]
    if conf.pending or conf.pending_delete:
        lines += ["", f"[{PENDING}]"]
        if conf.pending_delete:
            lines.append(f"delete: {','.join(sorted(conf.pending_delete))}")
        lines += [f"{key}: {conf.pending[key]}" for key in sorted(conf.pending)]
    return "".join(f"{line}\n" for line in lines)
