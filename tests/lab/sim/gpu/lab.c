/* Copyright (c) 2026, blackwell.inference contributors
 * SPDX-License-Identifier: GPL-3.0-or-later */
#define _GNU_SOURCE
#include "lab.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

void lab_copy(char *to, size_t size, const char *from)
{
    if (size)
        snprintf(to, size, "%s", from);
}

/* Opens a device node for a moment. Anything but a character device counts as absent: a container that was given a
 * node that did not exist has an empty regular file in its place. */
static int node_opens(const char *name)
{
    char path[256];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", LAB_DEV, name);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return 0;
    int ok = fstat(fd, &st) == 0 && S_ISCHR(st.st_mode);
    close(fd);
    if (!ok)
        errno = ENODEV;
    return ok;
}

/* 1 equal, 0 another version, -1 no driver. The text names the version after the flavour, whichever it is. */
static int module_version_equal(void)
{
    char text[512] = "";
    FILE *f = fopen(LAB_PROC "/version", "re");
    if (!f)
        return -1;
    char *line = fgets(text, sizeof text, f);
    fclose(f);
    if (!line)
        return -1;
    for (char *save, *word = strtok_r(text, " \n", &save); word; word = strtok_r(NULL, " \n", &save))
        if (strspn(word, "0123456789") >= 3 && strchr(word, '.'))
            return strcmp(word, LAB_VERSION) == 0;
    return -1;
}

/* One card is one line, fields separated by tabs: key=value. Unknown keys are for others. */
static int parse(char *line, struct lab_gpu *g)
{
    int usable = 1;
    unsigned vendor = 0, device = 0;
    memset(g, 0, sizeof *g);
    g->minor = -1;
    for (char *save, *field = strtok_r(line, "\t\n", &save); field; field = strtok_r(NULL, "\t\n", &save)) {
        char *value = strchr(field, '=');
        if (!value)
            continue;
        *value++ = 0;
        if (!strcmp(field, "uuid"))
            lab_copy(g->uuid, sizeof g->uuid, value);
        else if (!strcmp(field, "name"))
            lab_copy(g->name, sizeof g->name, value);
        else if (!strcmp(field, "pci"))
            lab_copy(g->pci, sizeof g->pci, value);
        else if (!strcmp(field, "pci_id") && sscanf(value, "%x:%x", &vendor, &device) == 2)
            g->pci_device_id = device << 16 | vendor;
        else if (!strcmp(field, "subsystem") && sscanf(value, "%x:%x", &vendor, &device) == 2)
            g->pci_subsystem_id = device << 16 | vendor;
        else if (!strcmp(field, "compute_capability"))
            sscanf(value, "%d.%d", &g->cc_major, &g->cc_minor);
        else if (!strcmp(field, "memory_mib"))
            g->memory_mib = strtoull(value, NULL, 10);
        else if (!strcmp(field, "shared_memory_optin"))
            g->shared_memory_optin = atoi(value);
        else if (!strcmp(field, "multiprocessors"))
            g->multiprocessors = atoi(value);
        else if (!strcmp(field, "power_w"))
            g->power_w = atoi(value);
        else if (!strcmp(field, "ecc"))
            g->ecc = atoi(value);
        else if (!strcmp(field, "link_gen"))
            g->link_gen = atoi(value);
        else if (!strcmp(field, "link_width"))
            g->link_width = atoi(value);
        else if (!strcmp(field, "minor"))
            g->minor = atoi(value);
        else if (!strcmp(field, "mig"))
            g->mig = atoi(value);
        else if (!strcmp(field, "ecc_errors"))
            g->ecc_errors = strtoull(value, NULL, 10);
        else if (!strcmp(field, "state")) {
            g->lost = !strcmp(value, "lost");
            g->hung = !strcmp(value, "hung");
            usable = g->lost || g->hung || !strcmp(value, "ok");
        }
    }
    return usable && g->uuid[0] && g->minor >= 0;
}

void lab_hang(void)
{
    for (;;)
        pause();
}

enum lab_state lab_load(struct lab_gpu *gpus, int *count)
{
    char line[1024], node[32];
    *count = 0;
    int equal = module_version_equal();
    if (equal < 0)
        return LAB_NOT_LOADED;
    if (!node_opens("nvidiactl"))
        return errno == EACCES || errno == EPERM ? LAB_NO_PERMISSION : LAB_NOT_LOADED;
    if (!equal)
        return LAB_MISMATCH;
    FILE *f = fopen(LAB_PROC "/lab/gpus.conf", "re");
    if (!f)
        return LAB_NOT_LOADED;
    while (*count < LAB_MAX_GPUS && fgets(line, sizeof line, f)) {
        struct lab_gpu *g = &gpus[*count];
        if (strncmp(line, "gpu\t", 4) || !parse(line, g))
            continue;
        snprintf(node, sizeof node, "nvidia%d", g->minor);
        if (node_opens(node))
            ++*count;
    }
    fclose(f);
    return LAB_OK;
}

static int open_card(const struct lab_gpu *gpu, int flags)
{
    char path[256];
    snprintf(path, sizeof path, "%s/lab/cards/%s", LAB_PROC, gpu->uuid);
    return open(path, flags | O_CLOEXEC);
}

int lab_holder(const struct lab_gpu *gpu, int *pid, unsigned long long *memory_mib)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    char text[32] = "";
    int fd = open_card(gpu, O_RDONLY);
    *pid = 0;
    *memory_mib = 0;
    if (fd < 0)
        return 0;
    int held = fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
    if (held) {
        *pid = lock.l_pid > 0 ? lock.l_pid : 0;
        if (read(fd, text, sizeof text - 1) > 0)
            *memory_mib = strtoull(text, NULL, 10);
    }
    close(fd);
    return held;
}

static void log_open(const struct lab_gpu *gpu)
{
    char comm[32] = "?", line[256];
    int fd = open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        ssize_t n = read(fd, comm, sizeof comm - 1);
        comm[n > 0 ? n : 0] = 0;
        comm[strcspn(comm, "\n")] = 0;
        close(fd);
    }
    int n = snprintf(line, sizeof line, "%lld %s pid=%d comm=%s\n", (long long)time(NULL), gpu->uuid, (int)getpid(), comm);
    fd = open(LAB_PROC "/lab/opens.log", O_WRONLY | O_APPEND | O_CLOEXEC);
    if (fd < 0)
        return;
    /* One write of a short line to a file opened for appending: lines of several processes never mix. A lost line
     * would fail the test that reads the log, so there is nothing better to do here than to go on. */
    if (write(fd, line, (size_t)n) != n)
        fprintf(stderr, "simulated libcuda: cannot write " LAB_PROC "/lab/opens.log: %s\n", strerror(errno));
    close(fd);
}

int lab_take(const struct lab_gpu *gpu)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int fd = open_card(gpu, O_RDWR);
    if (fd < 0)
        return -1;
    if (fcntl(fd, F_SETLK, &lock) != 0) {
        close(fd);
        return -1;
    }
    log_open(gpu);
    return fd;
}

void lab_write_memory(int fd, unsigned long long mib)
{
    char text[32];
    int n = snprintf(text, sizeof text, "%llu\n", mib);
    if (ftruncate(fd, 0) != 0 || pwrite(fd, text, (size_t)n, 0) != n)
        fprintf(stderr, "simulated libcuda: cannot write the card's memory: %s\n", strerror(errno));
}
