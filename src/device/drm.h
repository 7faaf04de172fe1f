/*
 * Cards under /sys/class/drm and what processes hold on them, from DRM fdinfo (kernel documentation
 * gpu/drm-usage-stats). Used by the amdgpu and the intel source. Blocks on files.
 */
#ifndef FAILSOFT_DEVICE_DRM_H
#define FAILSOFT_DEVICE_DRM_H

#include "base/span.h"
#include "device/sample.h"
#include "device/source.h"

#include <stdint.h>

struct drm_card {
    char path[DEVICE_PATH_MAX]; /* SYS/class/drm/cardN */
    char pci[DEVICE_PCI_MAX];
    char driver[16];
};

/*
 * The index-th card of a PCI vendor, in the order of card numbers. `vendor` as sysfs says it:
 * "0x1002". 0, -ENOENT.
 */
int drm_card_find(const char *sys, const char *vendor, uint32_t index, struct drm_card *ret);

/*
 * What a source keeps between passes. Looking at every descriptor of every process costs tens of
 * milliseconds on a busy desktop, so a full walk is followed by DRM_SCAN_REST times as long without
 * one; in between only the processes that held memory then are looked at again. Zeroed is ready.
 */
#define DRM_SCAN_REST 25u

struct drm_scan {
    uint64_t next_full_us; /* CLOCK_MONOTONIC */
    int32_t pids[DEVICE_PROCESSES_MAX];
    size_t n_pids;
};

/*
 * Adds every process that holds memory of `card` in the regions of these names, with or without a
 * number behind ("vram", "vram0"). A client that shows up on several descriptors or in several
 * processes counts once, for the first. Sets DEVICE_HAS_PROCESSES, and PROCESSES_PARTIAL where some
 * could not be looked at.
 */
void drm_processes_read(const char *proc, const struct drm_card *card, const char *const *regions,
                        size_t n_regions, struct drm_scan *scan, struct device_sample *sample);

/*
 * Bytes in one region prefix of one fdinfo text: drm-resident-<region>, else its old name
 * drm-memory-<region>, else drm-total-<region>, summed over regions ("vram0", "vram1"); and amdgpu's
 * "vram mem:" from before Linux 5.19. 0, -ENOENT (no such key), -EINVAL.
 */
int drm_fdinfo_region(struct span text, const char *region, uint64_t *ret_bytes);

#endif
