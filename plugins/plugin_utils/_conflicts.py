# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why there is no plan, in as few words as are true, and the nearest ways to one."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

from ansible_collections.blackwell.inference.plugins.plugin_utils._candidates import Candidate
from ansible_collections.blackwell.inference.plugins.plugin_utils._rules import Reason

MOST_WAYS = 4
PIN = "request.sglang_version"
NO_WAY = "No single change of these facts would resolve it: use another GPU, another model or another target."


@dataclass(frozen=True)
class Failure:
    """What conflicts; what must change whatever else does; and the ways of which one is enough beside that."""

    conflicts: list[Reason]
    needed: list[str]
    ways_out: list[str]

    def __str__(self) -> str:
        lines = ["There is no plan: these facts and wishes conflict."]
        lines += [f"  - {entry.subject}: {entry.because} [{entry.source}]" for entry in self.conflicts]
        if not self.needed and not self.ways_out:
            return "\n".join([*lines, NO_WAY])
        lines.append("What would resolve it:")
        lines += [f"  - {remedy}" for remedy in self.needed]
        if self.needed and self.ways_out:
            lines.append("  and one of:")
        lines += [f"  - {way}" for way in self.ways_out]
        return "\n".join(lines)


class PlanError(ValueError):
    """There is no plan; the message holds the reasons and the nearest ways out, `failure` the same as data."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(str(failure))
        self.failure = failure


def minimal_conflict(candidates: list[Candidate]) -> list[Reason]:
    """The fewest inputs that together rule out every release, each with its word on the newest release it rules out."""
    subjects: list[str] = []
    for candidate in candidates:
        subjects += [entry.subject for entry in candidate.reasons if entry.subject not in subjects]
    for size in range(1, len(subjects) + 1):
        for chosen in combinations(subjects, size):
            if all(candidate.subjects.intersection(chosen) for candidate in candidates):
                return [_first_word(candidates, subject) for subject in chosen]
    return []


def _first_word(candidates: list[Candidate], subject: str) -> Reason:
    """A pin is a reason against every release but one: there the newest one that it alone rules out says most."""
    alone = [candidate for candidate in candidates if candidate.subjects == {subject}]
    return next(entry for candidate in alone + candidates for entry in candidate.reasons if entry.subject == subject)


def ways_out(candidates: list[Candidate]) -> list[str]:
    """Changes after which a release can be used: no way asks for more than another one does, none is said twice."""
    ways: dict[frozenset[tuple[str, str]], str] = {}
    asked_before: list[frozenset[str]] = []
    for candidate in sorted(candidates, key=lambda candidate: len(candidate.subjects)):
        remedies: dict[str, str] = {}
        for entry in candidate.reasons:
            if entry.remedy:
                remedies.setdefault(entry.subject, entry.remedy)
        asked = candidate.subjects
        # Where one reason has no remedy, the release is out of reach whatever is changed.
        if set(remedies) != asked or any(known < asked for known in asked_before):
            continue
        # Another pin is the same change for every release.
        key = frozenset((subject, "" if subject == PIN else remedy) for subject, remedy in remedies.items())
        asked_before.append(asked)
        ways.setdefault(key, f"{' and '.join(remedies.values())}: unlocks SGLang {candidate.release}")
    return list(ways.values())[:MOST_WAYS]


def failure(against: list[Reason], candidates: list[Candidate]) -> Failure:
    """What conflicts, and what would resolve it."""
    conflict = minimal_conflict(candidates)
    needed = list(dict.fromkeys(entry.remedy for entry in against if entry.remedy))
    return Failure(against + conflict, needed, ways_out(candidates) if conflict else [])
