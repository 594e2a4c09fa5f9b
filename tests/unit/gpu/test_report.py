# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the GPU test concludes and prints."""

from __future__ import annotations

from typing import Any

import pytest
from report import Report


@pytest.mark.parametrize(
    ("ours", "theirs", "within", "equal"),
    [
        ("9.0", "9.0", 0, True),
        ("9.0", "12.0", 0, False),
        (None, None, 0, True),
        (100, 110, 16, True),
        (100, 120, 16, False),
        (None, 100, 16, False),
        (100, None, 16, False),
        # Neither side knows: with a tolerance, that is no agreement.
        (None, None, 16, False),
    ],
)
def test_what_is_equal(ours: Any, theirs: Any, within: float, equal: bool) -> None:
    report = Report()
    report.begin("part")
    report.compare("field", ours, theirs, "nvidia-smi", within)
    assert report.different == (0 if equal else 1)
    assert report.status() == (0 if equal else 1)


def test_nothing_compared_is_no_success() -> None:
    assert Report().status() == 1


def test_a_part_that_was_not_done_is_no_success() -> None:
    report = Report()
    report.begin("host")
    report.compare("count", 1, 1, "nvidia-smi")
    report.failures.append("containers: no room")
    assert report.status() == 1
    assert "FAIL  containers: no room" in report.table()
    assert report.summary("a GPU") == "1 of 1 equal on a GPU; 1 steps not done"


def test_one_line_for_a_part_and_one_for_a_difference() -> None:
    report = Report()
    for part, theirs in (("host", [1, 2, 3]), ("container", [1, 9, 3])):
        report.begin(part)
        for number, value in enumerate(theirs, 1):
            report.compare(f"field{number}", number, value, "nvidia-smi")
    assert report.table().splitlines() == [
        "PASS  host: 3 of 3 equal",
        "FAIL  container: 2 of 3 equal",
        "      DIFF  container: field2: 2, nvidia-smi: 9",
    ]
    assert len(report.everything().splitlines()) == 6


def test_the_table_stays_short() -> None:
    report = Report()
    report.begin("container")
    report.note("long", "x" * 10_000)
    for number in range(500):
        report.compare(f"field{number}", "a" * 1000, "b" * 1000, "nvidia-smi")
    table = report.table()
    assert len(table) < 6000
    assert "and 480 more" in table
    assert len(report.everything()) > 500 * 2000


def test_what_was_left_out_stands_in_the_last_line() -> None:
    report = Report()
    report.begin("host")
    report.compare("count", 1, 1, "nvidia-smi")
    report.not_tried("cuobjdump", "not here")
    assert report.summary("a GPU") == "1 of 1 equal on a GPU; NOT TRIED: cuobjdump"
    assert report.status() == 0
