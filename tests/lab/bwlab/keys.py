# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""SSH keys: the operator's own and the nodes' host keys."""

from __future__ import annotations

import shutil
from pathlib import Path

from . import names
from .proc import LabError, run, write_atomic

SSH_DIR = names.STATE / "ssh"
OPERATOR_KEY = SSH_DIR / "id_ed25519"
KNOWN_HOSTS = SSH_DIR / "known_hosts"


def make_operator_key() -> str:
    """Make the key pair that opens the nodes, once; return the public key."""
    public = OPERATOR_KEY.with_suffix(".pub")
    if not (OPERATOR_KEY.exists() and public.exists()):
        SSH_DIR.mkdir(mode=0o700, parents=True, exist_ok=True)
        OPERATOR_KEY.unlink(missing_ok=True)
        public.unlink(missing_ok=True)
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "operator@lab", "-f", str(OPERATOR_KEY)])
    return public.read_text()


def make_host_key(rootfs: Path, node: str) -> None:
    """Give a new file system its own host key, as an installation does."""
    key = rootfs / "etc/ssh/ssh_host_ed25519_key"
    key.unlink(missing_ok=True)
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"root@{node}", "-f", str(key)])


def host_key(node: str) -> str | None:
    """`ssh-ed25519 AAAA...` of the node as it is now, read from its own file system."""
    path = names.rootfs(node) / "etc/ssh/ssh_host_ed25519_key.pub"
    return " ".join(path.read_text().split()[:2]) if path.exists() else None


def fingerprint(node: str) -> str | None:
    path = names.rootfs(node) / "etc/ssh/ssh_host_ed25519_key.pub"
    return run(["ssh-keygen", "-l", "-f", str(path)]).stdout.split()[1] if path.exists() else None


def with_host(known_hosts: str, hosts: list[str], key: str | None) -> str:
    """Text of a known_hosts file in which `hosts` have `key` and no other; None forgets them."""
    kept = [line for line in known_hosts.splitlines() if not set(line.split(" ")[0].split(",")) & set(hosts)]
    if key:
        kept.append(f"{','.join(hosts)} {key}")
    return "".join(f"{line}\n" for line in kept)


def is_trusted(node: str) -> bool:
    key = host_key(node)
    if key is None or not KNOWN_HOSTS.exists():
        return False
    return f"{names.node_address(node)},{node} {key}" in KNOWN_HOSTS.read_text().splitlines()


def trust(node: str) -> None:
    key = host_key(node)
    if key is None:
        raise LabError(f"node {node} has no SSH host key yet: bring the lab up first")
    text = KNOWN_HOSTS.read_text() if KNOWN_HOSTS.exists() else ""
    write_atomic(KNOWN_HOSTS, with_host(text, [names.node_address(node), node], key))


def ssh_command(node: str, command: list[str]) -> list[str]:
    program = shutil.which("ssh") or "ssh"
    options = ["BatchMode=yes", "StrictHostKeyChecking=yes", f"UserKnownHostsFile={KNOWN_HOSTS}", "ConnectTimeout=3"]
    flags = [part for option in options for part in ("-o", option)]
    return [program, "-F", "/dev/null", "-i", str(OPERATOR_KEY), *flags, f"root@{names.node_address(node)}", *command]
