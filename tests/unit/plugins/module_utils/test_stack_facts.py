# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ansible_collections.blackwell.inference.plugins.module_utils import _stack_facts as stack
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
    put(packages / "broken-1.dist-info/METADATA", "nothing here\n")
    put(packages / "bodied-1.dist-info/METADATA", "Name: bodied\n\nVersion: 9 is only in its description\n")
    put(packages / "empty-1.dist-info/INSTALLER", "uv\n")
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


@pytest.mark.parametrize("manifest", ["{", "[]", '{"lock_id": 5}', "[" * 100_000])
def test_a_manifest_that_is_none(tree: Path, manifest: str) -> None:
    put(tree / "manifest.json", manifest)
    assert stack.lock_id(str(tree)) is None


def test_two_cuda_majors_and_a_damaged_binary(tree: Path) -> None:
    (tree / "lib/old.so").write_bytes(fat_elf(("sm_90",), needed=("libcudart.so.12",)))
    (tree / "lib/cut.so").write_bytes(fat_elf(("sm_90",))[:-50])
    found = stack.describe(str(tree), SERVICE_PATH)["problems"]
    assert [problem["code"] for problem in found] == ["binary_damaged", "mixed_cuda"]
    assert found[1]["found"] == f"lib/old.so (CUDA 12) and {KERNEL} (CUDA 13)"


def test_nothing_installed(tmp_path: Path) -> None:
    assert [problem["code"] for problem in stack.describe(str(tmp_path), "")["problems"]] == ["no_distributions"]


def test_nvcc_that_does_not_run(tree: Path) -> None:
    put(tree / "cuda/bin/nvcc", "no program", 0o755)
    found = stack.describe(str(tree), SERVICE_PATH)
    assert found["toolkit"]["nvcc"] is None
    assert [problem["code"] for problem in found["problems"]] == ["nvcc_fails"]
