# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How many examples a property test gets. One that names no max_examples of its own gets the profile's."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# A slow or busy machine is no fault of the code: what must be quick counts its reads instead.
_COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("ci", max_examples=500, **_COMMON)
settings.register_profile("nightly", max_examples=20_000, **_COMMON)
settings.load_profile("ci")
