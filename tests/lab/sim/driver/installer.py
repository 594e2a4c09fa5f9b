# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
""":"
# The real file is started with sh; so is this one, which is Python from here on.
exec python3 "$0" "$@"
"""

from __future__ import annotations

import base64
import io
import json
import os
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

VERSION = "@DRIVER_VERSION@"
LIBRARY_FOLDER = "usr/lib/x86_64-linux-gnu"
HARDWARE = "usr/lib/bwlab/hw/gpus.conf"
STATE = "var/lib/nvidia"
_PAYLOAD_MARK = b"\n# PAYLOAD "

HELP = f"""NVIDIA Accelerated Graphics Driver for Linux-x86_64 {VERSION} (the lab's stand-in)

  --silent                 do not ask (required: there is no dialogue)
  -m=kernel-open           build the open kernel modules
  -m=kernel                build the closed kernel modules (the default)
  --dkms                   register the kernel modules with DKMS
  --no-kernel-modules      install only libraries and programs, as in a container
  --version, --help
"""


class InstallError(Exception):
    """What the installer says before it ends with 1."""


@dataclass(frozen=True)
class Options:
    silent: bool = False
    flavour: str = "closed"
    dkms: bool = False
    kernel_modules: bool = True
    show: str = ""  # help or version


def parse_flags(arguments: list[str]) -> Options:
    """The flags that the collection uses, and the few that are needed to see what others would do."""
    values: dict[str, object] = {}
    flavours = {"-m=kernel-open": "open", "-m=kernel": "closed"}
    for argument in arguments:
        if argument in ("--help", "-h", "--version", "-v"):
            values["show"] = "help" if argument.lstrip("-").startswith("h") else "version"
        elif argument == "--silent":
            values["silent"] = True
        elif argument == "--dkms":
            values["dkms"] = True
        elif argument == "--no-kernel-modules":
            values["kernel_modules"] = False
        elif argument in flavours:
            values["flavour"] = flavours[argument]
        else:
            raise InstallError(f"unrecognized option: {argument!r} (this stand-in knows only what --help lists)")
    options = Options(**values)  # type: ignore[arg-type]
    if not options.kernel_modules and (options.dkms or "flavour" in values):
        flag = "--dkms" if options.dkms else "-m"
        raise InstallError(f"{flag} together with --no-kernel-modules: one of them cannot be meant")
    if not options.silent and not options.show:
        raise InstallError("there is no dialogue: give --silent")
    return options


def read_payload(installer: Path) -> dict[str, tuple[bytes, int]]:
    _, mark, encoded = installer.read_bytes().rpartition(_PAYLOAD_MARK)
    if not mark:
        raise InstallError(f"{installer} is not complete: its archive is missing. Fetch it again")
    try:
        with tarfile.open(fileobj=io.BytesIO(base64.b64decode(encoded, validate=False))) as archive:
            files = {}
            for member in archive.getmembers():
                file = archive.extractfile(member)
                files[member.name] = (file.read() if file else b"", member.mode)
            return files
    except (ValueError, tarfile.TarError) as error:
        raise InstallError(f"{installer} is damaged ({error}). Fetch it again") from error


def write(path: Path, content: bytes, mode: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_bytes(content)
    temporary.chmod(mode)
    temporary.rename(path)


def link(path: Path, target: str) -> None:
    temporary = path.with_name(f".{path.name}.new")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target)
    temporary.rename(path)


def install(options: Options, files: dict[str, tuple[bytes, int]], root: Path) -> list[str]:
    """Puts everything in place and returns the paths, in the order of writing. The record comes last."""
    if options.kernel_modules and not (root / HARDWARE).exists():
        raise InstallError("unable to build the kernel modules: this is no node of the lab (a container uses --no-kernel-modules)")
    written = []
    for name, (content, mode) in files.items():
        if name.startswith("lib"):
            folder = root / LIBRARY_FOLDER
            for old in folder.glob(f"{name}.so.*.*"):  # another version's; the link with one number is ours to move
                if old.name != f"{name}.so.{VERSION}":
                    old.unlink()
            write(folder / f"{name}.so.{VERSION}", content, mode)
            link(folder / f"{name}.so.1", f"{name}.so.{VERSION}")
            link(folder / f"{name}.so", f"{name}.so.1")
            written += [f"/{LIBRARY_FOLDER}/{name}.so{end}" for end in (f".{VERSION}", ".1", "")]
        else:
            write(root / "usr/bin" / name, content, mode)
            written.append(f"/usr/bin/{name}")
    if options.kernel_modules:
        write(root / STATE / "module", f"{VERSION} {options.flavour}\n".encode(), 0o644)
        written.append(f"/{STATE}/module")
    record = {"version": VERSION, "kernel_modules": options.flavour if options.kernel_modules else None, "files": written}
    write(root / STATE / "installed.json", (json.dumps(record, indent=1) + "\n").encode(), 0o644)
    return written


def main() -> int:
    try:
        options = parse_flags(sys.argv[1:])
        if options.show:
            print(HELP if options.show == "help" else f"nvidia-installer:  version {VERSION}")
            return 0
        if os.geteuid() != 0:
            raise InstallError("nvidia-installer must be run as root")
        install(options, read_payload(Path(__file__)), Path("/"))
        subprocess.run(["ldconfig"], check=True)
        if options.kernel_modules:
            subprocess.run(["/usr/bin/nvidia-modprobe"], check=True)
    except InstallError as error:
        print(f"ERROR: {error}", file=sys.stderr)
        return 1
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"ERROR: installation has failed: {error}", file=sys.stderr)
        return 1
    print(f"Installation of the NVIDIA driver (version {VERSION}) is now complete.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
