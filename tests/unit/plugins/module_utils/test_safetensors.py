# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import contextlib
import json
import os
import struct
import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.blackwell.inference.plugins.module_utils._safetensors import Tensor, loads_strict, read_header
from ansible_collections.blackwell.inference.tests.unit.plugins.module_utils.safetensors_kit import pack, write
from hypothesis import given
from hypothesis import strategies as st


def test_reads_names_types_and_sizes(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    write(path, {"a": ("BF16", [4, 8]), "b": ("F8_E4M3", [3]), "c": ("F32", []), "d": ("F4", [16])})
    found = read_header(str(path))
    assert found.tensors == {
        "a": Tensor("BF16", 32, 64),
        "b": Tensor("F8_E4M3", 3, 3),
        "c": Tensor("F32", 1, 4),
        "d": Tensor("F4", 16, 8),
    }
    assert found.faults == []


def test_a_file_of_50_gb_takes_no_time_and_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    write(path, {f"layers.{i}.weight": ("BF16", [5120, 5120]) for i in range(1000)})
    started = time.monotonic()
    found = read_header(str(path)).tensors
    assert time.monotonic() - started < 0.5
    assert len(found) == 1000 and len({id(tensor) for tensor in found.values()}) == 1


def one(**changes: Any) -> bytes:
    return pack(json.dumps({"a": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4], **changes}}).encode()) + b"1234"


TWO = {"a": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}, "b": {"dtype": "U8", "shape": [4], "data_offsets": [2, 6]}}


@pytest.mark.parametrize(
    ("data", "codes", "says"),
    [
        (b"", ["empty"], "no bytes"),
        (b"1234", ["truncated"], "too few"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", ["lfs_pointer"], "Git LFS"),
        (struct.pack("<Q", 1 << 60) + b"{}", ["bad_header"], "claims 1152921504606846976 bytes"),
        (struct.pack("<Q", 100) + b"{}", ["truncated"], "claims 100 bytes"),
        (pack(b"[1]"), ["bad_header"], "not a JSON object"),
        (pack(b"{"), ["bad_header"], "not JSON"),
        (pack(b"\xff\xfe"), ["bad_header"], "not JSON"),
        (pack(b'{"a":' * 100_000), ["bad_header"], "not JSON"),
        (pack(b'{"a": 1, "a": 2}'), ["duplicate_tensor"], "'a' twice"),
        (pack(b'{"a": 1}'), ["bad_tensor"], "not an object"),
        (one(dtype="BF17"), ["bad_tensor"], "unknown type BF17"),
        (one(dtype=None), ["bad_tensor"], "unknown type None"),
        (one(shape=[-2]), ["bad_tensor"], "shape"),
        (one(shape=[1.5]), ["bad_tensor"], "shape"),
        (one(shape=[True, 2]), ["bad_tensor"], "shape"),
        (one(shape=[1] * 65), ["bad_tensor"], "shape"),
        (one(shape=[1 << 61, 1 << 61]), ["bad_tensor"], "4 bytes for"),
        (one(shape=[1 << 62]), ["bad_tensor"], "shape"),
        (one(data_offsets=[0]), ["bad_tensor"], "offsets"),
        (one(data_offsets=[4, 0]), ["bad_tensor"], "-4 bytes for"),
        (one(shape=[4], data_offsets=[0, 8]), ["truncated"], "ends at byte 8 of 4"),
        (one(shape=[1], data_offsets=[2, 4]), ["gap"], "2 bytes before"),
        (one() + b"rest", ["gap"], "4 bytes at the end"),
        (pack(json.dumps(TWO).encode()) + b"123456", ["overlap"], "'a' and 'b' share bytes"),
    ],
)
def test_damage_is_named(tmp_path: Path, data: bytes, codes: list[str], says: str) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(data)
    found = read_header(str(path))
    assert [code for code, _text in found.faults] == codes
    assert says in found.faults[0][1]


def test_a_missing_file_is_a_fault(tmp_path: Path) -> None:
    assert read_header(str(tmp_path / "no")).faults[0][0] == "unreadable"


def test_a_file_that_turns_into_a_pipe_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, plain = tmp_path / "m.safetensors", tmp_path / "plain"
    plain.write_bytes(b"")
    before = os.stat(plain)
    os.mkfifo(path)
    monkeypatch.setattr("os.stat", lambda _path: before)
    assert read_header(str(path)).faults == [("unreadable", "it cannot be opened: it is a named pipe, not a file")]


def test_a_header_with_many_equal_names_ends_soon(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(pack(b"{" + b",".join(b'"n%d":1' % i for i in range(300_000)) + b',"n299999":1}'))
    started = time.monotonic()
    assert read_header(str(path)).faults[0][0] == "duplicate_tensor"
    assert time.monotonic() - started < 5


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
ENTRY = st.fixed_dictionaries(
    {}, optional={"dtype": st.sampled_from(["BF16", "U8"]) | JSON, "shape": st.lists(st.integers(-1, 9), max_size=3) | JSON,
                  "data_offsets": st.lists(st.integers(-1, 40), min_size=2, max_size=2) | JSON},
)  # fmt: skip


@given(JSON | st.dictionaries(st.text(max_size=4), ENTRY | JSON, max_size=4), st.binary(max_size=40))
def test_any_json_never_crashes(tmp_path_factory: pytest.TempPathFactory, document: Any, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.safetensors"
    path.write_bytes(pack(json.dumps(document).encode()) + data)
    found = read_header(str(path))
    if not found.faults:
        assert sum(tensor.bytes for tensor in found.tensors.values()) == len(data)


@given(st.binary(max_size=200))
def test_any_bytes_never_crash(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "bytes.safetensors"
    path.write_bytes(data)
    read_header(str(path))


@given(st.binary(max_size=100))
def test_json_is_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        loads_strict(data.decode("latin-1"))
