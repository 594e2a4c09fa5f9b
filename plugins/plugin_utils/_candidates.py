# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One release at a time: what it would install here, and every reason why it cannot be used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from ansible_collections.blackwell.inference.plugins.module_utils._fatbin import runs_as
from ansible_collections.blackwell.inference.plugins.plugin_utils._backends import Backend, choose_backend
from ansible_collections.blackwell.inference.plugins.plugin_utils._host import Fields, Finding, Host
from ansible_collections.blackwell.inference.plugins.plugin_utils._knowledge import Knowledge
from ansible_collections.blackwell.inference.plugins.plugin_utils._rules import (
    Context,
    Reason,
    Rule,
    about,
    in_range,
    matching,
    reason,
    version,
)

OLDEST_NCCL = "2.27"


@dataclass(frozen=True)
class Candidate:
    release: str
    python: str | None
    torch: str
    torch_build: str
    kernel_name: str
    kernel_version: str
    flashinfer: str
    cuda_major: int
    toolkit: str | None
    driver_minimum: str
    backend: Backend | None
    contexts: list[Fields]
    matched: list[tuple[Rule, Context]]
    reasons: list[Reason] = field(default_factory=list)
    remarks: list[tuple[Rule, Context]] = field(default_factory=list)

    @property
    def subjects(self) -> frozenset[str]:
        return frozenset(entry.subject for entry in self.reasons)


def _pythons(release: Mapping[str, Any], torch: Mapping[str, Any], kernel: Mapping[str, Any]) -> list[str]:
    wheels = release["wheels"]
    offered = torch["pythons"] if wheels == "any" else [name for name in torch["pythons"] if name in wheels["pythons"]]
    return [name for name in offered if in_range(name, release["requires_python"]) and version(name) >= version(kernel["python"])]


def _proven(knowledge: Knowledge, name: str) -> list[Mapping[str, Any]]:
    return [row for row in knowledge.proven if row["release"] == name and row["result"] == "ok"]


def _python(knowledge: Knowledge, name: str, offered: list[str], host: Host) -> str | None:
    """The newest that the target has, but before it one that this release was proven with."""
    able = sorted((python for python in host.pythons if python in offered), key=version, reverse=True)
    proven = {row["python"] for row in _proven(knowledge, name)}
    return next((python for python in able if python in proven), able[0] if able else None)


def _evidence(knowledge: Knowledge, name: str, kernel: str, machine: str, pinned: str | None) -> Iterator[Finding]:
    age = (date.fromisoformat(knowledge.policy["as_of"]) - date.fromisoformat(knowledge.releases[name]["upload"][:10])).days
    lacking: list[Finding] = []
    if age < knowledge.policy["minimum_age_days"]:
        lacking.append(("too_young", {"found": age, "wanted": knowledge.policy["minimum_age_days"]}))
    if not _proven(knowledge, name):
        lacking.append(("not_proven", {}))
    if machine not in _code_of(knowledge, kernel, knowledge.releases[name]["pins"]["kernel"]["version"]):
        lacking.append(("kernel_not_inspected", {}))
    if pinned != name:
        yield from lacking
    elif lacking:
        words = {
            "too_young": "it is young",
            "not_proven": "we did not prove it",
            "kernel_not_inspected": "its kernel wheel was not inspected",
        }
        yield "pinned_without_proof", {"found": " and ".join(words[finding] for finding, _fields in lacking)}


