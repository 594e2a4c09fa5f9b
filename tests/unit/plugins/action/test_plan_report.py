# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
from ansible_collections.blackwell.inference.plugins.action import plan_report
from ansible_collections.blackwell.inference.plugins.plugin_utils import _knowledge
from ansible_collections.blackwell.inference.plugins.plugin_utils._inputs import InputError

sys.path.insert(0, str(Path(__file__).parents[1] / "plugin_utils"))
import cases
import fleet_kit as kit

GPU, MODEL = cases.BASE["gpu"], cases.BASE["model"]
MEASURED = {"plan_gpu": {"ansible_facts": {"gpu": GPU}}, "plan_model": {"ansible_facts": {"model": MODEL}}}


class HostVars(dict[str, Any]):
    """As ansible's own: all variables of a host, not templated."""

    def raw_get(self, name: str) -> Any:
        return self[name]


def act(hosts: dict[str, Any], arguments: dict[str, Any] | None = None, check: bool = False) -> tuple[dict[str, Any], str]:
    """Return what the task returns, and what it printed."""
    task = MagicMock(check_mode=check, diff=False, async_val=0, args=arguments or {})
    plugin = plan_report.ActionModule(task, MagicMock(), MagicMock(), DataLoader(), Templar(DataLoader()), MagicMock())
    plugin._display = MagicMock()
    variables = {"inventory_hostname": next(iter(hosts)), "ansible_play_hosts_all": list(hosts), "hostvars": HostVars(hosts)}
    result: dict[str, Any] = plugin.run(task_vars=variables)
    return result, "".join(call.args[0] for call in plugin._display.display.call_args_list)


RESULTS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("measured", MEASURED, {"gpu": GPU, "model": MODEL}),
    ("with an environment", MEASURED | {"plan_stack": {"ansible_facts": {"stack": kit.VENV}}}, {"stack": kit.VENV}),
    ("environment skipped", MEASURED | {"plan_stack": {"skipped": True}}, {"stack": None, "remarks": ()}),
    (
        "environment unreadable",
        MEASURED | {"plan_stack": {"failed": True, "msg": "nothing there"}},
        {"gpu": GPU, "stack": None, "remarks": ("the existing environment cannot be read: stack_facts: nothing there",)},
    ),
    ("failed", {"plan_gpu": {"failed": True, "msg": "no python"}, "plan_model": {"skipped": True}}, {"message": "gpu_facts: no python"}),
    ("model failed", {**MEASURED, "plan_model": {"failed": True, "msg": "no folder"}}, {"message": "model_facts: no folder"}),
    ("unreachable", {"plan_gpu": {"unreachable": True, "msg": "no route"}}, {"message": "no route", "unreachable": True}),
    ("lost in between", {**MEASURED, "plan_model": {"unreachable": True, "msg": "no route"}}, {"unreachable": True}),
    ("never measured", {}, {"message": "gpu_facts: it was not run"}),
]


@pytest.mark.parametrize(("results", "expected"), [entry[1:] for entry in RESULTS], ids=[entry[0] for entry in RESULTS])
def test_a_host_is_what_its_tasks_registered(results: dict[str, Any], expected: dict[str, Any]) -> None:
    made = plan_report.machine("one", results, {})
    assert {key: getattr(made, key) for key in expected} == expected


def test_hosts_are_planned_with_their_own_wishes() -> None:
    hosts: dict[str, Any] = {
        "plain": MEASURED,
        "by_role": MEASURED | {"inference_port_base": trust_as_template("{{ base + 1000 }}"), "base": 30000, "inference_gpus": None},
        "by_request": MEASURED | {"stack_request": {"port_base": trust_as_template("{{ 32000 }}")}, "inference_port_base": 1},
    }
    result, _said = act(hosts)
    ports = {next(iter(entry["hosts"])): entry["plan"]["launch"]["ports"][0] for entry in result["classes"]}
    assert ports == {"plain": 30000, "by_role": 31000, "by_request": 32000}
    assert (result["hosts"], result["planned"], result["changed"]) == (3, 3, False)


def test_the_wishes_are_those_that_the_role_collects() -> None:
    collected = (cases.ROOT / "roles/stack/vars/main.yml").read_text()
    keys = {key.removesuffix("?") for key in plan_report.REQUEST}
    raw = {f"inference_{key}": key for key in keys}
    named = yaml.safe_load(collected)["__stack_request_from_inference"]
    assert Templar(DataLoader(), raw).template(trust_as_template(named)) == {key: key for key in keys}


