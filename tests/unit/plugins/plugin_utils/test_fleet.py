# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy
import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.blackwell.inference.plugins.plugin_utils import _fleet, _fleet_report, _knowledge
from ansible_collections.blackwell.inference.plugins.plugin_utils._conflicts import PlanError
from ansible_collections.blackwell.inference.plugins.plugin_utils._inputs import check
from ansible_collections.blackwell.inference.plugins.plugin_utils._resolver import resolve

sys.path.insert(0, str(Path(__file__).parent))
import cases
import fleet_kit as kit

WARNED = {"gpu.problems": [{"code": "persistence_off", "severity": "warning", "found": "8 of 8", "wanted": "on", "remedy": "switch it on"}]}
GONE = _fleet.Machine("gone1", message="ssh: no route to 192.0.2.1", unreachable=True)
GONE_TOO = _fleet.Machine("gone2", message="ssh: no route to 192.0.2.2", unreachable=True)


def document(*machines: _fleet.Machine, **more: Any) -> dict[str, Any]:
    return _fleet.document(_knowledge.load(), machines, **more)


def outline(made: dict[str, Any]) -> list[tuple[str, list[str]]]:
    return [(entry["state"], list(entry["hosts"])) for entry in made["classes"]]


@pytest.mark.parametrize("case", cases.PLANS, ids=list(cases.BY_NAME))
def test_a_class_gets_the_plan_that_each_of_its_hosts_gets_alone(case: dict[str, Any]) -> None:
    given = cases.facts(case.get("set"))
    machine = _fleet.Machine("one", given["gpu"], given["model"], case.get("request"))
    entry = document(machine)["classes"][0]
    try:
        alone = resolve(_knowledge.load(), given["gpu"], given["model"], case.get("request"))
    except PlanError as error:
        assert (entry["state"], entry["message"], entry["plan"]) == ("no plan", str(error), None)
        assert [reason["because"] for reason in entry["conflicts"]] == [reason.because for reason in error.failure.conflicts]
        assert (entry["needed"], entry["ways_out"]) == (error.failure.needed, error.failure.ways_out)
        return
    own = entry["hosts"]["one"]
    plan = copy.deepcopy(entry["plan"])
    plan["launch"]["devices"] = own["devices"]
    assert plan | {"launch_id": own["launch_id"]} == alone


def test_equal_hosts_are_one_class_and_are_planned_once() -> None:
    asked = []

    def counted(*given: Any) -> dict[str, Any]:
        asked.append(given)
        return resolve(*given)

    machines = [kit.machine(f"kpro{number}", WARNED if number == 3 else None) for number in range(1, 9)]
    machines += [kit.machine(f"old{number}", kit.OLD_DRIVER) for number in range(1, 3)]
    made = document(*machines, resolve=counted)
    assert len(asked) == 2
    assert outline(made) == [
        ("planned", [f"kpro{number}" for number in range(1, 9)]),
        ("planned", ["old1", "old2"]),
    ]
    assert len({own["launch_id"] for entry in made["classes"] for own in entry["hosts"].values()}) == 10
    assert made["classes"][0]["hosts"]["kpro2"]["devices"] == [f"GPU-kpro2-{number}" for number in range(8)]
    assert made["classes"][0]["remarks"] == [{"text": "persistence_off: 8 of 8; wanted: on; do: switch it on", "hosts": ["kpro3"]}]


DIFFERENT: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("driver", {"gpu.driver.version": "580.126.10", "gpu.driver.library_version": "580.126.10"}, {}),
    ("card", {"gpu.devices.0.name": "another"}, {}),
    ("memory", {"gpu.devices.0.memory_mib": 97000}, {}),
    ("glibc", {"gpu.platform.glibc": "2.40"}, {}),
    ("model", {"model.path": "/elsewhere"}, {}),
    ("wish", {}, {"port_base": 31000}),
]
ALIKE: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("PCI addresses", {"gpu.devices.7.pci_address": "0000:f1:00.0"}, {}),
    ("host memory", {"gpu.platform.memory_mib": 1}, {}),
    ("container", {"gpu.container.vmid": 201}, {}),
    ("our own servers", {"gpu.devices.*.processes": [{"pid": 7, "name": "python", "memory_mib": 9000, "unit": "inference@1.service"}]}, {}),
    ("a wish for nothing", {}, {"port_base": None}),
]


@pytest.mark.parametrize(("changes", "request_"), [entry[1:] for entry in DIFFERENT], ids=[entry[0] for entry in DIFFERENT])
def test_what_a_plan_is_made_from_parts_the_classes(changes: dict[str, Any], request_: dict[str, Any]) -> None:
    assert len(document(kit.machine("a"), kit.machine("b", changes, request_))["classes"]) == 2


@pytest.mark.parametrize(("changes", "request_"), [entry[1:] for entry in ALIKE], ids=[entry[0] for entry in ALIKE])
def test_what_enters_no_plan_parts_no_class(changes: dict[str, Any], request_: dict[str, Any]) -> None:
    assert len(document(kit.machine("a"), kit.machine("b", changes, request_))["classes"]) == 1


