# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's nvidia-modprobe: "loads the module", and makes device nodes, as the real one does.

Loading fills /proc/driver/nvidia from the description of the node's cards and from what the installer left. In a
container there is nothing to load: like the real one, it can only say whether the node did.
"""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

HARDWARE = Path("/usr/lib/bwlab/hw/gpus.conf")
MODULE = Path("/var/lib/nvidia/module")
PROC = Path("/proc/driver/nvidia")
DEV = Path("/dev")

USAGE = "usage: nvidia-modprobe [-u] [-m] [-c MINOR]...   (the lab's stand-in)"
_TEXT = {
    "open": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build  (dvs-builder@lab)",
    "closed": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}  Release Build  (dvs-builder@lab)",
}


class ModprobeError(Exception):
    pass


def parse_arguments(arguments: list[str]) -> tuple[list[int], bool, bool]:
    """Minors to make nodes for, and whether unified memory and mode setting are wanted."""
    minors, uvm, modeset = [], False, False
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word in ("-u", "--unified-memory"):
            uvm = True
        elif word in ("-m", "--modeset"):
            modeset = True
        elif word in ("-c", "--create-nvidia-device-file") and rest and rest[0].isdigit():
            minors.append(int(rest.pop(0)))
        elif word.startswith(("-c=", "--create-nvidia-device-file=")) and word.partition("=")[2].isdigit():
            minors.append(int(word.partition("=")[2]))
        else:
            raise ModprobeError(f"{word}: not an option this stand-in knows\n{USAGE}")
    return minors, uvm, modeset


def parse_cards(text: str) -> list[dict[str, str]]:
    lines = [line.split("\t") for line in text.splitlines() if line.startswith("gpu\t")]
    return [dict(field.split("=", 1) for field in fields[1:]) for fields in lines]


def information(card: dict[str, str], minor: int, version: str) -> str:
    """What /proc/driver/nvidia/gpus/<address>/information says; the real file has just these blanks."""
    uuid = card["uuid"] if card["state"] == "ok" else "GPU-????????-????-????-????-????????????"
    return (
        f"Model: \t\t {card['name']}\nIRQ:   \t\t {140 + minor}\nGPU UUID: \t {uuid}\n"
        f"Video BIOS: \t 98.02.52.00.02\nBus Type: \t PCIe\nDMA Size: \t 52 bits\nDMA Mask: \t 0xfffffffffffff\n"
        f"Bus Location: \t {card['pci']}\nDevice Minor: \t {minor}\nGPU Firmware: \t {version}\nGPU Excluded:\t No\n"
    )


def load(proc: Path, hardware: Path, module: Path) -> None:
    """Fills ``proc``. The version file comes last: with it the driver is there."""
    if (proc / "version").exists():
        return
    if not hardware.exists():
        raise ModprobeError("the kernel module is not loaded, and a container cannot load it")
    if not module.exists():
        raise ModprobeError("modprobe: FATAL: Module nvidia not found: the driver's kernel modules are not installed")
    version, flavour = module.read_text(encoding="ascii").split()
    lines = []
    for minor, card in enumerate(parse_cards(hardware.read_text(encoding="ascii"))):
        # The closed modules find a Blackwell card and cannot start it (RmInitAdapter fails).
        card["state"] = "failed" if flavour == "closed" and card.get("needs_open") == "1" else "ok"
        card["minor"] = str(minor)
        folder = proc / "gpus" / card["pci"]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "information").write_text(information(card, minor, version), encoding="ascii")
        (proc / "lab" / "cards").mkdir(parents=True, exist_ok=True)
        _writable_by_all(proc / "lab" / "cards" / card["uuid"])
        lines.append("\t".join(["gpu", *(f"{key}={value}" for key, value in card.items())]))
    (proc / "lab").mkdir(parents=True, exist_ok=True)
    _writable_by_all(proc / "lab" / "opens.log")
    (proc / "lab" / "gpus.conf").write_text("\n".join(lines) + "\n", encoding="ascii")
    text = _TEXT[flavour].format(version=version) + "\nGCC version:  gcc version 14.2.0 (Debian 14.2.0-19)\n"
    (proc / "version").write_text(text, encoding="ascii")


def _writable_by_all(path: Path) -> None:
    path.touch()
    path.chmod(0o666)


def make_node(path: Path) -> None:
    """A character device with the numbers of /dev/null: it opens, and nothing can be done with it."""
    if path.exists() and stat.S_ISCHR(path.stat().st_mode):
        return
    path.unlink(missing_ok=True)
    try:
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        path.chmod(0o666)
    except PermissionError as error:
        raise ModprobeError(f"{path}: {error.strerror}; a container gets its device nodes from the node") from error


def main() -> int:
    try:
        minors, uvm, modeset = parse_arguments(sys.argv[1:])
        load(PROC, HARDWARE, MODULE)
        cards = len(parse_cards((PROC / "lab" / "gpus.conf").read_text(encoding="ascii")))
        names = [f"nvidia{minor}" for minor in minors if minor != 255]
        for minor in minors:
            if minor != 255 and minor >= cards:
                raise ModprobeError(f"-c {minor}: found {cards} cards, so minors 0 to {cards - 1}")
        names += ["nvidiactl"] if minors else []
        names += ["nvidia-uvm", "nvidia-uvm-tools"] if uvm else []
        names += ["nvidia-modeset"] if modeset else []
        for name in names:
            make_node(DEV / name)
    except (ModprobeError, OSError, ValueError) as error:
        print(f"nvidia-modprobe: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
