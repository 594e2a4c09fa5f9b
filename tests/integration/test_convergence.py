# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A second run changes nothing; what somebody altered is predicted by check mode and restored."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from site_runs import in_container, in_node, site

DUMP_CONTAINER = """
cd / && find etc/inference etc/systemd/system/inference* opt/inference var/lib/inference-state -printf '%p %y %m %u %g %s %T@ %l\\n' | sort
systemctl show 'inference@*' inference-gateway --property Id,MainPID,ActiveState,UnitFileState,NRestarts
"""
DUMP_NODE = """
cat /etc/pve/lxc/*.conf
cd / && find etc/systemd/system opt/inference var/lib/inference/wheels var/lib/inference/stacks -printf '%p %y %m %u %g %s %T@\\n' | sort
"""


@dataclass(frozen=True)
class Alteration:
    """Something a person may do by hand: where, how, how to see it, and the stage that restores it.

    One goes through the whole of site.yml; the others through their stage alone, which is what a person in a hurry does.
    """

    where: str
    alter: str
    look: str
    task: str
    stage: str = "all"


ALTERATIONS = {
    "unit file": Alteration(
        "container",
        "sed -i 's/^ProtectSystem=.*/ProtectSystem=no/' /etc/systemd/system/inference@.service",
        "cat /etc/systemd/system/inference@.service",
        "Run one server per GPU",
    ),
    "environment file": Alteration(
        "container",
        "echo FOREIGN=1 >> /etc/inference/instances/3.env",
        "cat /etc/inference/instances/3.env",
        "Run one server per GPU",
        "serve",
    ),
    "current link": Alteration(
        "container",
        "ln -sfn /var/lib/inference/stacks /var/lib/inference-state/current",
        "readlink /var/lib/inference-state/current",
        "Switch to the proven stack",
        "verify",
    ),
    "gateway list": Alteration(
        "container",
        "sed -i 's/30003/30099/' /etc/inference/gateway-workers.json",
        "cat /etc/inference/gateway-workers.json",
        "Run the gateway",
        "gateway",
    ),
    "gateway's packages": Alteration(
        "container",
        "rm -r /opt/inference/gateway/lib/python3*/site-packages/smg",
        "find /opt/inference/gateway/lib/ -name '*.py' | sort",
        "Install the gateway",
        "gateway",
    ),
    "proof": Alteration(
        "container",
        "rm \"$(find /var/lib/inference-state/proofs -name '*.json' | head -n 1)\"",
        "find /var/lib/inference-state/proofs | sort",
        "Prove the stack on the GPUs of the container",
        "verify",
    ),
    "container option": Alteration(
        "node",
        "pct set 200 --onboot 0 --cores 1",
        "grep -E '^(onboot|cores)' /etc/pve/lxc/200.conf",
        "Bring the container to its wanted state",
        "container",
    ),
    "device unit": Alteration(
        "node",
        "sed -i '/^Before=/d' /etc/systemd/system/nvidia-device-nodes.service",
        "cat /etc/systemd/system/nvidia-device-nodes.service",
        "Make the device nodes at every boot, before containers start",
        "driver",
    ),
}


def run_there(alteration: Alteration, script: str) -> str:
    return in_container(script) if alteration.where == "container" else in_node(script)


def test_a_second_run_changes_nothing() -> None:
    before = (in_node(DUMP_NODE), in_container(DUMP_CONTAINER))
    run = site()
    assert run.status == 0, run.output
    assert run.changed == []
    assert (in_node(DUMP_NODE), in_container(DUMP_CONTAINER)) == before


@pytest.mark.parametrize("name", ALTERATIONS)
def test_an_alteration_is_predicted_and_restored(name: str) -> None:
    alteration = ALTERATIONS[name]
    good = run_there(alteration, alteration.look)
    run_there(alteration, alteration.alter)
    altered = run_there(alteration, alteration.look)
    assert altered != good

    predicted = site("--check", "--diff", "--tags", alteration.stage)
    assert predicted.status == 0, predicted.output
    assert run_there(alteration, alteration.look) == altered, "check mode changed something"
    real = site("--tags", alteration.stage)
    assert real.status == 0, real.output
    assert run_there(alteration, alteration.look) == good
    assert alteration.task in [task for task, dummy_host in real.changed]
    assert predicted.changed == real.changed


def test_check_mode_ends_at_a_stopped_container() -> None:
    in_node("pct stop 200")
    predicted = site("--check", "--diff")
    real = site()
    assert predicted.status == 0, predicted.output
    assert "the running container would be made first" in predicted.said
    assert predicted.changed == [("Bring the container to its wanted state", "kpro6-200")]
    assert real.status == 0, real.output


def test_a_creation_that_died_with_its_node_is_made_anew() -> None:
    """The lock of a dead task stays, and nobody else takes it away."""
    half = "lock: create\nhostname: inference-build\ntags: blackwell-inference;build\nunprivileged: 1\n"
    in_node(f"printf '{half}' > /etc/pve/lxc/9200.conf")
    predicted = site("--check")
    real = site()
    assert predicted.status == 0, predicted.output
    assert real.status == 0, real.output
    assert predicted.changed == real.changed == [("Destroy the build container", "kpro6-200")]
    assert in_node("ls /etc/pve/lxc").split() == ["200.conf"]
