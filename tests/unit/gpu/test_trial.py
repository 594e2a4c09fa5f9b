# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the containers of a trial are given, and how an answer is read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trial
from ansible_collections.blackwell.inference.plugins.module_utils import _model, _model_folder, _stack_facts
from room import RoomError

UBUNTU = """\
	libnvidia-ml.so.1 (libc6) => /lib/i386-linux-gnu/libnvidia-ml.so.1
	libnvidia-ml.so.1 (libc6,x86-64) => /lib/x86_64-linux-gnu/libnvidia-ml.so.1
	libnvidia-ml.so (libc6,x86-64) => /lib/x86_64-linux-gnu/libnvidia-ml.so
"""


@pytest.mark.parametrize(
    ("listed", "wanted"),
    [
        ("", None),
        (UBUNTU, "/lib/x86_64-linux-gnu/libnvidia-ml.so.1"),
        ("\tlibnvidia-ml.so.1 (libc6,x86-64) => /usr/local/nvidia/lib64/libnvidia-ml.so.1\n", "/usr/local/nvidia/lib64/libnvidia-ml.so.1"),
        ("\tlibnvidia-ml.so.1 (libc6) => /lib/i386-linux-gnu/libnvidia-ml.so.1\n", None),
        ("\tlibnvidia-ml.so.1 (libc6,x86-64, hwcap: 3) => /opt/l/libnvidia-ml.so.1\n", "/opt/l/libnvidia-ml.so.1"),
    ],
)
def test_the_64_bit_library_of_the_driver(listed: str, wanted: str | None) -> None:
    assert trial.driver_library(listed) == wanted


def test_the_model_is_what_it_is_said_to_be(tmp_path: Path) -> None:
    trial.write_model(tmp_path / "model")
    found = _model.describe(_model_folder.read_folder(str(tmp_path / "model")))
    assert {key: found[key] for key in trial.MODEL_FACTS} == trial.MODEL_FACTS


def test_the_stand_in_for_packages_has_something_of_all_that_is_compared(tmp_path: Path) -> None:
    trial.write_packages(tmp_path / trial.PROGRAMS)
    found = _stack_facts.describe(str(tmp_path), "")
    assert found["distributions"] == {"kernels": "1.0"}
    assert list(found["cuda_major"].values()) == [13]
    assert list(found["code"].values()) == [{"compute_90": 1, "sm_90": 1, "sm_120a": 1}]


GOOD = json.dumps({"changed": False, "ansible_facts": {"gpu": {"count": 1}}})


@pytest.mark.parametrize("text", [GOOD, f"\n{GOOD}\n", f"warning: something\n{GOOD}"])
def test_facts_are_read_from_what_a_module_prints(text: str) -> None:
    assert trial.facts_in(text, "gpu") == {"count": 1}


@pytest.mark.parametrize("text", ["", "Traceback (most recent call last):", '{"failed": true, "msg": "no"}', '{"ansible_facts": {}}', "{"])
def test_no_facts_is_an_error_that_shows_the_output(text: str) -> None:
    answer = {"name": "blackwell-whole", "run": {"gpu": {"status": 1, "out": text, "err": "why"}}}
    with pytest.raises(RoomError) as caught:
        trial.facts_of(answer, "gpu", "gpu")
    assert "blackwell-whole: gpu ended with 1:" in str(caught.value)
    assert text in str(caught.value) and "why" in str(caught.value)


@pytest.mark.parametrize("driver", [True, False])
def test_a_container_with_and_without_the_driver(driver: bool) -> None:
    made = trial.container("x", {"/dev/nvidia0": "/dev/nvidia0"}, driver, {"gpu": trial.payload("gpu")})
    assert ("/usr/local/nvidia/lib64" in made["binds"], bool(made["files"])) == (driver, driver)
    assert made["binds"]["/dev/nvidia0"] == "/dev/nvidia0"
    # The user is there, and what an earlier container left in the linker's cache is gone, before anything is asked.
    assert list(made["run"]) == ["user", "libraries", "gpu"]


def test_every_payload_is_of_a_module_of_the_collection() -> None:
    modules = {path.stem for path in (trial.CHECKOUT / "plugins" / "modules").glob("*.py")}
    assert {module for module, _options in trial.MODULES.values()} <= modules
