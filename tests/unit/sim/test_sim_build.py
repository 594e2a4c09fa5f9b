# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import hashlib
import threading
from pathlib import Path

import pytest
from sim import build, toolkit
from sim.releases import WHEELS
from sim.store import BuildError, build_once


def test_built_once(tmp_path: Path) -> None:
    calls: list[Path] = []

    def make(folder: Path) -> None:
        calls.append(folder)
        (folder / "x").touch()

    threads = [threading.Thread(target=build_once, args=(tmp_path, "kind", "key", make)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 1
    assert [p.name for p in (tmp_path / "kind" / "key").iterdir()] == ["x"]


def test_an_unfinished_folder_is_never_taken(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").touch()
        raise BuildError("no")

    with pytest.raises(BuildError):
        build_once(tmp_path, "kind", "key", fail)
    assert not (tmp_path / "kind" / "key").exists()
    assert list(build_once(tmp_path, "kind", "key", lambda folder: None).iterdir()) == []
    assert list((tmp_path / "kind").glob(".unfinished-*")) == []


def test_the_lock_is_understood_whole() -> None:
    text = toolkit.LOCK.read_text(encoding="utf-8")
    packages = {package.project: package for package in toolkit.parse_lock(text)}
    assert len(packages) == sum(1 for line in text.splitlines() if line and not line.startswith("#"))
    assert packages["smg"].version == "1.13.0"
    assert packages["proxmoxer"].requires_python is None
    versions = {p.version.rsplit(".", 1)[0] for name, p in packages.items() if name.startswith("nvidia-")}
    assert versions == {"13.0"}


@pytest.mark.parametrize("line", ["smg==1.13.0", "smg --hash=sha256:0", "smg==1 --hash=sha256:" + "0" * 64])
def test_other_lines_are_refused_by_number(line: str) -> None:
    with pytest.raises(BuildError, match=r"packages\.lock line 2"):
        toolkit.parse_lock(f"# comment\n{line}\n")


def test_a_compiler_from_elsewhere_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="not the lab's own compiler"):
        toolkit.compile_unit(Path("/usr/local/cuda"), tmp_path / "x.cu", ["120"], tmp_path / "x.o")


def test_versions_are_filled_in() -> None:
    for wheel in WHEELS:
        files = build.package_files(wheel)
        text = b"".join(content for name, content in files.items() if name.endswith(".py"))
        assert b"@VERSION@" not in text
        assert b"@CUDA@" not in text
        assert f'"{wheel.version}'.encode() in text


def test_the_engine_carries_the_flags_of_its_release() -> None:
    engines = {w.version: build.package_files(w)["sglang/flags.txt"] for w in WHEELS if w.project == "sglang"}
    assert b"\n--bf16-gemm-backend value" in engines["0.5.23"]
    assert b"\n--bf16-gemm-backend value" not in engines["0.5.12.post1"]


def test_the_key_follows_the_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.py").write_text("1", encoding="ascii")
    monkeypatch.setattr(build, "HERE", tmp_path)
    keys = [build.recipe_key()]
    for name, content in (("README.md", "x"), ("a.py", "2"), ("b.py", "")):
        (tmp_path / name).write_text(content, encoding="ascii")
        keys.append(build.recipe_key())
    assert keys[0] == keys[1]
    assert len(set(keys)) == 3


def test_lost_downloads_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = tmp_path / "packages.lock"
    digest = hashlib.sha256(b"x").hexdigest()
    lock.write_text(f"x==1 --hash=sha256:{digest}  # x-1-py3-none-any.whl 1 2026-01-01T00:00:00Z -\n", encoding="ascii")
    monkeypatch.setattr(toolkit, "LOCK", lock)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(BuildError, match="pip could not fetch"):
        toolkit.fetch_packages(tmp_path / "cache")
