# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""uv itself answers here, from an index that the test makes."""

from __future__ import annotations

import base64
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


@pytest.mark.parametrize("password", ["secret", "sec@ret"])
def test_an_index_that_does_not_answer_is_told_without_its_password(password: str) -> None:
    with pytest.raises(LockingError) as raised:
        make(f"http://somebody:{password}@127.0.0.1:9/simple/")
    assert "existing lock" in str(raised.value)
    assert "somebody" not in str(raised.value) and "ret" not in str(raised.value)


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("at http://me:pass@host/simple/ failed", "at http://***@host/simple/ failed"),
        ("at https://me:p@ss@host/simple/ failed", "at https://***@host/simple/ failed"),
        ("at https://token@host failed", "at https://***@host failed"),
        ("at https://host/a@b failed", "at https://host/a@b failed"),
    ],
)
def test_what_uv_says_is_told_without_credentials(said: str, shown: str) -> None:
    question = _compile.Question(["a==1"], "3.13", "x86_64-manylinux_2_28", "2026-10-31T00:00:00Z")
    told = _compile.explain(f"error: {said}", question)
    assert f"  error: {shown}\n" in told


SIGN_IN = (401, {"WWW-Authenticate": 'Basic realm="index"'})
SIGNED_IN = f"Basic {base64.b64encode(b'me:sec@ret').decode()}"


def test_a_netrc_file_opens_an_index(index: served.Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password sec@ret\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    index.answers.append(SIGN_IN)
    assert "sec@ret" not in make(index.url).text()
    assert SIGNED_IN in index.authorizations


def test_uvs_own_variables_open_an_index_that_has_a_name(index: served.Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_INDEX_MINE_USERNAME", "me")
    monkeypatch.setenv("UV_INDEX_MINE_PASSWORD", "sec@ret")
    assert "sec@ret" not in make(f"mine={index.url}").text()
    assert SIGNED_IN in index.authorizations


def test_an_index_that_wants_a_password_is_no_lack_of_wheels(index: served.Index) -> None:
    index.answers += [SIGN_IN] * 9
    with pytest.raises(LockingError, match="netrc") as raised:
        make(index.url)
    assert "sglang_version" not in str(raised.value)


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


@pytest.mark.parametrize("name", ["UV_FIND_LINKS", "UV_NO_INDEX", "UV_OFFLINE"])
def test_a_wheelhouse_is_no_index(name: str) -> None:
    with pytest.raises(LockingError, match=rf"{name} is set[\s\S]*existing lock"):
        _compile.environment({name: "1"}, "http://index/simple/")
    assert _compile.environment({name: ""}, None)


@pytest.mark.parametrize(
    ("surroundings", "option", "words"),
    [
        ({}, "/srv/wheels", "The option index_url names /srv/wheels"),
        ({}, "file:///srv/simple", "The option index_url names file:///srv/simple"),
        ({"UV_DEFAULT_INDEX": "/srv/wheels"}, None, "UV_DEFAULT_INDEX names /srv/wheels"),
        ({"UV_INDEX": "http://index/simple file://me:secret@host/simple"}, None, "UV_INDEX names file://***@host/simple"),
    ],
)
def test_a_folder_is_no_index(surroundings: dict[str, str], option: str | None, words: str) -> None:
    with pytest.raises(LockingError) as raised:
        _compile.environment(surroundings, option)
    assert words in str(raised.value) and "no upload times" in str(raised.value)


def test_the_wheels_of_a_folder_would_pass_over_the_day(index: served.Index, tmp_path: Path) -> None:
    """Why folders are refused: uv takes what came out after the day from them, and says nothing."""
    for filename, body in index.files.items():
        if filename.startswith("helper"):
            (tmp_path / filename).write_bytes(body)
    question = _compile.Question(["helper"], "3.13", "x86_64-manylinux_2_28", "2020-01-01T00:00:00Z")
    surroundings = {**_compile.environment(os.environ, index.url), "UV_NO_INDEX": "1", "UV_FIND_LINKS": str(tmp_path)}
    assert 'version = "2.0"' in _compile.ask(_compile.runner(60), _compile.find_uv(None), question, surroundings)


DIFFERENCES: list[tuple[str, dict[str, Any], str]] = [
    ("none", {}, ""),
    ("python", {"python": "3.12"}, "Python 3.12, wanted 3.13"),
    ("platform", {"platform": "x86_64-manylinux_2_28"}, "platform x86_64-manylinux_2_28, wanted x86_64-manylinux_2_40"),
    ("day", {"as_of": None}, "as-of None, wanted 2026-10-31T00:00:00Z"),
    ("pin", {"requirements": {"torch": "2.14.0"}}, "torch 2.14.0, wanted 2.14.1"),
    ("absent", {"requirements": {"sglang": None}}, "sglang is absent, wanted 0.5.23"),
    ("toolkit", {"toolkit": {"nvidia-cuda-nvcc": "13.5.37"}}, "nvidia-cuda-nvcc of the toolkit 13.5.37, wanted 13.0.88"),
    ("no toolkit", {"toolkit": {"nvidia-nvvm": None}}, "nvidia-nvvm of the toolkit is absent, wanted 13.0.88"),
]


@pytest.mark.parametrize(("change", "said"), [row[1:] for row in DIFFERENCES], ids=[row[0] for row in DIFFERENCES])
def test_a_lock_of_another_plan_is_told(change: dict[str, Any], said: str) -> None:
    pins = {"flashinfer-python": "0.7.2", "sglang": "0.5.23", "sglang-kernel": "0.4.10", "torch": "2.14.1"}
    parts = dict(pin.split("==") for pin in PLAN["stack"]["extra"]["toolkit"])
    versions = {"requirements": pins, "toolkit": parts}
    lists = {
        kind: [
            _lock.Requirement(name, version, "0" * 64, f"{name}-{version}-py3-none-any.whl", 1)
            for name, version in {**listed, **change.get(kind, {})}.items()
            if version is not None
        ]
        for kind, listed in versions.items()
    }
    header = {"python": "3.13", "platform": "x86_64-manylinux_2_40", "stack_id": PLAN["stack_id"], "as_of": "2026-10-31T00:00:00Z"}
    lock = _lock.Lock(**{**header, **change, **lists})
    assert _locker.differences(lock, PLAN) == ([said] if said else [])


def test_surroundings_cannot_change_the_answer() -> None:
    given = {
        "PATH": "/bin",
        "UV_INDEX_URL": "http://other/simple",
        "UV_INDEX_MINE_PASSWORD": "p",
        "UV_OVERRIDE": "x",
        "UV_EXCLUDE_NEWER": "2020-01-01",
    }
    own = _compile.environment(given, None)
    assert own["UV_INDEX_URL"] == "http://other/simple" and own["UV_INDEX_MINE_PASSWORD"] == "p" and own["UV_PYTHON_DOWNLOADS"] == "never"
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
