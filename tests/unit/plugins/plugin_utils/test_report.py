# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from ansible_collections.blackwell.inference.plugins.plugin_utils import _knowledge, _report
from ansible_collections.blackwell.inference.plugins.plugin_utils._resolver import resolve

sys.path.insert(0, str(Path(__file__).parent))
import cases
import fleet_kit as kit


def report(**changes: object) -> str:
    given = cases.facts(dict(changes))
    plan = resolve(_knowledge.load(), given["gpu"], given["model"])
    return _report.render(plan, _report.host(given["gpu"], given["model"]))


def test_every_decision_stands_in_the_report_with_its_reason() -> None:
    plan = resolve(_knowledge.load(), cases.BASE["gpu"], cases.BASE["model"])
    said = " ".join(report().split())
    for entry in plan["decisions"]:
        assert entry["subject"].split()[0] in said
        assert " ".join(entry["because"].split()[:3]) in said
    assert f"stack {plan['stack_id']}, launch {plan['launch_id']}, support {plan['support']}" in said
    assert f"Ports 30000 to 30007 Start {' '.join(plan['launch']['args'])}" in said


def test_kinds_of_cards_are_counted() -> None:
    said = report(**{"gpu.devices.7.memory_mib": 90112, "gpu.devices.6.name": None})
    assert "Host    1 x NVIDIA RTX PRO 6000 Blackwell Workstation Edition (12.0, 88.0 GiB), 6 x NVIDIA" in said
    assert "1 x GPU (12.0, 95.6 GiB)" in said


def test_what_is_not_chosen_is_cut_and_the_rest_is_counted() -> None:
    said = report(**kit.OLD_DRIVER)
    rejected = resolve(_knowledge.load(), cases.facts(kit.OLD_DRIVER)["gpu"], cases.BASE["model"])["rejected"]
    assert f"... and {len(rejected) - _report.MOST_REJECTED} more in plan.rejected" in said


def test_no_name_moves_the_cursor() -> None:
    said = report(**{"gpu.devices.0.name": kit.HOSTILE + "\r\u202e\u200b", "model.path": "/m\x07odel"})
    assert not [letter for letter in said if not letter.isprintable() and letter != "\n"]
    assert "alert(1)</script>&\"'?[2J" in said and "/m?odel" in said


@pytest.mark.parametrize(
    ("cells", "widths", "expected"),
    [
        ([("a", "b")], (3,), ["a    b"]),
        ([("abcdef", "b")], (3,), ["abc  b", "def"]),
        ([("a\nb", "x")], (3,), ["a    x", "b"]),
        ([("", "")], (3,), [""]),
        ([("a-b-c-d", "x")], (4,), ["a-b-  x", "c-d"]),
    ],
)
def test_what_is_too_long_continues_below(cells: list[tuple[str, ...]], widths: tuple[int, ...], expected: list[str]) -> None:
    assert _report.rows(cells, widths) == expected


def test_no_line_is_wider_than_a_terminal() -> None:
    assert max(len(line) for line in _report.rows([("x" * 300, "y " * 300, "z" * 500)], (20, 30))) <= _report.WIDTH
