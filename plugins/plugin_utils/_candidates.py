# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One release at a time: what it would install here, and every reason why it cannot be used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.blackwell.inference.plugins.plugin_utils import _evidence
from ansible_collections.blackwell.inference.plugins.plugin_utils._backends import Backend, choose_backend
from ansible_collections.blackwell.inference.plugins.plugin_utils._host import Fields, Finding, Host
from ansible_collections.blackwell.inference.plugins.plugin_utils._knowledge import Knowledge
from ansible_collections.blackwell.inference.plugins.plugin_utils._releases import Release
from ansible_collections.blackwell.inference.plugins.plugin_utils._rules import Context, Reason, Rule, counts, matching, reason, version

OLDEST_NCCL = "2.27"


@dataclass(frozen=True)
class Candidate:
    """reasons: it cannot be used; reservations: only where no other can be."""

    of: Release
    python: str | None
    toolkit: str | None
    driver_minimum: str
    backend: Backend | None
    contexts: list[Fields]
    matched: list[tuple[Rule, Context]]
    reasons: list[Reason] = field(default_factory=list)
    reservations: list[Reason] = field(default_factory=list)
    remarks: list[tuple[Rule, Context]] = field(default_factory=list)

    @property
    def release(self) -> str:
        return self.of.name

    @property
    def subjects(self) -> frozenset[str]:
        return frozenset(entry.subject for entry in self.reasons)


def _platform(release: Release, host: Host) -> Iterator[Finding]:
    if host.machine not in release.machines:
        yield "machine_absent", {"found": host.machine, "wanted": " or ".join(release.machines)}
    elif release.torch["build"].get(host.machine, "cpu") == "cpu":
        yield "torch_cpu_only", {}
    if host.glibc is None or version(host.glibc) < version(release.glibc):
        yield "glibc_too_old", {"found": host.glibc or "an unknown one", "wanted": release.glibc}


def _binaries(release: Release, host: Host) -> Iterator[Finding]:
    """Does the measured code of the wheels run on every class of card, and do they belong together?"""
    kernel, torch = release.kernel_code.get(host.machine), release.torch_code.get(host.machine)
    if kernel and kernel["cuda_major"] != release.torch["cuda_major"]:
        yield "cuda_majors_differ", {"found": kernel["cuda_major"], "wanted": release.torch["cuda_major"]}
    if release.kernel_torch not in (None, release.pins["torch"]):
        yield "kernel_pair_differs", {"found": release.pins["torch"], "wanted": release.kernel_torch}
    for finding, code in (("kernel_code_absent", kernel), ("torch_code_absent", torch)):
        if code is None:
            continue
        for capability, _memory in host.classes:
            if not _evidence.holds_code(tuple(code["runs"]), capability):
                yield finding, {"capability": capability, "found": ", ".join(code["runs"])}


def _models(knowledge: Knowledge, release: Release, architectures: list[str]) -> Iterator[Finding]:
    for name in architectures:
        known = knowledge.models.get(name)
        if known is None:
            yield "model_not_listed", {"found": name}
        elif version(release.name) < version(known["first"]):
            yield "model_unknown", {"found": name, "wanted": known["first"], "models_source": known["source"]}


def _mamba(matched: list[tuple[Rule, Context]], wanted: str | None) -> Iterator[Finding]:
    rule = next((rule for rule, _context in matched if "mamba" in rule.then), None)
    if rule and wanted is not None and wanted not in rule.then["mamba"]["choices"]:
        choices = ", ".join(rule.then["mamba"]["choices"])
        yield "mamba_choice_unknown", {"found": wanted, "wanted": choices, "mamba_source": rule.source}


def _minimum(matched: list[tuple[Rule, Context]], key: str) -> str | None:
    values = [rule.then[key] for rule, _context in matched if key in rule.then]
    return max(values, key=version) if values else None


def _toolkit(knowledge: Knowledge, major: int, floor: str | None) -> str | None:
    """One toolkit release of torch's CUDA major: the oldest that reaches the floor, nearest to torch's own libraries."""
    able = [
        name
        for name, toolkit in knowledge.toolkits.items()
        if toolkit["cuda_major"] == major and (floor is None or version(name) >= version(floor))
    ]
    return min(able, key=version) if able else None


