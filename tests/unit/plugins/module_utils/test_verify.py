# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import os
import pwd
import stat
import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.blackwell.inference.plugins.module_utils import _account, _proof, _verify
from ansible_collections.blackwell.inference.plugins.module_utils._lock import Lock, Requirement
from ansible_collections.blackwell.inference.plugins.module_utils._refusal import Refusal
from ansible_collections.blackwell.inference.plugins.module_utils._verify import HelpOutput

LOCK = Lock(
    "3.13",
    "x86_64-manylinux_2_28",
    None,
    None,
    [
        Requirement("sglang", "0.5.23", "a" * 64, "sglang-0.5.23-py3-none-any.whl", 1),
        Requirement("sglang-kernel", "0.4.10", "b" * 64, "sglang_kernel-0.4.10-py3-none-any.whl", 1),
        Requirement("torch", "2.14.1", "c" * 64, "torch-2.14.1-py3-none-any.whl", 1),
    ],
    [Requirement("nvidia-cuda-nvcc", "13.0.88", "d" * 64, "nvidia_cuda_nvcc-13.0.88-py3-none-any.whl", 1)],
)
INSTALLED = {"sglang": "0.5.23", "sglang-kernel": "0.4.10", "torch": "2.14.1"}
HELP = HelpOutput(0, "usage: launch_server [-h] [--model-path M]\n  --port PORT\n  --tp-size, --tensor-parallel-size N\n")


def entry(units: int = 2, cuda: int | None = 13, problem: str | None = None, **code: int) -> dict[str, Any]:
    return {
        "code": code,
        "units": units,
        "sets": [{"archs": list(code), "units": units}] if code else [],
        "cuda_major": cuda,
        "needed": [],
        "problem": problem,
    }


CODE = {
    "torch/lib/libtorch_cuda.so": entry(sm_90=2, sm_120=2),
    "sgl_kernel/sm100/common_ops.abi3.so": entry(sm_90a=2, sm_120a=2),
}


def evidence(**changes: Any) -> _verify.Evidence:
    values: dict[str, Any] = {
        "lock": LOCK,
        "problem": None,
        "installed": INSTALLED,
        "code": CODE,
        "help": HELP,
        "exempt": [],
    }
    return _verify.Evidence(**{**values, **changes})


def failing(found: _verify.Evidence, capability: str = "12.0", flags: tuple[str, ...] = ("--port",)) -> dict[str, str]:
    """Names of the failed checks, each with its message."""
    checks = _verify.run_checks(found, [capability], flags)
    for check in checks:
        assert check["found"] and check["wanted"] and bool(check["remedy"]) != check["ok"]
    failures = [check for check in checks if not check["ok"]]
    text = _verify.message("/s", failures)
    assert all(f"- {check['name']}: found {check['found']}; wanted" in text for check in failures)
    return {check["name"]: check["found"] for check in failures}


def test_a_right_stack_passes_every_check() -> None:
    assert failing(evidence()) == {}
    assert [check["name"] for check in _verify.run_checks(evidence(), ["12.0"], [])] == [
        "manifest",
        "distributions",
        "cuda_major",
        "gpu_code 12.0",
        "gpu_code_present 12.0",
        "engine_help",
        "engine_flags",
    ]


KERNEL = "sgl_kernel/sm100/common_ops.abi3.so"
FLASH = "sgl_kernel/flash_ops.abi3.so"
MORE = {**CODE, FLASH: entry(sm_90a=2)}
TORCH = "torch/lib/libtorch_cuda.so"


