# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The parts of tools/prove_release that judge and write; the whole of it runs in tests/real."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from ansible_collections.blackwell.inference.plugins.plugin_utils import _knowledge
from ansible_collections.blackwell.inference.plugins.plugin_utils._conflicts import PlanError
from proving import inside, prove

GOOD: dict[str, Any] = {
    "checks": [{"name": "manifest", "ok": True, "found": "every file", "wanted": "every file"}],
    "compiled": {"120": {"error": None, "code": ["compute_120", "sm_120"]}, "120a": {"error": None, "code": ["sm_120a"]}},
    "flags": 561,
}


def test_what_is_good_has_no_failures() -> None:
    assert prove.failures(GOOD) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"checks": [{"name": "engine_help", "ok": False, "found": "status 1", "wanted": "flags"}]}, "engine_help: found status 1"),
        ({"compiled": {"120f": {"error": "headers are incompatible", "code": []}}}, "compile for 120f: headers are incompatible"),
        ({"compiled": {"120a": {"error": None, "code": ["sm_120"]}}}, "compile for 120a: made sm_120"),
        ({"compiled": {"120a": {"error": None, "code": []}}}, "compile for 120a: made no code"),
    ],
)
def test_each_failure_is_told(change: dict[str, Any], words: str) -> None:
    (said,) = prove.failures({**GOOD, **change})
    assert said.startswith(words)


def test_a_row_takes_the_place_of_an_earlier_one_and_stays_valid() -> None:
    plan = prove.plan_for("0.5.23", "3.13", {})
    before = prove.PROVEN.read_text(encoding="utf-8")
    new = prove.row("0.5.23", plan, GOOD, "2026-12-31")
    after = prove.insert(before, "0.5.23", "3.13", new)
    assert prove.insert(after, "0.5.23", "3.13", new) == after
    rows = yaml.safe_load(after)["proven"]
    assert len(rows) == len(yaml.safe_load(before)["proven"])
    (found,) = [one for one in rows if one["release"] == "0.5.23" and one["python"] == "3.13"]
    assert found["day"] == "2026-12-31" and found["flags"] == 561 and found["compiled"] == ["120", "120a"]
    other = prove.row("0.5.22", plan, GOOD, "2026-12-31").replace("3.13", "3.99")
    tables = _knowledge.read_tables() | {"proven": yaml.safe_load(prove.insert(before, "0.5.22", "3.99", other))["proven"]}
    assert any(one["python"] == "3.99" for one in _knowledge.build(tables).proven)


@pytest.mark.parametrize(
    ("release", "among", "not_among"),
    [
        ("0.5.23", "--mamba-radix-cache-strategy --disable-overlap-schedule", "--mamba-scheduler-strategy"),
        ("0.5.12.post1", "--mamba-scheduler-strategy", "--mamba-radix-cache-strategy"),
    ],
)
def test_every_flag_that_a_plan_may_pass_is_looked_for(release: str, among: str, not_among: str) -> None:
    flags = prove.flags_for(release, "3.13")
    always = "--model-path --attention-backend --tp-size --context-length --max-running-requests --speculative-algorithm"
    assert {*always.split(), *among.split()} <= set(flags)
    assert not_among not in flags


def test_a_release_that_cannot_be_planned_is_told() -> None:
    with pytest.raises(PlanError, match="Python") as refused:
        prove.flags_for("0.5.23", "3.9")
    assert "3.9" in str(refused.value)


HELP = """usage: launch_server.py [-h] [--model-path MODEL_PATH]
options:
  -h, --help            show this help message and exit
  --model-path MODEL_PATH, --model MODEL_PATH  The path, see --tokenizer-path too
  --tp-size TP_SIZE     as --pp-size
                        --not-an-option stands in a description
"""


def test_flags_are_counted_where_they_are_described() -> None:
    assert inside.count_flags(HELP) == 4
