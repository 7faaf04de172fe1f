/*
 * DRM cards and their clients.
 *
 * Which figure of a client counts: what is resident on the card (drm-resident-, of which
 * drm-memory- is the old name), because what was evicted does not fill it. drm-total- is the last
 * resort; it counts buffers that are shared or swapped out, so it is an upper bound.
 */
#include "device/drm.h"

#include "device/kernel_log.h"
#include "device/text.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    DRM_TEXT = 8192,
    DRM_CARDS_MAX = 64,
    DRM_CLIENTS_MAX = 512,
    DRM_PIDS_MAX = 65536,
    DRM_FDS_MAX = 4096,
};

/* --- cards --- */

static void driver_name(const char *path, char *out, size_t out_size)
{
    char file[1024], buffer[1024];
    struct span text, value;

    out[0] = '\0';
    snprintf(file, sizeof(file), "%s/device", path);
    if (device_text_read(file, "uevent", buffer, sizeof(buffer), &text) == 0 &&
        device_text_field(text, "DRIVER", '=', &value) && value.len < out_size) {
        memcpy(out, value.ptr, value.len);
        out[value.len] = '\0';
    }
}

static void pci_address(const char *path, char out[DEVICE_PCI_MAX])
{
    char file[1024], buffer[1024];
    struct span text, value;

    out[0] = '\0';
    snprintf(file, sizeof(file), "%s/device", path);
    if (device_text_read(file, "uevent", buffer, sizeof(buffer), &text) == 0 &&
        device_text_field(text, "PCI_SLOT_NAME", '=', &value))
        (void)kernel_log_pci(value, out);
}

int drm_card_find(const char *sys, const char *vendor, uint32_t index, struct drm_card *ret)
{
    uint32_t seen = 0;

    for (unsigned n = 0; n < DRM_CARDS_MAX; n++) {
        char path[DEVICE_PATH_MAX], buffer[32];
        struct span text;
        int len = snprintf(path, sizeof(path), "%s/class/drm/card%u", sys, n);

        if (len < 0 || (size_t)len >= sizeof(path))
            return -ENAMETOOLONG;
        if (device_text_read(path, "device/vendor", buffer, sizeof(buffer), &text) < 0 ||
            !span_starts_with(text, span_from_str(vendor)))
            continue;
        if (seen++ != index)
            continue;
        memcpy(ret->path, path, sizeof(path));
        pci_address(path, ret->pci);
        driver_name(path, ret->driver, sizeof(ret->driver));
        return 0;
    }
    return -ENOENT;
}

/* --- one fdinfo text --- */

/* The sum of "PREFIX<region><digits>: SIZE" lines. */
static int sum_lines(struct span text, const char *prefix, const char *region, uint64_t *ret_bytes)
{
    struct span line, head = span_from_str(prefix), name = span_from_str(region);
    uint64_t sum = 0;
    bool found = false;

    while (device_text_line(&text, &line)) {
        size_t at = head.len + name.len;
        uint64_t bytes;

        if (!span_starts_with(line, head) ||
            !span_starts_with((struct span){line.ptr + head.len, line.len - head.len}, name))
            continue;
        while (at < line.len && line.ptr[at] >= '0' && line.ptr[at] <= '9')
            at++;
        if (at >= line.len || line.ptr[at] != ':')
            continue;
        if (device_text_parse_size((struct span){line.ptr + at + 1, line.len - at - 1}, &bytes) <
                0 ||
            __builtin_add_overflow(sum, bytes, &sum))
            return -EINVAL;
        found = true;
    }
    if (!found)
        return -ENOENT;
    *ret_bytes = sum;
    return 0;
}

int drm_fdinfo_region(struct span text, const char *region, uint64_t *ret_bytes)
{
    static const char *const prefixes[] = {"drm-resident-", "drm-memory-", "drm-total-"};
    char old[32];

    for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
        int rc = sum_lines(text, prefixes[i], region, ret_bytes);

        if (rc != -ENOENT)
            return rc;
    }
    snprintf(old, sizeof(old), "%s mem", region);
    return device_text_field_size(text, old, ':', ret_bytes);
}

/* --- all processes --- */

struct drm_walk {
    const char *proc;
    const struct drm_card *card;
    const char *const *regions;
    size_t n_regions;
    struct device_sample *sample;
    uint64_t clients[DRM_CLIENTS_MAX];
    size_t n_clients;
    char text[DRM_TEXT];
};

/* The client's number was met before? One that can not be remembered is not counted twice either. */
static bool is_known_client(struct drm_walk *w, struct span text)
{
    uint64_t id;

    if (device_text_field_u64(text, "drm-client-id", ':', &id) < 0)
        return false; /* before Linux 5.19 there were none */
    for (size_t i = 0; i < w->n_clients; i++) {
        if (w->clients[i] == id)
            return true;
    }
    if (w->n_clients == DRM_CLIENTS_MAX) {
        w->sample->flags |= DEVICE_FLAG_PROCESSES_PARTIAL;
        return true;
    }
    w->clients[w->n_clients++] = id;
    return false;
}

