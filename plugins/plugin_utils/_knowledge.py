# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The knowledge base: measured tables and written rules, read once and checked before anything is decided from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.blackwell.inference.plugins.plugin_utils import _releases, _schema
from ansible_collections.blackwell.inference.plugins.plugin_utils._rules import Rule, by_backend, by_finding

FOLDER = Path(__file__).parent / "knowledge"
MOST_PROBLEMS = 20


class KnowledgeError(ValueError):
    """The tables cannot be used; the message names the file and the place."""


@dataclass(frozen=True)
class Knowledge:
    policy: Mapping[str, Any]
    releases: Mapping[str, Any]
    code: Mapping[str, Any]
    toolkits: Mapping[str, Any]
    gpus: Mapping[str, Any]
    models: Mapping[str, Any]
    proven: list[Mapping[str, Any]]
    rules: list[Rule]
    # Worked out from the tables, so that no plan has to.
    newest_first: list[str]
    prepared: dict[str, _releases.Release]
    findings: dict[str, list[Rule]]
    refusals: dict[str, list[Rule]]
    usual_shared_memory: Mapping[str, int]


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """YAML takes the last of two equal keys without a word; a release or a wheel must not vanish like that."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        seen = set()
        for key, _value in node.value:
            if key.value in seen:
                raise yaml.MarkedYAMLError(problem=f"the key {key.value} stands twice", problem_mark=key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def read_tables(folder: Path = FOLDER) -> dict[str, Any]:
    """The tables as they stand in the files."""
    tables = {}
    for name, file in _schema.FILES.items():
        try:
            content = yaml.load((folder / file).read_bytes(), Loader=_Loader)
        except (OSError, yaml.YAMLError) as error:
            raise KnowledgeError(f"The knowledge base cannot be read: {file}: {error}. Install the collection again.") from error
        if not isinstance(content, dict) or set(content) != {name}:
            raise KnowledgeError(f"The knowledge base is broken: {file} does not hold the one key {name}.")
        tables[name] = content[name]
    return tables


def build(tables: Mapping[str, Any]) -> Knowledge:
    """Check the tables and make them ready; raise KnowledgeError with everything that is wrong."""
    found = _schema.check(tables)
    if found:
        listed = "".join(f"\n  - {problem}" for problem in found[:MOST_PROBLEMS])
        more = f"\n  and {len(found) - MOST_PROBLEMS} more" if len(found) > MOST_PROBLEMS else ""
        raise KnowledgeError(f"The knowledge base is broken:{listed}{more}")
    rules = [
        Rule(entry["id"], entry.get("releases"), entry["applies"], entry["then"], entry["because"].strip(), entry["source"].strip())
        for entry in tables["rules"]
    ]
    prepared = _releases.put_together(tables, rules)
    return Knowledge(
        **{name: tables[name] for name in ("policy", "releases", "code", "toolkits", "gpus", "models", "proven")},
        rules=rules,
        newest_first=list(prepared),
        prepared=prepared,
        findings=by_finding(rules),
        refusals=by_backend(rules),
        usual_shared_memory={capability: row["shared_memory"] for capability, row in tables["gpus"].items()},
    )


@lru_cache(maxsize=1)
def load() -> Knowledge:
    return build(read_tables())
