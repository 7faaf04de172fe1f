/*
 * Telemetry for the loop: the newest sample of every device and of the host, and what happens to
 * them, whatever a driver does.
 *
 * Everything here runs on the loop thread and never blocks. Behind it, each device has a thread of
 * its own (device/sampler.h); a call that hangs makes its values old, then stale, and touches nobody
 * else. Calls to the functions below from within on_sample, on_host or on_event are fine, except
 * device_monitor_destroy.
 */
#ifndef FAILSOFT_DEVICE_MONITOR_H
#define FAILSOFT_DEVICE_MONITOR_H

#include "device/sample.h"
#include "device/sampler.h"
#include "device/source.h"

#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

struct device_monitor;

struct device_monitor_options {
    const struct device_spec *devices; /* copied; names are unique */
    size_t n_devices;
    struct device_roots roots;
    uint64_t interval_ms;    /* 500 */
    uint64_t stale_ms;       /* 2000 */
    uint64_t deadline_ms;    /* 2000: a call that takes longer hangs */
    uint64_t reopen_ms;      /* 5000 */
    uint64_t restart_ms;     /* 1000 */
    uint64_t restart_max_ms; /* 60000 */
    uint64_t suspend_ms;     /* 1000: a sleep shorter than this is none */
    bool host;               /* sample the host as well: true */
    bool events;             /* Xid events from NVML: true */
    bool kmsg;               /* and from the kernel's log, where it may be read: true */
    struct device_clock clock;
    /* For tests: another source than device_source_for(). */
    const struct device_source_ops *(*source_for)(enum device_kind kind);
};

/* Defaults, no devices, the system's clocks and device_roots_init(). */
void device_monitor_options_init(struct device_monitor_options *o);

/* All may be NULL. The structs are valid during the call. */
struct device_monitor_calls {
    /* A new sample, or one that became stale, invalid after a resume, or hung: see its flags. */
    void (*on_sample)(void *ctx, const struct device_sample *sample);
    void (*on_host)(void *ctx, const struct host_sample *sample);
    /*
     * `device` is the name of the device that it is about, or NULL: about the host, about another
     * device than ours, or nobody can tell (then event->pci is empty). NULL is no reason to
     * suspend anything by itself.
     */
    void (*on_event)(void *ctx, const char *device, const struct device_event *event);
};

/* Starts the threads. 0, -EINVAL (a name twice, no name), -ENOMEM, other negative errno. */
int device_monitor_create(uv_loop_t *loop, const struct device_monitor_options *o,
                          const struct device_monitor_calls *calls, void *ctx,
                          struct device_monitor **ret);

/*
 * The newest sample of a device, a copy, with DEVICE_FLAG_STALE and the like as of now. False: no
 * such device. Before the first sample it is one that knows nothing.
 */
bool device_monitor_latest(const struct device_monitor *m, const char *device,
                           struct device_sample *ret);

/* The same of the host; false when it is not sampled. */
bool device_monitor_host(const struct device_monitor *m, struct host_sample *ret);

/* Processes whose resident memory host samples are to hold. At most DEVICE_WATCH_MAX count. */
void device_monitor_watch(struct device_monitor *m, const int32_t *pids, size_t n);

/* Sample this device (NULL: all, and the host) now: memory is expected to have moved. */
void device_monitor_poke(struct device_monitor *m, const char *device);

/*
 * Ends it; no call comes any more. Frees itself when the loop has closed its handles, so the loop
 * has to turn once more. Threads end by themselves, those that hang when their call comes back.
 * NULL is fine.
 */
void device_monitor_destroy(struct device_monitor *m);

#endif
