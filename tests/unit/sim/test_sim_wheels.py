# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import base64
import hashlib
import zipfile
from pathlib import Path

import pytest
from sim.releases import WHEELS, Wheel, without_code_for
from sim.wheels import metadata, read_metadata, write_wheel

PURE = Wheel("lab-thing", "1.0.post1", "py3-none-any", "2026-01-01T00:00:00Z", ">=3.9", "lab_thing")
FILES = {"lab_thing/__init__.py": b"x = 1\n", "lab_thing/a.so": b"\x7fELF"}


def wheel_of(project: str, version: str) -> Wheel:
    return next(w for w in WHEELS if (w.project, w.version) == (project, version))


def test_equal_input_gives_equal_bytes(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first = write_wheel(PURE, FILES, tmp_path / "a")
    second = write_wheel(PURE, dict(reversed(FILES.items())), tmp_path / "b")
    assert first.name == "lab_thing-1.0.post1-py3-none-any.whl"
    assert first.read_bytes() == second.read_bytes()


def test_record_names_every_member_with_its_hash(tmp_path: Path) -> None:
    with zipfile.ZipFile(write_wheel(PURE, FILES, tmp_path)) as archive:
        record = archive.read("lab_thing-1.0.post1.dist-info/RECORD").decode()
        rows = [line.split(",") for line in record.splitlines()]
        assert sorted(row[0] for row in rows) == sorted(archive.namelist())
        for name, digest, size in rows:
            if name.endswith("RECORD"):
                assert (digest, size) == ("", "")
                continue
            content = archive.read(name)
            expected = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
            assert (digest, size) == (f"sha256={expected}", str(len(content)))


def test_metadata_holds_the_pins() -> None:
    text = metadata(wheel_of("sglang", "0.5.23"))
    assert "Name: sglang\nVersion: 0.5.23\n" in text
    assert "Requires-Python: >=3.11\n" in text
    assert "Requires-Dist: flashinfer_python[cu13]==0.7.2\n" in text
    assert "Provides-Extra: cu13\n" in metadata(wheel_of("flashinfer-python", "0.7.2"))


def test_metadata_is_read_back(tmp_path: Path) -> None:
    assert read_metadata(write_wheel(PURE, FILES, tmp_path)) == metadata(PURE).encode()


def test_a_zip_that_is_no_wheel_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme", "")
    with pytest.raises(ValueError, match="found 0 METADATA files"):
        read_metadata(path)


@pytest.mark.parametrize(
    ("version", "library", "expected"),
    [
        ("0.4.10", "sm100/common_ops", ("80", "89", "90", "90a", "100f", "120a")),
        ("0.4.10", "flashmla_ops", ("90a", "100f", "103a")),
        ("0.4.10", "flash_ops", ("80", "86", "90a")),
        ("0.4.2.post2", "spatial_ops", ("80", "89", "90", "90a", "100a", "103a", "120a")),
        ("0.4.2.post2", "flashmla_ops", ("90a", "100a", "103a")),
    ],
)
def test_architectures_are_the_measured_ones(version: str, library: str, expected: tuple[str, ...]) -> None:
    code = wheel_of("sglang-kernel", version).code[f"sgl_kernel/{library}.abi3.so"]
    assert [architectures for _, architectures in code] == [expected]


def test_the_wrong_wheel_differs_in_code_only() -> None:
    right = wheel_of("sglang-kernel", "0.4.10")
    wrong = without_code_for(right, "120")
    assert (wrong.filename, metadata(wrong)) == (right.filename, metadata(right))
    held = {arch for units in wrong.code.values() for _, architectures in units for arch in architectures}
    assert not any(arch.startswith("12") for arch in held)
    assert "90a" in held
