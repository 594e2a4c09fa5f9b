# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The host and the model as a plan sees them: which cards are used, and what no choice of release could cure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ansible_collections.blackwell.inference.plugins.module_utils._gpu_sources import IDLE_MIB, OUR_UNITS
from ansible_collections.blackwell.inference.plugins.plugin_utils._knowledge import Knowledge
from ansible_collections.blackwell.inference.plugins.plugin_utils._rules import Reason, counts, fill, reason

# Problems of gpu_facts that the rules judge themselves, for the cards that are used.
_JUDGED_BY_RULES = frozenset(
    {
        "closed_kernel_module",
        "driver_library_mismatch",
        "driver_not_loaded",
        "driver_too_old",
        "gpu_busy",
        "gpu_held_unknown",
        "gpu_lost",
    }
)
_CARD_NODE = re.compile(r"/dev/nvidia[0-9]+\b")

Fields = dict[str, Any]
Finding = tuple[str, Fields]


@dataclass(frozen=True)
class Host:
    """What is stable about the host: the input of every hash. Memory in use and processes are not here."""

    driver: str | None
    machine: str
    glibc: str | None
    pythons: tuple[str, ...]
    devices: tuple[Mapping[str, Any], ...]
    instances: int
    tensor_parallel: int

    @cached_property
    def used(self) -> tuple[Mapping[str, Any], ...]:
        return self.devices[: self.instances * self.tensor_parallel]

    @cached_property
    def classes(self) -> list[tuple[str, int | None]]:
        """Each capability once, with the least shared memory that a block gets on a card of it."""
        least: dict[str, int | None] = {}
        for device in self.used:
            capability = device["compute_capability"]
            memory = device.get("shared_memory_per_block_optin")
            if capability is not None:
                known = [size for size in (least.get(capability), memory) if size is not None]
                least[capability] = min(known) if known else None
        return sorted(least.items(), key=lambda entry: [int(part) for part in entry[0].split(".")])

    @property
    def memory_mib(self) -> int | None:
        """The smallest card counts: all instances get the same arguments."""
        sizes = [device.get("memory_mib") for device in self.used]
        return None if None in sizes or not sizes else min(size for size in sizes if size is not None)


def _linear(model: Mapping[str, Any]) -> bool:
    return bool((model["attention"] or {}).get("linear"))


def context(model: Mapping[str, Any], request: Mapping[str, Any], host: Host) -> Fields:
    """What the rules may ask about, apart from the release and the GPU class."""
    return {
        "architectures": model["architectures"],
        "hybrid": _linear(model),
        "vision": bool(model["vision"]),
        "quantization": model.get("quantization"),
        "machine": host.machine,
        "tensor_parallel_used": host.tensor_parallel > 1,
        "backend": request.get("attention_backend"),
        "mamba": request.get("mamba_strategy"),
    }


def choose(gpu: Mapping[str, Any], request: Mapping[str, Any]) -> tuple[Host, list[Finding]]:
    """The cards in PCI order, as many as are asked for; memory in use never changes which."""
    ordered = sorted(gpu["devices"], key=lambda device: device["pci_address"])
    wanted = request.get("gpus")
    found: list[Finding] = []
    if wanted is not None:
        names = {name for device in ordered for name in (device["index"], device["uuid"])}
        has = ", ".join(str(device["index"]) for device in ordered)
        found += [("no_such_gpu", {"found": name, "wanted": has}) for name in wanted if name not in names]
        ordered = [device for device in ordered if device["index"] in wanted or device["uuid"] in wanted]
    parallel = request.get("tensor_parallel", 1)
    possible = len(ordered) // parallel
    instances = request.get("instances", possible)
    told = {"found": instances, "parallel": parallel, "cards": len(ordered), "wanted": possible}
    if ordered and possible == 0:
        found.append(("too_few_cards", told))
    elif instances > possible:
        found.append(("too_many_instances", told))
    host = Host(
        gpu["driver"]["version"],
        gpu["platform"]["machine"],
        gpu["platform"]["glibc"],
        tuple(sorted(gpu["platform"]["pythons"], key=lambda name: (len(name), name), reverse=True)),
        tuple(ordered),
        min(instances, possible),
        parallel,
    )
    return host, found


