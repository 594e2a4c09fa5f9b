# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The inventories that a user copies pass the same checks as the one that the tests use."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("name", ["example", "fleet"])
def test_the_inventory_is_accepted_before_any_contact(name: str) -> None:
    command = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", f"inventory/{name}", "site.yml", "--tags", "none"]
    variables = ["-e", "vault_gateway_api_key=0123456789abcdef"]
    environment = {**os.environ, "ANSIBLE_NOCOLOR": "1"}
    done = subprocess.run([*command, *variables], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert "Validate the inventory" in done.stdout
    assert "cannot be used" not in done.stdout, done.stdout
