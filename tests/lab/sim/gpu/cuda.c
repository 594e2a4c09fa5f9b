/* Copyright (c) 2026, blackwell.inference contributors
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * The simulated libcuda: devices, their attributes, and contexts. Making a context takes the card for this process
 * and writes a line to the cards' log; that is how tests see which process uses which card, whatever its environment
 * says. It runs no kernels. */
#define _GNU_SOURCE
#include "lab.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef int CUresult;
typedef int CUdevice;
typedef void *CUcontext;
#define API __attribute__((visibility("default")))

enum {
    OK = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    DEVICE_UNAVAILABLE = 46,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201,
    DRIVER_MISMATCH = 803,
    UNKNOWN = 999
};

static struct lab_gpu cards[LAB_MAX_GPUS];
static int card_count, initialised, fds[LAB_MAX_GPUS], uses[LAB_MAX_GPUS];
static unsigned long long taken[LAB_MAX_GPUS]; /* bytes, of this process */

/* CUDA_VISIBLE_DEVICES: indexes or (beginnings of) UUIDs; the first entry that names no card ends the list. */
static void select_visible(void)
{
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    if (!list)
        return;
    struct lab_gpu chosen[LAB_MAX_GPUS];
    int n = 0;
    char *copy = strdup(list);
    for (char *save, *word = copy ? strtok_r(copy, ",", &save) : NULL; word; word = strtok_r(NULL, ",", &save)) {
        char *end;
        int found = -1;
        long index = strtol(word, &end, 10);
        if (end != word && !*end)
            found = index >= 0 && index < card_count ? (int)index : -1;
        else
            for (int i = 0; i < card_count && found < 0; i++)
                if (strlen(word) > 4 && !strncmp(cards[i].uuid, word, strlen(word)))
                    found = i;
        if (found < 0 || n == LAB_MAX_GPUS)
            break;
        chosen[n++] = cards[found];
    }
    free(copy);
    memcpy(cards, chosen, sizeof *cards * (size_t)n);
    card_count = n;
}

/* It starts every card, so it waits for a hung one; a lost one is not among the devices. */
static void start_all(void)
{
    int n = 0;
    for (int i = 0; i < card_count; i++) {
        if (cards[i].hung)
            lab_hang();
        if (!cards[i].lost)
            cards[n++] = cards[i];
    }
    card_count = n;
}

API CUresult cuInit(unsigned flags)
{
    struct stat st;
    if (flags)
        return INVALID_VALUE;
    if (initialised)
        return OK;
    switch (lab_load(cards, &card_count)) {
    case LAB_OK:
        break;
    case LAB_MISMATCH:
        return DRIVER_MISMATCH;
    default:
        return NO_DEVICE;
    }
    /* Without the unified memory node the real library answers "unknown error", which sends people astray. */
    if (stat(LAB_DEV "/nvidia-uvm", &st) != 0 || !S_ISCHR(st.st_mode) || access(LAB_DEV "/nvidia-uvm", R_OK | W_OK) != 0)
        return UNKNOWN;
    start_all();
    select_visible();
    if (!card_count)
        return NO_DEVICE;
    for (int i = 0; i < LAB_MAX_GPUS; i++)
        fds[i] = -1;
    initialised = 1;
    return OK;
}

API CUresult cuDriverGetVersion(int *version)
{
    if (!version)
        return INVALID_VALUE;
    *version = LAB_CUDA;
    return OK;
}

#define CHECK(device, out)                                              \
    do {                                                                \
        if (!initialised)                                               \
            return NOT_INITIALIZED;                                     \
        if ((device) < 0 || (device) >= card_count)                     \
            return INVALID_DEVICE;                                      \
        if (!(out))                                                     \
            return INVALID_VALUE;                                       \
    } while (0)

API CUresult cuDeviceGetCount(int *count)
{
    if (!initialised)
        return NOT_INITIALIZED;
    if (!count)
        return INVALID_VALUE;
    *count = card_count;
    return OK;
}

API CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    CHECK(ordinal, device);
    *device = ordinal;
    return OK;
}

API CUresult cuDeviceGetName(char *name, int length, CUdevice device)
{
    CHECK(device, name && length > 0);
    lab_copy(name, (size_t)length, cards[device].name);
    return OK;
}

API CUresult cuDeviceGetUuid_v2(unsigned char *uuid, CUdevice device)
{
    CHECK(device, uuid);
    const char *p = cards[device].uuid + 4; /* after "GPU-" */
    for (int i = 0; i < 16; i++) {
        unsigned byte = 0;
        while (*p == '-')
            p++;
        if (sscanf(p, "%2x", &byte) != 1)
            return UNKNOWN;
        uuid[i] = (unsigned char)byte;
        p += 2;
    }
    return OK;
}