def test_hosts_without_a_plan_fail_the_task_after_all_rows_were_shown(tmp_path: Path) -> None:
    hosts = {
        "good": MEASURED,
        "gone": {"plan_gpu": {"unreachable": True, "msg": "no route"}},
        "torn": MEASURED | {"inference_instances": trust_as_template("{{ nowhere }}")},
    }
    result, said = act(hosts, {"plan_file": str(tmp_path / "plan.json")})
    assert result["failed"] and result["msg"] == "gone, torn have no plan; the table above says why."
    assert "classes" not in result, "a failed task is printed with all it returns"
    for words in ("good", "SGLang", "gone: no route", "variable inference_instances: 'nowhere' is undefined"):
        assert words in said
    assert json.loads((tmp_path / "plan.json").read_text())["without_plan"] == ["gone", "torn"]


def test_files_are_the_same_bytes_each_time_and_in_check_mode(tmp_path: Path) -> None:
    plan, page = tmp_path / "plan.json", tmp_path / "plan.html"
    arguments = {"plan_file": str(plan), "page_file": str(page)}
    first, _said = act({"one": MEASURED}, arguments, check=True)
    assert first["changed"] is True
    written = plan.read_bytes(), page.read_bytes()
    assert json.loads(written[0])["classes"] == first["classes"]
    again, _said = act({"one": MEASURED}, arguments)
    assert again["changed"] is False and written == (plan.read_bytes(), page.read_bytes())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plan.html", "plan.json"]


def test_reasons_are_printed_on_demand() -> None:
    assert "BECAUSE" not in act({"one": MEASURED})[1]
    assert "BECAUSE" in act({"one": MEASURED}, {"explain": "true"})[1]


@pytest.mark.parametrize(("recorded", "wishes", "expected"), [
    (None, {"a": 1}, {"a": 1}),
    ({"a": 1, "b": 2}, {"a": 3}, {"a": 3, "b": 2}),
    ({"a": 1}, "text", "text"),
    ([1], {"a": 1}, [1]),
])  # fmt: skip
def test_the_command_lines_wishes_win(recorded: Any, wishes: Any, expected: Any) -> None:
    assert plan_report.merged(recorded, wishes) == expected


def test_recorded_facts_are_planned_with_the_command_lines_wishes(tmp_path: Path) -> None:
    facts = tmp_path / "mine.yml"
    facts.write_text(yaml.safe_dump({"gpu": GPU, "model": MODEL, "request": {"port_base": 31000, "instances": 2}}))
    result, _said = act({"localhost": {"stack_request": {"instances": 3}}}, {"facts_file": str(facts)})
    assert list(result["classes"][0]["hosts"]) == ["mine"]
    assert result["classes"][0]["plan"]["launch"]["ports"] == [31000, 31001, 31002]


def test_bad_input_is_one_message_that_names_the_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result, said = act({"localhost": {}}, {"facts_file": str(tmp_path / "none.yml")})
    assert result["failed"] and "none.yml: No such file" in result["msg"] and not said
    tables = cases.tables()
    tables["rules"][0] = {**tables["rules"][0], "applise": tables["rules"][0]["applies"]}
    monkeypatch.setattr(_knowledge, "load", lambda: _knowledge.build(tables))
    result, said = act({"one": MEASURED})
    assert result["failed"] and not said
    assert f"rules.yml: rule {tables['rules'][0]['id']}.applise is not a key that is known here; did you mean applies" in result["msg"]


def test_no_folder_no_device_and_no_missing_folder_is_written_to(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/dev/null")
    for path, word in (
        (tmp_path, "no regular file"),
        (tmp_path / "link", "no regular file"),
        (tmp_path / "no" / "file", "cannot be written"),
    ):
        with pytest.raises(InputError, match=word) as raised:
            plan_report.write(str(path), "text")
        assert "found: " in str(raised.value) and "do: " in str(raised.value)
    (tmp_path / "real").write_text("old")
    (tmp_path / "to_real").symlink_to("real")
    assert plan_report.write(str(tmp_path / "to_real"), "new")
    assert (tmp_path / "to_real").is_symlink() and (tmp_path / "real").read_text() == "new"
