# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The shell text by which the connection pct enters a container, and what its verdicts mean. Pure functions."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

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

# Linux gives one argument no more than 32 pages; what is longer fails on the node with words that explain nothing.
MAX_ARGUMENT = 131_071

# Exit code that a script ends with when a verdict line on standard error says more. Never 255: that is ssh's own.
VERDICT_RC = 254

# Both give the command a clean environment. pct loads Perl first, which takes 0.4 to 0.8 seconds; under another locale than C
# its warnings would stand on the command's standard error.
ENTER = {
    "lxc-attach": ("lxc-attach -n {vmid} --clear-env", "-v", "--"),
    "pct-exec": ("LC_ALL=C pct exec {vmid} --keep-env 0 -- /usr/bin/env -i", "", ""),
}

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
{enter} /bin/sh -c {command}
rc=$?
[ $rc = 0 ] && exit 0
now=$(state); left=6
case $rc in 137|143) while [ "$now" = "$was" ] && [ $left -gt 0 ]; do sleep 0.5; left=$((left-1)); now=$(state); done;; esac
[ "$now" = "$was" ] || say "stopped ${{now%% *}}"
[ $rc = 255 ] && say 255
exit $rc
"""

# sudo's own failure has the exit code 1 as well; only then is it asked again.
SUDO_SCRIPT = r"""
sudo -n -- /bin/sh -c {script}
rc=$?
[ $rc = 1 ] && ! sudo -n true 2>/dev/null && {{ printf '\n%s sudo\n' {nonce} >&2; exit {verdict_rc}; }}
exit $rc
"""

# lxc-attach -u sets no supplementary groups, so the user is taken on inside.
USER_SCRIPT = r"""
entry=$(getent passwd {user}) || {{ printf '\n%s user\n' {nonce} >&2; exit {verdict_rc}; }}
IFS=: read -r name x uid gid x home x <<END
$entry
END
export HOME="$home" USER="$name" LOGNAME="$name"
exec setpriv --reuid="$uid" --regid="$gid" --init-groups -- /bin/sh -c {command}
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


@dataclass(frozen=True)
class Door:
    """How one container is entered. user: the container's user, None for its root; sudo: whether the node's user needs it."""

    vmid: int
    thaw_timeout: int = 30
    method: str = "lxc-attach"
    user: str | None = None
    sudo: bool = False
    configurations: str = CONFIGURATIONS


def node_script(door: Door, command: str, nonce: str) -> str:
    """What the shell of the node's user runs, so that the container's shell runs `command`."""
    if door.user is not None:
        command = USER_SCRIPT.format(user=shlex.quote(door.user), command=shlex.quote(command), nonce=nonce, verdict_rc=VERDICT_RC)
    start, flag, end = ENTER[door.method]
    variables = " ".join(f"{flag} {shlex.quote(f'{name}={value}')}" for name, value in ENVIRONMENT.items())
    script = NODE_SCRIPT.format(
        vmid=door.vmid,
        command=shlex.quote(command),
        nonce=nonce,
        thaw_timeout=door.thaw_timeout,
        configurations=door.configurations,
        enter=f"{start.format(vmid=door.vmid)} {variables} {end}",
        verdict_rc=VERDICT_RC,
    )
    return SUDO_SCRIPT.format(script=shlex.quote(script), nonce=nonce, verdict_rc=VERDICT_RC) if door.sudo else script


def split_verdict(stderr: bytes, nonce: str) -> tuple[bytes, str | None]:
    """Take the line that starts with the nonce out of standard error. ssh's own messages may stand behind it."""
    before, found, rest = stderr.rpartition(b"\n" + nonce.encode() + b" ")
    if not found:
        return stderr, None
    line, _newline, after = rest.partition(b"\n")
    return before + after, line.decode("utf-8", "replace").strip()


def unreachable(door: Door, host: str, verdict: str) -> str:
    """Found, wanted and remedy for a container that cannot be entered."""
    vmid, wanted = door.vmid, "a running container"
    if verdict == "absent":
        found, do = "no configuration of it on this node", "create it first, or check ansible_pct_vmid and ansible_host (was it migrated?)"
    elif verdict == "sudo":
        found, wanted = "sudo on the node wants a password, or refuses", "a rule NOPASSWD for ansible_user"
        do = "add it, or log in as root and leave ansible_pct_sudo out"
    elif verdict == "user":
        found, wanted, do = f"no user {door.user} in it", "a user that it has", "create the user first, or correct ansible_pct_user"
    elif verdict == "state STOPPED":
        found, do = "it is stopped", f"start it: pct start {vmid}"
    elif verdict in ("state FROZEN", "state FREEZING"):
        found, do = "it is frozen", f"wait for its backup or snapshot to end, or thaw it: lxc-unfreeze -n {vmid}"
    elif verdict == "state":
        found, do = "lxc-info does not know it", "log in to the node as root, or set ansible_pct_sudo"
    elif verdict.startswith("stopped"):
        found, do = f"it stopped during the task and is now {verdict[8:] or 'gone'}", "find what stopped it, and run again"
    else:
        found, do = f"it is in {verdict}", "wait until it runs"
    return f"Container {vmid} on {host} cannot be entered. Found: {found}. Wanted: {wanted}. Do: {do}."
