# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every error that Proxmox VE's sources name for the calls of pve_container, raised by a fake API over HTTPS.

Each must end in a retry that reaches the wanted state, or in one failure that carries the node's own words.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.blackwell.inference.plugins.module_utils import _pve_client
from ansible_collections.blackwell.inference.plugins.module_utils._pve_api import Api, ApiError
from ansible_collections.blackwell.inference.plugins.module_utils._pve_container import Container
from ansible_collections.blackwell.inference.plugins.module_utils._refusal import Refusal
from ansible_collections.blackwell.inference.plugins.modules import pve_container
from ansible_collections.blackwell.inference.tests.unit.plugins.modules.test_pve_container import OPTIONS, Clock
from fakepve import errors
from proxmoxer import ProxmoxAPI

NODE = "/nodes/pve1"
CONTAINER = f"{NODE}/lxc/200"
GIVEN = {**OPTIONS, "gpus": ["0", "1"], "rootfs": {"storage": "local-lvm", "size_gib": 16}}
CHANGED = {"cores": 8}
GONE = {"state": "absent", "confirm_destroy": 200}
STOPPED = {"state": "stopped"}
# What the module is asked for, so that it makes the call; and whether the container is there and runs before.
CALLS: dict[tuple[str, str], tuple[dict[str, Any], bool, bool]] = {
    ("POST", f"{NODE}/lxc"): ({}, False, False),
    ("PUT", f"{CONTAINER}/config"): (CHANGED, True, True),
    ("PUT", f"{CONTAINER}/resize"): ({"rootfs": {"storage": "local-lvm", "size_gib": 32}}, True, True),
    ("POST", f"{CONTAINER}/status/start"): ({}, True, False),
    ("POST", f"{CONTAINER}/status/shutdown"): (STOPPED, True, True),
    ("POST", f"{CONTAINER}/status/stop"): (GONE, True, True),
    ("DELETE", CONTAINER): (GONE, True, False),
    ("GET", f"{CONTAINER}/config"): (CHANGED, True, True),
    ("GET", f"{CONTAINER}/status/current"): (CHANGED, True, True),
    ("GET", f"{CONTAINER}/pending"): (CHANGED, True, True),
    ("GET", "/cluster/resources"): (CHANGED, True, True),
}
# What the module waits for, and no more: another try at anything else would only hide it.
PASSING = {"locked", "config_lock_timeout", "no_quorum", "no_route_to_host"}
TABLE = [(method, path, error) for method, path in CALLS for error in errors.listing(method, path)]


def test_the_table_is_as_large_as_it_should_be() -> None:
    assert len(TABLE) >= 240


class Machine:
    def __init__(self, fake: Any, cafile: str) -> None:
        self.fake = fake
        self.api = {
            "host": "127.0.0.1", "port": fake.port, "node": "pve1", "user": "root@pam", "password": "secret",
            "token_id": None, "token_secret": None, "ca_file": cafile,
        }  # fmt: skip

    def apply(self, **options: Any) -> dict[str, Any]:
        given = {**copy.deepcopy(GIVEN), **options, "api": {key: value for key, value in self.api.items() if value is not None}}
        validated = ArgumentSpecValidator(pve_container.ARGUMENTS).validate(given)
        assert not validated.error_messages
        params = validated.validated_parameters
        _pve_client.beyond_rights(params["api"], params)
        client, node = _pve_client.by_https(ProxmoxAPI, params["api"], 5)
        clock = Clock()
        return Container(Api(client, node.name, 30, clock.time, clock.sleep, []), node, params, False).reconcile()

    def reached(self, **options: Any) -> bool:
        """By the fake's own state."""
        guest = self.fake.guest(200)
        if options.get("state") == "absent":
            return guest is None
        config = guest.config
        return (
            guest.status == ("stopped" if options.get("state") == "stopped" else "running")
            and str(config["cores"]) == str(options.get("cores", GIVEN["cores"]))
            and f"size={options.get('rootfs', GIVEN['rootfs'])['size_gib']}G" in config["rootfs"]
        )


@pytest.fixture
def machine(fakepve: Any, fakepve_cafile: str) -> Machine:
    return Machine(fakepve, fakepve_cafile)


def words(error: dict[str, Any]) -> list[str]:
    """The fixed parts of an error's text."""
    texts = list(error["errors"].values()) if error.get("errors") else [error["message"]]
    return [part.strip() for text in texts for part in re.split(r"\{\w+\}", text) if len(part.strip()) > 3]


