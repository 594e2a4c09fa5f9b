# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Names and compute capabilities by PCI id, so that a host without a driver still names its cards.

Source of ids and names: the table "Compatible GPUs" in README.md of NVIDIA/open-gpu-kernel-modules (a release of 2026).
Source of capabilities: NVIDIA's list "CUDA GPU Compute Capability". A name that depends on the subsystem is the one of
NVIDIA's own board. Every Blackwell card of that table but the one for cars is listed, of older ones those that usually
serve models; others get no name without a driver.
"""

from __future__ import annotations

VENDOR = "10de"
DISPLAY_CLASSES = ("0x0300", "0x0302")

# device id: (name, compute capability)
CARDS = {
    "20b0": ("NVIDIA A100-SXM4-40GB", "8.0"),
    "20b2": ("NVIDIA A100-SXM4-80GB", "8.0"),
    "20b5": ("NVIDIA A100 80GB PCIe", "8.0"),
    "20f1": ("NVIDIA A100-PCIE-40GB", "8.0"),
    "2230": ("NVIDIA RTX A6000", "8.6"),
    "2235": ("NVIDIA A40", "8.6"),
    "2236": ("NVIDIA A10", "8.6"),
    "2321": ("NVIDIA H100 NVL", "9.0"),
    "2330": ("NVIDIA H100 80GB HBM3", "9.0"),
    "2331": ("NVIDIA H100 PCIe", "9.0"),
    "2335": ("NVIDIA H200", "9.0"),
    "2339": ("NVIDIA H100", "9.0"),
    "233b": ("NVIDIA H200 NVL", "9.0"),
    "2342": ("NVIDIA GH200 480GB", "9.0"),
    "2348": ("NVIDIA GH200 144G HBM3e", "9.0"),
    "2684": ("NVIDIA GeForce RTX 4090", "8.9"),
    "26b1": ("NVIDIA RTX 6000 Ada Generation", "8.9"),
    "26b5": ("NVIDIA L40", "8.9"),
    "26b9": ("NVIDIA L40S", "8.9"),
    "27b8": ("NVIDIA L4", "8.9"),
    "2901": ("NVIDIA B200", "10.0"),
    "2909": ("NVIDIA B200", "10.0"),
    "2941": ("NVIDIA GB200", "10.0"),
    "2b85": ("NVIDIA GeForce RTX 5090", "12.0"),
    "2b87": ("NVIDIA GeForce RTX 5090 D", "12.0"),
    "2b8c": ("NVIDIA GeForce RTX 5090 D v2", "12.0"),
    "2bb1": ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "12.0"),
    "2bb3": ("NVIDIA RTX PRO 5000 Blackwell", "12.0"),
    "2bb4": ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "12.0"),
    "2bb5": ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "12.0"),
    "2bb9": ("NVIDIA RTX 6000D", "12.0"),
    "2c02": ("NVIDIA GeForce RTX 5080", "12.0"),
    "2c05": ("NVIDIA GeForce RTX 5070 Ti", "12.0"),
    "2c18": ("NVIDIA GeForce RTX 5090 Laptop GPU", "12.0"),
    "2c19": ("NVIDIA GeForce RTX 5080 Laptop GPU", "12.0"),
    "2c31": ("NVIDIA RTX PRO 4500 Blackwell", "12.0"),
    "2c33": ("NVIDIA RTX PRO 4000 Blackwell SFF Edition", "12.0"),
    "2c34": ("NVIDIA RTX PRO 4000 Blackwell", "12.0"),
    "2c38": ("NVIDIA RTX PRO 5000 Blackwell Generation Laptop GPU", "12.0"),
    "2c39": ("NVIDIA RTX PRO 4000 Blackwell Generation Laptop GPU", "12.0"),
    "2c3a": ("NVIDIA RTX PRO 4500 Blackwell Server Edition", "12.0"),
    "2c58": ("NVIDIA GeForce RTX 5090 Laptop GPU", "12.0"),
    "2c59": ("NVIDIA GeForce RTX 5080 Laptop GPU", "12.0"),
    "2c77": ("NVIDIA RTX PRO 5000 Blackwell Embedded GPU", "12.0"),
    "2c79": ("NVIDIA RTX PRO 4000 Blackwell Embedded GPU", "12.0"),
    "2d04": ("NVIDIA GeForce RTX 5060 Ti", "12.0"),
    "2d05": ("NVIDIA GeForce RTX 5060", "12.0"),
    "2d18": ("NVIDIA GeForce RTX 5070 Laptop GPU", "12.0"),
    "2d19": ("NVIDIA GeForce RTX 5060 Laptop GPU", "12.0"),
    "2d30": ("NVIDIA RTX PRO 2000 Blackwell", "12.0"),
    "2d39": ("NVIDIA RTX PRO 2000 Blackwell Generation Laptop GPU", "12.0"),
    "2d58": ("NVIDIA GeForce RTX 5070 Laptop GPU", "12.0"),
    "2d59": ("NVIDIA GeForce RTX 5060 Laptop GPU", "12.0"),
    "2d79": ("NVIDIA RTX PRO 2000 Blackwell Embedded GPU", "12.0"),
    "2d83": ("NVIDIA GeForce RTX 5050", "12.0"),
    "2d98": ("NVIDIA GeForce RTX 5050 Laptop GPU", "12.0"),
    "2db8": ("NVIDIA RTX PRO 1000 Blackwell Generation Laptop GPU", "12.0"),
    "2db9": ("NVIDIA RTX PRO 500 Blackwell Generation Laptop GPU", "12.0"),
    "2dd8": ("NVIDIA GeForce RTX 5050 Laptop GPU", "12.0"),
    "2df9": ("NVIDIA RTX PRO 500 Blackwell Embedded GPU", "12.0"),
    "2e12": ("NVIDIA GB10", "12.1"),
    "2f04": ("NVIDIA GeForce RTX 5070", "12.0"),
    "2f06": ("NVIDIA GeForce RTX 5060", "12.0"),
    "2f18": ("NVIDIA GeForce RTX 5070 Ti Laptop GPU", "12.0"),
    "2f38": ("NVIDIA RTX PRO 3000 Blackwell Generation Laptop GPU", "12.0"),
    "2f58": ("NVIDIA GeForce RTX 5070 Ti Laptop GPU", "12.0"),
    "3182": ("NVIDIA B300 SXM6 AC", "10.3"),
    "31c2": ("NVIDIA GB300", "10.3"),
    "31c3": ("NVIDIA GB300", "10.3"),
}

FAMILIES = {
    "7.0": "volta", "7.5": "turing", "8.0": "ampere", "8.6": "ampere", "8.7": "ampere", "8.9": "ada", "9.0": "hopper",
    "10.0": "blackwell-datacenter", "10.3": "blackwell-datacenter", "10.1": "blackwell-thor", "11.0": "blackwell-thor",
    "12.0": "blackwell-workstation", "12.1": "blackwell-spark",
}  # fmt: skip


def card(pci_id: str | None) -> tuple[str | None, str | None]:
    """(name, compute capability) of "10de:2bb1"."""
    vendor, _colon, device = (pci_id or "").partition(":")
    return CARDS.get(device.lower(), (None, None)) if vendor.lower() == VENDOR else (None, None)


def family(capability: str | None) -> str | None:
    return FAMILIES.get(capability or "")
