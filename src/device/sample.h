/*
 * What telemetry says about a device and about the host, as plain structs that can be copied.
 *
 * Invariants
 *   - A number counts only where its bit is set in `has`; a number without its bit is 0 and means
 *     "unknown", never "none".
 *   - All numbers of a sample were measured in one pass that began at sampled_at_ms; the pass may
 *     have taken long, so the age is an upper bound.
 *   - Admission reads free memory through device_sample_free() alone: stale, impossible or missing
 *     figures are not free memory.
 */
#ifndef FAILSOFT_DEVICE_SAMPLE_H
#define FAILSOFT_DEVICE_SAMPLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DEVICE_NAME_MAX      64
#define DEVICE_PCI_MAX       16 /* "0000:06:00.0" */
#define DEVICE_PROGRAM_MAX   16 /* /proc/PID/comm */
#define DEVICE_WHY_MAX       160
#define DEVICE_PROCESSES_MAX 64
#define DEVICE_WATCH_MAX     64 /* pids whose resident memory the host source follows */
#define DEVICE_LEVEL_MAX     128

/* --- a device --- */

/* Which numbers of struct device_sample are known. */
#define DEVICE_HAS_TOTAL          (1u << 0)
#define DEVICE_HAS_USED           (1u << 1)
#define DEVICE_HAS_FREE           (1u << 2)
#define DEVICE_HAS_RESERVED       (1u << 3)
#define DEVICE_HAS_LARGEST_FREE   (1u << 4)
#define DEVICE_HAS_MAX_ALLOC      (1u << 5)
#define DEVICE_HAS_RELEASING      (1u << 6)
#define DEVICE_HAS_OVERCOMMITTED  (1u << 7)
#define DEVICE_HAS_DEDICATED_FREE (1u << 8)
#define DEVICE_HAS_PROCESSES      (1u << 9)
#define DEVICE_HAS_RECOVERY       (1u << 10)
#define DEVICE_HAS_MEMORY                                                                          \
    (DEVICE_HAS_TOTAL | DEVICE_HAS_USED | DEVICE_HAS_FREE | DEVICE_HAS_RESERVED |                  \
     DEVICE_HAS_LARGEST_FREE | DEVICE_HAS_MAX_ALLOC | DEVICE_HAS_RELEASING |                       \
     DEVICE_HAS_OVERCOMMITTED | DEVICE_HAS_DEDICATED_FREE)

#define DEVICE_FLAG_SHARED_HOST (1u << 0) /* its pool is host memory: a CPU worker's use counts */
#define DEVICE_FLAG_PROCESSES_PARTIAL                                                              \
    (1u << 1)                            /* some processes could not be looked at or did not fit */
#define DEVICE_FLAG_IMPOSSIBLE (1u << 2) /* the source said what can not be; numbers dropped */
#define DEVICE_FLAG_STALE      (1u << 3) /* older than stale_ms; set by the monitor */
#define DEVICE_FLAG_RESUMED    (1u << 4) /* the host slept since; nothing is known yet */
#define DEVICE_FLAG_HUNG       (1u << 5) /* the call for the next one does not come back */
#define DEVICE_FLAG_SIMULATED  (1u << 6)

enum device_state {
    DEVICE_STATE_UNKNOWN = 0, /* no source, or it failed; says nothing about the device */
    DEVICE_STATE_PRESENT,
    DEVICE_STATE_ABSENT,         /* the source works and there is no such device */
    DEVICE_STATE_HIDDEN,         /* engines that start now would not find it */
    DEVICE_STATE_LOST,           /* fallen off the bus, or the card is lost */
    DEVICE_STATE_RESET_REQUIRED, /* the driver asks for a reset */
    DEVICE_STATE_NO_DRIVER,      /* library or kernel driver not there */
    DEVICE_STATE_MISMATCH,       /* driver updated without a reboot: needs a person */
};

