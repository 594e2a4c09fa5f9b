# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.blackwell.inference.plugins.plugin_utils import _facts_file, _fleet, _knowledge
from ansible_collections.blackwell.inference.plugins.plugin_utils._inputs import InputError

sys.path.insert(0, str(Path(__file__).parent))
import cases

ONE = {"gpu": cases.BASE["gpu"], "model": cases.BASE["model"]}


def read(text: str) -> list[_fleet.Machine]:
    return list(_facts_file.parse(text.encode(), Path("facts.yml"), "facts"))


@pytest.mark.parametrize("name", ["rtx-pro-6000-x8.yml", "fleet.yml"])
def test_every_example_can_be_planned_from(name: str) -> None:
    machines = _facts_file.read(cases.ROOT / "inventory" / "facts" / name)
    states = {entry["state"] for entry in _fleet.document(_knowledge.load(), machines)["classes"]}
    assert states <= {"planned", "no plan"} and "planned" in states


def test_a_record_is_a_facts_file_and_a_folder_of_records_is_a_fleet(tmp_path: Path) -> None:
    for place in ("kpro6/200", "kpro7/200", "kpro6/201"):
        folder = tmp_path / place
        folder.mkdir(parents=True)
        (folder / "facts.yml.txt").write_text(yaml.safe_dump(ONE | {"recorded_at": "2026-11-30T00:00:00+00:00"}))
        (folder / "plan.yml.txt").write_text("stack_id: 0")
    assert [machine.name for machine in _facts_file.read(tmp_path)] == ["kpro6/200", "kpro6/201", "kpro7/200"]
    alone = _facts_file.read(tmp_path / "kpro7" / "200" / "facts.yml.txt")
    assert [(machine.name, machine.gpu) for machine in alone] == [("kpro7/200", ONE["gpu"])]


def test_what_stands_beside_hosts_counts_for_each_that_says_nothing_else() -> None:
    machines = read("{hosts: {a: {gpu: 1}, 2: {gpu: 3, model: 4, request: {x: 5}}}, model: 6, request: {y: 7}, stack: 8}")
    assert machines == [_fleet.Machine("a", 1, 6, {"y": 7}, 8), _fleet.Machine("2", 3, 4, {"x": 5}, 8)]


def test_anchors_and_merged_keys_are_no_keys_that_stand_twice() -> None:
    machines = read(
        "hosts:\n  a: {gpu: &g {x: 1, y: 2}, model: 0}\n  b: {gpu: &h {<<: *g, x: 3}, model: 0}\n  c: {gpu: {<<: *h, y: 4}, model: 0}"
    )
    assert [machine.gpu for machine in machines[:2]] == [{"x": 1, "y": 2}, {"x": 3, "y": 2}]
    assert machines[2].gpu["y"] == 4


NO_FACTS = [
    ("", "nothing"),
    ("[1, 2]", "a list"),
    ("text", "a str"),
    ("gpu: [", "no YAML"),
    ("gpu: !!python/name:os.system x", "no YAML"),
    ("\x00", "no YAML"),
    ("gpu: {}", "model is missing"),
    ("model: {}", "gpu is missing"),
    ("{gpu: 1, modell: 2}", "modell is not a key that is known here; did you mean model"),
    ("{ansible_facts: {gpu: 1}}", "ansible_facts is not a key that is known here; known: gpu, hosts, model"),
    ("hosts: {}", "hosts is empty"),
    ("hosts: [a]", "hosts is ['a']; wanted: a dictionary"),
    ("hosts: {a: 1}", "hosts.a is 1; wanted: a dictionary"),
    ("hosts: {a: {gpu: 1, model: 2}, b: {gpu: 1}}", "hosts.b.model is missing"),
    ("hosts: {a: {gpu: 1, modle: 2}}", "hosts.a.modle is not a key that is known here; did you mean model"),
    ("{gpu: 1, gpu: 2, model: 3}", "the key gpu stands twice"),
    ("hosts: {a: {gpu: 1, model: 2}, a: {gpu: 3, model: 4}}", "the key a stands twice"),
]


@pytest.mark.parametrize(("text", "found"), NO_FACTS, ids=[text for text, _found in NO_FACTS])
def test_what_is_no_facts_is_refused_with_its_place(text: str, found: str) -> None:
    with pytest.raises(InputError) as raised:
        read(text)
    said = str(raised.value)
    assert said.startswith("found: facts.yml: ") and found in said
    assert 0 < said.index("; wanted: gpu and model") < said.index("; do: begin from a file")


def test_what_cannot_be_decoded_is_refused() -> None:
    with pytest.raises(InputError, match="no YAML"):
        list(_facts_file.parse(b"gpu: \xff\xfe", Path("facts.yml"), "facts"))


def test_a_file_that_is_not_there_and_a_folder_without_records_are_named(tmp_path: Path) -> None:
    places: list[tuple[Path, Any]] = [(tmp_path / "none.yml", "No such file"), (tmp_path, "no facts.yml.txt below it")]
    for path, found in places:
        with pytest.raises(InputError, match=found) as raised:
            _facts_file.read(path)
        assert str(path) in str(raised.value)
