/*
 * What is learned of one worker's memory on its device, and what follows from it:
 *
 *   settled after a load ─► learning_note ─► the next load's prediction
 *   grew with requests   ─► learning_note ─► what a request is reckoned to add
 *   grew and stays so    ─► leak suspected ─► recycled when idle (F04 ggml-org/llama.cpp#23446)
 *   cannot be loaded though there is memory ─► unfit: not tried again (F13 ggml-org/llama.cpp#18160)
 *   the formula is not sure ─► the engine is asked for its sizes, once, before the first load
 *
 * Loop thread only. Names begin with learn_; the table and its file are learned.h.
 */
#ifndef FAILSOFT_GATEWAY_DEVICE_LEARN_H
#define FAILSOFT_GATEWAY_DEVICE_LEARN_H

#include "base/span.h"
#include "policy/leak.h"
#include "policy/learning.h"
#include "policy/ledger.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gateway;
struct gateway_device;
struct dry_run;
struct gateway_worker;
struct fault;

/* The engine's own word, see worker/dry_run.h and device_ask.c. */
enum learn_ask { LEARN_ASK_NOT_YET = 0, LEARN_ASK_RUNS, LEARN_ASK_DONE };

/* Part of a struct gateway_worker. */
struct gateway_learning {
    bool known;              /* the hashes of the key are, but for the device's */
    struct learning_key key; /* of its load */
    uint64_t formula_bytes;  /* upper bound of a load, without what was measured; 0: not known */
    uint64_t floor_bytes;    /* of it: weights and KV cache, which are exact */
    enum learn_ask ask;
    struct dry_run *dry_run; /* while it runs */
    uint64_t ask_claim;      /* for its context on the device */
    int ask_pid;
    bool settled;             /* measured since it was loaded */
    uint64_t loaded_bytes;    /* that measurement */
    uint64_t most_bytes;      /* since the requests before were judged */
    uint64_t attempts_judged; /* attempts_total then */
    unsigned idle_samples;    /* in a row, with the same figure */
    bool image_ran;           /* an attempt with images, since then */
    struct leak leak;
    uint32_t recycles;
    uint64_t recycled_ms;    /* 0: never */
    bool capacity_failed;    /* while loading, an allocation failed */
    bool over_buffer_limit;  /* … and the engine says that it always will */
    uint64_t unfit_since_ms; /* found so, or tried again; 0: it is not */
    uint32_t failed_in_row;  /* loads that failed so though there was memory */
    char failed_text[160];   /* the engine's words */
};

/* The estimate of its load is there. model, settings, engine: see worker/fingerprint.h. */
void learn_prepare(struct gateway_worker *w, uint64_t model, uint64_t settings, uint64_t engine,
                   uint64_t formula_bytes, uint64_t floor_bytes);

/* device_ask.c: true while the engine is being asked: the start waits, why says for what. */
bool learn_asks(struct gateway_device *d, struct gateway_worker *w, char *why, size_t why_size);
/* What it said, and has said before a restart, into formula_bytes and floor_bytes. */
void learn_apply_sizes(struct gateway_worker *w);
/* Its worker goes. */
void learn_ask_forget(struct gateway_device *d, struct gateway_worker *w);

/* Before each start: predicted_bytes from what was learned. False: it is known not to fit; why. */
bool learn_before_start(struct gateway_device *d, struct gateway_worker *w, char *why,
                        size_t why_size);

/* Its process holds so much; `steady`: as much as at the sample before. */
void learn_sampled(struct gateway_device *d, struct gateway_worker *w, uint64_t bytes, bool steady,
                   uint64_t now_ms);

/* A line of its output told of a fault. */
void learn_heard(struct gateway_worker *w, const struct fault *fault, struct span line);

/* State changes; `failed` before its claim is released. */
void learn_loading(struct gateway_worker *w);
void learn_ready(struct gateway_worker *w);
void learn_load_failed(struct gateway_device *d, struct gateway_worker *w, uint64_t now_ms);

/* A person says "try again": what was found unfit may be tried. */
void learn_retry(struct gateway *g);

/* An attempt of this kind begins. */
void learn_attempt(struct gateway_worker *w, enum learning_use use);

/* What a request of this kind is reckoned to add to what the worker holds now. 0: nothing known. */
uint64_t learned_request_bytes(const struct gateway_worker *w, enum learning_use use);

/* What a load was seen to take at most, and how often that was measured; 0: never. */
uint64_t learned_load_bytes(const struct gateway_worker *w, uint32_t *ret_count);

/* What there is to say of a worker that works: the leak; "" when nothing. Into out. */
void learn_explain(const struct gateway_worker *w, char *out, size_t out_size);

#endif
