# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The two libraries for real, compiled for a /proc and a /dev below a temporary folder."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sim import fault
from sim.driver import build_library, nvidia_modprobe
from sim.hardware import gpu_uuid, write_hardware

UUIDS = [gpu_uuid("kpro6", index) for index in range(3)]

# What the children start with. A library is loaded in a process of its own: it keeps what it once saw.
PRELUDE = """
import ctypes, sys
cuda, nvml = (ctypes.CDLL(path) for path in sys.argv[1:3])
i, j, n, u, p = ctypes.c_int(), ctypes.c_int(), ctypes.c_size_t(), ctypes.c_uint(), ctypes.c_void_p()
text = ctypes.create_string_buffer(96)
ref = ctypes.byref
class Process(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("memory", ctypes.c_ulonglong), ("gi", ctypes.c_uint), ("ci", ctypes.c_uint)]
class Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]
"""


class Machine:
    """A folder with /proc/driver/nvidia, /dev, and the libraries that look there."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.proc = root / "proc"
        self.dev = root / "dev"
        defines = {"LAB_PROC": f'"{self.proc}"', "LAB_DEV": f'"{self.dev}"'}
        self.libraries = [str(build_library(name, root, defines)) for name in ("libcuda", "libnvidia-ml")]

    def load(self, flavour: str = "open", profile: str = "rtx-pro-6000") -> None:
        write_hardware(self.root / "hw", "kpro6", 3, profile)
        (self.root / "module").write_text(f"580.126.09 {flavour}\n", encoding="ascii")
        nvidia_modprobe.load(self.proc, self.root / "hw" / "gpus.conf", self.root / "module")
        self.dev.mkdir()
        for name in ("nvidia0", "nvidia1", "nvidia2", "nvidiactl", "nvidia-uvm"):
            # A link to a character device does where making one needs root.
            (self.dev / name).symlink_to("/dev/null")

    def start(self, code: str, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", PRELUDE + code, *self.libraries],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**{k: v for k, v in os.environ.items() if k != "CUDA_VISIBLE_DEVICES"}, **environment},
        )

    def run(self, code: str, **environment: str) -> str:
        output, _ = self.start(code, **environment).communicate(timeout=30)
        return output.strip()


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    return Machine(tmp_path_factory.mktemp("machine"))


@pytest.fixture
def machine(compiled: Machine) -> Iterator[Machine]:
    yield compiled
    subprocess.run(["rm", "-rf", compiled.proc, compiled.dev, compiled.root / "hw"], check=True)


INIT = "print(nvml.nvmlInit_v2(), cuda.cuInit(0))"


def test_no_driver(machine: Machine) -> None:
    assert machine.run(INIT) == "9 100"


def test_a_loaded_driver(machine: Machine) -> None:
    machine.load()
    assert machine.run(INIT) == "0 0"


def test_another_version_is_loaded(machine: Machine) -> None:
    machine.load()
    version = machine.proc / "version"
    version.write_text(version.read_text().replace("580.126.09", "580.105.08"), encoding="ascii")
    assert machine.run(INIT) == "18 803"


@pytest.mark.parametrize(
    ("missing", "expected"),
    [("nvidiactl", "9 100"), ("nvidia-uvm", "0 999"), ("nvidia1", "0 0")],
)
def test_a_missing_node(machine: Machine, missing: str, expected: str) -> None:
    machine.load()
    (machine.dev / missing).unlink()
    assert machine.run(INIT) == expected


def test_an_empty_file_is_no_device(machine: Machine) -> None:
    machine.load()
    (machine.dev / "nvidia1").unlink()
    (machine.dev / "nvidia1").touch()
    assert machine.run("nvml.nvmlInit_v2(); nvml.nvmlDeviceGetCount_v2(ref(u)); print(u.value)") == "2"


def test_the_closed_modules_show_no_blackwell_card(machine: Machine) -> None:
    machine.load("closed")
    assert machine.run("print(nvml.nvmlInit_v2(), nvml.nvmlDeviceGetCount_v2(ref(u)), u.value)") == "0 0 0"
    assert machine.run("print(cuda.cuInit(0))") == "100"


def test_what_nvml_says_of_a_card(machine: Machine) -> None:
    machine.load()
    found = machine.run("""
