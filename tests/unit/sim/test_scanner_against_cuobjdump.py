# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The scanner on what nvcc makes, against cuobjdump and against what nvcc was told to make."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.blackwell.inference.plugins.module_utils._gpu_code import scan_file, verdict
from ansible_collections.blackwell.inference.tests.unit.plugins.module_utils.fuzz_kit import changed
from ansible_collections.blackwell.inference.tests.unit.plugins.module_utils.test_gpu_code import check_hostile
from ansible_collections.blackwell.inference.tests.unit.sim import cuobjdump_kit
from bwlab.names import cache_dir
from hypothesis import given
from hypothesis import strategies as st
from sim import toolkit

# Three files that can be linked into one library; two of them need each other on the GPU.
SOURCES = {
    "alone": 'extern "C" __global__ void one(float *v) { v[threadIdx.x] += 1.0f; }\n'
    'extern "C" void launch_one(float *v) { one<<<1, 32>>>(v); }\n',
    "caller": "__device__ float twice(float);\n"
    'extern "C" __global__ void two(float *v) { v[threadIdx.x] = twice(v[threadIdx.x]); }\n'
    'extern "C" void launch_two(float *v) { two<<<1, 32>>>(v); }\n',
    "called": "__device__ float twice(float x) { return 2.0f * x; }\n",
}


@dataclass(frozen=True)
class Tools:
    work: Path

    @cached_property
    def prefix(self) -> Path:
        toolkit.require_host_compilers()
        return toolkit.unpack_compiler(cache_dir(), toolkit.fetch_packages(cache_dir()))

    @cached_property
    def cuobjdump(self) -> Path:
        return cuobjdump_kit.fetch(cache_dir())

    def run(self, *words: object) -> None:
        # A bare environment: nvcc looks at variables, and none may lead it elsewhere.
        environment = {"PATH": "/usr/bin:/bin", "TMPDIR": str(self.work), "LC_ALL": "C"}
        answer = subprocess.run(list(map(str, words)), env=environment, cwd=self.work, capture_output=True, text=True, check=False)
        assert answer.returncode == 0, answer.stderr

    def nvcc(self, *words: object) -> None:
        self.run(self.prefix / "bin" / "nvcc", "--compiler-options=-fPIC", *words)

    def compile(self, source: str, targets: Sequence[str], *options: str) -> Path:
        """Each target by the name that the scanner gives it."""
        target = self.work / ("-".join([source, *targets, *options]) + ".o")
        if not target.exists():
            (self.work / f"{source}.cu").write_text(SOURCES[source], encoding="ascii")
            self.nvcc("--compile", *generate(targets), *options, f"{source}.cu", "--output-file", target)
        return target

    def link(self, name: str, *objects: Path) -> Path:
        target = self.work / f"{name}.so"
        self.run("g++", "-shared", *objects, "-o", target, f"-L{self.prefix}/lib", "-l:libcudart.so.13")
        return target

    def link_by_nvcc(self, name: str, targets: Sequence[str], *objects: Path) -> Path:
        target = self.work / f"{name}.so"
        self.nvcc("--shared", *generate(targets), *objects, f"-L{self.prefix}/lib", "--output-file", target)
        return target


def generate(targets: Sequence[str]) -> list[str]:
    return [f"--generate-code=arch=compute_{target.partition('_')[2]},code={target}" for target in targets]


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Tools:
    return Tools(tmp_path_factory.mktemp("nvcc"))


def scan(tools: Tools, library: Path) -> dict[str, Any]:
    """What the scanner says, once it is known to be what cuobjdump says."""
    found = scan_file(str(library))
    assert found is not None and found["problem"] is None
    assert cuobjdump_kit.as_it_shows(found["code"]) == cuobjdump_kit.listed(tools.cuobjdump, library, "--all-fatbin")
    return found


MANY = ("sm_80", "sm_90a", "sm_100f", "sm_103a", "sm_120a", "sm_120f", "compute_90", "compute_120a", "compute_120f")


