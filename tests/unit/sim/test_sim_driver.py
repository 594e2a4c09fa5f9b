# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import base64
import io
import json
import stat
import subprocess
import tarfile
from pathlib import Path

import pytest
from sim import driver
from sim.driver import installer, nvidia_modprobe, nvidia_smi
from sim.hardware import gpu_uuid, write_hardware

FILES = {
    "libcuda": (b"cuda", 0o644),
    "libnvidia-ml": (b"nvml", 0o644),
    "nvidia-modprobe": (b"#!/bin/sh\n", 0o755),
}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--silent", "-m=kernel-open", "--dkms"], installer.Options(True, "open", True)),
        (["--silent", "--no-kernel-modules"], installer.Options(True, kernel_modules=False)),
        (["--silent"], installer.Options(True, "closed")),
        (["--silent", "-m=kernel"], installer.Options(True, "closed")),
        (["--help"], installer.Options(show="help")),
        (["--version"], installer.Options(show="version")),
    ],
)
def test_known_flags(arguments: list[str], expected: installer.Options) -> None:
    assert installer.parse_flags(arguments) == expected


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--silent", "--no-kernel-module"], "'--no-kernel-module'"),
        (["--silent", "--no-questions"], "'--no-questions'"),
        (["--silent", "-m=other"], "'-m=other'"),
        (["--silent", "extra"], "'extra'"),
        (["--silent", "--no-kernel-modules", "--dkms"], "--dkms together"),
        (["--silent", "--no-kernel-modules", "-m=kernel-open"], "-m together"),
        (["-m=kernel-open"], "give --silent"),
        ([], "give --silent"),
    ],
)
def test_other_flags_are_refused_by_name(arguments: list[str], named: str) -> None:
    with pytest.raises(installer.InstallError) as error:
        installer.parse_flags(arguments)
    assert named in str(error.value)


def test_the_file_is_a_shell_script_too() -> None:
    path = driver.HERE / "installer.py"
    result = subprocess.run(["sh", str(path), "--version"], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (0, "nvidia-installer:  version @DRIVER_VERSION@\n")
    result = subprocess.run(["sh", str(path), "--foo"], capture_output=True, text=True, check=False)
    assert (result.returncode, "'--foo'" in result.stderr) == (1, True)


def with_payload(path: Path, payload: bytes) -> Path:
    path.write_bytes(driver.script("installer.py") + driver.PAYLOAD_MARK + payload + b"\n")
    return path


def test_the_payload_is_read_back(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        info = tarfile.TarInfo("libcuda")
        info.size, info.mode = 4, 0o644
        archive.addfile(info, io.BytesIO(b"cuda"))
    path = with_payload(tmp_path / "x.run", base64.b64encode(buffer.getvalue()))
    assert installer.read_payload(path) == {"libcuda": (b"cuda", 0o644)}


@pytest.mark.parametrize("payload", [b"", b"AAAA", b"not base64!", base64.b64encode(b"x" * 700)])
def test_a_damaged_payload_is_refused(tmp_path: Path, payload: bytes) -> None:
    with pytest.raises(installer.InstallError, match=r"damaged|not complete"):
        installer.read_payload(with_payload(tmp_path / "x.run", payload))


def test_a_file_without_payload_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.run").write_text("#!/bin/sh\n", encoding="ascii")
    with pytest.raises(installer.InstallError, match="not complete"):
        installer.read_payload(tmp_path / "x.run")


def test_a_container_gets_libraries_and_programs_only(tmp_path: Path) -> None:
    installer.install(installer.Options(True, kernel_modules=False), FILES, tmp_path)
    libraries = tmp_path / installer.LIBRARY_FOLDER
    assert (libraries / "libcuda.so").resolve().name == f"libcuda.so.{installer.VERSION}"
    assert (libraries / "libnvidia-ml.so.1").read_bytes() == b"nvml"
    assert (tmp_path / "usr/bin/nvidia-modprobe").stat().st_mode & 0o777 == 0o755
    assert not (tmp_path / "var/lib/nvidia/module").exists()
    assert json.loads((tmp_path / "var/lib/nvidia/installed.json").read_text())["kernel_modules"] is None


def test_a_node_gets_the_module_too_and_other_versions_go(tmp_path: Path) -> None:
    (tmp_path / installer.HARDWARE).parent.mkdir(parents=True)
    (tmp_path / installer.HARDWARE).touch()
    libraries = tmp_path / installer.LIBRARY_FOLDER
    libraries.mkdir(parents=True)
    (libraries / "libcuda.so.580.105.08").touch()
    for _ in range(2):  # a second run changes nothing
        installer.install(installer.Options(True, "open", True), FILES, tmp_path)
        assert sorted(p.name for p in libraries.glob("libcuda*")) == sorted(
            f"libcuda.so{end}" for end in ("", ".1", f".{installer.VERSION}")
        )
    assert (tmp_path / "var/lib/nvidia/module").read_text() == f"{installer.VERSION} open\n"


def test_kernel_modules_cannot_be_built_in_a_container(tmp_path: Path) -> None:
    with pytest.raises(installer.InstallError, match="--no-kernel-modules"):
        installer.install(installer.Options(True, "open", True), FILES, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], ([], False, False)),
        (["-u", "-c", "0", "-c=7"], ([0, 7], True, False)),
        (["-m", "--create-nvidia-device-file=255"], ([255], False, True)),
    ],
)
def test_modprobe_arguments(arguments: list[str], expected: tuple[list[int], bool, bool]) -> None:
    assert nvidia_modprobe.parse_arguments(arguments) == expected


