# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from pathlib import Path

import pytest
from sim.driver.nvidia_modprobe import parse_cards
from sim.hardware import PROFILES, gpu_uuid, pci_address, write_hardware
from sim.store import BuildError


@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_a_profile_is_written_and_read_back(tmp_path: Path, profile: str) -> None:
    write_hardware(tmp_path, "kpro6", 2, profile)
    cards = parse_cards((tmp_path / "gpus.conf").read_text())
    assert [card["name"] for card in cards] == [PROFILES[profile].name] * 2
    for card in cards:
        device = tmp_path / "pci" / card["pci"]
        vendor, number = ((device / name).read_text().strip() for name in ("vendor", "device"))
        assert card["pci_id"] == f"{vendor[2:]}:{number[2:]}"
        assert (device / "class").read_text().startswith("0x03")


def test_the_reference_site(tmp_path: Path) -> None:
    write_hardware(tmp_path, "kpro6")
    cards = parse_cards((tmp_path / "gpus.conf").read_text())
    assert len({card["uuid"] for card in cards}) == 8
    assert {(c["pci_id"], c["compute_capability"], c["memory_mib"], c["shared_memory_optin"]) for c in cards} == {
        ("10de:2bb1", "12.0", "97887", "101376")
    }
    assert [c["pci"] for c in cards] == sorted(c["pci"] for c in cards)
    classes = [(p / "class").read_text().strip() for p in (tmp_path / "pci").iterdir()]
    assert sorted(set(classes)) == ["0x030000", "0x040300", "0x060000"]


def test_writing_again_replaces(tmp_path: Path) -> None:
    write_hardware(tmp_path, "kpro6", 8)
    inode = (tmp_path / "pci").stat().st_ino
    write_hardware(tmp_path, "kpro6", 1)
    assert len(list((tmp_path / "pci").iterdir())) == 3
    assert (tmp_path / "pci").stat().st_ino == inode


@pytest.mark.parametrize(("gpus", "profile", "message"), [(1, "rtx", "card profile"), (17, "b200", "0 to 16")])
def test_refusals(tmp_path: Path, gpus: int, profile: str, message: str) -> None:
    with pytest.raises(BuildError, match=message):
        write_hardware(tmp_path, "kpro6", gpus, profile)


def test_names_are_stable() -> None:
    assert gpu_uuid("kpro6", 0) == gpu_uuid("kpro6", 0) != gpu_uuid("kpro7", 0)
    assert len({pci_address(index) for index in range(16)}) == 16
