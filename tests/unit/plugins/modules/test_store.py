# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ansible_collections.blackwell.inference.plugins.module_utils._refusal import Refusal
from ansible_collections.blackwell.inference.plugins.modules import store


def test_makes_what_is_missing_once(tmp_path: Path) -> None:
    root = tmp_path / "inference"
    me = os.getuid()
    predicted = store.reconcile(str(root), me, check_mode=True)
    assert predicted["changed"] and not root.exists() and predicted["free_bytes"] is None
    assert store.reconcile(str(root), me, check_mode=False)["changed"]
    assert sorted(entry.name for entry in root.iterdir()) == ["cache", "models", "stacks", "wheels"]
    again = store.reconcile(str(root), me, check_mode=False)
    assert not again["changed"]
    assert again["free_bytes"] > 0
    assert again["diff"]["before"] == again["diff"]["after"]


def test_restores_a_mode(tmp_path: Path) -> None:
    root = tmp_path / "inference"
    store.reconcile(str(root), os.getuid(), check_mode=False)
    (root / "stacks").chmod(0o700)
    result = store.reconcile(str(root), os.getuid(), check_mode=False)
    assert result["changed"]
    assert (root / "stacks").stat().st_mode & 0o7777 == 0o755


def test_refuses_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "wheels").write_text("")
    with pytest.raises(Refusal, match="not a folder"):
        store.reconcile(str(tmp_path), os.getuid(), check_mode=False)


def test_the_build_container_owns_what_it_writes_and_nothing_else() -> None:
    owners = {os.path.basename(path): state[0] for path, state in store.wanted_folders("/s", 100000).items()}
    assert owners == {"s": 0, "wheels": 0, "models": 0, "cache": 100000, "stacks": 100000}
