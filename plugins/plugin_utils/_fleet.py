# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One plan for each class of machines that are alike, and a row for every machine without one. Pure; private to the collection."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.blackwell.inference.plugins.module_utils._gpu_sources import OUR_UNITS
from ansible_collections.blackwell.inference.plugins.plugin_utils import _report, _resolver
from ansible_collections.blackwell.inference.plugins.plugin_utils._conflicts import PlanError
from ansible_collections.blackwell.inference.plugins.plugin_utils._host_names import natural
from ansible_collections.blackwell.inference.plugins.plugin_utils._inputs import GPU, MODEL, STACK, InputError, check, plain
from ansible_collections.blackwell.inference.plugins.plugin_utils._knowledge import Knowledge
from ansible_collections.blackwell.inference.plugins.plugin_utils._shape import pruned

SCHEMA = 1
PLANNED, NO_PLAN, UNUSABLE, NO_FACTS, UNREACHABLE = STATES = ("planned", "no plan", "unusable facts", "no facts", "unreachable")
# What gpu_facts says beside what a plan is made from.
_BESIDE = frozenset({"compute_capabilities", "container", "count", "device_nodes", "sources"})

Document = dict[str, Any]
Resolve = Callable[[Knowledge, Any, Any, Any, Any], dict[str, Any]]


@dataclass(frozen=True)
class Machine:
    """What is known of one machine: its facts and wishes, or the message that says why there are none."""

    name: str
    gpu: Any = None
    model: Any = None
    request: Any = None
    stack: Any = None
    message: str | None = None
    unreachable: bool = False
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Answer:
    """What is said of one machine: `shared` is equal for all of a class, `own` is not."""

    machine: Machine
    shared: Mapping[str, Any]
    own: Mapping[str, Any]
    remarks: tuple[str, ...] = ()


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def without_own_names(gpu: Mapping[str, Any], wishes: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, str]]:
    """Facts and wishes in which machines that are alike are equal, and the UUID behind each neutral name.

    What is left out enters no plan: what other facts say, the memory that is in use, and the processes of our own units.
    """
    facts = {key: value for key, value in pruned(gpu, GPU).items() if key not in _BESIDE}
    facts["devices"] = sorted(facts["devices"], key=lambda device: device["pci_address"])
    names: dict[str, str] = {}
    for device in facts["devices"]:
        if device["uuid"] is not None:
            device["uuid"] = names.setdefault(device["uuid"], f"GPU-{len(names)}-of-the-host")
        if not device.get("holder_unknown"):
            device.pop("memory_used_mib", None)
        device["processes"] = [process for process in device.get("processes", []) if not (process.get("unit") or "").startswith(OUR_UNITS)]
    facts["problems"] = [problem for problem in facts.get("problems", []) if problem["severity"] == "error"]
    general = dict(wishes)
    if "gpus" in wishes:
        general["gpus"] = [names.get(name, name) for name in wishes["gpus"]]
    return facts, general, {neutral: uuid for uuid, neutral in names.items()}


def _remarks(gpu: Mapping[str, Any], model: Mapping[str, Any], stack: Mapping[str, Any] | None) -> tuple[str, ...]:
    """What the facts themselves warn of. Errors among them are judged by the plan."""
    return tuple(
        f"{problem['code']}: {problem.get('found') or 'unknown'}; wanted: {problem.get('wanted')}; do: {problem.get('remedy')}"
        for source in (gpu, model, stack or {})
        for problem in source.get("problems") or []
        if problem["severity"] == "warning"
    )


def _without(state: str, **more: Any) -> dict[str, Any]:
    nothing = dict.fromkeys(("driver", "platform", "model", "plan", "message"))
    return {"state": state, "gpus": [], "request": {}, "conflicts": [], "needed": [], "ways_out": [], **nothing, **more}


