# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The connection against stand-ins for ssh, lxc-info and lxc-attach, so that the real shell text runs."""

from __future__ import annotations

import os
import shlex
import stat
import subprocess
from pathlib import Path
from typing import Any, Callable

import pytest
import yaml
from ansible import constants as C
from ansible.errors import AnsibleConnectionFailure, AnsibleError, AnsibleFileNotFound
from ansible.playbook.play_context import PlayContext
from ansible.plugins.connection import ssh
from ansible.plugins.doc_fragments.connection_pipelining import ModuleDocFragment as Pipelining
from ansible.plugins.loader import shell_loader
from ansible_collections.blackwell.inference.plugins.connection import pct
from ansible_collections.blackwell.inference.plugins.doc_fragments.ssh_connection import ModuleDocFragment
from ansible_collections.blackwell.inference.plugins.plugin_utils import _pct_script as scripts

# The last argument is the remote command; what stands before is kept for the test of the shared socket.
FAKE_SSH = r"""#!/bin/sh
for last; do :; done
printf '%s\n' "$@" >"$HERE/ssh-arguments"
[ -e "$HERE/lost" ] && { echo "ssh: connect to host: Connection refused" >&2; exit 255; }
export LEAK=secret
exec /bin/sh -c "$last"
"""

FAKE_INFO = r"""#!/bin/sh
[ "$*" = "-n 200 -s -p" ] || exit 1
[ -e "$HERE/thaw-soon" ] && { rm "$HERE/thaw-soon"; printf 'State:          FROZEN\nPID:            77\n'; exit 0; }
[ -e "$HERE/stop-soon" ] && { rm "$HERE/stop-soon"; cat "$HERE/state"; echo 'State:          STOPPED' >"$HERE/state"; exit 0; }
cat "$HERE/state"
"""

FAKE_ATTACH = r"""#!/usr/bin/env python3
import os, sys
arguments = sys.argv[1:]
assert arguments[:3] == ["-n", "200", "--clear-env"], arguments
split = arguments.index("--")
pairs = arguments[3:split]
assert pairs[::2] == ["-v"] * (len(pairs) // 2), pairs
environment = dict(pair.split("=", 1) for pair in pairs[1::2])
environment["HERE"] = os.environ["HERE"]
if os.path.isdir(os.environ["HERE"] + "/inside-bin"):
    environment["PATH"] = os.environ["HERE"] + "/inside-bin:" + environment["PATH"]
os.execve("/bin/sh", arguments[split + 1:], environment)
"""

# The real one refuses with 255 what lxc-attach refuses with 1, and hands on the node's environment unless told not to.
FAKE_PCT = r"""#!/usr/bin/env python3
import os, sys
assert os.environ["LC_ALL"] == "C"
assert sys.argv[1:6] == ["exec", "200", "--keep-env", "0", "--"], sys.argv
os.execvpe(sys.argv[6], sys.argv[6:], {"PATH": "/usr/bin:/bin"})
"""

FAKE_SUDO = r"""#!/bin/sh
[ "$1" = -n ] || exit 2
[ -e "$HERE/no-sudo" ] && { echo "sudo: a password is required" >&2; exit 1; }
[ "$2" = -- ] && shift
shift
echo "$1" >>"$HERE/sudo-used"
exec "$@"
"""

