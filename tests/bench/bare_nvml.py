#!/usr/bin/env python3
# Copyright (c) 2026, blackwell.inference contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The least that a program must do for the values that gpu_facts takes from NVML: open the library, initialise, call one
function for each value. Prints the seconds that it took, after its imports, and the number of cards."""

from __future__ import annotations

import ctypes
import json
import time
from ctypes import byref, c_uint, c_ulonglong, c_void_p, create_string_buffer

started = time.perf_counter()
nvml = ctypes.CDLL("libnvidia-ml.so.1")
nvml.nvmlInit_v2()
count, gpu, text, space = c_uint(), c_void_p(), create_string_buffer(96), create_string_buffer(8192)
nvml.nvmlSystemGetNVMLVersion(text, 96)
nvml.nvmlSystemGetDriverVersion(text, 96)
nvml.nvmlSystemGetCudaDriverVersion_v2(byref(count))
nvml.nvmlDeviceGetCount_v2(byref(count))
for index in range(count.value):
    nvml.nvmlDeviceGetHandleByIndex_v2(index, byref(gpu))
    one, two, wide = c_uint(), c_uint(), c_ulonglong()
    nvml.nvmlDeviceGetPciInfo_v3(gpu, space)
    nvml.nvmlDeviceGetUUID(gpu, text, 96)
    nvml.nvmlDeviceGetName(gpu, text, 96)
    for name in ("nvmlDeviceGetCudaComputeCapability", "nvmlDeviceGetEccMode", "nvmlDeviceGetMigMode"):
        getattr(nvml, name)(gpu, byref(one), byref(two))
    nvml.nvmlDeviceGetMemoryInfo(gpu, space)
    for name in (
        "nvmlDeviceGetMinorNumber",
        "nvmlDeviceGetPowerManagementLimit",
        "nvmlDeviceGetPersistenceMode",
        "nvmlDeviceGetCurrPcieLinkWidth",
        "nvmlDeviceGetMaxPcieLinkWidth",
    ):
        getattr(nvml, name)(gpu, byref(one))
    nvml.nvmlDeviceGetTotalEccErrors(gpu, 1, 0, byref(wide))
    field = (c_uint * 10)(230)
    nvml.nvmlDeviceGetFieldValues(gpu, 1, field)
    for kind in ("Compute", "Graphics", "MPSCompute"):
        one.value = 64
        getattr(nvml, f"nvmlDeviceGet{kind}RunningProcesses_v3")(gpu, byref(one), space)
print(json.dumps({"seconds": time.perf_counter() - started, "count": count.value}))
