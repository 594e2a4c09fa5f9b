# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of a fleet as one table for people. Pure; private to the collection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.blackwell.inference.plugins.plugin_utils._conflicts import NO_WAY
from ansible_collections.blackwell.inference.plugins.plugin_utils._host_names import fold
from ansible_collections.blackwell.inference.plugins.plugin_utils._report import WIDTH, card, existing, printable, rows

COLUMNS = (22, 34, 12, 26)
MOST_NAMES = 6
LONGEST_MESSAGE = 1000

Class = Mapping[str, Any]


def counted(number: int, one: str, more: str) -> str:
    return f"{number:,} {one if number == 1 else more}"


def names(hosts: list[str] | Mapping[str, Any]) -> str:
    """The hosts in few words; the file and the page have all of them."""
    return fold(hosts, MOST_NAMES)


def stack(plan: Mapping[str, Any]) -> list[str]:
    """What is installed, one part a line."""
    chosen = plan["stack"]
    kernel = chosen["sgl_kernel"]
    return [
        f"SGLang {chosen['sglang']}",
        f"torch {chosen['torch']} ({chosen['torch_build']})",
        f"{kernel['name']} {kernel['version']}",
        f"flashinfer {chosen['flashinfer']}",
    ]


def _row(entry: Class) -> tuple[str, ...]:
    hosts, plan = entry["hosts"], entry["plan"]
    who = names(hosts) + (f"\n{counted(len(hosts), 'host', 'hosts')}" if len(hosts) > 1 else "")
    cards = "\n".join(card(kind) for kind in entry["gpus"])
    chosen, support = ("\n".join(stack(plan)), plan["support"]) if plan else (entry["state"].upper(), "-")
    return who, cards or "-", entry["driver"] or "-", chosen, support


def _servers(plan: Mapping[str, Any]) -> str:
    launch = plan["launch"]
    each = "one GPU" if launch["tensor_parallel"] == 1 else f"{launch['tensor_parallel']} GPUs"
    first, last = launch["ports"][0], launch["ports"][-1]
    ports = f"port {first}" if first == last else f"ports {first} to {last}"
    return f"{counted(launch['instances'], 'server', 'servers')} of {each}, {ports}, attention {launch['attention_backend']}"


def _shortened(text: str) -> str:
    text = "\n".join(line for line in str(text).strip().splitlines() if line.strip())
    return text if len(text) <= LONGEST_MESSAGE else f"{text[:LONGEST_MESSAGE]}..."


def notes(entry: Class) -> list[tuple[str, str]]:
    """What stands below the row of a class: (kind, text)."""
    found: list[tuple[str, str]] = []
    if entry["model"]:
        found.append(("model", entry["model"]["path"]))
    if entry["request"]:
        found.append(("asked for", ", ".join(f"{key} {value}" for key, value in sorted(entry["request"].items()))))
    plan = entry["plan"]
    if plan:
        found.append(("servers", _servers(plan)))
        there = existing(plan)
        if there:
            found.append(("existing", there["because"]))
        found += [("warning", warning) for warning in plan["warnings"]]
    elif entry["conflicts"]:
        found += [("conflict", f"{reason['subject']}: {reason['because']} [{reason['source']}]") for reason in entry["conflicts"]]
        found += [("needed", way) for way in entry["needed"]]
        found += [("way out" if len(entry["ways_out"]) == 1 else "one way out", way) for way in entry["ways_out"]]
        if not entry["needed"] and not entry["ways_out"]:
            found.append(("way out", NO_WAY))
    elif entry["message"]:
        found.append(("found", _shortened(entry["message"])))
    else:
        name, own = next((name, own) for name, own in entry["hosts"].items())
        found.append(("found", f"{name}: {_shortened(own['message'])}"))
    for remark in entry["remarks"]:
        who = "" if len(remark["hosts"]) == len(entry["hosts"]) else f" ({names(remark['hosts'])})"
        found.append(("facts say", f"{remark['text']}{who}"))
    return found


def summary(document: Mapping[str, Any]) -> str:
    classes = counted(len(document["classes"]), "class", "classes")
    without = len(document["without_plan"])
    end = "every one has a plan" if not without else f"{document['planned']:,} with a plan, {without:,} without"
    return f"{counted(document['hosts'], 'host', 'hosts')} in {classes}: {end}"


def table(document: Mapping[str, Any], explain: bool) -> str:
    """One block for each class; with the reasons below when they are asked for."""
    lines = [*rows([("HOSTS", "GPUS", "DRIVER", "STACK", "SUPPORT")], COLUMNS), "-" * WIDTH]
    for entry in document["classes"]:
        lines += [*rows([_row(entry)], COLUMNS), *rows(((f"  {kind}", text) for kind, text in notes(entry)), (13,)), ""]
    lines.append(f"{summary(document)}. Knowledge of {document['knowledge_as_of']}.")
    if not explain:
        return "\n".join([*lines, "Reasons: -e explain=true. Files: -e plan_file=plan.json -e page_file=plan.html."])
    for entry in document["classes"]:
        heading = f"== {printable(names(entry['hosts']))} "
        lines += ["", heading + "=" * max(0, WIDTH - len(heading)), entry["report"]]
    return "\n".join(lines)
