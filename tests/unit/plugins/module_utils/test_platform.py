# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.blackwell.inference.plugins.module_utils import _platform


@pytest.mark.parametrize(
    ("hints", "kind"),
    [
        ({"systemd": "lxc\n"}, "lxc"),
        ({"systemd": "lxc-libvirt"}, "lxc"),
        ({"systemd": "systemd-nspawn"}, "systemd-nspawn"),
        ({"environment": "lxc"}, "lxc"),
        ({"environment": "podman"}, "podman"),
        ({"dockerenv": ""}, "docker"),
        ({"containerenv": ""}, "podman"),
        ({"cgroup": "0::/kubepods/besteffort/pod1\n"}, "docker"),
        ({"cgroup": "5:devices:/docker/0123\n"}, "docker"),
        ({"cgroup": "0::/lxc/200/ns/init.scope\n"}, "lxc"),
        ({"cgroup": "0::/lxc.payload.pve1/init.scope\n"}, "lxc"),
        ({"cgroup": "0::/init.scope\n"}, "none"),
        ({}, "none"),
    ],
)
def test_container_type(hints: dict[str, str | None], kind: str) -> None:
    assert _platform.container_type(hints) == kind


WHOLE = [(0, 0, 4294967295)]
OWN = [(0, 100000, 65536)]


@pytest.mark.parametrize(
    ("cgroup", "uid_map", "mounts", "says"),
    [
        ("0::/init.scope\n", OWN, "", None),
        ("0::/lxc/200/ns/init.scope\n", OWN, "", None),
        ("0::/lxc.payload.pve1/init.scope\n", WHOLE, "", None),
        ("0::/system.slice/docker-0123456789ab.scope\n", WHOLE, "", None),
        ("0::/lxc/200/ns/system.slice/docker-0123456789ab.scope\n", OWN, "", "two managers"),
        ("1:name=systemd:/\n5:devices:/lxc.payload.kpro6/lxc/200\n", OWN, "", "two managers"),
        ("0::/lxc/200/ns/lxc.payload.inner/init.scope\n", OWN, "", "two managers"),
        ("1:a:/lxc/200\n2:b:/docker/0123456789ab\n", OWN, "", None),
        ("", [(0, 1000, 64536)], "", "another container's"),
        ("", [(0, 1000, 1), (1, 10000, 50000)], "", "another container's"),
        ("", [(0, 1000, 1), (1, 100000, 65536)], "", None),  # rootless podman on a host
        ("", [(0, 1000, 1)], "", None),
        ("", [], "", None),
        ("", OWN, "36 35 0:32 / / rw - zfs rpool/data/subvol-200-disk-0 rw", "Proxmox VE"),
        ("", OWN, "36 35 253:7 /etc/hosts /etc/hosts rw - ext4 /dev/mapper/pve-vm--200--disk--0 rw", "Proxmox VE"),
        ("", OWN, "36 35 8:1 / / rw - ext4 /dev/vda1 rw", None),
    ],
)
def test_containers_in_containers(cgroup: str, uid_map: list[tuple[int, int, int]], mounts: str, says: str | None) -> None:
    found = _platform.nesting(cgroup, uid_map, mounts)
    assert found is None if says is None else says in (found or "")


@pytest.mark.parametrize(
    ("text", "lines", "unprivileged"),
    [
        ("         0     100000      65536\n", [(0, 100000, 65536)], True),
        ("         0          0 4294967295\n", [(0, 0, 4294967295)], False),
        ("0 1000 1\n1 100000 65536\n", [(0, 1000, 1), (1, 100000, 65536)], True),
        ("", [], None),
        ("a b c\n0 1\n\0\u00b2 1 1\n", [], None),
    ],
)
def test_uid_map(text: str, lines: list[tuple[int, int, int]], unprivileged: bool | None) -> None:
    assert _platform.parse_uid_map(text) == lines
    assert _platform.is_unprivileged(lines) is unprivileged


@pytest.mark.parametrize(
    ("status", "powerful"),
    [
        ("Name:\tinit\nCapBnd:\t000001ffffffffff\n", True),
        ("CapBnd:\t00000000a80425fb\nCapAmb:\t0\n", False),  # what Docker leaves by default
        ("CapEff:\t000001ffffffffff\n", False),
        ("CapBnd:\tzz\n", False),
    ],
)
def test_capabilities(status: str, powerful: bool) -> None:
    assert _platform.may_administer(status) is powerful


@pytest.mark.parametrize(
    ("text", "version"), [("glibc 2.41", "2.41"), ("glibc 2.36.9000", "2.36"), ("musl 1.2", None), (None, None)]
)
def test_glibc(text: str | None, version: str | None) -> None:
    assert _platform.parse_glibc(text) == version


