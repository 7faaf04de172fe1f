/*
 * A stub of NVIDIA's management library, for the tests of telemetry. Built as a shared library and
 * loaded by path like the real one; a test loads the same file and sets what it answers through
 * `stub_nvml_state()`.
 *
 * A test that runs the whole program writes orders into a file, named by STUB_NVML_ORDERS in the
 * environment, and replaces it at any time: lines of a key and numbers. Keys are the fields below;
 * `compute PID BYTES` and `graphics PID BYTES` are entries of the lists, `xid NUMBER COUNT` is handed out
 * when COUNT is larger than before, `name TEXT`, `bus_id TEXT`.
 *
 * Built twice: stub_nvml has everything, stub_nvml_old is a library from before the _v2 memory call,
 * the versioned lists of processes, fields and events.
 */
#ifndef FAILSOFT_TESTS_FAKES_STUB_NVML_H
#define FAILSOFT_TESTS_FAKES_STUB_NVML_H

#include <pthread.h>
#include <stdbool.h>

#define STUB_PROCESSES   8
#define STUB_NVML_ORDERS "FAILSOFT_STUB_NVML_ORDERS"

struct stub_process {
    unsigned int pid;
    unsigned long long used;
};

/* Return codes are nvmlReturn_t. Under `lock`. */
struct stub_nvml {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int init, handle, memory_v1, memory_v2, processes_v3, processes_v2, processes_v1, field;
    bool wide_entries;       /* _v3 writes entries of 32 bytes, as some 535 drivers do */
    bool blocked;            /* memory calls do not come back while this is set */
    unsigned int in_blocked; /* calls that are in there now */
    char name[64];
    char bus_id[32];
    unsigned long long total, reserved, free, used, used_v1;
    unsigned int n_compute, n_graphics;
    struct stub_process compute[STUB_PROCESSES], graphics[STUB_PROCESSES];
    unsigned int recovery;
    int events_register, events_wait; /* the second one when there is no Xid: TIMEOUT (10) */
    unsigned int xid;                 /* handed out once, then 0 */
    /* What was called. */
    unsigned int n_init, n_shutdown, n_memory_v2, n_memory_v1, n_processes_v3, n_fields;
    unsigned int last_version; /* the version word of the last v2 call */
};

/* Function `stub_nvml_state` of the library: struct stub_nvml *(*)(void). */

#endif
