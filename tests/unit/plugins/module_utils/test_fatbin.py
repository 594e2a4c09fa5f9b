# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest
from ansible_collections.blackwell.inference.plugins.module_utils import _fatbin
from ansible_collections.blackwell.inference.plugins.module_utils._elf import FileReader, read_elf
from ansible_collections.blackwell.inference.plugins.module_utils._fatbin import (
    FileCode,
    parse_arch,
    parse_capability,
    read_code,
    runs_as,
)
from ansible_collections.blackwell.inference.tests.unit.plugins.module_utils.elf_kit import STUB, container, elf, entry, fat_elf
from ansible_collections.blackwell.inference.tests.unit.plugins.module_utils.fuzz_kit import watched


def code_of(path: Path, data: bytes) -> FileCode:
    path.write_bytes(data)
    with FileReader(str(path)) as reader:
        return read_code(reader, read_elf(reader))


@pytest.mark.parametrize("padding", [0, 8, 16, 4096, 8192])
def test_counts_units_by_architecture(tmp_path: Path, padding: int) -> None:
    found = code_of(
        tmp_path / "x.so",
        fat_elf(("sm_80", "sm_120a"), ("sm_80", "sm_120a", "compute_90"), ("sm_100f",), padding=padding),
    )
    assert found.code == {"compute_90": 1, "sm_80": 2, "sm_100f": 1, "sm_120a": 2}
    assert found.sets == {("sm_100f",): 1, ("sm_80", "sm_120a"): 1, ("compute_90", "sm_80", "sm_120a"): 1}
    assert (found.units, found.problem) == (3, None)


@pytest.mark.parametrize(
    ("linked", "relocatable", "code", "sets"),
    [
        (("sm_90",), ("sm_90",), {"sm_90": 2}, {("sm_90",): 2}),
        # Linked from LTO-IR: its machine code is in the linked unit, and the GPU needs no more.
        (("sm_90", "sm_120"), ("lto_120", "sm_90"), {"lto_120": 1, "sm_90": 2, "sm_120": 1}, {("sm_90", "sm_120"): 1}),
        # Nobody linked it: nothing in it runs on 12.0.
        ((), ("lto_120", "sm_90"), {"lto_120": 1, "sm_90": 1}, {("lto_120", "sm_90"): 1}),
        ((), ("lto_120",), {"lto_120": 1}, {("lto_120",): 1}),
    ],
)  # fmt: skip
def test_relocatable_code(
    tmp_path: Path, linked: tuple[str, ...], relocatable: tuple[str, ...], code: object, sets: object
) -> None:
    data = elf({name: container(*map(entry, names)) for name, names in ((".nv_fatbin", linked), ("__nv_relfatbin", relocatable))})
    found = code_of(tmp_path / "x.so", data)
    assert (found.code, found.sets) == (code, sets)


def test_an_unknown_kind_is_a_unit_without_code_that_runs(tmp_path: Path) -> None:
    found = code_of(tmp_path / "x.so", elf({".nv_fatbin": container(entry("64_120")) + container(entry("64_120"), entry("sm_90"))}))
    assert found == FileCode({"sm_90": 1}, {(): 1, ("sm_90",): 1}, 2, None)


def test_the_same_architecture_twice_in_a_unit_counts_once(tmp_path: Path) -> None:
    data = elf({".nv_fatbin": container(entry("sm_90"), entry("sm_90"))})
    assert code_of(tmp_path / "x.so", data).code == {"sm_90": 1}


def test_a_unit_without_a_kernel_is_counted_as_code_but_not_as_a_unit(tmp_path: Path) -> None:
    """nvcc adds such a one for the link, for machine code targets only (seen with nvcc 13.0)."""
    data = elf({".nv_fatbin": container(entry("sm_90"), entry("compute_90")) + container(entry("sm_90", STUB))})
    found = code_of(tmp_path / "x.so", data)
    assert found.code == {"compute_90": 1, "sm_90": 2}
    assert found.units == 1


def test_a_compressed_unit_may_hold_a_kernel(tmp_path: Path) -> None:
    data = elf({".nv_fatbin": container(entry("sm_90", STUB, extra=0x8000))})
    assert code_of(tmp_path / "x.so", data).units == 1


@pytest.mark.parametrize(("name", "units"), [("compute_90", 1), ("lto_90", 1), ("sm_90", 0)])
def test_only_machine_code_can_be_without_a_kernel(tmp_path: Path, name: str, units: int) -> None:
    data = elf({".nv_fatbin": container(entry(name, b".version 9.0\n.entry one()"))})
    assert code_of(tmp_path / "x.so", data).units == units


def test_no_gpu_code(tmp_path: Path) -> None:
    assert code_of(tmp_path / "x.so", elf({".text": b"x"})) == FileCode({}, {}, 0, None)
    empty = elf({".nv_fatbin": container()})
    assert code_of(tmp_path / "x.so", empty) == FileCode({}, {}, 0, None)


GOOD = container(entry("sm_90"), entry("sm_120a"))


