# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.blackwell.inference.plugins.module_utils import _files, _health, _instances, _units
from ansible_collections.blackwell.inference.plugins.module_utils._files import FileState
from ansible_collections.blackwell.inference.plugins.module_utils._refusal import Refusal
from ansible_collections.blackwell.inference.plugins.module_utils._units import Instance, Settings
from hypothesis import given
from hypothesis import strategies as st

STACK = "/var/lib/inference/stacks/0123456789abcdef"
OTHER = "/var/lib/inference/stacks/fedcba9876543210"


def instance(index: int, **changes: Any) -> Instance:
    values: dict[str, Any] = {
        "index": index,
        "port": 30000 + index,
        "gpu": f"GPU-{index}",
        "compute_capability": "12.0",
        "args": ["--model-path", "/m"],
    }
    return Instance(**{**values, **changes})


# Text


def systemd_env_file(text: str) -> dict[str, str]:
    """What systemd's parser of environment files does with double-quoted values (src/basic/env-file.c)."""
    values = {}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        name, _separator, quoted = line.partition("=")
        assert quoted[0] == quoted[-1] == '"'
        value, escaped = "", False
        for character in quoted[1:-1]:
            if escaped:
                value += character if character in '"\\`$' else "\\" + character
                escaped = False
            elif character == "\\":
                escaped = True
            else:
                assert character != '"'
                value += character
        values[name] = value
    return values


def systemd_words(text: str) -> list[str]:
    """What systemd's splitting of an unbraced variable does (extract_first_word with EXTRACT_UNQUOTE|EXTRACT_RELAX)."""
    words: list[str] = []
    word: str | None = None
    quote, escaped = "", False
    for character in text:
        if escaped:
            word, escaped = (word or "") + character, False
        elif character == "\\":
            word, escaped = word or "", True
        elif quote:
            if character == quote:
                quote = ""
            else:
                word = (word or "") + character
        elif character in "\"'":
            word, quote = word or "", character
        elif character == " ":
            if word is not None:
                words.append(word)
            word = None
        else:
            word = (word or "") + character
    return words if word is None else [*words, word]


TRICKY = ["", " ", "a b", '"', "'", "\\", "\\\\", "$HOME", "${X}", "%n", "%%", "`id`", "$(id)", ";", "#", "=", "é", '{"a": [1]}']


@given(st.lists(st.text(st.characters(min_codepoint=32, exclude_characters="\x7f", exclude_categories=("Cs", "Cc", "Zl", "Zp")))))
def test_arguments_come_back_unchanged(args: list[str]) -> None:
    text = _units.env_file(instance(0, args=args), Settings(STACK), "")
    # Line ends of Unicode are none for systemd.
    values = systemd_env_file("\n".join(text.split("\n")))
    assert systemd_words(values["INFERENCE_ARGS"]) == args


def test_tricky_arguments_and_variables_come_back_unchanged() -> None:
    env = {f"V{number}": value for number, value in enumerate(TRICKY)}
    values = systemd_env_file(_units.env_file(instance(3, args=TRICKY, env=env), Settings(STACK), "program"))
    assert systemd_words(values["INFERENCE_ARGS"]) == TRICKY
    assert {name: values[name] for name in env} == env
    assert values["CUDA_VISIBLE_DEVICES"] == values["INFERENCE_GPU"] == "GPU-3"
    assert values["INFERENCE_PORT"] == "30003"


def test_every_change_of_a_server_changes_its_environment_file() -> None:
    def text(program: str = "p", stack: str = STACK, **changes: Any) -> str:
        return _units.env_file(instance(0, **changes), Settings(stack), program)

    changed = [
        text(),
        text("other"),
        text(stack=OTHER),
        text(port=1),
        text(gpu="GPU-9"),
        text(args=["--x"]),
        text(env={"A": "1"}),
        text(compute_capability="9.0"),
    ]
    assert len(set(changed)) == len(changed)
    assert text() == text()


