# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command itself: what it refuses, how it ends, and where its table goes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import main
import measure
import pytest
from report import Report
from room import RoomError


def bundle(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).touch()
    return folder


def test_nothing_stands_in_the_way(tmp_path: Path) -> None:
    assert main.obstacle(bundle(tmp_path, *main.ARCHIVES), root=True) is None


@pytest.mark.parametrize("name", main.ARCHIVES)
def test_a_missing_archive_names_the_command_that_makes_it(tmp_path: Path, name: str) -> None:
    others = [other for other in main.ARCHIVES if other != name]
    found = main.obstacle(bundle(tmp_path, *others), root=True)
    assert found is not None and f"found: no {name} in .gpu;" in found and "make gpu-bundle" in found


def test_it_needs_root(tmp_path: Path) -> None:
    found = main.obstacle(bundle(tmp_path, *main.ARCHIVES), root=False)
    assert found is not None and "wanted: root" in found


def test_it_needs_a_python_that_can_move_owners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(tarfile, "data_filter")
    found = main.obstacle(bundle(tmp_path, *main.ARCHIVES), root=True)
    assert found is not None and "wanted: 3.11.4 or newer" in found


def test_without_a_gpu_it_is_skipped_and_no_success(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(main, "has_gpu", lambda: False)
    monkeypatch.setattr(sys, "argv", ["run"])
    assert main.main() == 77
    assert capsys.readouterr().out.startswith("SKIPPED: no NVIDIA GPU here")


def test_without_the_bundle_it_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    monkeypatch.setattr(main, "BUNDLE", tmp_path)
    monkeypatch.setattr(sys, "argv", ["run", "--rehearse"])
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert main.main() == 1
    assert "do: make gpu-bundle" in capsys.readouterr().out


def rehearsal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, equal: bool) -> int:
    def containers(report: Report, *_rest: object, gpu: bool) -> None:
        assert not gpu
        report.begin("container")
        report.compare("count", 0 if equal else 1, 0, "the test")

    monkeypatch.setattr(main, "obstacle", lambda *_arguments: None)
    monkeypatch.setattr(main, "try_containers", containers)
    monkeypatch.setattr(main, "left_behind", list)
    monkeypatch.setattr(signal, "signal", lambda *_arguments: None)
    monkeypatch.setattr(sys, "argv", ["run", "--rehearse"])
    monkeypatch.setenv("OUT", str(tmp_path))
    return main.main()


@pytest.mark.parametrize(("equal", "status", "word"), [(True, 77, "REHEARSAL, no GPU was tested: 2 of 2"), (False, 1, "FAILED: 1 of 2")])
def test_a_rehearsal_is_never_a_success(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, equal: bool, status: int, word: str
) -> None:
    assert rehearsal(monkeypatch, tmp_path, equal) == status
    assert capsys.readouterr().out.splitlines()[-1].startswith(word)
    assert "container: count" in (tmp_path / "comparison.txt").read_text()


def test_what_is_left_behind_is_a_difference(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(main, "has_gpu", lambda: True)
    monkeypatch.setattr(main, "obstacle", lambda *_arguments: None)
    monkeypatch.setattr(main, "try_all", lambda report, _results: report.compare("count", 1, 1, "x") or "a GPU")
    monkeypatch.setattr(main, "left_behind", lambda: ["control group blackwell-room-1"])
    monkeypatch.setattr(signal, "signal", lambda *_arguments: None)
    monkeypatch.setattr(sys, "argv", ["run"])
    assert main.main() == 1


@pytest.mark.parametrize(
    ("error", "wanted"),
    [(RoomError("container x does not start"), "step: container x does not start"), (TypeError("one argument"), "TypeError: one argument")],
)
def test_a_step_that_fails_is_kept_and_the_next_goes_on(error: Exception, wanted: str) -> None:
    report = Report()
    with main.Step(report, "step"):
        raise error
    assert wanted in report.failures[0]
    assert ("Traceback" in report.failures[0]) is isinstance(error, TypeError)


def test_an_interruption_ends_the_step_and_the_test() -> None:
    report = Report()
    with pytest.raises(SystemExit) as caught, main.Step(report, "step"):
        main.interrupted(signal.SIGTERM, None)
    assert (caught.value.code, report.failures) == (143, [])


def test_results_are_kept_where_out_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OUT", str(tmp_path))
    main.Results().keep_facts("facts_host.json", {"count": 1})
    assert json.loads((tmp_path / "facts_host.json").read_text()) == {"count": 1}
    monkeypatch.setenv("OUT", "")
    main.Results().keep("lost", "text")
    assert [path.name for path in tmp_path.iterdir()] == ["facts_host.json"]


def test_the_table_goes_between_the_marks() -> None:
    document = f"before\n{measure.BEGIN}\n\nold\n\n{measure.END}\nafter\n"
    once = measure.inserted(document, "new")
    assert once == f"before\n{measure.BEGIN}\n\nnew\n\n{measure.END}\nafter\n"
    assert measure.inserted(once, "new") == once


@pytest.mark.parametrize(
    "document", ["", measure.BEGIN, f"{measure.END} {measure.BEGIN}", f"{measure.BEGIN} {measure.END} {measure.BEGIN} {measure.END}"]
)
def test_a_document_without_one_pair_of_marks_is_refused(document: str) -> None:
    with pytest.raises(ValueError, match="put them back"):
        measure.inserted(document, "new")


def test_the_document_has_the_marks() -> None:
    text = main.DOCUMENT.read_text(encoding="utf-8")
    assert "new table" in measure.inserted(text, "new table")


def test_the_command_shows_its_options() -> None:
    done = subprocess.run([str(main.CHECKOUT / "tests/gpu/run"), "--help"], capture_output=True, text=True, check=True)
    assert "--rehearse" in done.stdout
