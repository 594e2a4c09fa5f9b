# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The part of a plan that a lock is made from."""

from __future__ import annotations

from ansible_collections.blackwell.inference.plugins.plugin_utils._shape import Shape

PLAN: Shape = {
    "stack_id": "id",
    "stack": {
        "python": "python",
        "sglang": "version",
        "torch": "version",
        "sgl_kernel": {"name": "text", "version": "version"},
        "flashinfer": "version",
        "extra": {
            "as_of": "time",
            "toolkit_as_of": "time",
            "constraints": ["pin"],
            "overrides": ["pin"],
            "toolkit": ["pin"],
            "glibc": "version",
            "machine": "text",
            "*": "any",
        },
        "*": "any",
    },
    "*": "any",
}
