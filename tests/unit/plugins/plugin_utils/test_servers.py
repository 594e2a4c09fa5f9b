# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.blackwell.inference.plugins.plugin_utils import _servers

GPU = {"devices": [{"uuid": f"GPU-{name}", "compute_capability": "12.0"} for name in "abcd"]}


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        pytest.param(["GPU-a", "GPU-b"], ["GPU-a", "GPU-b"], id="one GPU each"),
        pytest.param(["GPU-a,GPU-b", "GPU-c,GPU-d"], ["GPU-a,GPU-b", "GPU-c,GPU-d"], id="two GPUs each"),
    ],
)
def test_each_instance_has_its_own_port_and_gpu(devices: list[str], expected: list[str]) -> None:
    launch: dict[str, Any] = {"ports": [30000, 30001], "devices": devices, "args": ["--x"], "env": {"A": "1"}}
    servers = _servers.servers(launch, GPU)
    assert [server["gpu"] for server in servers] == expected
    assert [(server["index"], server["port"]) for server in servers] == [(0, 30000), (1, 30001)]
    assert {server["compute_capability"] for server in servers} == {"12.0"}


def test_a_plan_with_fewer_ports_than_instances_is_an_error() -> None:
    with pytest.raises(ValueError, match="argument 2 is longer"):
        _servers.servers({"ports": [30000], "devices": ["GPU-a", "GPU-b"], "args": [], "env": {}}, GPU)
