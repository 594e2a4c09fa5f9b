# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The modules of a stack one after the other, as a play calls them, each in check mode first."""

from __future__ import annotations

import getpass
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.blackwell.inference.plugins.module_utils import _account, _durable, _stack, _uv
from ansible_collections.blackwell.inference.plugins.module_utils._lock import Lock
from ansible_collections.blackwell.inference.plugins.module_utils._refusal import Refusal
from ansible_collections.blackwell.inference.plugins.modules import (
    locked_environment,
    stack_build,
    stack_switch,
    stack_verify,
    wheelhouse,
)
from ansible_collections.blackwell.inference.tests.unit.plugins.module_utils import wheel_kit
from ansible_collections.blackwell.inference.tests.unit.plugins.module_utils.elf_kit import fat_elf
from ansible_collections.blackwell.inference.tests.unit.plugins.module_utils.index_kit import Index

RUN = _uv.runner()
ENGINE = b"""import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--model-path")
parser.add_argument("--port")
if __name__ == "__main__":
    parser.parse_args()
"""
GPU = {"uuid": "GPU-1", "compute_capability": "12.0", "name": "a key that nobody asks for"}


class Module:
    """What reconcile() uses of AnsibleModule."""

    def __init__(self, check_mode: bool = False, **params: Any) -> None:
        self.params = params
        self.check_mode = check_mode

    def run_command(self, argv: list[str]) -> tuple[int, str, str]:
        raise AssertionError(f"nothing needs {argv}")


class Play:
    """One node and one container in a folder."""

    def __init__(self, root: Path, index: Index) -> None:
        self.store = root / "store"
        self.state = root / "state"
        self.index = index
        self.made = root / "made"
        self.uv_lock = wheel_kit.lock_of([wheel_kit.uv_wheel(self.made)], python="any").text()

    def lock(self, kernel: bytes) -> Lock:
        requirements = [
            wheel_kit.write_wheel(self.made, "torch", "2.14.1", {"torch/lib/libtorch_cuda.so": fat_elf(("sm_90", "sm_120"))}),
            wheel_kit.write_wheel(self.made, "sglang-kernel", "0.4.10", {"sgl_kernel/common_ops.abi3.so": kernel}),
            wheel_kit.write_wheel(self.made, "sglang", "0.5.23", {"sglang/__init__.py": b"", "sglang/launch_server.py": ENGINE}),
        ]
        return wheel_kit.lock_of(requirements, wheel_kit.toolkit_wheels(self.made))

    def fetch(self, lock: Lock, check_mode: bool = False) -> dict[str, Any]:
        self.index.files = {path.name: path.read_bytes() for path in self.made.iterdir()}
        params = {
            "path": str(self.store / "wheels"),
            "lock": lock.text(),
            "locks": [self.uv_lock],
            "files": [],
            "extra": [],
            "index_url": f"{self.index.url}/simple/",
            "threads": 2,
            "retries": 1,
            "timeout": 5,
        }
        return wheelhouse.reconcile(params, check_mode)

    def build(self, lock: Lock, check_mode: bool = False) -> dict[str, Any]:
        params = {
            "lock": lock.text(),
            "uv_lock": self.uv_lock,
            "store": str(self.store),
            "wheels": None,
            "python": sys.executable,
            "wait": 1,
        }
        return stack_build.reconcile(params, check_mode, RUN)

    def verify(self, path: str, check_mode: bool = False, **changes: Any) -> dict[str, Any]:
        params = {
            "path": path,
            "gpus": [GPU],
            "driver_version": "580.126.09",
            "mode": "static",
            "exempt": [],
            "flags": ["--model-path"],
            "state": str(self.state),
            "user": getpass.getuser(),
            "timeout": 60,
        }
        module: Any = Module(check_mode, **{**params, **changes})
        return stack_verify.reconcile(module)

    def prepared(self, kernel: bytes) -> str:
        lock = self.lock(kernel)
        self.fetch(lock)
        return str(self.build(lock)["path"])


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Play]:
    monkeypatch.setattr(_uv, "BIN", str(tmp_path / "bin"))
    index = Index()
    yield Play(tmp_path, index)
    index.server.shutdown()
    index.server.server_close()


def files_below(root: Path) -> list[str]:
    return sorted(str(path) for path in root.rglob("*")) if root.exists() else []


RIGHT = fat_elf(("sm_90a", "sm_120a"))
WRONG = fat_elf(("sm_90a", "sm_100a"))


