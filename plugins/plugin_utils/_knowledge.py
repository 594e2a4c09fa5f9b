# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The knowledge base: measured tables and written rules, read once and checked before anything is decided from them."""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.blackwell.inference.plugins.plugin_utils._rules import Rule, version
from ansible_collections.blackwell.inference.plugins.plugin_utils._shape import Shape, problems

FOLDER = Path(__file__).parent / "knowledge"

_CODE: Shape = {"*": {"*": {"*": {"cuda_major": "int", "runs": ["arch"]}}}}
TABLES: dict[str, Shape] = {
    "policy": {
        "as_of": "day",
        "minimum_age_days": "int",
        "grace_days": "int",
        "ports": {"base": "int", "step": "count", "forbidden_distances": ["int"], "highest": "int", "source": "text"},
        "memory": {
            "reserve": [{"below_mib": "int", "chunk": "int", "graph": "int"}],
            "base_mib": "int",
            "per_token_mib": "num",
            "per_request_mib": "num",
            "prefill_sizes_mib": "int",
            "per_rank_mib": "int",
            "least_mib_on_large_cards": "int",
            "large_card_mib": "int",
            "vision_mib": "int",
            "speculative_mib": "int",
            "highest_fraction": "num",
            "least_context": "int",
            "source": "text",
        },
        "shared_memory": {"*": "int"},
    },
    "releases": {
        "*": {
            "upload": "time",
            "requires_python": "range",
            "wheels": "any",
            "pins": {"torch": "version", "kernel": {"name": "text", "version": "version"}, "flashinfer": "version"},
        }
    },
    "kernels": {"*": {"*": {"python": "python", "machines": ["text"], "glibc": "version", "torch": "version?"}}},
    "torch": {
        "*": {
            "cuda_major": "int",
            "cuda": "version",
            "build": {"*": "text"},
            "pythons": ["python"],
            "glibc": "version",
            "nccl": "version",
        }
    },
    "code": _CODE,
    "toolkits": {"*": {"cuda_major": "int", "parts": ["pin"]}},
    "models": {"*": {"first": "version", "source": "text"}},
    "proven": [
        {
            "release": "version",
            "python": "python",
            "machine": "text",
            "as_of": "day",
            "day": "day",
            "toolkit": "version?",
            "flags": "int?",
            "compiled": ["arch"],
            "served": ["capability"],
            "result": "text",
        }
    ],
    "rules": [{"id": "text", "releases?": "range", "applies": "any", "then": "any", "because": "text", "source": "text"}],
}
FILES = {
    "policy": "policy.yml",
    "releases": "releases.yml",
    "kernels": "packages.yml",
    "torch": "torch_builds.yml",
    "code": "kernel_code.yml",
    "toolkits": "toolkits.yml",
    "models": "models.yml",
    "proven": "proven.yml",
    "rules": "rules.yml",
}
_WHEELS: Shape = {"pythons": ["python"], "machines": ["text"], "glibc": "version"}
_APPLIES: Shape = {
    "architectures?": ["text"],
    "backend?": ["text"],
    "capabilities?": ["text"],
    "cuda_major?": "int",
    "finds?": "text",
    "flashinfer?": "range",
    "hybrid?": "bool",
    "kernel?": {"name": "text", "versions": "range"},
    "machine?": "text",
    "parallel?": "bool",
    "python?": ["python"],
    "quantization?": ["text"],
    "shared_memory_below?": "int",
    "speculative?": "bool",
    "torch?": "range",
    "vision?": "bool",
}
_THEN: Shape = {
    "as_of?": "time",
    "attention_backends?": {"allowed": ["text"], "support?": {"*": "text"}},
    "constraints?": ["pin"],
    "driver_minimum?": "version",
    "env?": {"*": "str"},
    "gpu_code_exempt?": ["text"],
    "kernel_needs_torch?": "version",
    "mamba?": {"flag": "text", "value?": "text"},
    "mm_attention_backend?": "text",
    "overrides?": ["pin"],
    "refuse?": "text",
    "remedy?": "text",
    "support?": "text",
    "toolkit_minimum?": "version",
    "warn?": "text",
}
SUPPORT = ("functional", "expected", "verified")


class KnowledgeError(ValueError):
    """The tables cannot be used; the message names the file and the place."""


