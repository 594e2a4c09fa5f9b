# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""uv itself answers here, from an index that the test makes."""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.blackwell.inference.plugins.module_utils import _lock
from ansible_collections.blackwell.inference.plugins.plugin_utils import _compile, _knowledge, _locker
from ansible_collections.blackwell.inference.plugins.plugin_utils._compile import LockingError
from ansible_collections.blackwell.inference.plugins.plugin_utils._resolver import resolve
from packaging.tags import Tag

sys.path.insert(0, str(Path(__file__).parent))
import index as served

ROOT = Path(__file__).resolve().parents[4]
FACTS = yaml.safe_load((ROOT / "inventory/facts/rtx-pro-6000-x8.yml").read_text())
PLAN = resolve(_knowledge.load(), FACTS["gpu"], FACTS["model"])


@pytest.fixture
def index() -> Iterator[served.Index]:
    with served.stocked() as running:
        yield running


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")


def make(url: str, plan: dict[str, Any] | None = None) -> _lock.Lock:
    return _locker.make(_compile.runner(60), _compile.find_uv(None), plan or PLAN, _compile.environment(os.environ, url))


def test_one_wheel_of_each_distribution_as_of_the_releases_day(index: served.Index) -> None:
    lock = make(index.url)
    assert (lock.python, lock.platform) == ("3.13", "x86_64-manylinux_2_40")
    assert (lock.stack_id, lock.as_of) == (PLAN["stack_id"], "2026-10-31T00:00:00Z")
    assert [entry.pin().split(" ")[0] for entry in lock.requirements] == [
        "flashinfer-python==0.7.2",
        "helper==1.0",
        "sglang==0.5.23",
        "sglang-kernel==0.4.10",
        "torch==2.14.1",
    ]
    files = {entry.name: entry for entry in lock.files()}
    assert files["torch"].filename == "torch-2.14.1-cp313-cp313-manylinux_2_28_x86_64.whl"
    assert files["helper"].filename.startswith("helper-1.0-cp313-cp313-")
    for entry in lock.files():
        assert len(index.files[entry.filename]) == entry.size


def test_toolkit_is_locked_apart_and_without_dependencies(index: served.Index) -> None:
    toolkit = [f"{entry.name}=={entry.version}" for entry in make(index.url).toolkit]
    assert toolkit == PLAN["stack"]["extra"]["toolkit"]


def test_overrides_of_what_nobody_asks_for_are_harmless(index: served.Index) -> None:
    assert "outlines-core==0.2.11" in PLAN["stack"]["extra"]["overrides"]
    assert "outlines-core" not in [entry.name for entry in make(index.url).requirements]


def test_an_override_that_is_needed_counts(index: served.Index) -> None:
    index.add("helper==1.5")
    plan = copy.deepcopy(PLAN)
    plan["stack"]["extra"]["overrides"].append("helper==1.0")
    assert "helper==1.0" in make(index.url, plan).text()
    assert "helper==1.5" in make(index.url).text()


def test_same_plan_same_bytes(index: served.Index) -> None:
    first, second = make(index.url), make(index.url)
    assert first.text() == second.text()
    assert _lock.parse(first.text()) == first
    assert index.url not in first.text()


def test_an_index_without_upload_times_is_refused() -> None:
    with served.stocked(frozenset({"upload-time"})) as index, pytest.raises(LockingError, match="upload times"):
        make(index.url)


def test_an_index_without_sizes_is_refused() -> None:
    with served.stocked(frozenset({"size"})) as index, pytest.raises(LockingError, match="no size of"):
        make(index.url)


def test_nothing_is_built(index: served.Index) -> None:
    index.add("sourceonly==1.0", sdist=True)
    index.projects["sglang"].clear()
    index.add("sglang==0.5.23", ["sourceonly"])
    with pytest.raises(LockingError, match=r"sourceonly[\s\S]*another release"):
        make(index.url)


def test_an_index_with_other_pins_is_refused(index: served.Index) -> None:
    index.projects["sglang"].clear()
    index.add("sglang==0.5.23", ["torch==2.14.0", "sglang-kernel==0.4.10", "flashinfer-python==0.7.2"])
    index.projects["sglang-kernel"].clear()
    index.add("sglang-kernel==0.4.10", tag="cp310-abi3-manylinux2014_x86_64")
    index.add("torch==2.14.0")
    with pytest.raises(LockingError, match=r"torch 2\.14\.0, wanted 2\.14\.1"):
        make(index.url)


def test_no_solution_is_told_in_uvs_words(index: served.Index) -> None:
    index.projects["helper"].clear()
    index.add("helper==2.0", upload=served.NEW)
    with pytest.raises(LockingError, match=r"helper[\s\S]*sglang_version"):
        make(index.url)


