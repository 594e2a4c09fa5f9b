# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.blackwell.inference.plugins.module_utils import _native


def test_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_native, "FOLDERS", ())
    assert _native.load("libsurely-not-there.so.1") == (None, None)


@pytest.mark.parametrize("content", [b"", b"a text\n", b"\x7fELF", b"\x7fELF" + bytes(4096)])
def test_a_file_that_is_no_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "libsurely-not-there.so.1").write_bytes(content)
    monkeypatch.setattr(_native, "FOLDERS", (str(tmp_path / "nothing"), str(tmp_path)))
    handle, fault = _native.load("libsurely-not-there.so.1")
    assert handle is None and (fault or "").startswith(f"{tmp_path}/libsurely-not-there.so.1: ")


def test_a_library_where_the_loader_does_not_look(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = _native.loaded_path("libc.so")
    assert path is not None
    (tmp_path / "libsurely-not-there.so.1").symlink_to(path)
    monkeypatch.setattr(_native, "FOLDERS", (str(tmp_path),))
    handle, fault = _native.load("libsurely-not-there.so.1")
    assert handle is not None and fault is None
    library = _native.Library(handle)
    assert library.call("getpid") != 0 and library.call("surely_no_such_function") is None
    # A status other than 0 is remembered with the function's name.
    assert list(library.refusals) == ["getpid"]


@pytest.mark.parametrize(
    ("path", "version"),
    [
        ("/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.126.09", "580.126.09"),
        ("/usr/lib64/libnvidia-ml.so.550.163.01", "550.163.01"),
        ("/usr/lib64/libcuda.so.615.71", "615.71"),
        ("/usr/lib64/libnvidia-ml.so.1", None),
        (None, None),
    ],
)
def test_version_in_a_file_name(path: str | None, version: str | None) -> None:
    assert _native.version_in(path) == version


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("00000000:C1:00.0", "0000:c1:00.0"),
        ("0000:c1:00.0", "0000:c1:00.0"),
        ("00010000:01:00.0", "10000:01:00.0"),
        ("03F8CFDD:00:00.0", "3f8cfdd:00:00.0"),
        ("0000000F:01:00.0", "000f:01:00.0"),
        ("00000001:01:02.4", "0001:01:02.4"),
        ("", None),
        ("c1:00.0", None),
        ("0000:c1:00.9", None),
        ("000000000:c1:00.0", None),
    ],
)
def test_addresses_are_the_kernels(text: str, address: str | None) -> None:
    assert _native.kernel_address(text) == address


@pytest.mark.parametrize(
    ("version", "text"),
    [((12, 0), "12.0"), ((8, 9), "8.9"), (None, None), *[(absurd, None) for absurd in ((0, 0), (-1, 7), (12, -1), (100, 0), (9, 10))]],
)
def test_capability(version: tuple[int, int] | None, text: str | None) -> None:
    assert _native.capability(version) == text
