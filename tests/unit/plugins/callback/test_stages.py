# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.blackwell.inference.plugins.callback import stages


def test_each_stage_ends_where_the_next_one_starts() -> None:
    assert stages.durations([("node", 10.0), ("serve", 14.0)], 20.0) == [("node", 4.0), ("serve", 6.0)]
    assert stages.durations([], 20.0) == []
