# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the resolver is given: facts and wishes, checked before anything is decided from them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import date
from typing import Any

from ansible_collections.blackwell.inference.plugins.plugin_utils._shape import Shape, problems

_PROBLEMS: Shape = [{"code": "text", "severity": "text", "found?": "any", "wanted?": "any", "remedy?": "any", "*": "any"}]

# Only keys that a plan is made from are asked for; facts may say more inside, but not under another name at the top.
GPU: Shape = {
    "driver": {"version": "version?", "flavour": "str?", "library_version": "str?", "matches?": "bool?", "*": "any"},
    "devices": [
        {
            "index": "int",
            "uuid": "word?",
            "name?": "str?",
            "pci_address": "text",
            "compute_capability": "capability?",
            "memory_mib": "count?",
            "memory_used_mib?": "amount?",
            "shared_memory_per_block_optin?": "amount?",
            "mig?": "bool?",
            "node?": "str?",
            "accessible?": "bool?",
            "lost?": "bool?",
            "holder_unknown?": "bool?",
            "processes?": [{"pid": "int", "name?": "str?", "memory_mib?": "amount?", "unit?": "str?", "*": "any"}],
            "*": "any",
        }
    ],
    "platform": {"machine": "text", "glibc": "version?", "pythons": {"*": "text"}, "*": "any"},
    "problems?": _PROBLEMS,
    "compute_capabilities?": "any",
    "container?": "any",
    "count?": "int?",
    "device_nodes?": "any",
    "sources?": "any",
}
MODEL: Shape = {
    "path": "text",
    "architectures": ["text"],
    "weight_bytes": "amount?",
    "attention": "any",
    "vision": "bool?",
    "kv_bytes_per_token?": "amount?",
    "state_bytes_per_request?": "amount?",
    "max_context?": "count?",
    "quantization?": "str?",
    "mtp?": {"configured?": "bool?", "indexed?": "bool?", "usable": "bool?", "files?": ["text"], "reason?": "str?", "*": "any"},
    "complete?": "bool?",
    "missing?": ["any"],
    "truncated?": ["any"],
    "problems?": _PROBLEMS,
    "dtype?": "any",
    "layers?": "any",
    "model_type?": "any",
    "parameters?": "any",
}
_ATTENTION: Shape = {"full": "amount?", "linear": "amount?", "*": "any"}
REQUEST: Shape = {
    "attention_backend?": "text?",
    "context_length?": "count?",
    "expected_compute_capability?": "capability?",
    "gpus?": ["any"],
    "instances?": "count?",
    "mamba_strategy?": "text?",
    "max_running_requests?": "count?",
    "port_base?": "count?",
    "served_model_name?": "text?",
    "sglang_version?": "version?",
    "speculative?": "text?",
    "tensor_parallel?": "count?",
}
STACK: Shape = {"path?": "str?", "distributions": {"*": "str"}, "cuda_major?": {"*": "int"}, "problems?": _PROBLEMS, "*": "any"}
SPECULATIVE = ("off", "auto", "mtp")
# YAML reads a bare off as false.
_OFF = (None, False)


# Which module measures what.
_MODULES = {"gpu": "gpu_facts", "model": "model_facts", "stack": "stack_facts"}


class InputError(ValueError):
    """Facts or wishes that cannot be used; the message names each place."""


def plain(value: Any, place: str) -> Any:
    """The value in plain types only: variables carry the templating engine's own, and YAML makes days of what looks like one."""
    if isinstance(value, str):
        return str(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    if isinstance(value, date):
        return value.isoformat()
    try:
        if isinstance(value, Mapping):
            return {str(key): plain(entry, f"{place}.{key}") for key, entry in value.items()}
        if isinstance(value, list | tuple):
            return [plain(entry, f"{place}[{number}]") for number, entry in enumerate(value)]
    except RecursionError:
        raise InputError(f"The input of the plan cannot be used:\n  - {place[:60]}... is nested without an end") from None
    raise InputError(
        f"The input of the plan cannot be used:\n  - {place} is of type {type(value).__name__}; wanted: plain data, as gpu_facts returns it"
    )


def _counted(key: str, value: Any) -> Any:
    """A number given by -e on the command line arrives as text."""
    number = REQUEST.get(f"{key}?") == "count?" and isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}", value)
    return int(value) if number else value


def check_request(request: Mapping[str, Any]) -> dict[str, Any]:
    """The wishes without those that are null: null means that the resolver chooses."""
    given = {key: _counted(key, value) for key, value in request.items()}
    if given.get("speculative") in _OFF:
        given.pop("speculative", None)
    if given.get("gpus", ()) is None:
        given.pop("gpus")
    found = problems(given, REQUEST, "request")
    if not found and given.get("speculative", "off") not in SPECULATIVE:
        found.append(f"request.speculative is {given['speculative']!r}; wanted: one of {', '.join(SPECULATIVE)}")
    if not found:
        for number, name in enumerate(given.get("gpus", ())):
            if isinstance(name, bool) or not isinstance(name, int | str):
                found.append(f"request.gpus[{number}] is {name!r}; wanted: the index or the UUID of a GPU")
        if "gpus" in given and not given["gpus"]:
            found.append("request.gpus is an empty list; wanted: at least one GPU, or leave it out for all of them")
    _refuse(found)
    return {key: value for key, value in given.items() if value is not None}


def check(gpu: Any, model: Any, request: Any, stack: Any = None) -> dict[str, Any]:
    """Raise InputError with everything that is wrong; return the wishes, cleaned."""
    found = problems(gpu, GPU, "gpu") + problems(model, MODEL, "model")
    if stack is not None:
        found += problems(stack, STACK, "stack")
    if request is not None and not isinstance(request, Mapping):
        found.append(f"request is {request!r}; wanted: a dictionary")
    if not found and not gpu["devices"]:
        found.append("gpu.devices is empty; wanted: at least one GPU. Are the device nodes passed into the container?")
    if not found and model["attention"] is not None:
        found += problems(model["attention"], _ATTENTION, "model.attention")
    _refuse(found)
    return check_request(request or {})


def _refuse(found: list[str]) -> None:
    if not found:
        return
    lines = ["The input of the plan cannot be used:", *(f"  - {problem}" for problem in found)]
    for name, module in _MODULES.items():
        if any(problem.startswith(f"{name}.") and problem.endswith(" is missing") for problem in found):
            lines.append(
                f"Facts that lack a key are of another version, or written by hand: measure {name} again with this collection's {module}."
            )
    raise InputError("\n".join(lines))