@pytest.mark.parametrize(
    ("limits", "mib"),
    [([], 500), (["max\n"], 500), (["104857600\n"], 100), (["9999999999999\n"], 500), ([None], 500)],
)
def test_memory(limits: list[str | None], mib: int) -> None:
    assert _platform.parse_memory("MemTotal:         512000 kB\nMemFree: 1 kB\n", [*limits, "\u00b2"]) == mib


def test_memory_unknown() -> None:
    assert _platform.parse_memory("", []) is None


def test_os_release() -> None:
    text = 'PRETTY_NAME="Debian GNU/Linux 13 (trixie)"\nID=debian\n# comment=1\nVERSION_ID="13"\nbroken\n'
    found = _platform.parse_os_release(text)
    assert (found["ID"], found["VERSION_ID"]) == ("debian", "13")


def program(path: Path, text: bytes = b"\x7fELF", mode: int = 0o755) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(text)
    path.chmod(mode)


def test_pythons(tmp_path: Path) -> None:
    for name in ("python3.13", "python3.9", "python3", "python3.13-config", "pythonw3.12"):
        program(tmp_path / "a" / name)
    program(tmp_path / "b/python3.13")
    program(tmp_path / "b/python3.12")
    program(tmp_path / "b/python3.11", mode=0o644)
    program(tmp_path / "b/python3.10", b"#!/bin/sh\nexec pyenv\n")
    (tmp_path / "b/python3.14").mkdir()
    (tmp_path / "b/python3.8").symlink_to("nowhere")
    found = _platform.pythons([str(tmp_path / "a"), str(tmp_path / "nothing"), str(tmp_path / "b")])
    assert found == {
        "3.9": str(tmp_path / "a/python3.9"),
        "3.12": str(tmp_path / "b/python3.12"),
        "3.13": str(tmp_path / "a/python3.13"),
    }


def recorded(root: Path, uid_map: str, files: dict[str, str]) -> None:
    for name, text in {"proc/self/uid_map": uid_map, "proc/meminfo": "MemTotal: 2048000 kB\n", **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


STATUS = {"full": "CapBnd:\t000001ffffffffff\n", "docker": "CapBnd:\t00000000a80425fb\n"}


@pytest.mark.parametrize(
    ("uid_map", "files", "expected"),
    [
        ("0 100000 65536\n", {"proc/1/environ": "TERM=linux\0container=lxc\0"}, ("lxc", True, False, None)),
        ("0 0 4294967295\n", {"proc/1/environ": "container=lxc\0"}, ("lxc", False, True, None)),
        ("0 0 4294967295\n", {".dockerenv": "", "proc/1/status": STATUS["docker"]}, ("docker", False, False, None)),
        ("0 0 4294967295\n", {".dockerenv": "", "proc/1/status": STATUS["full"]}, ("docker", False, True, None)),
        ("0 0 4294967295\n", {"proc/1/status": STATUS["full"]}, ("none", False, False, None)),
        ("0 100000 65536\n", {".dockerenv": "", "proc/self/mountinfo": "1 1 0:1 / / rw - zfs tank/subvol-7-disk-1 rw\n"},
         ("docker", True, False, "its files lie on the volume of a Proxmox VE container")),
        ("0 100000 65536\n", {"run/systemd/container": "lxc\n", "proc/self/mountinfo": "1 1 0:1 / / rw - zfs tank/subvol-7-disk-1 rw\n"},
         ("lxc", True, False, None)),
        ("", {"run/systemd/container": "systemd-nspawn"}, ("systemd-nspawn", None, False, None)),
    ],
)  # fmt: skip
def test_containers(tmp_path: Path, uid_map: str, files: dict[str, str], expected: tuple[Any, ...]) -> None:
    recorded(tmp_path, uid_map, files)
    found = _platform.container(str(tmp_path / "proc"), str(tmp_path))
    assert found == dict(zip(("type", "unprivileged", "privileged", "nested"), expected))


def test_a_plain_host(tmp_path: Path) -> None:
    recorded(tmp_path, "0 0 4294967295\n", {"etc/os-release": "ID=ubuntu\nVERSION_ID=24.04\n"})
    assert _platform.container(str(tmp_path / "proc"), str(tmp_path))["type"] == "none"
    found = _platform.platform(str(tmp_path / "proc"), str(tmp_path), path="")
    assert (found["distribution"], found["distribution_version"]) == ("ubuntu", "24.04")
    assert (found["memory_mib"], found["shm_mib"]) == (2000, None)


def test_the_machine_that_runs_the_tests() -> None:
    found = _platform.platform()
    assert found["glibc"] is not None and found["memory_mib"] > 100
