# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module util is PRIVATE to the collection.

"""The two ways to a node's API: its own pvesh, and HTTPS. What the second may not do is refused before it is tried."""

from __future__ import annotations

import glob
import os
import platform
import stat
import subprocess
from collections.abc import Mapping
from typing import Any, Callable

from ansible_collections.blackwell.inference.plugins.module_utils._pve_container import Node
from ansible_collections.blackwell.inference.plugins.module_utils._refusal import Refusal

ROOT = "root@pam"


def nvidia_devices() -> list[str]:
    """Character devices only: a failed passthrough leaves an empty regular file of the same name."""
    return sorted(path for path in glob.glob("/dev/nvidia*") if stat.S_ISCHR(os.stat(path).st_mode))


def minors(folder: str = "/proc/driver/nvidia/gpus") -> dict[str, int]:
    """Minor number by UUID, of the cards that the node's driver has."""
    found = {}
    for path in glob.glob(f"{folder}/*/information"):
        with open(path, encoding="utf-8", errors="replace") as file:
            fields = {name.strip(): value.strip() for name, _colon, value in (line.partition(":") for line in file)}
        uuid, minor = fields.get("GPU UUID", ""), fields.get("Device Minor", "")
        if uuid.startswith("GPU-") and minor.isdecimal():
            found[uuid] = int(minor)
    return found


def unlock(vmid: int) -> str:
    command = ["pct", "unlock", str(vmid)]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return "" if done.returncode == 0 else f"exit status {done.returncode}: {done.stderr.strip()[-300:]}"


def on_the_node(proxmox: Callable[..., Any], timeout: float) -> tuple[Any, Node]:
    # Perl's complaints about an unknown locale would stand on standard error, which proxmoxer takes for failures.
    os.environ["LC_ALL"] = "C"
    node = Node(platform.node().partition(".")[0], nvidia_devices, minors, os.path.isdir, unlock)
    return proxmox(backend="local", timeout=timeout), node


def by_https(proxmox: Callable[..., Any], api: Mapping[str, Any], timeout: float) -> tuple[Any, Node]:
    """A client that has logged in. Raises Refusal for an address, a certificate or credentials that do not work."""
    credentials = {"password": api["password"]}
    if api["token_id"] is not None:
        credentials = {"token_name": api["token_id"], "token_value": api["token_secret"]}
    where = f"The API of {api['host']}"
    try:
        client = proxmox(
            api["host"], port=api["port"], user=api["user"], timeout=timeout, verify_ssl=api["ca_file"] or True, **credentials
        )
        names = [entry["node"] for entry in client.nodes.get()]
    # The libraries' own exceptions, told by their names since the libraries are not there to import on a node.
    except Exception as error:
        raise _not_reached(where, error) from error
    if api["node"] not in names:
        raise Refusal(where, f"nodes {', '.join(sorted(names)) or 'none'}", f"node {api['node']}", "Correct the node or the host")
    # Nothing can be asked of the node besides its API: what it cannot tell is not checked, and Proxmox VE refuses it itself.
    return client, Node(api["node"], lambda: None, dict, lambda _path: True, lambda _vmid: "the API cannot unlock a container")


def _not_reached(where: str, error: Exception) -> Exception:
    kind = {entry.__name__ for entry in type(error).__mro__}
    if "SSLError" in kind or ("OSError" in kind and "certificate" in str(error).lower()):
        remedy = "Give ca_file the certificate that signed it (on the node: /etc/pve/pve-root-ca.pem)"
        return Refusal(where, f"a certificate that is not trusted: {error}", "one that is", remedy)
    if "AuthenticationError" in kind or getattr(error, "status_code", None) == 401:
        return Refusal(where, str(error), "a user and a password or a token that it knows", "Correct them; the realm is part of the user")
    if "OSError" in kind or "RequestException" in kind:
        return Refusal(where, str(error), "an answer", "Check host, port and firewall")
    if hasattr(error, "status_code"):
        return Refusal(where, str(error), "a list of nodes", "See pveproxy's log there")
    return error


def beyond_rights(api: Mapping[str, Any], params: Mapping[str, Any]) -> None:
    """Some changes are allowed to root@pam with a password alone; Proxmox VE compares the name, whatever privileges there are."""
    if api["token_id"] is None and api["user"] == ROOT:
        return
    features = params.get("features") or {}
    beyond = {
        "gpus": params.get("gpus") not in (None, ["none"]),
        "mounts": bool(params.get("mounts")),
        "features." + "/".join(name for name in ("keyctl", "fuse") if features.get(name)): features.get("keyctl") or features.get("fuse"),
        "features": bool(features) and not params["unprivileged"],
    }
    asked = [name for name, needed in beyond.items() if needed]
    if asked:
        who = f"the token {api['user']}!{api['token_id']}" if api["token_id"] is not None else f"the user {api['user']}"
        raise Refusal(
            f"Container {params['vmid']} needs more than {who} may do",
            f"{', '.join(asked)} asked for",
            f"{ROOT} with its password, which alone may give a container devices, bind mounts and such features",
            "Leave api out and run this on the node, or give root@pam's password",
        )
