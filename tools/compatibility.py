#!/usr/bin/env python3
# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write docs/compatibility.md: which release serves on which GPU with which attention backend, as the resolver judges it.

usage: python tools/compatibility.py [--check]     --check: write nothing, fail when the file is stale
"""

from __future__ import annotations

import copy
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.blackwell.inference.plugins.plugin_utils import _host, _knowledge
from ansible_collections.blackwell.inference.plugins.plugin_utils._candidates import Candidate, consider
from ansible_collections.blackwell.inference.plugins.plugin_utils._inputs import check_request
from ansible_collections.blackwell.inference.plugins.plugin_utils._knowledge import Knowledge
from ansible_collections.blackwell.inference.plugins.plugin_utils._resolver import support_of
from ansible_collections.blackwell.inference.plugins.plugin_utils._rules import version

ROOT = Path(__file__).resolve().parents[1]
FACTS = ROOT / "inventory/facts/rtx-pro-6000-x8.yml"
PAGE = ROOT / "docs/compatibility.md"
COMMAND = "python tools/compatibility.py"
BACKENDS = ("flashinfer", "triton", "trtllm_mha", "fa3", "fa4")
# The recorded model has linear attention beside full attention; the other kind has full attention alone.
MODELS: dict[str, dict[str, Any]] = {
    "linear and full attention (Qwen3.5, Qwen3.6)": {
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "attention": {"full": 16, "linear": 48},
    },
    "full attention alone (Qwen3, Llama)": {"architectures": ["Qwen3ForCausalLM"], "attention": {"full": 64, "linear": 0}},
}
INTRODUCTION = f"""<!--
Copyright (c) 2026, blackwell.inference contributors
SPDX-License-Identifier: GPL-3.0-or-later

Made by "{COMMAND}" from the knowledge base; do not edit.
-->
# Which release serves on which GPU

What the resolver says of every SGLang release on every kind of GPU that the knowledge base names, with the pins of the release itself and
a driver that is new enough. A plan for your own host also looks at its driver, Python, C library and memory: `playbooks/plan.yml`.

| word | means |
|---|---|
| verified | it served on such a card, proven by us |
| expected | the wheels hold code for the card, and the release was really installed and imported (see *proven*); it did not serve on one |
| functional | it can be asked for; the evidence has gaps, and `stack_verify` shows whether it works |
| **bold** | what a plan takes when nobody asks for another backend |
| no | it is refused, for the reason with that number |

*proven*: the Pythons with which the release was really installed and imported on this kind of machine; "-": only on another, or not at
all. A plan chooses a release unasked where it was proven, and elsewhere only when nothing else is left.
[knowledge.md](knowledge.md) says how a release is proven, and how a release or a GPU is added.
"""


@dataclass(frozen=True)
class Line:
    """What is said of one release; equal neighbours become one line. A text of a cell, or the reasons why not."""

    proven: str
    driver: str
    toolkit: str
    cells: tuple[Any, ...]


def _gpu(facts: dict[str, Any], capability: str, machine: str) -> dict[str, Any]:
    gpu = copy.deepcopy(facts["gpu"])
    gpu["devices"] = gpu["devices"][:1]
    gpu["devices"][0].update(compute_capability=capability, shared_memory_per_block_optin=None)
    gpu["platform"].update(machine=machine, pythons={f"3.{minor}": "python" for minor in range(10, 15)})
    return gpu


def _cell(candidate: Candidate, host: _host.Host) -> Any:
    if candidate.reasons:
        return tuple((entry.subject, entry.source) for entry in candidate.reasons)
    return str(support_of(candidate, host)["choice"])


def lines(knowledge: Knowledge, gpu: dict[str, Any], model: dict[str, Any], sentences: dict[Any, str]) -> list[tuple[str, Line]]:
    """(release, what is said of it), newest first; sentences collects a reason's words from the newest release that it is said of."""

    def judged(name: str, backend: str | None) -> tuple[Candidate, _host.Host]:
        wishes = check_request({"sglang_version": name, "attention_backend": backend})
        host, _findings = _host.choose(gpu, wishes)
        candidate = consider(knowledge, name, host, _host.context(model, wishes, host), wishes, False)
        for entry in candidate.reasons:
            sentences.setdefault((entry.subject, entry.source), entry.because)
        return candidate, host

    found = []
    for name in knowledge.newest_first:
        chosen, _host_of_it = judged(name, None)
        own = chosen.backend.name if chosen.backend and not chosen.reasons else None
        cells = [_cell(*judged(name, backend)) for backend in BACKENDS]
        marked = tuple(f"**{cell}**" if backend == own else cell for backend, cell in zip(BACKENDS, cells, strict=True))
        proven = {row["python"] for row in knowledge.prepared[name].proven if row["machine"] == gpu["platform"]["machine"]}
        line = Line(", ".join(sorted(proven, key=version)) or "-", chosen.driver_minimum, chosen.toolkit or "-", marked)
        found.append((name, line))
    return found


def table(rows: list[tuple[str, Line]], sentences: dict[Any, str]) -> list[str]:
    """The lines of one table with its reasons below; neighbours that are equal stand in one line."""
    grouped: list[tuple[list[str], Line]] = []
    for name, line in rows:
        if grouped and grouped[-1][1] == line:
            grouped[-1][0].append(name)
        else:
            grouped.append(([name], line))
    numbers: dict[Any, int] = {}
    out = [f"| SGLang | proven | driver | nvcc | {' | '.join(BACKENDS)} |", "|---" * (4 + len(BACKENDS)) + "|"]
    for names, line in grouped:
        cells = []
        for cell in line.cells:
            if isinstance(cell, tuple):
                listed = sorted({numbers.setdefault(key, len(numbers) + 1) for key in cell})
                cell = f"no ({', '.join(map(str, listed))})"
            cells.append(cell)
        label = names[0] if len(names) == 1 else f"{names[-1]} to {names[0]}"
        out.append(f"| {' | '.join([label, line.proven, line.driver, line.toolkit, *cells])} |")
    if numbers:
        out += ["", *(f"{number}. {sentences[key]}" for key, number in numbers.items())]
    return out


def page(knowledge: Knowledge, facts: dict[str, Any]) -> str:
    out = [INTRODUCTION]
    for capability, row in knowledge.gpus.items():
        out.append(f"## {row['cards']} (compute capability {capability}, {row['family']})\n")
        for machine in row["machines"]:
            gpu = _gpu(facts, capability, machine)
            for title, changes in MODELS.items():
                sentences: dict[Any, str] = {}
                rows = lines(knowledge, gpu, {**facts["model"], **changes, "vision": False}, sentences)
                out += [f"### {machine}, {title}\n", *table(rows, sentences), ""]
    return "\n".join(out)


def main(arguments: list[str], target: Path = PAGE) -> int:
    if arguments not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    text = page(_knowledge.load(), yaml.safe_load(FACTS.read_text(encoding="utf-8")))
    if not arguments:
        target.write_text(text, encoding="utf-8")
    elif not target.exists() or target.read_text(encoding="utf-8") != text:
        print(f"{target.name}: found: not what the knowledge base says now; wanted: the page made from it. Run: {COMMAND}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
