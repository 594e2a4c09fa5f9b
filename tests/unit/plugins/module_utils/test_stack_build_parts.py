# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.blackwell.inference.plugins.module_utils import (
    _environment,
    _manifest,
    _stack,
    _switch,
    _toolkit,
    _uv,
)
from ansible_collections.blackwell.inference.plugins.module_utils._lock import LockError
from ansible_collections.blackwell.inference.plugins.module_utils._refusal import Refusal
from ansible_collections.blackwell.inference.tests.unit.plugins.module_utils import wheel_kit
from ansible_collections.blackwell.inference.tests.unit.plugins.module_utils.wheel_kit import Site

RUN = _uv.runner()


class Killed(BaseException):
    """Stands for a kill: no handler for ordinary errors may swallow it."""


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return wheel_kit.small_site(tmp_path / "store")


def store_of(site: Site) -> _stack.Store:
    return _stack.Store(str(site.root), str(site.wheels))


def build(site: Site, run: _uv.Run = RUN) -> Path:
    store = store_of(site)
    _stack.clean(store)
    _stack.build(store, site.lock, wheel_kit.real_uv(), sys.executable, run)
    return Path(store.stack(site.lock.id))


def run_in(stack: Path, code: str) -> str:
    status, out, err = RUN([str(stack / "bin" / "python"), "-B", "-c", code], {"PATH": "/usr/bin:/bin"})
    assert status == 0, err
    return out.strip()


# A whole build


def test_a_built_stack_works_and_is_whole(site: Site) -> None:
    stack = build(site)
    assert run_in(stack, "import alpha, beta; print(alpha.value, beta.value)") == "1 2"
    manifest = _manifest.read(str(stack))
    assert manifest is not None and manifest["lock_id"] == site.lock.id
    paths = {entry["path"] for entry in manifest["files"]}
    assert {"stack.lock", "cuda/bin/nvcc", "cuda/lib64", "cuda/lib/libcudart.so", "bin/python"} <= paths
    assert any(path.endswith("alpha/__pycache__/__init__." + sys.implementation.cache_tag + ".pyc") for path in paths)
    assert _stack.problem(str(stack)) is None
    assert (stack / "stack.lock").read_text() == site.lock.text()
    assert (stack / "cuda" / "lib64").resolve() == stack / "cuda" / "lib"


def test_files_are_links_into_the_cache_and_readable_for_all(site: Site) -> None:
    stack = build(site)
    module = next(stack.glob("lib/python*/site-packages/alpha/__init__.py"))
    assert module.stat().st_nlink > 1
    assert (stack / "cuda" / "include" / "cuda.h").stat().st_nlink > 1
    for path in stack.rglob("*"):
        if not path.is_symlink():
            mode = path.stat().st_mode & 0o777
            assert mode & 0o444 == 0o444 and (not path.is_dir() or mode & 0o111 == 0o111), path


def test_a_second_generation_shares_its_files(site: Site) -> None:
    first = build(site)
    site.requirements.append(wheel_kit.write_wheel(site.wheels, "gamma"))
    second = build(site)
    assert first != second and _stack.problem(str(first)) is None

    def module(stack: Path) -> Path:
        return next(stack.glob("lib/python*/site-packages/alpha/__init__.py"))

    assert module(first).stat().st_ino == module(second).stat().st_ino
    assert (first / "cuda/bin/nvcc").stat().st_ino == (second / "cuda/bin/nvcc").stat().st_ino