API CUresult cuDeviceGetUuid(unsigned char *uuid, CUdevice device)
{
    return cuDeviceGetUuid_v2(uuid, device);
}

API CUresult cuDeviceGetPCIBusId(char *pci, int length, CUdevice device)
{
    CHECK(device, pci && length > 0);
    lab_copy(pci, (size_t)length, cards[device].pci);
    return OK;
}

API CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device)
{
    CHECK(device, value);
    const struct lab_gpu *g = &cards[device];
    unsigned domain = 0, bus = 0, slot = 0;
    sscanf(g->pci, "%x:%x:%x", &domain, &bus, &slot);
    switch (attribute) {
    case 8: *value = 49152; break; /* shared memory per block without opting in */
    case 10: *value = 32; break;   /* warp size */
    case 16: *value = g->multiprocessors; break;
    case 33: *value = (int)bus; break;
    case 34: *value = (int)slot; break;
    case 50: *value = (int)domain; break;
    case 75: *value = g->cc_major; break;
    case 76: *value = g->cc_minor; break;
    case 97: *value = g->shared_memory_optin; break;
    default: return INVALID_VALUE;
    }
    return OK;
}

API CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    CHECK(device, bytes);
    *bytes = (size_t)cards[device].memory_mib << 20;
    return OK;
}

/* A context by itself takes about half a GiB of a Blackwell card. */
#define CONTEXT_MIB 550ull

static CUresult take(CUdevice device, CUcontext *context)
{
    CHECK(device, context);
    if (!uses[device]) {
        fds[device] = lab_take(&cards[device]);
        if (fds[device] < 0)
            return DEVICE_UNAVAILABLE;
        taken[device] = CONTEXT_MIB << 20;
        lab_write_memory(fds[device], CONTEXT_MIB);
    }
    uses[device]++;
    *context = &uses[device];
    return OK;
}

static CUresult release(CUdevice device)
{
    CHECK(device, uses[device] > 0);
    if (--uses[device] == 0) {
        close(fds[device]);
        fds[device] = -1;
    }
    return OK;
}

API CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    return take(device, context);
}

API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    return release(device);
}

API CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    return release(device);
}

API CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device)
{
    (void)flags;
    return take(device, context);
}

API CUresult cuCtxDestroy_v2(CUcontext context)
{
    if (!initialised)
        return NOT_INITIALIZED;
    for (int i = 0; i < card_count; i++)
        if (context == &uses[i])
            return release(i);
    return INVALID_CONTEXT;
}

/* Contexts are not stacked here: the current one is the first that this process made. */
static int current(void)
{
    for (int i = 0; initialised && i < card_count; i++)
        if (uses[i])
            return i;
    return -1;
}

API CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
    int i = current();
    if (i < 0)
        return initialised ? INVALID_CONTEXT : NOT_INITIALIZED;
    if (!free_bytes || !total)
        return INVALID_VALUE;
    *total = (size_t)cards[i].memory_mib << 20;
    *free_bytes = *total - ((size_t)LAB_IDLE_MIB << 20) - (size_t)taken[i];
    return OK;
}

/* Only the sum is kept, and shown to NVML: nothing can be stored in the memory, and it is freed with the context. */
API CUresult cuMemAlloc_v2(unsigned long long *pointer, size_t bytes)
{
    size_t free_bytes, total;
    CUresult result = cuMemGetInfo_v2(&free_bytes, &total);
    if (result != OK)
        return result;
    if (!pointer || !bytes)
        return INVALID_VALUE;
    if (bytes > free_bytes)
        return OUT_OF_MEMORY;
    int i = current();
    *pointer = 0x7f0000000000ull + taken[i];
    taken[i] += bytes;
    lab_write_memory(fds[i], taken[i] >> 20);
    return OK;
}

static const struct {
    int code;
    const char *name, *text;
} errors[] = {
    {OK, "CUDA_SUCCESS", "no error"},
    {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {DEVICE_UNAVAILABLE, "CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA-capable device(s) is/are busy or unavailable"},
    {NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {DRIVER_MISMATCH, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system has unsupported display driver / cuda driver combination"},
    {UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

static CUresult describe(CUresult code, const char **out, int want_name)
{
    if (!out)
        return INVALID_VALUE;
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == code) {
            *out = want_name ? errors[i].name : errors[i].text;
            return OK;
        }
    *out = NULL;
    return INVALID_VALUE;
}

API CUresult cuGetErrorName(CUresult code, const char **name)
{
    return describe(code, name, 1);
}

API CUresult cuGetErrorString(CUresult code, const char **text)
{
    return describe(code, text, 0);
}
