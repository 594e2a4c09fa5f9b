# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import errno
import json
import os
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import yaml
from ansible_collections.blackwell.inference.plugins.module_utils import _manifest, _units
from ansible_collections.blackwell.inference.plugins.module_utils import _stack_facts as stack
from ansible_collections.blackwell.inference.plugins.modules import stack_facts
from ansible_collections.blackwell.inference.tests.unit.plugins.module_utils.elf_kit import fat_elf

SERVICE_PATH = "/usr/bin:/bin"


def put(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "0123456789abcdef"
    packages = root / "lib/python3.13/site-packages"
    put(packages / "torch-2.14.1.dist-info/METADATA", "Metadata-Version: 2.4\nName: torch\nVersion: 2.14.1\n\nVersion: 9\n")
    put(packages / "sglang_kernel-0.4.10.dist-info/METADATA", "Name: sglang_kernel\nVersion: 0.4.10\n")
    put(root / "manifest.json", json.dumps({"lock_id": "0123456789abcdef", "files": []}))
    put(root / "cuda/bin/nvcc", "#!/bin/sh\necho 'Cuda compilation tools, release 13.0, V13.0.88'\n", 0o755)
    put(tmp_path / "base/include/python3.13/Python.h", "")
    put(root / "pyvenv.cfg", f"home = {tmp_path}/base/bin\nversion_info = 3.13.5\n")
    (tmp_path / "base/bin").mkdir()
    put(root / "bin/ninja", "", 0o755)
    kernel = packages / "sgl_kernel/sm100/common_ops.abi3.so"
    kernel.parent.mkdir(parents=True)
    kernel.write_bytes(fat_elf(("sm_90", "sm_120a")))
    return root


KERNEL = "lib/python3.13/site-packages/sgl_kernel/sm100/common_ops.abi3.so"


def test_a_stack(tree: Path) -> None:
    found = stack.describe(str(tree), SERVICE_PATH)
    toolkit = found.pop("toolkit")
    assert found == {
        "path": str(tree),
        "lock_id": "0123456789abcdef",
        "distributions": {"sglang-kernel": "0.4.10", "torch": "2.14.1"},
        "cuda_major": {KERNEL: 13},
        "code": {KERNEL: {"sm_90": 1, "sm_120a": 1}},
        "units": {KERNEL: 1},
        "problems": [],
    }
    assert toolkit["nvcc"] == "13.0.88" and toolkit["nvcc_path"] == str(tree / "cuda/bin/nvcc")
    assert toolkit["python_headers"] is True and toolkit["ninja"] == str(tree / "bin/ninja")


def test_a_link_to_a_stack_is_followed(tree: Path) -> None:
    (tree.parent / "current").symlink_to(tree)
    assert stack.describe(str(tree.parent / "current"), SERVICE_PATH)["path"] == str(tree)


def test_an_ordinary_virtual_environment(tree: Path) -> None:
    (tree / "manifest.json").unlink()
    (tree / "cuda/bin/nvcc").unlink()
    put(tree / "pyvenv.cfg", "home = /nowhere/bin\nversion = 3.13.5\n")
    found = stack.describe(str(tree), SERVICE_PATH)
    assert found["lock_id"] is None
    assert (found["toolkit"]["nvcc"], found["toolkit"]["python_headers"]) == (None, False)


def test_a_manifest_as_stack_build_writes_it(tree: Path) -> None:
    """Its list of files is tens of megabytes long, and is not read for one word at its beginning."""
    entries = [_manifest.Entry(f"lib/{number:06}", 1, sha256="0" * 64) for number in range(60_000)]
    (tree / "manifest.json").write_bytes(_manifest.compose("0123456789abcdef", "python3.13", entries))
    tracemalloc.start()
    try:
        assert stack.lock_id(str(tree)) == "0123456789abcdef"
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_an_environment_of_a_lock(tree: Path) -> None:
    (tree / "manifest.json").unlink()
    put(tree / ".environment.json", json.dumps({"files": {"a": 1}, "lock_id": "fedcba9876543210"}, indent=1))
    assert stack.lock_id(str(tree)) == "fedcba9876543210"


@pytest.mark.parametrize("manifest", ["", "{", "[]", '{"lock_id": 5}', "[" * 100_000, '{"lock_id": "0", "files": {'])
def test_a_manifest_that_is_none(tree: Path, manifest: str) -> None:
    put(tree / "manifest.json", manifest)
    assert stack.lock_id(str(tree)) is None


def problems_of(tree: Path) -> dict[str, tuple[str, str]]:
    found = stack.describe(str(tree), SERVICE_PATH)["problems"]
    assert all(one["found"] and one["wanted"] and one["remedy"] for one in found)
    return {one["code"]: (one["severity"], one["found"]) for one in found}


def test_two_cuda_majors_and_a_damaged_binary(tree: Path) -> None:
    for number in range(5):
        (tree / f"lib/old{number}.so").write_bytes(fat_elf(("sm_90",), needed=("libcudart.so.12",)))
    (tree / "lib/cut.so").write_bytes(fat_elf(("sm_90",))[:-50])
    found = problems_of(tree)
    assert list(found) == ["binary_damaged", "mixed_cuda"]
    assert found["binary_damaged"][1].startswith("lib/cut.so: ")
    # A wheel may bring a hook for each major and load one: the proof judges that, with its list of exceptions.
    assert found["mixed_cuda"] == (
        "warning",
        f"CUDA 12 in lib/old0.so, lib/old1.so, lib/old2.so and 2 more; CUDA 13 in {KERNEL}",
    )


def test_a_folder_that_cannot_be_listed(tree: Path) -> None:
    denied = PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    scandir, listdir = os.scandir, os.listdir

    def refuse(function: Callable[[str], Any]) -> Callable[[str], Any]:
        def call(path: str) -> Any:
            if path.endswith("site-packages"):
                raise denied
            return function(path)

        return call

    with mock.patch.object(os, "scandir", refuse(scandir)), mock.patch.object(os, "listdir", refuse(listdir)):
        found = problems_of(tree)
    assert list(found) == ["not_scanned", "no_distributions"]
    assert found["not_scanned"][1] == "lib/python3.13/site-packages/: the folder cannot be listed: Permission denied"


def test_nothing_installed(tmp_path: Path) -> None:
    assert [problem["code"] for problem in stack.describe(str(tmp_path), "")["problems"]] == ["no_distributions"]


PACKAGES = "lib/python3.13/site-packages"
GOOD = {"sglang-kernel": "0.4.10", "torch": "2.14.1"}


@pytest.mark.parametrize(
    ("files", "versions", "problem"),
    [
        ({"a_b.C-1.dist-info/METADATA": "Name: a_b.C\nVersion: 1\n"}, {**GOOD, "a-b-c": "1"}, None),
        ({"old-1.egg-info/PKG-INFO": "Name: old\nVersion: 1\n"}, {**GOOD, "old": "1"}, None),
        ({"old-1.egg-info": "Name: old\nVersion: 1\n"}, {**GOOD, "old": "1"}, None),
        ({"x-1.dist-info/INSTALLER": "uv\n"}, GOOD, ("warning", "x-1.dist-info tells no name and version")),
        ({"x-1.dist-info/METADATA": "nothing\n"}, GOOD, ("warning", "x-1.dist-info tells no name and version")),
        ({"x-1.dist-info/METADATA": "Name: x\n\nVersion: 9 is only in its description\n"}, GOOD,
         ("warning", "x-1.dist-info tells no name and version")),
        ({"x-1.dist-info/METADATA": "Name: x\n Version: 9\n"}, GOOD, ("warning", "x-1.dist-info tells no name and version")),
        ({"~orch-2.11.0.dist-info/METADATA": "Name: torch\nVersion: 2.11.0\n"}, GOOD,
         ("warning", "~orch-2.11.0.dist-info is left from an interrupted pip")),
        ({"sglang-kernel-0.4.4.dist-info/METADATA": "Name: sglang-kernel\nVersion: 0.4.4\n"}, GOOD,
         ("error", "sglang-kernel 0.4.4 and sglang-kernel 0.4.10")),
    ],
)  # fmt: skip
def test_distributions(tree: Path, files: dict[str, str], versions: dict[str, str], problem: tuple[str, str] | None) -> None:
    for name, text in files.items():
        put(tree / PACKAGES / name, text)
    assert stack.describe(str(tree), SERVICE_PATH)["distributions"] == versions
    assert list(problems_of(tree).values()) == ([problem] if problem else [])


def test_what_is_no_file_is_not_waited_for(tree: Path) -> None:
    for name in (f"{PACKAGES}/pipe-1.dist-info/METADATA", "manifest.json", "pyvenv.cfg"):
        (tree / name).unlink(missing_ok=True)
        (tree / name).parent.mkdir(exist_ok=True)
        os.mkfifo(tree / name)
    found = stack.describe(str(tree), SERVICE_PATH)
    assert (found["lock_id"], found["toolkit"]["python_headers"]) == (None, False)
    assert [one["code"] for one in found["problems"]] == ["metadata_broken"]


def test_names_that_are_no_text(tree: Path) -> None:
    other = Path(os.fsdecode(os.fsencode(tree.parent) + b"/\xff"))
    tree.rename(other)
    (other / PACKAGES / os.fsdecode(b"\xfe-1.dist-info")).mkdir()
    found = stack.describe(str(other), SERVICE_PATH)
    json.dumps(found, ensure_ascii=False).encode()
    assert found["path"] == f"{tree.parent}/\\xff"
    assert found["toolkit"]["ninja"] == f"{tree.parent}/\\xff/bin/ninja"
    assert [one["found"] for one in found["problems"]] == ["\\xfe-1.dist-info tells no name and version"]


def test_zero_bytes_in_texts(tree: Path) -> None:
    put(tree / "pyvenv.cfg", "home = /a\0b\nversion = 3.13.5\n")
    toolkit = stack.describe(str(tree), "/a\0b:/usr/bin")["toolkit"]
    assert toolkit["python_headers"] is False


# Tools

SAYS = "#!/bin/sh\necho 'Cuda compilation tools, release 13.0, V13.0.88'\n"
FAULTS = {
    "no program": "Exec format error",
    "#!/bin/sh\nexit 1\n": "no output",
    "#!/bin/sh\necho 'cannot find libnvvm' >&2\n": "'cannot find libnvvm'",
    "#!/bin/sh\nprintf '\\377\\376 V13'\n": "'\ufffd\ufffd V13'",
    "#!/bin/sh\nsleep 600\n": "nothing of a version within 0.5 s",
    "#!/bin/sh\nsleep 600 &\nexit 0\n": "nothing of a version within 0.5 s",
    "#!/bin/sh\nexec yes\n": "'y\\ny\\ny",
}


@pytest.mark.parametrize(("text", "says"), FAULTS.items(), ids=range(len(FAULTS)))
def test_nvcc_that_tells_no_version(tree: Path, monkeypatch: pytest.MonkeyPatch, text: str, says: str) -> None:
    monkeypatch.setattr(stack, "NVCC_SECONDS", 0.5)
    put(tree / "cuda/bin/nvcc", text, 0o755)
    begin = time.monotonic()
    severity, found = problems_of(tree)["nvcc_fails"]
    assert time.monotonic() - begin < 30
    assert severity == "warning" and found.startswith(f"{tree}/cuda/bin/nvcc --version: {says}")
    assert stack.describe(str(tree), SERVICE_PATH)["toolkit"]["nvcc"] is None


def test_nvcc_leaves_nobody_behind(tree: Path) -> None:
    """A child that keeps the pipe open is neither waited for nor left running."""
    put(tree / "cuda/bin/nvcc", f"#!/bin/sh\nsleep 600 &\necho $! >{tree}/child\n{SAYS}", 0o755)
    assert stack.ask_nvcc(str(tree / "cuda/bin/nvcc"), 60)[0] == "13.0.88"
    child = int((tree / "child").read_text())
    until = time.monotonic() + 30
    while alive(child) and time.monotonic() < until:
        time.sleep(0.01)
    assert not alive(child)


def alive(pid: int) -> bool:
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_the_caller_s_settings_do_not_reach_nvcc(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NVCC_PREPEND_FLAGS", "--list-gpu-code")
    put(tree / "cuda/bin/nvcc", '#!/bin/sh\necho "V1.2.3${NVCC_PREPEND_FLAGS:+x}"\n', 0o755)
    assert stack.ask_nvcc(str(tree / "cuda/bin/nvcc"), 60)[0] == "1.2.3"


def test_tools_are_found_as_a_service_finds_them(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tree / "bin/ninja").unlink()
    put(tmp_path / "g++", "", 0o755)
    put(tmp_path / "ninja", "", 0o755)
    assert found_tools(tree, "") == (None, None)
    put(tmp_path / "usr/ninja", "", 0o755)
    put(tmp_path / "usr/g++", "", 0o644)
    assert found_tools(tree, f"::{tmp_path}/usr") == (None, f"{tmp_path}/usr/ninja")
    put(tree / "cuda/bin/g++", "", 0o755)
    assert found_tools(tree, f"{tmp_path}/usr")[0] == f"{tree}/cuda/bin/g++"


def found_tools(tree: Path, service_path: str) -> tuple[str | None, str | None]:
    toolkit = stack.describe(str(tree), service_path)["toolkit"]
    return toolkit["cxx"], toolkit["ninja"]


def test_the_default_search_path_is_that_of_the_services() -> None:
    default = yaml.safe_load(stack_facts.DOCUMENTATION)["options"]["service_path"]["default"]
    assert f'PATH="$stack/bin:$stack/cuda/bin:{default}"' in _units.script(_units.Settings("/stack"))
