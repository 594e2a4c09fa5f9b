# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.blackwell.inference.plugins.action import site_record

FACTS = {"gpu": {"devices": [{"uuid": "GPU-1", "memory_used_mib": 3, "processes": [{"pid": 1}]}]}}


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"memory_used_mib": 90000}, True),
        ({"processes": []}, True),
        ({"uuid": "GPU-2"}, False),
    ],
)
def test_only_what_lasts_counts(tmp_path: Path, change: dict[str, Any], same: bool) -> None:
    path = tmp_path / "kpro6" / "facts.yml"
    site_record.write(path, site_record.render({**FACTS, "recorded_at": "2026-01-01"}))
    later = {"gpu": {"devices": [{**FACTS["gpu"]["devices"][0], **change}]}}
    assert site_record.unchanged(path, later) is same


def test_a_text_is_written_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "stack.lock"
    assert not site_record.unchanged(path, "# lock\n")
    site_record.write(path, site_record.render("# lock\n"))
    assert path.read_text() == "# lock\n"
    assert site_record.unchanged(path, "# lock\n")
    assert not site_record.unchanged(path, "# other\n")


def test_a_damaged_record_is_written_again(tmp_path: Path) -> None:
    path = tmp_path / "facts.yml"
    path.write_text("{unbalanced")
    assert not site_record.unchanged(path, FACTS)


def test_writing_leaves_no_temporary_file(tmp_path: Path) -> None:
    site_record.write(tmp_path / "a.yml", "a")
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.yml"]


def test_values_of_ansible_become_plain() -> None:
    class Tagged(str):
        pass

    assert site_record.render({"a": Tagged("b"), "c": (1, True, None)}) == "a: b\nc:\n- 1\n- true\n- null\n"
