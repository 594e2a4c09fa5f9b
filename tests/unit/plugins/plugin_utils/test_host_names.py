# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.blackwell.inference.plugins.plugin_utils._host_names import fold, natural

FOLDED = [
    ([], ""),
    (["kpro6"], "kpro6"),
    ([f"kpro{number}" for number in (3, 1, 2)], "kpro[1-3]"),
    (["kpro9", "kpro10", "kpro12"], "kpro[9-10,12]"),
    ([f"node{number:02d}.site" for number in range(8, 12)], "node[08-11].site"),
    (["n9", "n010"], "n[9,010]"),
    (["kpro6-200", "kpro7-200", "kpro8-200"], "kpro[6-8]-200"),
    (["kpro6-200", "kpro6-201"], "kpro6-[200-201]"),
    (["kpro6-200", "kpro6-201", "kpro7-200"], "kpro6-[200-201], kpro7-200"),
    (["beta", "alpha"], "alpha, beta"),
    (["kpro1", "other", "kpro2"], "kpro[1-2], other"),
    (["kpro1", "kpro1"], "kpro1"),
    (["a", "b", "c", "d"], "a, b, c, and 1 more"),
    ([f"n{number}" for number in (1, 3, 5, 7)], "n[1,3,5,...]"),
]


@pytest.mark.parametrize(("names", "expected"), FOLDED, ids=[expected for _names, expected in FOLDED])
def test_names_are_folded(names: list[str], expected: str) -> None:
    assert fold(names, 3) == expected
    assert fold(reversed(names), 3) == expected


def test_names_are_sorted_by_their_numbers() -> None:
    assert sorted(["n10", "n9", "m", "n", "9", "n9b"], key=natural) == ["9", "m", "n", "n9", "n9b", "n10"]
