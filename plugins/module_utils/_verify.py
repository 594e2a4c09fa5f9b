# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is checked before a service may start on a stack: pure functions on what was gathered.

This module util is PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.blackwell.inference.plugins.module_utils._gpu_code import verdict
from ansible_collections.blackwell.inference.plugins.module_utils._lock import Lock

# What must bring GPU code of its own: distribution to folder. Without this, a CPU-only build has nothing to object to.
MUST_HOLD_CODE = {"torch": "torch", "sglang-kernel": "sgl_kernel", "sgl-kernel": "sgl_kernel"}
# More would hide the sentence that matters.
SHOWN = 8
_FLAG = re.compile(r"(?<![\w-])--[a-z0-9][a-z0-9-]*")


@dataclass(frozen=True)
class HelpOutput:
    """What `python -m sglang.launch_server --help` did; status None: it ran past its time."""

    status: int | None
    out: str = ""
    err: str = ""


@dataclass(frozen=True)
class Evidence:
    """Everything the checks look at."""

    lock: Lock
    problem: str | None
    installed: dict[str, str]
    code: dict[str, dict[str, Any]]
    help: HelpOutput
    exempt: list[str] = field(default_factory=list)


def _check(name: str, ok: bool, found: str, wanted: str, remedy: str) -> dict[str, Any]:
    return {"name": name, "ok": ok, "found": found, "wanted": wanted, "remedy": "" if ok else remedy}


def _some(items: Iterable[str]) -> str:
    listed = list(items)
    more = f" and {len(listed) - SHOWN} more" if len(listed) > SHOWN else ""
    return "; ".join(listed[:SHOWN]) + more


def _exempt(path: str, exempt: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(path, pattern) for pattern in exempt)


def check_manifest(problem: str | None) -> dict[str, Any]:
    return _check(
        "manifest",
        problem is None,
        problem or "every file as in the manifest",
        "every file as in the manifest",
        "Run stack_build: it removes this stack and builds it again",
    )


def check_distributions(lock: Lock, installed: dict[str, str]) -> dict[str, Any]:
    wanted = {one.name: one.version for one in lock.requirements}
    names = sorted(set(wanted) | set(installed))
    wrong = [
        f"{name} {installed.get(name, 'absent')} (lock: {wanted.get(name, 'not named')})"
        for name in names
        if installed.get(name) != wanted.get(name)
    ]
    return _check(
        "distributions",
        not wrong,
        _some(wrong) or f"{len(installed)} distributions",
        f"exactly the {len(wanted)} distributions of the lock",
        "Something was installed into the stack: remove its folder and run stack_build",
    )


def check_cuda_major(lock: Lock, code: dict[str, dict[str, Any]], exempt: list[str]) -> dict[str, Any]:
    majors: dict[int, list[str]] = {}
    for path, entry in sorted(code.items()):
        if entry["cuda_major"] is not None and not _exempt(path, exempt):
            majors.setdefault(entry["cuda_major"], []).append(path)
    for part in lock.toolkit:
        if part.name.startswith("nvidia-cuda-nvcc"):
            majors.setdefault(int(part.version.split(".")[0]), []).append(f"{part.name} {part.version}")
    found = [f"CUDA {major} in {_some(files)}" for major, files in sorted(majors.items())]
    return _check(
        "cuda_major",
        len(majors) <= 1,
        f"CUDA {next(iter(majors))} throughout" if len(majors) == 1 else _some(found) or "no CUDA library",
        "one CUDA major throughout",
        "Make the plan and the lock again: torch, kernel wheel and toolkit must be of one CUDA major",
    )


