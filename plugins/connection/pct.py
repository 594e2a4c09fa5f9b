# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: pct
short_description: Run tasks in an LXC container of a Proxmox VE node, through one SSH connection to the node
description:
  - Opens the same multiplexed SSH connection that the node's own tasks use, and enters the container with C(lxc-attach),
    in a clean environment. C(pct exec) would cost 0.4 to 0.8 seconds of Perl start-up for each call.
  - Files are streamed through standard input and output, whatever their size, and their SHA-256 is compared.
  - A container that is absent, stopped or frozen is reported as unreachable, as is one that stops during a task.
    A command that itself exits with 255 is a failed command and not a lost connection.
author:
  - blackwell.inference contributors (@blackwell-inference)
extends_documentation_fragment:
  - blackwell.inference.ssh_connection
options:
  vmid:
    description: Number of the container on the node that O(host) names.
    type: int
    required: true
    vars:
      - name: ansible_pct_vmid
  thaw_timeout:
    description:
      - Seconds to wait for a container that is starting or frozen, as it is while a snapshot is taken.
        Without a limit C(lxc-attach) would hang silently.
    type: int
    default: 30
    vars:
      - name: ansible_pct_thaw_timeout
notes:
  - There is no login session in the container, as with C(pct exec). Tasks run outside every systemd unit of the container.
  - M(ansible.builtin.meta) C(reset_connection) leaves the shared SSH connection open, since the node's own tasks use it.
  - The login shell of O(remote_user) on the node must understand POSIX shell syntax.
"""

EXAMPLES = r"""
all:
  hosts:
    kpro6:
      ansible_host: 10.99.0.11
      ansible_user: root
    kpro6-200:
      ansible_connection: blackwell.inference.pct
      ansible_host: "{{ hostvars['kpro6'].ansible_host }}"
      ansible_user: root
      ansible_pct_vmid: 200
"""

import hashlib
import os
import secrets
import shlex
import subprocess
from typing import IO, NoReturn

from ansible.errors import AnsibleConnectionFailure, AnsibleError, AnsibleFileNotFound
from ansible.module_utils.common.text.converters import to_bytes, to_text
from ansible.plugins.connection import ConnectionBase
from ansible.plugins.connection.ssh import Connection as SSHConnection
from ansible.plugins.connection.ssh import _ssh_retry
from ansible.utils.display import Display

display = Display()

CONFIGURATIONS = "/etc/pve/lxc"

# lxc-attach --clear-env leaves HOME unset, and a path without /usr/local/bin hides tools.
ENVIRONMENT = {
    "HOME": "/root",
    "USER": "root",
    "LOGNAME": "root",
    "SHELL": "/bin/sh",
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
}

# Exit code that the node's script ends with when a verdict line on standard error says more. Never 255: that is ssh's own.
VERDICT_RC = 254

# The exit code 255 of a command reads like a lost connection to ssh's caller, and a stopped container makes lxc-attach
# exit with 1 like a failed command. So state and pid of init are asked before, and again after a failure, and what is
# found goes to standard error behind a word that no command can know. A container that stops kills the command some
# time before its state changes.
NODE_SCRIPT = r"""
say() {{ printf '\n%s %s\n' {nonce} "$1" >&2; exit {verdict_rc}; }}
state() {{ set -- $(lxc-info -n {vmid} -s -p </dev/null 2>/dev/null); echo "$2 $4"; }}
test -e {configurations}/{vmid}.conf || say absent
left={thaw_timeout}; was=$(state)
while case $was in FROZEN*|FREEZING*|STARTING*) [ "$left" -gt 0 ];; *) false;; esac; do sleep 1; left=$((left-1)); was=$(state); done
case $was in RUNNING*) ;; *) say "state ${{was%% *}}";; esac
lxc-attach -n {vmid} --clear-env {environment} -- /bin/sh -c {command}
rc=$?
[ $rc = 0 ] && exit 0
now=$(state); left=6
case $rc in 137|143) while [ "$now" = "$was" ] && [ $left -gt 0 ]; do sleep 0.5; left=$((left-1)); now=$(state); done;; esac
[ "$now" = "$was" ] || say "stopped ${{now%% *}}"
[ $rc = 255 ] && say 255
exit $rc
"""

# The content is read to its end even when it cannot be stored, so that the sender is not killed by a closed pipe.
PUT_SCRIPT = r"""
umask 077; d={target}; [ -L "$d" ] && d=$(readlink -f -- "$d"); [ -d "$d" ] && {{ echo "$d is a directory" >&2; exit 1; }}
t="$(dirname -- "$d")/.pct-{nonce}"
if cat >"$t"; then sha256sum <"$t" && mv -f -- "$t" "$d" && exit 0; fi
rm -f -- "$t"; cat >/dev/null; exit 1
"""

FETCH_SCRIPT = r"""
s={source}; [ -f "$s" ] || {{ echo "$s is not a regular file" >&2; exit 1; }}
cat <"$s" && sum=$(sha256sum <"$s") && printf '\n%s %s\n' {nonce} "$sum" >&2
"""


def node_script(vmid: int, command: str, nonce: str, thaw_timeout: int, configurations: str) -> str:
    """What the node's shell runs to run `command` in the container's shell."""
    environment = " ".join(f"-v {shlex.quote(f'{name}={value}')}" for name, value in ENVIRONMENT.items())
    return NODE_SCRIPT.format(
        vmid=vmid,
        command=shlex.quote(command),
        nonce=nonce,
        thaw_timeout=thaw_timeout,
        configurations=configurations,
        environment=environment,
        verdict_rc=VERDICT_RC,
    )


def split_verdict(stderr: bytes, nonce: str) -> tuple[bytes, str | None]:
    """Take the line that starts with the nonce out of standard error. ssh's own messages may stand behind it."""
    before, found, rest = stderr.rpartition(b"\n" + nonce.encode() + b" ")
    if not found:
        return stderr, None
    line, _newline, after = rest.partition(b"\n")
    return before + after, line.decode("utf-8", "replace").strip()