def contexts_of(knowledge: Knowledge, release: Release, python: str | None, host: Host, base: Fields, speculative: bool) -> list[Fields]:
    """What the rules may ask about this release, once for each class of card."""
    shared: Fields = {**base, **release.fields, "python": python, "speculative": speculative}
    usual = knowledge.usual_shared_memory
    return [
        {**shared, "capability": capability, "shared_memory": usual.get(capability) if memory is None else memory}
        for capability, memory in host.classes
    ] or [{**shared, "capability": None, "shared_memory": None}]


def consider(knowledge: Knowledge, name: str, host: Host, base: Fields, request: Mapping[str, Any], speculative: bool) -> Candidate:
    """Judge one release on these facts; the reasons tell whether it can be used."""
    release = knowledge.prepared[name]
    pinned = request.get("sglang_version")
    python = _evidence.choose_python(release, host)
    contexts = contexts_of(knowledge, release, python, host, base, speculative)
    matched = matching(release.rules, contexts)
    floor = _minimum(matched, "toolkit_minimum")
    major = release.torch["cuda_major"]
    toolkit = _toolkit(knowledge, major, floor)
    driver_minimum = _minimum(matched, "driver_minimum") or "0"
    backend, against_backend, words = choose_backend(matched, knowledge.refusals, contexts, request.get("attention_backend"))
    candidate = Candidate(release, python, toolkit, driver_minimum, backend, contexts, matched)

    found: list[Finding] = []
    if pinned is not None and version(pinned) != version(name):
        found.append(("another_release_pinned", {"wanted": pinned}))
    if host.driver is not None and version(host.driver) < version(driver_minimum):
        found.append(("driver_too_old", {"found": host.driver, "wanted": driver_minimum}))
    found += _models(knowledge, release, base["architectures"])
    if python is None:
        has = ", ".join(host.pythons) or "none"
        found.append(("python_absent", {"found": has, "wanted": ", ".join(release.pythons)}))
    found += _platform(release, host)
    found += _binaries(release, host)
    needs = next((rule.then["kernel_needs_torch"] for rule, _context in matched if "kernel_needs_torch" in rule.then), None)
    if needs not in (None, release.pins["torch"]):
        found.append(("kernel_pair_differs", {"found": release.pins["torch"], "wanted": needs}))
    if toolkit is None:
        found.append(("toolkit_absent", {"wanted": floor or str(major)}))
    if host.tensor_parallel > 1 and version(release.torch["nccl"]) < version(OLDEST_NCCL):
        found.append(("nccl_too_old", {"found": release.torch["nccl"], "wanted": OLDEST_NCCL}))
    found += _mamba(matched, request.get("mamba_strategy"))
    asked_for = pinned is not None and version(pinned) == version(name)
    found += _evidence.gaps(knowledge, release, python, host.machine, asked_for)
    found += against_backend

    _judge(knowledge, candidate, found, words)
    return candidate


def _judge(knowledge: Knowledge, candidate: Candidate, found: list[Finding], words: Fields) -> None:
    """Sort what the rules say into reasons, reservations and remarks."""
    option = f"SGLang {candidate.release}"
    shared = {**candidate.contexts[0], **words}
    for rule, context in candidate.matched:
        if "refuse" in rule.then:
            candidate.reasons.append(reason(rule, "refuse", option, {**words, **context}))
    for finding, fields in found:
        known = {**shared, **fields}
        for rule in knowledge.findings.get(finding, ()):
            if not counts(rule, known):
                continue
            if "refuse" in rule.then:
                if (new := reason(rule, "refuse", option, known)) not in candidate.reasons:
                    candidate.reasons.append(new)
                continue
            candidate.remarks.append((rule, known))
            if "defer" in rule.then:
                candidate.reservations.append(reason(rule, "defer", option, known))


def against_backend(knowledge: Knowledge, candidate: Candidate, name: str) -> list[Reason]:
    """What the rules would say of another attention backend on this release."""
    contexts = [{**context, "backend": name} for context in candidate.contexts]
    matched = matching(candidate.of.rules, contexts)
    _backend, found, words = choose_backend(matched, knowledge.refusals, contexts, name)
    other = Candidate(candidate.of, candidate.python, candidate.toolkit, candidate.driver_minimum, None, contexts, matched)
    _judge(knowledge, other, found, words)
    return other.reasons
