# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What share of a card the weights and caches may take, and whether the model fits into it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import floor
from typing import Any

from ansible_collections.blackwell.inference.plugins.plugin_utils._host import Finding, Host

MIB = 1 << 20
GIB = 1 << 30


@dataclass(frozen=True)
class Share:
    fraction: float
    because: str


def _reserve(policy: Mapping[str, Any], total: int, host: Host, vision: bool, speculative: bool, requests: int | None) -> float:
    """MiB that stay outside the static share, counted as SGLang counts them."""
    row = next((row for row in policy["reserve"] if total < row["below_mib"]), policy["reserve"][-1])
    graph = min(row["graph"], requests) if requests else row["graph"]
    reserve: float = policy["base_mib"] + policy["per_token_mib"] * row["chunk"] + policy["per_request_mib"] * graph
    reserve += policy["prefill_sizes_mib"] + policy["per_rank_mib"] * host.tensor_parallel
    if total > policy["large_card_mib"]:
        reserve = max(reserve, policy["least_mib_on_large_cards"])
    reserve += policy["vision_mib"] if vision else 0
    return float(reserve + (policy["speculative_mib"] if speculative else 0))


def share(
    policy: Mapping[str, Any], model: Mapping[str, Any], request: Mapping[str, Any], host: Host, speculative: bool
) -> tuple[Share | None, list[Finding]]:
    """The fraction with its reason, or what does not fit. Unknown sizes are findings of their own elsewhere."""
    total, weights = host.memory_mib, model["weight_bytes"]
    known = model.get("max_context")
    asked = request.get("context_length")
    if asked and known and asked > known:
        return None, [("context_too_long", {"found": asked, "wanted": known})]
    if total is None or weights is None:
        return None, []
    parallel = host.tensor_parallel
    context = asked or min(policy["least_context"], known or policy["least_context"])
    cache = (model.get("kv_bytes_per_token") or 0) * context + (model.get("state_bytes_per_request") or 0)

    def left(ranks: int) -> float:
        """Bytes that one card has beside its part of the weights and of one request's caches."""
        return float(limit * total * MIB - (weights + cache) / ranks)

    reserve = _reserve(policy, total, host, bool(model["vision"]), speculative, request.get("max_running_requests"))
    worked_out = max(0.0, floor((total - reserve) / total * 1000) / 1000)
    limit = min(worked_out, policy["highest_fraction"])
    if left(parallel) < 0:
        more = next((ranks for ranks in (2, 4, 8, 16) if ranks > parallel and left(ranks) >= 0), None)
        elsewhere = f" on a host with as many cards (here: {len(host.devices)})" if more and more > len(host.devices) else ""
        told = {
            "found": f"weights of {weights / GIB:.1f} GiB and {cache / GIB:.1f} GiB of cache for one request of {context} tokens",
            "available": f"{limit * total / 1024:.1f} of {total / 1024:.1f} GiB, the rest is working memory",
            "wanted": f"{more or 'of more cards than 16'}{elsewhere}",
        }
        return None, [("does_not_fit", told)]
    spare = left(parallel) + cache / parallel
    tokens = f", about {int(spare * parallel / model['kv_bytes_per_token']):,} tokens" if model.get("kv_bytes_per_token") else ""
    because = (
        f"of {total / 1024:.1f} GiB {reserve / 1024:.1f} GiB stay free for activations, CUDA graphs"
        f"{' and the vision encoder' if model['vision'] else ''}; beside weights of {weights / parallel / GIB:.1f} GiB that leaves "
        f"{spare / GIB:.1f} GiB for caches{tokens}. SGLang takes it as a share of what is free at its start"
        f"{', so it is capped at ' + str(limit) if limit < worked_out else ''}."
    )
    return Share(limit, because), []