@pytest.mark.parametrize(
    "line",
    [
        "User=inference",
        "NoNewPrivileges=yes",
        "ProtectSystem=strict",
        "ProtectHome=yes",
        "PrivateTmp=yes",
        "DevicePolicy=closed",
        "CapabilityBoundingSet=",
        "SystemCallFilter=@system-service",
        "KillMode=mixed",
        "TimeoutStopSec=12",
        "Restart=always",
        "StartLimitBurst=8",
        "EnvironmentFile=/etc/inference/instances/%i.env",
        "ExecStart=/opt/inference/bin/inference-serve serve $INFERENCE_ARGS",
    ],
)
def test_the_unit_is_hardened_and_bounded(line: str) -> None:
    lines = _units.unit(Settings(STACK, stop_timeout=12)).splitlines()
    assert line in lines
    assert not [text for text in lines if text.startswith("MemoryDenyWriteExecute")]


def test_the_unit_does_not_depend_on_the_stack() -> None:
    assert _units.unit(Settings(STACK)) == _units.unit(Settings(OTHER))
    assert _units.script(Settings(STACK)) == _units.script(Settings(OTHER))


# The start script, run for real


class Container:
    """The part of a service container that the script looks at, in a folder."""

    def __init__(self, root: Path) -> None:
        self.stack = root / "stacks" / "0123456789abcdef"
        (self.stack / "bin").mkdir(parents=True)
        python = self.stack / "bin" / "python"
        python.write_text('#!/bin/sh\necho "$0"; for word in "$@"; do echo "[$word]"; done; env\n')
        python.chmod(0o755)
        self.settings = Settings(
            str(self.stack),
            state=str(root / "state"),
            instances=str(root / "etc"),
            cache=str(root / "cache"),
            driver_file=str(root / "version"),
            script=str(root / "serve"),
            runtime=str(root / "run"),
            unit_file=str(root / "inference@.service"),
        )
        for folder in ("state", "etc", "run/0"):
            (root / folder).mkdir(parents=True)
        (root / "state" / "current").symlink_to(self.stack)
        self.version("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.126.09  Release Build  (x@10.0.0.1)\n")
        self.proof = root / "state" / "proofs" / "0123456789abcdef" / "GPU-0-580.126.09.json"
        self.proof.parent.mkdir(parents=True)
        self.proof.write_text("{}")
        self.text = _units.env_file(instance(0), self.settings, "")
        (root / "etc" / "0.env").write_text(self.text)

    def version(self, text: str) -> None:
        Path(self.settings.driver_file).write_text(text)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environ = {**systemd_env_file(self.text), "RUNTIME_DIRECTORY": f"{self.settings.runtime}/0", "PATH": os.environ["PATH"]}
        command = ["sh", "-c", _units.script(self.settings), "serve", *arguments]
        return subprocess.run(command, env=environ, capture_output=True, text=True, check=False)


@pytest.fixture
def container(tmp_path: Path) -> Container:
    return Container(tmp_path)


def test_a_proven_server_is_started_on_the_resolved_stack(container: Container) -> None:
    assert container.run("check").returncode == 0
    done = container.run("serve", "--a", "b c", "$X", "")
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert lines[0] == f"{container.stack}/bin/python"
    assert lines[1:11] == [
        f"[{word}]" for word in ("-m", "sglang.launch_server", "--a", "b c", "$X", "", "--host", "127.0.0.1", "--port", "30000")
    ]
    cache = f"{container.settings.cache}/jit/0123456789abcdef/12.0"
    assert f"FLASHINFER_WORKSPACE_BASE={cache}" in lines and f"HOME={cache}" in lines and os.path.isdir(cache)
    assert f"CUDA_HOME={container.stack}/cuda" in lines
    path = next(line for line in lines if line.startswith("PATH="))
    assert path.startswith(f"PATH={container.stack}/bin:{container.stack}/cuda/bin:")
    digest = hashlib.sha256(container.text.encode()).hexdigest()
    assert _instances.read_started(container.settings, 0) == (digest, str(container.stack))


