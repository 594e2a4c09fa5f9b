# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What each command of the lab does, one function a command."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

from . import cleanup, image, keys, lxc, names, network, node, simulation
from .proc import LabError, note, step, write_atomic


def image_only() -> None:
    image.build()
    simulation.build()


def up(count: int) -> None:
    wanted = sorted({*names.node_names(count), *filter(node.is_complete, node.existing())}, key=names.node_index)
    image.build()
    built = simulation.build()
    if _is_complete(wanted, built):
        refresh_shims()
        note(f"already up: {', '.join(wanted)}")
        return
    for leftover in cleanup.remove_leftovers(keep=filter(node.is_complete, node.existing())):
        note(f"left by an earlier lab, removed: {leftover}")
    _prepare_host(built)
    for name in wanted:
        if not node.is_complete(name):
            node.create(name, trust=True)
        if lxc.init_pid(name) is None:
            node.power_on(name)
    print(status_table(status()))


def _is_complete(wanted: list[str], built: Path) -> bool:
    return (
        all(node.is_complete(name) and lxc.init_pid(name) is not None for name in wanted)
        and network.is_whole()
        and simulation.index_serves(built)
    )


def _prepare_host(built: Path) -> None:
    names.STATE.mkdir(mode=0o755, parents=True, exist_ok=True)
    keys.make_operator_key()
    if network.up():
        note(f"bridge {names.BRIDGE} with {names.HOST_ADDRESS}/24")
    gateway_key = names.STATE / "gateway.key"
    if not gateway_key.exists():
        write_atomic(gateway_key, secrets.token_urlsafe(32) + "\n", 0o600)
    node.template_bind()
    refresh_shims()
    simulation.publish_driver_hash(built)
    simulation.start_index(built)


def refresh_shims() -> None:
    """Copy the shims where the nodes see them; file by file, since running nodes have the folder mounted."""
    target = names.STATE / "shims"
    target.mkdir(parents=True, exist_ok=True)
    wanted = set()
    for source in [*(names.SHIMS_SOURCE / name for name in names.SHIMS), *names.SHIMS_SOURCE.glob("pveshim/*.py")]:
        copy = target / source.relative_to(names.SHIMS_SOURCE)
        wanted.add(copy)
        text = source.read_text()
        if not copy.exists() or copy.read_text() != text:
            write_atomic(copy, text, 0o644 if source.suffix else 0o755)
    for old in target.rglob("*"):
        if old.is_file() and old not in wanted:
            old.unlink()


def status() -> dict[str, Any]:
    nodes = []
    for name in filter(node.is_complete, node.existing()):
        power = lxc.init_pid(name) is not None
        nodes.append(
            {
                "node": name,
                "address": names.node_address(name),
                "power": "on" if power else "off",
                "host_key": keys.fingerprint(name),
                "trusted": keys.is_trusted(name),
                "failed_units": node.failed_units(name) if power else [],
                "faults": simulation.faults(name) if power else [],
                "containers": node.containers(name) if power else [],
            }
        )
    return {
        "up": bool(nodes) and all(entry["power"] == "on" for entry in nodes) and simulation.index_answers(),
        "bridge": names.BRIDGE if names.BRIDGE in network.links() else None,
        "index": simulation.index_url() if simulation.index_answers() else None,
        "ssh_key": str(keys.OPERATOR_KEY),
        "known_hosts": str(keys.KNOWN_HOSTS),
        "nodes": nodes,
    }


def status_table(facts: dict[str, Any]) -> str:
    if not facts["nodes"]:
        return "the lab is down"
    lines = [f"{'NODE':8}{'ADDRESS':14}{'POWER':7}{'SSH HOST KEY':54}{'TRUSTED':9}FAULTS"]
    for entry in facts["nodes"]:
        trusted = "yes" if entry["trusted"] else "NO"
        faults = ", ".join(entry["faults"]) or "none"
        lines.append(f"{entry['node']:8}{entry['address']:14}{entry['power']:7}{entry['host_key']:54}{trusted:9}{faults}")
        for unit in entry["failed_units"]:
            lines.append(f"        unit {unit} has failed")
        for container in entry["containers"]:
            lines.append(f"        container {container['vmid']} {container['name']}: {container['status']}")
        if not entry["trusted"]:
            lines.append(f"        its key is not in known_hosts; after comparing it: lab trust {entry['node']}")
    lines.append(f"package index: {facts['index'] or 'not running'}")
    lines.append(f"ssh -i {facts['ssh_key']} -o UserKnownHostsFile={facts['known_hosts']} root@ADDRESS")
    return "\n".join(lines)


def shell_command(name: str, vmid: int | None, inner: list[str]) -> list[str]:
    node.require(name)
    if lxc.init_pid(name) is None:
        raise LabError(f"node {name} is off; switch it on with: lab power-on {name}")
    command = inner or ["/bin/bash", "-l"]
    if vmid is not None:
        command = ["lxc-attach", "-n", str(vmid), "--clear-env", "-v", "HOME=/root", "--", *command]
    return lxc.attach(name, command)


def reset(name: str) -> None:
    node.require(name)
    refresh_shims()
    node.create(name, trust=False)
    node.power_on(name)
    note(f"{name} is blank and has a new SSH host key: {keys.fingerprint(name)}")
    note(f"nobody trusts it yet, as after a reinstallation; compare it, then: lab trust {name}")


def trust(name: str) -> None:
    node.require(name)
    keys.trust(name)
    note(f"{name}: {keys.fingerprint(name)} is in {keys.KNOWN_HOSTS}")


def power_off(name: str) -> None:
    node.require(name)
    if lxc.init_pid(name) is None:
        note(f"{name} is off already")
        return
    with step(f"{name}: power cut"):
        lxc.kill(name)


def power_on(name: str) -> None:
    node.require(name)
    if lxc.init_pid(name) is not None:
        note(f"{name} is on already")
        return
    refresh_shims()
    node.power_on(name)


def fault(name: str, kind: str, target: str | None) -> None:
    """Makes a fault. With `none` as its target that kind ends, and `none` alone ends all."""
    node.require(name)
    if lxc.init_pid(name) is None:
        raise LabError(f"node {name} is off; a fault needs it running: lab power-on {name}")
    if target == "none" or kind == "none":
        with step(f"{name}: faults ended ({'all' if kind == 'none' else kind})"):
            simulation.end_faults(name, kind)
        return
    wanted = simulation.FAULTS[kind].target
    if bool(wanted) != bool(target):
        raise LabError(f"found {target or 'no target'}; wanted: lab fault {name} {kind} {wanted}".rstrip())
    with step(f"{name}: {kind} {target or ''}".rstrip()):
        simulation.make_fault(name, kind, target or "")


def down() -> None:
    with step("package index stopped"):
        simulation.stop_index()
    for name in node.existing():
        with step(f"{name}: power cut, removed"):
            node.remove(name)
    with step("bridge, state and leftovers removed"):
        cleanup.remove_all()
    if image.template_tarball().exists():
        note(f"caches stay in {names.cache_dir()}")