@pytest.mark.parametrize("arguments", [["-c"], ["-c", "x"], ["-c=x"], ["-f", "/dev/x"], ["0"]])
def test_modprobe_refuses_others(arguments: list[str]) -> None:
    with pytest.raises(nvidia_modprobe.ModprobeError, match="not an option"):
        nvidia_modprobe.parse_arguments(arguments)


def loaded(tmp_path: Path, flavour: str, profile: str = "rtx-pro-6000") -> Path:
    write_hardware(tmp_path / "hw", "kpro6", 2, profile)
    (tmp_path / "module").write_text(f"580.126.09 {flavour}\n", encoding="ascii")
    nvidia_modprobe.load(tmp_path / "proc", tmp_path / "hw" / "gpus.conf", tmp_path / "module")
    return tmp_path / "proc"


def test_loading_the_open_module(tmp_path: Path) -> None:
    proc = loaded(tmp_path, "open")
    assert "NVIDIA UNIX Open Kernel Module for x86_64  580.126.09  Release" in (proc / "version").read_text()
    cards = nvidia_modprobe.parse_cards((proc / "lab" / "gpus.conf").read_text())
    assert [(c["minor"], c["state"]) for c in cards] == [("0", "ok"), ("1", "ok")]
    information = (proc / "gpus" / "0000:21:00.0" / "information").read_text()
    assert f"GPU UUID: \t {gpu_uuid('kpro6', 1)}\n" in information
    assert "Device Minor: \t 1\n" in information
    for path in (proc / "lab" / "opens.log", proc / "lab" / "cards" / gpu_uuid("kpro6", 0)):
        assert stat.S_IMODE(path.stat().st_mode) == 0o666


def test_the_closed_module_cannot_start_a_blackwell_card(tmp_path: Path) -> None:
    proc = loaded(tmp_path, "closed")
    assert "NVIDIA UNIX x86_64 Kernel Module  580.126.09  Release" in (proc / "version").read_text()
    assert "GPU-????????" in (proc / "gpus" / "0000:01:00.0" / "information").read_text()
    cards = nvidia_modprobe.parse_cards((proc / "lab" / "gpus.conf").read_text())
    assert {c["state"] for c in cards} == {"failed"}


def test_the_closed_module_starts_a_hopper_card(tmp_path: Path) -> None:
    cards = nvidia_modprobe.parse_cards((loaded(tmp_path, "closed", "h200") / "lab" / "gpus.conf").read_text())
    assert {c["state"] for c in cards} == {"ok"}


def test_loading_again_changes_nothing(tmp_path: Path) -> None:
    proc = loaded(tmp_path, "open")
    (proc / "lab" / "opens.log").write_text("kept\n", encoding="ascii")
    loaded(tmp_path, "closed")
    assert (proc / "lab" / "opens.log").read_text() == "kept\n"
    assert "Open" in (proc / "version").read_text()


def test_nothing_to_load(tmp_path: Path) -> None:
    absent = tmp_path / "absent"
    with pytest.raises(nvidia_modprobe.ModprobeError, match="a container cannot load it"):
        nvidia_modprobe.load(tmp_path / "proc", absent, absent)
    write_hardware(tmp_path / "hw", "kpro6", 1)
    with pytest.raises(nvidia_modprobe.ModprobeError, match="Module nvidia not found"):
        nvidia_modprobe.load(tmp_path / "proc", tmp_path / "hw" / "gpus.conf", absent)


CARDS = [
    {"index": "0", "name": "NVIDIA H200", "memory.total": "143771", "power.limit": "700.00"},
    {"index": "1", "name": "NVIDIA GB10", "memory.total": "122880", "power.limit": "[N/A]"},
]


def test_query() -> None:
    assert nvidia_smi.query(CARDS, ["index", "memory.total", "power.limit"], []) == (
        "index, memory.total [MiB], power.limit [W]\n0, 143771 MiB, 700.00 W\n1, 122880 MiB, [N/A]"
    )
    assert nvidia_smi.query(CARDS, ["memory.total"], ["noheader", "nounits"]) == "143771\n122880"


def test_query_of_an_unknown_field() -> None:
    with pytest.raises(nvidia_smi.SmiError, match='"serial" is not a valid field') as error:
        nvidia_smi.query(CARDS, ["serial"], [])
    assert error.value.code == 2
