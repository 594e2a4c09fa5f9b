# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tables of the knowledge base must look like. Whatever is wrong is named by file and place."""

from __future__ import annotations

import difflib
import re
import string
from collections.abc import Iterable, Mapping
from datetime import date
from typing import Any

from ansible_collections.blackwell.inference.plugins.plugin_utils import _findings
from ansible_collections.blackwell.inference.plugins.plugin_utils._shape import Shape, problems

# From the weakest to the strongest.
SUPPORT = ("functional", "expected", "verified")
FILES = {
    "policy": "policy.yml",
    "releases": "releases.yml",
    "kernels": "packages.yml",
    "torch": "torch_builds.yml",
    "code": "kernel_code.yml",
    "toolkits": "toolkits.yml",
    "gpus": "gpus.yml",
    "models": "models.yml",
    "proven": "proven.yml",
    "rules": "rules.yml",
}
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
    "code": {"*": {"*": {"*": {"cuda_major": "int", "runs": ["arch"], "sha256?": "id"}}}},
    "toolkits": {"*": {"cuda_major": "int", "parts": ["pin"]}},
    "gpus": {"*": {"family": "text", "cards": "text", "machines": ["text"], "shared_memory": "count", "source": "text"}},
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
# What the keys of a table are, level by level.
_KEYS: dict[str, tuple[str, ...]] = {
    "releases": ("version",),
    "kernels": ("text", "version"),
    "torch": ("version",),
    "code": ("text", "version", "text"),
    "toolkits": ("version",),
    "gpus": ("capability",),
}
_WHEELS: Shape = {"pythons": ["python"], "machines": ["text"], "glibc": "version"}
APPLIES: Shape = {
    "architectures?": ["text"],
    "backend?": ["text"],
    "capabilities?": ["text"],
    "cuda_major?": "int",
    "finds?": "text",
    "flashinfer?": "range",
    "hybrid?": "bool",
    "kernel?": {"name": "text", "versions": "range"},
    "machine?": "text",
    "mamba?": ["text"],
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
    "defer?": "text",
    "driver_minimum?": "version",
    "env?": {"*": "str"},
    "gpu_code_exempt?": ["text"],
    "kernel_needs_torch?": "version",
    "mamba?": {"flag": "text", "choices": {"*": ["text"]}},
    "mamba_value?": "text",
    "mm_attention_backend?": "text",
    "overrides?": ["pin"],
    "refuse?": "text",
    "remedy?": "text",
    "support?": "text",
    "toolkit_minimum?": "version",
    "warn?": "text",
}
_ABOUT_A_FINDING = frozenset({"defer", "refuse", "remedy", "support", "warn"})
# A host's finding is judged before any release is looked at.
_ABOUT_A_HOST = frozenset({"refuse", "remedy", "warn"})
_OF_A_HOST = frozenset(
    {"architectures", "backend", "capabilities", "finds", "hybrid", "machine", "mamba", "parallel", "quantization", "vision"}
)
_PATTERN = re.compile(r"[0-9]{1,2}\.(?:[0-9]|\*)")


def _nearest(name: str, known: Iterable[str]) -> str:
    listed = sorted(known)
    near = difflib.get_close_matches(name, listed, n=1)
    return f"did you mean {near[0]}?" if near else f"known: {', '.join(listed)}"


def _rule_problems(rules: list[Any]) -> list[str]:
    found = []
    seen = set()
    for number, rule in enumerate(rules):
        place = f"{FILES['rules']}: rule {rule.get('id', number) if isinstance(rule, dict) else number}"
        shaped = problems(rule, TABLES["rules"][0], place)
        if not shaped:
            shaped = problems(rule["applies"], APPLIES, f"{place}: applies") + problems(rule["then"], _THEN, f"{place}: then")
        if not shaped:
            if rule["id"] in seen:
                shaped.append(f"{place}: the id stands twice")
            seen.add(rule["id"])
            shaped += _condition_problems(rule, place) + _effect_problems(rule, place) + _text_problems(rule, place)
        found += shaped
    return found or _ignored(rules)


def _ignored(rules: list[Any]) -> list[str]:
    """What is found and has no rule would be passed over without a word."""
    about = {rule["applies"].get("finds") for rule in rules}
    found = [f"{FILES['rules']}: no rule is about {name}" for name in {**_findings.OF_HOST, **_findings.OF_RELEASE} if name not in about]
    always = {
        rule["applies"].get("finds") for rule in rules if "refuse" in rule["then"] and len(rule["applies"]) == 1 and "releases" not in rule
    }
    lacking = sorted((_findings.ALWAYS_REFUSED & about) - always)
    return found + [
        f"{FILES['rules']}: no rule refuses {name} whatever else holds, and such a release cannot be started" for name in lacking
    ]


