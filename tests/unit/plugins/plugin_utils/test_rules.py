# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every rule of the knowledge base both ways, each of its conditions and bounds, and every finding of the code."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.blackwell.inference.plugins.plugin_utils import _candidates, _findings, _host, _knowledge, _resolver, _rules
from ansible_collections.blackwell.inference.plugins.plugin_utils._knowledge import Knowledge, KnowledgeError

sys.path.insert(0, str(Path(__file__).parent))
import cases

ENTRIES = yaml.safe_load((cases.ROOT / "tests/unit/cases/rules.yml").read_text())
BY_RULE = {entry["rule"]: entry for entry in ENTRIES}
RULES = cases.shipped()["rules"]

Case = dict[str, Any]


def listed(entry: dict[str, Any], key: str) -> list[Case]:
    """The cases of an entry; a text is the name of a case in plan.yml."""
    return [cases.BY_NAME[case] if isinstance(case, str) else case for case in entry.get(key, [])]


def knowledge_of(case: Case, rules: list[dict[str, Any]] | None = None) -> Knowledge:
    tables = cases.tables(case.get("tables"))
    if rules is not None:
        tables["rules"] = rules
    return _knowledge.build(tables)


class Recorder:
    """Notes which rules count, and for which release; None stands for the host."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: set[tuple[str | None, str]] = set()
        self._patch = monkeypatch

        def matching(rules: Any, contexts: Any) -> Any:
            found = _rules.matching(rules, contexts)
            self.seen.update((contexts[0]["sglang"], rule.id) for rule, _context in found)
            return found

        def counts(rule: Any, context: Any) -> bool:
            answer = _rules.counts(rule, context)
            if answer:
                self.seen.add((context.get("sglang"), rule.id))
            return answer

        monkeypatch.setattr(_candidates, "matching", matching)
        monkeypatch.setattr(_candidates, "counts", counts)
        monkeypatch.setattr(_host, "counts", counts)

    def counting(self, case: Case, knowledge: Knowledge) -> set[str]:
        """The rules that count for the host and for the release that is asked for or chosen; without either, for any."""
        self.seen.clear()
        with self._patch.context() as patch:
            # A plan also looks at backends by other names: only what is seen for the wish itself counts.
            patch.setattr(_resolver, "against_backend", lambda *given: [])
            made = cases.answer(case, knowledge)
        release = case.get("request", {}).get("sglang_version") or (made["stack"]["sglang"] if isinstance(made, dict) else None)
        return {rule for name, rule in self.seen if release is None or name in (release, None)}


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    return Recorder(monkeypatch)


def weaker(rule: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The rule without one of its conditions, or without one bound of a range of versions."""
    found = []
    for key, wanted in rule["applies"].items():
        if key == "finds":
            continue
        others = {name: value for name, value in rule["applies"].items() if name != key}
        found.append((key, {**rule, "applies": others}))
        if key == "flashinfer" and "," in wanted:
            found += [(bound, {**rule, "applies": {**others, key: bound}}) for bound in wanted.split(",")]
    if "releases" in rule:
        found.append(("releases", {key: value for key, value in rule.items() if key != "releases"}))
        if "," in rule["releases"]:
            found += [(bound, {**rule, "releases": bound}) for bound in rule["releases"].split(",")]
    return found


def test_every_rule_has_its_cases_and_every_case_its_rule() -> None:
    assert list(BY_RULE) == [rule["id"] for rule in RULES], "tests/unit/cases/rules.yml lists the rules in the order of rules.yml"
    assert len(ENTRIES) == len(BY_RULE)


@pytest.mark.parametrize("rule", RULES, ids=[rule["id"] for rule in RULES])
def test_rule_fires_and_its_absence_is_seen(rule: dict[str, Any]) -> None:
    fires = listed(BY_RULE[rule["id"]], "fires")
    assert fires
    for case in fires:
        assert set(case["expect"]) - {"fail"}, "a case says what is to be seen"
        made = cases.check(case, knowledge_of(case))
        others = [other for other in RULES if other["id"] != rule["id"]]
        if "finds" in rule["applies"]:
            with pytest.raises(KnowledgeError, match=f"no rule is about {rule['applies']['finds']}"):
                knowledge_of(case, others)
        else:
            assert cases.answer(case, knowledge_of(case, others)) != made


@pytest.mark.parametrize("rule", RULES, ids=[rule["id"] for rule in RULES])
def test_rule_is_silent_and_each_condition_is_why(rule: dict[str, Any], recorder: Recorder) -> None:
    silent = listed(BY_RULE[rule["id"]], "silent")
    assert bool(silent) == bool(rule["applies"] or "releases" in rule), "only a rule without conditions always counts"
    for case in silent:
        knowledge = knowledge_of(case)
        cases.check(case, knowledge)
        assert rule["id"] not in recorder.counting(case, knowledge), case
    for missing, other in weaker(rule):
        rules = [other if entry["id"] == rule["id"] else entry for entry in RULES]
        assert any(rule["id"] in recorder.counting(case, knowledge_of(case, rules)) for case in silent), missing


def test_every_finding_has_a_rule_and_brings_the_words_that_it_declares(monkeypatch: pytest.MonkeyPatch) -> None:
    raised: dict[str, set[frozenset[str]]] = {}
    judge, sort = _host.judge, _candidates._judge

    def note(found: list[tuple[str, dict[str, Any]]]) -> None:
        for name, fields in found:
            raised.setdefault(name, set()).add(frozenset(fields))

    def of_host(knowledge: Any, found: Any, base: Any) -> Any:
        note(found)
        return judge(knowledge, found, base)

    def of_release(knowledge: Any, candidate: Any, found: Any, words: Any) -> None:
        note(found)
        sort(knowledge, candidate, found, words)

    monkeypatch.setattr(_host, "judge", of_host)
    monkeypatch.setattr(_candidates, "_judge", of_release)
    for entry in ENTRIES:
        for case in listed(entry, "fires"):
            cases.answer(case, knowledge_of(case))
    declared = {**_findings.OF_HOST, **_findings.OF_RELEASE}
    assert set(raised) == set(declared) == {rule["applies"]["finds"] for rule in RULES if "finds" in rule["applies"]}
    for name, forms in raised.items():
        for words in forms:
            # capability is a word of every release; a finding about one class of card says which.
            assert words - {"capability"} == declared[name] - {"capability"}, name
