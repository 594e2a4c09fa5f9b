# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.blackwell.inference.plugins.module_utils import _fetch, _wheelhouse
from ansible_collections.blackwell.inference.plugins.module_utils._lock import LockError
from ansible_collections.blackwell.inference.plugins.module_utils._refusal import Refusal
from ansible_collections.blackwell.inference.plugins.module_utils._wheelhouse import Wanted
from ansible_collections.blackwell.inference.tests.unit.plugins.module_utils import wheel_kit
from ansible_collections.blackwell.inference.tests.unit.plugins.module_utils.index_kit import Index


@pytest.fixture
def index() -> Iterator[Index]:
    made = Index()
    made.files["alpha-1.0-py3-none-any.whl"] = os.urandom(100_000)
    yield made
    made.server.shutdown()
    made.server.server_close()


def fetch(index: Index, folder: Path, *wanted: Wanted, retries: int = 2, index_url: str | None = "") -> list[str]:
    fetcher = _fetch.Fetcher(
        str(folder),
        _fetch.opener(5),
        lambda _seconds: None,
        index_url=f"{index.url}/simple/" if index_url == "" else index_url,
        retries=retries,
        threads=2,
    )
    names: list[str] = []
    fetcher.fetch(list(wanted), lambda one, _path: names.append(one.filename))
    return names


def files_in(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if path.is_file()}


def test_fetches_by_hash_and_is_readable_for_all(index: Index, tmp_path: Path) -> None:
    wanted = index.wanted("alpha-1.0-py3-none-any.whl")
    assert fetch(index, tmp_path, wanted) == [wanted.filename]
    assert (tmp_path / wanted.filename).read_bytes() == index.files[wanted.filename]
    assert (tmp_path / wanted.filename).stat().st_mode & 0o777 == 0o644
    assert files_in(tmp_path) == {wanted.filename}


def test_many_files_in_parallel(index: Index, tmp_path: Path) -> None:
    for number in range(12):
        index.files[f"alpha-{number}-py3-none-any.whl"] = os.urandom(1000 * number + 1)
    assert sorted(fetch(index, tmp_path, *(index.wanted(name) for name in index.files))) == sorted(index.files)


def test_wrong_hash_is_removed_and_named(index: Index, tmp_path: Path) -> None:
    wanted = Wanted("alpha-1.0-py3-none-any.whl", "0" * 64, 100_000, project="alpha")
    index.lying_hash = wanted.sha256
    with pytest.raises(Refusal) as refused:
        fetch(index, tmp_path, wanted)
    found = hashlib.sha256(index.files[wanted.filename]).hexdigest()
    assert wanted.filename in str(refused.value)
    assert found in refused.value.found and wanted.sha256 in refused.value.wanted
    assert files_in(tmp_path) == set()


def test_another_file_of_the_same_name_in_the_index_is_not_even_fetched(index: Index, tmp_path: Path) -> None:
    wanted = Wanted("alpha-1.0-py3-none-any.whl", "0" * 64, 100_000, project="alpha")
    with pytest.raises(Refusal, match="The lock was made from another index"):
        fetch(index, tmp_path, wanted)
    assert [path for path, _range in index.requests] == ["/simple/alpha/"]


@pytest.mark.parametrize("cuts", [[40_000], [0, 10, 99_980], [1, 1, 1]])
def test_a_cut_download_is_continued(index: Index, tmp_path: Path, cuts: list[int]) -> None:
    wanted = index.wanted("alpha-1.0-py3-none-any.whl")
    index.cut_at = list(cuts)
    assert fetch(index, tmp_path, wanted, retries=4) == [wanted.filename]
    assert (tmp_path / wanted.filename).read_bytes() == index.files[wanted.filename]
    assert index.requests[-1][1] == f"bytes={sum(cuts)}-"


def test_a_cut_download_is_continued_by_the_next_run(index: Index, tmp_path: Path) -> None:
    wanted = index.wanted("alpha-1.0-py3-none-any.whl")
    index.cut_at = [30_000]
    with pytest.raises(Refusal, match="truncated"):
        fetch(index, tmp_path, wanted, retries=0)
    assert not (tmp_path / wanted.filename).exists()
    assert fetch(index, tmp_path, wanted) == [wanted.filename]
    assert index.requests[-1][1] == "bytes=30000-"


