# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines from recorded facts: one machine, a fleet in one file, or the folder of records that earlier runs wrote."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.blackwell.inference.plugins.plugin_utils._fleet import Machine
from ansible_collections.blackwell.inference.plugins.plugin_utils._inputs import InputError
from ansible_collections.blackwell.inference.plugins.plugin_utils._shape import Shape, problems

# As the role inference writes it: <folder>/<node>/<container>/facts.yml.txt
RECORD = "facts.yml.txt"
_MACHINE: Shape = {"gpu?": "any", "model?": "any", "request?": "any", "stack?": "any", "recorded_at?": "any"}
_FILE: Shape = {**_MACHINE, "hosts?": {"*": _MACHINE}}
_DO = "begin from a file of inventory/facts in the collection's repository, or from a record"


def _no_key_twice(root: Any) -> None:
    """The second host of one name would replace the first without a word."""
    todo, seen = [root], set()
    while todo:
        node = todo.pop()
        if id(node) in seen or isinstance(node, yaml.ScalarNode):
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            todo += node.value
            continue
        names = set()
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in names:
                raise yaml.MarkedYAMLError(None, None, f"the key {key.value} stands twice", key.start_mark)
            names.add(key.value if isinstance(key, yaml.ScalarNode) else id(key))
            todo += [key, value]


def _load(text: bytes) -> Any:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        _no_key_twice(node)
        return loader.construct_document(node)
    finally:
        loader.dispose()


def refused(
    source: Path | str, found: str, wanted: str = "gpu and model, as gpu_facts and model_facts return them", do: str = _DO
) -> InputError:
    return InputError(f"found: {source}: {found}; wanted: {wanted}; do: {do}")


def parse(text: bytes, source: Path, name: str) -> Iterator[Machine]:
    """The machines of one file. What stands beside `hosts` counts for each host that says nothing else."""
    try:
        content = _load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise refused(source, f"no YAML ({' '.join(str(error).split())})") from error
    if not isinstance(content, Mapping):
        raise refused(source, "nothing" if content is None else f"a {type(content).__name__}")
    wrong = problems(content, _FILE, "")
    if not wrong and not content.get("hosts", True):
        wrong = ["hosts is empty"]
    hosts = content.get("hosts", {name: {}})
    if not wrong:
        shared = {key: value for key, value in content.items() if key not in ("hosts", "recorded_at")}
        machines = {str(host): {**shared, **own} for host, own in hosts.items()}
        for host, own in machines.items():
            place = f"hosts.{host}." if "hosts" in content else ""
            wrong += [f"{place}{key} is missing" for key in ("gpu", "model") if key not in own]
    if wrong:
        raise refused(source, ", ".join(wrong))
    for host, own in machines.items():
        yield Machine(host, own["gpu"], own["model"], own.get("request"), own.get("stack"))


def _name(path: Path) -> str:
    """A record is named by its node and container, another file by itself."""
    return "/".join(path.absolute().parts[-3:-1]) if path.name == RECORD else path.stem


def read(path: Path) -> list[Machine]:
    """The machines of a file or, of a folder, those of every record below it."""
    files = sorted(path.rglob(RECORD)) if path.is_dir() else [path]
    if not files:
        raise refused(
            path, f"no {RECORD} below it", "a folder of records", "name a facts file, or the folder that inference_record_dir names"
        )
    machines: list[Machine] = []
    for file in files:
        try:
            text = file.read_bytes()
        except OSError as error:
            raise refused(file, str(error.strerror), "a file that can be read", "correct facts_file") from error
        machines += parse(text, file, _name(file))
    return machines
