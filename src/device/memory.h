/*
 * Memory that a process holds on a device: what a restart must wait for. A killed process is gone
 * before its memory is back (ollama/ollama#9016; on some drivers seconds later), and a worker that is
 * started into that gap lands on the CPU or dies.
 *
 * One small table per source; a source that cannot tell says so, and "unknown" is never "free".
 */
#ifndef FAILSOFT_DEVICE_MEMORY_H
#define FAILSOFT_DEVICE_MEMORY_H

#include <stdint.h>

struct device_memory_ops {
    const char *name; /* of the source */
    /*
     * Bytes on the device that are or were held by process `pid` and are not back yet, memory of
     * other dead processes included where it cannot be told apart. May block for seconds; any
     * thread. 0; -ENOTSUP: this source cannot know; other negative errno: cannot tell now.
     */
    int (*held)(const char *device, int pid, uint64_t *ret_bytes);
};

/* The simulated accelerator; `device` is the card's name (device/sim_card.c). */
extern const struct device_memory_ops device_memory_sim;

/* No telemetry: always -ENOTSUP. */
extern const struct device_memory_ops device_memory_unknown;

#endif