@pytest.mark.parametrize(
    "version",
    [
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.126.09  Fri Jan 10 14:00:00 UTC 2026\nGCC version: 14.2.0\n",
        "GCC version: 14.2.0\nNVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.126.09  Release Build\n",
    ],
)
def test_the_driver_is_read_from_both_flavours(container: Container, version: str) -> None:
    container.version(version)
    assert container.run("check").returncode == 0


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda c: c.proof.unlink(), "no proof of stack 0123456789abcdef on GPU-0 with driver 580.126.09"),
        (lambda c: c.version("NVRM version: X  580.159.04  Release\n"), "with driver 580.159.04"),
        (lambda c: os.unlink(c.settings.driver_file), "no loaded NVIDIA driver"),
        (lambda c: (c.stack / "bin" / "python").unlink(), "no stack behind"),
        (lambda c: os.unlink(f"{c.settings.state}/current"), "no stack behind"),
    ],
)
def test_an_unproven_server_is_refused_with_the_reason(container: Container, harm: Any, said: str) -> None:
    harm(container)
    done = container.run("check")
    assert done.returncode == 78 and said in done.stderr and "do: " in done.stderr


# Validation


@pytest.mark.parametrize(
    ("listed", "said"),
    [
        ([instance(0), instance(0, port=1030, gpu="GPU-9")], "the index 0"),
        ([instance(0), instance(1, port=30000)], "the port 30000"),
        ([instance(0), instance(1, gpu="GPU-0")], "the GPU GPU-0"),
        ([instance(-1)], "index -1"),
        ([instance(0, port=80)], "port 80"),
        ([instance(0, gpu="0")], "GPU '0'"),
        ([instance(0, gpu='GPU-1"\nUser=root')], "GPU"),
        ([instance(0, compute_capability="sm_120")], "sm_120"),
        ([instance(0, args=["a\nb"])], "control characters"),
        ([instance(0, env={"A": "a\x00b"})], "control characters"),
        ([instance(0, env={"A B": "x"})], "the variable 'A B'"),
        ([instance(0, env={"INFERENCE_ARGS": "x"})], "the variable"),
        ([instance(0, env={"CUDA_VISIBLE_DEVICES": "x"})], "the variable"),
    ],
)
def test_lists_that_cannot_be_right(listed: list[Instance], said: str) -> None:
    with pytest.raises(Refusal) as refused:
        _instances.validate(listed)
    assert said in str(refused.value)


def test_a_right_list() -> None:
    _instances.validate([instance(0), instance(1)])


# Decisions

SETTINGS = Settings(STACK)
THREE = [instance(0), instance(1), instance(2)]
WANTED = _instances.wanted_files(THREE, SETTINGS)
RUNNING = {"ActiveState": "active", "UnitFileState": "enabled", "NeedDaemonReload": "no"}


def digest_of(index: int) -> str:
    return hashlib.sha256(WANTED[2 + index].content.encode()).hexdigest()


def converged() -> _instances.Found:
    return _instances.Found(
        files={state.path: state for state in WANTED},
        units={one.index: dict(RUNNING) for one in THREE},
        started={one.index: (digest_of(one.index), STACK) for one in THREE},
    )


def alter_file(index: int) -> Any:
    def alter(found: _instances.Found) -> None:
        state = WANTED[index]
        found.files[state.path] = FileState(state.path, state.content + "X=1\n", state.mode, state.owner, state.group)

    return alter


def alter_unit(index: int, **properties: str) -> Any:
    return lambda found: found.units[index].update(properties)


def alter_started(index: int, value: tuple[str, str] | None) -> Any:
    return lambda found: found.started.update({index: value})


