# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The attention backend: one that every class of card allows, and the reasons against the one that was asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ansible_collections.blackwell.inference.plugins.plugin_utils._host import Fields, Finding
from ansible_collections.blackwell.inference.plugins.plugin_utils._rules import Context, Rule, counts, fill


@dataclass(frozen=True)
class Backend:
    name: str
    support: str
    because: str
    source: str


def choose_backend(
    matched: list[tuple[Rule, Context]], refusals: Mapping[str, list[Rule]], contexts: list[Fields], wanted: str | None
) -> tuple[Backend | None, list[Finding], Fields]:
    """(choice, findings against it, words for the rules' sentences); refusals: by backend, the rules that refuse it.

    For each class of card the first rule with a list counts. What all classes allow and nothing refuses is left, in the first
    one's order.
    """
    rules = [rule for rule, _context in matched if "attention_backends" in rule.then]
    chosen = [next((rule for rule in rules if counts(rule, context)), None) for context in contexts]
    lists = [list(rule.then["attention_backends"]["allowed"]) if rule else [] for rule in chosen]
    listed = [name for name in lists[0] if all(name in other for other in lists)]
    allowed = [name for name in listed if not _refused(refusals, contexts, name)]
    others = [name for name in allowed if name != wanted]
    words: Fields = {"allowed": ", ".join(allowed) or "none", "instead": others[0] if others else "of another kind"}
    words["capability"] = ", ".join(str(context["capability"]) for context in contexts)
    rule = chosen[0]
    if rule is None or not allowed:
        return None, [("no_backend", {})], words
    if wanted is not None and wanted not in allowed:
        # A rule that names the backend says more than the list does.
        told = {"found": wanted, "backends_source": rule.source}
        return None, [] if _refused(refusals, contexts, wanted) else [("backend_not_allowed", told)], words
    name = wanted or allowed[0]
    # What served, served with the plan's own choice; another backend that the rules say nothing of did not.
    usual = "verified" if name == allowed[0] else "expected"
    support = rule.then["attention_backends"].get("support", {}).get(name, usual)
    because = "the request names it, and it is allowed." if wanted else fill(rule.because, contexts[0])
    return Backend(name, support, because, rule.source), [], words


def _refused(refusals: Mapping[str, list[Rule]], contexts: list[Fields], name: str) -> bool:
    return any(counts(rule, {**context, "backend": name}) for rule in refusals.get(name, ()) for context in contexts)
