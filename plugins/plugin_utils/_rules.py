# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When a written rule counts, and what it says. Pure functions over a context: what is known of one release on one GPU class."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
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
Test = Callable[[Any, Context], bool]
# A rule and those of its conditions that only a host, a model or a wish can answer.
Standing = tuple[Rule, tuple[tuple[Test, Any], ...]]


def _is(key: str) -> Test:
    return lambda wanted, context: context.get(key) == wanted


def _any_of(key: str) -> Test:
    return lambda wanted, context: context.get(key) in wanted


def _ranged(key: str) -> Test:
    return lambda wanted, context: context.get(key) is not None and in_range(context[key], wanted)


def _kernel(wanted: Any, context: Context) -> bool:
    return context.get("kernel_name") == wanted["name"] and in_range(context["kernel_version"], wanted["versions"])


def _capability(wanted: Any, context: Context) -> bool:
    """12.* stands for every minor version."""
    found = context.get("capability")
    return found is not None and (found in wanted or f"{found.partition('.')[0]}.*" in wanted)


def _classes(wanted: Any, context: Context) -> bool:
    return any(name in wanted for name in context.get("architectures") or ())


def _shared_memory(wanted: Any, context: Context) -> bool:
    found = context.get("shared_memory")
    return found is not None and found < wanted


# What may stand under `applies` beside `finds`, and how it is compared. The schema check reads the names from here.
CONDITIONS: dict[str, Test] = {
    "architectures": _classes,
    "backend": _any_of("backend"),
    "capabilities": _capability,
    "cuda_major": _is("cuda_major"),
    "flashinfer": _ranged("flashinfer"),
    "hybrid": _is("hybrid"),
    "kernel": _kernel,
    "machine": _is("machine"),
    "mamba": _any_of("mamba"),
    "parallel": _is("tensor_parallel_used"),
    "python": _any_of("python"),
    "quantization": _any_of("quantization"),
    "shared_memory_below": _shared_memory,
    "speculative": _is("speculative"),
    "torch": _ranged("torch"),
    "vision": _is("vision"),
}
# What a release answers whatever it runs on.
_OF_A_RELEASE = frozenset({"cuda_major", "flashinfer", "kernel", "torch"})


def _released(rule: Rule, context: Context) -> bool:
    return rule.releases is None or (context.get("sglang") is not None and in_range(context["sglang"], rule.releases))


def counts(rule: Rule, context: Context) -> bool:
    """Whether everything that the rule asks for holds in this context; what it says of a finding is not asked here."""
    if not _released(rule, context):
        return False
    return all(CONDITIONS[key](wanted, context) for key, wanted in rule.applies.items() if key != "finds")


def standing(rules: Iterable[Rule], release: Context) -> list[Standing]:
    """The rules that can count for this release on some host, worked out once for all hosts. Rules about findings are not among them."""
    found = []
    for rule in rules:
        if "finds" in rule.applies or not _released(rule, release):
            continue
        own = {key: wanted for key, wanted in rule.applies.items() if key in _OF_A_RELEASE}
        if all(CONDITIONS[key](wanted, release) for key, wanted in own.items()):
            found.append((rule, tuple((CONDITIONS[key], wanted) for key, wanted in rule.applies.items() if key not in own)))
    return found


def matching(rules: Iterable[Standing], contexts: Sequence[Context]) -> list[tuple[Rule, Context]]:
    """The rules that count in any of the contexts, in the order of the file, each with the first context it counts in."""
    found = []
    for rule, conditions in rules:
        for context in contexts:
            for test, wanted in conditions:
                if not test(wanted, context):
                    break
            else:
                found.append((rule, context))
                break
    return found


def by_finding(rules: Iterable[Rule]) -> dict[str, list[Rule]]:
    found: dict[str, list[Rule]] = {}
    for rule in rules:
        if "finds" in rule.applies:
            found.setdefault(rule.applies["finds"], []).append(rule)
    return found


def by_backend(rules: Iterable[Rule]) -> dict[str, list[Rule]]:
    """The rules that refuse an attention backend by its name."""
    found: dict[str, list[Rule]] = {}
    for rule in rules:
        for name in rule.applies.get("backend", ()) if "refuse" in rule.then else ():
            found.setdefault(name, []).append(rule)
    return found


def fill(text: str, fields: Context) -> str:
    """Put what was found into a rule's sentence. That each word exists is checked when the tables are read."""
    return text.format_map(fields) if "{" in text else text


def reason(rule: Rule, effect: str, option: str, fields: Context) -> Reason:
    """What stands in the way by this rule; effect: the key of `then` that names the input."""
    remedy = rule.then.get("remedy")
    return Reason(
        fill(rule.then[effect], fields),
        option,
        fill(rule.because, fields),
        fill(rule.source, fields),
        fill(remedy, fields) if remedy else None,
    )