HOSTILE = [
    "plain",
    "two  words",
    "a'b\"c`d",
    "line one\nline two\n",
    "$HOME $(id) ${PATH} \\ \\n",
    "Ünïcødé ✓ 模型",
    "-n --help; exit 3 & | > < * ? [a] {b} # !",
    "tab\tand trailing space ",
    "percent %s {braces} {0}",
]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in (("ssh", FAKE_SSH), ("lxc-info", FAKE_INFO), ("lxc-attach", FAKE_ATTACH), ("pct", FAKE_PCT), ("sudo", FAKE_SUDO)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    (tmp_path / "200.conf").touch()
    (tmp_path / "state").write_text("State:          RUNNING\nPID:            77\n")
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("HERE", str(tmp_path))
    monkeypatch.setattr(scripts, "CONFIGURATIONS", str(tmp_path))
    return tmp_path


def load(kind: Any, name: str, documented: dict[str, Any]) -> Any:
    """As the plugin loader does, which would need an installed collection."""
    C.config.initialize_plugin_configuration_definitions("connection", name, documented)
    connection = kind(PlayContext(), shell=shell_loader.get("sh"))
    connection._load_name = name
    connection.set_become_plugin(None)
    return connection


def open_connection(here: Path, **options: Any) -> Any:
    documented = {
        **yaml.safe_load(ModuleDocFragment.DOCUMENTATION)["options"],
        **yaml.safe_load(pct.DOCUMENTATION)["options"],
    }
    connection = load(pct.Connection, "blackwell.inference.pct", documented)
    variables = {"ansible_host": "10.99.0.11", "ansible_user": "root", "ansible_pct_vmid": 200}
    variables["ansible_control_path_dir"] = str(here)
    variables.update(options)
    connection.set_options(var_options=variables)
    return connection


@pytest.fixture
def connection(here: Path) -> Any:
    return open_connection(here)


@pytest.mark.parametrize("text", HOSTILE)
def test_commands_arrive_unchanged(connection: Any, text: str) -> None:
    rc, out, err = connection.exec_command(f"printf %s {shlex.quote(text)}")
    assert (rc, out, err) == (0, text.encode(), b"")


@pytest.mark.parametrize("text", HOSTILE)
def test_pipelined_input_arrives_unchanged(connection: Any, text: str) -> None:
    assert connection.exec_command("cat", in_data=text.encode() + b"\x00\xff\r\n") == (
        0,
        text.encode() + b"\x00\xff\r\n",
        b"",
    )


def test_the_environment_is_clean_and_complete(connection: Any) -> None:
    _rc, out, _err = connection.exec_command("env")
    found = dict(line.split("=", 1) for line in out.decode().splitlines())
    assert "LEAK" not in found
    assert {name: found[name] for name in scripts.ENVIRONMENT} == scripts.ENVIRONMENT


@pytest.mark.parametrize("code", [0, 1, 7, 126, 127, 137, 143, 254, 255])
def test_exit_codes_of_commands_pass(connection: Any, code: int) -> None:
    assert connection.exec_command(f"echo out; printf err >&2; exit {code}") == (code, b"out\n", b"err")


def test_a_lost_node_is_unreachable_and_names_the_container(connection: Any, here: Path) -> None:
    (here / "lost").touch()
    words = r"Container 200 .*10\.99\.0\.11.*Connection refused"
    with pytest.raises(AnsibleConnectionFailure, match=words):
        connection.exec_command("true")
    with pytest.raises(AnsibleConnectionFailure, match=words):
        connection.put_file(__file__, str(here / "x"))
    with pytest.raises(AnsibleConnectionFailure, match=words):
        connection.fetch_file(__file__, str(here / "x"))


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("STOPPED", "it is stopped.*pct start 200"),
        ("FROZEN", "it is frozen.*lxc-unfreeze -n 200"),
        ("STARTING", "state STARTING"),
        ("STOPPING", "state STOPPING"),
        ("", "does not know it.*as root"),
    ],
)
def test_a_container_that_does_not_run_is_unreachable(here: Path, state: str, words: str) -> None:
    (here / "state").write_text(f"State:          {state}\n" if state else "")
    with pytest.raises(AnsibleConnectionFailure, match=f"Container 200 on 10.99.0.11.*Found: .*{words}"):
        open_connection(here, ansible_pct_thaw_timeout=1).exec_command("true")


def test_a_container_of_another_node_is_unreachable(connection: Any, here: Path) -> None:
    (here / "200.conf").unlink()
    with pytest.raises(AnsibleConnectionFailure, match=r"no configuration of it on this node.*ansible_pct_vmid"):
        connection.exec_command("true")


