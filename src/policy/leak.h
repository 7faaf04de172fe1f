/*
 * Does a worker's memory creep up? Compared is what it holds while it is idle, so that long prompts
 * do not look like a leak. The first idle figure after a load is what the others are measured by:
 *
 *   held ●      ●     ●    ●─ suspected: more than the first by over the threshold, twice in a row
 *        │ ●  (first)
 *
 * A figure counts only where it is also higher than the last one that counted: a buffer that was made
 * larger once, for a longer prompt, stays as it is, and a leak does not.
 *
 * A suspected worker is recycled between requests, when it is idle (F04, ggml-org/llama.cpp#23446).
 *
 * Pure.
 */
#ifndef FAILSOFT_POLICY_LEAK_H
#define FAILSOFT_POLICY_LEAK_H

#include <stdbool.h>
#include <stdint.h>

struct leak {
    uint64_t threshold_bytes; /* 0: the larger of 256 MiB and 1/16 of the first figure */
    uint64_t first_bytes;
    uint64_t last_bytes;
    uint64_t high_bytes; /* of the figures that counted */
    uint32_t over;       /* figures above the threshold, each higher than the one before */
    bool started;
};

/* At every load of the worker. */
void leak_init(struct leak *k, uint64_t threshold_bytes);

/* An idle worker that has settled holds so much. True: a leak is suspected. */
bool leak_note(struct leak *k, uint64_t idle_bytes);

bool leak_is_suspected(const struct leak *k);

/* By how much it grew since the first figure. */
uint64_t leak_grown_bytes(const struct leak *k);

#endif
