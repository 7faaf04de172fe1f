/*
 * A telemetry source: one file a vendor behind this table.
 *
 * Every function may block for as long as a driver likes, and is therefore only called on a
 * sampler's thread (device/sampler.h). A source keeps no global state but what its driver library
 * keeps, and knows nothing of other threads: a second one may be opened while a call of the first
 * hangs.
 */
#ifndef FAILSOFT_DEVICE_SOURCE_H
#define FAILSOFT_DEVICE_SOURCE_H

#include "device/sample.h"

#include <stddef.h>
#include <stdint.h>

#define DEVICE_PATH_MAX 512

enum device_kind {
    DEVICE_KIND_NVIDIA = 0,
    DEVICE_KIND_AMD,
    DEVICE_KIND_INTEL,
    DEVICE_KIND_SIM,
};

/* Whether its pool is host memory, where the source does not know it for certain. */
enum device_integrated {
    DEVICE_INTEGRATED_AUTO = 0,
    DEVICE_INTEGRATED_NO,
    DEVICE_INTEGRATED_YES,
};

/* Where the world is found. Tests put fake trees and a stub library here. */
struct device_roots {
    char proc[DEVICE_PATH_MAX];
    char sys[DEVICE_PATH_MAX];
    char cgroup[DEVICE_PATH_MAX];       /* the cgroup mount */
    char nvml_library[DEVICE_PATH_MAX]; /* path, or a name for the dynamic linker */
    char kmsg[DEVICE_PATH_MAX];         /* the kernel's log */
};

/*
 * /proc, /sys, /sys/fs/cgroup, libnvidia-ml.so.1 and /dev/kmsg; each replaced by the environment
 * variable FAILSOFT_PROC, FAILSOFT_SYS, FAILSOFT_CGROUP, FAILSOFT_NVML_LIBRARY, FAILSOFT_KMSG where
 * it is set.
 */
void device_roots_init(struct device_roots *roots);

struct device_spec {
    char name[DEVICE_NAME_MAX]; /* in the configuration: "gpu0" */
    enum device_kind kind;
    uint32_t index; /* among the machine's devices of this kind, as the driver counts */
    char card[32];  /* sim: the card's name */
    enum device_integrated integrated;
};

struct device_source_ops {
    const char *name; /* static; what samples say as their source */
    /* Caller owns *ret_state. 0, or negative errno with `why` (of DEVICE_WHY_MAX) and *ret_device
     * saying what is missing. */
    int (*open)(const struct device_spec *spec, const struct device_roots *roots, void **ret_state,
                enum device_state *ret_device, char *why);
    /*
     * Fills a sample that device_sample_init() prepared. 0: it stands, also where it says that
     * nothing is known; -ENODEV: it stands, and the state has to be opened anew.
     */
    int (*sample)(void *state, struct device_sample *sample);
    /* NULL is fine. */
    void (*close)(void *state);
};

/* What happens between samples, on a thread of its own. */
struct device_events_ops {
    const char *name;
    /* -ENOTSUP: there is no such thing here; not asked again. */
    int (*open)(const struct device_spec *spec, const struct device_roots *roots, void **ret_state);
    /* >0 an event, 0 none within timeout_ms, -ENOTSUP, other: open anew after a while. */
    int (*wait)(void *state, unsigned timeout_ms, struct device_event *ret_event);
    void (*close)(void *state);
};

extern const struct device_source_ops device_source_sim;
extern const struct device_source_ops device_source_nvml;
extern const struct device_source_ops device_source_amd;
extern const struct device_source_ops device_source_intel;

extern const struct device_events_ops device_events_nvml; /* Xid events of one device */
extern const struct device_events_ops device_events_kmsg; /* the kernel's log, every device */

/* The source for a kind of device; never NULL. */
const struct device_source_ops *device_source_for(enum device_kind kind);

#endif
