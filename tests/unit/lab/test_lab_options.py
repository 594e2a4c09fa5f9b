# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Command lines as `pct` and `pvesh` take them."""

from __future__ import annotations

import pytest
from pveshim import options
from pveshim.errors import PveError

KNOWN, BOOLEANS = {"memory", "onboot", "delete"}, {"onboot"}
CASES = [
    (["200", "-memory", "512"], ["200"], {"memory": "512"}),
    (["200", "--memory", "512"], ["200"], {"memory": "512"}),
    (["--memory=512", "200"], ["200"], {"memory": "512"}),
    (["200", "--onboot"], ["200"], {"onboot": "1"}),
    (["200", "--onboot", "0"], ["200"], {"onboot": "0"}),
    (["--onboot", "200"], ["200"], {"onboot": "1"}),
    (["200", "--memory", "1", "--memory", "2"], ["200"], {"memory": "2"}),
    (["200", "--", "ls", "-l"], ["200", "ls", "-l"], {}),
    (["200", "--delete", "-x"], ["200"], {"delete": "-x"}),
    ([], [], {}),
]


@pytest.mark.parametrize(("words", "positional", "found"), CASES)
def test_parse(words: list[str], positional: list[str], found: dict[str, str]) -> None:
    assert options.parse(words, KNOWN, BOOLEANS, "usage") == (positional, found)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["200", "ls", "-l"], "Unknown option: l\n400 unable to parse option\nusage"),
        (["200", "--memory"], "Option memory requires an argument"),
    ],
)
def test_refused(words: list[str], message: str) -> None:
    with pytest.raises(PveError) as caught:
        options.parse(words, KNOWN, BOOLEANS, "usage")
    assert str(caught.value).startswith(message)
    assert caught.value.code == 2


@pytest.mark.parametrize("text", ["99", "abc", "-1", "1000000000", ""])
def test_vmid_out_of_range(text: str) -> None:
    with pytest.raises(PveError, match="does not look like a valid VM ID"):
        options.vmid(text, "usage")
