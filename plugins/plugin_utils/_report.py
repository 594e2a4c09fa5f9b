# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A plan as a table that a person reads."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

WIDTH = 120
MOST_REJECTED = 6


def _rows(rows: Iterable[tuple[str, str, str]], widths: tuple[int, int]) -> list[str]:
    first, second = widths
    lines = []
    for left, middle, text in rows:
        columns = [
            textwrap.wrap(left, first) or [""],
            textwrap.wrap(middle, second, break_long_words=False) or [""],
            textwrap.wrap(text, WIDTH - first - second - 4) or [""],
        ]
        for number in range(max(len(column) for column in columns)):
            cells = [column[number] if number < len(column) else "" for column in columns]
            lines.append(f"{cells[0]:<{first}}  {cells[1]:<{second}}  {cells[2]}".rstrip())
    return lines


def _cards(gpu: Mapping[str, Any]) -> str:
    kinds = Counter((device.get("name") or "GPU", device["compute_capability"]) for device in gpu["devices"])
    return ", ".join(f"{count} x {name} ({capability})" for (name, capability), count in sorted(kinds.items(), key=str))


def _choice(value: Any) -> str:
    return "none" if value is None else str(value)


def render(plan: Mapping[str, Any], gpu: Mapping[str, Any], model: Mapping[str, Any]) -> str:
    """Host and model, every decision with its reason, what was not chosen, and the warnings."""
    launch = plan["launch"]
    lines = [
        f"Host    {_cards(gpu)}, driver {gpu['driver']['version']}",
        f"Model   {model['path']} ({', '.join(model['architectures'])})",
        f"Plan    stack {plan['stack_id']}, launch {plan['launch_id']}, support {plan['support']}",
        f"Ports   {launch['ports'][0]} to {launch['ports'][-1]}",
        f"Start   {' '.join(launch['args'])}",
        "",
    ]
    lines += _rows([("DECISION", "CHOICE", "BECAUSE")], (22, 30))
    lines += _rows(((entry["subject"], _choice(entry["choice"]), entry["because"]) for entry in plan["decisions"]), (22, 30))
    rejected = plan["rejected"]
    if rejected:
        lines += ["", *_rows([("NOT CHOSEN", "", "BECAUSE")], (22, 30))]
        lines += _rows(((entry["option"], entry["subject"], entry["because"]) for entry in rejected[:MOST_REJECTED]), (22, 30))
        if len(rejected) > MOST_REJECTED:
            lines.append(f"... and {len(rejected) - MOST_REJECTED} more in plan.rejected")
    if plan["warnings"]:
        lines += ["", "WARNINGS"]
        for warning in plan["warnings"]:
            lines += textwrap.wrap(warning, WIDTH - 2, initial_indent="- ", subsequent_indent="  ")
    return "\n".join(lines)
