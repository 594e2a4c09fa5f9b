# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import base64
import copy
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
import yaml
from ansible_collections.blackwell.inference.plugins.action import stack_lock, stack_plan

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "plugin_utils"))
import index as served

ROOT = Path(__file__).resolve().parents[4]
FACTS = yaml.safe_load((ROOT / "inventory/facts/rtx-pro-6000-x8.yml").read_text())
NOBODY = "http://127.0.0.1:9/simple/"


class Refused(Exception):
    """The task failed with this message."""


def act(module: Any, arguments: dict[str, Any], check: bool = False, diff: bool = True) -> dict[str, Any]:
    task = MagicMock(check_mode=check, diff=diff, async_val=0, args=arguments)
    plugin = module.ActionModule(task, MagicMock(), MagicMock(), MagicMock(), MagicMock(), MagicMock())
    result: dict[str, Any] = plugin.run(task_vars={})
    if result.get("failed"):
        raise Refused(result["msg"])
    return result


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")


def plan() -> dict[str, Any]:
    made: dict[str, Any] = act(stack_plan, copy.deepcopy(FACTS))["plan"]
    return made


def test_a_lock_is_made_once_and_then_needs_no_network(tmp_path: Path) -> None:
    made = plan()
    folder = tmp_path / "locks"
    with served.stocked() as index:
        arguments = {"plan": made, "path": str(folder), "index_url": index.url}
        predicted = act(stack_lock, arguments, check=True)
        assert predicted["changed"] and not folder.exists()
        first = act(stack_lock, arguments)
    assert first["changed"] and first["content"] == predicted["content"]
    assert first["diff"]["before"] == "" and first["diff"]["after"] == first["content"]
    assert Path(first["path"]) == folder / f"{made['stack_id']}.lock.txt"
    assert Path(first["path"]).read_text() == first["content"]
    assert {"name", "filename", "sha256", "size"} == set(first["files"][0])
    for check in (False, True):
        again = act(stack_lock, arguments | {"index_url": NOBODY}, check=check)
        assert not again["changed"]
        assert (again["lock_id"], again["content"]) == (first["lock_id"], first["content"])
    assert [file.name for file in folder.iterdir()] == [f"{made['stack_id']}.lock.txt"]


def test_hosts_that_share_a_plan_ask_the_index_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, asked = plan(), []
    really = stack_lock._locker.make

    def counted(*arguments: Any) -> Any:
        asked.append(arguments)
        return really(*arguments)

    monkeypatch.setattr(stack_lock._locker, "make", counted)
    with served.stocked() as index, ThreadPoolExecutor(4) as hosts:
        arguments = {"plan": made, "path": str(tmp_path / "locks"), "index_url": index.url}
        results = list(hosts.map(lambda _host: act(stack_lock, arguments), range(4)))
    assert len(asked) == 1
    assert sorted(result["changed"] for result in results) == [False, False, False, True]
    assert len({result["content"] for result in results}) == 1


def test_the_same_plan_gives_the_same_bytes_from_any_index(tmp_path: Path) -> None:
    made = plan()
    contents = []
    for name in ("one", "other"):
        with served.stocked() as index:
            result = act(stack_lock, {"plan": made, "path": str(tmp_path / name), "index_url": index.url})
        contents.append(Path(result["path"]).read_bytes())
        assert index.url.encode() not in contents[-1]
    assert contents[0] == contents[1]


def test_without_network_and_without_a_lock_nothing_is_left_behind(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="existing lock"):
        act(stack_lock, {"plan": plan(), "path": str(tmp_path), "index_url": NOBODY})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("damage", ["", "# blackwell.inference lock 1\n", "\x00\xff"])
def test_a_damaged_lock_is_named_and_kept(tmp_path: Path, damage: str) -> None:
    made = plan()
    file = tmp_path / f"{made['stack_id']}.lock.txt"
    file.write_text(damage)
    with pytest.raises(Refused, match=f"{made['stack_id']}.lock.txt"):
        act(stack_lock, {"plan": made, "path": str(tmp_path), "index_url": NOBODY})
    assert file.read_text() == damage


def test_a_lock_of_another_stack_is_refused(tmp_path: Path) -> None:
    made = plan()
    folder = tmp_path / "locks"
    with served.stocked() as index:
        first = act(stack_lock, {"plan": made, "path": str(folder), "index_url": index.url})
    other = {**made, "stack_id": "0123456789abcdef"}
    (folder / "0123456789abcdef.lock.txt").write_text(first["content"])
    with pytest.raises(Refused, match="is of stack"):
        act(stack_lock, {"plan": other, "path": str(folder), "index_url": NOBODY})