def unreachable(vmid: int, host: str, verdict: str) -> str:
    """Found, wanted and remedy for a container that cannot be entered."""
    if verdict == "absent":
        found, do = "no configuration of it on this node", "create it first, or check ansible_pct_vmid and ansible_host (was it migrated?)"
    elif verdict == "state STOPPED":
        found, do = "it is stopped", f"start it: pct start {vmid}"
    elif verdict in ("state FROZEN", "state FREEZING"):
        found, do = "it is frozen", f"wait for its backup or snapshot to end, or thaw it: lxc-unfreeze -n {vmid}"
    elif verdict == "state":
        found, do = "lxc-info does not know it", "log in to the node as root"
    elif verdict.startswith("stopped"):
        found, do = f"it stopped during the task and is now {verdict[8:] or 'gone'}", "find what stopped it, and run again"
    else:
        found, do = f"it is in {verdict}", "wait until it runs"
    return f"Container {vmid} on {host} cannot be entered. Found: {found}. Wanted: a running container. Do: {do}."


class Connection(SSHConnection):
    """A container of the node that the parent class connects to."""

    transport = "blackwell.inference.pct"

    def exec_command(self, cmd: str, in_data: bytes | None = None, sudoable: bool = True) -> tuple[int, bytes, bytes]:
        # Not the parent's method: it would ask for a terminal, which turns every line feed into CR LF twice.
        ConnectionBase.exec_command(self, cmd, in_data=in_data, sudoable=sudoable)
        nonce = self._nonce()
        display.vvv(f"ENTER CONTAINER {self.get_option('vmid')}", host=self._node())
        try:
            rc, stdout, stderr = self._run(self._ssh_command(cmd, nonce), in_data, sudoable=sudoable)
        except AnsibleConnectionFailure as exc:
            self._lost_node(exc)
        rc, stderr = self._judge(rc, stderr, nonce)
        return rc, stdout, stderr

    def put_file(self, in_path: str, out_path: str) -> None:
        ConnectionBase.put_file(self, in_path, out_path)
        display.vvv(f"PUT {in_path} TO {out_path}", host=self._node())
        if not os.path.exists(to_bytes(in_path, errors="surrogate_or_strict")):
            raise AnsibleFileNotFound(f"file or module does not exist: {in_path}")
        nonce = self._nonce()
        script = PUT_SCRIPT.format(target=shlex.quote(out_path), nonce=nonce)
        with open(to_bytes(in_path, errors="surrogate_or_strict"), "rb") as source:
            rc, stdout, stderr = self._stream(script, nonce, stdin=source)
            source.seek(0)
            wanted = hashlib.file_digest(source, "sha256").hexdigest()
        self._compare(f"{in_path} to {out_path}", rc, stderr, wanted, to_text(stdout).partition(" ")[0])

    def fetch_file(self, in_path: str, out_path: str) -> None:
        ConnectionBase.fetch_file(self, in_path, out_path)
        display.vvv(f"FETCH {in_path} TO {out_path}", host=self._node())
        nonce = self._nonce()
        script = FETCH_SCRIPT.format(source=shlex.quote(in_path), nonce=f"{nonce}s")
        with open(to_bytes(out_path, errors="surrogate_or_strict"), "wb+") as target:
            rc, _stdout, stderr = self._stream(script, nonce, stdout=target)
            target.seek(0)
            found = hashlib.file_digest(target, "sha256").hexdigest()
        stderr, sum_line = split_verdict(stderr, f"{nonce}s")
        self._compare(f"{in_path} to {out_path}", rc, stderr, (sum_line or "no checksum").partition(" ")[0], found)

    def reset(self) -> None:
        # The parent stops the ssh master, which belongs to the node's own tasks as well.
        self.close()

    def _node(self) -> str:
        # The parent's option, read at each use as the parent does: it decides which socket is shared.
        self.host = self.get_option("host") or self._play_context.remote_addr
        return str(self.host)

    @staticmethod
    def _nonce() -> str:
        return f"pct-{secrets.token_hex(8)}"

    def _ssh_command(self, command: str, nonce: str) -> list[bytes]:
        vmid, thaw_timeout = self.get_option("vmid"), self.get_option("thaw_timeout")
        script = node_script(vmid, command, nonce, thaw_timeout, CONFIGURATIONS)
        built: list[bytes] = self._build_command(self.get_option("ssh_executable"), "ssh", self._node(), script)
        return built

    def _stream(self, script: str, nonce: str, stdin: IO[bytes] | None = None, stdout: IO[bytes] | None = None) -> tuple[int, bytes, bytes]:
        """Run a command in the container whose input or output is a local file, in constant memory."""
        if self.get_option("password"):
            # Only the parent's own runner answers a password prompt. Afterwards the connection is open.
            self.exec_command(":", sudoable=False)
        try:
            rc, output, stderr = self._transfer(self._ssh_command(script, nonce), stdin, stdout)
        except AnsibleConnectionFailure as exc:
            self._lost_node(exc)
        rc, stderr = self._judge(rc, stderr, nonce)
        return rc, output, stderr

    @_ssh_retry  # type: ignore[untyped-decorator]
    def _transfer(self, command: list[bytes], stdin: IO[bytes] | None, stdout: IO[bytes] | None) -> tuple[int, bytes, bytes]:
        for handle in (stdin, stdout):
            if handle is not None:
                handle.seek(0)
        if stdout is not None:
            stdout.truncate()
        done = subprocess.run(
            command,
            stdin=stdin or subprocess.DEVNULL,
            stdout=stdout or subprocess.PIPE,
            stderr=subprocess.PIPE,
            check=False,
        )
        return done.returncode, done.stdout or b"", done.stderr

    def _judge(self, rc: int, stderr: bytes, nonce: str) -> tuple[int, bytes]:
        stderr, verdict = split_verdict(stderr, nonce)
        if verdict is None:
            return rc, stderr
        if verdict == "255":
            return 255, stderr
        raise AnsibleConnectionFailure(unreachable(self.get_option("vmid"), self._node(), verdict))

    def _lost_node(self, exc: AnsibleConnectionFailure) -> NoReturn:
        message = f"Container {self.get_option('vmid')} is entered through {self._node()}. {exc}"
        raise type(exc)(message) from exc

    def _compare(self, what: str, rc: int, stderr: bytes, wanted: str, found: str) -> None:
        where = f"container {self.get_option('vmid')} on {self._node()}"
        if rc != 0:
            raise AnsibleError(f"Could not copy {what}, {where}. Found: {to_text(stderr).strip() or f'exit code {rc}'}.")
        if wanted != found:
            raise AnsibleError(
                f"Copying {what}, {where}, changed the content. Found: SHA-256 {found or 'unknown'}. Wanted: {wanted}. "
                "Do: check that nothing else writes to the file, and try again."
            )
