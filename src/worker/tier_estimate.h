/*
 * What a worker of a tier takes before it runs: from the configuration's words over the model's
 * header to the estimate, and what admission asks about it. One function for the gateway, which
 * asks on a thread of the pool, and for `failsoft plan`, which asks "what if" as well:
 *
 *   config tier ──► tier_source ──► tier_model (headers, kept) ──► tier_estimate
 *                   (owns copies)        └─ other settings ──► another tier_estimate
 *
 * A program that is not llama-server has no header; what it is declared to take is its estimate.
 * tier_source_init() is pure but for allocation; the others block on the file system. Any thread.
 */
#ifndef FAILSOFT_WORKER_TIER_ESTIMATE_H
#define FAILSOFT_WORKER_TIER_ESTIMATE_H

#include "config/config.h"
#include "model/estimate.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TIER_FILES = 3, TIER_UNKNOWN_BYTES = 64 };

/* What to look at, with copies of its own. */
struct tier_source {
    char *paths[TIER_FILES];          /* model, projector, draft; NULL: none */
    char *engine;                     /* the program */
    char unknown[TIER_UNKNOWN_BYTES]; /* an argument whose effect is not counted; "": none */
    struct estimate_settings settings;
    bool declared; /* a program; the figures are the configuration's */
    uint64_t device_bytes, host_bytes;
    uint64_t
        host_cache_bytes; /* cap of its prompt cache, which grows as it works; not in the estimate */
    uint64_t settings_hash;
};

struct tier_estimate {
    /* Its settings.projector and .draft are not kept. declared: device_total and host_total alone. */
    struct estimate estimate;
    struct estimate_settings settings;
    bool declared;
    /* What one more token of a slot's context costs, all slots together counted as one cache: bytes
     * per token of kv_tokens, rounded up. 0: nothing (windows, states), or not known. */
    uint64_t device_bytes_per_token;
    uint64_t host_bytes_per_token;
    uint64_t floor_bytes;   /* on the device: weights, cache and state, which are exact */
    uint64_t largest_bytes; /* no single buffer on the device is larger; 0: not known */
    uint64_t model_hash, settings_hash, engine_hash; /* see fingerprint.h */
};

/* 0; -ENOENT: nothing can be said of it before it runs (by url, or without a model); -ENOMEM. */
int tier_source_init(const struct config *config, const struct config_service *service,
                     const struct config_tier *tier, struct tier_source *ret);
/* A zeroed one is fine. */
void tier_source_free(struct tier_source *s);

struct tier_model;

/*
 * Reads the headers. 0, also for a file that is no good (the facts say so); -ENOMEM; what opening
 * said, with *ret_path the file that it was about, borrowed of the source. A declared source has a
 * model too, without facts. The source must stay.
 */
int tier_model_open(const struct tier_source *s, struct tier_model **ret, const char **ret_path);
void tier_model_free(struct tier_model *m);

/* NULL for a declared one. */
const struct model_facts *tier_model_facts(const struct tier_model *m);

/* With the source's settings, or with others (NULL: the source's). */
void tier_model_estimate(const struct tier_model *m, const struct estimate_settings *settings,
                         struct tier_estimate *ret);

/* All at once. 0; -EBADMSG: a file cannot be used; else as tier_model_open(). */
int tier_estimate_read(const struct tier_source *s, struct tier_estimate *ret);

#endif
