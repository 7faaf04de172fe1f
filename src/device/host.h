/*
 * Host memory as the kernel tells it: /proc/meminfo, pressure stall information, this process's
 * cgroup and everything above it (v2 and v1), processes' resident memory.
 *
 * Formats: proc(5), Documentation/accounting/psi.rst, admin-guide/cgroup-v2.rst and
 * admin-guide/cgroup-v1/memory.rst of the kernel. Every function reads files and may block: never on
 * the loop thread.
 */
#ifndef FAILSOFT_DEVICE_HOST_H
#define FAILSOFT_DEVICE_HOST_H

#include "device/sample.h"
#include "device/source.h"

#include <stdbool.h>
#include <stdint.h>

struct host_meminfo {
    uint64_t total_bytes;
    uint64_t available_bytes;
    bool has_swap;
    uint64_t swap_total_bytes;
    uint64_t swap_free_bytes;
};

/*
 * MemTotal and MemAvailable; a kernel without MemAvailable (before 3.14) is an error, because
 * MemFree is another thing. 0, -ENOENT, -EINVAL (garbage, or available above total), …
 */
int host_meminfo_read(const char *proc, struct host_meminfo *ret);

/*
 * `some` and `full` avg10 of PROC/pressure/memory in 1/100 percent. 0; -ENOENT where the kernel has
 * no PSI; -EOPNOTSUPP where it is switched off; -EINVAL.
 */
int host_psi_read(const char *proc, uint32_t *ret_some, uint32_t *ret_full);

/* Resident memory of one process. ret->known is false where it can not be had. */
void host_process_read(const char *proc, int32_t pid, struct host_process *ret);

/*
 * Walks from this process's cgroup to the root. Fills the cgroup, CPU and event fields of *s and
 * their bits.
 *
 * Available at one level is limit - (current - inactive_file): cached file pages count as used and
 * are given back under pressure (ggml-org/whisper.cpp#3254). The limit is the lower of memory.max
 * and memory.high, above which the kernel slows the group down until it crawls. A level without a
 * limit, or without the memory controller, does not count. Active file pages count as used, which is
 * on the safe side; how many they are is told beside, for whoever knows whose they are.
 *
 * 0: known, and without HOST_HAS_CGROUP there is no limit at all. -EINVAL: a limit exists and can
 * not be told; then the host's memory is not known either.
 */
int host_cgroup_read(const struct device_roots *roots, struct host_sample *s);

/* All of the above into a zeroed sample, for these processes. Times are the caller's. */
void host_sample_read(const struct device_roots *roots, const int32_t *pids, size_t n_pids,
                      struct host_sample *s);

#endif
