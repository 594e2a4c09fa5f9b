# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The room: what can be said of it without root."""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path

import pytest
from room import ENTER, FURNISH, PREFIX, SETTLE, SHIFT, SWEEP, RoomError, abandoned, bind_lines, shifted


def test_binds_keep_their_order_and_say_their_mode() -> None:
    binds = {"/payloads": "/tmp/with space/p", "/a": "/b"}
    assert bind_lines(binds, ["/payloads"]) == "/payloads\t/tmp/with space/p\trw\n/a\t/b\tro\n"


@pytest.mark.parametrize("binds", [{"/a\tb": "/c"}, {"/a": "/b\nc"}])
def test_a_path_that_would_break_the_list_is_refused(binds: dict[str, str]) -> None:
    with pytest.raises(RoomError, match="wanted: a path without tabs"):
        bind_lines(binds, [])


@pytest.mark.parametrize(("owner", "shift", "wanted"), [(0, 0, 0), (0, SHIFT, 100_000), (998, SHIFT, 100_998)])
def test_owners_go_up(owner: int, shift: int, wanted: int) -> None:
    member = tarfile.TarInfo("etc/passwd")
    member.uid = member.gid = owner
    member.mode = 0o4755
    moved = shifted(member, shift)
    assert (moved.uid, moved.gid, moved.mode, moved.name) == (wanted, wanted, 0o4755, "etc/passwd")
    assert member.uid == owner


def test_rooms_of_killed_tests_are_found(tmp_path: Path) -> None:
    (tmp_path / "77").mkdir()
    names = [f"{PREFIX}77-abc", f"{PREFIX}78-def", f"{PREFIX}778-ghi"]
    assert abandoned(names, tmp_path) == names[1:]


@pytest.mark.parametrize("script", [ENTER, FURNISH, SETTLE, SWEEP], ids=["enter", "furnish", "settle", "sweep"])
def test_the_scripts_are_shell(script: str) -> None:
    done = subprocess.run(["sh", "-n"], input=script, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
