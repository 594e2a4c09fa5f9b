/* Copyright (c) 2026, blackwell.inference contributors
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * The lab's libnvidia-ml (REAL), made as slow as the driver of one real card. Each function is passed on after the time
 * that it took on an NVIDIA H200 with driver 580.159.04 (2026-12-01); those that took less than 0.05 ms are passed on at
 * once. Their arguments are numbers and pointers, five at most, which travel in the same registers whatever they are. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

static void *library;

static void wait_for(long microseconds)
{
    struct timespec time = {microseconds / 1000000, microseconds % 1000000 * 1000};
    while (nanosleep(&time, &time) != 0)
        ;
}

__attribute__((constructor)) static void load(void)
{
    library = dlopen(REAL, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        abort();
    wait_for(1700);
}

enum { FUNCTION_NOT_FOUND = 13 };
typedef int (*function)(void *, void *, void *, void *, void *);

#define PASS_ON(name, microseconds)                                                                       \
    __attribute__((visibility("default"))) int name(void *a, void *b, void *c, void *d, void *e)         \
    {                                                                                                     \
        void *found = dlsym(library, #name);                                                              \
        wait_for(microseconds);                                                                           \
        return found ? ((function)found)(a, b, c, d, e) : FUNCTION_NOT_FOUND;                             \
    }

PASS_ON(nvmlInit_v2, 11200)
PASS_ON(nvmlSystemGetNVMLVersion, 0)
PASS_ON(nvmlSystemGetDriverVersion, 0)
PASS_ON(nvmlSystemGetCudaDriverVersion_v2, 0)
PASS_ON(nvmlDeviceGetCount_v2, 0)
PASS_ON(nvmlDeviceGetHandleByIndex_v2, 10800)
PASS_ON(nvmlDeviceGetPciInfo_v3, 0)
PASS_ON(nvmlDeviceGetUUID, 0)
PASS_ON(nvmlDeviceGetName, 0)
PASS_ON(nvmlDeviceGetMinorNumber, 0)
PASS_ON(nvmlDeviceGetCudaComputeCapability, 0)
PASS_ON(nvmlDeviceGetEccMode, 2000)
PASS_ON(nvmlDeviceGetMigMode, 380)
PASS_ON(nvmlDeviceGetMemoryInfo, 0)
PASS_ON(nvmlDeviceGetMemoryInfo_v2, 0)
PASS_ON(nvmlDeviceGetPowerManagementLimit, 430)
PASS_ON(nvmlDeviceGetPersistenceMode, 0)
PASS_ON(nvmlDeviceGetCurrPcieLinkWidth, 70)
PASS_ON(nvmlDeviceGetMaxPcieLinkWidth, 0)
PASS_ON(nvmlDeviceGetTotalEccErrors, 0)
PASS_ON(nvmlDeviceGetFieldValues, 90)
PASS_ON(nvmlDeviceGetComputeRunningProcesses_v3, 80)
PASS_ON(nvmlDeviceGetGraphicsRunningProcesses_v3, 0)
PASS_ON(nvmlDeviceGetMPSComputeRunningProcesses_v3, 0)
