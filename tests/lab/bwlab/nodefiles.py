# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a freshly installed node holds on top of the packed root file system: plain files, no logic."""

from __future__ import annotations

from . import names

# The node's own bridge, as an installed Proxmox VE has it: the network card without an address, the address on vmbr0.
# It has the card's own hardware address: a bridge without one changes it whenever a container starts.
# No default route: nothing in the lab may reach the internet, and without a route it says so at once.
NETWORK_UNIT = """\
[Unit]
Description=Network of this node: bridge vmbr0 over eth0
DefaultDependencies=no
Before=network-pre.target network.target network-online.target
Wants=network.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/sbin/ip link add vmbr0 address {mac} type bridge stp_state 0 forward_delay 0
ExecStart=/usr/sbin/ip link set eth0 master vmbr0
ExecStart=/usr/sbin/ip address add {address}/24 dev vmbr0
ExecStart=/usr/sbin/ip link set lo up
ExecStart=/usr/sbin/ip link set eth0 up
ExecStart=/usr/sbin/ip link set vmbr0 up

[Install]
WantedBy=multi-user.target
"""

# Real Proxmox VE's unit of the same name does the same through pvesh: containers with onboot start after it.
GUESTS_UNIT = """\
[Unit]
Description=PVE guests
Wants=network-online.target
After=bwlab-network.service network-online.target ssh.service

[Service]
Type=oneshot
RemainAfterExit=yes
TimeoutSec=infinity
ExecStart=/usr/bin/pvesh --nooutput create /nodes/localhost/startall
ExecStop=/usr/bin/pvesh --nooutput create /nodes/localhost/stopall

[Install]
WantedBy=multi-user.target
"""

# As on a real node: a container is a unit, so it outlives the session or unit that started it.
CONTAINER_UNIT = """\
[Unit]
Description=PVE LXC Container: %i
DefaultDependencies=no

[Service]
Type=simple
Delegate=yes
KillMode=mixed
TimeoutStopSec=120s
ExecStart=/usr/bin/lxc-start -F -n %i
ExecStop=-/usr/bin/lxc-stop -n %i --timeout 60
StandardOutput=null
"""

SSHD_CONFIG = """\
PermitRootLogin prohibit-password
PasswordAuthentication no
HostKey /etc/ssh/ssh_host_ed25519_key
UseDNS no
"""

STORAGE_CONFIG = """\
dir: local
\tpath /var/lib/vz
\tcontent iso,vztmpl,backup,snippets

dir: local-lvm
\tpath /var/lib/lxc
\tcontent rootdir,images
"""


def files(node: str, public_key: str) -> dict[str, tuple[str, int]]:
    """Path below the root file system -> (text, mode)."""
    address = names.node_address(node)
    return {
        "etc/hostname": (f"{node}\n", 0o644),
        "etc/hosts": (f"127.0.0.1 localhost\n{address} {node}.lab {node}\n", 0o644),
        "etc/machine-id": ("", 0o444),
        "etc/subuid": ("root:100000:65536\n", 0o644),
        "etc/subgid": ("root:100000:65536\n", 0o644),
        "root/.ssh/authorized_keys": (public_key, 0o600),
        "etc/ssh/sshd_config.d/node.conf": (SSHD_CONFIG, 0o644),
        "etc/systemd/system/bwlab-network.service": (NETWORK_UNIT.format(address=address, mac=names.node_mac(node)), 0o644),
        "etc/systemd/system/pve-guests.service": (GUESTS_UNIT, 0o644),
        "etc/systemd/system/pve-container@.service": (CONTAINER_UNIT, 0o644),
        "etc/pve/storage.cfg": (STORAGE_CONFIG, 0o640),
    }


def folders(node: str) -> list[str]:
    return [
        f"etc/pve/nodes/{node}/lxc",
        "etc/pve/priv",
        "var/log/pve/tasks",
        "var/lib/vz/template/cache",
        "var/lib/vz/snippets",
    ]


def links(node: str) -> dict[str, str]:
    wants = "etc/systemd/system/multi-user.target.wants"
    return {
        "etc/pve/lxc": f"nodes/{node}/lxc",
        "etc/pve/local": f"nodes/{node}",
        "usr/sbin/pct": "/usr/lib/bwlab/shims/pct",
        "usr/bin/pvesh": "/usr/lib/bwlab/shims/pvesh",
        "usr/bin/pveversion": "/usr/lib/bwlab/shims/pveversion",
        f"{wants}/bwlab-network.service": "/etc/systemd/system/bwlab-network.service",
        f"{wants}/pve-guests.service": "/etc/systemd/system/pve-guests.service",
    }
