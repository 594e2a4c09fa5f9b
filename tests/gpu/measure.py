#!/usr/bin/env python3
# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What reading the GPU facts costs on this machine, against a bare NVML and against PyTorch, and writes it to docs/benchmarks.md.

Each measure is taken in fresh processes, in turn, by a clock inside the process that starts after its imports.
Exit status: 0, or 77 where there is no GPU.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from facts import _gpu, collect
from report import SKIPPED

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "benchmarks.md"
BEGIN, END = "<!-- gpu bench: begin, written by make test-gpu -->", "<!-- gpu bench: end -->"
ROUNDS = 7

# The least that a program must do for the same values: open the library, initialise, call one function for each.
BARE = r"""
import ctypes, json, time
from ctypes import byref, c_char_p, c_int, c_uint, c_ulonglong, c_void_p, create_string_buffer
started = time.perf_counter()
nvml = ctypes.CDLL("libnvidia-ml.so.1")
nvml.nvmlInit_v2()
count, gpu, text, space = c_uint(), c_void_p(), create_string_buffer(96), create_string_buffer(8192)
nvml.nvmlSystemGetNVMLVersion(text, 96); nvml.nvmlSystemGetDriverVersion(text, 96)
nvml.nvmlSystemGetCudaDriverVersion_v2(byref(count)); nvml.nvmlDeviceGetCount_v2(byref(count))
for index in range(count.value):
    nvml.nvmlDeviceGetHandleByIndex_v2(index, byref(gpu))
    one, two, wide = c_uint(), c_uint(), c_ulonglong()
    nvml.nvmlDeviceGetPciInfo_v3(gpu, space)
    nvml.nvmlDeviceGetUUID(gpu, text, 96); nvml.nvmlDeviceGetName(gpu, text, 96)
    for name in ("nvmlDeviceGetCudaComputeCapability", "nvmlDeviceGetEccMode", "nvmlDeviceGetMigMode"):
        getattr(nvml, name)(gpu, byref(one), byref(two))
    nvml.nvmlDeviceGetMemoryInfo(gpu, space)
    for name in ("nvmlDeviceGetMinorNumber", "nvmlDeviceGetPowerManagementLimit", "nvmlDeviceGetPersistenceMode",
                 "nvmlDeviceGetCurrPcieLinkWidth", "nvmlDeviceGetMaxPcieLinkWidth"):
        getattr(nvml, name)(gpu, byref(one))
    nvml.nvmlDeviceGetTotalEccErrors(gpu, 1, 0, byref(wide))
    for kind in ("Compute", "Graphics", "MPSCompute"):
        one.value = 64
        getattr(nvml, f"nvmlDeviceGet{kind}RunningProcesses_v3")(gpu, byref(one), space)
print(json.dumps(time.perf_counter() - started))
"""
TORCH = r"""
import json, time
started = time.perf_counter()
import torch
torch.cuda.get_device_capability()
print(json.dumps(time.perf_counter() - started))
"""


def ours(cuda: str) -> dict[str, float]:
    """In this process, which has read nothing before."""
    started = time.perf_counter()
    facts = _gpu.assemble(collect(cuda))
    seconds = time.perf_counter() - started
    assert facts["count"] > 0
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    peak = max(resource.getrusage(kind).ru_maxrss for kind in kinds) / 1024
    return {"seconds": seconds, "peak_mib": peak, "torch": "torch" in sys.modules}


def fresh(*argv: str) -> dict[str, float] | float:
    done = subprocess.run([sys.executable, *argv], capture_output=True, text=True, check=True)
    answer: dict[str, float] | float = json.loads(done.stdout)
    return answer


def table(name: str, driver: str) -> str:
    taken: dict[str, list[float]] = {"bare": [], "never": [], "always": []}
    peak = 0.0
    for _round in range(ROUNDS):
        bare = fresh("-c", BARE)
        assert isinstance(bare, float)
        taken["bare"].append(bare)
        for cuda in ("never", "always"):
            mine = fresh(__file__, cuda)
            assert isinstance(mine, dict) and not mine["torch"]
            taken[cuda].append(mine["seconds"])
            peak = max(peak, mine["peak_mib"])
    bare, never, always = (1000 * median(taken[kind]) for kind in ("bare", "never", "always"))
    ours = f"| gpu_facts from NVML | {never:.1f} ms |"
    rows = [f"{ours} bare NVML, the same values: {bare:.1f} ms | {never / bare:.2f} | {peak:.0f} | 1.5, 40 MB |"]
    try:
        torch = 1000 * median([float(str(fresh("-c", TORCH))) for _round in range(3)])
        rows.append(f"{ours} `import torch` and ask for the capability: {torch:.0f} ms | 1/{torch / never:.0f} | | 1/20 |")
    except subprocess.CalledProcessError:
        rows.append(f"{ours} PyTorch: not here | | | 1/20 |")
    rows.append(f"| with `cuda_attributes: always` | {always:.1f} ms | without: {never:.1f} ms | {always / never:.2f} | | |")
    head = "| measure | this | against | ratio | MB peak | goal |\n|---|---|---|---|---|---|"
    return "\n".join((f"Measured on {time.strftime('%Y-%m-%d')} on {name}, driver {driver}.\n", head, *rows))


def main() -> int:
    if len(sys.argv) > 1:
        print(json.dumps(ours(sys.argv[1])))
        return 0
    if not Path("/dev/nvidiactl").exists():
        print("SKIPPED: no NVIDIA GPU here (no /dev/nvidiactl); nothing was measured")
        return SKIPPED
    facts = _gpu.assemble(collect("never"))
    text = table(facts["devices"][0]["name"], facts["driver"]["version"])
    print(text)
    document = DOCUMENT.read_text(encoding="utf-8")
    before, _begin, rest = document.partition(BEGIN)
    _old, _end, after = rest.partition(END)
    DOCUMENT.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