def test_cards_asked_for_by_uuid_are_those_of_each_host() -> None:
    machines = [kit.machine(name, request={"gpus": [f"GPU-{name}-5", f"GPU-{name}-2"]}) for name in ("a", "b")]
    made = document(*machines)
    assert outline(made) == [("planned", ["a", "b"])]
    assert made["classes"][0]["hosts"]["b"]["devices"] == ["GPU-b-2", "GPU-b-5"]
    foreign = document(kit.machine("a", request={"gpus": ["GPU-b-2"]}))["classes"][0]
    assert foreign["state"] == "no plan" and "GPU-b-2" in foreign["message"]


def test_a_card_that_somebody_holds_is_still_refused() -> None:
    held = {"gpu.devices.0.processes": [{"pid": 7, "name": "train", "memory_mib": 9000, "unit": None}]}
    unseen = {"gpu.devices.0.holder_unknown": True}
    made = document(kit.machine("a", held), kit.machine("b", unseen))
    assert outline(made) == [("no plan", ["a"]), ("no plan", ["b"])]
    assert "train, 9000 MiB" in made["classes"][0]["message"] and "MiB are in use" in made["classes"][1]["message"]


def test_every_host_without_a_plan_is_a_row_and_stands_below_those_with_one() -> None:
    machines = [
        GONE_TOO,
        _fleet.Machine("deaf", message="gpu_facts: no such interpreter"),
        kit.machine("wrong", {"gpu.devices.3.memory_mib": "96 GB"}),
        kit.machine("torn", kit.OLD_DRIVER, {"sglang_version": "0.5.12"}),
        GONE,
        kit.machine("zzz"),
    ]
    made = document(*machines)
    assert outline(made) == [
        ("planned", ["zzz"]),
        ("no plan", ["torn"]),
        ("unusable facts", ["wrong"]),
        ("no facts", ["deaf"]),
        ("unreachable", ["gone1", "gone2"]),
    ]
    assert (made["hosts"], made["planned"]) == (6, 1)
    assert made["without_plan"] == ["deaf", "gone1", "gone2", "torn", "wrong"]
    said = " ".join(_fleet_report.table(made, False).split())
    for words in (
        "torn 8 x NVIDIA RTX PRO 6000",
        "570.172.08 NO PLAN",
        "conflict driver: the driver is 570.172.08",
        "one way out driver 580 or newer",
        "wrong - - UNUSABLE FACTS",
        "gpu.devices[3].memory_mib is '96 GB'; wanted: a whole number",
        "deaf - - NO FACTS - found gpu_facts: no such interpreter",
        "gone[1-2] - - UNREACHABLE - 2 hosts found gone1: ssh: no route",
        "6 hosts in 5 classes: 1 with a plan, 5 without.",
    ):
        assert words in said, words
    assert "BECAUSE" not in said
    explained = _fleet_report.table(made, True)
    assert "gone2: ssh: no route to 192.0.2.2" in explained and "BECAUSE" in explained


def test_changes_that_are_needed_stand_apart_from_those_of_which_one_is_enough() -> None:
    both = document(kit.machine("a", kit.OLD_DRIVER | {"gpu.driver.flavour": "closed"}, {"sglang_version": "0.5.12"}))["classes"][0]
    kinds = [kind for kind, _text in _fleet_report.notes(both)]
    assert kinds.count("needed") == 1 and kinds.count("one way out") == 2
    assert "open" in both["needed"][0]
    no_way = dict(both, needed=[], ways_out=[])
    assert _fleet_report.notes(no_way)[-1] == ("way out", _fleet_report.NO_WAY)


def test_the_order_of_the_hosts_changes_nothing() -> None:
    machines = [kit.machine(f"k{number}", kit.OLD_DRIVER if number % 3 else WARNED) for number in range(9)] + [GONE, GONE_TOO]
    wanted = json.dumps(document(*machines))
    for seed in range(3):
        random.Random(seed).shuffle(machines)
        assert json.dumps(document(*machines)) == wanted


def test_no_host_is_a_document_too() -> None:
    made = document()
    assert made["classes"] == [] and "0 hosts in 0 classes" in _fleet_report.table(made, True)


def test_what_was_seen_beside_the_plan_is_told() -> None:
    machine = kit.machine("a")
    noted = _fleet.Machine("a", machine.gpu, machine.model, remarks=("the existing environment cannot be read",))
    assert "facts say    the existing environment cannot be read" in _fleet_report.table(document(noted, kit.machine("b")), False)


def test_facts_without_own_names_are_facts() -> None:
    facts, wishes, uuids = _fleet.without_own_names(cases.BASE["gpu"], {"gpus": [0, "GPU-00000001-0000-4000-8000-000000000001"]})
    assert check(facts, cases.BASE["model"], wishes) == wishes
    assert wishes["gpus"][0] == 0 and uuids[wishes["gpus"][1]] == "GPU-00000001-0000-4000-8000-000000000001"
    assert "GPU-0000" not in json.dumps(facts)
    assert "GPU-0000" in json.dumps(cases.BASE["gpu"]), "the facts that were given stay as they are"
