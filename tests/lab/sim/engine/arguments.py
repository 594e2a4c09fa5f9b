# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The flags of one SGLang release, from the list that its wheel carries (flags.txt)."""

from __future__ import annotations

import argparse

# Flags that the real one stores under another name than their own, as far as this engine reads them.
_STORED_AS = {
    "--model": "model_path",
    "--tensor-parallel-size": "tp_size",
    "--tp-size": "tp_size",
    "--tp": "tp_size",
}
_NUMBERS = {"--port", "--tensor-parallel-size", "--tp-size", "--tp", "--context-length", "--max-running-requests"}
_NUMBERS |= {"--base-gpu-id", "--max-total-tokens", "--random-seed"}
_FRACTIONS = {"--mem-fraction-static"}
_DEFAULTS = {
    "host": "127.0.0.1",
    "port": 30000,
    "tp_size": 1,
    "base_gpu_id": 0,
    "mem_fraction_static": 0.88,
    "max_running_requests": 64,
}


def build_parser(flags: str) -> argparse.ArgumentParser:
    """``flags``: one a line, name and kind (switch, value, optional, values), then the choices if it has any."""
    parser = argparse.ArgumentParser(prog="launch_server.py")
    for line in flags.splitlines():
        name, kind, choices = (*line.split(), None, None)[:3]
        if not name or name.startswith("#"):
            continue
        destination = _STORED_AS.get(name, name.lstrip("-").replace("-", "_"))
        if kind == "switch":
            parser.add_argument(name, dest=destination, action="store_true", default=None, help="a switch")
            continue
        number: type = int if name in _NUMBERS else float if name in _FRACTIONS else str
        parser.add_argument(
            name,
            dest=destination,
            type=number,
            nargs={"optional": "?", "values": "+"}.get(str(kind)),
            choices=choices.split(",") if choices else None,
            help="takes a value",
        )
    return parser


def parse(flags: str, arguments: list[str]) -> argparse.Namespace:
    """Ends with argparse's own message and status 2 on a flag or a choice that this release does not have."""
    parser = build_parser(flags)
    options = parser.parse_args(arguments)
    if not options.model_path:
        parser.error("the following arguments are required: --model-path/--model")
    for name, value in _DEFAULTS.items():
        if getattr(options, name, None) is None:
            setattr(options, name, value)
    return options