def findings(gpu: Mapping[str, Any], model: Mapping[str, Any], request: Mapping[str, Any], host: Host) -> Iterator[Finding]:
    """Everything about driver, cards and model that the rules have a word on."""
    yield from _of_driver(gpu["driver"], host)
    for device in host.used:
        yield from _of_card(device)
    capabilities = [capability for capability, _memory in host.classes]
    expected = request.get("expected_compute_capability")
    if expected is not None and capabilities and capabilities != [expected]:
        yield "expected_capability_differs", {"wanted": expected, "found": ", ".join(capabilities)}
    if len(capabilities) > 1:
        yield "mixed_host", {"found": ", ".join(capabilities)}
    yield from _of_model(model)
    mamba = request.get("mamba_strategy")
    if mamba is not None and not _linear(model):
        yield "mamba_needless", {"found": mamba}
    for source in (gpu, model):
        for problem in source.get("problems") or []:
            if problem["severity"] == "error" and not _judged(problem, host):
                yield "facts_error", {key: problem.get(key) or "unknown" for key in ("code", "found", "wanted", "remedy")}


def _judged(problem: Mapping[str, Any], host: Host) -> bool:
    if problem["code"] in _JUDGED_BY_RULES:
        return True
    nodes = set(_CARD_NODE.findall(str(problem.get("found"))))
    # A node of a card that is not used stands in nobody's way, and one of a card that is used is judged with that card.
    return bool(nodes)


def _of_driver(driver: Mapping[str, Any], host: Host) -> Iterator[Finding]:
    if driver["version"] is None:
        yield "driver_absent", {}
        return
    if driver["flavour"] == "closed":
        for capability, _memory in host.classes:
            yield "closed_modules", {"capability": capability}
    library = driver["library_version"]
    matches = library == driver["version"] if driver.get("matches") is None else driver["matches"]
    if library is not None and not matches:
        yield "driver_library_mismatch", {"found": library, "wanted": driver["version"]}


def _of_card(device: Mapping[str, Any]) -> Iterator[Finding]:
    fields: Fields = {"gpu": f"{device['index']} ({device['pci_address']})"}
    if device.get("lost"):
        yield "card_lost", fields
        return
    if device.get("mig"):
        yield "card_mig", fields
    if device.get("accessible") is False:
        yield "card_inaccessible", fields | {"found": device.get("node") or "a device node"}
    for key, finding in (("compute_capability", "capability_unknown"), ("uuid", "uuid_unknown"), ("memory_mib", "memory_unknown")):
        if device.get(key) is None:
            yield finding, fields
    for process in device.get("processes") or []:
        memory = process.get("memory_mib")
        if not (process.get("unit") or "").startswith(OUR_UNITS) and (memory is None or memory > IDLE_MIB):
            who = f"pid {process['pid']} ({process.get('name') or 'name unknown'}, {memory or 'unknown'} MiB)"
            yield "card_busy", fields | {"found": who}
    if device.get("holder_unknown"):
        used = device.get("memory_used_mib")
        yield "card_busy", fields | {"found": f"somebody who cannot be seen from here ({used} MiB are in use)"}


def _of_model(model: Mapping[str, Any]) -> Iterator[Finding]:
    lacking = [str(name) for key in ("missing", "truncated") for name in model.get(key) or []]
    told = any(problem["severity"] == "error" for problem in model.get("problems") or [])
    if not told and (model.get("complete") is False or lacking):
        yield "model_incomplete", {"found": ", ".join(lacking[:5]) or "model_facts says so"}
    if not told and model["weight_bytes"] is None:
        yield "weights_unknown", {}


def judge(knowledge: Knowledge, found: list[Finding], base: Fields) -> tuple[list[Reason], list[str]]:
    """What the rules say of the findings: reasons against any plan, and warnings beside one."""
    against: list[Reason] = []
    warnings: list[str] = []
    for name, fields in found:
        known = base | fields
        for rule in knowledge.findings.get(name, ()):
            if not counts(rule, known):
                continue
            if "refuse" in rule.then:
                new = reason(rule, "refuse", str(fields.get("gpu", fields.get("found", name))), known)
                if new not in against:
                    against.append(new)
            else:
                warnings.append(fill(rule.then["warn"], known))
    return against, warnings
