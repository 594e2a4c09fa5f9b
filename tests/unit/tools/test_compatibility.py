# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""tools/compatibility.py: the page says what plans say. That docs/compatibility.md is not stale is checked by tests/lint docs."""

from __future__ import annotations

import copy
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.blackwell.inference.plugins.plugin_utils import _knowledge
from ansible_collections.blackwell.inference.plugins.plugin_utils._conflicts import PlanError
from ansible_collections.blackwell.inference.plugins.plugin_utils._resolver import resolve

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
import compatibility

FACTS = yaml.safe_load(compatibility.FACTS.read_text())
KNOWLEDGE = _knowledge.load()
_HEADING = re.compile(r"## .*\(compute capability ([\d.]+), .*\)")
_TABLE = re.compile(r"### (\w+), (.*)")


def cells() -> dict[tuple[str, str, str, str, str], str]:
    """What the page says, by capability, machine, model, release and backend."""
    found = {}
    capability = machine = model = ""
    for line in compatibility.page(KNOWLEDGE, FACTS).splitlines():
        if match := _HEADING.fullmatch(line):
            capability = match[1]
        elif match := _TABLE.fullmatch(line):
            machine, model = match[1], match[2]
        elif capability and line.startswith("| 0."):
            label, proven, _driver, _nvcc, *listed = (cell.strip() for cell in line.strip("|").split("|"))
            oldest, _to, newest = label.partition(" to ")
            names = KNOWLEDGE.newest_first
            for name in names[names.index(newest or oldest) : names.index(oldest) + 1]:
                rows = {row["python"] for row in KNOWLEDGE.prepared[name].proven if row["machine"] == machine}
                assert rows == set(proven.split(", ")) - {"-"}
                for backend, cell in zip(compatibility.BACKENDS, listed, strict=True):
                    found[capability, machine, model, name, backend] = cell
    return found


def test_the_page_says_what_plans_say() -> None:
    said = cells()
    tables = sum(len(row["machines"]) for row in KNOWLEDGE.gpus.values()) * len(compatibility.MODELS)
    assert len(said) == tables * len(KNOWLEDGE.releases) * len(compatibility.BACKENDS)
    for (capability, machine, model, release, backend), cell in said.items():
        if capability not in ("12.0", "12.1", "9.0"):
            continue
        gpu = compatibility._gpu(FACTS, capability, machine)
        # The page leaves out what the host's driver allows.
        gpu["driver"].update(version="999.0", library_version="999.0")
        facts: dict[str, Any] = {**FACTS["model"], **compatibility.MODELS[model], "vision": False, "weight_bytes": 1 << 30}
        try:
            made = resolve(KNOWLEDGE, gpu, facts, {"sglang_version": release, "attention_backend": backend})
        except PlanError:
            assert re.fullmatch(r"no \(\d+(, \d+)*\)", cell), (capability, machine, model, release, backend, cell)
            continue
        assert cell.strip("*") == made["support"]
        unasked = resolve(KNOWLEDGE, gpu, facts, {"sglang_version": release})["launch"]["attention_backend"]
        assert cell.startswith("**") == (unasked == backend)


def test_every_number_has_its_sentence() -> None:
    for part in compatibility.page(KNOWLEDGE, FACTS).split("### ")[1:]:
        used = {number for listed in re.findall(r"no \(([\d, ]+)\)", part) for number in listed.split(", ")}
        assert used == set(re.findall(r"^(\d+)\. .{20}", part, re.MULTILINE))


def test_a_new_gpu_and_a_new_proof_are_on_the_page() -> None:
    tables = copy.deepcopy(_knowledge.read_tables())
    tables["gpus"]["13.0"] = {**tables["gpus"]["12.0"], "cards": "an invented card"}
    tables["proven"] = [{**row, "python": "3.10"} for row in tables["proven"]]
    text = compatibility.page(_knowledge.build(tables), FACTS)
    assert "## an invented card (compute capability 13.0, blackwell-workstation)" in text
    assert "| 3.10 |" in text and "| 3.11" not in text


def test_a_stale_page_is_told_with_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "compatibility.md"
    assert compatibility.main(["--check"], target) == 1 and "python tools/compatibility.py" in capsys.readouterr().err
    assert compatibility.main([], target) == 0 and compatibility.main(["--check"], target) == 0
    target.write_text(target.read_text() + "one word more\n")
    assert compatibility.main(["--check"], target) == 1
    assert compatibility.main(["--chekc"], target) == 2 and "usage" in capsys.readouterr().err
