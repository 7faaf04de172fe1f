/*
 * Intel cards, as far as files tell.
 *
 * Total: xe has device/tileN/physical_vram_size_bytes, older layouts device/tileN/memory/ of the
 * same name; out-of-tree i915 has lmem_total_bytes beside `device`. Free and used: no file of either
 * driver says it (the query ioctl does, to a process that opened the card, which the gateway never
 * does), so free is unknown and admission has to go by claims. Processes: DRM fdinfo, region "vram"
 * (xe) or "local" (i915).
 *
 * A card without any of these files is integrated, or runs a driver that says nothing: unknown.
 */
#include "device/drm.h"
#include "device/source.h"
#include "device/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { INTEL_TILES_MAX = 8 };

struct intel_source {
    struct device_roots roots;
    struct drm_card card;
    struct drm_scan scan;
};

static int intel_open(const struct device_spec *spec, const struct device_roots *roots,
                      void **ret_state, enum device_state *ret_device, char *why)
{
    struct intel_source *s = calloc(1, sizeof(*s));
    int rc;

    if (s == NULL)
        return -ENOMEM;
    s->roots = *roots;
    rc = drm_card_find(roots->sys, "0x8086", spec->index, &s->card);
    if (rc < 0) {
        *ret_device = DEVICE_STATE_ABSENT;
        snprintf(why, DEVICE_WHY_MAX, "no Intel card number %u", spec->index);
        free(s);
        return rc;
    }
    *ret_state = s;
    return 0;
}

/* 0, -ENOENT: no such file; -EINVAL: garbage. */
static int tile_bytes(const char *card, unsigned tile, uint64_t *ret_bytes)
{
    static const char *const names[] = {"physical_vram_size_bytes",
                                        "memory/physical_vram_size_bytes"};
    char path[96];

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        int rc;

        snprintf(path, sizeof(path), "device/tile%u/%s", tile, names[i]);
        rc = device_text_read_u64(card, path, ret_bytes);
        if (rc != -ENOENT)
            return rc;
    }
    return -ENOENT;
}

static int total_bytes(const char *card, uint64_t *ret_bytes)
{
    uint64_t sum = 0, bytes;
    int rc;

    for (unsigned tile = 0; tile < INTEL_TILES_MAX; tile++) {
        rc = tile_bytes(card, tile, &bytes);
        if (rc == -ENOENT && tile == 0)
            return device_text_read_u64(card, "lmem_total_bytes", ret_bytes);
        if (rc == -ENOENT)
            break;
        if (rc < 0 || __builtin_add_overflow(sum, bytes, &sum))
            return -EINVAL;
    }
    *ret_bytes = sum;
    return 0;
}

static int intel_sample(void *state, struct device_sample *sample)
{
    static const char *const regions[] = {"vram", "local"};
    struct intel_source *s = state;
    char buffer[32];
    struct span text;
    uint64_t total;
    int rc;

    memcpy(sample->pci, s->card.pci, sizeof(sample->pci));
    if (device_text_read(s->card.path, "device/vendor", buffer, sizeof(buffer), &text) < 0) {
        sample->state = DEVICE_STATE_ABSENT;
        device_sample_say(sample, "%s is gone", s->card.path);
        return -ENODEV;
    }
    sample->state = DEVICE_STATE_PRESENT;
    rc = total_bytes(s->card.path, &total);
    if (rc == 0) {
        sample->has |= DEVICE_HAS_TOTAL;
        sample->total_bytes = total;
        device_sample_say(sample, "the %s driver does not tell free memory", s->card.driver);
    } else {
        device_sample_say(sample, "the %s driver tells no memory size: %s", s->card.driver,
                          strerror(-rc));
    }
    drm_processes_read(s->roots.proc, &s->card, regions, 2, &s->scan, sample);
    return 0;
}

const struct device_source_ops device_source_intel = {"intel", intel_open, intel_sample, free};