@pytest.mark.parametrize(
    ("happens", "words"),
    [
        ('echo State: STOPPED >"$HERE/state"; exit 137', "it stopped during the task and is now STOPPED"),
        ('echo State: STOPPED >"$HERE/state"; exit 1', "it stopped during the task and is now STOPPED"),
        ('touch "$HERE/stop-soon"; exit 143', "it stopped during the task and is now STOPPED"),
        ('echo State: RUNNING PID: 99 >"$HERE/state"; exit 137', "it stopped during the task and is now RUNNING"),
        (': >"$HERE/state"; exit 137', "it stopped during the task and is now gone"),
    ],
)
def test_a_container_that_stops_during_the_task_is_unreachable(connection: Any, happens: str, words: str) -> None:
    with pytest.raises(AnsibleConnectionFailure, match=words):
        connection.exec_command(happens)


def test_a_short_freeze_is_waited_for(connection: Any, here: Path) -> None:
    (here / "thaw-soon").touch()
    assert connection.exec_command("echo ok")[:2] == (0, b"ok\n")


@pytest.mark.parametrize(
    ("stderr", "rest", "verdict"),
    [
        (b"", b"", None),
        (b"some text\npct-2 255\n", b"some text\npct-2 255\n", None),
        (b"some text\npct-1 255\n", b"some text", "255"),
        (b"\npct-1 state STOPPED\ndebug1: channel 0: free\n", b"debug1: channel 0: free\n", "state STOPPED"),
        (b"\npct-1 255\n\npct-1 absent\n", b"\npct-1 255\n", "absent"),
    ],
)
def test_verdicts_are_taken_out_of_standard_error(stderr: bytes, rest: bytes, verdict: str | None) -> None:
    assert scripts.split_verdict(stderr, "pct-1") == (rest, verdict)


NAMES = ["plain", "with space", "quote'\"s", "Ünï ✓", "-dash", "dollar $HOME `id`", "new\nline", "x" * 255]


@pytest.mark.parametrize("name", NAMES)
def test_files_go_both_ways(connection: Any, here: Path, name: str) -> None:
    content = bytes(range(256)) * 4096 + b"\r\n\x00"
    (here / "source").write_bytes(content)
    (here / "inside").mkdir()
    target = here / "inside" / name
    connection.put_file(str(here / "source"), str(target))
    assert target.read_bytes() == content
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert os.listdir(here / "inside") == [name]
    connection.fetch_file(str(target), str(here / "back"))
    assert (here / "back").read_bytes() == content


def test_an_empty_file_goes_both_ways(connection: Any, here: Path) -> None:
    (here / "source").touch()
    connection.put_file(str(here / "source"), str(here / "target"))
    connection.fetch_file(str(here / "target"), str(here / "back"))
    assert (here / "back").read_bytes() == b""


def test_a_link_is_written_through(connection: Any, here: Path) -> None:
    (here / "real").write_text("old")
    (here / "link").symlink_to(here / "real")
    connection.put_file(__file__, str(here / "link"))
    assert (here / "link").is_symlink()
    assert (here / "real").read_text() == Path(__file__).read_text()


@pytest.mark.parametrize(("target", "words"), [("absent/file", "No such|nonexistent|cannot create"), ("", "is a directory")])
def test_a_file_that_cannot_be_written_says_why(connection: Any, here: Path, target: str, words: str) -> None:
    with pytest.raises(AnsibleError, match=words):
        connection.put_file(__file__, str(here / target))


@pytest.mark.parametrize(("source", "words"), [("absent", "not a regular file"), ("", "not a regular file")])
def test_a_file_that_cannot_be_read_says_why(connection: Any, here: Path, source: str, words: str) -> None:
    with pytest.raises(AnsibleError, match=words):
        connection.fetch_file(str(here / source), str(here / "back"))