nvml.nvmlInit_v2()
nvml.nvmlDeviceGetHandleByIndex_v2(1, ref(p))
nvml.nvmlDeviceGetUUID(p, text, 96); print(text.value.decode())
nvml.nvmlDeviceGetName(p, text, 96); print(text.value.decode())
print(nvml.nvmlDeviceGetName(p, text, 5))
nvml.nvmlDeviceGetCudaComputeCapability(p, ref(i), ref(j)); print(i.value, j.value)
for name in ("MinorNumber", "PowerManagementLimit", "CurrPcieLinkGeneration", "MaxPcieLinkWidth", "PersistenceMode"):
    getattr(nvml, "nvmlDeviceGet" + name)(p, ref(u)); print(name, u.value)
m = Memory(); nvml.nvmlDeviceGetMemoryInfo(p, ref(m)); print(m.total >> 20, m.used >> 20)
q = ctypes.c_void_p()
print(nvml.nvmlDeviceGetHandleByPciBusId_v2(b"00000000:21:00.0", ref(q)), q.value == p.value)
print(nvml.nvmlDeviceGetHandleByUUID(b"GPU-none", ref(q)), nvml.nvmlDeviceGetHandleByIndex_v2(3, ref(q)))
""")
    assert found.splitlines() == [
        UUIDS[1],
        "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
        "7",
        "12 0",
        "MinorNumber 1",
        "PowerManagementLimit 600000",
        "CurrPcieLinkGeneration 5",
        "MaxPcieLinkWidth 16",
        "PersistenceMode 0",
        "97887 3",
        "0 True",
        "6 2",
    ]


def test_a_lost_card(machine: Machine) -> None:
    machine.load()
    fault.set_card(machine.proc, "1", "state", "lost")
    look = "nvml.nvmlInit_v2(); nvml.nvmlDeviceGetCount_v2(ref(u)); print(u.value, nvml.nvmlDeviceGetHandleByIndex_v2(1, ref(p)))"
    assert machine.run(look) == "3 15"
    assert machine.run(COUNT) == "0 0 2"


@pytest.mark.parametrize("call", ["nvml.nvmlInit_v2(); nvml.nvmlDeviceGetHandleByIndex_v2(1, ref(p))", "cuda.cuInit(0)"])
def test_a_hung_card_never_answers(machine: Machine, call: str) -> None:
    machine.load()
    fault.set_card(machine.proc, "1", "state", "hung")
    child = machine.start(f"print('asks', flush=True); {call}; print('answered')")
    assert child.stdout is not None and child.stdout.readline() == "asks\n"
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(timeout=0.3)
    child.kill()
    assert child.communicate()[0] == ""


def test_a_card_that_is_split_and_one_with_memory_errors(machine: Machine) -> None:
    machine.load()
    fault.set_card(machine.proc, "1", "mig", "1")
    fault.set_card(machine.proc, "2", "ecc_errors", "2")
    found = machine.run("""
nvml.nvmlInit_v2()
for index in range(3):
    nvml.nvmlDeviceGetHandleByIndex_v2(index, ref(p))
    nvml.nvmlDeviceGetMigMode(p, ref(u), ref(i)); print(u.value, end=" ")
    for kind in (1, 0):
        nvml.nvmlDeviceGetTotalEccErrors(p, kind, 0, ref(n)); print(n.value, end=" ")
""")
    assert found.split() == ["0", "0", "0", "1", "0", "0", "0", "2", "0"]


def test_before_init_nothing_is_answered(machine: Machine) -> None:
    machine.load()
    assert machine.run("print(nvml.nvmlDeviceGetCount_v2(ref(u)), cuda.cuDeviceGetCount(ref(i)))") == "1 3"


COUNT = "print(cuda.cuInit(0), cuda.cuDeviceGetCount(ref(i)), i.value)"


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        ("0,2", [0, 2]),
        (UUIDS[2], [2]),
        (f"{UUIDS[1]},{UUIDS[0]}", [1, 0]),
        (UUIDS[1][:12], [1]),
        ("1,9,0", [1]),
        ("9", []),
        ("", []),
        ("GPU-none", []),
        ("-1", []),
    ],
)
def test_visible_devices(machine: Machine, visible: str, expected: list[int]) -> None:
    machine.load()
    found = machine.run(
        """
code = cuda.cuInit(0)
cuda.cuDeviceGetCount(ref(i))
for device in range(i.value):
    cuda.cuDeviceGetUuid_v2(text, device)
    print(text.raw[:16].hex())
print(code)
""",
        CUDA_VISIBLE_DEVICES=visible,
    ).split()
    assert found == [*(UUIDS[k].removeprefix("GPU-").replace("-", "") for k in expected), "0" if expected else "100"]


def test_attributes(machine: Machine) -> None:
    machine.load()
    found = machine.run("""