@pytest.mark.parametrize(
    ("alter", "restart", "enable", "reload", "reason"),
    [
        (lambda _found: None, [], [], False, ""),
        (alter_file(0), [0, 1, 2], [], True, "/etc/systemd/system/inference@.service differs"),
        (alter_file(1), [0, 1, 2], [], False, "/opt/inference/bin/inference-serve differs"),
        (alter_file(3), [1], [], False, "/etc/inference/instances/1.env differs"),
        (lambda found: found.files.update({WANTED[2].path: None}), [0], [], False, "0.env differs"),
        (alter_unit(1, ActiveState="failed"), [1], [], False, "it is failed"),
        (alter_unit(1, ActiveState="inactive"), [1], [], False, "it is inactive"),
        (alter_unit(1, ActiveState="deactivating"), [1], [], False, "it is deactivating"),
        # systemd starts it again by itself, with the files as they are.
        (alter_unit(1, ActiveState="activating"), [], [], False, ""),
        (alter_unit(1, UnitFileState="disabled"), [], [1], False, "it is not enabled"),
        (alter_unit(1, UnitFileState=""), [], [1], False, "it is not enabled"),
        (alter_unit(1, NeedDaemonReload="yes"), [], [], True, ""),
        (alter_started(2, ("0" * 64, STACK)), [2], [], False, "it runs with an earlier configuration"),
        (alter_started(2, (digest_of(2), OTHER)), [2], [], False, f"it runs on the stack {OTHER}"),
        (alter_started(2, None), [], [], False, ""),
    ],
)
def test_only_what_differs_is_touched(alter: Any, restart: list[int], enable: list[int], reload: bool, reason: str) -> None:
    found = converged()
    alter(found)
    steps = _instances.decide(found, WANTED, THREE, SETTINGS)
    assert (steps.restart, steps.enable, steps.reload) == (restart, enable, reload)
    assert bool(steps) == bool(restart or enable or reload)
    for index in range(3):
        touched = index in restart or index in enable
        assert bool(steps.reasons[index]) is touched
        assert not touched or reason in "; ".join(steps.reasons[index])
    assert len(_instances.diff(found, steps, THREE)) >= (1 if restart or enable else 0)


def test_a_new_container_gets_everything() -> None:
    found = _instances.Found({state.path: None for state in WANTED}, {}, {})
    steps = _instances.decide(found, WANTED, THREE, SETTINGS)
    assert (steps.write, steps.enable, steps.restart, steps.reload) == (WANTED, [0, 1, 2], [0, 1, 2], True)


def test_values_of_secrets_are_in_no_diff() -> None:
    secret = instance(0, env={"HF_TOKEN": "s3cret", "PLAIN": "shown"})
    wanted = _instances.wanted_files([secret], SETTINGS)
    found = _instances.Found({state.path: None for state in wanted}, {}, {})
    shown = str(_instances.diff(found, _instances.decide(found, wanted, [secret], SETTINGS), [secret]))
    assert "s3cret" not in shown and "HF_TOKEN=(not shown)" in shown and "shown" in shown
    assert wanted[2].mode == 0o640 and wanted[2].group == "inference"


# systemd, replayed

SHOW = """Id=inference@0.service
ActiveState=active
SubState=running
UnitFileState=enabled
NeedDaemonReload=no
MainPID=42
NRestarts=0
Result=success

Id=inference@1.service
ActiveState=inactive
SubState=dead
UnitFileState=
NeedDaemonReload=no
MainPID=0
NRestarts=0
Result=success
"""
LIST = """inference@0.service loaded active running Inference server 0
inference@7.service loaded failed failed   Inference server 7
inference@x.y.service loaded active running Inference server x.y
"""


class Systemd:
    """Answers like systemctl, and remembers what it was asked."""

    def __init__(self, **answers: tuple[int, str, str]) -> None:
        self.answers = answers
        self.calls: list[list[str]] = []

    def __call__(self, argv: list[str]) -> tuple[int, str, str]:
        self.calls.append(argv)
        return self.answers.get(argv[1].replace("-", "_"), (0, "", ""))


def test_all_units_are_asked_at_once() -> None:
    systemd = Systemd(show=(0, SHOW, ""))
    units = _instances.show(systemd, THREE[:2])
    assert len(systemd.calls) == 1
    assert (units[0]["MainPID"], units[1]["ActiveState"], units[1]["UnitFileState"]) == ("42", "inactive", "")
    assert _instances.show(systemd, []) == {} and len(systemd.calls) == 1


@pytest.mark.parametrize("text", ["", "\n\n\n", "nonsense", "Id=x\n", "=\n\n=x"])
def test_odd_answers_of_systemctl_are_no_crash(text: str) -> None:
    assert _instances.show(Systemd(show=(0, text, "")), THREE[:1]) == {0: {}}


