# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The comparisons with a GPU, on a recorded card: that they agree where all is well, and that each one can differ."""

from __future__ import annotations

import copy
import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import containers
import facts
import pytest
import trial
from ansible_collections.blackwell.inference.tests.unit.gpu import h200
from report import Report

TORCH = {"gpus": [{"name": "NVIDIA H200", "capability": "9.0", "multiprocessors": 132, "smem": 232448,
                   "uuid": "GPU-00000000-1111-2222-3333-444444444444"}], "pid": 42}  # fmt: skip
STACK = {"path": "/srv/stack", "lock_id": None, "distributions": {"torch": "2.11.0"}, "cuda_major": {"a.so": 13},
         "code": {"a.so": {"sm_90": 1}}, "units": {"a.so": 1}}  # fmt: skip
PRIVILEGED = {"code": "container_privileged", "severity": "warning"}


@pytest.fixture(autouse=True)
def device_nodes_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "is_char_device", lambda path: str(path).startswith("/dev/nvidia"))


def differing(report: Report) -> list[str]:
    return [row.name for row in report.rows if not row.equal]


def test_the_host_against_nvidia_smi() -> None:
    report = Report()
    facts.check_gpu(report, h200.gpu_facts(), ElementTree.fromstring(h200.SMI))
    assert (len(report.rows), differing(report)) == (18, [])


@pytest.mark.parametrize(
    ("said", "instead", "field"),
    [
        ("580.159.04", "580.126.09", "driver.version"),
        ("<cuda_version>13.0", "<cuda_version>12.9", "driver.cuda"),
        ("<attached_gpus>1", "<attached_gpus>2", "count"),
        ("00:06.0", "00:07.0", "devices[0].pci_address"),
        ("233510DE", "2BB110DE", "devices[0].pci_id"),
        ("GPU-0000", "GPU-1111", "devices[0].uuid"),
        ("NVIDIA H200", "NVIDIA H100", "devices[0].name"),
        ("<minor_number>0", "<minor_number>1", "devices[0].minor"),
        ("143771 MiB", "143770 MiB", "devices[0].memory_mib"),
        ("<current_ecc>Enabled", "<current_ecc>N/A", "devices[0].ecc"),
        ("<current_mig>Disabled", "<current_mig>Enabled", "devices[0].mig"),
        ("<persistence_mode>Enabled", "<persistence_mode>Disabled", "devices[0].persistence"),
        ("<current_link_width>16x", "<current_link_width>8x", "devices[0].pcie_width"),
        ("<max_link_width>16x", "<max_link_width>8x", "devices[0].pcie_width_max"),
        ("700.00 W", "600.00 W", "devices[0].power_limit_w"),
        ("<used>0 MiB", "<used>17 MiB", "devices[0].memory_used_mib"),
    ],
)
def test_each_field_can_differ(said: str, instead: str, field: str) -> None:
    report = Report()
    text = h200.SMI.replace(said, instead)
    assert text != h200.SMI
    facts.check_gpu(report, h200.gpu_facts(), ElementTree.fromstring(text))
    assert field in differing(report)


@contextmanager
def torch_holds() -> Iterator[dict[str, Any]]:
    yield TORCH


@contextmanager
def no_torch() -> Iterator[None]:
    yield None


def held_facts() -> dict[str, Any]:
    raw = copy.deepcopy(h200.RAW)
    raw["nvml"]["devices"][0]["memory_used"] = 1642 << 20
    raw["cuda"] = None
    return raw


def test_the_host_against_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "held_gpu", torch_holds)
    monkeypatch.setattr(facts, "collect", lambda _cuda: held_facts())
    report = Report()
    assert facts.check_torch(report, h200.gpu_facts()) == TORCH
    assert (len(report.rows), differing(report)) == (9, [])


def test_a_held_card_that_looks_free_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "held_gpu", torch_holds)
    monkeypatch.setattr(facts, "collect", lambda _cuda: copy.deepcopy(h200.RAW))
    report = Report()
    facts.check_torch(report, h200.gpu_facts())
    assert differing(report) == [
        "busy: CUDA is not asked",
        "busy: memory grew by 1 GiB or more",
        "busy: somebody is named, or said to be unknown",
        "busy: reported",
    ]


def test_without_torch_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "held_gpu", no_torch)
    report = Report()
    assert facts.check_torch(report, h200.gpu_facts()) is None
    assert report.untried == ["PyTorch"]


def said(key: str, value: dict[str, Any]) -> dict[str, Any]:
    return {"status": 0, "out": json.dumps({"ansible_facts": {key: value}}), "err": ""}


def answer(name: str, gpu: dict[str, Any], **others: dict[str, Any]) -> dict[str, Any]:
    return {"name": f"blackwell-{name}", "state": "running", "seconds": 1.0, "run": {"gpu": said("gpu", gpu), **others}}


def inside(unprivileged: bool, *problems: str) -> dict[str, Any]:
    gpu = h200.gpu_facts()
    gpu["container"] = {"type": "lxc", "unprivileged": unprivileged, "vmid": 200}
    gpu["problems"] = [{"code": code} for code in problems]
    return gpu