cuda.cuInit(0)
for a in (75, 76, 16, 97, 33):
    cuda.cuDeviceGetAttribute(ref(i), a, 1); print(i.value, end=" ")
print(cuda.cuDeviceGetAttribute(ref(i), 9999, 0), cuda.cuDeviceGetAttribute(ref(i), 75, 3))
""")
    assert found == "12 0 188 101376 33 1 101"


HOLD = """
cuda.cuInit(0)
print(cuda.cuDevicePrimaryCtxRetain(ref(p), 0), flush=True)
print(cuda.cuMemAlloc_v2(ref(ctypes.c_ulonglong()), ctypes.c_size_t(1000 << 20)), flush=True)
sys.stdin.read()
"""
LOOK = """
nvml.nvmlInit_v2()
nvml.nvmlDeviceGetHandleByIndex_v2(1, ref(p))
m = Memory(); nvml.nvmlDeviceGetMemoryInfo(p, ref(m)); print(m.used >> 20)
code = nvml.nvmlDeviceGetComputeRunningProcesses_v3(p, ref(u), None)
print(code, u.value)
if u.value:
    found = Process(); nvml.nvmlDeviceGetComputeRunningProcesses_v3(p, ref(u), ref(found))
    print(found.pid, found.memory >> 20)
"""


def test_a_held_card(machine: Machine) -> None:
    machine.load()
    holder = machine.start(HOLD, CUDA_VISIBLE_DEVICES="1")
    assert holder.stdout is not None
    assert [holder.stdout.readline().strip() for _ in range(2)] == ["0", "0"]
    assert machine.run(LOOK).split() == ["1553", "7", "1", str(holder.pid), "1550"]
    second = "cuda.cuInit(0); print(cuda.cuCtxCreate_v2(ref(p), 0, 0))"
    assert machine.run(second, CUDA_VISIBLE_DEVICES=UUIDS[1]) == "46"
    assert machine.run(second, CUDA_VISIBLE_DEVICES=UUIDS[0]) == "0"
    holder.kill()
    holder.communicate()
    assert machine.run(LOOK).split() == ["3", "0", "0"]
    log = (machine.proc / "lab" / "opens.log").read_text().splitlines()
    assert [line.split()[1] for line in log] == [UUIDS[1], UUIDS[0]]
    assert f"pid={holder.pid} comm=" in log[0]


def test_a_released_card_is_free(machine: Machine) -> None:
    machine.load()
    found = machine.run("""
cuda.cuInit(0)
a, b = ctypes.c_void_p(), ctypes.c_void_p()
print(cuda.cuDevicePrimaryCtxRetain(ref(a), 0), cuda.cuCtxCreate_v2(ref(b), 0, 0), a.value == b.value)
print(cuda.cuDevicePrimaryCtxRelease_v2(0), cuda.cuCtxDestroy_v2(b), cuda.cuCtxDestroy_v2(b))
print(cuda.cuMemAlloc_v2(ref(ctypes.c_ulonglong()), ctypes.c_size_t(1)))
""")
    assert found.splitlines() == ["0 0 True", "0 0 1", "201"]


def test_memory_ends(machine: Machine) -> None:
    machine.load()
    found = machine.run("""
cuda.cuInit(0)
cuda.cuDevicePrimaryCtxRetain(ref(p), 0)
cuda.cuMemGetInfo_v2(ref(n), ref(ctypes.c_size_t())); print(n.value >> 20)
print(cuda.cuMemAlloc_v2(ref(ctypes.c_ulonglong()), ctypes.c_size_t(n.value + 1)))
print(cuda.cuMemAlloc_v2(ref(ctypes.c_ulonglong()), n))
""")
    assert found.splitlines() == [str(97887 - 3 - 550), "2", "0"]


@pytest.mark.parametrize("text", ["", "\n", "gpu\n", "gpu\tuuid\n", "gpu\tuuid=\tminor=x\n", "x" * 5000, "gpu\t" + "\t" * 900])
def test_a_damaged_description_shows_no_card(machine: Machine, text: str) -> None:
    machine.load()
    (machine.proc / "lab" / "gpus.conf").write_text(text, encoding="ascii")
    assert machine.run("print(nvml.nvmlInit_v2(), nvml.nvmlDeviceGetCount_v2(ref(u)), u.value)") == "0 0 0"