def test_a_missing_local_file_is_named(connection: Any, here: Path) -> None:
    with pytest.raises(AnsibleFileNotFound, match="nothing-here"):
        connection.put_file(str(here / "nothing-here"), str(here / "target"))


@pytest.mark.parametrize("direction", ["put", "fetch"])
def test_changed_content_is_noticed(connection: Any, here: Path, direction: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "bin" / "sha256sum").write_text("#!/bin/sh\nexec /usr/bin/env -i /bin/echo 0000  -\n")
    (here / "bin" / "sha256sum").chmod(0o755)
    # The stand-in container has a clean path, so the false program is put in by hand.
    script = "PUT_SCRIPT" if direction == "put" else "FETCH_SCRIPT"
    monkeypatch.setattr(scripts, script, getattr(scripts, script).replace("sha256sum", f"{here}/bin/sha256sum"))
    with pytest.raises(AnsibleError, match=r"changed the content.*SHA-256"):
        if direction == "put":
            connection.put_file(__file__, str(here / "target"))
        else:
            connection.fetch_file(__file__, str(here / "back"))


def test_the_socket_is_the_one_of_the_nodes_own_tasks(connection: Any, here: Path) -> None:
    connection.exec_command("true")
    ours = (here / "ssh-arguments").read_text().splitlines()
    parent = yaml.safe_load(ssh.DOCUMENTATION)["options"]
    parent.update(yaml.safe_load(Pipelining.DOCUMENTATION)["options"])
    node = load(ssh.Connection, "ssh", parent)
    node.set_options(
        var_options={
            "ansible_host": "10.99.0.11",
            "ansible_user": "root",
            "ansible_control_path_dir": str(here),
            "ansible_ssh_use_tty": False,
        }
    )
    node.exec_command("true")
    theirs = (here / "ssh-arguments").read_text().splitlines()
    assert [a for a in ours if a.startswith("ControlPath=")] == [a for a in theirs if a.startswith("ControlPath=")] != []
    assert ours[: len(theirs) - 1] == theirs[:-1]


def test_a_reset_starts_no_program(connection: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: Any, **_kwargs: Any) -> None:
        raise AssertionError("reset must not run ssh")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    connection.reset()


def test_no_terminal_is_asked_for(connection: Any, here: Path) -> None:
    connection.exec_command("true", sudoable=True)
    assert "-tt" not in (here / "ssh-arguments").read_text().splitlines()


def test_every_option_of_the_parent_is_documented_with_the_same_sources() -> None:
    ours = yaml.safe_load(ModuleDocFragment.DOCUMENTATION)["options"]
    parent = yaml.safe_load(ssh.DOCUMENTATION)["options"]

    def names(option: dict[str, Any]) -> dict[str, Any]:
        pick: Callable[[dict[str, str]], tuple[str, ...]] = lambda s: tuple(  # noqa: E731
            sorted(v for k, v in s.items() if k != "version_added")
        )
        return {kind: [pick(s) for s in option.get(kind, [])] for kind in ("vars", "env", "ini", "cli", "keyword")}

    assert not set(parent) - set(ours)
    for name, option in parent.items():
        assert names(ours[name]) == names(option), name
        if name != "pipelining":
            assert ours[name].get("default") == option.get("default"), name


def test_a_missing_vmid_is_named(here: Path) -> None:
    with pytest.raises(AnsibleError, match="vmid"):
        open_connection(here, ansible_pct_vmid=None)