@pytest.mark.parametrize(
    ("targets", "options", "how"),
    [
        (("sm_90", "sm_120"), (), {"9.0": "native", "12.0": "native", "12.1": "native", "10.0": "none"}),
        (("sm_120a",), (), {"12.0": "native", "12.1": "none"}),
        (("sm_120f",), (), {"12.0": "native", "12.1": "native", "10.0": "none"}),
        (("sm_100f", "sm_121"), (), {"10.0": "native", "10.3": "native", "12.0": "none", "12.1": "native"}),
        (("compute_90",), (), {"8.0": "none", "9.0": "ptx", "12.0": "ptx"}),
        (("compute_120", "sm_120"), (), {"10.0": "none", "12.0": "native"}),
        (MANY, (), {"8.6": "native", "9.0": "native", "10.3": "native", "11.0": "ptx", "12.0": "native", "12.1": "native"}),
        (("sm_120f", "compute_90"), ("--compress-mode=size",), {"12.1": "native", "10.0": "ptx"}),
        (("sm_120a", "compute_120a"), ("--compress-mode=speed",), {"12.0": "native", "12.1": "none"}),
        (("sm_90", "compute_90"), ("--compress-mode=none",), {"9.0": "native", "12.0": "ptx"}),
    ],
)
def test_one_unit(tools: Tools, targets: tuple[str, ...], options: tuple[str, ...], how: dict[str, str]) -> None:
    library = tools.link("one", tools.compile("alone", targets, *options))
    found = scan(tools, library)
    assert found["code"] == dict.fromkeys(targets, 1)
    assert (found["units"], found["cuda_major"]) == (1, 13)
    assert {capability: verdict(found["code"], 1, capability, found["sets"])["how"] for capability in how} == how
    # Without relocatable code the plain list is the same one.
    assert cuobjdump_kit.listed(tools.cuobjdump, library) == cuobjdump_kit.as_it_shows(found["code"])


def test_units_that_differ(tools: Tools) -> None:
    objects = [
        tools.compile("alone", ("sm_90", "sm_120")),
        tools.compile("caller", ("sm_120a", "compute_90"), "--relocatable-device-code=true"),
        tools.compile("called", ("sm_120a", "compute_90"), "--relocatable-device-code=true"),
    ]
    found = scan(tools, tools.link("differ", *objects))
    assert found["code"] == {"compute_90": 2, "sm_90": 1, "sm_120": 1, "sm_120a": 2}
    answers = {capability: verdict(found["code"], found["units"], capability, found["sets"]) for capability in ("12.0", "12.1", "10.0")}
    assert answers == {
        "12.0": {"how": "native", "missing_units": 0},
        "12.1": {"how": "ptx", "missing_units": 0},
        "10.0": {"how": "partial", "missing_units": 1},
    }


def test_the_unit_that_nvcc_adds_when_it_links(tools: Tools) -> None:
    targets = ("sm_90", "compute_90")
    found = scan(tools, tools.link_by_nvcc("added", targets, tools.compile("alone", targets)))
    assert (found["code"], found["units"]) == ({"compute_90": 1, "sm_90": 2}, 1)
    assert verdict(found["code"], found["units"], "12.0", found["sets"]) == {"how": "ptx", "missing_units": 0}


def test_relocatable_code_and_what_was_linked_from_it(tools: Tools) -> None:
    targets = ("sm_90", "sm_120")
    objects = [tools.compile(name, targets, "--relocatable-device-code=true") for name in ("caller", "called")]
    assert scan(tools, objects[0])["code"] == {"sm_90": 1, "sm_120": 1}
    library = tools.link_by_nvcc("linked", targets, *objects)
    assert scan(tools, library)["code"] == {"sm_90": 3, "sm_120": 3}
    # Without its option, cuobjdump lists what was linked alone.
    assert cuobjdump_kit.listed(tools.cuobjdump, library) == {"sm_90": 1, "sm_120": 1}


def test_code_for_the_device_linker(tools: Tools) -> None:
    objects = [tools.compile(name, ("lto_120", "sm_90"), "--relocatable-device-code=true") for name in ("caller", "called")]
    unlinked = scan(tools, objects[0])
    assert (unlinked["code"], unlinked["units"]) == ({"lto_120": 1, "sm_90": 1}, 1)
    assert verdict(unlinked["code"], unlinked["units"], "12.0", unlinked["sets"]) == {"how": "none", "missing_units": 1}
    linked = scan(tools, tools.link_by_nvcc("lto", ("sm_90",), *objects))
    assert (linked["code"], linked["units"]) == ({"lto_120": 2, "sm_90": 3}, 1)


def test_a_library_without_gpu_code(tools: Tools) -> None:
    (tools.work / "plain.c").write_text("int plain(void) { return 1; }\n", encoding="ascii")
    tools.run("gcc", "-shared", "-fPIC", "plain.c", "-o", "plain.so")
    assert scan(tools, tools.work / "plain.so")["code"] == {}


@pytest.fixture(scope="module")
def library(tools: Tools) -> bytes:
    return tools.link("changed", tools.compile("alone", ("sm_120f", "compute_90"))).read_bytes()


@given(st.data())
def test_changed_files_of_nvcc_are_answered(tools: Tools, library: bytes, data: st.DataObject) -> None:
    check_hostile(tools.work, data.draw(changed(library)))
