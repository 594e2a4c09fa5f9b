# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When a written rule counts, and what it says. Pure functions over a context: what is known of one candidate on one GPU class."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any

from ansible_collections.blackwell.inference.plugins.plugin_utils import _packaging


@lru_cache(maxsize=4096)
def version(text: str) -> _packaging.Version:
    return _packaging.Version(text)


@lru_cache(maxsize=1024)
def _specifier(text: str) -> _packaging.SpecifierSet:
    return _packaging.SpecifierSet(text)


@lru_cache(maxsize=16384)
def in_range(text: str, wanted: str) -> bool:
    """Whether a version lies in a range; pre-releases count like any other."""
    return _specifier(wanted).contains(version(text), prereleases=True)


@dataclass(frozen=True)
class Rule:
    id: str
    releases: str | None
    applies: Mapping[str, Any]
    then: Mapping[str, Any]
    because: str
    source: str


@dataclass(frozen=True)
class Reason:
    """Why something stands in the way: the input it concerns, one sentence, where that is known from, and what would help."""

    subject: str
    option: str
    because: str
    source: str
    remedy: str | None = None

    def entry(self) -> dict[str, str]:
        return {"subject": self.subject, "option": self.option, "because": self.because, "source": self.source}


Context = Mapping[str, Any]


def _is(key: str) -> Callable[[Any, Context], bool]:
    return lambda wanted, context: context.get(key) == wanted


def _any_of(key: str) -> Callable[[Any, Context], bool]:
    return lambda wanted, context: context.get(key) in wanted


def _ranged(key: str) -> Callable[[Any, Context], bool]:
    return lambda wanted, context: context.get(key) is not None and in_range(context[key], wanted)


def _kernel(wanted: Any, context: Context) -> bool:
    return context.get("kernel_name") == wanted["name"] and in_range(context["kernel_version"], wanted["versions"])


def _capability(wanted: Any, context: Context) -> bool:
    found = context.get("capability")
    return found is not None and any(fnmatchcase(found, pattern) for pattern in wanted)


def _classes(wanted: Any, context: Context) -> bool:
    return any(name in wanted for name in context.get("architectures") or ())


def _shared_memory(wanted: Any, context: Context) -> bool:
    found = context.get("shared_memory")
    return found is not None and found < wanted


# What may stand under `applies`, and how it is compared. The schema check reads the names from here.
CONDITIONS: dict[str, Callable[[Any, Context], bool]] = {
    "architectures": _classes,
    "backend": _any_of("backend"),
    "capabilities": _capability,
    "cuda_major": _is("cuda_major"),
    "finds": lambda wanted, context: wanted in context.get("finds", ()),
    "flashinfer": _ranged("flashinfer"),
    "hybrid": _is("hybrid"),
    "kernel": _kernel,
    "machine": _is("machine"),
    "parallel": _is("tensor_parallel_used"),
    "python": _any_of("python"),
    "quantization": _any_of("quantization"),
    "shared_memory_below": _shared_memory,
    "speculative": _is("speculative"),
    "torch": _ranged("torch"),
    "vision": _is("vision"),
}


def counts(rule: Rule, context: Context) -> bool:
    """Whether everything that the rule asks for holds in this context."""
    if rule.releases is not None and not (context.get("sglang") and in_range(context["sglang"], rule.releases)):
        return False
    return all(CONDITIONS[key](wanted, context) for key, wanted in rule.applies.items())


def matching(rules: Iterable[Rule], contexts: Iterable[Context]) -> list[tuple[Rule, Context]]:
    """The rules that count in any of the contexts, in the order of the file, each with the first context it counts in."""
    listed = list(contexts)
    found = []
    for rule in rules:
        context = next((context for context in listed if counts(rule, context)), None)
        if context is not None:
            found.append((rule, context))
    return found


def about(rules: Iterable[Rule], finding: str, context: Context) -> list[Rule]:
    """The rules that have a word on something that was found."""
    known = {**context, "finds": (finding,)}
    return [rule for rule in rules if rule.applies.get("finds") == finding and counts(rule, known)]


class _Found(dict[str, Any]):
    def __missing__(self, key: str) -> str:
        return "unknown"


def fill(text: str, fields: Mapping[str, Any]) -> str:
    """Put what was found into a rule's sentence."""
    return text.format_map(_Found(fields)) if "{" in text else text


def reason(rule: Rule, option: str, fields: Mapping[str, Any]) -> Reason:
    remedy = rule.then.get("remedy")
    return Reason(
        fill(rule.then["refuse"], fields),
        option,
        fill(rule.because, fields),
        fill(rule.source, fields),
        fill(remedy, fields) if remedy else None,
    )
