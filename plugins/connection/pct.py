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
  user:
    description:
      - User of the container that tasks run as, with its home and its supplementary groups. It needs C(getent) and C(setpriv)
        in the container, as every Debian has. The user of the node stays O(remote_user).
    type: str
    vars:
      - name: ansible_pct_user
  sudo:
    description: Whether O(remote_user) enters containers by C(sudo) on the node. It must not ask for a password.
    type: bool
    default: false
    vars:
      - name: ansible_pct_sudo
  method:
    description:
      - V(lxc-attach) enters by itself. V(pct-exec) leaves it to Proxmox VE's own program, for nodes where only that is allowed.
    type: str
    choices: [lxc-attach, pct-exec]
    default: lxc-attach
    vars:
      - name: ansible_pct_method
  thaw_timeout:
    description:
      - Seconds to wait for a container that is starting or frozen, as it is while a snapshot is taken.
        Without a limit C(lxc-attach) would hang silently.
    type: int
    default: 30
    vars:
      - name: ansible_pct_thaw_timeout
notes:
  - A task that is cut off on the controller goes on in the container, as it does with plain SSH.
  - A container that is frozen in the middle of a task, by a backup in snapshot mode, makes the task wait. Give such a task
    a C(timeout).
  - A node behind another host is reached as with plain SSH, for example with C(ansible_ssh_common_args=-J jump.example.com).
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
from typing import IO, Any, NoReturn

from ansible.errors import AnsibleConnectionFailure, AnsibleError, AnsibleFileNotFound
from ansible.module_utils.common.text.converters import to_bytes, to_text
from ansible.plugins.connection import ConnectionBase
from ansible.plugins.connection.ssh import Connection as SSHConnection
from ansible.plugins.connection.ssh import _ssh_retry
from ansible.utils.display import Display
from ansible_collections.blackwell.inference.plugins.plugin_utils import _pct_script as scripts
from ansible_collections.blackwell.inference.plugins.plugin_utils._pct_script import Door

display = Display()


class Connection(SSHConnection):
    """A container of the node that the parent class connects to."""

    transport = "blackwell.inference.pct"
    _for_ssh = False

    def get_option(self, option: str, hostvars: dict[str, object] | None = None) -> Any:
        # Everybody but ssh asks for the user whose home and rights a task has: the one in the container.
        if option == "remote_user" and not self._for_ssh:
            return super().get_option("user", hostvars) or "root"
        return super().get_option(option, hostvars)

    def _build_command(self, *arguments: Any, **named: Any) -> list[bytes]:
        self._for_ssh = True
        try:
            built: list[bytes] = super()._build_command(*arguments, **named)
        finally:
            self._for_ssh = False
        return built

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
        script = scripts.PUT_SCRIPT.format(target=shlex.quote(out_path), nonce=nonce)
        with open(to_bytes(in_path, errors="surrogate_or_strict"), "rb") as source:
            rc, stdout, stderr = self._stream(script, nonce, stdin=source)
            source.seek(0)
            wanted = hashlib.file_digest(source, "sha256").hexdigest()
        self._compare(f"{in_path} to {out_path}", rc, stderr, wanted, to_text(stdout).partition(" ")[0])

    def fetch_file(self, in_path: str, out_path: str) -> None:
        ConnectionBase.fetch_file(self, in_path, out_path)
        display.vvv(f"FETCH {in_path} TO {out_path}", host=self._node())
        nonce = self._nonce()
        script = scripts.FETCH_SCRIPT.format(source=shlex.quote(in_path), nonce=f"{nonce}s")
        with open(to_bytes(out_path, errors="surrogate_or_strict"), "wb+") as target:
            rc, _stdout, stderr = self._stream(script, nonce, stdout=target)
            target.seek(0)
            found = hashlib.file_digest(target, "sha256").hexdigest()
        stderr, sum_line = scripts.split_verdict(stderr, f"{nonce}s")
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

    def _door(self) -> Door:
        chosen = {name: self.get_option(name) for name in ("vmid", "thaw_timeout", "method", "user", "sudo")}
        return Door(**chosen, configurations=scripts.CONFIGURATIONS)

    def _ssh_command(self, command: str, nonce: str) -> list[bytes]:
        script = scripts.node_script(self._door(), command, nonce)
        size = len(to_bytes(script, errors="surrogate_or_strict"))
        if size > scripts.MAX_ARGUMENT:
            raise AnsibleError(
                f"Command for container {self.get_option('vmid')} on {self._node()}. Found: {size} bytes with its environment. "
                f"Wanted: at most {scripts.MAX_ARGUMENT}, what Linux gives to one argument. "
                "Do: give large values to the task by a file (module copy), not by environment or raw."
            )
        return self._build_command(self.get_option("ssh_executable"), "ssh", self._node(), script)

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
        stderr, verdict = scripts.split_verdict(stderr, nonce)
        if verdict is None:
            return rc, stderr
        if verdict == "255":
            return 255, stderr
        raise AnsibleConnectionFailure(scripts.unreachable(self._door(), self._node(), verdict))

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
