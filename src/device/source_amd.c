/*
 * AMD cards through amdgpu's sysfs files (kernel documentation gpu/amdgpu/driver-misc: mem_info_*)
 * and DRM fdinfo.
 *
 * A discrete card has its VRAM. An APU has a carve-out, which the firmware calls VRAM, and takes the
 * rest from the host as GTT; the sum may be more than the machine has (ROCm/legacy-rocm-build#6004),
 * so
 *
 *     pool free = min(carve-out + GTT − used of both, MemAvailable + free part of the carve-out)
 *
 * and a worker on the CPU draws from the same. Where "VRAM" is about as large as the host's memory, it
 * may be that memory itself under another name, or one half of a machine split in two; both look the
 * same, so nothing is added to MemAvailable then. Which one it is, the power firmware's table says:
 * gpu_metrics format 1 is of discrete cards, 2 and 3 are of APUs (kgd_pp_interface.h).
 */
#include "device/drm.h"
#include "device/host.h"
#include "device/source.h"
#include "device/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct amd_source {
    struct device_roots roots;
    struct drm_card card;
    struct drm_scan scan;
    bool integrated;
};

struct amd_memory {
    uint64_t vram_total, vram_used, gtt_total, gtt_used;
};

/* The head of gpu_metrics: size (2 bytes), format, content. */
static bool is_apu(const char *card)
{
    char path[1024];
    unsigned char head[4];
    ssize_t n;
    int fd;

    snprintf(path, sizeof(path), "%s/device/gpu_metrics", card);
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return false; /* then VRAM alone counts, which is the smaller figure */
    n = read(fd, head, sizeof(head));
    close(fd);
    return n == (ssize_t)sizeof(head) && (head[2] == 2 || head[2] == 3);
}

static int amd_open(const struct device_spec *spec, const struct device_roots *roots,
                    void **ret_state, enum device_state *ret_device, char *why)
{
    struct amd_source *s = calloc(1, sizeof(*s));
    int rc;

    if (s == NULL)
        return -ENOMEM;
    s->roots = *roots;
    rc = drm_card_find(roots->sys, "0x1002", spec->index, &s->card);
    if (rc < 0) {
        *ret_device = DEVICE_STATE_ABSENT;
        snprintf(why, DEVICE_WHY_MAX, "no AMD card number %u", spec->index);
        free(s);
        return rc;
    }
    s->integrated = spec->integrated == DEVICE_INTEGRATED_YES ||
                    (spec->integrated == DEVICE_INTEGRATED_AUTO && is_apu(s->card.path));
    *ret_state = s;
    return 0;
}

static int read_pair(const char *card, const char *what, uint64_t *ret_total, uint64_t *ret_used)
{
    char path[64];
    uint64_t total, used;
    int rc;

    snprintf(path, sizeof(path), "device/mem_info_%s_total", what);
    rc = device_text_read_u64(card, path, &total);
    if (rc < 0)
        return rc;
    snprintf(path, sizeof(path), "device/mem_info_%s_used", what);
    rc = device_text_read_u64(card, path, &used);
    if (rc < 0)
        return rc;
    if (used > total)
        return -ERANGE;
    *ret_total = total;
    *ret_used = used;
    return 0;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static void take_card(const struct amd_memory *m, struct device_sample *sample)
{
    sample->has |= DEVICE_HAS_TOTAL | DEVICE_HAS_USED | DEVICE_HAS_FREE;
    sample->total_bytes = m->vram_total;
    sample->used_bytes = m->vram_used;
    sample->free_bytes = m->vram_total - m->vram_used;
}

/* The pool of an APU. Without the host's figures nothing is known. */
static int take_pool(const struct amd_source *s, const struct amd_memory *m,
                     struct device_sample *sample)
{
    struct host_meminfo host;
    uint64_t pool, carve_free = m->vram_total - m->vram_used;
    bool carved;
    int rc = host_meminfo_read(s->roots.proc, &host);

    sample->flags |= DEVICE_FLAG_SHARED_HOST;
    if (rc < 0)
        return rc;
    if (__builtin_add_overflow(m->vram_total, m->gtt_total, &pool))
        return -ERANGE;
    carved = m->vram_total < host.total_bytes - host.total_bytes / 10 ||
             m->vram_total > host.total_bytes + host.total_bytes / 10;
    if (!carved)
        carve_free = 0;
    sample->has |= DEVICE_HAS_TOTAL | DEVICE_HAS_USED | DEVICE_HAS_FREE | DEVICE_HAS_DEDICATED_FREE;
    sample->used_bytes = m->vram_used + m->gtt_used;
    sample->dedicated_free_bytes = carve_free;
    sample->free_bytes = least(pool - sample->used_bytes, host.available_bytes + carve_free);
    sample->total_bytes = least(pool, host.total_bytes + (carved ? m->vram_total : 0));
    return 0;
}

static int amd_sample(void *state, struct device_sample *sample)
{
    static const char *const card_regions[] = {"vram"};
    static const char *const pool_regions[] = {"vram", "gtt"};
    struct amd_source *s = state;
    struct amd_memory m = {0};
    int rc;

    memcpy(sample->pci, s->card.pci, sizeof(sample->pci));
    rc = read_pair(s->card.path, "vram", &m.vram_total, &m.vram_used);
    if (rc == 0 && s->integrated)
        rc = read_pair(s->card.path, "gtt", &m.gtt_total, &m.gtt_used);
    if (rc == 0 && s->integrated)
        rc = take_pool(s, &m, sample);
    else if (rc == 0)
        take_card(&m, sample);
    if (rc < 0) {
        /* The folder goes away with the device: unplugged, or its driver unloaded. */
        sample->state = rc == -ENOENT ? DEVICE_STATE_ABSENT : DEVICE_STATE_UNKNOWN;
        if (rc == -ENODEV || rc == -EIO)
            sample->state = DEVICE_STATE_LOST;
        if (rc == -ERANGE)
            sample->flags |= DEVICE_FLAG_IMPOSSIBLE;
        device_sample_say(sample, "memory of %s can not be told: %s", s->card.path, strerror(-rc));
        return -ENODEV;
    }
    sample->state = DEVICE_STATE_PRESENT;
    if (s->integrated)
        drm_processes_read(s->roots.proc, &s->card, pool_regions, 2, &s->scan, sample);
    else
        drm_processes_read(s->roots.proc, &s->card, card_regions, 1, &s->scan, sample);
    return 0;
}

const struct device_source_ops device_source_amd = {"amdgpu", amd_open, amd_sample, free};
