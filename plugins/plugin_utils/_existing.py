# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is already installed, held against the plan. It is reported and never changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.blackwell.inference.plugins.module_utils._lock import normalized


def compare(stack: Mapping[str, Any], chosen: Mapping[str, Any]) -> dict[str, Any]:
    """A decision about an environment that was found: whether it is what the plan wants, and why not."""
    there = {normalized(name): number for name, number in stack["distributions"].items()}
    wanted = {
        "sglang": chosen["sglang"],
        "torch": chosen["torch"],
        normalized(chosen["sgl_kernel"]["name"]): chosen["sgl_kernel"]["version"],
        "flashinfer-python": chosen["flashinfer"],
    }
    differing = [
        f"{name} {number} is wanted and {there.get(name, 'none')} is there"
        for name, number in wanted.items()
        # A local part names the build: 2.11.0+cu128 is not the 2.11.0 that the index serves for CUDA 13.
        if there.get(name) not in (number, f"{number}+{chosen['torch_build']}")
    ]
    where = stack.get("path") or "the environment that was found"
    because = f"{where}: {'; '.join(differing) if differing else 'it holds the versions of this plan'}. It is left as it is."
    return {
        "subject": "existing environment",
        "choice": "not compatible" if differing else "compatible",
        "because": because,
        "source": "stack_facts",
    }
