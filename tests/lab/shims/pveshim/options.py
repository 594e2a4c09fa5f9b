# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Command line options as Proxmox VE's own parser takes them: `-key value`, `--key value`, `--key=value`."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from .errors import PveError
from .schema import parse_boolean


def parse(
    words: Sequence[str],
    known: Collection[str],
    booleans: Collection[str],
    usage: str,
    *,
    known_check: object = None,
) -> tuple[list[str], dict[str, str]]:
    """Split words into positional arguments and options.

    Options may stand anywhere before `--`; a boolean's value may be left out and then is 1. `known_check` may be a
    function that accepts further names (indexed configuration keys).
    """
    positional: list[str] = []
    options: dict[str, str] = {}
    unknown: list[str] = []
    queue = list(words)
    while queue:
        word = queue.pop(0)
        if word == "--":
            positional += queue
            break
        if not word.startswith("-") or word == "-":
            positional.append(word)
            continue
        name, sign, value = word.lstrip("-").partition("=")
        if not (name in known or (callable(known_check) and known_check(name))):
            unknown.append(name)
            continue
        if not sign:
            if name in booleans:
                value = queue.pop(0) if queue and parse_boolean(queue[0]) is not None else "1"
            elif queue:
                value = queue.pop(0)
            else:
                raise PveError(f"Option {name} requires an argument\n400 unable to parse option\n{usage}", 2)
        options[name] = value
    if unknown:
        lines = [f"Unknown option: {name}" for name in unknown]
        raise PveError("\n".join([*lines, "400 unable to parse option", usage]), 2)
    return positional, options


def vmid(text: str, usage: str) -> int:
    if not text.isdigit() or not 100 <= int(text) <= 999999999:
        raise PveError(
            f"400 Parameter verification failed.\nvmid: invalid format - value does not look like a valid VM ID\n\n{usage}",
            2,
        )
    return int(text)
