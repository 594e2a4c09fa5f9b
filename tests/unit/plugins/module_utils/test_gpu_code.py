# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from ansible_collections.blackwell.inference.plugins.module_utils._gpu_code import (
    cuda_major,
    find_objects,
    printable,
    scan_file,
    scan_tree,
    verdict,
)
from ansible_collections.blackwell.inference.tests.unit.plugins.module_utils.elf_kit import container, elf, entry, fat_elf
from ansible_collections.blackwell.inference.tests.unit.plugins.module_utils.fuzz_kit import changed, made_up, watched, written
from hypothesis import given


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
        (["libcupti.so.13"], [13]),
        # copies that a wheel brings, as torchvision and torchcodec do
        (["libcudart.3eda8113.so.13"], [13]),
        (["libnvjpeg-1a359ba7.so.13.0.1.86"], [13]),
        # their version is not CUDA's
        (["libcufft.so.11", "libcurand.so.10", "libcusparse.so.12", "libcudnn.so.9", "libcuda.so.1"], []),
        (["libnvshmem_host.so.3", "libcufile.so.0", "libcudart-static.so.12", "libcudart.so"], []),
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
    write(root, "lib/old/for-32-bit.so", elf({}, ("libcudart.so.13",)).replace(b"\x7fELF\x02", b"\x7fELF\x01"))
    write(root, "lib/blob", fat_elf(("sm_75",)))
    write(root, "lib/future.so", elf({".nv_fatbin": container(entry("64_120"))}))
    write(root, "lib/broken.so", fat_elf(("sm_90",))[:-32])
    write(root, "lib/kernel.txt", fat_elf(("sm_90",)))
    write(tmp_path, "outside.so", fat_elf(("sm_90",), needed=("libcudart.so.12", "libnvrtc.so.13")))
    (root / "lib/libcuda-user.so").symlink_to("libcuda-user.so.1.2")
    (root / "lib/linked.so").symlink_to(tmp_path / "outside.so")
    (root / "lib/dangling.so").symlink_to("nowhere.so")
    (root / "lib/named.so").symlink_to("blob")
    (tmp_path / "turn").symlink_to("turn")
    (root / "lib/turning.so").symlink_to(tmp_path / "turn")
    (root / "lib/self.so").symlink_to("self.so")
    (root / "lib/zero.so").symlink_to("/dev/zero")
    (root / "lib/folder.so").mkdir()
    (root / "lib/linked-folder.so").symlink_to(tmp_path)
    (root / "loop").symlink_to(root)
    os.mkfifo(root / "lib/pipe.so")
    found = scan_tree(str(root))
    assert list(found) == [
        "lib/broken.so",
        "lib/empty.so",
        "lib/future.so",
        "lib/kernel.abi3.so",
        "lib/libcuda-user.so.1.2",
        "lib/linked.so",
        "lib/named.so",
        "lib/turning.so",
    ]
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
    assert found["lib/empty.so"]["problem"] == "it is empty"
    assert found["lib/named.so"]["code"] == {"sm_75": 1}
    assert found["lib/turning.so"]["problem"] == "it cannot be read: Too many levels of symbolic links"
    assert (found["lib/future.so"]["code"], found["lib/future.so"]["units"]) == ({}, 1)


def test_what_may_not_be_read_is_said(tmp_path: Path) -> None:
    write(tmp_path, "open/x.so", fat_elf(("sm_90",)))
    write(tmp_path, "secret/x.so", fat_elf(("sm_90",)))
    write(tmp_path, "mine.so", fat_elf(("sm_90",)))
    denied = PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    scandir, opened = os.scandir, os.open

    # Root, which tests may run as, is refused nothing: so the refusals are put in its way.
    def list_folder(path: str) -> Any:
        if path.endswith("secret"):
            raise denied
        return scandir(path)

    def open_file(path: str, flags: int) -> int:
        if path.endswith("mine.so"):
            raise denied
        return opened(path, flags)

    with mock.patch.object(os, "scandir", list_folder), mock.patch.object(os, "open", open_file):
        found = scan_tree(str(tmp_path))
    assert {name: entry["problem"] for name, entry in found.items()} == {
        "mine.so": "it cannot be read: Permission denied",
        "open/x.so": None,
        "secret/": "the folder cannot be listed: Permission denied",
    }


def test_a_file_that_has_just_gone_holds_nothing(tmp_path: Path) -> None:
    assert scan_file(str(tmp_path / "gone.so")) is None


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    found = scan_tree(str(tmp_path / "nothing"))
    assert {name: entry["problem"] for name, entry in found.items()} == {
        "./": "the folder cannot be listed: No such file or directory"
    }


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


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (b"lib/plain-1.2_\xc3\xa4.so", "lib/plain-1.2_\u00e4.so"),
        (b"lib/\xff\xfe.so", "lib/\\xff\\xfe.so"),
        (b"a\nb\x1b[31m.so", "a\\x0ab\\x1b[31m.so"),
    ],
)
def test_names_are_text_for_everybody(tmp_path: Path, name: bytes, shown: str) -> None:
    assert printable(os.fsdecode(name)) == shown
    path = os.path.join(os.fsencode(tmp_path), name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(fat_elf(("sm_90",)))
    found = scan_tree(str(tmp_path))
    assert list(found) == [shown]
    json.dumps(found, ensure_ascii=False).encode()


def test_a_tree_that_is_too_large_is_said(tmp_path: Path) -> None:
    for number in range(20):
        write(tmp_path, f"{number}/x.so", b"")
    paths, unread = find_objects(str(tmp_path), limit=30)
    assert 0 < len(paths) < 20
    assert unread == {str(tmp_path): "more than 30 files lie below it, and the rest was not looked at"}
    assert len(find_objects(str(tmp_path), limit=40)[0]) == 20


def check_hostile(folder: Path, data: bytes) -> None:
    """Answers whatever it is given, in few reads, none of them outside the file."""
    path = written(folder, data)
    with watched() as watch:
        found = scan_file(path)
    # Each read advances by at least 8 bytes; a stub is one read more.
    assert watch.reads <= 1_100 + len(data) // 4
    if found is None:
        assert len(data) < 4 or not b"\x7fELF\x02\x01".startswith(data[:6])
        return
    assert json.loads(json.dumps(found)) == found
    assert found["units"] == sum(group["units"] for group in found["sets"])
    for capability in ("9.0", "12.0", "12.1"):
        answer = verdict(found["code"], found["units"], capability, found["sets"])
        assert 0 <= answer["missing_units"] <= found["units"]


@given(changed(fat_elf(("sm_80", "sm_120a"), ("compute_90",), ("lto_120", "sm_100f"))))
def test_changed_files_are_answered(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    check_hostile(tmp_path_factory.getbasetemp(), data)


@given(made_up)
def test_made_up_fat_binaries_are_answered(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    check_hostile(tmp_path_factory.getbasetemp(), data)
