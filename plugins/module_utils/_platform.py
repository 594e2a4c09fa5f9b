# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the machine is, apart from its GPUs: C library, distribution, interpreters, memory, container."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable
from typing import Any

MIB = 1 << 20
PYTHON_MINORS = range(8, 31)
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def read_text(path: str, limit: int = 1 << 20) -> str | None:
    try:
        with open(path, "rb") as handle:
            return handle.read(limit).decode("utf-8", "replace")
    except OSError:
        return None


def parse_os_release(text: str) -> dict[str, str]:
    found = {}
    for line in text.splitlines():
        name, equals, value = line.strip().partition("=")
        if equals and not name.startswith("#"):
            found[name] = value.strip("\"'")
    return found


def parse_glibc(text: str | None) -> str | None:
    """"glibc 2.41" as confstr tells it; other C libraries give None."""
    match = re.fullmatch(r"glibc (\d+\.\d+)(?:\.\d+)?", (text or "").strip())
    return match.group(1) if match else None


def parse_memory(meminfo: str, limits: Iterable[str | None]) -> int | None:
    """MiB that can be used: the machine's, or the container's limit where that is lower."""
    match = re.search(r"^MemTotal:\s+(\d+) kB", meminfo, re.MULTILINE)
    sizes = [int(match.group(1)) // 1024] if match else []
    sizes += [int(text) // MIB for text in limits if text and text.strip().isdigit()]
    return min(sizes, default=None)


# One container of a manager in a path of /proc/1/cgroup. The group "ns" of Proxmox VE is the inner one of the same.
CONTAINER_GROUP = re.compile(r"/(?:lxc(?:\.payload)?[./][\w-]+|docker[/-][0-9a-f]{8,}|libpod-[0-9a-f]{8,}|kubepods[./][^/]*)")


def parse_uid_map(text: str) -> bool | None:
    """Whether root here is somebody else outside: a first line other than 0 0 4294967295."""
    fields = text.split()
    return None if len(fields) < 3 else fields[1] != "0"


def container_type(hints: dict[str, str | None]) -> str:
    """lxc, docker, podman, another manager's own word, or none."""
    for name in ("systemd", "environment"):
        word = (hints.get(name) or "").strip()
        if word:
            return "lxc" if word.startswith("lxc") else word
    if hints.get("dockerenv") is not None:
        return "docker"
    if hints.get("containerenv") is not None:
        return "podman"
    groups = hints.get("cgroup") or ""
    if "/docker" in groups or "kubepods" in groups:
        return "docker"
    return "lxc" if re.search(r":/lxc[./]", groups) else "none"


def is_nested(cgroup: str) -> bool:
    """Whether more than one manager has a container on this path. A control group namespace of its own hides it."""
    return any(len(CONTAINER_GROUP.findall(line)) > 1 for line in cgroup.splitlines())


def container(proc: str = "/proc", root: str = "/") -> dict[str, Any]:
    environment = read_text(f"{proc}/1/environ") or ""
    match = re.search(r"(?:^|\0)container=([^\0]*)", environment)
    present = {
        name: "" if os.path.exists(os.path.join(root, path)) else None
        for name, path in (("dockerenv", ".dockerenv"), ("containerenv", "run/.containerenv"))
    }
    hints = {
        "systemd": read_text(os.path.join(root, "run/systemd/container")),
        "environment": match.group(1) if match else None,
        "cgroup": read_text(f"{proc}/1/cgroup"),
        **present,
    }
    kind = container_type(hints)
    mapped = parse_uid_map(read_text(f"{proc}/self/uid_map") or "")
    nested = is_nested(hints["cgroup"] or "")
    return {"type": kind, "unprivileged": mapped if kind != "none" else False, "nested": nested, "vmid": None}


def pythons(folders: Iterable[str]) -> dict[str, str]:
    """Interpreters by version. The first of `folders` that has one wins; none is started."""
    found: dict[str, str] = {}
    for folder in folders:
        # Asking for each name is quicker than listing /usr/bin.
        for minor in PYTHON_MINORS:
            path = os.path.join(folder, f"python3.{minor}")
            if f"3.{minor}" not in found and os.access(path, os.X_OK) and os.path.isfile(path) and _is_program(path):
                found[f"3.{minor}"] = path
    return dict(sorted(found.items(), key=lambda item: int(item[0].partition(".")[2])))


def _is_program(path: str) -> bool:
    """pyenv and others put scripts of an interpreter's name on the path, whether it is there or not."""
    try:
        with open(path, "rb") as handle:
            return handle.read(4) == b"\x7fELF"
    except OSError:
        return False


def shared_memory_mib(path: str = "/dev/shm") -> int | None:
    try:
        state = os.statvfs(path)
    except OSError:
        return None
    return state.f_frsize * state.f_blocks // MIB


def platform(proc: str = "/proc", root: str = "/", path: str | None = None) -> dict[str, Any]:
    release = parse_os_release(read_text(os.path.join(root, "etc/os-release")) or "")
    folders = dict.fromkeys(["/usr/bin", *(path or DEFAULT_PATH).split(":"), "/usr/local/bin"])
    glibc = None
    with contextlib.suppress(ValueError, OSError):
        glibc = parse_glibc(os.confstr("CS_GNU_LIBC_VERSION"))
    return {
        "machine": os.uname().machine,
        "kernel": os.uname().release,
        "glibc": glibc,
        "distribution": release.get("ID"),
        "distribution_version": release.get("VERSION_ID"),
        "pythons": pythons(folder for folder in folders if folder),
        "shm_mib": shared_memory_mib(os.path.join(root, "dev/shm")),
        "memory_mib": parse_memory(read_text(f"{proc}/meminfo") or "", [read_text(os.path.join(root, "sys/fs/cgroup/memory.max"))]),
    }