@pytest.mark.parametrize("times", [1, None], ids=["once", "always"])
@pytest.mark.parametrize(("method", "path", "error"), TABLE, ids=[f"{m} {p[len(NODE):]} {e['name']}" for m, p, e in TABLE])
def test_no_error_is_taken_for_success(machine: Machine, method: str, path: str, error: dict[str, Any], times: int | None) -> None:
    options, there, running = CALLS[(method, path)]
    if there:
        machine.apply(state="started" if running else "present")
    machine.fake.fail(method, path, error=error["name"], times=times)
    try:
        machine.apply(**options)
    except (Refusal, ApiError) as failure:
        said = str(failure)
        assert all(part in said for part in words(error)), said
        assert times is None or error["name"] not in PASSING
    else:
        assert times == 1 and error["name"] in PASSING
        assert machine.reached(**options)


def test_the_whole_life_over_https(machine: Machine) -> None:
    first = machine.apply()
    assert first["changed"] and machine.reached()
    assert [task["type"] for task in first["tasks"]] == ["vzcreate", "vzstart"]
    assert machine.apply()["changed"] is False
    assert machine.apply(cores=8)["after"]["cores"] == "8" and machine.reached(cores=8)
    assert machine.apply(**GONE)["status"] == "absent" and machine.reached(**GONE)
    assert machine.apply(**GONE)["changed"] is False


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"ca_file": None}, "certificate that is not trusted.*Give ca_file"),
        ({"ca_file": "/nonexistent.pem"}, "ca_file|certificate"),
        ({"password": "wrong"}, "wanted a user and a password or a token"),
        ({"user": "nobody@pam"}, "wanted a user and a password or a token"),
        ({"port": 1}, "wanted an answer. Check host, port and firewall"),
        ({"node": "pve7"}, "found nodes pve1; wanted node pve7"),
        ({"password": None, "token_id": "t", "token_secret": "wrong"}, "a token that it knows|needs more than"),
    ],
)
def test_ways_in_that_do_not_work(machine: Machine, change: dict[str, Any], words: str) -> None:
    machine.api.update(change)
    with pytest.raises(Refusal, match=f"(?s)API of .*{words}"):
        machine.apply(gpus=None, mounts=None)


LIMITED = [
    ({"gpus": ["0"]}, "gpus asked for"),
    ({"mounts": [{"source": "/srv", "target": "/srv"}]}, "mounts asked for"),
    ({"features": {"keyctl": True}}, "features.keyctl asked for"),
    ({"features": {"nesting": True}, "unprivileged": False}, "features asked for"),
    ({"gpus": ["none"], "mounts": [], "features": {"nesting": True}, "memory_mib": 8192}, None),
]


@pytest.mark.parametrize("who", ["token of root", "another user"])
@pytest.mark.parametrize(("options", "words"), LIMITED)
def test_what_only_root_with_a_password_may_do_is_refused_before(
    machine: Machine, who: str, options: dict[str, Any], words: str | None
) -> None:
    machine.apply(gpus=["none"], mounts=[])
    machine.fake.apitokens["root@pam!site"] = "token-secret"
    machine.fake.users["admin@pve"] = "secret"
    if who == "token of root":
        machine.api.update(password=None, token_id="site", token_secret="token-secret")
    else:
        machine.api.update(user="admin@pve")
    plain: dict[str, Any] = {"gpus": None, "mounts": None, "features": None}
    if words is None:
        assert machine.apply(**{**plain, **options})["after"]["memory"] == "8192"
        return
    before = dict(machine.fake.guest(200).config)
    said = f"needs more than the (token root@pam!site|user admin@pve) may do.*{words}.*root@pam with its password"
    with pytest.raises(Refusal, match=said):
        machine.apply(**{**plain, **options})
    assert machine.fake.guest(200).config == before


@pytest.mark.parametrize(
    ("break_it", "words"),
    [
        (lambda fake: fake.fail("GET", "/cluster/resources", 502, "Bad Gateway", html=True), "cluster/resources: Bad Gateway Bad Gateway$"),
        (lambda fake: fake.fail("PUT", f"{CONTAINER}/config", 500, "Proxy", html=True), "Internal Server Error Proxy; wanted"),
        (lambda fake: fake.set_node_offline("pve1"), "No route to host|595"),
        (lambda fake: fake.lose_quorum(), "no quorum"),
        (lambda fake: fake.snapshot_lock(200), "lock snapshot.*pct unlock 200"),
    ],
)
def test_a_cluster_in_trouble(machine: Machine, break_it: Callable[[Any], Any], words: str) -> None:
    machine.apply()
    break_it(machine.fake)
    with pytest.raises((Refusal, ApiError), match=words):
        machine.apply(**CHANGED)
