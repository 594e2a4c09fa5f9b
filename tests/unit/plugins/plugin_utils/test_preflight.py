# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.blackwell.inference.plugins.plugin_utils import _preflight, _preflight_values

SPECS: dict[str, dict[str, Any]] = {
    "pve_host": {"pve_host_index_url": {"type": "str"}},
    "nvidia_driver": {"nvidia_driver_sha256": {"type": "str", "required": True}},
    "pve_container": {
        "pve_container_node": {"type": "str", "required": True},
        "pve_container_vmid": {"type": "int", "required": True},
        "pve_container_network": {"type": "dict"},
        "pve_container_gpus": {"type": "list", "elements": "str"},
    },
    "model": {"model_path": {"type": "path", "required": True}},
    "stack": {},
    "inference": {"inference_instances": {"type": "int"}},
    "gateway": {"gateway_port": {"type": "int"}, "gateway_api_key": {"type": "str"}},
}


def site() -> dict[str, dict[str, dict[str, Any]]]:
    common = {"nvidia_driver_sha256": "0" * 64}
    container = {
        **common,
        "pve_container_node": "kpro6",
        "pve_container_vmid": 200,
        "pve_container_network": {"bridge": "vmbr0", "address": "192.0.2.200/24", "gateway": "192.0.2.1"},
        "ansible_connection": "blackwell.inference.pct",
        "ansible_pct_vmid": 200,
        "ansible_host": "192.0.2.6",
        "model_path": "/m",
    }
    return {"pve_nodes": {"kpro6": {**common, "ansible_host": "192.0.2.6"}}, "inference": {"kpro6-200": container}}


def test_a_good_inventory_has_no_findings() -> None:
    assert _preflight.findings(site(), SPECS) == []


@pytest.mark.parametrize(
    ("host", "change", "fragments"),
    [
        ("kpro6-200", {"gateway_prot": 1}, ["variable gateway_prot", "did you mean gateway_port?"]),
        ("kpro6-200", {"gateway_0123456789012": 1}, ["variable gateway_0123456789012", "remove it"]),
        ("kpro6-200", {"inference_instances": "many"}, ["inference_instances", "'many'"]),
        ("kpro6-200", {"model_path": None}, ["model_path"]),
        ("kpro6-200", {"pve_container_node": "kpro7"}, ["pve_container_node 'kpro7'", "one of kpro6"]),
        ("kpro6-200", {"ansible_connection": "ssh"}, ["ansible_connection 'ssh'", "blackwell.inference.pct"]),
        ("kpro6-200", {"ansible_pct_vmid": 201}, ["ansible_pct_vmid 201", "200"]),
        ("kpro6-200", {"ansible_host": "192.0.2.7"}, ["ansible_host '192.0.2.7'", "node kpro6"]),
        ("kpro6", {"nvidia_driver_sha256": None}, ["nvidia_driver_sha256"]),
        ("kpro6", {"nvidia_driver_sha256": "latest"}, ["nvidia_driver_sha256 'latest'", "64 lower-case"]),
        ("kpro6-200", {"pve_container_vmid": 0, "ansible_pct_vmid": 0}, ["pve_container_vmid 0", "100 to"]),
        ("kpro6-200", {"pve_container_gpus": []}, ["pve_container_gpus []", "minor numbers"]),
        ("kpro6-200", {"pve_container_gpus": [-1]}, ["pve_container_gpus ['-1']", "minor numbers"]),
        ("kpro6-200", {"pve_container_network": {"bridge": "vmbr0", "address": "192.0.2.200"}}, ["pve_container_network", "prefix"]),
        ("kpro6-200", {"pve_container_network": {"address": "dhcp"}}, ["pve_container_network", "bridge"]),
        ("kpro6-200", {"model_path": "models/x"}, ["model_path 'models/x'", "absolute"]),
        ("kpro6-200", {"model_path": "/m\nx"}, ["model_path '/m\\nx'", "control characters"]),
        ("kpro6-200", {"inference_instances": 0}, ["inference_instances 0", "1 or more"]),
        ("kpro6-200", {"gateway_port": 80}, ["gateway_port 80", "1024 to 65535"]),
        ("kpro6-200", {"gateway_port": "99999"}, ["gateway_port 99999", "1024 to 65535"]),
    ],
)
def test_one_thing_wrong(host: str, change: dict[str, Any], fragments: list[str]) -> None:
    groups = site()
    for hosts in groups.values():
        if host in hosts:
            hosts[host].update(change)
            for name in [name for name, value in change.items() if value is None]:
                del hosts[host][name]
    (finding,) = {str(finding) for finding in _preflight.findings(groups, SPECS)}
    assert finding.startswith(f"{host}: found: ")
    for fragment in fragments:
        assert fragment in finding


def test_two_containers_with_the_same_id_and_address() -> None:
    groups = site()
    groups["inference"]["copy"] = dict(groups["inference"]["kpro6-200"])
    findings = [str(finding) for finding in _preflight.findings(groups, SPECS)]
    assert [finding for finding in findings if "the same container id 200 on kpro6" in finding and "copy, kpro6-200" in finding]
    assert [finding for finding in findings if "the same address 192.0.2.200" in finding]


def test_all_findings_come_at_once() -> None:
    groups = site()
    groups["inference"]["kpro6-200"].update({"gateway_prot": 1, "inference_instances": "many", "ansible_connection": "ssh"})
    assert len(_preflight.findings(groups, SPECS)) == 3


def test_an_empty_group_is_named() -> None:
    findings = [str(finding) for finding in _preflight.findings({"pve_nodes": {}, "inference": {}}, SPECS)]
    assert len(findings) == 2
    assert "no host in the group pve_nodes" in findings[0]


@pytest.mark.parametrize("key", ["", "short-secret", "with a space in the secret", "secret-secret-secret\n", "schlüssel-secret-secret"])
def test_a_bad_key_is_found_and_not_shown(key: str) -> None:
    groups = site()
    groups["inference"]["kpro6-200"]["gateway_api_key"] = key
    (finding,) = {str(finding) for finding in _preflight.findings(groups, SPECS)}
    assert "gateway_api_key (not shown)" in finding
    assert "secret" not in finding


def test_a_container_with_the_address_of_its_node() -> None:
    groups = site()
    groups["inference"]["kpro6-200"]["pve_container_network"] = {"bridge": "vmbr0", "address": "192.0.2.6/24"}
    (finding,) = {str(finding) for finding in _preflight.findings(groups, SPECS)}
    assert finding.startswith("kpro6-200, kpro6: found: the same address 192.0.2.6")


@pytest.mark.parametrize("url", ["", "http://10.99.0.1:8099/simple", "https://mirror.example.com/simple/"])
def test_an_index_may_be_absent_or_an_address(url: str) -> None:
    assert _preflight_values.unusable("stack_index_url", url) is None


@pytest.mark.parametrize("url", ["https://user:secret@mirror.example.com/simple", "mirror.example.com", "file:///wheels"])
def test_an_index_with_a_password_in_it_is_refused_and_not_shown(url: str) -> None:
    refused = _preflight_values.unusable("stack_index_url", url)
    assert refused is not None
    assert refused[0] == "stack_index_url (not shown)"
    assert "netrc" in refused[1]
