# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Root file systems: the container template and the node, each packed once in the cache under its recipe's hash."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

from . import names
from .mirror import debian_mirror
from .mounts import mounts_below
from .proc import LabError, locked, remove_tree, run, run_dying, step

SUITE = "trixie"

# What a container gets. python3-dev and g++ are there because the collection asserts an interpreter with headers
# and a compiler in every container of one template.
TEMPLATE_PACKAGES = (
    "systemd",
    "systemd-sysv",
    "dbus",
    "python3",
    "python3-dev",
    "g++",
    "iproute2",
    "ca-certificates",
    "procps",
    "libstdc++6",
)
# What a node has on top. lxc without its recommended lxcfs: that needs FUSE, which a nested container may not have.
NODE_PACKAGES = ("lxc", "uidmap", "openssh-server", "zstd", "kmod", "nftables", "pciutils")

# Whatever nobody reads in the lab; a smaller root file system starts faster, and a container is unpacked from it.
_TRIM = "rm -rf /usr/share/doc/* /usr/share/man/* /usr/share/info/* /usr/share/locale/* /var/cache/apt/* /var/log/*.log"
_SEAL = "rm -f /etc/ssh/ssh_host_* /etc/machine-id /var/lib/dbus/machine-id; : > /etc/machine-id"
_DEV = "find /dev -mindepth 1 -delete"

TEMPLATE_RECIPE = {
    "suite": SUITE,
    "packages": TEMPLATE_PACKAGES,
    "finish": [_TRIM, _SEAL, "systemctl mask systemd-networkd-wait-online.service", _DEV],
}
NODE_RECIPE = {
    "base": TEMPLATE_RECIPE,
    "packages": NODE_PACKAGES,
    "finish": [
        _TRIM,
        _SEAL,
        # The lab starts what a node needs itself; lxc-net would make a second bridge.
        "systemctl mask lxc-net.service lxc.service lxc-monitord.service",
        _DEV,
    ],
}


def recipe_key(recipe: object) -> str:
    return hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()[:16]


def template_tarball() -> Path:
    return names.cache_dir() / "rootfs" / f"template-{recipe_key(TEMPLATE_RECIPE)}.tar.zst"


def node_tarball() -> Path:
    return names.cache_dir() / "rootfs" / f"node-{recipe_key(NODE_RECIPE)}.tar.zst"


def apt_sources() -> list[tuple[str, str]]:
    places = [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))]
    return [(str(path), path.read_text(errors="replace")) for path in places if path.is_file()]


def build() -> None:
    """Make both tarballs unless they exist. Safe to kill: a result appears by rename only."""
    folder = names.cache_dir() / "rootfs"
    with locked(folder / ".lock", "another process builds the root file systems; waiting for it"):
        _remove_unfinished(folder)
        work = folder / f".build-{os.getpid()}"
        try:
            if not template_tarball().exists():
                _build_template(work)
            if not node_tarball().exists():
                _build_node(work)
        finally:
            shutil.rmtree(work, ignore_errors=True)


def _remove_unfinished(folder: Path) -> None:
    for leftover in folder.glob(".build-*"):
        # Builds run in mount name spaces of their own, so nothing can be mounted below; make sure all the same.
        if mounts_below(leftover, Path("/proc/self/mountinfo").read_text()):
            raise LabError(f"something is mounted under {leftover}, which a killed build left: unmount it")
        remove_tree(leftover)


def _build_template(work: Path) -> None:
    tree = work / "tree"
    tree.mkdir(parents=True)
    mirror = os.environ.get("BLACKWELL_DEBIAN_MIRROR") or debian_mirror(apt_sources())
    with step(f"container template: debootstrap of {SUITE}"):
        command = ["debootstrap", "--variant=minbase", f"--include={','.join(TEMPLATE_PACKAGES)}", SUITE, str(tree)]
        run_dying([*command, mirror] if mirror else command)
    _finish(tree, TEMPLATE_RECIPE["finish"])
    _pack(tree, work, template_tarball())


def _build_node(work: Path) -> None:
    tree = work / "tree"
    if not tree.exists():
        tree.mkdir(parents=True)
        unpack(template_tarball(), tree)
    with step("node root file system: packages"):
        shutil.copy("/etc/resolv.conf", tree / "etc/resolv.conf")
        policy = tree / "usr/sbin/policy-rc.d"
        policy.write_text("#!/bin/sh\nexit 101\n")
        policy.chmod(0o755)
        script = (
            "export DEBIAN_FRONTEND=noninteractive; mkdir -p /var/cache/apt/archives/partial; "
            "mknod -m 666 /dev/null c 1 3; mknod -m 666 /dev/urandom c 1 9; apt-get -q update && "
            "apt-get -q install -y --no-install-recommends " + " ".join(NODE_PACKAGES)
        )
        run_dying(["chroot", str(tree), "/bin/sh", "-c", script])
        policy.unlink()
        (tree / "etc/resolv.conf").write_text("")
    _finish(tree, NODE_RECIPE["finish"])
    _pack(tree, work, node_tarball())


def _finish(tree: Path, commands: object) -> None:
    assert isinstance(commands, list)
    script = "set -e; " + "; ".join([*commands[:-1], "rm -rf /var/lib/apt/lists/*", commands[-1]])
    run_dying(["chroot", str(tree), "/bin/sh", "-c", script])


def _pack(tree: Path, work: Path, target: Path) -> None:
    with step(f"pack {target.name}"):
        temporary = work / target.name
        run(["tar", "-C", str(tree), "--numeric-owner", "--xattrs", "-I", "zstd -3 -T0", "-cf", str(temporary), "."])
        with temporary.open("rb") as handle:
            os.fsync(handle.fileno())
        temporary.rename(target)


def unpack(tarball: Path, target: Path) -> None:
    run(["tar", "-C", str(target), "--numeric-owner", "--xattrs", "-I", "zstd", "-xf", str(tarball)])
