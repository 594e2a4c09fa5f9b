# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the instances are started: arguments, environment, ports and cards. Every value comes with its reason."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from pathlib import PurePosixPath
from typing import Any

from ansible_collections.blackwell.inference.plugins.plugin_utils._candidates import Candidate
from ansible_collections.blackwell.inference.plugins.plugin_utils._host import Finding, Host
from ansible_collections.blackwell.inference.plugins.plugin_utils._memory import Share
from ansible_collections.blackwell.inference.plugins.plugin_utils._rules import fill

Decision = dict[str, Any]
# One draft of three steps: what SGLang's documentation gives for the MTP head of this model family.
MTP = {"algorithm": "NEXTN", "num_steps": 3, "eagle_topk": 1, "num_draft_tokens": 4}


def decision(subject: str, choice: Any, because: str, source: str) -> Decision:
    return {"subject": subject, "choice": choice, "because": because, "source": source}


def speculation(model: Mapping[str, Any], request: Mapping[str, Any]) -> tuple[bool, Decision, list[Finding]]:
    """Whether the MTP head is used. It is never used unasked: nobody has measured it on these cards."""
    wish = request.get("speculative", "off")
    mtp = model.get("mtp") or {}
    usable = bool(mtp.get("usable"))
    why = mtp.get("reason") or (
        "the index does not name them" if mtp.get("files") else "the checkpoint has none" if mtp else "model_facts names none"
    )
    if wish == "mtp" and not usable:
        return False, decision("speculative decoding", None, why, "request"), [("mtp_unusable", {"found": why})]
    if wish == "off":
        because = "it was not asked for" + ("; the mtp tensors could be used (speculative: auto)." if usable else ".")
    elif usable:
        because = "the index names the mtp tensors, so they are really loaded."
    else:
        because = f"the mtp tensors cannot be used ({why}), so it is off."
    on = usable and wish != "off"
    return on, decision("speculative decoding", "mtp" if on else None, because, "model_facts and request"), []


def ports(policy: Mapping[str, Any], request: Mapping[str, Any], instances: int) -> tuple[list[int], list[Finding]]:
    """One port an instance; SGLang derives others from it, which must not be those of a neighbour."""
    base = request.get("port_base", policy["base"])
    given = [base + number * policy["step"] for number in range(instances)]
    fields = {"wanted": policy["highest"], "ports_source": policy["source"]}
    if given and (given[-1] > policy["highest"] or base < 1024):
        told = f"ports {given[0]} to {given[-1]} leave the range 1024 to {policy['highest']}, above which derived ports do not exist"
        return given, [("ports_collide", fields | {"found": told})]
    for low, high in combinations(given, 2):
        if high - low in policy["forbidden_distances"]:
            told = f"ports {low} and {high} are {high - low} apart, and SGLang derives one from the other"
            return given, [("ports_collide", fields | {"found": told})]
    return given, []


def _devices(host: Host) -> list[str]:
    names = [str(device["uuid"]) for device in host.used]
    step = host.tensor_parallel
    return [",".join(names[start : start + step]) for start in range(0, len(names), step)]


def _mamba(candidate: Candidate, request: Mapping[str, Any]) -> tuple[list[str], list[Decision]]:
    rules = [rule for rule, _context in candidate.matched if "mamba" in rule.then]
    if not rules:
        return [], []
    mamba, asked = rules[0].then["mamba"], request.get("mamba_strategy")
    needed = next((rule for rule, _context in candidate.matched if "mamba_value" in rule.then), None)
    value = asked or (needed.then["mamba_value"] if needed else None)
    if value is None:
        return [], []
    rule = needed if needed and not asked else rules[0]
    because = f"the request names it; {rule.because}" if asked else rule.because
    args = [mamba["flag"], value, *mamba["choices"][value]]
    return args, [decision("mamba cache", " ".join(args), because, rule.source)]


def _vision(candidate: Candidate) -> tuple[list[str], list[Decision]]:
    for rule, context in candidate.matched:
        if "mm_attention_backend" in rule.then:
            choice = rule.then["mm_attention_backend"]
            return ["--mm-attention-backend", choice], [decision("vision attention", choice, fill(rule.because, context), rule.source)]
    return [], []


def launch(
    candidate: Candidate, host: Host, model: Mapping[str, Any], request: Mapping[str, Any], share: Share, given_ports: list[int], mtp: bool
) -> tuple[dict[str, Any], list[Decision]]:
    """(plan.launch, the decisions in it)."""
    backend = candidate.backend
    if backend is None:
        raise ValueError("a candidate without a backend is never launched")
    name = request.get("served_model_name") or PurePosixPath(model["path"]).name
    args = ["--model-path", model["path"], "--served-model-name", name, "--attention-backend", backend.name]
    args += ["--mem-fraction-static", f"{share.fraction:.3f}", "--enable-metrics"]
    decisions = [decision("attention backend", backend.name, backend.because, backend.source)]
    vision_args, vision_decisions = _vision(candidate)
    mamba_args, mamba_decisions = _mamba(candidate, request)
    args += vision_args + mamba_args
    decisions += vision_decisions + mamba_decisions
    decisions.append(decision("memory fraction", f"{share.fraction:.3f}", share.because, "gpu_facts, model_facts and policy.yml"))
    for key in ("context_length", "max_running_requests"):
        if key in request:
            args += [f"--{key.replace('_', '-')}", str(request[key])]
            decisions.append(decision(key.replace("_", " "), request[key], "the request names it.", f"request.{key}"))
    if host.tensor_parallel > 1:
        args += ["--tp-size", str(host.tensor_parallel)]
    if mtp:
        for key, value in MTP.items():
            args += [f"--speculative-{key.replace('_', '-')}", str(value)]
    env: dict[str, str] = {}
    for rule, _context in candidate.matched:
        for key, value in rule.then.get("env", {}).items():
            env.setdefault(key, value)
            decisions.append(decision(f"environment {key}", value, rule.because, rule.source))
    mode = "data_parallel" if host.tensor_parallel == 1 or host.instances > 1 else "tensor_parallel"
    each = "one GPU" if host.tensor_parallel == 1 else f"{host.tensor_parallel} GPUs"
    because = f"one server for each of {host.instances} x {each}: no traffic between them, and one that fails takes no other along."
    decisions.insert(
        0,
        decision("instances", host.instances, because, "design of this collection" if "instances" not in request else "request.instances"),
    )
    return {
        "mode": mode,
        "instances": host.instances,
        "tensor_parallel": host.tensor_parallel,
        "attention_backend": backend.name,
        "speculative": dict(MTP) if mtp else None,
        "ports": given_ports,
        "devices": _devices(host),
        "args": args,
        "env": dict(sorted(env.items())),
    }, decisions
