# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Command line of the lab."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence

from . import cleanup, commands, names, simulation
from .proc import LabError, locked, note, require_root_and_programs


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="lab", description="LXC containers that play Proxmox VE nodes with GPUs.")
    sub = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    sub.add_parser("image", help="build what the lab caches, and nothing else")
    up = sub.add_parser("up", help="bring the lab up, or repair what is missing of it")
    up.add_argument("--nodes", type=_node_count, default=1, metavar="N", help="how many nodes (default 1)")
    status = sub.add_parser("status", help="show the nodes, their keys and their containers")
    status.add_argument("--json", action="store_true", help="for programs")
    shell = sub.add_parser("shell", help="open a shell in a node, or in a container of it")
    shell.add_argument("node")
    shell.add_argument("vmid", nargs="?", type=int)
    shell.epilog = "A command after -- runs instead of a shell; its exit status is passed on."
    for name, text in (
        ("reset", "make the node blank: new file system, new SSH host key, same address"),
        ("trust", "put the node's present SSH host key into known_hosts"),
        ("power-off", "cut the node's power: everything in it is killed at once"),
        ("power-on", "switch the node on"),
    ):
        sub.add_parser(name, help=text).add_argument("node")
    fault = sub.add_parser("fault", help="make a simulated fault, or end it with none")
    fault.add_argument("node")
    fault.add_argument("fault", choices=[*simulation.FAULTS, "none"], metavar="FAULT")
    fault.add_argument("target", nargs="?", help="what the fault is made on, or none to end this kind of fault")
    fault.epilog = "Faults: " + ", ".join(f"{kind} {entry.target}".strip() for kind, entry in simulation.FAULTS.items())
    sub.add_parser("down", help="take everything down; caches stay")
    return top


def _node_count(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= names.MAX_NODES:
        raise argparse.ArgumentTypeError(f"a number from 1 to {names.MAX_NODES}, not {text!r}")
    return int(text)


def split_command(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split at the first `--`, which argparse would let a nested parser swallow."""
    words = list(arguments)
    if "--" not in words:
        return words, []
    cut = words.index("--")
    return words[:cut], words[cut + 1 :]


def main(arguments: Sequence[str] | None = None) -> int:
    own, inner = split_command(sys.argv[1:] if arguments is None else arguments)
    chosen = parser().parse_args(own)
    try:
        require_root_and_programs()
        return _dispatch(chosen, inner)
    except LabError as error:
        print(f"lab: error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"lab: error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("lab: interrupted; run the same command again, it takes up where this one stopped", file=sys.stderr)
        return 130


def _dispatch(chosen: argparse.Namespace, inner: list[str]) -> int:
    if inner and chosen.command != "shell":
        raise LabError(f"a command after -- belongs to shell, not to {chosen.command}")
    if chosen.command == "status":
        facts = commands.status()
        print(json.dumps(facts, indent=2) if chosen.json else commands.status_table(facts))
        return 0 if facts["up"] else 3
    if chosen.command == "shell":
        command = commands.shell_command(chosen.node, chosen.vmid, inner)
        sys.stdout.flush()
        os.execvp(command[0], command)
    changing: dict[str, Callable[[], None]] = {
        "image": commands.image_only,
        "up": lambda: commands.up(chosen.nodes),
        "reset": lambda: commands.reset(chosen.node),
        "trust": lambda: commands.trust(chosen.node),
        "power-off": lambda: commands.power_off(chosen.node),
        "power-on": lambda: commands.power_on(chosen.node),
        "fault": lambda: commands.fault(chosen.node, chosen.fault, chosen.target),
        "down": commands.down,
    }
    # Outside the state folder: `down` removes that, and a waiting process must not hold a lock on a removed file.
    with locked(names.cache_dir() / ".lab.lock", "another lab command is at work; waiting for it"):
        changing[chosen.command]()
    if chosen.command == "down" and cleanup.remains():
        return 1
    note("done")
    return 0
