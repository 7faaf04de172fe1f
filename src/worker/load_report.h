/*
 * What an engine says about itself in its log while it loads: how many layers went to the GPU, which
 * buffers the weights lie in, warnings worth showing, and the line that names the cause when it dies.
 * "On the GPU" is a claim to verify: llama-server v0.4.0 reports `offloaded 31/31 layers to GPU` even
 * with no device at all; the buffer lines tell the truth. Pure; one thread.
 */
#ifndef FAILSOFT_WORKER_LOAD_REPORT_H
#define FAILSOFT_WORKER_LOAD_REPORT_H

#include "base/span.h"

#include <stdbool.h>
#include <stdint.h>

enum { LOAD_REPORT_TEXT = 256 };

struct load_report {
    bool offload_known;
    uint32_t offloaded, layers;
    uint32_t host_buffers;   /* model buffers in host memory */
    uint32_t device_buffers; /* model buffers on a device */
    char device[32];         /* the first one's name, as the backend calls it */
    bool loaded;             /* set by the owner: only errors are looked for from now on */
    bool listening;          /* the HTTP server said that it accepts connections */
    bool saw_first_error;
    char first_error[LOAD_REPORT_TEXT]; /* since the start: the cause, while loading */
    char last_error[LOAD_REPORT_TEXT];
    uint64_t lines, last_error_line; /* counted, so that an old error explains no new exit */
    char warning[LOAD_REPORT_TEXT];  /* works, but a person should know */
};

/* Forgets everything: a process was started. */
void load_report_reset(struct load_report *r);

/* The last error when it is among the last lines, else "": what a working engine died of. */
const char *load_report_recent_error(const struct load_report *r);

/* Takes one line of output. True when it says that the server listens now. */
bool load_report_line(struct load_report *r, struct span line);

/*
 * Whether weights lie where they were wanted: gpu_layers as in worker_options (-1: all). False when
 * the engine has said that it uses no device although it should; then `out` has a sentence. A
 * partial miss is true with a sentence; "" when all is well or nothing is known.
 */
bool load_report_placement(const struct load_report *r, int32_t gpu_layers, const char *device_name,
                           char *out, size_t out_size);

#endif