def test_from_index_to_proof_and_nothing_the_second_time(play: Play, tmp_path: Path) -> None:
    lock = play.lock(RIGHT)
    fetched = play.fetch(lock, check_mode=True)
    assert fetched["msg"].startswith("would download 6 files, ") and not play.store.exists()
    assert play.fetch(lock)["fetched"] == fetched["fetched"]
    assert not play.fetch(lock)["changed"] and not play.fetch(lock, check_mode=True)["changed"]

    before = files_below(tmp_path)
    predicted = play.build(lock, check_mode=True)
    assert predicted["changed"] and files_below(tmp_path) == before
    assert play.build(lock) == predicted
    assert not play.build(lock)["changed"] and not play.build(lock, check_mode=True)["changed"]

    path = predicted["path"]
    before = files_below(tmp_path)
    assert play.verify(path, check_mode=True)["changed"] and files_below(tmp_path) == before
    proven = play.verify(path)
    assert proven["ok"] and proven["changed"] and proven["proven"] == ["GPU-1"], proven["failures"]
    again = play.verify(path)
    assert again["ok"] and not again["changed"] and again["checks"] == proven["checks"]

    switch = {"path": path, "state": str(play.state)}
    assert stack_switch.reconcile(switch, True)["changed"] and not (play.state / "current").exists()
    assert stack_switch.reconcile(switch, False)["changed"]
    assert not stack_switch.reconcile(switch, False)["changed"]
    assert os.readlink(play.state / "current") == path


def test_a_wheel_without_code_for_the_gpu_is_found_by_the_scanner_alone(play: Play) -> None:
    """Its metadata, its hash and its import are right; only its code is for other GPUs."""
    result = play.verify(play.prepared(WRONG))
    assert [check["name"] for check in result["failures"]] == ["gpu_code 12.0", "gpu_code_present 12.0"]
    assert result["failures"][0]["found"] == (
        "sgl_kernel/common_ops.abi3.so has no code for 12.0 in 1 of 1 units (it holds sm_100a, sm_90a)"
    )
    assert not play.state.exists()


def test_an_exempt_file_needs_no_code(play: Play) -> None:
    path = play.prepared(RIGHT)
    other = {"file": "sgl_kernel/common_ops*", "because": "never loaded on 12.0", "source": "test"}
    gpu = {**GPU, "compute_capability": "10.0"}
    names = [check["name"] for check in play.verify(path, gpus=[gpu], exempt=[other])["failures"]]
    assert "gpu_code 10.0" in names
    torch = {"file": "torch/*", "because": "as above", "source": "test"}
    names = [check["name"] for check in play.verify(path, gpus=[gpu], exempt=[other, torch])["failures"]]
    assert "gpu_code 10.0" not in names


def test_another_driver_or_flag_is_proven_again(play: Play) -> None:
    path = play.prepared(RIGHT)
    assert play.verify(path)["changed"]
    assert play.verify(path, driver_version="580.159.04")["changed"]
    assert play.verify(path, flags=["--model-path", "--port"])["changed"]
    assert not play.verify(path, flags=["--port", "--model-path"])["changed"]
    assert [check["name"] for check in play.verify(path, flags=["--mode"])["failures"]] == ["engine_flags"]


def test_what_is_no_stack_cannot_be_proven(play: Play, tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="no stack"):
        play.verify(str(tmp_path / "0123456789abcdef"))
    predicted = play.verify(str(tmp_path / "0123456789abcdef"), check_mode=True)
    assert predicted["ok"] is None and predicted["changed"]


