/*
 * What loads and requests were measured to use, against what was predicted for them. Up at once,
 * down slowly:
 *
 *   - more than predicted was seen: the 95th percentile × 1.15, at least the most that was seen
 *   - at least 1.4 × too much was predicted, in at least three measurements: the same, but never below
 *     half the prediction, nor below weights and KV, which are exact (F24)
 *   - else the prediction
 *
 * Kept per (model, settings, engine build, device) and kind of use, so another setting starts from
 * the formula again. A table of fixed size in the caller's memory; the least recently used entry makes
 * room. As text it goes into a file of the caller's; that file can say nothing that widens these
 * bounds, whatever is in it.
 *
 * Pure.
 */
#ifndef FAILSOFT_POLICY_LEARNING_H
#define FAILSOFT_POLICY_LEARNING_H

#include "base/span.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    LEARNING_SAMPLES = 20, /* the latest of an entry */
    LEARNING_LINE_MAX = 512,
};

enum learning_use {
    LEARNING_USE_LOAD = 0, /* a settled worker */
    LEARNING_USE_TEXT,     /* what a request adds to it */
    LEARNING_USE_IMAGE,    /* what a request with images adds (F04) */
    LEARNING_USE_SIZES,    /* no measurements: figures that the engine gave, see learning_keep */
    LEARNING_USE_ROOM,     /* one figure: the room in which an unfit load failed */
    LEARNING_USE_COUNT,
};

/* Hashes, made by the caller: 64 bits each of whatever identifies it. */
struct learning_key {
    uint64_t model;
    uint64_t settings;
    uint64_t engine;
    uint64_t device;
    enum learning_use use;
};

struct learning_entry {
    bool used;
    bool unfit; /* this load failed although memory was free (F13): trying again is no use */
    struct learning_key key;
    uint64_t touched; /* order of use */
    uint32_t count;   /* samples kept */
    uint32_t next;    /* where the next one goes */
    uint64_t samples[LEARNING_SAMPLES];
};

struct learning {
    struct learning_entry *entries;
    uint32_t capacity;
    uint64_t clock; /* of uses */
};

/* entries: capacity (at least 1) of them, the caller's. */
void learning_init(struct learning *l, struct learning_entry *entries, uint32_t capacity);

/* A settled measurement. 0; -ERANGE: no such size (nothing is kept). */
int learning_note(struct learning *l, const struct learning_key *key, uint64_t measured_bytes);

/*
 * What to claim for it: from `predicted_bytes`, the formula's upper bound, and floor_bytes (≤ predicted:
 * weights and KV) of it that are exact.
 */
uint64_t learning_estimate(const struct learning *l, const struct learning_key *key,
                           uint64_t predicted_bytes, uint64_t floor_bytes);

/*
 * Figures that belong to a key and are kept with it, at most LEARNING_SAMPLES, instead of what was
 * there. 0; -ERANGE: too many, or one is no size (nothing is changed).
 */
int learning_keep(struct learning *l, const struct learning_key *key, const uint64_t *figures,
                  uint32_t count);

/* How many figures there are for the key; 0: none. ret_figures: LEARNING_SAMPLES, in their order. */
uint32_t learning_kept(const struct learning *l, const struct learning_key *key,
                       uint64_t *ret_figures);

/* The load failed for good (single-buffer limit), or works after all. */
void learning_set_unfit(struct learning *l, const struct learning_key *key, bool unfit);
bool learning_is_unfit(const struct learning *l, const struct learning_key *key);

/* The service has other settings or another engine now: what is kept for the same model and device
 * under others is dropped. Number of dropped entries. */
int learning_drop_others(struct learning *l, const struct learning_key *current);

/* The most that was seen; 0: nothing. For `failsoft plan`. */
uint64_t learning_seen_bytes(const struct learning *l, const struct learning_key *key,
                             uint32_t *ret_count);

/* Largest text of a table of this capacity. */
size_t learning_text_max(uint32_t capacity);

/* The whole table as text. 0; -ENOSPC: out is too small (learning_text_max is enough). */
int learning_to_text(const struct learning *l, char *out, size_t size, size_t *ret_len);

/*
 * Fills an initialised table from such a text, in order of use. Lines that are broken are skipped
 * and counted: a damaged file loses knowledge, never more. 0; -EPROTO: not such a text, or of another
 * version; the table is as it was.
 */
int learning_from_text(struct learning *l, struct span text, uint32_t *ret_skipped);

#endif
