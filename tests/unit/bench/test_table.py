# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests"))
from bench.table import BEGIN, END, MarkerError, Row, insert, number, render


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (1625.4, "1625"),
        (100.0, "100"),
        (42.04, "42.0"),
        (3.171, "3.17"),
        (0.888, "0.888"),
        (0.00297, "0.00297"),
        (1.25e-9, "0.000000"),
        (0.0, "0.000000"),
    ],
)
def test_numbers(value: float | None, text: str) -> None:
    assert number(value) == text


def test_a_ratio_needs_both_values() -> None:
    assert Row("x", 3.0, base=2.0).ratio == 1.5
    assert Row("x", 3.0).ratio is None
    assert Row("x", base=2.0).ratio is None
    assert Row("x", 3.0, base=0.0).ratio is None


def test_the_table() -> None:
    rows = [
        Row("scan", 10.0, "ms", 40.0, "cuobjdump", 28.6, "50 ms", "a|b"),
        Row("lock", 2.0, "s"),
        Row("pct", unit="s", base_name="ssh", goal="ratio 1.05", note="the lab\nis not up"),
    ]
    assert render(rows, "2026-11-30", 2).splitlines() == [
        "Measured on 2026-11-30 on 2 CPUs by `make bench`.",
        "",
        "| measure | this | against | ratio | MB peak | goal |",
        "|---|---|---|---|---|---|",
        "| scan (a\\|b) | 10.0 ms | cuobjdump: 40.0 ms | 0.250 | 29 | 50 ms |",
        "| lock | 2.00 s |  |  |  |  |",
        "| pct (the lab is not up) | not measured | ssh |  |  | ratio 1.05 |",
    ]


def test_json_holds_the_ratio() -> None:
    row = Row("scan", 10.0, base=40.0).as_json()
    assert (row["measure"], row["value"], row["base"], row["ratio"]) == ("scan", 10.0, 40.0, 0.25)


def test_the_table_stands_between_the_markers_and_the_rest_stays() -> None:
    document = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    once = insert(document, "new")
    assert once == f"before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"
    assert insert(once, "new") == once


@pytest.mark.parametrize("document", ["", BEGIN, END, f"{END}{BEGIN}", f"{BEGIN}{END}{BEGIN}{END}"])
def test_a_document_without_a_place_is_refused(document: str) -> None:
    with pytest.raises(MarkerError, match="wanted"):
        insert(document, "new")


def test_the_documentation_has_the_place() -> None:
    assert "| new |" in insert((ROOT / "docs/benchmarks.md").read_text(encoding="utf-8"), "| new |")
