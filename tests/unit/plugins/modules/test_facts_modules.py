# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The three facts modules as Ansible runs them: one process, JSON in, JSON out."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

MODULES = Path(__file__).parents[4] / "plugins" / "modules"


def run(name: str, check: bool = False, environment: dict[str, str] | None = None, **options: Any) -> dict[str, Any]:
    arguments = {**options, "_ansible_check_mode": check}
    answer = subprocess.run(
        [sys.executable, str(MODULES / f"{name}.py")],
        input=json.dumps({"ANSIBLE_MODULE_ARGS": arguments}),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "99", **(environment or {})},
    )
    assert answer.stderr == ""
    result: dict[str, Any] = json.loads(answer.stdout)
    return result


@pytest.mark.parametrize("check", [False, True])
def test_gpu_facts(check: bool) -> None:
    result = run("gpu_facts", check, vmid=200, cuda_attributes="never")
    assert result["changed"] is False
    assert list(result["ansible_facts"]) == ["gpu"]
    assert result["ansible_facts"]["gpu"]["container"]["vmid"] == 200


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"expected_compute_capability": "sm_120"}, "expected_compute_capability is 'sm_120'; wanted something like 12.0"),
        ({"timeout": 0}, "timeout is 0; wanted 1 to 600 seconds"),
        ({"timeout": 4_000_000}, "timeout is 4000000; wanted 1 to 600 seconds"),
        ({"cuda_attributes": "often"}, "value of cuda_attributes must be one of"),
        ({"devices": 1}, "Unsupported parameters"),
    ],
)
def test_gpu_facts_refuses_wrong_options(options: dict[str, Any], says: str) -> None:
    result = run("gpu_facts", **options)
    assert result["failed"] and says in result["msg"]


# The same on a machine whose driver is loaded and lists one card.
DRIVEN = """
import json, sys
from ansible_collections.blackwell.inference.plugins.module_utils import _gpu, _gpu_sources
root = sys.argv[1]
roots = _gpu_sources.Roots(root + "/proc", root + "/sys", root + "/dev", root)
gpu = _gpu.assemble(_gpu_sources.collect(roots, None, 2, "never", ""))
print(json.dumps([gpu["count"], [problem["code"] for problem in gpu["problems"]]]))
"""


def driven(root: Path, environment: dict[str, str]) -> list[Any]:
    files = {
        "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.126.09  Release Build\n",
        "proc/driver/nvidia/gpus/0000:01:00.0/information": "Model: \t\t NVIDIA B200\nDevice Minor: \t 0\n",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "dev").mkdir()
    for name in ("nvidia0", "nvidiactl", "nvidia-uvm"):
        (root / "dev" / name).symlink_to("/dev/null")
    command = [sys.executable, "-c", DRIVEN, str(root)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, env={**os.environ, **environment})
    assert done.stderr == ""
    answer: list[Any] = json.loads(done.stdout)
    return answer


# What a libnvidia-ml.so.1 may do to whoever loads it.
LOADED = "#include <stdio.h>\n#include <stdlib.h>\n#include <unistd.h>\n__attribute__((constructor)) static void load(void) { %s }\n"
CALLED = "#include <stdlib.h>\nint nvmlInit_v2(void) { %s return 0; }\n"
HOSTILE = {
    "a text": ("nothing that runs\n", "driver_library_broken"),
    "an empty file": ("", "driver_library_broken"),
    "prints": (LOADED % 'puts("{\\"changed\\": true}"); fputs("noise", stderr); fflush(NULL);', "driver_query_failed"),
    "exits": (LOADED % "exit(0);", "driver_query_died"),
    "aborts": (LOADED % "abort();", "driver_query_died"),
    "hangs": (LOADED % "for (;;) pause();", "driver_hangs"),
    "crashes when called": (CALLED % "*(volatile int *)0 = 1;", "driver_query_died"),
    "exits when called": (CALLED % "exit(3);", "driver_query_died"),
    "has two billion cards": (
        CALLED % "" + "int nvmlDeviceGetCount_v2(unsigned *n) { *n = 0x7fffffff; return 0; }\n"
        "int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **gpu) { *gpu = gpu; return 999; }\n", "gpu_lost"),
}  # fmt: skip


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_library_is_a_problem_and_no_traceback(tmp_path: Path, kind: str) -> None:
    content, code = HOSTILE[kind]
    library = tmp_path / "libnvidia-ml.so.1"
    if content.startswith("#include"):
        subprocess.run(["gcc", "-w", "-shared", "-fPIC", "-x", "c", "-", "-o", library], input=content, text=True, check=True)
    else:
        library.write_text(content)
    environment = {"LD_LIBRARY_PATH": str(tmp_path)}
    result = run("gpu_facts", environment=environment, timeout=2, cuda_attributes="never")
    assert result["changed"] is False and result["ansible_facts"]["gpu"]["problems"]
    count, codes = driven(tmp_path, environment)
    assert (count, codes[0]) == (1, code)