def test_a_server_without_ranges_starts_again(index: Index, tmp_path: Path) -> None:
    wanted = index.wanted("alpha-1.0-py3-none-any.whl")
    index.cut_at, index.ranges = [30_000], False
    assert fetch(index, tmp_path, wanted) == [wanted.filename]
    assert (tmp_path / wanted.filename).read_bytes() == index.files[wanted.filename]


def test_foreign_bytes_in_the_unfinished_file_cost_one_more_download(index: Index, tmp_path: Path) -> None:
    wanted = index.wanted("alpha-1.0-py3-none-any.whl")
    part = tmp_path / _wheelhouse.PARTIAL / wanted.sha256
    part.parent.mkdir()
    part.write_bytes(b"x" * 1000)
    assert fetch(index, tmp_path, wanted) == [wanted.filename]
    assert (tmp_path / wanted.filename).read_bytes() == index.files[wanted.filename]


def test_more_bytes_than_wanted_are_refused_without_reading_on(index: Index, tmp_path: Path) -> None:
    wanted = index.wanted("alpha-1.0-py3-none-any.whl")
    index.lying_hash = wanted.sha256
    index.files[wanted.filename] += b"more"
    with pytest.raises(Refusal):
        fetch(index, tmp_path, wanted)
    assert files_in(tmp_path) == set()


def test_busy_servers_are_tried_again_and_others_are_not(index: Index, tmp_path: Path) -> None:
    wanted = index.wanted("alpha-1.0-py3-none-any.whl")
    index.statuses = [503, 200, 500, 429, 200]
    assert fetch(index, tmp_path, wanted) == [wanted.filename]
    index.requests.clear()
    index.statuses = [404]
    with pytest.raises(Refusal, match="404"):
        fetch(index, tmp_path / "other", wanted)
    assert len(index.requests) == 1


def test_retries_end(index: Index, tmp_path: Path) -> None:
    index.statuses = [503] * 9
    with pytest.raises(Refusal, match="tried 3 times") as refused:
        fetch(index, tmp_path, index.wanted("alpha-1.0-py3-none-any.whl"))
    assert "503" in refused.value.found


@pytest.mark.parametrize("url", [None, "http://127.0.0.1:9/simple/", "file:///etc/", "ftp://127.0.0.1:9/"])
def test_no_or_a_useless_index_is_one_message(index: Index, tmp_path: Path, url: str | None) -> None:
    with pytest.raises(Refusal):
        fetch(index, tmp_path, index.wanted("alpha-1.0-py3-none-any.whl"), retries=0, index_url=url)


def test_an_index_that_does_not_speak_json(index: Index, tmp_path: Path) -> None:
    index.as_html = True
    with pytest.raises(Refusal, match="PEP 691"):
        fetch(index, tmp_path, index.wanted("alpha-1.0-py3-none-any.whl"))


@pytest.mark.parametrize("page", [b"", b"[]", b"{}", b'{"files": 1}', b'{"files": [1]}', b'{"files": [{"url": 1}]}'])
def test_hostile_pages_are_refused(page: bytes) -> None:
    with pytest.raises(Refusal):
        _fetch.find_url(page, Wanted("a", "0" * 64, 1, project="a"), "http://x/simple/a/")


def test_local_files_are_never_read_through_an_index() -> None:
    with pytest.raises(Refusal, match="http or https"):
        _fetch.Fetcher("/nonexistent", _fetch.opener(1), lambda _s: None).fetch_one(Wanted("passwd", "0" * 64, 1, url="file:///etc/passwd"))


def test_credentials_are_not_shown() -> None:
    assert _fetch.shown("https://user:secret@index.example.com/simple/?token=1") == "https://index.example.com/simple/"


def test_extra_file_without_a_size(index: Index, tmp_path: Path) -> None:
    data = index.files["alpha-1.0-py3-none-any.whl"]
    wanted = Wanted("driver.run", hashlib.sha256(data).hexdigest(), None, url=f"{index.url}/files/alpha-1.0-py3-none-any.whl")
    index.cut_at = [5]
    assert fetch(index, tmp_path, wanted) == ["driver.run"]
    assert (tmp_path / "driver.run").read_bytes() == data


# What is there already


def place(folder: Path, name: str, data: bytes) -> Wanted:
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(data)
    return Wanted(name, hashlib.sha256(data).hexdigest(), len(data), project="alpha")