def inside(here: Path, **programs: str) -> None:
    (here / "inside-bin").mkdir()
    for name, text in programs.items():
        (here / "inside-bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (here / "inside-bin" / name).chmod(0o755)


def test_another_user_of_the_container(here: Path) -> None:
    inside(
        here,
        getent='[ "$1 $2" = "passwd serve r" ] && echo "serve:x:996:995:,,,:/srv/serve home:/usr/sbin/nologin"',
        setpriv='echo "$1 $2 $3 $4"; shift 4; exec "$@"',
    )
    connection = open_connection(here, ansible_pct_user="serve r")
    rc, out, _err = connection.exec_command('echo "$HOME|$USER|$LOGNAME|$SHELL"; exit 3')
    assert (rc, out) == (3, b"--reuid=996 --regid=995 --init-groups --\n/srv/serve home|serve|serve|/bin/sh\n")


@pytest.mark.parametrize("name", ["nobody-here", "$(touch gone)", "a'b", "-x"])
def test_a_user_that_the_container_does_not_have(here: Path, name: str) -> None:
    with pytest.raises(AnsibleConnectionFailure, match=r"Found: no user .* in it.*ansible_pct_user"):
        open_connection(here, ansible_pct_user=name).exec_command("true")


@pytest.mark.parametrize(("user", "seen"), [(None, "root"), ("serve", "serve")])
def test_action_plugins_see_the_containers_user_and_ssh_the_nodes(here: Path, user: str | None, seen: str) -> None:
    inside(here, getent="echo serve:x:1:1::/:/bin/sh", setpriv='shift 4; exec "$@"')
    connection = open_connection(here, ansible_user="admin", ansible_pct_user=user)
    connection.exec_command("true")
    assert 'User="admin"' in (here / "ssh-arguments").read_text().splitlines()
    assert connection.get_option("remote_user") == seen


def test_sudo_on_the_node(here: Path) -> None:
    connection = open_connection(here, ansible_pct_sudo=True)
    assert connection.exec_command("cat; exit 1", in_data=b"\x00\xff") == (1, b"\x00\xff", b"")
    # Once for the command; asked again, since 1 is also what sudo itself ends with.
    assert (here / "sudo-used").read_text().split() == ["/bin/sh", "true"]
    (here / "sudo-used").unlink()
    assert connection.exec_command("exit 255")[0] == 255
    assert (here / "sudo-used").read_text().split() == ["/bin/sh"]
    (here / "no-sudo").touch()
    with pytest.raises(AnsibleConnectionFailure, match=r"Found: sudo on the node wants a password.*NOPASSWD"):
        connection.exec_command("true")


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("options", [{"ansible_pct_sudo": True}, {"ansible_pct_method": "pct-exec"}, {"ansible_pct_user": "root"}])
def test_commands_arrive_unchanged_by_every_way_in(here: Path, options: dict[str, Any], text: str) -> None:
    inside(here, setpriv='shift 4; exec "$@"')
    assert open_connection(here, **options).exec_command(f"printf %s {shlex.quote(text)}") == (0, text.encode(), b"")


def test_pct_exec_gives_the_same_environment(here: Path) -> None:
    _rc, out, _err = open_connection(here, ansible_pct_method="pct-exec").exec_command("env")
    found = dict(line.split("=", 1) for line in out.decode().splitlines())
    assert {name: value for name, value in found.items() if name not in ("PWD", "_", "SHLVL")} == scripts.ENVIRONMENT


def test_pct_exec_of_a_stopped_container_is_unreachable(here: Path) -> None:
    (here / "state").write_text("State:          STOPPED\n")
    with pytest.raises(AnsibleConnectionFailure, match="it is stopped"):
        open_connection(here, ansible_pct_method="pct-exec").exec_command("true")


def test_a_large_environment_arrives_and_a_larger_one_is_refused(connection: Any) -> None:
    value = "v" * 100_000
    assert connection.exec_command(f"BIG={value} printenv BIG") == (0, value.encode() + b"\n", b"")
    with pytest.raises(AnsibleError, match=r"Found: 15\d{4} bytes with its environment.*Wanted: at most 131071"):
        connection.exec_command(f"BIG={value}{value[:50_000]} printenv BIG")


def test_a_jump_host_is_handed_to_ssh(here: Path) -> None:
    connection = open_connection(here, ansible_ssh_common_args="-J jump.example.com")
    connection.exec_command("true")
    arguments = (here / "ssh-arguments").read_text().splitlines()
    assert arguments[arguments.index("-J") + 1] == "jump.example.com"
