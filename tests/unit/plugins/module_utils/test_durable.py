# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from ansible_collections.blackwell.inference.plugins.module_utils import _durable
from ansible_collections.blackwell.inference.plugins.module_utils._refusal import Refusal


@pytest.mark.parametrize("failing", ["write", "fsync", "replace", "fchmod"])
def test_an_interrupted_write_leaves_the_old_content_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def fail(*_arguments: object) -> None:
        raise OSError(28, "No space left on device")

    if failing == "write":
        monkeypatch.setattr(os, "fdopen", fail)
    else:
        monkeypatch.setattr(os, failing, fail)
    with pytest.raises(OSError, match="No space"):
        _durable.write_atomic(str(path), b"new")
    monkeypatch.undo()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


def test_what_a_killed_run_of_the_same_number_left_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / f".file.{os.getpid()}.tmp").write_text("half")
    _durable.write_atomic(str(tmp_path / "file"), b"new")
    assert os.listdir(tmp_path) == ["file"]
    assert (tmp_path / "file").read_text() == "new"


def test_written_files_have_the_wanted_mode_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        _durable.write_atomic(str(tmp_path / "file"), b"x", 0o644)
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o644


def test_a_link_is_bent_in_one_step(tmp_path: Path) -> None:
    for target in ("one", "two", "two"):
        _durable.link_atomic(target, str(tmp_path / "current"))
        assert os.readlink(tmp_path / "current") == target
    assert os.listdir(tmp_path) == ["current"]


def test_an_interrupted_removal_is_finished_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "stack"
    folder.mkdir()
    (folder / "file").write_text("x")

    def fail(_path: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "rmtree", fail)
    with pytest.raises(KeyboardInterrupt):
        _durable.remove_tree(str(folder))
    assert not folder.exists()
    monkeypatch.undo()
    assert _durable.sweep(str(tmp_path)) == [".removing-stack"]
    assert os.listdir(tmp_path) == []


def test_one_at_a_time_and_the_wait_ends(tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    waits: list[float] = []
    with (
        _durable.exclusive(path, 10),
        pytest.raises(Refusal, match="another run"),
        _durable.exclusive(path, 2, sleep=waits.append),
    ):
        pass
    assert sum(waits) == 2
    with _durable.exclusive(path, 0):
        pass


@pytest.mark.parametrize(("free", "fits"), [(10, True), (9, False)])
def test_space_is_asked_where_the_folder_will_be(tmp_path: Path, free: int, fits: bool) -> None:
    asked: list[str] = []

    def measure(path: str) -> int:
        asked.append(path)
        return free

    def require() -> None:
        _durable.require_space(str(tmp_path / "not" / "yet"), 10, measure)

    check: Callable[[], None] = require
    if fits:
        check()
    else:
        with pytest.raises(Refusal, match="9 bytes free"):
            check()
    assert asked == [str(tmp_path)]
