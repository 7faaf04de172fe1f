/*
 * How many threads an engine may use: the processors this process may run on, and the quota of
 * every cgroup above it. More threads than quota make an engine many times slower, because each
 * period ends with all of them waiting (ollama/ollama#17916: 45 times).
 */
#ifndef FAILSOFT_WORKER_CPU_LIMIT_H
#define FAILSOFT_WORKER_CPU_LIMIT_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Whole processors of a `cpu.max` text ("QUOTA PERIOD" in µs, or "max PERIOD"; cgroup v2), rounded
 * down, at least 1; 0 when there is no limit. False when it is not such a text.
 */
bool cpu_limit_parse_max(const char *text, unsigned *ret_cpus);

/*
 * The smaller of `affinity` and the quotas found from this process's cgroup up to the root, v2 and
 * v1; at least 1. `root` is put before /proc and /sys ("" for the real ones). Blocks on files.
 */
unsigned cpu_limit_read(const char *root, unsigned affinity);

/* Processors in the calling thread's affinity mask, at least 1. */
unsigned cpu_limit_affinity(void);

/* What to start an engine with: `wanted` (0: as many as allowed), never more than allowed. */
unsigned cpu_limit_threads(unsigned wanted, unsigned allowed);

#endif