def test_an_index_that_does_not_answer_is_told_without_its_password() -> None:
    with pytest.raises(LockingError) as raised:
        make("http://somebody:secret@127.0.0.1:9/simple/")
    assert "existing lock" in str(raised.value)
    assert "secret" not in str(raised.value)


def test_the_password_is_in_no_command_line() -> None:
    seen: list[list[str]] = []

    def run(argv: list[str], environ: dict[str, str]) -> tuple[int, str, str]:
        seen.append(argv)
        assert "secret" in environ["UV_DEFAULT_INDEX"]
        return 0, "", ""

    question = _compile.Question(["a==1"], "3.13", "x86_64-manylinux_2_28", "2026-10-31T00:00:00Z")
    _compile.ask(run, "uv", question, _compile.environment({}, "http://somebody:secret@index/simple/"))
    assert "secret" not in " ".join(seen[0])


@pytest.mark.parametrize(
    ("machine", "glibc", "wanted"),
    [
        ("x86_64", "2.41", "x86_64-manylinux_2_40"),
        ("x86_64", "2.36", "x86_64-manylinux_2_36"),
        ("aarch64", "2.29", "aarch64-manylinux_2_28"),
        ("x86_64", "2.17", "x86_64-manylinux_2_17"),
    ],
)
def test_platform(machine: str, glibc: str, wanted: str) -> None:
    assert _compile.platform(machine, glibc) == wanted


@pytest.mark.parametrize("glibc", ["2.12", "3.0", "musl"])
def test_platform_too_old(glibc: str) -> None:
    with pytest.raises(LockingError, match="glibc"):
        _compile.platform("x86_64", glibc)


def test_surroundings_cannot_change_the_answer() -> None:
    given = {"PATH": "/bin", "UV_INDEX_URL": "a", "UV_INDEX_MINE_PASSWORD": "p", "UV_OVERRIDE": "x", "UV_EXCLUDE_NEWER": "2020-01-01"}
    own = _compile.environment(given, None)
    assert own["UV_INDEX_URL"] == "a" and own["UV_INDEX_MINE_PASSWORD"] == "p" and own["UV_PYTHON_DOWNLOADS"] == "never"
    assert "UV_OVERRIDE" not in own and "UV_EXCLUDE_NEWER" not in own
    other = _compile.environment(given, "http://index/simple/")
    assert other["UV_DEFAULT_INDEX"] == "http://index/simple/" and "UV_INDEX_URL" not in other


def test_uv_that_hangs_or_is_absent_is_told() -> None:
    assert _compile.runner(1)(["sleep", "9"], {"PATH": "/bin:/usr/bin"})[2].startswith("uv was ended")
    assert _compile.runner(1)(["/nonexistent/uv"], {})[0] == 1
    with pytest.raises(LockingError, match="executable"):
        _compile.find_uv("/nonexistent/uv")


def test_tags_prefer_the_interpreters_own_and_know_no_other_machine() -> None:
    accepted = _locker.tags("3.13", "x86_64-manylinux_2_34")
    own, stable = Tag("cp313", "cp313", "manylinux_2_34_x86_64"), Tag("cp310", "abi3", "manylinux2014_x86_64")
    pure = Tag("py3", "none", "any")
    assert accepted[own] < accepted[stable] < accepted[pure]
    for refused in ("manylinux_2_35_x86_64", "manylinux_2_17_aarch64", "musllinux_1_2_x86_64"):
        assert Tag("cp313", "cp313", refused) not in accepted
    assert Tag("cp312", "cp312", "manylinux_2_17_x86_64") not in accepted
    assert Tag("cp313", "cp313", "manylinux2014_aarch64") in _locker.tags("3.13", "aarch64-manylinux_2_28")


def test_a_fixed_lock_names_no_stack(index: served.Index) -> None:
    environ = _compile.environment(os.environ, index.url)
    target = ("3.13", "x86_64-manylinux_2_28")
    lock = _locker.make_fixed(_compile.runner(60), _compile.find_uv(None), ["helper==1.0"], target, "2026-11-30T00:00:00Z", environ, True)
    assert lock.text().splitlines()[:3] == ["# blackwell.inference lock 1", "# python any", "# platform any"]
    assert _lock.parse(lock.text()).stack_id is None


@pytest.mark.parametrize("file", ["pve_host/files/pve.lock", "pve_host/files/uv.lock", "gateway/files/gateway.lock"])
def test_the_locks_that_are_shipped_are_locks(file: str) -> None:
    text = (ROOT / "roles" / file).read_text()
    assert _lock.parse(text).text() == text
