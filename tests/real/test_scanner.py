# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The scanner on the libraries of the newest proven release, against cuobjdump and against the knowledge base."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.blackwell.inference.plugins.module_utils._elf import FileReader, read_elf
from ansible_collections.blackwell.inference.plugins.module_utils._fatbin import RELOCATABLE
from ansible_collections.blackwell.inference.plugins.module_utils._gpu_code import find_objects, scan_file, scan_tree
from ansible_collections.blackwell.inference.plugins.plugin_utils import _knowledge
from ansible_collections.blackwell.inference.tests.unit.sim import cuobjdump_kit
from bwlab.names import cache_dir


@pytest.fixture(scope="module")
def knowledge() -> _knowledge.Knowledge:
    return _knowledge.load()


@pytest.fixture(scope="module")
def pins(knowledge: _knowledge.Knowledge) -> dict[str, Any]:
    proven = {row["release"] for row in knowledge.proven if row["result"] == "ok"}
    return next(knowledge.releases[release]["pins"] for release in knowledge.newest_first if release in proven)


def compare(folder: Path, measured: Callable[[str], None]) -> dict[str, dict[str, Any]]:
    """What the scanner says of every library, by its path in the wheel, once that is known to equal cuobjdump's lists."""
    cuobjdump = cuobjdump_kit.fetch(cache_dir())
    paths, unread = find_objects(str(folder))
    assert not unread
    begin = time.perf_counter()
    scan_tree(str(folder))
    whole = time.perf_counter() - begin
    size = sum(Path(path).stat().st_size for path in paths)
    measured(f"{len(paths)} libraries, {size / 1e6:.0f} MB, all scanned in {1e3 * whole:.1f} ms")
    result = {}
    for path in sorted(paths):
        name = str(Path(path).relative_to(folder))
        with FileReader(path) as reader:
            relocatable = any(section.name == RELOCATABLE for section in read_elf(reader).sections)
        begin = time.perf_counter()
        found = scan_file(path)
        between = time.perf_counter()
        theirs = cuobjdump_kit.listed(cuobjdump, Path(path), *(["--all-fatbin"] if relocatable else []))
        end = time.perf_counter()
        assert found is not None and found["problem"] is None
        assert cuobjdump_kit.as_it_shows(found["code"]) == theirs, name
        result[name] = found
        if theirs:
            measured(
                f"{name}: {found['units']} units, {sum(theirs.values())} entries, "
                f"{1e3 * (between - begin):.1f} ms, cuobjdump {end - between:.1f} s"
            )
    return result


def in_every_unit(found: dict[str, Any]) -> list[str]:
    return [name.removeprefix("sm_") for name, count in found["code"].items() if count == found["units"]]


def test_the_kernel_wheel(
    pins: dict[str, Any],
    knowledge: _knowledge.Knowledge,
    unpacked: Callable[[str], Path],
    measured: Callable[[str], None],
) -> None:
    project, version = pins["kernel"]["name"], pins["kernel"]["version"]
    found = compare(unpacked(f"{project}=={version}"), measured)
    common = {name: in_every_unit(found[name]) for name in found if "common_ops" in name}
    assert common
    wanted = knowledge.code[project][version]["x86_64"]
    assert all(held == wanted["runs"] for held in common.values())
    assert {found[name]["cuda_major"] for name in common} == {wanted["cuda_major"]}


def test_torch(
    pins: dict[str, Any],
    knowledge: _knowledge.Knowledge,
    unpacked: Callable[[str], Path],
    measured: Callable[[str], None],
) -> None:
    version = pins["torch"]
    found = compare(unpacked(f"torch=={version}"), measured)["torch/lib/libtorch_cuda.so"]
    wanted = knowledge.code["torch"][version]["x86_64"]
    assert in_every_unit(found) == wanted["runs"]
    assert found["cuda_major"] == wanted["cuda_major"]
