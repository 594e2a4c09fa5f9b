# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is already installed, held against the plan. It is reported and never changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.blackwell.inference.plugins.module_utils._lock import normalized

SUBJECT = "existing environment"


def compare(stack: Mapping[str, Any], chosen: Mapping[str, Any]) -> dict[str, Any]:
    """A decision about an environment that was found: whether it is what the plan wants, and why not."""
    there = {normalized(name): number for name, number in stack["distributions"].items()}
    wanted = {
        "sglang": chosen["sglang"],
        "torch": chosen["torch"],
        normalized(chosen["sgl_kernel"]["name"]): chosen["sgl_kernel"]["version"],
        "flashinfer-python": chosen["flashinfer"],
    }
    build = chosen["torch_build"]
    # A local part names the build: 2.11.0+cu128 is not the 2.11.0 that the index serves for CUDA 13.
    differing = [name for name, number in wanted.items() if there.get(name) not in (number, f"{number}+{build}")]
    holds = [f"{name} {there[name]}" for name in wanted if name in there] + [f"no {name}" for name in wanted if name not in there]
    against = []
    if differing:
        named = (f"{name} {wanted[name]}{f' ({build})' if name == 'torch' else ''}" for name in differing)
        against.append(f"the plan wants {', '.join(named)}")
    majors = sorted({major for major in (stack.get("cuda_major") or {}).values() if not build.startswith(f"cu{major}")})
    if majors:
        against.append(f"it holds binaries of CUDA {' and '.join(map(str, majors))}, and the plan is of {build}")
    against += [str(problem.get("found")) for problem in stack.get("problems") or [] if problem["severity"] == "error"]
    where = stack.get("path") or "the environment that was found"
    verdict = f"not compatible, because {'; '.join(against)}" if against else "compatible, it holds the versions of this plan"
    return {
        "subject": SUBJECT,
        "choice": "not compatible" if against else "compatible",
        "because": f"{where}: {', '.join(holds)}: {verdict}. It is left as it is.",
        "source": "stack_facts",
    }
