# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The servers of a plan, one entry each, as the module inference_instances takes them. Pure; private to the collection."""

from __future__ import annotations

from typing import Any


def servers(launch: dict[str, Any], gpu: dict[str, Any]) -> list[dict[str, Any]]:
    """Give each planned instance its port, its GPU (or GPUs, joined by commas) and the measured capability."""
    capabilities = {device["uuid"]: device["compute_capability"] for device in gpu["devices"]}
    return [
        {
            "index": index,
            "port": port,
            "gpu": uuid,
            "compute_capability": capabilities[uuid.partition(",")[0]],
            "args": launch["args"],
            "env": launch["env"],
        }
        for index, (port, uuid) in enumerate(zip(launch["ports"], launch["devices"], strict=True))
    ]
