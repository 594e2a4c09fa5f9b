# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A plan as a table that a person reads."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.blackwell.inference.plugins.plugin_utils._existing import SUBJECT as EXISTING

WIDTH = 120
MOST_REJECTED = 6


def printable(text: Any) -> str:
    """Names come from devices and from other people's files: what would move the cursor or hide a line is shown as ?."""
    return "".join(letter if letter.isprintable() or letter == "\n" else "?" for letter in str(text))


def rows(cells: Iterable[tuple[str, ...]], widths: tuple[int, ...]) -> list[str]:
    """Columns of these widths, the last one as wide as is left; what is too long continues below."""
    last = WIDTH - sum(widths) - 2 * len(widths)
    lines = []
    for row in cells:
        columns = [
            [piece for line in printable(text).split("\n") for piece in textwrap.wrap(line, width, break_on_hyphens=False) or [""]]
            for text, width in zip(row, (*widths, last), strict=True)
        ]
        for number in range(max(len(column) for column in columns)):
            line = (column[number] if number < len(column) else "" for column in columns)
            lines.append("  ".join(f"{text:<{width}}" for text, width in zip(line, (*widths, 0), strict=True)).rstrip())
    return lines


def host(gpu: Mapping[str, Any], model: Mapping[str, Any]) -> dict[str, Any]:
    """What the head of a report says of a machine."""
    keys = ("name", "compute_capability", "memory_mib")
    kinds = Counter(tuple(device.get(key) for key in keys) for device in gpu["devices"])
    platform = gpu["platform"]
    return {
        "gpus": [{"count": count, **dict(zip(keys, kind, strict=True))} for kind, count in sorted(kinds.items(), key=str)],
        "driver": gpu["driver"]["version"],
        "platform": {"machine": platform["machine"], "glibc": platform["glibc"], "pythons": sorted(platform["pythons"])},
        "model": {"path": model["path"], "architectures": model["architectures"]},
    }


def card(kind: Mapping[str, Any]) -> str:
    memory = kind["memory_mib"]
    size = f", {memory / 1024:.1f} GiB" if memory is not None else ""
    return f"{kind['count']} x {kind['name'] or 'GPU'} ({kind['compute_capability'] or 'capability unknown'}{size})"


def existing(plan: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The decision about an environment that was there before, if one was looked at."""
    return next((entry for entry in plan["decisions"] if entry["subject"] == EXISTING), None)


def _choice(value: Any) -> str:
    return "none" if value is None else str(value)


def bullets(text: str) -> list[str]:
    return textwrap.wrap(printable(text), WIDTH - 2, initial_indent="- ", subsequent_indent="  ")


def render(plan: Mapping[str, Any], seen: Mapping[str, Any]) -> str:
    """Host and model, every decision with its reason, what was not chosen, and the warnings. seen: what `host` returned."""
    launch = plan["launch"]
    # A class of several hosts has one launch and as many ids of it, since the cards' names enter the id.
    own = f", launch {plan['launch_id']}" if "launch_id" in plan else ""
    lines = [
        f"Host    {', '.join(card(kind) for kind in seen['gpus'])}, driver {seen['driver']}",
        f"Model   {seen['model']['path']} ({', '.join(seen['model']['architectures'])})",
        f"Plan    stack {plan['stack_id']}{own}, support {plan['support']}",
        f"Ports   {launch['ports'][0]} to {launch['ports'][-1]}",
        f"Start   {' '.join(launch['args'])}",
    ]
    lines = [printable(line) for line in lines] + [""]
    found = existing(plan)
    lines += rows([("DECISION", "CHOICE", "BECAUSE")], (22, 30))
    lines += rows(
        ((entry["subject"], _choice(entry["choice"]), entry["because"]) for entry in plan["decisions"] if entry is not found), (22, 30)
    )
    rejected = plan["rejected"]
    if rejected:
        lines += ["", *rows([("NOT CHOSEN", "", "BECAUSE")], (22, 30))]
        lines += rows(((entry["option"], entry["subject"], entry["because"]) for entry in rejected[:MOST_REJECTED]), (22, 30))
        if len(rejected) > MOST_REJECTED:
            lines.append(f"... and {len(rejected) - MOST_REJECTED} more in plan.rejected")
    if found:
        lines += ["", "EXISTING", *bullets(found["because"])]
    if plan["warnings"]:
        lines += ["", "WARNINGS", *(line for warning in plan["warnings"] for line in bullets(warning))]
    return "\n".join(lines)