def test_a_lock_that_was_changed_by_hand_is_refused(tmp_path: Path) -> None:
    made = plan()
    with served.stocked() as index:
        first = act(stack_lock, {"plan": made, "path": str(tmp_path), "index_url": index.url})
    Path(first["path"]).write_text(first["content"].replace("sglang==0.5.23", "sglang==0.5.22"))
    with pytest.raises(Refused, match=r"not the lock of this plan: sglang 0\.5\.22, wanted 0\.5\.23\. Restore the file"):
        act(stack_lock, {"plan": made, "path": str(tmp_path), "index_url": NOBODY})


def test_a_plan_that_is_none_is_named_by_its_place(tmp_path: Path) -> None:
    broken = plan()
    broken["stack"]["extra"]["toolkit"] = ["nvcc"]
    with pytest.raises(Refused, match=r"plan\.stack\.extra\.toolkit\[0\]"):
        act(stack_lock, {"plan": broken, "path": str(tmp_path)})
    with pytest.raises(Refused, match="stack_id is missing"):
        act(stack_lock, {"plan": {"stack": {}}, "path": str(tmp_path)})


def test_a_folder_that_cannot_be_one_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Refused, match="folder of locks"):
        act(stack_lock, {"plan": plan(), "path": str(tmp_path / "file" / "locks"), "index_url": NOBODY})


@pytest.mark.parametrize("address", ["https://me:secret@index.example/simple", "https://token@index.example/simple"])
def test_credentials_in_an_address_are_refused_and_not_repeated(tmp_path: Path, address: str) -> None:
    with pytest.raises(Refused, match=r"holds a user or a password.*netrc") as refused:
        act(stack_lock, {"plan": plan(), "path": str(tmp_path), "index_url": address})
    assert "secret" not in str(refused.value) and "token@" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_credentials_in_the_surroundings_are_written_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sign_in = (401, {"WWW-Authenticate": 'Basic realm="index"'})
    with served.stocked() as index:
        monkeypatch.setenv("UV_DEFAULT_INDEX", index.url.replace("//", "//somebody:secret@"))
        result = act(stack_lock, {"plan": plan(), "path": str(tmp_path)})
        assert f"Basic {base64.b64encode(b'somebody:secret').decode()}" in index.authorizations
        written = json.dumps(result) + Path(result["path"]).read_text()
        Path(result["path"]).unlink()
        index.answers += [sign_in] * 99
        with pytest.raises(Refused, match="asks for a user and a password") as refused:
            act(stack_lock, {"plan": plan(), "path": str(tmp_path)})
    for text in (written, str(refused.value)):
        assert "somebody" not in text and "secret" not in text


@pytest.mark.parametrize("name", ["UV_OFFLINE", "UV_FIND_LINKS"])
def test_a_site_without_network_uses_a_lock_and_makes_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    made = plan()
    with served.stocked() as index:
        arguments = {"plan": made, "path": str(tmp_path), "index_url": index.url}
        monkeypatch.setenv(name, "1")
        with pytest.raises(Refused, match=rf"{name} is set.*existing lock"):
            act(stack_lock, arguments)
        monkeypatch.delenv(name)
        first = act(stack_lock, arguments)
    monkeypatch.setenv(name, "1")
    assert act(stack_lock, arguments)["content"] == first["content"]


def test_stack_plan_returns_a_plan_and_its_table() -> None:
    result = act(stack_plan, copy.deepcopy(FACTS))
    assert result["changed"] is False
    for word in ("8 x NVIDIA RTX PRO 6000", "0.5.23", "BECAUSE", "fa3", "WARNINGS", "131072"):
        assert word in result["report"]
    assert max(len(line) for line in result["report"].splitlines() if not line.startswith("Start")) <= 120


def test_stack_plan_fails_with_one_message() -> None:
    with pytest.raises(Refused, match=r"request\.sglang is not a key"):
        act(stack_plan, copy.deepcopy(FACTS) | {"request": {"sglang": "0.5.23"}})
    with pytest.raises(Refused, match="What would resolve it"):
        act(stack_plan, copy.deepcopy(FACTS) | {"request": {"attention_backend": "fa3"}})
