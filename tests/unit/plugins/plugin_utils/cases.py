# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cases of the resolver as tests/unit/cases/*.yml write them: facts, wishes and tables with changes, and what must hold."""

from __future__ import annotations

import copy
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.blackwell.inference.plugins.plugin_utils import _knowledge
from ansible_collections.blackwell.inference.plugins.plugin_utils._conflicts import PlanError
from ansible_collections.blackwell.inference.plugins.plugin_utils._knowledge import Knowledge
from ansible_collections.blackwell.inference.plugins.plugin_utils._resolver import resolve
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).resolve().parents[4]
BASE = yaml.safe_load((ROOT / "inventory/facts/rtx-pro-6000-x8.yml").read_text())
PLANS = yaml.safe_load((ROOT / "tests/unit/cases/plan.yml").read_text())
BY_NAME = {case["name"]: case for case in PLANS}
EXPECTATIONS = frozenset(
    {
        *("fail", "choice", "range", "args", "no_args", "same_as", "warns", "silent", "says"),
        *("holds", "lacks", "exempt", "not_exempt", "unsaid"),
    }
)


def put(value: Any, path: list[str], new: Any) -> None:
    """Set what the path names; * names every entry of a list."""
    head, rest = path[0], path[1:]
    keys = range(len(value)) if head == "*" else [int(head) if isinstance(value, list) else head]
    for key in keys:
        if rest:
            put(value[key], rest, new)
        else:
            value[key] = copy.deepcopy(new)


def at(value: Any, path: str) -> Any:
    for key in path.split("."):
        value = value[key]
    return value


def facts(changes: dict[str, Any] | None = None) -> dict[str, Any]:
    changed = copy.deepcopy(BASE)
    for path, new in (changes or {}).items():
        put(changed, path.split("."), new)
    return changed


@lru_cache(maxsize=1)
def shipped() -> dict[str, Any]:
    return _knowledge.read_tables()


def tables(changes: dict[str, Any] | None = None) -> dict[str, Any]:
    """The shipped tables with changes; a path is parted by / since versions hold dots."""
    changed = copy.deepcopy(shipped())
    for path, new in (changes or {}).items():
        put(changed, path.split("/"), new)
    return changed


def plan(changes: dict[str, Any] | None = None, request: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    given = facts(changes)
    knowledge = more.pop("knowledge", None) or _knowledge.load()
    return resolve(knowledge, given["gpu"], given["model"], request or {}, **more)


def answer(case: dict[str, Any], knowledge: Knowledge) -> dict[str, Any] | str:
    """The plan, or the words of the refusal."""
    try:
        return plan(case.get("set"), case.get("request"), knowledge=knowledge)
    except PlanError as error:
        return str(error)


def check(case: dict[str, Any], knowledge: Knowledge) -> dict[str, Any] | str:
    """Compare the answer with everything that the case expects, and return it."""
    expect = case.get("expect", {})
    assert set(expect) <= EXPECTATIONS
    made = answer(case, knowledge)
    if expect.get("fail"):
        assert isinstance(made, str), made
        assert "What would resolve it" in made or "No single change" in made
        said = made
    elif expect:
        assert not isinstance(made, str), made
        said = json.dumps([made["decisions"], made["rejected"], made["warnings"]])
        _check_plan(made, expect, knowledge)
    for word in expect.get("says", []):
        assert word in said, (word, said)
    for word in expect.get("unsaid", []):
        assert word not in said, (word, said)
    return made


def _check_plan(made: dict[str, Any], expect: dict[str, Any], knowledge: Knowledge) -> None:
    for path, wanted in expect.get("choice", {}).items():
        assert at(made, path) == wanted, path
    for path, wanted in expect.get("range", {}).items():
        assert SpecifierSet(wanted).contains(at(made, path)), path
    for path, wanted in expect.get("holds", {}).items():
        assert set(wanted) <= set(at(made, path)), path
    for path, wanted in expect.get("lacks", {}).items():
        assert not set(wanted) & set(at(made, path)), path
    args = made["launch"]["args"]
    assert set(expect.get("args", [])) <= set(args), args
    assert not set(expect.get("no_args", [])) & set(args), args
    exempt = {entry["file"] for entry in made["stack"]["extra"]["gpu_code_exempt"]}
    assert set(expect.get("exempt", [])) <= exempt
    assert not set(expect.get("not_exempt", [])) & exempt
    if "same_as" in expect:
        reference = answer(BY_NAME[expect["same_as"]], knowledge)
        assert not isinstance(reference, str)
        assert (made["stack_id"], made["launch_id"]) == (reference["stack_id"], reference["launch_id"])
    for word in expect.get("warns", []):
        assert any(word in warning for warning in made["warnings"]), (word, made["warnings"])
    for word in expect.get("silent", []):
        assert not any(word in warning for warning in made["warnings"]), (word, made["warnings"])
