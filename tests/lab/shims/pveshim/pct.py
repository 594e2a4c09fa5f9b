# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The command `pct`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from . import conf, config, lifecycle, options, power, schema, state, transfer
from .errors import NotSimulated, PveError
from .tasks import Task

_LIST_LINE = "{:<10} {:<10} {:<12} {:<20}"
PATH = "/sbin:/bin:/usr/sbin:/usr/bin"
_CONFIG_BOOLEANS = {key for key, kind in schema.CONFIG.items() if kind is schema.BOOLEAN}


def _is_config_key(name: str) -> bool:
    return schema.kind(name) is not None or name in schema.UNSIMULATED


def _end(task: Task) -> int:
    return 0 if task.ok else 255


class Call:
    """One call's arguments, taken one after the other with Proxmox VE's complaints."""

    def __init__(self, name: str, words: list[str], fixed: str, known: set[str], booleans: set[str]) -> None:
        self.usage = f"pct {name} {fixed} [OPTIONS]".replace("  ", " ")
        configurable = name in ("create", "set")
        self.positional, self.options = options.parse(
            words,
            known,
            booleans | (_CONFIG_BOOLEANS if configurable else set()),
            self.usage,
            known_check=_is_config_key if configurable else None,
        )
        needed = fixed.count("<")
        if len(self.positional) < needed and name != "exec":
            raise PveError(f"400 not enough arguments\n{self.usage}", 2)
        if len(self.positional) > needed and name != "exec":
            raise PveError(f"400 too many arguments\n{self.usage}", 2)
        self.vmid = options.vmid(self.positional[0], self.usage) if self.positional and needed else 0

    def flag(self, name: str) -> bool:
        return schema.parse_boolean(self.options.get(name, "0")) == "1"

    def number(self, name: str, default: int) -> int:
        text = self.options.get(name, str(default))
        if not text.isdigit():
            raise PveError(f"400 Parameter verification failed.\n{name}: type check ('integer') failed - got '{text}'", 2)
        return int(text)


def _list(words: list[str]) -> int:
    Call("list", words, "", set(), set())
    numbers = state.vmids()
    if numbers:
        print(_LIST_LINE.format("VMID", "Status", "Lock", "Name"))
    for vmid in numbers:
        values = state.load(vmid).values
        print(_LIST_LINE.format(vmid, state.status(vmid), values.get("lock", ""), values.get("hostname", "")))
    return 0


def _status(words: list[str]) -> int:
    call = Call("status", words, "<vmid>", {"verbose"}, {"verbose"})
    if "verbose" in call.options:
        raise NotSimulated("pct status --verbose")
    state.load(call.vmid)
    print(f"status: {state.status(call.vmid)}")
    return 0


def _config(words: list[str]) -> int:
    call = Call("config", words, "<vmid>", {"current"}, {"current"})
    shown = config.show(call.vmid, current=call.flag("current"))
    shown.pop("digest")
    raw = shown.pop("lxc", [])
    for key in sorted(shown):
        value = shown[key]
        if key == "description":
            value = conf.encode_description(value).replace("\n", "%0A")
        print(f"{key}: {value}")
    for key, value in raw:
        print(f"{key}: {value}")
    return 0


def _set(words: list[str]) -> int:
    call = Call("set", words, "<vmid>", {"delete", "revert", "digest"}, set())
    config.update(call.vmid, call.options)
    return 0


def _create(words: list[str]) -> int:
    booleans = {"start", "force", "unique", "ignore-unpack-errors", "restore"}
    known = lifecycle.CREATE_ONLY | {"pool", "bwlimit", "restore"}
    call = Call("create", words, "<vmid> <ostemplate>", known, booleans)
    return _end(lifecycle.create(call.vmid, {**call.options, "ostemplate": call.positional[1]}))


def _start(words: list[str]) -> int:
    return _end(power.start(Call("start", words, "<vmid>", set(), set()).vmid))


def _stop(words: list[str]) -> int:
    return _end(power.stop(Call("stop", words, "<vmid>", set(), set()).vmid))


def _shutdown(words: list[str]) -> int:
    call = Call("shutdown", words, "<vmid>", {"timeout", "forceStop"}, {"forceStop"})
    return _end(power.shutdown(call.vmid, timeout=call.number("timeout", 60), force_stop=call.flag("forceStop")))


def _reboot(words: list[str]) -> int:
    call = Call("reboot", words, "<vmid>", {"timeout"}, set())
    return _end(power.reboot(call.vmid, timeout=call.number("timeout", 60)))


def _destroy(words: list[str]) -> int:
    booleans = {"force", "purge", "destroy-unreferenced-disks"}
    call = Call("destroy", words, "<vmid>", booleans, booleans)
    return _end(lifecycle.destroy(call.vmid, force=call.flag("force")))


def _unlock(words: list[str]) -> int:
    config.unlock(Call("unlock", words, "<vmid>", set(), set()).vmid)
    return 0


def _push(words: list[str]) -> int:
    call = Call("push", words, "<vmid> <file> <destination>", {"perms", "user", "group"}, set())
    transfer.push(call.vmid, call.positional[1], call.positional[2], call.options)
    return 0


def _pull(words: list[str]) -> int:
    call = Call("pull", words, "<vmid> <path> <destination>", {"perms", "user", "group"}, set())
    transfer.pull(call.vmid, call.positional[1], call.positional[2], call.options)
    return 0


def _exec(words: list[str]) -> int:
    call = Call("exec", words, "<vmid> [<extra-args>]", {"keep-env"}, {"keep-env"})
    if not call.positional:
        raise PveError(f"400 not enough arguments\n{call.usage}", 2)
    state.load(call.vmid)
    inner = call.positional[1:]
    if not inner:
        raise PveError("missing command")
    if not state.running(call.vmid):
        raise PveError(f"container '{call.vmid}' not running!")
    # The real command runs with this PATH, and by default hands the node's whole environment on. Python itself adds
    # LC_CTYPE where no locale is set (PEP 538); the kernel still knows what this process was really given.
    if not any(word.startswith(b"LC_CTYPE=") for word in Path("/proc/self/environ").read_bytes().split(b"\0")):
        os.environ.pop("LC_CTYPE", None)
    os.environ["PATH"] = PATH
    keep = schema.parse_boolean(call.options.get("keep-env", "1")) == "1"
    os.chdir("/")
    sys.stdout.flush()
    os.execvp("lxc-attach", ["lxc-attach", "-n", str(call.vmid), "--keep-env" if keep else "--clear-env", "--", *inner])


COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "config": _config,
    "create": _create,
    "destroy": _destroy,
    "exec": _exec,
    "list": _list,
    "pull": _pull,
    "push": _push,
    "reboot": _reboot,
    "set": _set,
    "shutdown": _shutdown,
    "start": _start,
    "status": _status,
    "stop": _stop,
    "unlock": _unlock,
}


def main(words: list[str]) -> int:
    try:
        if not words:
            raise PveError("ERROR: no command specified\nUSAGE: pct <COMMAND> [ARGS] [OPTIONS]")
        if words[0] not in COMMANDS:
            raise NotSimulated(f"pct {words[0]}")
        return COMMANDS[words[0]](words[1:])
    except PveError as error:
        sys.stdout.flush()
        print(error, file=sys.stderr)
        return error.code
