# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is known of a release from really trying it: where it was proven, and how good the support of a plan is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

from ansible_collections.blackwell.inference.plugins.module_utils._fatbin import runs_as
from ansible_collections.blackwell.inference.plugins.plugin_utils._host import Finding, Host
from ansible_collections.blackwell.inference.plugins.plugin_utils._knowledge import Knowledge
from ansible_collections.blackwell.inference.plugins.plugin_utils._releases import Release, Row
from ansible_collections.blackwell.inference.plugins.plugin_utils._schema import SUPPORT

# How good, why, and where that is known from.
Part = tuple[str, str, str]
_WORDS = {
    "too_young": "it is young",
    "not_proven": "we did not prove it",
    "kernel_not_inspected": "its kernel wheel was not inspected",
}


@lru_cache(maxsize=1024)
def holds_code(architectures: tuple[str, ...], capability: str) -> bool:
    return any(runs_as(f"sm_{name}", capability) for name in architectures)


def proofs(release: Release, python: str | None, machine: str) -> list[Row]:
    """The rows that were made with the target's Python on such a machine."""
    return [row for row in release.proven if (row["python"], row["machine"]) == (python, machine)]


def _where(python: str | None, machine: str) -> str:
    return f"Python {python} ({machine})"


def _nearest(release: Release, python: str | None, machine: str) -> str:
    """Where a release was proven, the row that has most in common with the target."""
    row = max(release.proven, key=lambda row: (row["machine"] == machine, row["python"] == python))
    return _where(row["python"], row["machine"])


def choose_python(release: Release, host: Host) -> str | None:
    """The newest that the target has, but before it one that this release was proven with."""
    able = [name for name in host.pythons if name in release.pythons]
    proven = {row["python"] for row in release.proven if row["machine"] == host.machine}
    return next((name for name in able if name in proven), able[0] if able else None)


def gaps(knowledge: Knowledge, release: Release, python: str | None, machine: str, pinned: bool) -> Iterator[Finding]:
    """What is lacking before a release is chosen unasked; one that was asked for gets a word on it."""
    lacking: list[Finding] = []
    if release.age_days < knowledge.policy["minimum_age_days"]:
        lacking.append(("too_young", {"found": release.age_days, "wanted": knowledge.policy["minimum_age_days"]}))
    if not release.proven:
        lacking.append(("not_proven", {}))
    elif not pinned and python and not proofs(release, python, machine):
        yield "proven_elsewhere", {"found": _nearest(release, python, machine), "wanted": _where(python, machine)}
    if machine not in release.kernel_code:
        lacking.append(("kernel_not_inspected", {}))
    if not pinned:
        yield from lacking
    elif lacking:
        yield "pinned_without_proof", {"found": " and ".join(_WORDS[finding] for finding, _fields in lacking)}


def _proven_for(release: Release, python: str | None, toolkit: str | None, host: Host) -> Part:
    exact = proofs(release, python, host.machine)
    # What was compiled and served with another toolkit says nothing of this one.
    alike = [row for row in exact if row["toolkit"] == toolkit]
    capabilities = [capability for capability, _memory in host.classes]
    if {capability for row in alike for capability in row["served"]}.issuperset(capabilities):
        return "verified", "this release served on such a card with this Python.", "proven.yml"
    if exact:
        compiled = tuple(sorted({name for row in alike for name in row["compiled"]}))
        lacking = [capability for capability in capabilities if not holds_code(compiled, capability)]
        made = f"not made to compile for {', '.join(lacking)} with toolkit {toolkit}" if lacking else "made to compile for such a card"
        because = (
            f"it was installed and imported on {_where(python, host.machine)} on {exact[-1]['day']} and {made}; it did not serve on one."
        )
        return "expected", because, "proven.yml"
    if release.proven:
        return (
            "expected",
            f"it was proven on {_nearest(release, python, host.machine)}, not on {_where(python, host.machine)}.",
            "proven.yml",
        )
    return "functional", "it was not proven by us.", "proven.yml"


def support(release: Release, python: str | None, toolkit: str | None, host: Host, more: Iterable[Part]) -> Part:
    """The weakest part counts; the first of the weakest says why."""
    parts = [_proven_for(release, python, toolkit, host), *more]
    return min(parts, key=lambda part: SUPPORT.index(part[0]))