@pytest.mark.parametrize(
    ("changes", "failed"),
    [
        ({"problem": "x is absent"}, {"manifest": "x is absent"}),
        (
            {"installed": {**INSTALLED, "torch": "2.15.0"}},
            {"distributions": "torch 2.15.0 (lock: 2.14.1)"},
        ),
        ({"installed": {**INSTALLED, "left": "1"}}, {"distributions": "left 1 (lock: not named)"}),
        (
            {"installed": {"sglang": "0.5.23", "torch": "2.14.1"}},
            {"distributions": "sglang-kernel absent (lock: 0.4.10)"},
        ),
        (
            {"code": {**CODE, "x/lib.so": entry(cuda=12, sm_120=2)}},
            {"cuda_major": f"CUDA 12 in x/lib.so; CUDA 13 in {KERNEL}; {TORCH}; nvidia-cuda-nvcc 13.0.88"},
        ),
        (
            {"code": MORE},
            {"gpu_code 12.0": f"{FLASH} has no code for 12.0 in 2 of 2 units (it holds sm_90a)"},
        ),
        ({"code": MORE, "exempt": ["sgl_kernel/flash_ops*.so"]}, {}),
        # An unreadable object may hide anything.
        (
            {"code": {**CODE, "a.so": entry(units=0, cuda=None, problem="it is cut off")}},
            {"gpu_code 12.0": "a.so: it is cut off"},
        ),
        # A build for CPUs holds nothing that could be wrong.
        (
            {"code": {KERNEL: CODE[KERNEL]}},
            {"gpu_code_present 12.0": "no object that runs on 12.0 in torch"},
        ),
        ({"help": HelpOutput(None)}, {"engine_help": "it ran past its time: "}),
        (
            {"help": HelpOutput(1, err="Traceback\n  x\nValueError: Either a revision or a version must be specified\n")},
            {"engine_help": "exit status 1: Traceback / x / ValueError: Either a revision or a version must be specified"},
        ),
        ({"help": HelpOutput(0, out="")}, {"engine_help": "0 flags"}),
    ],
)
def test_every_check_fires(changes: dict[str, Any], failed: dict[str, str]) -> None:
    assert failing(evidence(**changes)) == failed


@pytest.mark.parametrize(
    ("capability", "fails"),
    [("12.0", False), ("9.0", False), ("12.1", True), ("10.0", True), ("7.5", True)],
)
def test_the_right_code_for_each_capability(capability: str, fails: bool) -> None:
    assert (f"gpu_code {capability}" in failing(evidence(), capability)) is fails


def test_flags_are_compared_whole() -> None:
    found = failing(evidence(), flags=("--port", "--tensor-parallel-size", "--mode", "--model"))
    assert found == {"engine_flags": "unknown: --mode, --model"}


def test_long_lists_stay_readable() -> None:
    code = {f"sgl_kernel/{number}.so": entry(sm_75=2) for number in range(100)}
    text = failing(evidence(code={**CODE, **code}))["gpu_code 12.0"]
    assert text.endswith("and 92 more")


# Proofs

SUBJECT = _proof.Subject("0123456789abcdef", "GPU-1", "12.0", "580.126.09", "static", "e" * 64, "f" * 64)


def test_a_proof_holds_for_its_subject_only(tmp_path: Path) -> None:
    path = _proof.proof_path(str(tmp_path), SUBJECT.lock_id, SUBJECT.uuid, SUBJECT.driver)
    assert path.endswith("/proofs/0123456789abcdef/GPU-1-580.126.09.json")
    assert _proof.read_proof(path, SUBJECT) is None
    _proof.write_proof(path, SUBJECT, [{"name": "manifest", "ok": True}])
    assert _proof.read_proof(path, SUBJECT) == [{"name": "manifest", "ok": True}]
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o644
    for key in ("lock_id", "uuid", "capability", "driver", "mode", "manifest", "demands"):
        other = _proof.Subject(**{**SUBJECT.__dict__, key: "other"})
        assert _proof.read_proof(path, other) is None, key


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "{}", '{"ok": true}'])
def test_a_damaged_proof_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "proof").write_text(text)
    assert _proof.read_proof(str(tmp_path / "proof"), SUBJECT) is None


def test_a_proof_that_says_no_is_none(tmp_path: Path) -> None:
    (tmp_path / "proof").write_text(json.dumps({**SUBJECT.content(), "ok": False, "checks": []}))
    assert _proof.read_proof(str(tmp_path / "proof"), SUBJECT) is None


def test_other_demands_need_another_proof() -> None:
    exempt = [{"file": "a", "because": "x"}]
    assert _proof.demands(["--a", "--b"], exempt) == _proof.demands(["--b", "--a"], [{"file": "a", "because": "y"}])
    assert len({_proof.demands(["--a"], []), _proof.demands(["--a", "--b"], []), _proof.demands(["--a"], exempt)}) == 3


