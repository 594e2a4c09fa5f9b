# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import hashlib

import pytest
from ansible_collections.blackwell.inference.plugins.module_utils import _lock
from hypothesis import given
from hypothesis import strategies as st

A, B, C = "a" * 64, "b" * 64, "c" * 64
TEXT = f"""\
# blackwell.inference lock 1
# python 3.13
# platform x86_64-manylinux_2_40
# stack 0123456789abcdef
# as-of 2026-10-31T00:00:00Z
flashinfer-python==0.7.2 --hash=sha256:{A}  # flashinfer_python-0.7.2-py3-none-any.whl 4096
torch==2.14.1 --hash=sha256:{B}  # torch-2.14.1-cp313-cp313-manylinux_2_28_x86_64.whl 8123
#toolkit nvidia-cuda-nvcc==13.0.88 --hash=sha256:{C}  # nvidia_cuda_nvcc-13.0.88-py3-none-any.whl 39000000
"""


def test_parse_reads_every_part() -> None:
    lock = _lock.parse(TEXT)
    assert (lock.python, lock.platform, lock.stack_id) == ("3.13", "x86_64-manylinux_2_40", "0123456789abcdef")
    assert lock.as_of == "2026-10-31T00:00:00Z"
    assert lock.requirements[1] == _lock.Requirement("torch", "2.14.1", B, "torch-2.14.1-cp313-cp313-manylinux_2_28_x86_64.whl", 8123)
    assert [part.name for part in lock.toolkit] == ["nvidia-cuda-nvcc"]
    assert lock.requirements[0].pin() == f"flashinfer-python==0.7.2 --hash=sha256:{A}"
    assert [part.name for part in lock.files()] == ["flashinfer-python", "torch", "nvidia-cuda-nvcc"]


def test_text_is_the_inverse_of_parse() -> None:
    assert _lock.parse(TEXT).text() == TEXT


def test_id_is_the_hash_of_interpreter_platform_and_pins() -> None:
    counted = (
        "python 3.13\nplatform x86_64-manylinux_2_40\n"
        f"flashinfer-python==0.7.2 --hash=sha256:{A}\ntorch==2.14.1 --hash=sha256:{B}\n"
        f"#toolkit nvidia-cuda-nvcc==13.0.88 --hash=sha256:{C}\n"
    )
    assert _lock.parse(TEXT).id == hashlib.sha256(counted.encode()).hexdigest()[:16]


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("# stack 0123456789abcdef\n", "", True),
        ("# as-of 2026-10-31T00:00:00Z\n", "", True),
        (" 8123\n", " 8124\n", True),
        ("# python 3.13", "# python 3.12", False),
        ("manylinux_2_40", "manylinux_2_28", False),
        (f"torch==2.14.1 --hash=sha256:{B}", f"torch==2.14.1 --hash=sha256:{C}", False),
        ("nvidia-cuda-nvcc==13.0.88", "nvidia-cuda-nvcc==13.0.89", False),
    ],
)
def test_id_changes_only_with_what_is_installed(old: str, new: str, same: bool) -> None:
    assert old in TEXT
    assert (_lock.parse(TEXT.replace(old, new)).id == _lock.parse(TEXT).id) is same


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("lock 1", "lock 2", "line 1 "),
        ("# blackwell", "blackwell", "line 1 "),
        ("# python 3.13", "# python 2.7", "line 2 "),
        ("# python 3.13", "# interpreter 3.13", "line 2 "),
        ("# platform x86_64-manylinux_2_40", "# python 3.13", "line 3 "),
        ("# stack 0123456789abcdef", "# stack ../../etc", "line 4 "),
        ("T00:00:00Z", "", "line 5 "),
        (f"sha256:{A}", "sha256:abc", "line 6 "),
        (f" --hash=sha256:{A}", "", "line 6 "),
        (" 4096\n", "\n", "line 6 "),
        ("flashinfer-python==", "flashinfer_python==", "line 6 "),
        ("flashinfer-python==", "flashinfer-cubin==", "line 6 "),
        ("# flashinfer_python-0.7.2", "# ../flashinfer_python-0.7.2", "line 6 "),
        ("flashinfer-python==0.7.2 ", "-e flashinfer-python==0.7.2 ", "line 6 "),
        ("torch==2.14.1 ", "--index-url=x torch==2.14.1 ", "line 7 "),
        ("torch==2.14.1 --hash", "torch==2.14.1\n\n --hash", "line 7 "),
        ("#toolkit", "#tools", "line 8 "),
        ("39000000\n", "39000000", "cut off"),
    ],
)
def test_anything_else_is_refused_with_its_line(old: str, new: str, line: str) -> None:
    assert old in TEXT
    with pytest.raises(_lock.LockError, match=line):
        _lock.parse(TEXT.replace(old, new, 1))


@pytest.mark.parametrize("number", [6, 7])
def test_order_and_repetition_are_refused(number: int) -> None:
    lines = TEXT.splitlines()
    lines[5], lines[6] = (lines[6], lines[5]) if number == 7 else (lines[5], lines[5])
    with pytest.raises(_lock.LockError, match=r"line 7 .*sorted"):
        _lock.parse("\n".join(lines) + "\n")


def test_requirement_after_toolkit_is_refused() -> None:
    with pytest.raises(_lock.LockError, match="line 9 "):
        _lock.parse(TEXT + f"zzz==1 --hash=sha256:{A}  # zzz-1-py3-none-any.whl 1\n")


@pytest.mark.parametrize("missing", ["# python 3.13\n", "# platform x86_64-manylinux_2_40\n"])
def test_header_must_be_complete(missing: str) -> None:
    with pytest.raises(_lock.LockError, match="no line"):
        _lock.parse(TEXT.replace(missing, ""))


@pytest.mark.parametrize("value", [None, b"", 3, [], ""])
def test_not_a_lock_at_all(value: object) -> None:
    with pytest.raises(_lock.LockError):
        _lock.parse(value)


def test_a_lock_without_requirements_is_refused() -> None:
    with pytest.raises(_lock.LockError, match="no requirement"):
        _lock.parse("# blackwell.inference lock 1\n# python any\n# platform any\n")


@given(st.text())
def test_hostile_text_never_crashes(text: str) -> None:
    for candidate in (text, TEXT + text + "\n", TEXT.replace("torch", text, 1)):
        try:
            _lock.parse(candidate)
        except _lock.LockError as error:
            assert str(error)