def check_code(code: dict[str, dict[str, Any]], capability: str, exempt: list[str]) -> dict[str, Any]:
    """Metadata and hashes cannot show this: does every object that the loader may pick hold code for this GPU?"""
    wrong = []
    native = 0
    for path, entry in sorted(code.items()):
        if _exempt(path, exempt):
            continue
        if entry.get("problem"):
            wrong.append(f"{path}: {entry['problem']}")
        elif entry["units"]:
            result = verdict(entry["code"], entry["units"], capability, entry.get("sets"))
            if result["how"] in ("native", "ptx"):
                native += 1
            else:
                held = ", ".join(sorted(entry["code"])) or "nothing"
                wrong.append(
                    f"{path} has no code for {capability} in {result['missing_units']} of {entry['units']} units (it holds {held})"
                )
    return _check(
        f"gpu_code {capability}",
        not wrong,
        _some(wrong) or f"{native} objects that run on {capability}",
        f"code for {capability} in every unit of every object that is not exempt",
        f"This stack cannot run on a GPU of capability {capability}: choose another release of the named wheel, or name"
        " the file in gpu_code_exempt if it is never loaded there",
    )


def check_code_present(lock: Lock, code: dict[str, dict[str, Any]], capability: str) -> dict[str, Any]:
    folders = {one.name: MUST_HOLD_CODE[one.name] for one in lock.requirements if one.name in MUST_HOLD_CODE}

    def runs(folder: str) -> bool:
        return any(
            path.startswith(f"{folder}/")
            and entry["units"]
            and verdict(entry["code"], entry["units"], capability, entry.get("sets"))["how"] in ("native", "ptx")
            for path, entry in code.items()
        )

    without = [name for name, folder in folders.items() if not runs(folder)]
    return _check(
        f"gpu_code_present {capability}",
        not without,
        f"no object that runs on {capability} in {', '.join(without)}" if without else ", ".join(folders) or "none due",
        f"at least one object that runs on {capability} in each of {', '.join(folders) or 'no distribution'}",
        "A build for CPUs or for other GPUs is installed: make the lock again from the index that the plan names",
    )


def check_help(output: HelpOutput, flags: Iterable[str]) -> list[dict[str, Any]]:
    """The import is the test: a closure that cannot import fails here, before any service does."""
    ran = output.status == 0
    ending = "it ran past its time" if output.status is None else f"exit status {output.status}"
    tail = " / ".join(line.strip() for line in (output.err or output.out).strip().splitlines()[-3:])
    known = set(_FLAG.findall(output.out))
    imported = _check(
        "engine_help",
        ran and bool(known),
        f"{len(known)} flags" if ran else f"{ending}: {tail[-600:]}",
        "`python -m sglang.launch_server --help` lists its flags",
        "The closure of this lock does not import: make the lock again as of the release's own day, or see the last lines of its output",
    )
    if not imported["ok"]:
        return [imported]
    wanted = list(flags)
    unknown = [flag for flag in wanted if flag not in known]
    listed = _check(
        "engine_flags",
        not unknown,
        f"unknown: {', '.join(unknown)}" if unknown else f"all {len(wanted)} flags",
        "every flag of the plan in the installed engine's --help",
        "Names change between releases: correct the named flags in the request, or choose the release that has them",
    )
    return [imported, listed]


def run_checks(evidence: Evidence, capabilities: Iterable[str], flags: Iterable[str]) -> list[dict[str, Any]]:
    checks = [
        check_manifest(evidence.problem),
        check_distributions(evidence.lock, evidence.installed),
        check_cuda_major(evidence.lock, evidence.code, evidence.exempt),
    ]
    for capability in sorted(set(capabilities)):
        checks.append(check_code(evidence.code, capability, evidence.exempt))
        checks.append(check_code_present(evidence.lock, evidence.code, capability))
    return checks + check_help(evidence.help, flags)


def message(path: str, failures: list[dict[str, Any]]) -> str:
    lines = [f"The stack {path} is not proven; {len(failures)} checks failed:"]
    for check in failures:
        lines.append(f"- {check['name']}: found {check['found']}; wanted {check['wanted']}. {check['remedy']}")
    return "\n".join(lines)