def good_answers() -> dict[str, dict[str, Any]]:
    whole = inside(True)
    return {
        "whole": answer("whole", whole, hidden=said("gpu", whole), smi={"status": 0, "out": h200.SMI, "err": ""},
                        model=said("model", trial.MODEL_FACTS), stack=said("stack", STACK)),
        "privileged": answer("privileged", inside(False, "container_privileged")),
        "without-card": answer("without-card", inside(True, "no_gpu_here")),
        "with-file": answer("with-file", inside(True, "device_node_not_char")),
        "without-library": answer("without-library", inside(True, "driver_library_missing")),
    }  # fmt: skip


def compared(answers: dict[str, dict[str, Any]], stack: dict[str, Any] = STACK) -> Report:
    report = Report()
    containers.compare_gpus(report, answers, h200.gpu_facts(), stack, TORCH)
    return report


def test_containers_that_agree() -> None:
    report = compared(good_answers())
    assert differing(report) == []
    assert len(report.rows) > 100


@pytest.mark.parametrize("name", ["whole", "privileged"])
@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        (("devices", 0, "memory_mib"), 1, "devices[0].memory_mib"),
        (("devices", 0, "node"), None, "devices[0].node"),
        (("driver", "matches"), False, "driver"),
        (("count",), 2, "count"),
        (("sources", "ecc"), "proc", "sources"),
        (("container", "type"), "docker", "container"),
        (("problems",), [{"code": "driver_library_mismatch"}], "problems"),
        (("problems",), [{"code": "ecc_off"}], "container_privileged is said"),
    ],
)
def test_a_container_that_differs(name: str, path: tuple[Any, ...], value: Any, field: str) -> None:
    answers = good_answers()
    gpu = json.loads(answers[name]["run"]["gpu"]["out"])["ansible_facts"]["gpu"]
    *parents, last = path
    place = gpu
    for key in parents:
        place = place[key]
    place[last] = value
    if name == "whole" and field == "container_privileged is said":
        gpu["problems"] = [PRIVILEGED]
    answers[name]["run"]["gpu"] = said("gpu", gpu)
    assert field in differing(compared(answers))


@pytest.mark.parametrize("name", ["without-card", "with-file", "without-library"])
def test_a_container_that_lacks_something_and_does_not_say_so(name: str) -> None:
    answers = good_answers()
    answers[name] = answer(name, inside(True))
    (found,) = differing(compared(answers))
    assert found.startswith(f"{name}: ")


def test_a_card_that_the_service_user_cannot_open_differs() -> None:
    answers = good_answers()
    gpu = inside(True)
    gpu["devices"][0]["accessible"] = False
    answers["whole"]["run"]["gpu"] = said("gpu", gpu)
    assert differing(compared(answers)) == ["accessible to the service user"]


def test_nvidia_smi_that_fails_is_a_difference() -> None:
    answers = good_answers()
    answers["whole"]["run"]["smi"] = {"status": 127, "out": "", "err": "not found"}
    assert differing(compared(answers)) == ["nvidia-smi runs"]


@pytest.mark.parametrize("key", ["path", "lock_id", "distributions", "cuda_major", "code", "units"])
def test_a_stack_that_is_another_in_the_container(key: str) -> None:
    assert differing(compared(good_answers(), {**STACK, key: {"other": {"sm_80": 1}}})) == [f"{key} as on the host"]


@pytest.mark.parametrize("key", ["distributions", "cuda_major", "code"])
def test_two_empty_stacks_are_no_agreement(key: str) -> None:
    answers = good_answers()
    empty = {**STACK, key: {}}
    answers["whole"]["run"]["stack"] = said("stack", empty)
    assert differing(compared(answers, empty)) == [f"{key}: there is something to compare"]


class OneContainer:
    def __init__(self, gpu: dict[str, Any]) -> None:
        self._gpu = gpu

    def serve(self, _containers: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
        return {"busy": answer("busy", self._gpu)}


@pytest.mark.parametrize(
    ("used", "unknown", "problem", "wanted"),
    [
        (1642, True, "gpu_held_unknown", []),
        (1642, False, "gpu_held_unknown", ["the holder is named, or said to be unknown"]),
        (1642, True, "ecc_off", ["reported"]),
        (3, True, "gpu_busy", ["memory grew by 1 GiB or more"]),
    ],
)
def test_a_card_held_from_outside(monkeypatch: pytest.MonkeyPatch, used: int, unknown: bool, problem: str, wanted: list[str]) -> None:
    monkeypatch.setattr(containers, "held_gpu", torch_holds)
    gpu = inside(True)
    gpu["devices"][0].update(memory_used_mib=used, holder_unknown=unknown)
    gpu["problems"] = [{"code": problem, "found": "something"}]
    report = Report()
    containers.check_held(report, OneContainer(gpu), h200.gpu_facts(), {})  # type: ignore[arg-type]
    assert differing(report) == wanted
