# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ansible_collections.blackwell.inference.plugins.module_utils._gpu_code import cuda_major, scan_tree, verdict
from ansible_collections.blackwell.inference.tests.unit.plugins.module_utils.elf_kit import elf, fat_elf


def write(root: Path, name: str, data: bytes) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("needed", "majors"),
    [
        (["libcudart.so.13", "libc.so.6"], [13]),
        (["libcublas.so.12", "libcudart.so.12"], [12]),
        (["libcudart.so.11.0"], [11]),
        (["libnvrtc.so.12", "libcudart.so.13"], [12, 13]),
        # their version is not CUDA's
        (["libcufft.so.11", "libcurand.so.10", "libcusparse.so.12", "libcudnn.so.9", "libcuda.so.1"], []),
        ([], []),
    ],
)
def test_cuda_major(needed: list[str], majors: list[int]) -> None:
    assert cuda_major(needed) == majors


def test_scan_tree(tmp_path: Path) -> None:
    root = tmp_path / "stack"
    write(root, "lib/kernel.abi3.so", fat_elf(("sm_80", "sm_120a"), ("sm_80",)))
    write(root, "lib/libcuda-user.so.1.2", elf({}, ("libcudart.so.12",)))
    write(root, "lib/plain.so", elf({}, ("libc.so.6",)))
    write(root, "lib/notes.so", b"no ELF file at all, and longer than sixty-four bytes, to be on the safe side here")
    write(root, "lib/empty.so", b"")
    write(root, "lib/broken.so", fat_elf(("sm_90",))[:-32])
    write(root, "lib/kernel.txt", fat_elf(("sm_90",)))
    write(tmp_path, "outside.so", fat_elf(("sm_90",), needed=("libcudart.so.12", "libnvrtc.so.13")))
    (root / "lib/libcuda-user.so").symlink_to("libcuda-user.so.1.2")
    (root / "lib/linked.so").symlink_to(tmp_path / "outside.so")
    (root / "lib/dangling.so").symlink_to("nowhere.so")
    (root / "loop").symlink_to(root)
    os.mkfifo(root / "lib/pipe.so")
    found = scan_tree(str(root))
    assert sorted(found) == ["lib/broken.so", "lib/kernel.abi3.so", "lib/libcuda-user.so.1.2", "lib/linked.so"]
    assert found["lib/kernel.abi3.so"] == {
        "code": {"sm_80": 2, "sm_120a": 1},
        "units": 2,
        "sets": [{"archs": ["sm_80"], "units": 1}, {"archs": ["sm_80", "sm_120a"], "units": 1}],
        "cuda_major": 13,
        "needed": ["libcudart.so.13"],
        "problem": None,
    }
    assert found["lib/libcuda-user.so.1.2"]["cuda_major"] == 12
    assert "outside the file" in found["lib/broken.so"]["problem"]
    assert found["lib/linked.so"]["problem"] == "it links CUDA 12 and 13 at once"


def test_a_folder_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    assert scan_tree(str(tmp_path / "nothing")) == {}


COMMON_OPS = {"sm_80": 35, "sm_89": 35, "sm_90": 35, "sm_90a": 35, "sm_100f": 35, "sm_120a": 35}
FLASH_OPS = {"sm_80": 372, "sm_86": 372, "sm_90a": 372}
NCCL = [
    {"archs": ["compute_120", "sm_90", "sm_100", "sm_120"], "units": 139},
    {"archs": ["sm_100f"], "units": 4},
]


@pytest.mark.parametrize(
    ("code", "units", "capability", "how", "missing"),
    [
        # the kernel wheel sglang-kernel 0.4.10, as scanned
        (COMMON_OPS, 35, "12.0", "native", 0),
        (COMMON_OPS, 35, "12.1", "none", 35),
        (COMMON_OPS, 35, "9.0", "native", 0),
        (COMMON_OPS, 35, "10.3", "native", 0),
        (COMMON_OPS, 35, "8.6", "native", 0),
        (FLASH_OPS, 372, "12.0", "none", 372),
        (FLASH_OPS, 372, "9.0", "native", 0),
        ({"sm_80": 444, "sm_120": 444, "sm_121a": 1}, 444, "12.1", "native", 0),
        ({"compute_90": 10}, 10, "12.0", "ptx", 0),
        ({"sm_90": 10, "compute_90": 4}, 10, "12.0", "partial", 6),
        ({}, 0, "12.0", "native", 0),
    ],
)
def test_verdict_by_counts(code: dict[str, int], units: int, capability: str, how: str, missing: int) -> None:
    assert verdict(code, units, capability) == {"how": how, "missing_units": missing}


@pytest.mark.parametrize(
    ("sets", "capability", "how", "missing"),
    [
        (NCCL, "12.0", "partial", 4),
        (NCCL, "10.0", "native", 0),
        (NCCL, "9.0", "partial", 4),
        # neither architecture alone covers all units, together they do: only the sets can tell
        ([{"archs": ["sm_120"], "units": 3}, {"archs": ["sm_120a"], "units": 2}], "12.0", "native", 0),
        ([{"archs": ["sm_120"], "units": 3}, {"archs": ["sm_120a"], "units": 2}], "12.1", "partial", 2),
        ([{"archs": ["sm_120"], "units": 3}, {"archs": ["compute_90"], "units": 2}], "12.0", "ptx", 0),
    ],
)
def test_verdict_by_sets(sets: list[dict[str, object]], capability: str, how: str, missing: int) -> None:
    code: dict[str, int] = {}
    for group in sets:
        for name in group["archs"]:  # type: ignore[attr-defined]
            code[name] = code.get(name, 0) + group["units"]  # type: ignore[operator]
    units = sum(group["units"] for group in sets)  # type: ignore[misc]
    assert verdict(code, units, capability, sets) == {"how": how, "missing_units": missing}
