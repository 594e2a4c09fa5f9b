# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The command `pvesh`: the API on the node itself, with root's rights."""

from __future__ import annotations

import json
import sys
from typing import Any

from . import api, options
from .errors import NotSimulated, PveError
from .tasks import Task

_METHODS = ("get", "set", "create", "delete")
_OUTPUT = {"output-format", "human-readable", "quiet", "noborder", "noheader", "noproxy"}


def main(words: list[str]) -> int:
    silent = False
    while words and words[0] in ("--nooutput", "--noproxy"):
        silent = silent or words[0] == "--nooutput"
        words = words[1:]
    try:
        return _call(words, silent)
    except PveError as error:
        sys.stdout.flush()
        print(error, file=sys.stderr)
        return error.code


def _call(words: list[str], silent: bool) -> int:
    if not words:
        raise PveError("ERROR: no command specified\nUSAGE: pvesh <COMMAND> [ARGS] [OPTIONS]")
    if words[0] not in _METHODS:
        raise NotSimulated(f"pvesh {words[0]}")
    if len(words) < 2:
        raise PveError(f"400 not enough arguments\npvesh {words[0]} <api_path> [OPTIONS] [FORMAT_OPTIONS]", 2)
    method, path = words[0], words[1]
    handler, known, values = api.find(method, path)
    positional, given = options.parse(
        words[2:],
        _OUTPUT,
        api.BOOLEANS | {"quiet", "noproxy"},
        f"pvesh {method} {path} [OPTIONS] [FORMAT_OPTIONS]",
        known_check=lambda name: api.is_parameter(method, known, name),
    )
    if positional:
        raise PveError("400 too many arguments", 2)
    shape = given.pop("output-format", "text")
    silent = bool(given.pop("quiet", None)) or silent
    api.check_path(values)
    result = handler(values, {key: value for key, value in given.items() if key not in _OUTPUT})
    # A task's failure is in its status only: the call itself has succeeded in starting it.
    if isinstance(result, Task):
        result = result.upid
    if result is not None and not silent:
        print(_rendered(result, shape))
    return 0


def _rendered(result: Any, shape: str) -> str:
    if shape == "json":
        return json.dumps(result, sort_keys=True, separators=(",", ":"))
    if shape == "json-pretty":
        return json.dumps(result, sort_keys=True, indent=3)
    if isinstance(result, str):
        return result
    raise NotSimulated(f"pvesh --output-format {shape} of a table (use json or json-pretty)")