def _code_of(knowledge: Knowledge, package: str, number: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = knowledge.code.get(package, {}).get(number, {})
    return found


def _platform(release: Mapping[str, Any], torch: Mapping[str, Any], kernel: Mapping[str, Any], host: Host) -> Iterator[Finding]:
    wheels = {} if release["wheels"] == "any" else release["wheels"]
    machines = [name for name in kernel["machines"] if name in wheels.get("machines", [name])]
    if host.machine not in machines:
        yield "machine_absent", {"found": host.machine, "wanted": " or ".join(machines)}
    elif torch["build"].get(host.machine, "cpu") == "cpu":
        yield "torch_cpu_only", {}
    needed = max((wheels.get("glibc", "2.5"), torch["glibc"], kernel["glibc"]), key=version)
    if host.glibc is None or version(host.glibc) < version(needed):
        yield "glibc_too_old", {"found": host.glibc or "an unknown one", "wanted": needed}


def _binaries(knowledge: Knowledge, pins: Mapping[str, Any], torch: Mapping[str, Any], host: Host) -> Iterator[Finding]:
    """Does the measured code of the wheels run on every class of card, and do they belong together?"""
    name, number = pins["kernel"]["name"], pins["kernel"]["version"]
    kernel = _code_of(knowledge, name, number).get(host.machine)
    if kernel and kernel["cuda_major"] != torch["cuda_major"]:
        yield "cuda_majors_differ", {"found": kernel["cuda_major"], "wanted": torch["cuda_major"]}
    declared = knowledge.kernels[name][number]["torch"]
    if declared not in (None, pins["torch"]):
        yield "kernel_pair_differs", {"found": pins["torch"], "wanted": declared}
    for finding, code in (
        ("kernel_code_absent", kernel),
        ("torch_code_absent", _code_of(knowledge, "torch", pins["torch"]).get(host.machine)),
    ):
        if code is None:
            continue
        for capability, _memory in host.classes:
            if not any(runs_as(f"sm_{arch}", capability) for arch in code["runs"]):
                yield finding, {"capability": capability, "found": ", ".join(code["runs"])}


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


def consider(knowledge: Knowledge, name: str, host: Host, base: Fields, request: Mapping[str, Any], speculative: bool) -> Candidate:
    """Judge one release on these facts; the reasons tell whether it can be used."""
    release = knowledge.releases[name]
    pins = release["pins"]
    torch = knowledge.torch[pins["torch"]]
    kernel = knowledge.kernels[pins["kernel"]["name"]][pins["kernel"]["version"]]
    pinned = request.get("sglang_version")
    offered = _pythons(release, torch, kernel)
    python = _python(knowledge, name, offered, host)
    shared: Fields = base | {
        "sglang": name,
        "python": python,
        "torch": pins["torch"],
        "kernel": f"{pins['kernel']['name']} {pins['kernel']['version']}",
        "kernel_name": pins["kernel"]["name"],
        "kernel_version": pins["kernel"]["version"],
        "flashinfer": pins["flashinfer"],
        "cuda_major": torch["cuda_major"],
        "speculative": speculative,
        "backend": request.get("attention_backend"),
    }
    usual = knowledge.policy["shared_memory"]
    contexts = [
        shared | {"capability": capability, "shared_memory": usual.get(capability) if memory is None else memory}
        for capability, memory in host.classes
    ] or [shared]
    matched = matching(knowledge.rules, contexts)
    toolkit_floor = _minimum(matched, "toolkit_minimum")
    toolkit = _toolkit(knowledge, torch["cuda_major"], toolkit_floor)
    driver_minimum = _minimum(matched, "driver_minimum") or "0"
    backend, backend_findings, backend_fields = choose_backend(matched, contexts, request.get("attention_backend"))

    found: list[Finding] = []
    if pinned is not None and version(pinned) != version(name):
        found.append(("another_release_pinned", {"wanted": pinned}))
    if host.driver is not None and version(host.driver) < version(driver_minimum):
        found.append(("driver_too_old", {"found": host.driver, "wanted": driver_minimum}))
    for architecture in base["architectures"]:
        known = knowledge.models.get(architecture)
        if known is None:
            found.append(("model_not_listed", {"found": architecture}))
        elif version(name) < version(known["first"]):
            found.append(("model_unknown", {"found": architecture, "wanted": known["first"], "models_source": known["source"]}))
    if python is None:
        has = ", ".join(host.pythons) or "none"
        found.append(("python_absent", {"found": has, "wanted": ", ".join(offered)}))
    found += _platform(release, torch, kernel, host)
    found += _binaries(knowledge, pins, torch, host)
    needs = next((rule.then["kernel_needs_torch"] for rule, _context in matched if "kernel_needs_torch" in rule.then), None)
    if needs not in (None, pins["torch"]):
        found.append(("kernel_pair_differs", {"found": pins["torch"], "wanted": needs}))
    if toolkit is None:
        found.append(("toolkit_absent", {"wanted": toolkit_floor}))
    if host.tensor_parallel > 1 and version(torch["nccl"]) < version(OLDEST_NCCL):
        found.append(("nccl_too_old", {"found": torch["nccl"], "wanted": OLDEST_NCCL}))
    found += _evidence(knowledge, name, pins["kernel"]["name"], host.machine, pinned)
    found += backend_findings

    candidate = Candidate(
        name,
        python,
        pins["torch"],
        torch["build"].get(host.machine, "cpu"),
        pins["kernel"]["name"],
        pins["kernel"]["version"],
        pins["flashinfer"],
        torch["cuda_major"],
        toolkit,
        driver_minimum,
        backend,
        contexts,
        matched,
    )
    _add_reasons(knowledge, candidate, found, shared | backend_fields)
    return candidate


def _add_reasons(knowledge: Knowledge, candidate: Candidate, found: list[Finding], shared: Fields) -> None:
    option = f"SGLang {candidate.release}"
    for rule, context in candidate.matched:
        if "refuse" in rule.then:
            candidate.reasons.append(reason(rule, option, {**shared, **context}))
    for finding, fields in found:
        for rule in about(knowledge.rules, finding, shared | fields):
            if "refuse" not in rule.then:
                candidate.remarks.append((rule, shared | fields))
            elif (new := reason(rule, option, shared | fields)) not in candidate.reasons:
                candidate.reasons.append(new)
