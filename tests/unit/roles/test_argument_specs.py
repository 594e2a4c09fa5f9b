# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every public variable of a role stands in its defaults and in its argument_specs, with the same default."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

ROLES = Path(__file__).parents[3] / "roles"
NAMES = sorted(path.name for path in ROLES.iterdir())


def load(role: str, path: str) -> Any:
    return yaml.safe_load((ROLES / role / path).read_text(encoding="utf-8"))


def options(role: str) -> dict[str, Any]:
    entry_points = load(role, "meta/argument_specs.yml")["argument_specs"].values()
    return {name: option for entry in entry_points for name, option in entry.get("options", {}).items()}


@pytest.mark.parametrize("role", NAMES)
def test_defaults_and_argument_specs_have_the_same_keys(role: str) -> None:
    assert set(load(role, "defaults/main.yml")) == set(options(role))


@pytest.mark.parametrize("role", NAMES)
def test_documented_defaults_are_the_real_ones(role: str) -> None:
    defaults = load(role, "defaults/main.yml")
    documented = {name: option["default"] for name, option in options(role).items() if "default" in option}
    assert documented == {name: defaults[name] for name in documented}


@pytest.mark.parametrize("role", NAMES)
def test_every_default_that_can_be_stated_is_stated(role: str) -> None:
    """A default that is a template, empty or null is described in words; any other one stands in the specification."""
    described = {
        name for name, value in load(role, "defaults/main.yml").items() if value in (None, "", 0, [], {}) or "{{" in str(value)
    }
    undocumented = {name for name, option in options(role).items() if "default" not in option and not option.get("required")}
    assert undocumented <= described


@pytest.mark.parametrize("role", NAMES)
def test_public_names_have_the_prefix_of_the_role(role: str) -> None:
    assert [name for name in options(role) if not name.startswith(f"{role}_")] == []
