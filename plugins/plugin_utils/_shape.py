# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check plain data against a shape and name the place of everything that is wrong.

A shape is the name of a kind ("str"; "str?" may also be null), a list of one shape, or a dictionary: "key" must be there,
"key?" may be, and "*" is the shape of every other key. Without it another key is an error; with it only one that looks like a
slip of the pen is: nearly the name of a key that is not there.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from ansible_collections.blackwell.inference.plugins.plugin_utils import _packaging

Shape = Any
# Beyond what any machine has, and still exact as a float.
MOST = 1 << 53


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _version(value: Any) -> bool:
    try:
        return isinstance(value, str) and bool(_packaging.Version(value))
    except _packaging.InvalidVersion:
        return False


def _range(value: Any) -> bool:
    try:
        return isinstance(value, str) and bool(str(_packaging.SpecifierSet(value)))
    except _packaging.InvalidSpecifier:
        return False


def _matches(pattern: str) -> Callable[[Any], bool]:
    compiled = re.compile(pattern)
    return lambda value: isinstance(value, str) and compiled.fullmatch(value) is not None


KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "any": (lambda value: True, "anything"),
    "str": (lambda value: isinstance(value, str), "a text"),
    "text": (lambda value: isinstance(value, str) and value.strip() != "", "a text that says something"),
    "word": (_matches(r"[^\s,]+"), "one word without blanks and commas"),
    "int": (_whole, "a whole number"),
    "amount": (lambda value: _whole(value) and 0 <= value <= MOST, "a whole number of at least 0"),
    "count": (lambda value: _whole(value) and 1 <= value <= MOST, "a whole number of at least 1"),
    "num": (lambda value: _whole(value) or isinstance(value, float), "a number"),
    "bool": (lambda value: isinstance(value, bool), "true or false"),
    "version": (_version, "a version in quotes"),
    "range": (_range, 'a version range like ">=0.5.9,<0.5.10"'),
    "python": (_matches(r"3\.[0-9]{1,2}"), 'a Python version like "3.13"'),
    "capability": (_matches(r"[0-9]{1,2}\.[0-9]"), 'a compute capability like "12.0"'),
    "arch": (_matches(r"[0-9]{2,3}[af]?"), 'an architecture like "120a"'),
    "day": (_matches(r"[0-9]{4}-[0-9]{2}-[0-9]{2}"), 'a day like "2026-11-30"'),
    "time": (_matches(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z"), 'a time like "2026-11-30T00:00:00Z"'),
    "id": (_matches(r"[0-9a-f]{8,64}"), "an id of hexadecimal digits"),
    "pin": (_matches(r"[a-z0-9][a-z0-9.-]*(?:==|>=|<=|<|>|~=|!=)[^\s;]+"), "a pin like name==1.2.3"),
}


def _show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def problems(value: Any, shape: Shape, place: str) -> list[str]:
    """Everything in which the value differs from the shape; an empty list when it fits."""
    if isinstance(shape, str):
        holds, wanted = KINDS[shape.removesuffix("?")]
        if (shape.endswith("?") and value is None) or holds(value):
            return []
        return [f"{place} is {_show(value)}; wanted: {wanted}"]
    if isinstance(shape, list):
        if not isinstance(value, list):
            return [f"{place} is {_show(value)}; wanted: a list"]
        return [found for number, entry in enumerate(value) for found in problems(entry, shape[0], f"{place}[{number}]")]
    if not isinstance(value, Mapping):
        return [f"{place} is {_show(value)}; wanted: a dictionary"]
    return _of_keys(value, shape, place)


@lru_cache(maxsize=1024)
def _nearest(key: str, known: frozenset[str], likeness: float) -> str | None:
    return next(iter(difflib.get_close_matches(key, sorted(known), n=1, cutoff=likeness)), None)


def _of_keys(value: Mapping[Any, Any], shape: dict[str, Shape], place: str) -> list[str]:
    known = {key.removesuffix("?"): entry for key, entry in shape.items() if key != "*"}
    absent = frozenset(known).difference(value)
    found = []
    for key, entry in value.items():
        inside = f"{place}.{key}" if place else str(key)
        if key in known:
            found += problems(entry, known[key], inside)
        elif "*" not in shape:
            near = _nearest(str(key), frozenset(known), 0.6)
            found.append(
                f"{inside} is not a key that is known here; {'did you mean ' + near if near else 'known: ' + ', '.join(sorted(known))}"
            )
        elif near := _nearest(str(key), absent, 0.85):
            found.append(f"{inside} is not a key that is known here; did you mean {near}")
        else:
            found += problems(entry, shape["*"], inside)
    for key in known:
        if key in shape and key not in value:
            found.append(f"{place + '.' if place else ''}{key} is missing")
    return found


def pruned(value: Any, shape: Shape) -> Any:
    """What a fitting value says under the keys that its shape names, and no more."""
    if isinstance(shape, list):
        return [pruned(entry, shape[0]) for entry in value]
    if not isinstance(shape, dict):
        return value
    known = {key.removesuffix("?"): entry for key, entry in shape.items()}
    rest = known.pop("*", "any")
    return {key: pruned(entry, known.get(key, rest)) for key, entry in value.items() if key in known or rest != "any"}
