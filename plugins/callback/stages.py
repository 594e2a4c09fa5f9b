# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Seconds per stage at the end of a run."""

from __future__ import annotations

DOCUMENTATION = r"""
name: stages
type: aggregate
short_description: Print how long each stage of a run took
description:
  - Prints one line for each play with its seconds when the run ends.
author:
  - blackwell.inference contributors (@blackwell-inference)
requirements:
  - enable it with C(callbacks_enabled = blackwell.inference.stages) in C(ansible.cfg)
"""

import time
from typing import Any

from ansible.plugins.callback import CallbackBase


def durations(starts: list[tuple[str, float]], end: float) -> list[tuple[str, float]]:
    """Return (name, seconds) for each stage, in the order of their starts; each ends where the next one starts."""
    ends = [*(start for dummy, start in starts), end][1:]
    return [(name, stop - start) for (name, start), stop in zip(starts, ends, strict=True)]


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "blackwell.inference.stages"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._starts: list[tuple[str, float]] = []

    def v2_playbook_on_play_start(self, play: Any) -> None:
        self._starts.append((play.get_name(), time.monotonic()))

    def v2_playbook_on_stats(self, stats: Any) -> None:
        stages = durations(self._starts, time.monotonic())
        self._display.banner("SECONDS PER STAGE")
        for name, seconds in [*stages, ("total", sum(seconds for dummy, seconds in stages))]:
            self._display.display(f"{seconds:8.1f}  {name}")