def test_without_systemd_there_is_one_message() -> None:
    with pytest.raises(Refusal, match="booted with systemd"):
        _instances.show(Systemd(show=(1, "", "System has not been booted with systemd as init system")), THREE)


def test_surplus_is_found_wherever_it_shows(tmp_path: Path) -> None:
    settings = Settings(STACK, instances=str(tmp_path / "etc"))
    (tmp_path / "etc").mkdir()
    for name in ("0.env", "8.env", "notes.txt", ".9.env.1.tmp"):
        (tmp_path / "etc" / name).write_text("")
    (tmp_path / "wants").mkdir()
    for name in ("inference@9.service", "ssh.service"):
        (tmp_path / "wants" / name).write_text("")
    systemd = Systemd(list_units=(0, LIST, ""))
    assert _instances.surplus(systemd, THREE, settings, str(tmp_path / "wants")) == ["7", "8", "9", "x.y"]


def local(root: Path) -> tuple[Settings, list[FileState]]:
    """Settings below a folder, with files that the test's own user may own."""
    settings = Settings(
        STACK,
        instances=str(root / "etc"),
        script=str(root / "serve"),
        unit_file=str(root / "inference@.service"),
        runtime=str(root / "run"),
    )
    own = _files.FileState("", "")
    (root / "probe").write_text("")
    probe = _files.read(str(root / "probe")) or own
    wanted = [
        FileState(state.path, state.content, state.mode, probe.owner, probe.group) for state in _instances.wanted_files(THREE, settings)
    ]
    return settings, wanted


def test_steps_are_done_in_order_and_nothing_is_left_to_do(tmp_path: Path) -> None:
    settings, wanted = local(tmp_path)
    systemd = Systemd(show=(0, "", ""))
    found = _instances.gather(systemd, THREE, settings, wanted)
    found.surplus = ["7"]
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "7.env").write_text("")
    systemd.calls.clear()
    _instances.apply(systemd, _instances.decide(found, wanted, THREE, settings), THREE, settings)
    units = [one.unit for one in THREE]
    assert systemd.calls == [
        ["systemctl", "disable", "--now", "inference@7.service"],
        ["systemctl", "daemon-reload"],
        ["systemctl", "enable", *units],
        ["systemctl", "reset-failed", *units],
        ["systemctl", "restart", *units],
    ]
    assert sorted(os.listdir(tmp_path / "etc")) == ["0.env", "1.env", "2.env"]
    again = _instances.gather(systemd, THREE, settings, wanted)
    assert _instances.decide(again, wanted, THREE, settings).write == []


@pytest.mark.parametrize("step", range(5))
def test_a_run_cut_off_at_any_file_is_completed_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    settings, wanted = local(tmp_path)
    systemd = Systemd()
    written: list[str] = []
    write = _files.write

    def cut(state: FileState) -> None:
        if len(written) == step:
            raise KeyboardInterrupt
        written.append(state.path)
        write(state)

    monkeypatch.setattr(_files, "write", cut)
    with pytest.raises(KeyboardInterrupt):
        found = _instances.gather(systemd, THREE, settings, wanted)
        _instances.apply(systemd, _instances.decide(found, wanted, THREE, settings), THREE, settings)
    monkeypatch.undo()
    # The servers still run with what they were started with.
    found = _instances.gather(systemd, THREE, settings, wanted)
    found.units = {one.index: dict(RUNNING) for one in THREE}
    found.started = {one.index: ("0" * 64, STACK) for one in THREE}
    steps = _instances.decide(found, wanted, THREE, settings)
    assert steps.restart == [0, 1, 2] and [state.path for state in steps.write] == [
        state.path for state in wanted if state.path not in written
    ]


def test_a_refused_enable_is_told(tmp_path: Path) -> None:
    settings, wanted = local(tmp_path)
    systemd = Systemd(enable=(1, "", "Failed to enable unit: Unit inference@0.service is masked"))
    found = _instances.gather(Systemd(), THREE, settings, wanted)
    with pytest.raises(Refusal, match="is masked"):
        _instances.apply(systemd, _instances.decide(found, wanted, THREE, settings), THREE, settings)


