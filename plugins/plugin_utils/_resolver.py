# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Facts and wishes in, a plan out. Pure and deterministic: it reads no file, no clock and no host."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from ansible_collections.blackwell.inference.plugins.plugin_utils import _evidence, _host, _launch, _memory
from ansible_collections.blackwell.inference.plugins.plugin_utils._candidates import Candidate, against_backend, consider
from ansible_collections.blackwell.inference.plugins.plugin_utils._conflicts import PlanError, failure
from ansible_collections.blackwell.inference.plugins.plugin_utils._existing import compare
from ansible_collections.blackwell.inference.plugins.plugin_utils._inputs import check
from ansible_collections.blackwell.inference.plugins.plugin_utils._knowledge import Knowledge
from ansible_collections.blackwell.inference.plugins.plugin_utils._launch import Decision, decision
from ansible_collections.blackwell.inference.plugins.plugin_utils._rules import Reason, fill, version


def identity(value: Any) -> str:
    """A short name for a value that equal values share."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def stack_identity(stack: Mapping[str, Any]) -> str:
    """Names what is installed. What the proof leaves out is no part of it, so a better worded rule asks for no new lock."""
    extra = {key: value for key, value in stack["extra"].items() if key != "gpu_code_exempt"}
    return identity({**stack, "extra": extra})


def _search(
    knowledge: Knowledge, host: _host.Host, base: _host.Fields, request: Mapping[str, Any], mtp: bool
) -> tuple[Candidate | None, list[Candidate]]:
    """The newest release that nothing stands against, and those that were looked at before it.

    Where reservations are left against every one, the newest of them.
    """
    pinned = request.get("sglang_version")
    if pinned is not None:
        for name in (name for name in knowledge.newest_first if version(name) == version(pinned)):
            candidate = consider(knowledge, name, host, base, request, mtp)
            if not candidate.reasons:
                return candidate, []
    seen: list[Candidate] = []
    for name in knowledge.newest_first:
        candidate = consider(knowledge, name, host, base, request, mtp)
        if not candidate.reasons and not candidate.reservations:
            return candidate, seen
        seen.append(candidate)
    second = next((number for number, candidate in enumerate(seen) if not candidate.reasons), None)
    return (None, seen) if second is None else (seen[second], seen[:second])


def _unknown_release(knowledge: Knowledge, request: Mapping[str, Any]) -> list[Reason]:
    pinned = request.get("sglang_version")
    if pinned is None or any(version(name) == version(pinned) for name in knowledge.releases):
        return []
    known = f"{knowledge.newest_first[-1]} to {knowledge.newest_first[0]}"
    return [
        Reason(
            "request.sglang_version",
            f"SGLang {pinned}",
            f"the knowledge base does not know SGLang {pinned}; it knows {len(knowledge.releases)} releases, {known}.",
            "releases.yml",
            f"sglang_version {knowledge.newest_first[0]}, or leave it open",
        )
    ]


def _as_of(knowledge: Knowledge, candidate: Candidate) -> str:
    given: str | None = next((rule.then["as_of"] for rule, _context in candidate.matched if "as_of" in rule.then), None)
    if given:
        return given
    return f"{candidate.of.uploaded + timedelta(days=knowledge.policy['grace_days'])}T00:00:00Z"


def _joined(candidate: Candidate, key: str) -> list[str]:
    return sorted({entry for rule, _context in candidate.matched for entry in rule.then.get(key, [])})


def _stack(knowledge: Knowledge, candidate: Candidate, host: _host.Host) -> dict[str, Any]:
    exempt = [
        {"file": pattern, "because": rule.because, "source": rule.source}
        for rule, _context in candidate.matched
        for pattern in rule.then.get("gpu_code_exempt", [])
    ]
    toolkit, pins = str(candidate.toolkit), candidate.of.pins
    return {
        "python": candidate.python,
        "sglang": candidate.release,
        "torch": pins["torch"],
        "torch_build": candidate.of.torch["build"][host.machine],
        "sgl_kernel": dict(pins["kernel"]),
        "flashinfer": pins["flashinfer"],
        "cuda_toolkit": toolkit,
        "driver_minimum": candidate.driver_minimum,
        "extra": {
            "as_of": _as_of(knowledge, candidate),
            "constraints": _joined(candidate, "constraints"),
            "overrides": _joined(candidate, "overrides"),
            "toolkit": sorted(knowledge.toolkits[toolkit]["parts"]),
            "toolkit_as_of": f"{knowledge.policy['as_of']}T00:00:00Z",
            "gpu_code_exempt": sorted(exempt, key=lambda entry: entry["file"]),
            "glibc": host.glibc,
            "machine": host.machine,
        },
    }


def support_of(candidate: Candidate, host: _host.Host) -> Decision:
    """The weakest part counts: what was proven, what a rule says of the support, and the attention backend."""
    parts = [
        (rule.then["support"], fill(rule.because, context), rule.source)
        for rule, context in candidate.matched + candidate.remarks
        if "support" in rule.then
    ]
    if (backend := candidate.backend) is not None:
        parts.append((backend.support, f"attention backend {backend.name}: {backend.because}", backend.source))
    level, because, source = _evidence.support(candidate.of, candidate.python, candidate.toolkit, host, parts)
    return decision("support", level, because, source)


def _stack_decisions(candidate: Candidate, stack: Mapping[str, Any], pinned: bool) -> list[Decision]:
    release = candidate.release
    newest = "it is the newest release that nothing stands against."
    if candidate.reservations:
        newest = "it is the newest release that can be used; none was proven on such a target."
    pin = f"SGLang {release} pins it."
    metadata = f"sglang {release} metadata"
    found = [
        decision("SGLang", release, "the request pins it." if pinned else newest, "request.sglang_version" if pinned else "rules.yml"),
        decision("Python", candidate.python, f"the target has it and SGLang {release} has wheels for it.", metadata),
        decision("torch", f"{stack['torch']} ({stack['torch_build']})", pin, metadata),
        decision("kernel wheel", " ".join(stack["sgl_kernel"].values()), pin, metadata),
        decision("flashinfer", stack["flashinfer"], pin, metadata),
    ]
    floor = [rule for rule, _context in candidate.matched if rule.then.get("toolkit_minimum")]
    because = f"one toolkit release of torch's CUDA major {candidate.of.torch['cuda_major']}, in a prefix of its own"
    decisive = max(floor, key=lambda rule: version(rule.then["toolkit_minimum"]), default=None)
    because += f"; {decisive.because}" if decisive else "."
    found.append(decision("CUDA toolkit", stack["cuda_toolkit"], because, decisive.source if decisive else "toolkits.yml"))
    driver = [rule for rule, _context in candidate.matched if rule.then.get("driver_minimum") == candidate.driver_minimum]
    if driver:
        found.append(decision("driver", f"{candidate.driver_minimum} or newer", driver[0].because, driver[0].source))
    day = [rule for rule, _context in candidate.matched if "as_of" in rule.then]
    because = day[0].because if day else "what existed when the release came out is what it was tested with."
    found.append(decision("locked as of", stack["extra"]["as_of"], because, day[0].source if day else "policy.yml (grace_days)"))
    for key in ("overrides", "constraints"):
        for rule, _context in candidate.matched:
            if rule.then.get(key):
                found.append(decision(key[:-1], ", ".join(rule.then[key]), rule.because, rule.source))
    return found


def resolve(knowledge: Knowledge, gpu: Any, model: Any, request: Any = None, stack: Any = None) -> dict[str, Any]:
    """The plan; InputError for what cannot be read, PlanError where there is none."""
    wishes = check(gpu, model, request, stack)
    host, found = _host.choose(gpu, wishes)
    base = _host.context(model, wishes, host)
    found += _host.findings(gpu, model, wishes, host)
    mtp, speculative_decision, mtp_findings = _launch.speculation(model, wishes)
    given_ports, port_findings = _launch.ports(knowledge.policy["ports"], wishes, host.instances)
    share, memory_findings = _memory.share(knowledge.policy["memory"], model, wishes, host, mtp)
    against, warnings = _host.judge(knowledge, found + mtp_findings + port_findings + memory_findings, base)
    against += _unknown_release(knowledge, wishes)
    candidate, refused = _search(knowledge, host, base, wishes, mtp) if host.used else (None, [])
    if against or candidate is None or share is None:
        raise PlanError(failure(against, [] if candidate or _unknown_release(knowledge, wishes) else refused))

    chosen = _stack(knowledge, candidate, host)
    launched, launch_decisions = _launch.launch(candidate, host, model, wishes, share, given_ports, mtp)
    support = support_of(candidate, host)
    decisions = [support, *_stack_decisions(candidate, chosen, "sglang_version" in wishes)]
    decisions += [*launch_decisions, speculative_decision]
    if stack is not None:
        decisions.append(compare(stack, chosen))
    for rule, context in candidate.matched + candidate.remarks:
        if "warn" in rule.then:
            warnings.append(fill(rule.then["warn"], context))
    rejected = [entry.entry() for other in refused for entry in other.reasons + other.reservations]
    rejected += _other_backends(knowledge, candidate)
    return {
        "stack_id": stack_identity(chosen),
        "launch_id": identity(launched),
        "stack": chosen,
        "launch": launched,
        "support": support["choice"],
        "decisions": decisions,
        "rejected": rejected,
        "warnings": list(dict.fromkeys(warnings)),
    }


def _other_backends(knowledge: Knowledge, candidate: Candidate) -> list[dict[str, str]]:
    """What the rules say against the backends that people ask for by name."""
    return [
        {**entry.entry(), "subject": "attention backend", "option": name}
        for name in sorted(knowledge.refusals)
        for entry in against_backend(knowledge, candidate, name)
    ]
