# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from site_runs import site


@pytest.fixture(scope="session", autouse=True)
def converged() -> None:
    """The lab serves, and the record of this inventory is written."""
    run = site()
    assert run.status == 0, run.output