@pytest.mark.parametrize(
    ("data", "says", "code"),
    [
        (GOOD + b"JUNKJUNKJUNKJUNK", "neither a fat binary nor padding", {"sm_90": 1, "sm_120a": 1}),
        (GOOD[:8] + struct.pack("<Q", 1 << 62) + GOOD[16:], "claims 16 \\+", {}),
        (GOOD[:6] + struct.pack("<H", 4) + GOOD[8:], "claims 4 \\+", {}),
        (GOOD[:20] + struct.pack("<I", 8) + GOOD[24:], "the entry at", {}),
        (GOOD[:24] + struct.pack("<Q", 1 << 63) + GOOD[32:], "the entry at", {}),
        (GOOD[:44] + struct.pack("<I", 4_000_000_000) + GOOD[48:], "names architecture", {}),
        (GOOD + bytes((1 << 20) + 4096) + GOOD, "of padding", {"sm_90": 1, "sm_120a": 1}),
        (b"".join(container(entry(f"sm_{arch}")) for arch in range(1000, 1300)), "more than 256 architectures", None),
        (b"".join(container(*(entry(f"sm_{20 + bit}") for bit in range(13) if number >> bit & 1)) for number in range(1, 8192)),
         "or 4096 sets", None),
    ],
)
def test_damage_is_named_and_what_came_before_is_kept(tmp_path: Path, data: bytes, says: str, code: object) -> None:
    found = code_of(tmp_path / "x.so", elf({".nv_fatbin": data}))
    assert found.problem is not None and re.search(says, found.problem), found.problem
    assert code is None or found.code == code


def test_damage_in_one_section_hides_nothing_in_the_other(tmp_path: Path) -> None:
    found = code_of(tmp_path / "x.so", elf({".nv_fatbin": b"J" * 64, "__nv_relfatbin": GOOD}))
    assert found.code == {"sm_90": 1, "sm_120a": 1}
    assert (found.problem or "").startswith(".nv_fatbin: at ")


@pytest.mark.parametrize(
    ("sections", "says"),
    [
        ({".nv_fatbin": container() * 1_100}, "more than 1000 fat binaries"),
        ({".nv_fatbin": container(*[entry("sm_90", b"")] * 1_100)}, "more than 1000 entries"),
        ({".nv_fatbin": bytes(1 << 20), "__nv_relfatbin": bytes(1 << 20)}, "of padding"),
    ],
)
def test_limits_hold_for_the_whole_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sections: dict[str, bytes], says: str
) -> None:
    """Sections may lie over each other, tens of thousands of them: what one may cost, all of them together may cost."""
    monkeypatch.setattr(_fatbin, "MAX_CONTAINERS", 1_000)
    monkeypatch.setattr(_fatbin, "MAX_ENTRIES", 1_000)
    with watched() as watch:
        assert says in (code_of(tmp_path / "x.so", elf(sections)).problem or "")
    assert watch.reads < 5_000


@pytest.mark.parametrize(
    ("name", "capability", "how"),
    [
        # plain machine code: the same major version, the same or a higher minor one
        ("sm_120", "12.0", "native"), ("sm_120", "12.1", "native"), ("sm_121", "12.0", None), ("sm_100", "12.0", None),
        ("sm_80", "8.6", "native"), ("sm_80", "8.9", "native"), ("sm_86", "8.0", None), ("sm_90", "9.0", "native"),
        ("sm_90", "10.0", None), ("sm_100", "10.3", "native"), ("sm_103", "10.0", None),
        # "a": exactly this one
        ("sm_120a", "12.0", "native"), ("sm_120a", "12.1", None), ("sm_121a", "12.0", None), ("sm_90a", "9.0", "native"),
        ("sm_100a", "10.3", None),
        # "f": its family
        ("sm_120f", "12.0", "native"), ("sm_120f", "12.1", "native"), ("sm_121f", "12.0", None),
        ("sm_100f", "10.3", "native"), ("sm_103f", "10.0", None), ("sm_100f", "12.0", None), ("sm_100f", "11.0", None),
        # integrated GPUs are apart
        ("sm_80", "8.7", None), ("sm_87", "8.7", "native"), ("sm_87", "8.9", None), ("sm_100f", "10.1", None),
        ("sm_110", "11.0", "native"),
        # PTX: any newer GPU, unless it is bound to one or to a family
        ("compute_90", "9.0", "ptx"), ("compute_90", "12.0", "ptx"), ("compute_120", "9.0", None),
        ("compute_90a", "9.0", "ptx"), ("compute_90a", "12.0", None), ("compute_100f", "10.3", "ptx"),
        ("compute_100f", "12.0", None), ("compute_120f", "12.1", "ptx"), ("compute_80", "8.7", "ptx"),
        # for the device linker
        ("lto_120", "12.0", None), ("lto_120f", "12.0", None),
    ],
)  # fmt: skip
def test_what_runs_where(name: str, capability: str, how: str | None) -> None:
    assert runs_as(name, capability) == how


@pytest.mark.parametrize("name", ["", "sm", "sm_", "sm_x", "gfx_90", "sm_90b", "compute-90", "sm_a"])
def test_a_wrong_architecture_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="wanted something like sm_120"):
        parse_arch(name)


@pytest.mark.parametrize("capability", ["", "12", "12.", ".0", "sm_120", "12.x"])
def test_a_wrong_capability_is_refused(capability: str) -> None:
    with pytest.raises(ValueError, match=r"wanted something like 12\.0"):
        parse_capability(capability)
