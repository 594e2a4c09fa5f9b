# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Text of the unit, the start script and the environment files of the inference services: pure functions.

This module util is PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field

HEAD = "# Written by blackwell.inference: changes made here are overwritten by the next run.\n"
_PLAIN = re.compile(r"[A-Za-z0-9_./:=,@+-]+")


@dataclass(frozen=True)
class Instance:
    """One server on one GPU."""

    index: int
    port: int
    gpu: str
    compute_capability: str
    args: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)

    @property
    def unit(self) -> str:
        return f"inference@{self.index}.service"


@dataclass(frozen=True)
class Settings:
    """What all instances have in common."""

    stack: str
    host: str = "127.0.0.1"
    user: str = "inference"
    state: str = "/var/lib/inference-state"
    instances: str = "/etc/inference/instances"
    script: str = "/opt/inference/bin/inference-serve"
    runtime: str = "/run/inference"
    cache: str = "/var/cache/inference"
    driver_file: str = "/proc/driver/nvidia/version"
    unit_file: str = "/etc/systemd/system/inference@.service"
    stop_timeout: int = 30


def word(argument: str) -> str:
    """One argument, such that systemd's splitting of $INFERENCE_ARGS gives it back unchanged."""
    if _PLAIN.fullmatch(argument):
        return argument
    escaped = argument.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def env_line(name: str, value: str) -> str:
    """One line of an environment file. Inside double quotes systemd takes a backslash away before these four only."""
    escaped = re.sub(r'([\\"`$])', r"\\\1", value)
    return f'{name}="{escaped}"\n'


def env_file(instance: Instance, settings: Settings, program: str) -> str:
    """`program` is the text of unit and script: with its hash in here, this file stands for all that a server is
    started with."""
    variables = (
        ("INFERENCE_PROGRAM", hashlib.sha256(program.encode()).hexdigest()[:16]),
        ("INFERENCE_STACK", settings.stack),
        ("INFERENCE_INDEX", str(instance.index)),
        ("INFERENCE_GPU", instance.gpu),
        ("INFERENCE_CAPABILITY", instance.compute_capability),
        ("INFERENCE_HOST", settings.host),
        ("INFERENCE_PORT", str(instance.port)),
        ("INFERENCE_ARGS", " ".join(word(argument) for argument in instance.args)),
        ("CUDA_VISIBLE_DEVICES", instance.gpu),
        *sorted(instance.env.items()),
    )
    return HEAD + "".join(env_line(name, value) for name, value in variables)


def script(settings: Settings) -> str:
    """Starts one server. The stack is resolved once, at the start: a process that reached its modules through the link
    would import from another stack after a switch."""
    return (
        "#!/bin/sh\n"
        + HEAD
        + f"""set -eu
stack=$(readlink -f {settings.state}/current) || stack=
lock=${{stack##*/}}

driver() {{
    while read -r line; do
        case $line in "NVRM version:"*)
            for word in $line; do
                case $word in [0-9]*.[0-9]*) echo "$word"; return ;; esac
            done ;;
        esac
    done <{settings.driver_file}
}}

refuse() {{
    echo "$1" >&2
    exit 78
}}

check() {{
    [ -x "$stack/bin/python" ] || refuse "found: no stack behind {settings.state}/current; wanted: a finished stack;\\
 do: run the playbook with the tags of the stack"
    loaded=$(driver) || refuse "found: no loaded NVIDIA driver; wanted: a driver; do: look at the node's driver"
    proof={settings.state}/proofs/$lock/$INFERENCE_GPU-$loaded.json
    [ -f "$proof" ] || refuse "found: no proof of stack $lock on $INFERENCE_GPU with driver $loaded; wanted: $proof;\\
 do: run the playbook, its stack_verify proves the stack again"
}}

serve() {{
    cache={settings.cache}/jit/$lock/$INFERENCE_CAPABILITY
    mkdir -p "$cache"
    # Every cache of run-time compilers is below HOME or named here; stacks and capabilities never share one.
    export HOME="$cache" XDG_CACHE_HOME="$cache" FLASHINFER_WORKSPACE_BASE="$cache"
    export TRITON_CACHE_DIR="$cache/triton" TORCHINDUCTOR_CACHE_DIR="$cache/inductor" CUDA_CACHE_PATH="$cache/nv"
    # The stack's own compiler comes first: another nvcc on PATH would not fit the headers.
    export CUDA_HOME="$stack/cuda" PATH="$stack/bin:$stack/cuda/bin:/usr/local/bin:/usr/bin:/bin"
    # What this process was started with, for the next run: the files may be other ones by then.
    config=$(sha256sum <{settings.instances}/"$INFERENCE_INDEX.env")
    echo "${{config%% *}} $stack" >"$RUNTIME_DIRECTORY/started"
    exec "$stack/bin/python" -m sglang.launch_server "$@" --host "$INFERENCE_HOST" --port "$INFERENCE_PORT"
}}

command=$1
shift
"$command" "$@"
"""
    )


def unit(settings: Settings) -> str:
    """The hardened template unit. Every protection was seen to work with CUDA in an unprivileged LXC container."""
    return (
        HEAD
        + f"""[Unit]
Description=Inference server %i
After=network.target
# A server that cannot start is tried again with growing pauses, then left alone with its reason in the journal.
StartLimitIntervalSec=900
StartLimitBurst=8

[Service]
Type=exec
User={settings.user}
Group={settings.user}
# One machine, one process group per GPU: no network interface but loopback is needed, and nothing is fetched.
Environment=HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 HF_HUB_DISABLE_TELEMETRY=1 PYTHONUNBUFFERED=1
Environment=SGLANG_HOST_IP=127.0.0.1 GLOO_SOCKET_IFNAME=lo NCCL_SOCKET_IFNAME=lo
EnvironmentFile={settings.instances}/%i.env
RuntimeDirectory=inference/%i
CacheDirectory=inference
ExecStartPre={settings.script} check
ExecStart={settings.script} serve $INFERENCE_ARGS
Restart=always
RestartSec=2
RestartSteps=6
RestartMaxDelaySec=60
# The server may ignore SIGTERM for ever once it has refused an input; its children go with it.
KillMode=mixed
TimeoutStopSec={settings.stop_timeout}
LimitNOFILE=65536
UMask=0027

NoNewPrivileges=yes
CapabilityBoundingSet=
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
DevicePolicy=closed
DeviceAllow=char-nvidia* rw
ProtectKernelTunables=yes
ProtectControlGroups=yes
ProtectProc=invisible
RestrictNamespaces=yes
# AF_NETLINK: gloo asks the kernel for the address of its interface.
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
SystemCallFilter=@system-service
SystemCallErrorNumber=EPERM
# MemoryDenyWriteExecute is absent: Triton and CUDA load machine code that they have just compiled.

[Install]
WantedBy=multi-user.target
"""
    )