/* What the driver asks for (NVML field 230, NVML_FI_DEV_GET_GPU_RECOVERY_ACTION). */
enum device_recovery {
    DEVICE_RECOVERY_NONE = 0,
    DEVICE_RECOVERY_RESET = 1,
    DEVICE_RECOVERY_REBOOT = 2,
    DEVICE_RECOVERY_DRAIN_P2P = 3,
    DEVICE_RECOVERY_DRAIN_AND_RESET = 4,
    DEVICE_RECOVERY_OTHER = 5, /* a number that this version does not know; the same as a reset */
};

struct device_process {
    int32_t pid;
    bool has_bytes; /* the driver may know the process and not its memory */
    bool lost;      /* it holds a handle from before a reset */
    uint64_t bytes; /* on the device */
    uint64_t spilled_bytes;
    char program[DEVICE_PROGRAM_MAX]; /* empty: unknown */
};

struct device_sample {
    char device[DEVICE_NAME_MAX];
    const char *source; /* static: "sim", "nvml", "amdgpu", "intel" */
    char pci[DEVICE_PCI_MAX];
    uint64_t sampled_at_ms; /* CLOCK_MONOTONIC at the start of the pass; 0: never */
    uint64_t took_ms;
    uint32_t has;
    uint32_t flags;
    enum device_state state;
    enum device_recovery recovery;
    uint64_t total_bytes;
    uint64_t used_bytes; /* used + free need not be the total (rust-nvml/nvml-wrapper#57) */
    uint64_t free_bytes;
    uint64_t reserved_bytes;     /* the driver's own share */
    uint64_t largest_free_bytes; /* the largest hole */
    uint64_t
        max_alloc_bytes; /* largest single buffer that the driver grants; unset: no limit known */
    uint64_t releasing_bytes;      /* of dead processes, not back yet */
    uint64_t overcommitted_bytes;  /* in use beyond the capacity */
    uint64_t dedicated_free_bytes; /* of a shared pool: the part that only the device can use */
    size_t n_processes;
    struct device_process processes[DEVICE_PROCESSES_MAX];
    char
        why[DEVICE_WHY_MAX]; /* one sentence where something is not known or not well; else empty */
};

/* Empty, named, nothing known. `source` is static. */
void device_sample_init(struct device_sample *s, const char *device, const char *source);

/*
 * Drops what can not be: free, used or reserved above the total, a total of 0 or above 16 TiB or
 * above 64 times host memory (host_total_bytes 0: unknown), a process with more than the total.
 * Sets DEVICE_FLAG_IMPOSSIBLE and says why. Used + free ≠ total is fine.
 */
void device_sample_check(struct device_sample *s, uint64_t host_total_bytes);

bool device_sample_is_stale(const struct device_sample *s, uint64_t now_ms, uint64_t stale_ms);

/*
 * Free bytes that admission may count on: known, not impossible, at most stale_ms old, the device
 * present. False: unknown, which is never free.
 */
bool device_sample_free(const struct device_sample *s, uint64_t now_ms, uint64_t stale_ms,
                        uint64_t *ret_bytes);

/* Bytes of one process, spilled ones not included. False: not listed or not known. */
bool device_sample_process(const struct device_sample *s, int32_t pid, uint64_t *ret_bytes);

/* Adds or finds the process; NULL when the list is full (which sets PROCESSES_PARTIAL). */
struct device_process *device_sample_add_process(struct device_sample *s, int32_t pid);