static bool is_of_card(const struct drm_walk *w, struct span text)
{
    struct span value;
    char pci[DEVICE_PCI_MAX];

    return (device_text_field(text, "drm-pdev", ':', &value) ||
            device_text_field(text, "pdev", ':', &value)) &&
           kernel_log_pci(value, pci) == 0 && strcmp(pci, w->card->pci) == 0;
}

static void take_descriptor(struct drm_walk *w, int32_t pid, struct span text)
{
    struct device_process *p;
    uint64_t bytes = 0;
    bool any = false;

    if (!is_of_card(w, text) || is_known_client(w, text))
        return;
    for (size_t i = 0; i < w->n_regions; i++) {
        uint64_t part;
        int rc = drm_fdinfo_region(text, w->regions[i], &part);

        if (rc == -EINVAL || (rc == 0 && __builtin_add_overflow(bytes, part, &bytes))) {
            w->sample->flags |= DEVICE_FLAG_PROCESSES_PARTIAL;
            return;
        }
        any = any || rc == 0;
    }
    if (!any)
        return;
    p = device_sample_add_process(w->sample, pid);
    if (p == NULL)
        return;
    if (p->program[0] == '\0')
        device_text_program(w->proc, pid, p->program);
    p->has_bytes = true;
    if (__builtin_add_overflow(p->bytes, bytes, &p->bytes))
        p->has_bytes = false;
}

static bool is_number(const char *name)
{
    return name[0] != '\0' && strspn(name, "0123456789") == strlen(name) && strlen(name) < 10;
}

/* Only descriptors of DRM devices have anything to say, and most descriptors are none. */
static bool is_drm_descriptor(const char *folder, const char *fd)
{
    char path[1024], target[32];
    ssize_t n;
    int len = snprintf(path, sizeof(path), "%s/fd/%s", folder, fd);

    if (len < 0 || (size_t)len >= sizeof(path))
        return false;
    n = readlink(path, target, sizeof(target) - 1);
    if (n <= 0)
        return false;
    target[n] = '\0';
    return strncmp(target, "/dev/dri/", 9) == 0;
}

static void walk_process(struct drm_walk *w, const char *pid_text)
{
    char folder[768], path[800];
    struct dirent *entry;
    DIR *dir;
    unsigned n = 0;

    snprintf(folder, sizeof(folder), "%s/%s", w->proc, pid_text);
    snprintf(path, sizeof(path), "%s/fd", folder);
    dir = opendir(path);
    if (dir == NULL) {
        /* Another user's: its use is not known, which is not the same as none. */
        if (errno == EACCES || errno == EPERM)
            w->sample->flags |= DEVICE_FLAG_PROCESSES_PARTIAL;
        return;
    }
    while ((entry = readdir(dir)) != NULL && n++ < DRM_FDS_MAX) {
        struct span text;

        if (!is_number(entry->d_name) || !is_drm_descriptor(folder, entry->d_name))
            continue;
        snprintf(path, sizeof(path), "fdinfo/%s", entry->d_name);
        if (device_text_read(folder, path, w->text, sizeof(w->text), &text) == 0)
            take_descriptor(w, (int32_t)strtol(pid_text, NULL, 10), text);
    }
    closedir(dir);
}

static uint64_t now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static void walk_all(struct drm_walk *w, struct drm_scan *scan)
{
    uint64_t start_us = now_us(), end_us;
    struct dirent *entry;
    DIR *dir = opendir(w->proc);
    unsigned n = 0;

    if (dir == NULL) {
        w->sample->has &= ~DEVICE_HAS_PROCESSES;
        return;
    }
    while ((entry = readdir(dir)) != NULL && n++ < DRM_PIDS_MAX) {
        if (is_number(entry->d_name))
            walk_process(w, entry->d_name);
    }
    closedir(dir);
    end_us = now_us();
    scan->next_full_us = end_us + (end_us - start_us) * DRM_SCAN_REST;
    scan->n_pids = w->sample->n_processes;
    for (size_t i = 0; i < scan->n_pids; i++)
        scan->pids[i] = w->sample->processes[i].pid;
}

void drm_processes_read(const char *proc, const struct drm_card *card, const char *const *regions,
                        size_t n_regions, struct drm_scan *scan, struct device_sample *sample)
{
    struct drm_walk *w;

    if (card->pci[0] == '\0')
        return;
    w = calloc(1, sizeof(*w));
    if (w == NULL)
        return;
    w->proc = proc;
    w->card = card;
    w->regions = regions;
    w->n_regions = n_regions;
    w->sample = sample;
    sample->has |= DEVICE_HAS_PROCESSES;
    if (now_us() >= scan->next_full_us) {
        walk_all(w, scan);
    } else {
        /* Others may have come since the full walk. */
        sample->flags |= DEVICE_FLAG_PROCESSES_PARTIAL;
        for (size_t i = 0; i < scan->n_pids; i++) {
            char pid[16];

            snprintf(pid, sizeof(pid), "%" PRId32, scan->pids[i]);
            walk_process(w, pid);
        }
    }
    free(w);
}
