# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The inventory that a user copies passes the same checks as the one that the tests use."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_example_inventory_is_accepted_before_any_contact() -> None:
    command = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", "inventory/example", "site.yml", "--tags", "none"]
    variables = ["-e", "vault_gateway_api_key=0123456789abcdef"]
    environment = {**os.environ, "ANSIBLE_NOCOLOR": "1"}
    done = subprocess.run([*command, *variables], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert "Validate the inventory" in done.stdout
    assert "cannot be used" not in done.stdout, done.stdout