/* `why`, cut to its field. */
void device_sample_say(struct device_sample *s, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

const char *device_state_name(enum device_state state);

/* --- what happened to a device between samples --- */

enum device_event_kind {
    DEVICE_EVENT_XID,     /* `code` is the Xid, `fault` its class */
    DEVICE_EVENT_FAULT,   /* a driver's line without a number */
    DEVICE_EVENT_RESUMED, /* the host slept for `slept_ms`; every device */
    DEVICE_EVENT_HUNG,    /* a telemetry call is over its deadline */
    DEVICE_EVENT_UNHUNG,  /* and came back */
};

/* How bad a driver's message is. */
enum device_fault {
    DEVICE_FAULT_NONE = 0,    /* information, or an all-clear */
    DEVICE_FAULT_APPLICATION, /* one process has to be restarted; the device is well */
    DEVICE_FAULT_SUSPECT,     /* not known or not clear: worth a look, no breaker */
    DEVICE_FAULT_RESET,       /* does no work before a reset */
    DEVICE_FAULT_LOST,        /* off the bus: until a reboot or a power cycle */
};

struct device_event {
    enum device_event_kind kind;
    enum device_fault fault;
    uint32_t code;  /* Xid */
    uint64_t at_ms; /* CLOCK_MONOTONIC */
    uint64_t slept_ms;
    char pci[DEVICE_PCI_MAX]; /* empty: the source could not tell which device */
    char text[DEVICE_WHY_MAX];
};

const char *device_fault_name(enum device_fault fault);

/* --- the host --- */

#define HOST_HAS_TOTAL     (1u << 0)
#define HOST_HAS_MEMINFO   (1u << 1) /* meminfo_available_bytes */
#define HOST_HAS_CGROUP    (1u << 2) /* cgroup_available_bytes: a limit exists and is known */
#define HOST_HAS_AVAILABLE (1u << 3) /* available_bytes: every part of the minimum is known */
#define HOST_HAS_SWAP      (1u << 4)
#define HOST_HAS_PSI       (1u << 5)
#define HOST_HAS_EVENTS    (1u << 6)
#define HOST_HAS_CPU_QUOTA (1u << 7) /* a quota exists */
#define HOST_HAS_THROTTLED (1u << 8)

struct host_process {
    int32_t pid;
    bool known;          /* false: gone or not readable */
    uint64_t rss_bytes;  /* VmRSS, mapped files included */
    uint64_t anon_bytes; /* RssAnon + RssShmem, locked pages: what can not be dropped */
};

struct host_sample {
    uint64_t sampled_at_ms;
    uint64_t took_ms;
    uint32_t has;
    uint32_t flags; /* DEVICE_FLAG_IMPOSSIBLE, _STALE, _RESUMED, _HUNG */
    uint64_t total_bytes;
    uint64_t meminfo_available_bytes; /* MemAvailable */
    uint64_t
        cgroup_available_bytes;  /* the least of limit - (current - inactive_file), all levels */
    uint64_t available_bytes;    /* the least of the two */
    uint64_t cgroup_limit_bytes; /* with HOST_HAS_CGROUP: the lowest limit of all levels */
    /* File pages that cgroup_available_bytes counts as used: those in active use. The kernel can
     * drop them all the same. */
    uint64_t cgroup_active_file_bytes;
    uint64_t swap_total_bytes;
    uint64_t swap_free_bytes;
    uint32_t psi_some_avg10; /* memory pressure, in 1/100 percent */
    uint32_t psi_full_avg10;
    int cgroup_version;                  /* 0: none found */
    char cgroup_level[DEVICE_LEVEL_MAX]; /* the folder that sets cgroup_available_bytes */
    uint64_t oom_kills;                  /* in the own cgroup, ever */
    uint64_t limit_hits;                 /* memory.events `max`, or failcnt */
    uint64_t cpu_quota_millis;           /* 1500: one and a half processors */
    uint64_t cpu_throttled_us;           /* ever */
    size_t n_processes;
    struct host_process processes[DEVICE_WATCH_MAX];
    char why[DEVICE_WHY_MAX];
};

/* Host memory that may be counted on, as device_sample_free(). */
bool host_sample_available(const struct host_sample *s, uint64_t now_ms, uint64_t stale_ms,
                           uint64_t *ret_bytes);

#endif