class _Planner:
    """Asks the resolver once for machines that are equal to it."""

    def __init__(self, knowledge: Knowledge, resolve: Resolve) -> None:
        self._knowledge = knowledge
        self._resolve = resolve
        self._known: dict[str, dict[str, Any]] = {}

    def answer(self, machine: Machine) -> Answer:
        if machine.unreachable:
            return Answer(machine, _without(UNREACHABLE), {"message": machine.message})
        if machine.message is not None:
            return Answer(machine, _without(NO_FACTS, message=machine.message), {})
        given = (machine.gpu, machine.model, machine.request, machine.stack)
        try:
            gpu, model, request, stack = (
                plain(value, name) for name, value in zip(("gpu", "model", "request", "stack"), given, strict=True)
            )
            wishes = check(gpu, model, request, stack)
        except InputError as error:
            return Answer(machine, _without(UNUSABLE, message=str(error)), {})
        facts, general, uuids = without_own_names(gpu, wishes)
        asked = (facts, pruned(model, MODEL), general, None if stack is None else pruned(stack, STACK))
        key = _text(asked)
        if key not in self._known:
            self._known[key] = self._solve(*asked)
        shared = {**self._known[key], **_report.host(facts, model), "request": general}
        own = {}
        if shared["plan"] is not None:
            devices = [",".join(uuids[name] for name in entry.split(",")) for entry in shared["plan"]["launch"]["devices"]]
            own = {"launch_id": _resolver.identity({**shared["plan"]["launch"], "devices": devices}), "devices": devices}
        return Answer(machine, shared, own, _remarks(gpu, model, stack))

    def _solve(self, gpu: Any, model: Any, request: Any, stack: Any) -> dict[str, Any]:
        try:
            plan = self._resolve(self._knowledge, gpu, model, request, stack)
        except PlanError as error:
            told = error.failure
            conflicts = [entry.entry() for entry in told.conflicts]
            return _without(NO_PLAN, message=str(error), conflicts=conflicts, needed=told.needed, ways_out=told.ways_out)
        return _without(PLANNED, plan=plan)


def _class_of(answers: list[Answer]) -> dict[str, Any]:
    answers = sorted(answers, key=lambda answer: natural(answer.machine.name))
    shared = dict(answers[0].shared)
    hosts = {answer.machine.name: dict(answer.own) for answer in answers}
    said: dict[str, list[str]] = {}
    for answer in answers:
        for remark in (*answer.remarks, *answer.machine.remarks):
            said.setdefault(remark, []).append(answer.machine.name)
    report = shared["message"] or "\n".join(f"{name}: {own['message']}" for name, own in hosts.items() if "message" in own)
    if shared["plan"] is not None:
        # The cards' names, and with them the id of the launch, are each host's own.
        launch = {key: value for key, value in shared["plan"]["launch"].items() if key != "devices"}
        shared["plan"] = {**{key: value for key, value in shared["plan"].items() if key != "launch_id"}, "launch": launch}
        only = {"launch_id": answers[0].own["launch_id"]} if len(answers) == 1 else {}
        report = _report.render({**shared["plan"], **only}, shared)
    remarks = [{"text": text, "hosts": names} for text, names in sorted(said.items())]
    return {**shared, "hosts": hosts, "remarks": remarks, "report": report}


def document(knowledge: Knowledge, machines: Iterable[Machine], resolve: Resolve = _resolver.resolve) -> Document:
    """All that is reported of these machines; the same machines give the same document, in any order."""
    planner = _Planner(knowledge, resolve)
    groups: dict[str, list[Answer]] = {}
    for machine in machines:
        answer = planner.answer(machine)
        groups.setdefault(_text(answer.shared), []).append(answer)
    classes = [_class_of(answers) for answers in groups.values()]
    classes.sort(key=lambda entry: (STATES.index(entry["state"]), natural(next(iter(entry["hosts"])))))
    without = [name for entry in classes if entry["state"] != PLANNED for name in entry["hosts"]]
    count = sum(len(entry["hosts"]) for entry in classes)
    return {
        "schema": SCHEMA,
        "knowledge_as_of": knowledge.policy["as_of"],
        "hosts": count,
        "planned": count - len(without),
        "without_plan": sorted(without, key=natural),
        "classes": classes,
    }
