# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.blackwell.inference.plugins.module_utils import _journal


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("api_key='abc', host=x", "api_key=(not shown), host=x"),
        ("password: xyz", "password: (not shown)"),
        ("token usage: 0.5", "token usage: 0.5"),
        ("started with s3cret", "started with (not shown)"),
    ],
)
def test_secrets_are_taken_out(text: str, shown: str) -> None:
    assert _journal.redact(text, ["s3cret", ""]) == shown


@pytest.mark.parametrize(("recent", "expected"), [("now", "now"), ("", "before"), ("-- No entries --", "before")])
def test_a_unit_that_said_nothing_since_then_shows_what_it_said_before(recent: str, expected: str) -> None:
    def run(argv: list[str]) -> tuple[int, str, str]:
        return 0, recent if "--since" in argv else "before\n", ""

    assert _journal.last_lines(run, "x.service", since=5.0) == expected


def test_no_line_at_all_is_said() -> None:
    assert _journal.last_lines(lambda dummy_argv: (0, "", ""), "x.service") == "(none)"
