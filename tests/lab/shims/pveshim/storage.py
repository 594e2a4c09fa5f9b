# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Storages: `local` for templates and `local-lvm` for containers, the names that an installation makes."""

from __future__ import annotations

import os
import re
from pathlib import Path

from .errors import PveError

TEMPLATES = Path("/var/lib/vz/template/cache")
STORAGES = {
    "local": {"type": "dir", "content": "iso,vztmpl,backup,snippets", "path": "/var/lib/vz"},
    "local-lvm": {"type": "dir", "content": "rootdir,images", "path": "/var/lib/lxc"},
}
_FORMATS = {".tar.zst": "tzst", ".tar.xz": "txz", ".tar.gz": "tgz"}


def listing() -> list[dict[str, str | int | float]]:
    found: list[dict[str, str | int | float]] = []
    for name, facts in STORAGES.items():
        space = os.statvfs(facts["path"])
        total, available = space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize
        found.append(
            {
                "storage": name,
                "type": facts["type"],
                "content": facts["content"],
                "active": 1,
                "enabled": 1,
                "shared": 0,
                "total": total,
                "avail": available,
                "used": total - available,
            }
        )
    return found


def _require(storage: str) -> dict[str, str]:
    if storage not in STORAGES:
        raise PveError(f"storage '{storage}' does not exist", 2)
    return STORAGES[storage]


def content(storage: str, wanted: str | None = None) -> list[dict[str, str | int]]:
    kinds = _require(storage)["content"].split(",")
    found: list[dict[str, str | int]] = []
    if "vztmpl" in kinds and wanted in (None, "vztmpl"):
        for path in sorted(TEMPLATES.iterdir()):
            ending = next((end for end in _FORMATS if path.name.endswith(end)), None)
            if ending:
                found.append(
                    {
                        "volid": f"{storage}:vztmpl/{path.name}",
                        "content": "vztmpl",
                        "format": _FORMATS[ending],
                        "size": path.stat().st_size,
                        "ctime": int(path.stat().st_ctime),
                    }
                )
    if "rootdir" in kinds and wanted in (None, "rootdir"):
        for path in sorted(Path("/var/lib/lxc").glob("[1-9]*/rootfs")):
            vmid = int(path.parent.name)
            found.append({"volid": root_volume(storage, vmid), "content": "rootdir", "format": "raw", "vmid": vmid, "size": 0})
    return found


def template_path(volid: str) -> Path:
    """File of a template volume; Proxmox VE's words when there is none."""
    match = re.fullmatch(r"([\w-]+):vztmpl/([^/]+)", volid)
    if match is None:
        raise PveError(f"unable to parse directory volume name '{volid}'")
    _require(match.group(1))
    path = TEMPLATES / match.group(2)
    if match.group(1) != "local" or not path.exists():
        raise PveError(f"volume '{volid}' does not exist")
    return path


def root_volume(storage: str, vmid: int) -> str:
    return f"{storage}:vm-{vmid}-disk-0"


def allocate_root(vmid: int, rootfs: str | None, storage: str | None) -> str:
    """Value of `rootfs` for a new container from `STORAGE:SIZE` or a storage name (then 4 GiB)."""
    name, size = storage or "local", "4"
    if rootfs is not None:
        match = re.fullmatch(r"(?:volume=)?([\w-]+):(\d+(?:\.\d+)?)", rootfs)
        if match is None:
            raise PveError(f"unable to create a root file system from '{rootfs}': the lab knows STORAGE:SIZE only")
        name, size = match.groups()
    if "rootdir" not in _require(name)["content"].split(","):
        raise PveError(f"storage '{name}' does not support container directories")
    return f"{root_volume(name, vmid)},size={size}G"
