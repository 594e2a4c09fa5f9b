# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.blackwell.inference.plugins.action import site_record

FACTS = {"gpu": {"devices": [{"uuid": "GPU-1", "memory_used_mib": 3, "processes": [{"pid": 1}]}]}}


def corrected(count: int, code: str = "ecc_corrected") -> dict[str, Any]:
    return {"problems": [{"code": code, "severity": "warning", "found": f"{count} errors were corrected"}]}


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


def test_a_count_that_grows_in_a_sentence_does_not_count(tmp_path: Path) -> None:
    path = tmp_path / "facts.yml"
    site_record.write(path, site_record.render({"gpu": corrected(3)}))
    assert site_record.unchanged(path, {"gpu": corrected(4)})
    assert not site_record.unchanged(path, {"gpu": corrected(3, "gpu_lost")})
    assert not site_record.unchanged(path, {"gpu": {"problems": []}})


@pytest.mark.parametrize("problems", [["text"], {"a": 1}, None, 3])
def test_problems_of_another_form_are_compared_as_they_are(tmp_path: Path, problems: Any) -> None:
    path = tmp_path / "facts.yml"
    site_record.write(path, site_record.render({"problems": problems}))
    assert site_record.unchanged(path, {"problems": problems})
    assert not site_record.unchanged(path, {"problems": ["other"]})


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
