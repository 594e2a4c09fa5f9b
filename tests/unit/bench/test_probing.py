# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests"))
from bench import probing


@pytest.fixture(autouse=True)
def one_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "ROUNDS", 1)


def test_the_stand_in_waits_as_a_real_driver_does() -> None:
    row = probing.stand_in(2)
    # Loading, nvmlInit and two cards, as measured; a busy machine only adds.
    least = 1.7 + 11.2 + 2 * 13.8
    assert row.base is not None and row.base > least
    assert row.value is not None and row.value > least
    assert row.peak_mb is not None and row.peak_mb < 40
    assert "no GPU here: the lab's NVML with 2 cards" in row.note


def test_what_is_timed_is_looked_at(tmp_path: Path) -> None:
    os.chmod(tmp_path, 0o755)
    probing.write_machine(tmp_path, 1)
    environment = {"LD_LIBRARY_PATH": str(probing.build_stand_in(tmp_path))}
    with pytest.raises(probing.ProbeError, match="wanted 2 cards"):
        probing.against_bare(2, "", str(tmp_path), environment)
    (tmp_path / "dev/nvidia-uvm").unlink()
    with pytest.raises(probing.ProbeError, match="no /dev/nvidia-uvm"):
        probing.against_bare(1, "", str(tmp_path), environment)