def test_copies_instead_of_links_are_an_error(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = _uv.environment

    def copying(cache: str | None, bytecode: bool = True) -> dict[str, str]:
        return {**settings(cache, bytecode), "UV_LINK_MODE": "copy"}

    monkeypatch.setattr(_uv, "environment", copying)
    with pytest.raises(Refusal, match="copied") as refused:
        build(site)
    assert "Mount the whole store once" in refused.value.remedy
    assert os.listdir(site.root / "stacks") == []


def test_a_vendored_distribution_is_no_copy(site: Site) -> None:
    files = {"delta/__init__.py": b"", "delta/_vendor/x-1.dist-info/RECORD": b"x/__init__.py,,\n"}
    site.requirements.append(wheel_kit.write_wheel(site.wheels, "delta", files=files))
    stack = build(site)
    assert next(stack.glob("lib/python*/site-packages/delta/_vendor/x-1.dist-info/RECORD")).stat().st_nlink == 1


# Hostile input


@pytest.mark.parametrize("spoil", ["absent", "truncated"])
def test_an_absent_or_truncated_wheel_is_named_before_anything_is_made(site: Site, spoil: str) -> None:
    wheel = site.wheels / site.requirements[1].filename
    if spoil == "absent":
        wheel.unlink()
    else:
        os.truncate(wheel, 100)
    with pytest.raises(Refusal, match=wheel.name):
        build(site)
    assert os.listdir(site.root / "stacks") == []


def swap(wheel: Path) -> None:
    """Other content of the same length: only its hash tells."""
    data = bytearray(wheel.read_bytes())
    data[len(data) // 3] ^= 1
    wheel.write_bytes(bytes(data))


@pytest.mark.parametrize("kind", ["requirements", "toolkit"])
def test_a_swapped_wheel_is_named_with_both_hashes(site: Site, kind: str) -> None:
    wanted = getattr(site, kind)[0]
    swap(site.wheels / wanted.filename)
    with pytest.raises(Refusal, match=wanted.filename) as refused:
        build(site)
    assert wanted.sha256 in refused.value.wanted and "sha256" in refused.value.found
    assert os.listdir(site.root / "stacks") == []


def test_a_damaged_cache_is_dropped_and_filled_again(site: Site) -> None:
    """A power cut leaves empty files in a cache whose names are already there."""
    first = build(site)
    for path in (first.glob("lib/python*/site-packages/alpha/__init__.py"), first.glob("cuda/include/cuda.h")):
        os.truncate(next(path), 0)
    assert _stack.problem(str(first)) is not None
    stack = build(site)
    assert stack == first and run_in(stack, "import alpha; print(alpha.value)") == "1"
    assert (stack / "cuda/include/cuda.h").read_bytes() == b"/* */\n"


def test_a_cache_that_stays_damaged_is_an_error(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def contents(*_arguments: Any) -> dict[str, set[tuple[int, int]]]:
        return {"lib/never": {(1, 1)}}

    monkeypatch.setattr(_stack, "contents", contents)
    with pytest.raises(Refusal, match="differ from their wheel"):
        build(site)
    assert os.listdir(site.root / "stacks") == []


def test_a_toolkit_without_a_compiler_or_with_mixed_parts(site: Site) -> None:
    both = site.toolkit
    site.toolkit = [both[1]]
    with pytest.raises(Refusal, match="no executable bin/nvcc"):
        build(site)
    other = wheel_kit.write_wheel(site.wheels, "nvidia-cuda-crt", files={"nvidia/cu13/include/cuda.h": b"/* other */\n"})
    site.toolkit = [other, *both]
    with pytest.raises(Refusal, match="different content"):
        build(site)
    assert os.listdir(site.root / "stacks") == []


def test_a_wrong_interpreter_is_refused(site: Site) -> None:
    lock = wheel_kit.lock_of(site.requirements, python="3.99")
    with pytest.raises(Refusal, match=r"no python3\.99"):
        _uv.interpreter(lock, None, shutil.which)
    with pytest.raises(Refusal, match=r"found Python 3\.\d+; wanted Python 3\.99"):
        _uv.require_version(sys.executable, lock, RUN)
    with pytest.raises(Refusal, match="no /nonexistent/python"):
        _uv.interpreter(site.lock, "/nonexistent/python", shutil.which)


# Interruptions: each step of a build fails or is killed once, and the next run converges

STEPS = [
    (_stack, "write_atomic"),
    (_uv, "build"),
    (_toolkit, "unpack"),
    (_toolkit, "merge"),
    (_toolkit, "finish"),
    (_manifest, "read_files"),
    (_stack, "contents"),
    (_stack, "compare"),
    (_stack, "open_to_all"),
    (_manifest, "compose"),
    (_stack, "sync_file_system"),
    (_stack, "sync_folder"),
    (os, "replace"),
]


@pytest.mark.parametrize(("module", "step"), STEPS, ids=[step for _module, step in STEPS])
@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
def test_an_interrupted_build_leaves_nothing_that_looks_done(
    site: Site, monkeypatch: pytest.MonkeyPatch, module: Any, step: str, late: bool
) -> None:
    original = getattr(module, step)

    def interrupted(*arguments: Any, **named: Any) -> Any:
        if late:
            original(*arguments, **named)
        raise Killed

    monkeypatch.setattr(module, step, interrupted)
    # A kill gives no time to clean up either.
    monkeypatch.setattr(_stack, "remove_tree", lambda _path: None)
    with pytest.raises(Killed):
        build(site)
    monkeypatch.undo()
    path = Path(store_of(site).stack(site.lock.id))
    finished = (module, step, late) == (_stack, "sync_folder", True) or (module, step) == (_stack, "sync_folder")
    if path.is_dir() and not finished:
        assert _stack.problem(str(path)) is not None
    stack = build(site)
    assert _stack.problem(str(stack)) is None and run_in(stack, "import beta; print(beta.value)") == "2"
    assert [name for name in os.listdir(site.root / "stacks") if not name.startswith(".")] == [site.lock.id]


def test_a_full_disk_is_cleaned_up(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_path: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_stack, "sync_file_system", full)
    with pytest.raises(OSError, match="No space"):
        build(site)
    assert os.listdir(site.root / "stacks") == []


# What counts as a stack


def fake_stack(root: Path, lock_id: str = "0123456789abcdef") -> Path:
    stack = root / lock_id
    (stack / "bin").mkdir(parents=True)
    (stack / "bin" / "tool").write_text("x")
    (stack / "link").symlink_to("bin")
    (stack / _manifest.NAME).write_bytes(_manifest.compose(lock_id, "python3.13", _manifest.read_files(str(stack))))
    return stack


@pytest.mark.parametrize("keep", [0, 1, 20, -3, -30])
def test_a_cut_manifest_makes_no_stack(tmp_path: Path, keep: int) -> None:
    stack = fake_stack(tmp_path)
    manifest = stack / _manifest.NAME
    assert _stack.problem(str(stack)) is None
    manifest.write_bytes(manifest.read_bytes()[:keep])
    assert _manifest.read(str(stack)) is None
    assert _stack.leftovers(str(tmp_path)) == [stack.name]


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        "null",
        '{"version": 1}',
        '{"version": 1, "lock_id": "0123456789abcdef", "count": 1, "files": [1]}',
        '{"version": 1, "lock_id": "fedcba9876543210", "count": 0, "files": []}',
        '{"version": 1, "lock_id": "0123456789abcdef", "count": 5, "files": []}',
    ],
)
def test_a_foreign_manifest_makes_no_stack(tmp_path: Path, content: str) -> None:
    stack = fake_stack(tmp_path)
    (stack / _manifest.NAME).write_text(content)
    assert _stack.problem(str(stack)) == "it has no valid manifest"


def test_a_copied_folder_under_another_name_is_no_stack(tmp_path: Path) -> None:
    fake_stack(tmp_path).rename(tmp_path / "fedcba9876543210")
    assert _manifest.read(str(tmp_path / "fedcba9876543210")) is None


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda stack: (stack / "bin/tool").write_text("longer"), "bin/tool has 6 bytes"),
        (lambda stack: (stack / "bin/tool").unlink(), "bin/tool is absent"),
        (lambda stack: (stack / "new").write_text(""), "new is not in the manifest"),
        (lambda stack: ((stack / "link").unlink(), (stack / "link").symlink_to("/")), "link is another link"),
        (lambda stack: ((stack / "bin/tool").unlink(), (stack / "bin/tool").symlink_to("x")), "bin/tool is another"),
    ],
)
def test_damage_is_seen_without_reading_files(tmp_path: Path, harm: Any, said: str) -> None:
    stack = fake_stack(tmp_path)
    harm(stack)
    assert said in str(_stack.problem(str(stack)))


