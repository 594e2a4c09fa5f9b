# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The description of a node's cards: what is in its slots, whether a driver is there or not.

``gpus.conf`` has one line a card, fields separated by tabs, ``gpu`` first and then ``key=value``. The simulated
nvidia-modprobe reads it when it loads the module; ``pci/`` stands in for /sys/bus/pci/devices.
"""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path

from .store import BuildError


@dataclass(frozen=True)
class Profile:
    """One kind of card."""

    name: str
    device_id: str  # of vendor 10de
    subsystem_id: str
    compute_capability: str
    memory_mib: int
    shared_memory_optin: int
    multiprocessors: int
    power_w: int
    ecc: int  # 1 on, 0 off, -1 the card has none
    link_gen: int
    link_width: int
    pci_class: str
    pci_domain: str = "0000"
    audio_id: str = ""  # cards with display outputs have a second function, which is no GPU

    @property
    def needs_open_modules(self) -> bool:
        return int(self.compute_capability.split(".")[0]) >= 10


PROFILES = {
    "rtx-pro-6000": Profile(
        "NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "2bb1", "204b", "12.0", 97887, 101376, 188, 600, 1, 5, 16,
        "0x030000", audio_id="22e8",
    ),
    "rtx-5090": Profile(
        "NVIDIA GeForce RTX 5090", "2b85", "2057", "12.0", 32607, 101376, 170, 575, -1, 5, 16, "0x030000",
        audio_id="22e8",
    ),
    "b200": Profile("NVIDIA B200", "2901", "1999", "10.0", 183359, 232448, 148, 1000, 1, 5, 16, "0x030200"),
    "h200": Profile("NVIDIA H200", "2335", "18be", "9.0", 143771, 232448, 132, 700, 1, 5, 16, "0x030200"),
    "gb10": Profile(
        "NVIDIA GB10", "2e12", "21ec", "12.1", 122880, 101376, 48, 140, -1, 5, 4, "0x030200", pci_domain="000f"
    ),
}  # fmt: skip


def gpu_uuid(node: str, index: int) -> str:
    """Differs between cards and nodes, and stays the same when a node comes back blank: it is the same card."""
    digits = hashlib.sha256(f"bwlab {node} {index}".encode()).hexdigest()
    return f"GPU-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:32]}"


def pci_address(index: int, domain: str = "0000") -> str:
    """A server's slots hang on root ports of their own: 01, 21, 41, ..., then 02, 22, ..."""
    return f"{domain}:{(index % 8) * 0x20 + 1 + index // 8:02x}:00.0"


def gpus_conf(node: str, gpus: int, profile: Profile) -> str:
    lines = ["# The cards in this node's slots, as the lab simulates them."]
    for index in range(gpus):
        fields = {
            "uuid": gpu_uuid(node, index),
            "name": profile.name,
            "pci": pci_address(index, profile.pci_domain),
            "pci_id": f"10de:{profile.device_id}",
            "subsystem": f"10de:{profile.subsystem_id}",
            "compute_capability": profile.compute_capability,
            "memory_mib": profile.memory_mib,
            "shared_memory_optin": profile.shared_memory_optin,
            "multiprocessors": profile.multiprocessors,
            "power_w": profile.power_w,
            "ecc": profile.ecc,
            "link_gen": profile.link_gen,
            "link_width": profile.link_width,
            "needs_open": int(profile.needs_open_modules),
        }
        lines.append("\t".join(["gpu", *(f"{key}={value}" for key, value in fields.items())]))
    return "\n".join(lines) + "\n"


def _pci_function(folder: Path, values: dict[str, str]) -> None:
    folder.mkdir(parents=True)
    for name, value in values.items():
        (folder / name).write_text(value + "\n", encoding="ascii")


def _write_pci(folder: Path, profile: Profile, index: int, gpus: int) -> None:
    address = pci_address(index, profile.pci_domain)
    speed = {3: "8.0", 4: "16.0", 5: "32.0"}[profile.link_gen] + " GT/s PCIe"
    common = {
        "vendor": "0x10de",
        "subsystem_vendor": "0x10de",
        "subsystem_device": f"0x{profile.subsystem_id}",
        "revision": "0xa1",
        "numa_node": str(index * 2 // gpus) if gpus > 1 else "0",
        "current_link_speed": speed,
        "max_link_speed": speed,
        "current_link_width": str(profile.link_width),
        "max_link_width": str(profile.link_width),
    }
    _pci_function(folder / address, {**common, "device": f"0x{profile.device_id}", "class": profile.pci_class})
    if profile.audio_id:
        audio = {**common, "device": f"0x{profile.audio_id}", "class": "0x040300"}
        _pci_function(folder / (address[:-1] + "1"), audio)


def write_hardware(folder: Path, node: str, gpus: int = 8, profile: str = "rtx-pro-6000") -> None:
    """Writes ``gpus.conf`` and ``pci/`` of one node, in place of what was there."""
    if profile not in PROFILES:
        raise BuildError(f"card profile: found {profile!r}, wanted one of {', '.join(sorted(PROFILES))}")
    if not 0 <= gpus <= 16:
        raise BuildError(f"number of cards: found {gpus}, wanted 0 to 16")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "gpus.conf").write_text(gpus_conf(node, gpus, PROFILES[profile]), encoding="ascii")
    pci = folder / "pci"
    pci.mkdir(exist_ok=True)
    # The folder itself stays: running nodes have it mounted.
    for old in pci.iterdir():
        shutil.rmtree(old)
    # Something that is no NVIDIA device, as on every machine.
    _pci_function(pci / "0000:00:00.0", {"vendor": "0x1022", "device": "0x14a4", "class": "0x060000", "numa_node": "0"})
    for index in range(gpus):
        _write_pci(pci, PROFILES[profile], index, gpus)