def test_the_service_user_is_made_when_it_is_absent(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    path = play.prepared(RIGHT)
    made: list[str] = []
    monkeypatch.setattr(_account, "exists", lambda _name: bool(made))
    monkeypatch.setattr(_account, "create", lambda name, _run: made.append(name))
    assert play.verify(path, check_mode=True)["changed"] and made == []
    assert play.verify(path)["changed"] and made == [getpass.getuser()]
    assert not play.verify(path)["changed"]


def test_unfinished_stacks_are_removed_and_predicted(play: Play) -> None:
    path = play.prepared(RIGHT)
    broken = play.store / "stacks" / "fedcba9876543210"
    broken.mkdir()
    lock = play.lock(RIGHT)
    assert play.build(lock, check_mode=True)["removed"] == [broken.name] and broken.exists()
    result = play.build(lock)
    assert (result["changed"], result["removed"], broken.exists()) == (True, [broken.name], False)
    assert _stack.problem(path) is None


def test_a_damaged_stack_is_built_again(play: Play) -> None:
    path = play.prepared(RIGHT)
    os.unlink(f"{path}/pyvenv.cfg")
    assert [check["name"] for check in play.verify(path)["failures"]][:1] == ["manifest"]
    lock = play.lock(RIGHT)
    assert play.build(lock, check_mode=True)["changed"]
    assert play.build(lock)["changed"] and _stack.problem(path) is None
    assert play.verify(path)["ok"]


def test_a_stack_of_another_build_in_progress_is_waited_for(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = play.lock(RIGHT)
    play.fetch(lock)
    (play.store / "stacks").mkdir()
    with _durable.exclusive(str(play.store / "stacks" / ".lock"), 0), pytest.raises(Refusal, match="another run"):
        play.build(lock)
    assert play.build(lock)["changed"]


def test_a_locked_environment_once(play: Play, tmp_path: Path) -> None:
    lock = play.lock(RIGHT)
    play.fetch(lock)
    params = {
        "path": str(tmp_path / "opt" / "env"),
        "lock": lock.text(),
        "uv_lock": play.uv_lock,
        "wheels": str(play.store / "wheels"),
        "python": sys.executable,
    }
    assert locked_environment.reconcile(params, True, RUN)["changed"] and not (tmp_path / "opt").exists()
    assert locked_environment.reconcile(params, False, RUN)["changed"]
    assert not locked_environment.reconcile(params, False, RUN)["changed"]
    assert (tmp_path / "opt" / "env" / "bin" / "python").exists()


def test_a_locked_environment_that_lost_a_file_is_made_again(play: Play, tmp_path: Path) -> None:
    lock = play.lock(RIGHT)
    play.fetch(lock)
    params = {
        "path": str(tmp_path / "env"),
        "lock": lock.text(),
        "uv_lock": play.uv_lock,
        "wheels": str(play.store / "wheels"),
        "python": sys.executable,
    }
    assert locked_environment.reconcile(params, False, RUN)["changed"]
    (lost,) = (tmp_path / "env" / "lib").glob("python*/site-packages/sglang/launch_server.py")
    lost.unlink()
    assert locked_environment.reconcile(params, True, RUN)["changed"] and not lost.exists()
    assert locked_environment.reconcile(params, False, RUN)["changed"] and lost.exists()
    assert not locked_environment.reconcile(params, False, RUN)["changed"]


def test_a_fetched_wheel_that_is_truncated_later_is_fetched_again(play: Play) -> None:
    lock = play.lock(RIGHT)
    play.fetch(lock)
    wheel = play.store / "wheels" / lock.requirements[0].filename
    os.truncate(wheel, 10)
    assert play.fetch(lock, check_mode=True)["fetched"] == [wheel.name] and wheel.stat().st_size == 10
    assert play.fetch(lock)["fetched"] == [wheel.name]
    assert wheel.stat().st_size == lock.requirements[0].size


def test_a_disk_that_is_too_small_is_told_before_the_first_byte(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = play.lock(RIGHT)
    monkeypatch.setattr(_durable, "free_bytes", lambda _path: 1000)
    for check_mode in (True, False):
        with pytest.raises(Refusal, match="1000 bytes free"):
            play.fetch(lock, check_mode)
    assert play.index.requests == []


# As Ansible starts them

PACKAGE = "ansible_collections.blackwell.inference.plugins.modules"


def started(name: str, **params: Any) -> dict[str, Any]:
    arguments = json.dumps({"ANSIBLE_MODULE_ARGS": params})
    command = [sys.executable, "-m", f"{PACKAGE}.{name}", arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stdout + done.stderr
    return dict(json.loads(done.stdout))


EDITED = "# blackwell.inference lock 1\n# python 3.13\n# platform any\ntorch>=2\n"


@pytest.mark.parametrize(
    ("name", "params", "said"),
    [
        ("wheelhouse", {"lock": EDITED}, "line 4 of the lock"),
        ("wheelhouse", {"path": "/proc/none", "lock": ""}, "The wheelhouse: found"),
        ("locked_environment", {"path": "/nonexistent", "lock": EDITED, "uv_lock": ""}, "line 4 of the lock"),
        ("stack_build", {"lock": EDITED, "uv_lock": ""}, "line 4 of the lock"),
        ("stack_build", {"lock": "", "uv_lock": ""}, "line 1 of the lock"),
        ("stack_switch", {"path": "/nonexistent"}, "no stack"),
        ("stack_verify", {"path": "/nonexistent", "gpus": [], "driver_version": "1.2"}, "no stack"),
        ("stack_verify", {"path": "/x", "gpus": [], "driver_version": "1.2", "mode": "dynamic"}, "must be one of: static"),
        ("inference_instances", {"instances": [{"index": 0}], "stack": "/x"}, "missing required arguments"),
        (
            "inference_instances",
            {
                "instances": [{"index": 0, "port": 80, "gpu": "GPU-1", "compute_capability": "12.0"}],
                "stack": "/x",
            },
            "a port from 1024",
        ),
    ],
)
def test_bad_input_is_one_message(name: str, params: dict[str, Any], said: str) -> None:
    result = started(name, **params)
    assert result["failed"] and said in result["msg"]
