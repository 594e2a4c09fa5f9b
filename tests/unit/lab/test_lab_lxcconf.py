# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From a Proxmox VE configuration to the LXC configuration and its device nodes."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from pveshim import lxcconf
from pveshim.conf import parse
from pveshim.errors import PveError

BASE = "hostname: llm\nunprivileged: 1\nmemory: 1024\n"


def _render(text: str, cgroups: str = "v1", processors: int = 2) -> list[str]:
    conf = parse(BASE + text)
    return lxcconf.render(200, conf, folder=Path("/ct"), cgroups=cgroups, processors=processors).splitlines()


CASES = [
    ("", "lxc.idmap = u 0 100000 65536"),
    ("", "lxc.uts.name = llm"),
    ("", "lxc.rootfs.path = dir:/ct/rootfs"),
    ("", "lxc.net.0.type = empty"),
    ("", "lxc.mount.entry = /proc/driver proc/driver none rbind,rw 0 0"),
    ("net0: name=eth0,bridge=vmbr0,ip=10.99.0.200/24,gw=10.99.0.1\n", "lxc.net.0.ipv4.address = 10.99.0.200/24"),
    ("net0: name=eth0,bridge=vmbr0,ip=10.99.0.200/24,gw=10.99.0.1\n", "lxc.net.0.ipv4.gateway = 10.99.0.1"),
    ("net0: name=eth0,bridge=vmbr0\n", "lxc.net.0.link = vmbr0"),
    ("mp0: /srv/a b,mp=/data,ro=1\n", "lxc.mount.entry = /srv/a\\040b data none bind,create=dir,ro 0 0"),
    ("mp0: /srv,mp=/data\n", "lxc.mount.entry = /srv data none bind,create=dir 0 0"),
    ("dev0: /dev/null\n", "lxc.mount.entry = /ct/devices/dev/null dev/null none bind,create=file 0 0"),
    ("lxc.prlimit.nofile: 99\n", "lxc.prlimit.nofile = 99"),
    ("cores: 1\n", "lxc.cgroup.cpuset.cpus = 0-0"),
    ("", "lxc.cgroup.memory.limit_in_bytes = 1073741824"),
]


@pytest.mark.parametrize(("text", "line"), CASES)
def test_render(text: str, line: str) -> None:
    assert line in _render(text)


def test_limits_of_a_pure_v2_node() -> None:
    lines = _render("cores: 1\n", cgroups="v2")
    assert "lxc.cgroup2.memory.max = 1073741824" in lines
    assert "lxc.cgroup2.cpuset.cpus = 0-0" in lines
    assert not [line for line in lines if line.startswith("lxc.cgroup.memory")]


def test_no_limits_where_none_can_be_set() -> None:
    assert not [line for line in _render("cores: 1\n", cgroups="none") if "cpuset" in line or "memory" in line]


def test_more_cores_than_the_machine_has_are_no_limit() -> None:
    assert not [line for line in _render("cores: 8\n") if "cpuset" in line]


def test_privileged_has_no_id_map_and_explicit_device_rules() -> None:
    lines = _render("unprivileged: 0\ndev0: /dev/null\n")
    assert not [line for line in lines if line.startswith("lxc.idmap")]
    assert "lxc.cgroup.devices.allow = c 1:3 rw" in lines


def test_devices_are_in_numerical_order_with_the_default_mode() -> None:
    values = {"dev10": "/dev/c", "dev2": "/dev/b,mode=0666,gid=44", "dev0": "path=/dev/a"}
    found = [(device.path, device.mode, device.uid, device.gid) for device in lxcconf.devices(values)]
    assert found == [("/dev/a", 0o660, 0, 0), ("/dev/b", 0o666, 0, 44), ("/dev/c", 0o660, 0, 0)]


def test_absent_device_and_plain_file(tmp_path: Path) -> None:
    plain = tmp_path / "file"
    plain.touch()
    lxcconf.check_devices({"dev0": "/dev/null"})
    with pytest.raises(PveError, match=r"^Device /dev/nosuch does not exist$"):
        lxcconf.check_devices({"dev0": "/dev/nosuch"})
    with pytest.raises(PveError, match="is not a device"):
        lxcconf.check_devices({"dev0": str(plain)})


def test_device_nodes_have_the_wanted_owner_and_mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recorded, not made: making them needs root."""
    made: list[tuple[object, ...]] = []
    monkeypatch.setattr(os, "mknod", lambda path, mode, number: made.append((mode, number)))
    monkeypatch.setattr(os, "chmod", lambda path, mode: made.append((mode,)))
    monkeypatch.setattr(os, "chown", lambda path, uid, gid: made.append((uid, gid)))
    values = {"unprivileged": "1", "dev0": "/dev/null,mode=0640,uid=7,gid=44"}
    lxcconf.make_device_nodes(tmp_path / "devices", values)
    number = os.stat("/dev/null").st_rdev
    assert made == [(stat.S_IFCHR | 0o640, number), (0o640,), (100007, 100044)]