def test_only_unfinished_stacks_are_leftovers(tmp_path: Path) -> None:
    fake_stack(tmp_path)
    for name in ("fedcba9876543210", "notes", "0123456789ABCDEF", ".removing-1111111111111111"):
        (tmp_path / name).mkdir()
    assert _stack.leftovers(str(tmp_path)) == ["fedcba9876543210"]
    _stack.clean(_stack.Store(str(tmp_path.parent), "") if tmp_path.name == "stacks" else _store_at(tmp_path))
    assert sorted(os.listdir(tmp_path)) == ["0123456789ABCDEF", "0123456789abcdef", "notes"]


def _store_at(stacks: Path) -> _stack.Store:
    class Here(_stack.Store):
        @property
        def stacks(self) -> str:
            return str(stacks)

    return Here(str(stacks), "")


@pytest.mark.parametrize(
    ("member", "place"),
    [
        ("nvidia/cu13/bin/nvcc", "bin/nvcc"),
        ("nvidia/cuda_nvcc/nvvm/bin/cicc", "nvvm/bin/cicc"),
        ("nvidia/cu13/include/cccl/cub/cub.cuh", "include/cccl/cub/cub.cuh"),
        ("nvidia/cu13/.metadata/provenance.txt", None),
        ("nvidia/__init__.py", None),
        ("nvidia/cuda_nvcc/__init__.py", None),
        ("nvidia_cuda_nvcc-13.0.88.dist-info/RECORD", None),
        ("nvidia/cu13/../../../etc/passwd", None),
        ("nvidia/cu13//etc/passwd", None),
        ("/etc/passwd", None),
        ("", None),
    ],
)
def test_where_toolkit_files_go(member: str, place: str | None) -> None:
    assert _toolkit.placed(member) == place


