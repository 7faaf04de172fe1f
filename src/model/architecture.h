/*
 * What llama.cpp v0.4.0 knows about an architecture without being told by the file: how it
 * remembers, and which of its layers have a sliding window when the file has no pattern. Pure.
 */
#ifndef FAILSOFT_MODEL_ARCHITECTURE_H
#define FAILSOFT_MODEL_ARCHITECTURE_H

#include "model/facts.h"

#include <stdbool.h>
#include <stdint.h>

enum architecture_recurrent {
    ARCHITECTURE_RECURRENT_NONE = 0,
    ARCHITECTURE_RECURRENT_NO_HEADS, /* layers without key heads */
    ARCHITECTURE_RECURRENT_INTERVAL, /* all but every n-th (full_attention_interval) */
    ARCHITECTURE_RECURRENT_ALL,
};

struct architecture {
    const char *name;
    enum model_memory memory;
    enum architecture_recurrent recurrent;
    bool no_head;           /* no matrix that predicts tokens */
    bool exact;             /* the formulas here are its formulas; false: an upper bound */
    bool windows;           /* layers may have a sliding window */
    uint32_t window;        /* when the file has none; 0: then there is none */
    uint32_t period;        /* every period-th layer sees all; 0: the file must say */
    bool full_first;        /* the first of a period sees all, not the last */
    uint32_t kv_from_start; /* only so many layers have a cache; 0: all, or as the file says */
};

/* NULL: unknown. */
const struct architecture *architecture_find(const char *name);

#endif