def _condition_problems(rule: Mapping[str, Any], place: str) -> list[str]:
    found = [
        f'{place}: applies.capabilities has {pattern!r}; wanted: a compute capability like "12.0", or "12.*"'
        for pattern in rule["applies"].get("capabilities", [])
        if not _PATTERN.fullmatch(pattern)
    ]
    finding = rule["applies"].get("finds")
    if finding is not None and finding not in (known := {**_findings.OF_HOST, **_findings.OF_RELEASE}):
        found.append(f"{place}: applies.finds is {finding!r}, which nothing finds; {_nearest(finding, known)}")
    if finding in _findings.OF_HOST:
        beyond = sorted(set(rule["applies"]) - _OF_A_HOST) + (["releases"] if "releases" in rule else [])
        found += [f"{place}: {key} cannot be asked beside {finding}, which is found before a release is looked at" for key in beyond]
    return found


def _effect_problems(rule: Mapping[str, Any], place: str) -> list[str]:
    then, finding = rule["then"], rule["applies"].get("finds")
    found = []
    if not then:
        found.append(f"{place}: then is empty; wanted: what follows from the rule")
    if finding is not None:
        possible = _ABOUT_A_HOST if finding in _findings.OF_HOST else _ABOUT_A_FINDING
        found += [f"{place}: then.{key} does nothing in a rule about a finding" for key in sorted(set(then) - possible)]
        if then and not {"refuse", "defer", "warn"} & set(then):
            found.append(f"{place}: then has none of refuse, defer, warn: nobody would see the finding")
    elif "defer" in then:
        found.append(f"{place}: then.defer does nothing in a rule that is about no finding")
    if "remedy" in then and not {"refuse", "defer"} & set(then):
        found.append(f"{place}: then.remedy does nothing without refuse or defer")
    grades = {"support": then["support"]} if "support" in then else {}
    backends = then.get("attention_backends", {"allowed": []})
    for name, grade in backends.get("support", {}).items():
        grades[f"attention_backends.support.{name}"] = grade
        if name not in backends["allowed"]:
            found.append(f"{place}: then.attention_backends.support names {name}, which is not among the allowed")
    for key, grade in grades.items():
        if grade not in SUPPORT:
            found.append(f"{place}: then.{key} is {grade!r}; wanted: one of {', '.join(SUPPORT)}")
    return found


def _text_problems(rule: Mapping[str, Any], place: str) -> list[str]:
    texts = {key: rule[key] for key in ("because", "source")}
    texts |= {f"then.{key}": rule["then"][key] for key in ("refuse", "defer", "remedy", "warn") if key in rule["then"]}
    known = _findings.words_of(rule["applies"].get("finds"), "refuse" in rule["then"])
    found = []
    for key, text in texts.items():
        try:
            parts = [part for part in string.Formatter().parse(text) if part[1] is not None]
        except ValueError as error:
            found.append(f"{place}: {key} has a brace that is not closed ({error})")
            continue
        for _literal, word, form, conversion in parts:
            if word not in known:
                found.append(f"{place}: {key} has the word {{{word}}}, which does not exist for this rule; {_nearest(str(word), known)}")
            elif form or conversion:
                found.append(f"{place}: {key} formats the word {{{word}}}; wanted: the word alone")
    return found


def _key_problems(table: Mapping[str, Any], kinds: tuple[str, ...], place: str) -> list[str]:
    found = []
    for key, value in table.items():
        found += problems(key, kinds[0], f"{place}: the key {key}")
        if kinds[1:]:
            found += _key_problems(value, kinds[1:], f"{place}.{key}")
    return found


def _days(tables: Mapping[str, Any]) -> list[str]:
    given = {f"{FILES['policy']}: policy.as_of": tables["policy"]["as_of"]}
    given |= {f"{FILES['releases']}: {name}.upload": row["upload"] for name, row in tables["releases"].items()}
    found = []
    for place, text in given.items():
        try:
            date.fromisoformat(text[:10])
        except ValueError:
            found.append(f"{place} is {text!r}, which is no day of the calendar")
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


def check(tables: Mapping[str, Any]) -> list[str]:
    """Everything that is wrong with the tables, each with its file and place."""
    found = []
    for name, shape in TABLES.items():
        if name == "rules" and isinstance(tables[name], list):
            found += _rule_problems(tables[name])
        else:
            shaped = problems(tables[name], shape, f"{FILES[name]}: {name}")
            found += shaped or (_key_problems(tables[name], _KEYS[name], FILES[name]) if name in _KEYS else [])
    return found or _days(tables) + _cross_problems(tables)