def test_what_was_verified_once_is_not_hashed_again(tmp_path: Path) -> None:
    wanted = place(tmp_path, "a.whl", b"content")
    hashed: list[str] = []

    def hasher(path: str) -> str:
        hashed.append(path)
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()

    found = _wheelhouse.inspect(str(tmp_path), [wanted], hasher)
    assert [one.filename for one in found.present] == ["a.whl"] and len(hashed) == 1
    _wheelhouse.write_verified(str(tmp_path), found.verified)
    assert _wheelhouse.inspect(str(tmp_path), [wanted], hasher).absent == [] and len(hashed) == 1
    # Touched: hashed again, and right again.
    os.utime(tmp_path / "a.whl", ns=(1, 1))
    assert _wheelhouse.inspect(str(tmp_path), [wanted], hasher).absent == [] and len(hashed) == 2


@pytest.mark.parametrize("content", [b"conten", b"CONTENT", b"", b"content and more"])
def test_a_changed_file_counts_as_absent(tmp_path: Path, content: bytes) -> None:
    wanted = place(tmp_path, "a.whl", b"content")
    _wheelhouse.write_verified(str(tmp_path), _wheelhouse.inspect(str(tmp_path), [wanted]).verified)
    (tmp_path / "a.whl").write_bytes(content)
    os.utime(tmp_path / "a.whl", ns=(1, 1))
    found = _wheelhouse.inspect(str(tmp_path), [wanted])
    assert (found.absent, found.wrong) == ([wanted], ["a.whl"])
    assert "a.whl" not in found.verified


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a.whl": 1}', '{"a.whl": {"sha256": null}}', "\xff\xfe"])
def test_a_damaged_note_only_costs_hashing(tmp_path: Path, text: str) -> None:
    wanted = place(tmp_path, "a.whl", b"content")
    (tmp_path / _wheelhouse.VERIFIED).write_bytes(text.encode("latin-1"))
    assert _wheelhouse.inspect(str(tmp_path), [wanted]).present == [wanted]


def test_what_arrived_before_a_failure_is_remembered(tmp_path: Path) -> None:
    good, bad = place(tmp_path, "good.whl", b"1"), Wanted("bad.whl", "0" * 64, 1, project="bad")
    (tmp_path / "good.whl").unlink()

    class Failing:
        def fetch(self, _wanted: list[Wanted], done: Any) -> None:
            (tmp_path / "good.whl").write_bytes(b"1")
            done(good, str(tmp_path / "good.whl"))
            raise Refusal("bad.whl", "nothing", "something", "Try again")

    with pytest.raises(Refusal):
        _wheelhouse.fill(str(tmp_path), _wheelhouse.inspect(str(tmp_path), [good, bad]), Failing)
    assert set(_wheelhouse.read_verified(str(tmp_path))) == {"good.whl"}


# What is wanted


def test_wanted_files_of_locks_and_lists(tmp_path: Path) -> None:
    lock = wheel_kit.lock_of([wheel_kit.write_wheel(tmp_path, "alpha")], wheel_kit.toolkit_wheels(tmp_path))
    extra = {"filename": "d.run", "url": "https://x/d.run", "sha256": "a" * 64, "size": None}
    wanted = _wheelhouse.wanted_files([lock.text(), lock.text()], [], [extra])
    assert [one.filename for one in wanted] == [
        "alpha-1.0-py3-none-any.whl",
        "d.run",
        "nvidia_cuda_nvcc-13.0.88-py3-none-any.whl",
        "nvidia_cuda_runtime-13.0.88-py3-none-any.whl",
    ]


GOOD = {"name": "a", "filename": "a.whl", "sha256": "a" * 64, "size": 1}


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ([{**GOOD, "filename": "../../etc/passwd"}], "plain file name"),
        ([{**GOOD, "filename": ".verified.json"}], "plain file name"),
        ([{**GOOD, "filename": ""}], "plain file name"),
        ([{**GOOD, "sha256": "A" * 64}], "64 lower-case"),
        ([{**GOOD, "sha256": "a" * 63}], "64 lower-case"),
        ([GOOD, {**GOOD, "sha256": "b" * 64}], "two hashes"),
    ],
)
def test_lists_that_cannot_be_right(files: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(Refusal, match=message):
        _wheelhouse.wanted_files([], files, [])


def test_an_edited_lock_is_refused(tmp_path: Path) -> None:
    text = wheel_kit.lock_of([wheel_kit.write_wheel(tmp_path, "alpha")]).text()
    with pytest.raises(LockError, match="line 4"):
        _wheelhouse.wanted_files([text.replace("alpha==1.0", "alpha>=1.0")], [], [])
