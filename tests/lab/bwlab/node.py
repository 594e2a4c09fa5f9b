# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One node: file system, power, readiness."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from . import image, keys, lxc, names, nodefiles, simulation
from .proc import LabError, remove_tree, run, step, write_atomic

_COMPLETE = "complete"


def existing() -> list[str]:
    """Nodes that have anything on this machine, complete or not, in order."""
    found = {path.name.removeprefix(f"{names.PREFIX}-") for path in names.LXC_PATH.glob(f"{names.PREFIX}-*")}
    found |= {path.name for path in (names.STATE / "nodes").glob("*")}
    return sorted((node for node in found if names.node_index(node) >= 0), key=names.node_index)


def is_complete(node: str) -> bool:
    return (names.node_state(node) / _COMPLETE).exists()


def require(node: str) -> None:
    if names.node_index(node) < 0 or not is_complete(node):
        there = ", ".join(node for node in existing() if is_complete(node)) or "none; bring the lab up first"
        raise LabError(f"there is no node {node!r}; nodes of this lab: {there}")


def create(node: str, *, trust: bool) -> None:
    """Make the node's file system anew: packed base, its own host key, the files of a fresh installation.

    `trust`: the operator trusts the new key, as after a first installation that they watched.
    """
    remove(node)
    root = names.rootfs(node)
    with step(f"{node}: blank file system with a new SSH host key"):
        root.mkdir(parents=True)
        state = names.node_state(node)
        state.mkdir(parents=True)
        image.unpack(image.node_tarball(), root)
        for folder in nodefiles.folders(node):
            (root / folder).mkdir(parents=True, exist_ok=True)
        for path, (text, mode) in nodefiles.files(node, keys.make_operator_key()).items():
            write_atomic(root / path, text, mode)
        for path, target in nodefiles.links(node).items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).unlink(missing_ok=True)
            (root / path).symlink_to(target)
        (root / "root/.ssh").chmod(0o700)
        keys.make_host_key(root, node)
        write_atomic(state / "known_hosts", keys.with_host("", [names.node_address(node)], keys.host_key(node)))
        simulation.write_model(root / "var/lib/inference/models" / names.MODEL_NAME)
    with step(f"{node}: simulated hardware"):
        simulation.write_hardware(state / "hw", node)
    if trust:
        keys.trust(node)
    write_atomic(state / _COMPLETE, "")


def remove(node: str) -> None:
    """Cut the power and remove everything of the node, in an order that a kill in between leaves recognisable."""
    (names.node_state(node) / _COMPLETE).unlink(missing_ok=True)
    lxc.kill(node)
    for folder in (names.LXC_PATH / names.container(node), names.node_state(node)):
        remove_tree(folder)


def power_on(node: str) -> None:
    tarball = names.STATE / "template" / names.TEMPLATE_FILE
    config = lxc.render_config(node, template_tarball=str(tarball), unified=lxc.host_is_unified())
    with step(f"{node}: start"):
        write_atomic(names.LXC_PATH / names.container(node) / "config", config)
        lxc.start(node)
        wait_ready(node)


def wait_ready(node: str, seconds: float = 90) -> None:
    """Wait until SSH answers with the key of this very file system and systemd has finished booting."""
    deadline = time.monotonic() + seconds
    command = keys.ssh_command(node, ["systemctl", "is-system-running"])
    # The lab checks against the key it wrote itself; whether the operator trusts that key is another matter.
    command = [part.replace(str(keys.KNOWN_HOSTS), str(names.node_state(node) / "known_hosts")) for part in command]
    last = ""
    while time.monotonic() < deadline:
        if lxc.init_pid(node) is None:
            raise LabError(f"node {node} went off while it was booting; its log: {names.node_state(node)}/lxc.log")
        done = run(command, check=False, timeout=30)
        last = (done.stdout or done.stderr).strip()
        if done.stdout.strip() in ("running", "degraded"):
            return
        time.sleep(0.2)
    raise LabError(f"node {node} is not ready after {seconds:.0f} s, last answer: {last!r}")


def failed_units(node: str) -> list[str]:
    done = run(lxc.attach(node, ["systemctl", "--failed", "--plain", "--no-legend"]), check=False, timeout=20)
    return [line.split()[0] for line in done.stdout.splitlines() if line.strip()]


def containers(node: str) -> list[dict[str, str]]:
    """VMID, status, lock and name as the node's own `pct list` shows them."""
    done = run(lxc.attach(node, ["pct", "list"]), check=False, timeout=30)
    found = []
    for line in done.stdout.splitlines()[1:]:
        vmid, status, lock, name = line[:11].strip(), line[11:22].strip(), line[22:35].strip(), line[35:].strip()
        found.append({"vmid": vmid, "status": status, "lock": lock, "name": name})
    return found


def template_bind() -> Path:
    """Where the nodes see the template: a hard link (or copy) in the state folder, safe from a cleaned cache."""
    target = names.STATE / "template" / names.TEMPLATE_FILE
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(".new")
        temporary.unlink(missing_ok=True)
        try:
            temporary.hardlink_to(image.template_tarball())
        except OSError:
            shutil.copy(image.template_tarball(), temporary)
        temporary.rename(target)
    return target
