/* Copyright (c) 2026, blackwell.inference contributors
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * What the simulated libnvidia-ml and libcuda share: the lab's state under /proc/driver/nvidia and the device nodes.
 * The two folders are fixed when the library is compiled, never by the environment: a process under test must not be
 * able to look at other cards than the kernel would show it. */
#ifndef BWLAB_LAB_H
#define BWLAB_LAB_H

#include <stddef.h>

#ifndef LAB_PROC
#define LAB_PROC "/proc/driver/nvidia"
#endif
#ifndef LAB_DEV
#define LAB_DEV "/dev"
#endif
#ifndef LAB_VERSION
#error "LAB_VERSION, the version of the simulated driver, must be given"
#endif
#ifndef LAB_CUDA
#error "LAB_CUDA, the CUDA version of the simulated driver (13000), must be given"
#endif

#define LAB_MAX_GPUS 32
/* The driver keeps a few MiB of an idle card for itself. */
#define LAB_IDLE_MIB 3

struct lab_gpu {
    char uuid[80];
    char name[96];
    char pci[32]; /* 0000:01:00.0, lower case */
    unsigned pci_device_id, pci_subsystem_id; /* device << 16 | vendor, as NVML gives them */
    int cc_major, cc_minor;
    unsigned long long memory_mib;
    int shared_memory_optin, multiprocessors, power_w, ecc, link_gen, link_width, minor, mig, lost, hung;
    unsigned long long ecc_errors; /* uncorrected ones */
};

enum lab_state { LAB_OK, LAB_NOT_LOADED, LAB_NO_PERMISSION, LAB_MISMATCH };

/* The cards whose device node this process can open, in the order of the description. */
enum lab_state lab_load(struct lab_gpu *gpus, int *count);

/* Who holds a card: 0 nobody, 1 a process (pid 0: one that this pid namespace cannot see). */
int lab_holder(const struct lab_gpu *gpu, int *pid, unsigned long long *memory_mib);

/* Takes the card for this process. Returns a file descriptor to keep open, or -1 when another process has it.
 * The lock is a POSIX one, because only that kind tells others the holder's pid, as seen from their pid namespace; it
 * ends when this process closes ANY descriptor of the card's file, so nothing else in a process may open it. */
int lab_take(const struct lab_gpu *gpu);

/* What the holder uses, for others to read. */
void lab_write_memory(int fd, unsigned long long mib);

/* What a hung card does to whoever asks for it. */
_Noreturn void lab_hang(void);

void lab_copy(char *to, size_t size, const char *from);

#endif