@pytest.mark.parametrize(
    "gpu",
    [
        {},
        {"uuid": None, "compute_capability": "12.0"},
        {"uuid": "GPU-1", "compute_capability": None},
        {"uuid": "GPU-1/../../x", "compute_capability": "12.0"},
        {"uuid": "GPU-1", "compute_capability": "sm_120"},
    ],
)
def test_a_gpu_without_identity_cannot_be_proven_on(gpu: dict[str, Any]) -> None:
    with pytest.raises(Refusal, match="gpu_facts"):
        _proof.identity(gpu)


@pytest.mark.parametrize("driver", ["", "580/..", "none"])
def test_a_driver_without_a_version(driver: str) -> None:
    with pytest.raises(Refusal, match="loaded driver"):
        _proof.proof_path("/s", "0123456789abcdef", "GPU-1", driver)


# Gathering


def test_distributions_by_their_own_metadata(tmp_path: Path) -> None:
    for folder, text in {
        "Sglang_Kernel-0.4.10.dist-info": "Metadata-Version: 2.1\nName: sglang_kernel\nVersion: 0.4.10\n\nName: other\n",
        "torch-2.14.1.dist-info": "Name: torch\nVersion: 2.14.1\n",
        "broken-1.0.dist-info": "",
        "no_folder": "",
    }.items():
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "METADATA").write_text(text)
    (tmp_path / "gone-1.0.dist-info").mkdir()
    assert _proof.distributions(str(tmp_path)) == {
        "sglang-kernel": "0.4.10",
        "torch": "2.14.1",
        "broken": "unknown",
        "gone": "unknown",
    }


@pytest.mark.parametrize("lock", [None, "", "torch==2.14.1\n"])
def test_a_folder_without_a_lock_is_no_stack(tmp_path: Path, lock: str | None) -> None:
    if lock is not None:
        (tmp_path / "stack.lock").write_text(lock)
    with pytest.raises(Refusal, match="no readable lock"):
        _proof.gather(str(tmp_path), [], HELP)


def fake_python(stack: Path, script: str) -> str:
    (stack / "bin").mkdir()
    python = stack / "bin" / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    return pwd.getpwuid(os.geteuid()).pw_name


def test_the_engine_is_asked_without_a_gpu_and_in_a_wide_terminal(tmp_path: Path) -> None:
    user = fake_python(tmp_path, 'echo "$@"; echo "cols=$COLUMNS cuda=<$CUDA_VISIBLE_DEVICES>"; touch "$HOME/x"')
    output = _proof.engine_help(str(tmp_path), user, 10)
    assert output.status == 0 and "-m sglang.launch_server --help" in output.out and "cols=1000 cuda=<>" in output.out


def test_an_engine_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    user = fake_python(tmp_path, f"sleep 60 & echo $! > {tmp_path}/child; wait")
    began = time.monotonic()
    assert _proof.engine_help(str(tmp_path), user, 0.5).status is None
    assert time.monotonic() - began < 10
    child = int((tmp_path / "child").read_text())
    with open(f"/proc/{child}/stat") if os.path.exists(f"/proc/{child}") else open(os.devnull) as status:
        # Gone, or a zombie that waits for the machine's first process.
        assert status.read().rpartition(")")[2].split()[:1] in ([], ["Z"])


def test_an_engine_that_is_not_there(tmp_path: Path) -> None:
    output = _proof.engine_help(str(tmp_path), pwd.getpwuid(os.geteuid()).pw_name, 5)
    assert output.status == 127 and "No such file" in output.err


# The account


def test_an_account_is_made_as_a_system_account(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[list[str]] = []

    def run(argv: list[str]) -> tuple[int, str, str]:
        calls.append(argv)
        return 0, "", ""

    monkeypatch.setattr(_account, "exists", lambda _name: True)
    _account.create("inference", run)
    assert calls[0][:3] == ["useradd", "--system", "--user-group"] and calls[0][-1] == "inference"
    _account.create("root", run)
    assert calls[1][:4] == ["useradd", "--system", "--gid", "root"]


@pytest.mark.parametrize("name", ["", "-x", "a b", "a;b", "../a", "A", "x" * 40])
def test_names_that_are_no_account(name: str) -> None:
    with pytest.raises(Refusal, match="system account"):
        _account.create(name, lambda _argv: (0, "", ""))


def test_a_failed_useradd_is_told() -> None:
    with pytest.raises(Refusal, match="exit status 9: it is full"):
        _account.create("surely-absent", lambda _argv: (9, "", "it is full"))