@pytest.mark.parametrize("text", ["", "x", "\n", "a" * 9000, "\xff"])
def test_a_damaged_start_record_says_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "0").mkdir()
    (tmp_path / "0" / "started").write_bytes(text.encode("latin-1"))
    assert _instances.read_started(Settings(STACK, runtime=str(tmp_path)), 0) is None


# Health


class Servers:
    """Servers whose answers and unit states follow a script, one step a second."""

    def __init__(self, answers: dict[int, list[str]], states: dict[int, list[str]], restarts: dict[int, list[int]]) -> None:
        self.answers, self.states, self.restarts = answers, states, restarts
        self.now = 0.0

    def at(self, script: list[Any]) -> Any:
        return script[min(int(self.now), len(script) - 1)]

    def get(self, url: str) -> str:
        return str(self.at(self.answers[int(url.split(":")[2].split("/")[0]) - 30000]))

    def run(self, argv: list[str]) -> tuple[int, str, str]:
        if argv[0] == "journalctl":
            return 0, "last words, api_key='abc', password: xyz, token usage: 0.5, s3cret", ""
        blocks = []
        for name in argv[2:-1]:
            index = int(name.split("@")[1].split(".")[0])
            state = self.at(self.states.get(index, ["active"]))
            restarts = self.at(self.restarts.get(index, [0]))
            blocks.append(f"Id={name}\nActiveState={state}\nSubState=sub\nResult=res\nNRestarts={restarts}\n")
        return 0, "\n".join(blocks), ""

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def wait(self, count: int, timeout: float = 10) -> dict[int, _health.Health]:
        return _health.await_all(self.run, THREE[:count], "127.0.0.1", timeout, self.get, lambda: self.now, self.sleep)


def test_all_are_awaited_at_once() -> None:
    servers = Servers({0: ["200"], 1: ["503", "503", "200"], 2: ["no answer", "503", "503", "200"]}, {}, {})
    health = servers.wait(3)
    assert all(one.ok for one in health.values()) and servers.now == 3


def test_one_that_never_gets_healthy_costs_the_time_and_is_told() -> None:
    servers = Servers({0: ["200"], 1: ["503"]}, {}, {})
    health = servers.wait(2, timeout=5)
    assert health[0].ok and not health[1].ok
    assert health[1].detail == "active (sub, res), /health: 503 after 5 s" and servers.now == 5


def test_a_failed_unit_is_not_awaited() -> None:
    servers = Servers({0: ["no answer"]}, {0: ["activating", "failed"]}, {})
    assert not servers.wait(1, timeout=900)[0].ok and servers.now == 1


def test_a_unit_that_keeps_failing_is_not_awaited() -> None:
    servers = Servers({0: ["no answer"]}, {0: ["activating"]}, {0: [5, 6, 7, 8]})
    health = servers.wait(1, timeout=900)
    assert "3 restarts" in health[0].detail and servers.now == 3


def test_an_answer_from_somebody_else_on_the_port_does_not_count() -> None:
    servers = Servers({0: ["200"]}, {0: ["activating", "activating", "active"]}, {})
    assert servers.wait(1)[0].ok and servers.now == 2


def test_the_message_names_each_one_with_its_last_lines_and_no_secret() -> None:
    servers = Servers({}, {}, {})
    listed = [instance(0), instance(1, env={"HF_TOKEN": "s3cret"})]
    health = {0: _health.Health(True, "200"), 1: _health.Health(False, "failed (failed, exit-code)")}
    text = _health.message(servers.run, listed, health, 0)
    assert "1 of 2 inference servers" in text and "inference@1.service (port 30001, GPU-1)" in text
    assert "last words" in text and "token usage: 0.5" in text
    assert not [secret for secret in ("abc", "xyz", "s3cret") if secret in text]


def test_no_answer_is_no_exception() -> None:
    assert _health.http_status("http://127.0.0.1:9/health").startswith("no answer")
