/* Copyright (c) 2026, blackwell.inference contributors
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * The simulated libnvidia-ml: the calls that look at cards, with NVML's own numbers and structures. It makes no
 * context and writes nothing. What the real library lacks (shared memory, multiprocessors) is lacking here too. */
#define _GNU_SOURCE
#include "lab.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

typedef int nvmlReturn_t;
typedef const struct lab_gpu *nvmlDevice_t;
#define API __attribute__((visibility("default")))

enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NO_PERMISSION = 4,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9,
    GPU_IS_LOST = 15,
    LIB_RM_VERSION_MISMATCH = 18,
    ARGUMENT_VERSION_MISMATCH = 25,
    UNKNOWN = 999
};

typedef struct {
    char busIdLegacy[16];
    unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} pci_info;
typedef struct {
    unsigned long long total, free, used;
} memory_info;
typedef struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
} memory_info_v2;
typedef struct {
    unsigned pid;
    unsigned long long usedGpuMemory;
    unsigned gpuInstanceId, computeInstanceId;
} process_info;

static struct lab_gpu cards[LAB_MAX_GPUS];
static int card_count, users;

static int known(nvmlDevice_t d)
{
    return d >= cards && d < cards + card_count;
}

#define CHECK(device, ...)                             \
    do {                                               \
        const void *out_[] = {__VA_ARGS__};            \
        if (!users)                                    \
            return UNINITIALIZED;                      \
        if (!known(device))                            \
            return INVALID_ARGUMENT;                   \
        for (size_t i_ = 0; i_ < sizeof out_ / sizeof *out_; i_++) \
            if (!out_[i_])                             \
                return INVALID_ARGUMENT;               \
    } while (0)

static nvmlReturn_t give(char *to, unsigned length, const char *text)
{
    if (!to)
        return INVALID_ARGUMENT;
    if (strlen(text) >= length)
        return INSUFFICIENT_SIZE;
    lab_copy(to, length, text);
    return SUCCESS;
}

API nvmlReturn_t nvmlInit_v2(void)
{
    if (users) {
        users++;
        return SUCCESS;
    }
    switch (lab_load(cards, &card_count)) {
    case LAB_OK:
        users = 1;
        return SUCCESS;
    case LAB_NO_PERMISSION:
        return NO_PERMISSION;
    case LAB_MISMATCH:
        return LIB_RM_VERSION_MISMATCH;
    default:
        return DRIVER_NOT_LOADED;
    }
}

API nvmlReturn_t nvmlInit(void)
{
    return nvmlInit_v2();
}

API nvmlReturn_t nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    return nvmlInit_v2();
}

API nvmlReturn_t nvmlShutdown(void)
{
    if (!users)
        return UNINITIALIZED;
    users--;
    return SUCCESS;
}

API const char *nvmlErrorString(nvmlReturn_t result)
{
    switch (result) {
    case SUCCESS: return "Success";
    case UNINITIALIZED: return "Uninitialized";
    case INVALID_ARGUMENT: return "Invalid Argument";
    case NOT_SUPPORTED: return "Not Supported";
    case NO_PERMISSION: return "Insufficient Permissions";
    case NOT_FOUND: return "Not Found";
    case INSUFFICIENT_SIZE: return "Insufficient Size";
    case DRIVER_NOT_LOADED: return "Driver Not Loaded";
    case GPU_IS_LOST: return "GPU is lost";
    case LIB_RM_VERSION_MISMATCH: return "Driver/library version mismatch";
    case ARGUMENT_VERSION_MISMATCH: return "Argument version mismatch";
    default: return "Unknown Error";
    }
}

API nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned length)
{
    return users ? give(version, length, LAB_VERSION) : UNINITIALIZED;
}

API nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned length)
{
    char text[48];
    snprintf(text, sizeof text, "%d.%s", LAB_CUDA / 1000, LAB_VERSION);
    return give(version, length, text);
}

API nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    if (!version)
        return INVALID_ARGUMENT;
    *version = LAB_CUDA;
    return SUCCESS;
}

API nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version)
{
    return nvmlSystemGetCudaDriverVersion_v2(version);
}

API nvmlReturn_t nvmlSystemGetProcessName(unsigned pid, char *name, unsigned length)
{
    char path[64], text[256];
    if (!users)
        return UNINITIALIZED;
    if (!name || !length)
        return INVALID_ARGUMENT;
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    FILE *f = fopen(path, "re");
    if (!f)
        return NOT_FOUND;
    size_t n = fread(text, 1, sizeof text - 1, f); /* arguments end with NUL: this keeps the first */
    fclose(f);
    text[n] = 0;
    if (!n)
        return NOT_FOUND;
    lab_copy(name, length, text);
    return SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count)
{
    if (!users)
        return UNINITIALIZED;
    if (!count)
        return INVALID_ARGUMENT;
    *count = (unsigned)card_count;
    return SUCCESS;
}

static nvmlReturn_t hand_out(int index, nvmlDevice_t *device)
{
    if (cards[index].hung)
        lab_hang();
    if (cards[index].lost)
        return GPU_IS_LOST;
    *device = &cards[index];
    return SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device)
{
    if (!users)
        return UNINITIALIZED;
    if (!device || index >= (unsigned)card_count)
        return INVALID_ARGUMENT;
    return hand_out((int)index, device);
}

/* Both 0000:01:00.0 and NVML's own 00000000:01:00.0 are accepted, as in the real library. */
static const char *short_domain(const char *pci)
{
    const char *colon = strchr(pci, ':');
    return colon && colon - pci == 8 ? pci + 4 : pci;
}

API nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *pci, nvmlDevice_t *device)
{
    if (!users)
        return UNINITIALIZED;
    if (!pci || !device)
        return INVALID_ARGUMENT;
    for (int i = 0; i < card_count; i++)
        if (!strcasecmp(short_domain(pci), cards[i].pci))
            return hand_out(i, device);
    return NOT_FOUND;
}

API nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    if (!users)
        return UNINITIALIZED;
    if (!uuid || !device)
        return INVALID_ARGUMENT;
    for (int i = 0; i < card_count; i++)
        if (!strcmp(uuid, cards[i].uuid))
            return hand_out(i, device);
    return NOT_FOUND;
}

API nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *index)
{
    CHECK(device, index);
    *index = (unsigned)(device - cards);
    return SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned length)
{
    CHECK(device, name);
    return give(name, length, device->name);
}

API nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned length)
{
    CHECK(device, uuid);
    return give(uuid, length, device->uuid);
}

API nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, pci_info *info)
{
    CHECK(device, info);
    unsigned domain = 0, bus = 0, slot = 0, function = 0;
    memset(info, 0, sizeof *info);
    sscanf(device->pci, "%x:%x:%x.%x", &domain, &bus, &slot, &function);
    info->domain = domain;
    info->bus = bus;
    info->device = slot;
    info->pciDeviceId = device->pci_device_id;
    info->pciSubSystemId = device->pci_subsystem_id;
    snprintf(info->busIdLegacy, sizeof info->busIdLegacy, "%04X:%02X:%02X.%X", domain & 0xffff, bus & 0xff, slot & 0xff,
             function & 0xf);
    snprintf(info->busId, sizeof info->busId, "%08X:%02X:%02X.%X", domain, bus & 0xff, slot & 0xff, function & 0xf);
    return SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, pci_info *info)
{
    return nvmlDeviceGetPciInfo_v3(device, info);
}

API nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
    CHECK(device, major, minor);
    *major = device->cc_major;
    *minor = device->cc_minor;
    return SUCCESS;
}

static unsigned long long used_mib(nvmlDevice_t device)
{
    int pid;
    unsigned long long held = 0;
    lab_holder(device, &pid, &held);
    held += LAB_IDLE_MIB;
    return held < device->memory_mib ? held : device->memory_mib;
}

API nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, memory_info *memory)
{
    CHECK(device, memory);
    memory->total = device->memory_mib << 20;
    memory->used = used_mib(device) << 20;
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, memory_info_v2 *memory)
{
    CHECK(device, memory);
    if (memory->version != (sizeof *memory | 2u << 24))
        return ARGUMENT_VERSION_MISMATCH;
    memory->total = device->memory_mib << 20;
    memory->reserved = 0;
    memory->used = used_mib(device) << 20;
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

/* A process of another pid namespace cannot be named, so it is not listed: its memory shows all the same. */
API nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count, process_info *infos)
{
    int pid;
    unsigned long long mib;
    CHECK(device, count);
    unsigned room = *count;
    *count = lab_holder(device, &pid, &mib) && pid ? 1 : 0;
    if (*count > room)
        return INSUFFICIENT_SIZE;
    if (*count) {
        if (!infos)
            return INVALID_ARGUMENT;
        infos[0] = (process_info){(unsigned)pid, mib << 20, 0xffffffffu, 0xffffffffu};
    }
    return SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned *count, process_info *infos)
{
    return nvmlDeviceGetComputeRunningProcesses_v3(device, count, infos);
}

API nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned *count, process_info *infos)
{
    (void)infos;
    CHECK(device, count);
    *count = 0;
    return SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned *minor)
{
    CHECK(device, minor);
    *minor = (unsigned)device->minor;
    return SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *current, unsigned *pending)
{
    CHECK(device, current, pending);
    *current = *pending = (unsigned)device->mig;
    return SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, unsigned *current, unsigned *pending)
{
    CHECK(device, current, pending);
    if (device->ecc < 0)
        return NOT_SUPPORTED;
    *current = *pending = (unsigned)device->ecc;
    return SUCCESS;
}

enum { UNCORRECTED = 1 };

API nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, int type, int counter, unsigned long long *count)
{
    (void)counter;
    CHECK(device, count);
    if (device->ecc <= 0)
        return NOT_SUPPORTED;
    *count = type == UNCORRECTED ? device->ecc_errors : 0;
    return SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetPowerManagementLimit(nvmlDevice_t device, unsigned *milliwatts)
{
    CHECK(device, milliwatts);
    if (!device->power_w)
        return NOT_SUPPORTED;
    *milliwatts = (unsigned)device->power_w * 1000;
    return SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned *milliwatts)
{
    return nvmlDeviceGetPowerManagementLimit(device, milliwatts);
}

API nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, unsigned *mode)
{
    CHECK(device, mode);
    *mode = 0;
    return SUCCESS;
}

#define LINK(function, field)                                          \
    API nvmlReturn_t function(nvmlDevice_t device, unsigned *value)    \
    {                                                                  \
        CHECK(device, value);                                          \
        if (!device->field)                                            \
            return NOT_SUPPORTED;                                      \
        *value = (unsigned)device->field;                              \
        return SUCCESS;                                                \
    }
LINK(nvmlDeviceGetCurrPcieLinkGeneration, link_gen)
LINK(nvmlDeviceGetMaxPcieLinkGeneration, link_gen)
LINK(nvmlDeviceGetCurrPcieLinkWidth, link_width)
LINK(nvmlDeviceGetMaxPcieLinkWidth, link_width)