# uv itself


def test_uv_comes_out_of_its_own_wheel_once(tmp_path: Path) -> None:
    lock = wheel_kit.lock_of([wheel_kit.uv_wheel(tmp_path / "w")], python="any")
    folder = tmp_path / "bin"
    predicted = _uv.executable(lock.text(), str(tmp_path / "w"), True, str(folder))
    assert not folder.exists()
    path = _uv.executable(lock.text(), str(tmp_path / "w"), False, str(folder))
    assert path == predicted and os.access(path, os.X_OK)
    assert RUN([path, "--version"], {})[1].startswith("uv ")
    shutil.rmtree(tmp_path / "w")
    assert _uv.executable(lock.text(), str(tmp_path / "w"), False, str(folder)) == path


def test_a_swapped_uv_is_never_extracted(tmp_path: Path) -> None:
    requirement = wheel_kit.uv_wheel(tmp_path)
    swap(tmp_path / requirement.filename)
    with pytest.raises(Refusal, match="sha256"):
        _uv.executable(wheel_kit.lock_of([requirement]).text(), str(tmp_path), False, str(tmp_path / "bin"))
    assert not (tmp_path / "bin").exists()


def test_a_lock_or_a_wheel_without_uv(tmp_path: Path) -> None:
    other = wheel_kit.write_wheel(tmp_path, "alpha")
    with pytest.raises(LockError, match="does not name uv"):
        _uv.executable(wheel_kit.lock_of([other]).text(), str(tmp_path), False, str(tmp_path / "bin"))
    empty = wheel_kit.write_wheel(tmp_path, "uv")
    with pytest.raises(Refusal, match="no executable uv"):
        _uv.executable(wheel_kit.lock_of([empty]).text(), str(tmp_path), False, str(tmp_path / "bin"))


def test_uv_sees_nothing_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_INDEX_URL", "http://elsewhere/")
    settings = _uv.environment("/cache")
    assert not {name for name in settings if "INDEX" in name or "PROXY" in name.upper()}
    assert (settings["UV_OFFLINE"], settings["UV_LINK_MODE"], settings["UV_PYTHON_DOWNLOADS"]) == ("1", "hardlink", "never")


# Small environments


