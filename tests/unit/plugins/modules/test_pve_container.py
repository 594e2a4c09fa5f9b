# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy
import json
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.blackwell.inference.plugins.module_utils._pve_api import Api, ApiError
from ansible_collections.blackwell.inference.plugins.module_utils._pve_container import Container, Node
from ansible_collections.blackwell.inference.plugins.module_utils._refusal import Refusal
from ansible_collections.blackwell.inference.plugins.modules import pve_container
from ansible_collections.blackwell.inference.tests.unit.plugins.modules.fake_pve import FakePve

DEVICES = [*(f"/dev/nvidia{n}" for n in range(8)), "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"]

UUIDS = {f"GPU-0000000{n}-1111-2222-3333-444444444444": n for n in range(8)}

OPTIONS: dict[str, Any] = {
    "vmid": 200,
    "hostname": "inference-1",
    "template": "local:vztmpl/debian-13.tar.zst",
    "rootfs": {"storage": "local", "size_gib": 16},
    "cores": 4,
    "memory_mib": 4096,
    "swap_mib": 0,
    "network": {"bridge": "vmbr0", "address": "10.99.0.200/24", "gateway": "10.99.0.1"},
    "gpus": ["all"],
    "mounts": [{"source": f"/var/lib/inference/{name}", "target": f"/var/lib/inference/{name}"} for name in ("stacks", "models")],
    "features": {"nesting": True},
    "onboot": True,
    "startup": {"order": 2, "up": 5},
    "tags": ["gpu"],
    "description": "Eight services.",
}


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def time(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def apply(
    pve: FakePve,
    check: bool = False,
    devices: list[str] | None = None,
    is_directory: Callable[[str], bool] = lambda _path: True,
    unlock: Callable[[int], str] | None = None,
    **options: Any,
) -> dict[str, Any]:
    given = {k: v for k, v in {**copy.deepcopy(OPTIONS), **options}.items() if v is not None}
    validated = ArgumentSpecValidator(pve_container.ARGUMENTS).validate(given)
    assert not validated.error_messages
    clock = Clock()
    api = Api(pve, pve.node, 30, clock.time, clock.sleep, [])
    node = Node(pve.node, lambda: DEVICES if devices is None else devices, lambda: UUIDS, is_directory, unlock or pve.unlock)
    container = Container(api, node, validated.validated_parameters, check)
    result = container.reconcile()
    return {**result, "warnings": container.warnings}


@pytest.fixture
def pve() -> FakePve:
    return FakePve()


@pytest.fixture
def made(pve: FakePve) -> FakePve:
    apply(pve)
    pve.calls.clear()
    return pve


def test_a_container_is_created_and_started(pve: FakePve) -> None:
    result = apply(pve)
    config = pve.configs[200]
    assert result["changed"] and result["status"] == "running"
    assert result["before"] == {"status": "absent"}
    assert [task["type"] for task in result["tasks"]] == ["vzcreate", "vzstart"]
    assert config["dev0"] == "/dev/nvidia0,mode=0666"
    assert config["dev10"] == "/dev/nvidia-uvm-tools,mode=0666"
    assert config["mp0"] == "/var/lib/inference/stacks,mp=/var/lib/inference/stacks,ro=1"
    assert config["tags"] == "blackwell-inference;gpu"
    assert config["features"] == "nesting=1"
    assert config["startup"] == "order=2,up=5"
    assert config["unprivileged"] == 1
    assert [call[:2] for call in pve.writes] == [("post", "nodes/kpro6/lxc"), ("post", "nodes/kpro6/lxc/200/status/start")]


def test_a_second_run_writes_nothing(made: FakePve) -> None:
    result = apply(made)
    assert not result["changed"] and result["before"] == result["after"]
    assert made.writes == []


def test_another_spelling_of_the_same_values_is_no_difference(made: FakePve) -> None:
    made.configs[200].update(
        dev0="mode=0666,path=/dev/nvidia0",
        mp0="ro=1,mp=/var/lib/inference/stacks,volume=/var/lib/inference/stacks",
        net0="type=veth,ip=10.99.0.200/24,hwaddr=BC:24:11:00:00:01,name=eth0,gw=10.99.0.1,bridge=vmbr0",
        startup="up=5,order=2",
        tags="gpu;blackwell-inference",
    )
    assert not apply(made)["changed"]


CHANGES = [
    ({"hostname": "other"}, {"hostname": "other"}),
    ({"cores": 8}, {"cores": "8"}),
    ({"memory_mib": 8192}, {"memory": "8192"}),
    ({"swap_mib": 512}, {"swap": "512"}),
    ({"onboot": False}, {"onboot": "0"}),
    ({"startup": {"order": 3}}, {"startup": "order=3"}),
    ({"tags": []}, {"tags": "blackwell-inference"}),
    ({"description": "Other"}, {"description": "Other"}),
    ({"features": {"nesting": False}}, {"features": None}),
    ({"features": {"keyctl": True}}, {"features": "keyctl=1,nesting=1"}),
    ({"gpus": ["none"]}, {f"dev{n}": None for n in range(11)}),
    ({"gpus": ["0", "3"]}, {f"dev{n}": None for n in (1, 2, 4, 5, 6, 7)}),
    ({"mounts": []}, {"mp0": None, "mp1": None}),
    (
        {"mounts": [{"source": "/srv", "target": "/srv", "read_only": False}, OPTIONS["mounts"][1]]},
        {"mp0": None, "mp2": "/srv,mp=/srv"},
    ),
    ({"rootfs": {"storage": "local", "size_gib": 32}}, {"rootfs": "local:200/vm-200-disk-0.raw,size=32G"}),
    (
        {"network": {"bridge": "vmbr1", "address": "dhcp"}},
        {"net0": "bridge=vmbr1,hwaddr=BC:24:11:00:00:01,ip=dhcp,name=eth0,type=veth"},
    ),
    ({"state": "stopped"}, {"status": "stopped"}),
]


@pytest.mark.parametrize(("options", "expected"), CHANGES, ids=[json.dumps(c[0])[:40] for c in CHANGES])
def test_each_change_is_predicted_then_made_then_settled(made: FakePve, options: dict[str, Any], expected: dict[str, Any]) -> None:
    predicted = apply(made, check=True, **options)
    assert made.writes == []
    done = apply(made, **options)
    for result in (predicted, done):
        assert result["changed"]
        changed = {
            k: result["after"].get(k) for k in {**result["before"], **result["after"]} if result["before"].get(k) != result["after"].get(k)
        }
        assert changed == expected
    puts = [call for call in made.writes if call[1].endswith("/config")]
    assert len(puts) <= 1
    assert not apply(made, **options)["changed"]


def test_check_mode_predicts_a_container_that_does_not_exist(pve: FakePve) -> None:
    result = apply(pve, check=True)
    assert result["changed"] and result["status"] == "absent"
    assert result["after"]["status"] == "running" and result["after"]["dev0"] == "/dev/nvidia0,mode=0666"
    assert pve.writes == []


def test_check_mode_forgives_what_earlier_stages_only_promised(pve: FakePve, made: FakePve) -> None:
    result = apply(made, check=True, devices=[], is_directory=lambda _path: False)
    assert not result["changed"] and "nvidia0" in result["warnings"][0]


@pytest.mark.parametrize("key", ["cores", "dev3", "mp1", "net0", "onboot", "features"])
def test_what_somebody_changed_by_hand_is_put_back(made: FakePve, key: str) -> None:
    wanted = apply(made)["after"]
    altered = {
        "cores": 1,
        "dev3": "/dev/nvidia3",
        "mp1": "/tmp,mp=/tmp",
        "net0": "name=eth0,bridge=vmbr9",
        "onboot": 0,
        "features": "nesting=0",
    }
    made.configs[200][key] = altered[key]
    assert apply(made, restart=True)["changed"]
    after = apply(made)
    assert not after["changed"]
    assert {k: v for k, v in after["after"].items() if not k.startswith("mp")} == {
        k: v for k, v in wanted.items() if not k.startswith("mp")
    }


def test_values_that_wait_for_a_restart_are_named_and_restarted_only_when_allowed(made: FakePve) -> None:
    result = apply(made, gpus=["0"])
    assert result["pending"] == {f"dev{n}": None for n in range(1, 8)}
    assert 200 in made.running
    again = apply(made, gpus=["0"])
    assert not again["changed"] and again["pending"] == result["pending"]
    assert apply(made, check=True, gpus=["0"], restart=True)["changed"]
    allowed = apply(made, gpus=["0"], restart=True)
    assert allowed["changed"] and allowed["pending"] == {}
    assert [task["type"] for task in allowed["tasks"]] == ["vzshutdown", "vzstart"]
    assert not apply(made, gpus=["0"], restart=True)["changed"]


def test_options_not_given_are_not_managed(made: FakePve) -> None:
    bare: dict[str, Any] = {**dict.fromkeys(OPTIONS), "vmid": 200}
    result = apply(made, **bare)
    assert not result["changed"]


def test_devices_and_volumes_of_others_stay(made: FakePve) -> None:
    made.configs[200].update(dev50="/dev/dri/renderD128", mp9="local:200/vm-200-disk-1.raw,mp=/data,size=8G")
    assert not apply(made)["changed"]
    assert apply(made, gpus=["none"])["changed"]
    assert made.configs[200]["dev50"] == "/dev/dri/renderD128"


def other(pve: FakePve, vmid: int = 201, raw: str | None = None, **config: Any) -> None:
    if raw:
        pve.raw[vmid] = [["lxc.mount.entry", raw]]
    pve.configs[vmid] = {"hostname": "other", "unprivileged": 1, "rootfs": "local:201/d.raw,size=8G", **config}


def elsewhere(kind: str, node: str) -> Callable[[FakePve], None]:
    return lambda pve: pve.elsewhere.append({"type": kind, "vmid": 200, "node": node, "name": "thing"})


REFUSALS: list[tuple[str, Callable[[FakePve], Any], dict[str, Any], str]] = [
    ("a virtual machine has the number", elsewhere("qemu", "kpro6"), {}, "virtual machine thing on node kpro6"),
    ("another node has it", elsewhere("lxc", "kpro7"), {}, "container thing on node kpro7"),
    ("not ours", lambda pve: other(pve, 200, tags="web"), {}, "hostname other, tags web.*adopt"),
    ("not ours, without tags", lambda pve: other(pve, 200), {}, "tags none"),
    ("not ours and to be destroyed", lambda pve: other(pve, 200), {"state": "absent", "confirm_destroy": 200}, "not one of ours"),
    ("undeclared binds on adoption", lambda pve: other(pve, 200, mp3="/mnt/x,mp=/x"), {"adopt": True}, "mp3: /mnt/x at /x.*mounts_extra"),
    (
        "a volume at a target",
        lambda pve: other(pve, 200, mp3="local:200/d.raw,mp=/var/lib/inference/models"),
        {"adopt": True},
        "is taken.*mp3: local",
    ),
    ("privileged", lambda pve: other(pve, 200, unprivileged=0), {"adopt": True}, "cannot change its kind.*unprivileged: 0"),
    ("a smaller root", lambda pve: other(pve, 200, rootfs="local:200/d.raw,size=32G"), {"adopt": True}, "cannot shrink.*32 GiB"),
    ("a GPU of another container", lambda pve: other(pve, dev0="/dev/nvidia3,mode=0666"), {}, "container 201 has /dev/nvidia3"),
    (
        "a GPU in a raw line",
        lambda pve: other(pve, raw="/dev/nvidia5 dev/nvidia5 none bind"),
        {},
        "container 201 has /dev/nvidia5",
    ),
    ("nothing to create from", lambda pve: None, {"template": None}, "no template"),
    ("a GPU that is not there", lambda pve: None, {"gpus": ["9"]}, "no character device /dev/nvidia9"),
    ("a wrong GPU", lambda pve: None, {"gpus": ["GPU-1"]}, "GPU-1, and on the node GPU-0"),
    ("no driver", lambda pve: None, {"devices": []}, "no character device /dev/nvidia0, /dev/nvidiactl"),
    ("no mount source", lambda pve: None, {"is_directory": lambda path: "models" not in path}, "no directory /var/lib/inference/models"),
    ("a comma in a path", lambda pve: None, {"mounts": [{"source": "/a,b", "target": "/a"}]}, "'/a,b'.*without commas"),
    ("a relative path", lambda pve: None, {"mounts": [{"source": "/a", "target": "a"}]}, "'a'.*absolute"),
    ("destroyed without confirmation", apply, {"state": "absent"}, "confirm_destroy: None.*confirm_destroy: 200"),
    ("of another kind", apply, {"state": "absent", "confirm_destroy": 200, "tags": ["build"]}, "tags blackwell.*the tag build"),
    ("destroyed with a wrong confirmation", apply, {"state": "absent", "confirm_destroy": 201}, "confirm_destroy: 201"),
]


@pytest.mark.parametrize(("prepare", "options", "words"), [r[1:] for r in REFUSALS], ids=[r[0] for r in REFUSALS])
def test_refusals_write_nothing_and_say_why(pve: FakePve, prepare: Callable[[FakePve], Any], options: dict[str, Any], words: str) -> None:
    prepare(pve)
    before = copy.deepcopy(pve.configs)
    pve.calls.clear()
    with pytest.raises(Refusal, match=f"(?s){words}") as caught:
        apply(pve, **options)
    assert caught.value.found and caught.value.wanted and caught.value.remedy
    assert pve.writes == [] and pve.configs == before


def test_disjoint_gpus_are_shared_out(pve: FakePve) -> None:
    apply(pve, gpus=["0", "1"])
    assert apply(pve, vmid=201, gpus=["2", "3"])["changed"]


def test_adoption_keeps_the_container_and_adds_the_tag(pve: FakePve) -> None:
    other(pve, 200, tags="web", rootfs="local:200/d.raw,size=16G", net0="name=eth0,bridge=vmbr0,firewall=1,hwaddr=AA:BB:CC:00:00:01")
    assert apply(pve, adopt=True, tags=None)["changed"]
    assert pve.configs[200]["tags"] == "blackwell-inference;web"
    assert "firewall=1" in pve.configs[200]["net0"] and "AA:BB:CC:00:00:01" in pve.configs[200]["net0"]
    assert not apply(pve, tags=None)["changed"]


def test_a_task_that_fails_later_carries_its_log(pve: FakePve) -> None:
    pve.plan("post", "/lxc", lambda: pve.task("vzcreate", "unable to create CT 200", "tar: unexpected end of file"))
    with pytest.raises(Refusal, match=r"(?s)could not be created.*unable to create CT 200.*unexpected end of file"):
        apply(pve)


def test_a_task_with_warnings_is_good(pve: FakePve) -> None:
    def start() -> str:
        pve.running.add(200)
        return pve.task("vzstart", "WARNINGS: 1")

    pve.plan("post", "/status/start", start)
    assert apply(pve)["tasks"][-1]["exitstatus"] == "WARNINGS: 1"


def test_success_that_changed_nothing_is_a_failure(made: FakePve) -> None:
    made.plan("put", "/config", lambda: {"errors": ""})
    with pytest.raises(Refusal, match=r"not in its wanted state.*cores: 4 instead of 8"):
        apply(made, cores=8)


def test_a_refused_write_says_what_is_there_now(made: FakePve) -> None:
    made.plan("put", "/config", made.fail("400 Parameter verification failed. net0: bridge 'vmbr9' does not exist"))
    with pytest.raises(Refusal, match=r"(?s)vmbr9.*Container 200 is running, with .*bridge=vmbr0"):
        apply(made, network={"bridge": "vmbr9", "address": "dhcp"})


def test_a_change_in_between_is_read_again(made: FakePve) -> None:
    conflict = made.fail("detected modified configuration - file changed by other user? Try again.", 255)
    made.plan("put", "/config", conflict, conflict)
    assert apply(made, cores=8)["after"]["cores"] == "8"


def test_endless_conflicts_end(made: FakePve) -> None:
    made.plan("put", "/config", *[made.fail("detected modified configuration", 255)] * 3)
    with pytest.raises(Refusal, match=r"detected modified configuration.*nobody else"):
        apply(made, cores=8)


def test_locks_are_waited_for(made: FakePve) -> None:
    made.locks[200] = ["backup"] * 5
    made.plan("put", "/config", made.fail("CT is locked (backup)", 255), made.fail("can't lock file '/run/lock/lxc/x' - got timeout"))
    assert apply(made, cores=8)["changed"]


def test_a_lock_that_stays_is_named(made: FakePve) -> None:
    made.locks[200] = ["create"] * 100
    with pytest.raises(Refusal, match=r"lock create.*pct unlock 200"):
        apply(made, cores=8)


def test_a_warning_on_standard_error_is_no_failure(made: FakePve) -> None:
    answer = "perl: warning: Setting locale failed.\n" + json.dumps([{"type": "lxc", "vmid": 200, "node": "kpro6"}])
    made.plan("get", "cluster/resources", made.fail(answer, exit_code=0))
    assert not apply(made)["changed"]


def test_a_silent_pvesh_is_a_failure(made: FakePve) -> None:
    made.plan("get", "/config", lambda: {"errors": ""})
    with pytest.raises(ApiError, match="no answer"):
        apply(made)


def test_a_hanging_pvesh_is_a_failure(made: FakePve) -> None:
    def hang() -> None:
        raise subprocess.TimeoutExpired("pvesh", 30)

    made.plan("get", "/config", hang)
    with pytest.raises(ApiError, match="no answer within 30 s"):
        apply(made)


def test_a_node_without_pvesh_is_named(pve: FakePve) -> None:
    def absent() -> None:
        raise FileNotFoundError(2, "No such file or directory", "pvesh")

    pve.plan("get", "cluster/resources", absent)
    with pytest.raises(Refusal, match=r"pvesh.*on a Proxmox VE node"):
        apply(pve)


def test_destroying_is_predicted_done_and_settled(made: FakePve) -> None:
    options: dict[str, Any] = {"state": "absent", "confirm_destroy": 200}
    predicted = apply(made, check=True, **options)
    assert predicted["changed"] and predicted["after"] == {"status": "absent"} and made.writes == []
    done = apply(made, **options)
    assert done["changed"] and done["status"] == "absent" and 200 not in made.configs
    assert [task["type"] for task in done["tasks"]] == ["vzstop", "vzdestroy"]
    assert not apply(made, **options)["changed"]


@pytest.fixture
def cut(made: FakePve) -> FakePve:
    """A power cut came while the container was being created: half unpacked, locked, its task dead."""
    made.running.clear()
    made.configs[200] = {"lock": "create", "tags": "blackwell-inference", "hostname": "half", "unprivileged": 1}
    return made


def test_what_a_dead_creation_left_is_created_anew(cut: FakePve) -> None:
    predicted = apply(cut, check=True)
    assert predicted["changed"] and predicted["before"]["lock"] == "create" and cut.writes == []
    done = apply(cut)
    assert done["status"] == "running" and done["after"]["hostname"] == "inference-1" and "lock" not in done["after"]
    assert [task["type"] for task in done["tasks"]] == ["vzdestroy", "vzcreate", "vzstart"]
    assert not apply(cut)["changed"]


def test_what_a_dead_creation_left_can_be_destroyed(cut: FakePve) -> None:
    assert apply(cut, state="absent", confirm_destroy=200, tags=None)["changed"]
    assert cut.configs == {}


def test_a_creation_that_still_runs_is_waited_for(cut: FakePve) -> None:
    cut.active = [cut.task("vzcreate", "running")]
    with pytest.raises(Refusal, match=r"is locked.*lock create"):
        apply(cut)
    assert cut.writes == []


def test_a_lock_that_stays_is_told(cut: FakePve) -> None:
    with pytest.raises(Refusal, match=r"its lock stays.*exit status 2"):
        apply(cut, unlock=lambda _vmid: "exit status 2")


def test_the_argument_spec_equals_the_documentation() -> None:
    def flat(options: dict[str, Any], inner: str) -> dict[str, Any]:
        kept = ("type", "choices", "default", "required", "elements")
        return {
            name: ({k: v for k, v in option.items() if k in kept}, flat(option.get(inner) or {}, inner)) for name, option in options.items()
        }

    documented = yaml.safe_load(pve_container.DOCUMENTATION)["options"]
    assert flat(documented, "suboptions") == flat(pve_container.ARGUMENTS, "options")
