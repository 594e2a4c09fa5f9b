# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""site.yml while a card, the driver or a container has a fault: it says what is wrong, touches no service, and heals.

Among them the refusals of the roles that nothing but a node with cards can show.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from site_runs import NODE, Run, in_container, lab, site

SERVING = "systemctl show 'inference@*' inference-gateway --property Id,MainPID,ActiveState"
DRIVER = ("--tags", "driver")
PLAN = ("--tags", "plan")


@dataclass(frozen=True)
class Refusal:
    """A fault, the stages that meet it (default: all of site.yml), the task that refuses, and what it says."""

    fault: str
    task: str
    fragments: tuple[str, ...]
    stages: tuple[str, ...] = ()


CHOOSE = "Choose the stack from the facts"
IN_CONTAINER = "Require the node's driver in the container"
REFUSALS = [
    Refusal(
        "device-missing 200/nvidia3",
        "Require every card that the container was given",
        ("wanted: also /dev/nvidia3, which its configuration gives it", "do: restart the container"),
        ("--tags", "container,driver"),
    ),
    Refusal(
        "module-version",
        "Refuse to exchange a driver that is loaded",
        ("found: driver 580.105.08 is loaded on kpro6", "wanted: 580.126.09", "do: set nvidia_driver_version"),
        DRIVER,
    ),
    Refusal("closed-module", CHOOSE, ("the closed ones", "-m=kernel-open"), PLAN),
    Refusal("lost 5", CHOOSE, ("GPU 5 (0000:a1:00.0)",), PLAN),
    Refusal("mig 2", CHOOSE, ("GPU 2 (0000:41:00.0)", "MIG"), PLAN),
    Refusal("device-missing 200/nvidia-uvm", CHOOSE, ("/dev/nvidia-uvm",), PLAN),
    Refusal("device-file 200/nvidia3", CHOOSE, ("GPU 3 (0000:61:00.0)", "/dev/nvidia3"), PLAN),
    Refusal("device-private 200/nvidia3", IN_CONTAINER, ('service user: ["/dev/nvidia3"]', "wanted: ", "do: "), DRIVER),
    Refusal("device-foreign 200/nvidiactl", IN_CONTAINER, ('service user: ["/dev/nvidiactl"]', "wanted: ", "do: "), DRIVER),
]


def refused(run: Run, task: str, *fragments: str) -> None:
    assert run.status != 0, run.output
    assert "Traceback" not in run.output
    assert run.tasks[-1] == task, run.output
    for fragment in fragments:
        assert fragment in run.said, f"{fragment!r} is not in:\n{run.output}"


@pytest.fixture(scope="module", autouse=True)
def heals() -> Iterator[None]:
    """After all the faults nothing is left to do."""
    yield
    run = site()
    assert run.status == 0, run.output
    assert run.changed == []


@pytest.fixture
def ends() -> Iterator[None]:
    yield
    lab("fault", NODE, "none")


@pytest.mark.usefixtures("ends")
@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal.fault)
def test_a_fault_is_named_and_no_service_is_touched(refusal: Refusal) -> None:
    before = in_container(SERVING)
    lab("fault", NODE, *refusal.fault.split())
    refused(site(*refusal.stages), refusal.task, *refusal.fragments)
    assert in_container(SERVING) == before


@pytest.mark.usefixtures("ends")
def test_a_driver_that_is_gone_is_installed_again() -> None:
    before = in_container(SERVING)
    lab("fault", NODE, "no-driver")
    predicted = site(*DRIVER, "--check")
    healed = site(*DRIVER)
    assert healed.status == 0, healed.output
    assert ("Run the installer file with the open kernel modules", NODE) in healed.changed
    assert set(predicted.changed) <= set(healed.changed) and predicted.changed
    assert in_container(SERVING) == before


@pytest.mark.usefixtures("ends")
def test_libraries_of_another_version_are_put_right() -> None:
    before = in_container(SERVING)
    lab("fault", NODE, "library", "200")
    run = site(*DRIVER)
    assert run.status == 0, run.output
    assert run.changed == [("Run the node's installer file without kernel modules", "kpro6-200")]
    assert "library" not in lab("status")
    assert in_container(SERVING) == before


@pytest.mark.usefixtures("ends")
def test_a_card_of_somebody_else_leaves_the_other_servers_alone() -> None:
    before = in_container(SERVING)
    in_container("systemctl stop inference@3")
    alone = in_container(SERVING)
    lab("fault", NODE, "busy", "3")
    refused(site(), CHOOSE, "GPU 3 (0000:61:00.0)", "not one of our services")
    assert in_container(SERVING) == alone
    lab("fault", NODE, "busy", "none")
    healed = site()
    assert healed.status == 0, healed.output
    assert [task for task, dummy_host in healed.changed] == ["Run one server per GPU"]
    changed = set(before.splitlines()) ^ set(in_container(SERVING).splitlines())
    assert {line.partition("=")[0] for line in changed} == {"MainPID"} and len(changed) == 2, changed


def test_a_container_without_python() -> None:
    before = in_container(SERVING)
    in_container("mv /usr/bin/python3 /usr/bin/python3.away")
    try:
        run = site("--tags", "container")
        task = "Require Python in the container"
        refused(run, task, "found: no python3 in the container", "wanted: a template", "do: choose another pve_container_template")
    finally:
        in_container("mv /usr/bin/python3.away /usr/bin/python3")
    assert in_container(SERVING) == before