def wanted_environment(site: Site, path: Path) -> _environment.Wanted:
    return _environment.Wanted(str(path), site.lock, sys.executable, wheel_kit.PYTHON)


def make(site: Site, path: Path) -> None:
    _environment.build(wanted_environment(site, path), wheel_kit.real_uv(), str(site.wheels), RUN)


def test_an_environment_is_made_once_and_replaced_as_a_whole(site: Site, tmp_path: Path) -> None:
    path = tmp_path / "opt" / "env"
    make(site, path)
    assert _environment.is_current(wanted_environment(site, path))
    assert run_in(path, "import alpha; print(alpha.value)") == "1"
    site.requirements = [wheel_kit.write_wheel(site.wheels, "gamma")]
    assert not _environment.is_current(wanted_environment(site, path))
    make(site, path)
    assert run_in(path, "import gamma; print(gamma.value)") == "1"
    assert not list(path.glob("lib/python*/site-packages/alpha"))
    assert os.listdir(path.parent) == ["env"]


@pytest.mark.parametrize("step", ["write_atomic", "sync_file_system", "sync_folder"])
def test_an_interrupted_environment_is_made_again(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    path = tmp_path / "env"

    def killed(*_arguments: Any) -> None:
        raise Killed

    monkeypatch.setattr(_environment, step, killed)
    monkeypatch.setattr(_environment, "remove_tree", lambda _path: None)
    with pytest.raises(Killed):
        make(site, path)
    monkeypatch.undo()
    if step != "sync_folder":
        assert not _environment.is_current(wanted_environment(site, path))
    make(site, path)
    assert _environment.is_current(wanted_environment(site, path))


@pytest.mark.parametrize("harm", ["manifest", "python", "other python"])
def test_a_damaged_environment_is_not_current(site: Site, tmp_path: Path, harm: str) -> None:
    path = tmp_path / "env"
    make(site, path)
    wanted = wanted_environment(site, path)
    if harm == "manifest":
        (path / _environment.MANIFEST).write_text("{")
    elif harm == "python":
        (path / "bin" / "python").unlink()
    else:
        wanted = _environment.Wanted(str(path), site.lock, sys.executable, "3.99")
    assert not _environment.is_current(wanted)


def test_a_foreign_folder_is_never_removed(site: Site, tmp_path: Path) -> None:
    path = tmp_path / "home"
    path.mkdir()
    (path / "precious").write_text("x")
    with pytest.raises(Refusal, match="did not make"):
        make(site, path)
    assert (path / "precious").read_text() == "x"
    link = tmp_path / "link"
    link.symlink_to(path)
    with pytest.raises(Refusal, match="did not make"):
        make(site, link)


# Switching


def test_switching_keeps_the_way_back(tmp_path: Path) -> None:
    state, first, second = str(tmp_path / "state"), "/s/1", "/s/2"
    for path, wanted in (
        (first, (first, None)),
        (first, (first, None)),
        (second, (second, first)),
        (second, (second, first)),
        (first, (first, second)),
    ):
        before = _switch.read(state)
        after = _switch.decide(before, path, lambda _path: True)
        _switch.apply(state, before, after)
        assert (after.current, after.previous) == wanted
        assert _switch.read(state) == after


def test_a_link_bent_to_nowhere_does_not_become_the_way_back() -> None:
    bent = _switch.Links("/nowhere", "/s/1")
    assert _switch.decide(bent, "/s/2", lambda path: path != "/nowhere") == _switch.Links("/s/2", "/s/1")


def test_only_a_stack_can_be_switched_to(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="no stack"):
        _switch.require_stack(str(tmp_path))
    _switch.require_stack(str(fake_stack(tmp_path)))


def test_a_file_in_place_of_the_link_is_named(tmp_path: Path) -> None:
    (tmp_path / "current").write_text("")
    with pytest.raises(Refusal, match="no link"):
        _switch.read(str(tmp_path))


def test_the_manifest_is_one_line_a_file(tmp_path: Path) -> None:
    text = (fake_stack(tmp_path) / _manifest.NAME).read_text()
    assert len(text.splitlines()) == 4
    assert json.loads(text)["bytes"] == 1