@dataclass(frozen=True)
class Knowledge:
    policy: Mapping[str, Any]
    releases: Mapping[str, Any]
    kernels: Mapping[str, Any]
    torch: Mapping[str, Any]
    code: Mapping[str, Any]
    toolkits: Mapping[str, Any]
    models: Mapping[str, Any]
    proven: list[Mapping[str, Any]]
    rules: list[Rule]
    newest_first: list[str]


def read_tables(folder: Path = FOLDER) -> dict[str, Any]:
    """The tables as they stand in the files."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    tables = {}
    for name, file in FILES.items():
        try:
            content = yaml.load((folder / file).read_bytes(), Loader=loader)
        except (OSError, yaml.YAMLError) as error:
            raise KnowledgeError(f"The knowledge base cannot be read: {file}: {error}. Install the collection again.") from error
        if not isinstance(content, dict) or set(content) != {name}:
            raise KnowledgeError(f"The knowledge base is broken: {file} does not hold the one key {name}.")
        tables[name] = content[name]
    return tables


def _rule_problems(rules: list[Any], file: str) -> list[str]:
    found = []
    seen = set()
    for number, rule in enumerate(rules):
        place = f"{file}: rule {rule.get('id', number) if isinstance(rule, dict) else number}"
        shaped = problems(rule, TABLES["rules"][0], place)
        if not shaped:
            shaped = problems(rule["applies"], _APPLIES, f"{place}: applies") + problems(rule["then"], _THEN, f"{place}: then")
        if not shaped:
            if rule["id"] in seen:
                shaped.append(f"{place}: the id stands twice")
            seen.add(rule["id"])
            if not rule["then"]:
                shaped.append(f"{place}: then is empty; wanted: what follows from the rule")
            if rule["then"].get("support", "functional") not in SUPPORT:
                shaped.append(f"{place}: then.support is {rule['then']['support']!r}; wanted: one of {', '.join(SUPPORT)}")
            shaped += _text_problems(rule, place)
        found += shaped
    return found


def _text_problems(rule: Mapping[str, Any], place: str) -> list[str]:
    texts = {key: rule[key] for key in ("because", "source")} | {f"then.{key}": rule["then"].get(key, "") for key in ("remedy", "warn")}
    found = []
    for key, text in texts.items():
        try:
            list(string.Formatter().parse(text))
        except ValueError as error:
            found.append(f"{place}: {key} has a brace that is not closed ({error})")
    return found


def _cross_problems(tables: Mapping[str, Any]) -> list[str]:
    """What only shows when two tables are held together."""
    found = []
    for name, release in tables["releases"].items():
        place = f"{FILES['releases']}: {name}"
        if release["wheels"] != "any":
            found += problems(release["wheels"], _WHEELS, f"{place}.wheels")
        kernel = release["pins"]["kernel"]
        if kernel["version"] not in tables["kernels"].get(kernel["name"], {}):
            found.append(f"{place} pins {kernel['name']} {kernel['version']}, which {FILES['kernels']} does not hold")
        if release["pins"]["torch"] not in tables["torch"]:
            found.append(f"{place} pins torch {release['pins']['torch']}, which {FILES['torch']} does not hold")
    for row in tables["proven"]:
        if row["release"] not in tables["releases"]:
            found.append(f"{FILES['proven']}: release {row['release']} is not in {FILES['releases']}")
    return found


def build(tables: Mapping[str, Any]) -> Knowledge:
    """Check the tables and make them ready; raise KnowledgeError with everything that is wrong."""
    found = []
    for name, shape in TABLES.items():
        if name == "rules" and isinstance(tables[name], list):
            found += _rule_problems(tables[name], FILES[name])
        else:
            found += problems(tables[name], shape, f"{FILES[name]}: {name}")
    found = found or _cross_problems(tables)
    if found:
        listed = "".join(f"\n  - {problem}" for problem in found[:20])
        raise KnowledgeError(f"The knowledge base is broken in {len(found)} places:{listed}")
    rules = [
        Rule(entry["id"], entry.get("releases"), entry["applies"], entry["then"], entry["because"].strip(), entry["source"])
        for entry in tables["rules"]
    ]
    return Knowledge(
        **{name: tables[name] for name in TABLES if name != "rules"},
        rules=rules,
        newest_first=sorted(tables["releases"], key=version, reverse=True),
    )


@lru_cache(maxsize=1)
def load() -> Knowledge:
    return build(read_tables())
