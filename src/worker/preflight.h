/*
 * What is looked at before an engine is started, on a thread of the pool because it touches disks
 * and the simulated card's lock: is there an engine, is the model a GGUF file, how many threads,
 * is the memory of the last process back. Fails with one clear sentence.
 */
#ifndef FAILSOFT_WORKER_PREFLIGHT_H
#define FAILSOFT_WORKER_PREFLIGHT_H

#include "worker/options.h"

#include <stdbool.h>
#include <stdint.h>

enum { PREFLIGHT_PATH = 4096, PREFLIGHT_WHY = 4096 + 256 };

struct preflight {
    /* In. Borrowed while preflight_run() runs. */
    const struct worker_options *options;
    int last_pid; /* whose memory must be back; 0: nobody's */

    /* Out. */
    int rc; /* 0, or a negative errno and `why` */
    char why[PREFLIGHT_WHY];
    char program[PREFLIGHT_PATH];
    char plugin[PREFLIGHT_PATH]; /* device sim, llama-server */
    uint64_t model_bytes;        /* 0 for a program */
    unsigned threads;
    bool memory_known; /* held_bytes is a figure, not a guess */
    uint64_t held_bytes;
};

/* Fills the second half. Any thread. */
void preflight_run(struct preflight *p);

#endif
