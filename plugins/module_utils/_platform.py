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
# One container of a manager in a path of /proc/1/cgroup. The group "ns" of Proxmox VE is the inner one of the same.
CONTAINER_GROUP = re.compile(r"/(?:lxc(?:\.payload)?[./][\w-]+|docker[/-][0-9a-f]{8,}|libpod-[0-9a-f]{8,}|kubepods[./][^/]*)")
# The volume of an LXC container as Proxmox VE names it, on ZFS or LVM; the device mapper doubles the hyphens.
PVE_VOLUME = re.compile(r"\b(?:subvol|vm)--?[0-9]+--?disk--?[0-9]+\b")
CAP_SYS_ADMIN = 21
# A container of the node itself gets this many ids; one inside it can give away no more.
IDS_OF_A_CONTAINER = 65536
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
    match = re.search(r"^MemTotal:\s+([0-9]{1,18}) kB", meminfo, re.MULTILINE)
    sizes = [int(match.group(1)) // 1024] if match else []
    sizes += [int(text) // MIB for text in limits if text and re.fullmatch(r"\s*[0-9]{1,20}\s*", text)]
    return min(sizes, default=None)


def parse_uid_map(text: str) -> list[tuple[int, int, int]]:
    """(first id here, first id outside, how many) of each line."""
    lines = (re.fullmatch(r"\s*([0-9]+)\s+([0-9]+)\s+([0-9]+)\s*", line) for line in text.splitlines())
    return [(int(line[1]), int(line[2]), int(line[3])) for line in lines if line]


def is_unprivileged(uid_map: list[tuple[int, int, int]]) -> bool | None:
    """Whether root here is somebody else outside."""
    return uid_map[0][1] != 0 if uid_map else None


def may_administer(status: str) -> bool:
    """Whether processes can have CAP_SYS_ADMIN, by /proc/1/status: Docker leaves it to privileged containers only."""
    bounds = re.search(r"^CapBnd:\s+([0-9a-fA-F]{1,16})$", status, re.MULTILINE)
    return bool(int(bounds[1], 16) >> CAP_SYS_ADMIN & 1) if bounds else False


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


def nesting(cgroup: str, uid_map: list[tuple[int, int, int]], mounts: str) -> str | None:
    """What shows that a container runs in another one. Namespaces hide much, so None proves nothing."""
    if any(len(CONTAINER_GROUP.findall(line)) > 1 for line in cgroup.splitlines()):
        return "two managers in its control group"
    # One id alone is a program that became root in a namespace of its own.
    several = is_unprivileged(uid_map) and sum(many for _inside, _outside, many in uid_map) > 1
    if several and max(outside + many for _inside, outside, many in uid_map) <= IDS_OF_A_CONTAINER:
        return "its ids are a part of another container's"
    return "its files lie on the volume of a Proxmox VE container" if PVE_VOLUME.search(mounts) else None


def container(proc: str = "/proc", root: str = "/") -> dict[str, Any]:
    environment = read_text(f"{proc}/1/environ") or ""
    match = re.search(r"(?:^|\0)container=([^\0]*)", environment)
    present = {
        name: "" if os.path.exists(os.path.join(root, path)) else None
        for name, path in (("dockerenv", ".dockerenv"), ("containerenv", "run/.containerenv"))
    }
    cgroup = read_text(f"{proc}/1/cgroup") or ""
    hints = {
        "systemd": read_text(os.path.join(root, "run/systemd/container")),
        "environment": match.group(1) if match else None,
        "cgroup": cgroup,
        **present,
    }
    kind = container_type(hints)
    if kind == "none":
        return {"type": kind, "unprivileged": False, "privileged": False, "nested": None}
    uid_map = parse_uid_map(read_text(f"{proc}/self/uid_map") or "")
    unprivileged = is_unprivileged(uid_map)
    # An LXC container's own files lie on such a volume too.
    mounts = "" if kind == "lxc" else read_text(f"{proc}/self/mountinfo") or ""
    powerful = kind == "lxc" or may_administer(read_text(f"{proc}/1/status") or "")
    return {
        "type": kind,
        "unprivileged": unprivileged,
        "privileged": unprivileged is False and powerful,
        "nested": nesting(cgroup, uid_map, mounts),
    }


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