@pytest.mark.parametrize("check", [False, True])
def test_model_facts(tmp_path: Path, check: bool) -> None:
    (tmp_path / "config.json").write_text('{"num_hidden_layers": 2}')
    result = run("model_facts", check, path=str(tmp_path))
    assert result["changed"] is False
    assert result["ansible_facts"]["model"]["layers"] == 2


# What a folder may hold in place of a model: whatever it is, the module answers with facts, on standard output only.
NO_MODELS: dict[str, dict[str, bytes]] = {
    "nothing": {},
    "deep": {"config.json": b'{"text_config":' * 100_000},
    "not UTF-8": {"config.json": b"\xff\xfe{}"},
    "half a character": {"config.json": b'{"architectures": ["\\ud800"], "model_type": "\\udfff"}', "m\udcff.safetensors": b""},
    "numbers of no use": {"config.json": b'{"num_hidden_layers": NaN, "hidden_size": 1e400, "head_dim": -1, "rope_scaling": "x"}'},
    "an index of nonsense": {"config.json": b"{}", "model.safetensors.index.json": b'{"weight_map": {"a": "../b", "c": "\\u0000"}}'},
}


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize("kind", NO_MODELS)
def test_a_folder_that_holds_no_model_gets_facts(tmp_path: Path, kind: str, check: bool) -> None:
    for name, data in NO_MODELS[kind].items():
        Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), os.fsencode(name)))).write_bytes(data)
    os.mkfifo(tmp_path / "pipe.safetensors")
    result = run("model_facts", check, path=str(tmp_path))
    model = result["ansible_facts"]["model"]
    assert result["changed"] is False and model["complete"] is False and model["problems"]


def test_model_facts_documents_every_key() -> None:
    spec = importlib.util.spec_from_file_location("model_facts", MODULES / "model_facts.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    documented = yaml.safe_load(module.RETURN)["ansible_facts"]["contains"]["model"]["contains"]
    model = module.describe(module.read_folder(str(MODULES)))
    assert list(documented) == list(model)
    assert list(documented["mtp"]["contains"]) == list(model["mtp"])
    assert set(documented["problems"]["contains"]) == set(model["problems"][0])
    attention = module.describe(sys.modules[module.describe.__module__].Folder("x", config={"num_hidden_layers": 1}))["attention"]
    assert list(documented["attention"]["contains"]) == list(attention)
    # what is an amount says of what
    units = {"parameters": "parameters", "weight_bytes": "bytes", "layers": "layers", "kv_bytes_per_token": "bytes",
             "state_bytes_per_request": "bytes", "max_context": "tokens"}  # fmt: skip
    assert {name for name, entry in documented.items() if entry["type"] == "int"} == set(units)
    for name, unit in units.items():
        assert f"Unit: {unit}" in " ".join(documented[name]["description"]), name


@pytest.mark.parametrize("check", [False, True])
def test_stack_facts(tmp_path: Path, check: bool) -> None:
    result = run("stack_facts", check, path=str(tmp_path))
    assert result["changed"] is False
    assert result["ansible_facts"]["stack"]["path"] == str(tmp_path)


@pytest.mark.parametrize("name", ["model_facts", "stack_facts"])
def test_a_path_that_is_no_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    assert run(name, path=str(tmp_path / "nothing"))["msg"].startswith(f"Found nothing at {tmp_path}/nothing; wanted")
    assert run(name, path=str(tmp_path / "file"))["msg"].startswith(f"Found a file at {tmp_path}/file; wanted")
