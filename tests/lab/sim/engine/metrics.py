# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The engine's counters, and their Prometheus text under SGLang's names."""

from __future__ import annotations

import threading
import time
from collections import deque

_TTFT = (0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400)
_E2E = (*_TTFT, 600, 1200, 1800, 2400)
_WINDOW_S = 10.0


class _Histogram:
    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds, self.counts, self.sum = bounds, [0] * (len(bounds) + 1), 0.0

    def observe(self, value: float) -> None:
        self.sum += value
        self.counts[sum(value > bound for bound in self.bounds)] += 1

    def lines(self, name: str, labels: str) -> list[str]:
        found, total = [], 0
        for bound, count in zip((*self.bounds, float("inf")), self.counts):
            total += count
            text = "+Inf" if bound == float("inf") else str(float(bound))
            found.append(f'{name}_bucket{{le="{text}",{labels}}} {float(total)}')
        return [*found, f"{name}_count{{{labels}}} {float(total)}", f"{name}_sum{{{labels}}} {self.sum}"]


class Metrics:
    """Counts requests and tokens. All methods may be called from any thread."""

    def __init__(self, model_name: str, capacity: int) -> None:
        self._lock = threading.Lock()
        self._capacity = capacity
        escaped = model_name.replace("\\", "\\\\").replace('"', '\\"')
        self._labels = f'model_name="{escaped}"'
        self.running = 0
        self.waiting = 0
        self._requests = self._prompt_tokens = self._generation_tokens = 0
        self._ttft, self._e2e = _Histogram(_TTFT), _Histogram(_E2E)
        self._recent: deque[tuple[float, int]] = deque()

    def add(self, running: int = 0, waiting: int = 0) -> None:
        with self._lock:
            self.running += running
            self.waiting += waiting

    def first_token(self, seconds: float) -> None:
        with self._lock:
            self._ttft.observe(seconds)

    def finished(self, seconds: float, prompt_tokens: int, generation_tokens: int) -> None:
        with self._lock:
            self._requests += 1
            self._prompt_tokens += prompt_tokens
            self._generation_tokens += generation_tokens
            self._e2e.observe(seconds)
            self._recent.append((time.monotonic(), generation_tokens))

    def _throughput(self) -> float:
        start = time.monotonic() - _WINDOW_S
        while self._recent and self._recent[0][0] < start:
            self._recent.popleft()
        return sum(tokens for _, tokens in self._recent) / _WINDOW_S

    def render(self) -> str:
        with self._lock:
            scheduler = f'engine_type="unified",{self._labels},pp_rank="0",tp_rank="0"'
            values: list[tuple[str, str, str, float]] = [
                ("num_running_reqs", "gauge", scheduler, self.running),
                ("num_queue_reqs", "gauge", scheduler, self.waiting),
                ("token_usage", "gauge", scheduler, self.running / self._capacity),
                ("gen_throughput", "gauge", scheduler, self._throughput()),
                ("cache_hit_rate", "gauge", scheduler, 0.0),
                ("prompt_tokens_total", "counter", self._labels, self._prompt_tokens),
                ("generation_tokens_total", "counter", self._labels, self._generation_tokens),
                ("num_requests_total", "counter", self._labels, self._requests),
            ]
            lines = []
            for name, kind, labels, value in values:
                lines += [f"# TYPE sglang:{name} {kind}", f"sglang:{name}{{{labels}}} {float(value)}"]
            for name, histogram in (("time_to_first_token", self._ttft), ("e2e_request_latency", self._e2e)):
                lines.append(f"# TYPE sglang:{name}_seconds histogram")
                lines += histogram.lines(f"sglang:{name}_seconds", self._labels)
            return "\n".join(lines) + "\n"
