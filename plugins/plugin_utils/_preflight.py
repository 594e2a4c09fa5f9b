# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is wrong with an inventory, before any host is contacted. Pure; private to the collection."""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.blackwell.inference.plugins.plugin_utils import _preflight_values

# Which roles run for the hosts of which group, as playbooks/site.yml does.
ROLES_OF_GROUP = {
    "pve_nodes": ("pve_host", "nvidia_driver"),
    "inference": ("pve_container", "nvidia_driver", "model", "stack", "inference", "gateway"),
}
CONNECTION = "blackwell.inference.pct"

Variables = Mapping[str, Any]
Options = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Finding:
    host: str
    found: str
    wanted: str
    do: str

    def __str__(self) -> str:
        return f"{self.host}: found: {self.found}; wanted: {self.wanted}; do: {self.do}"


def findings(groups: Mapping[str, Mapping[str, Variables]], specs: Mapping[str, Options]) -> list[Finding]:
    """Check the hosts of every group.

    groups: group name -> host name -> its variables, templated. specs: role name -> its options as in argument_specs.
    Returns every finding, so that an inventory is mended in one go.
    """
    result: list[Finding] = []
    for group, roles in ROLES_OF_GROUP.items():
        for host, variables in sorted(groups.get(group, {}).items()):
            result += unknown_variables(host, variables, specs)
            for role in roles:
                result += invalid_variables(host, variables, specs[role])
    result += empty_groups(groups)
    result += unreachable_containers(groups)
    result += shared_by_two(groups)
    return result


def unknown_variables(host: str, variables: Variables, specs: Mapping[str, Options]) -> list[Finding]:
    """A variable with a role's prefix that no role knows is a typing error, and would be ignored without a word."""
    known = {name for options in specs.values() for name in options}
    prefixes = tuple(f"{role}_" for role in specs)
    result = []
    for name in sorted(variables):
        if not name.startswith(prefixes) or name in known:
            continue
        near = difflib.get_close_matches(name, known, n=1)
        remedy = f"did you mean {near[0]}?" if near else "remove it"
        result.append(Finding(host, f"variable {name}", "a variable that a role knows", remedy))
    return result


def invalid_variables(host: str, variables: Variables, options: Options) -> list[Finding]:
    given = {name: variables[name] for name in options if name in variables}
    # A default may be a template; it is the role's own and needs no check.
    wanted = {name: {key: value for key, value in option.items() if key != "default"} for name, option in options.items()}
    validation = ArgumentSpecValidator(wanted).validate(given)
    remedy = "see ansible-doc --type role blackwell.inference.<role>"
    result = [Finding(host, message, "values that fit the roles' argument_specs", remedy) for message in validation.error_messages]
    for name in given:
        if (problem := _preflight_values.unusable(name, validation.validated_parameters.get(name))) is not None:
            result.append(Finding(host, *problem, remedy))
    return result


def empty_groups(groups: Mapping[str, Mapping[str, Variables]]) -> list[Finding]:
    return [
        Finding("inventory", f"no host in the group {group}", "at least one", "see inventory/example in the documentation")
        for group in ROLES_OF_GROUP
        if not groups.get(group)
    ]


def unreachable_containers(groups: Mapping[str, Mapping[str, Variables]]) -> list[Finding]:
    """A container is reached through its node: both must name each other rightly."""
    result = []
    nodes = groups.get("pve_nodes", {})
    for host, variables in sorted(groups.get("inference", {}).items()):
        node, vmid = str(variables.get("pve_container_node")), variables.get("pve_container_vmid")
        if node not in nodes:
            wanted = f"one of {', '.join(sorted(nodes)) or 'the hosts of pve_nodes'}"
            result.append(Finding(host, f"pve_container_node {node!r}", wanted, "name a host of the group pve_nodes"))
        if variables.get("ansible_connection") != CONNECTION:
            found = f"ansible_connection {variables.get('ansible_connection')!r}"
            result.append(Finding(host, found, CONNECTION, "set it for the group inference"))
        if str(variables.get("ansible_pct_vmid")) != str(vmid):
            found = f"ansible_pct_vmid {variables.get('ansible_pct_vmid')!r}"
            result.append(Finding(host, found, f"{vmid}, as pve_container_vmid", 'set it to "{{ pve_container_vmid }}"'))
        elif node in nodes and variables.get("ansible_host") != nodes[node].get("ansible_host", node):
            found = f"ansible_host {variables.get('ansible_host')!r}"
            result.append(Finding(host, found, f"the address of its node {node}", "the container is entered through its node"))
    return result


def shared_by_two(groups: Mapping[str, Mapping[str, Variables]]) -> list[Finding]:
    """Container ids of one node, and addresses, belong to one host each."""
    owners: dict[tuple[str, str], list[str]] = defaultdict(list)
    for host, variables in sorted(groups.get("inference", {}).items()):
        owners[("container id", f"{variables.get('pve_container_vmid')} on {variables.get('pve_container_node')}")].append(host)
        network = variables.get("pve_container_network")
        address = network.get("address") if isinstance(network, Mapping) else None
        if address and address != "dhcp":
            owners[("address", str(address).partition("/")[0])].append(host)
    for host, variables in sorted(groups.get("pve_nodes", {}).items()):
        owners[("address", str(variables.get("ansible_host", host)))].append(host)
    return [
        Finding(", ".join(hosts), f"the same {what} {value}", "one each", "change one of them")
        for (what, value), hosts in sorted(owners.items())
        if len(hosts) > 1
    ]
