/* Measured use per key. See learning.h. */
#include "policy/learning.h"

#include "policy/ledger.h"

#include <errno.h>
#include <string.h>

enum {
    LEARNING_PERCENTILE = 95,
    LEARNING_UPPER_PCT = 115,
    LEARNING_LOWER_FROM_PCT = 140, /* of what was seen: predicted at least so much */
    LEARNING_LOWER_LEAST = 3,      /* measurements */
    LEARNING_LOWER_BOUND_PCT = 50, /* of the prediction */
    LEARNING_PERCENT = 100,
};

void learning_init(struct learning *l, struct learning_entry *entries, uint32_t capacity)
{
    *l = (struct learning){.entries = entries, .capacity = capacity};
    memset(entries, 0, capacity * sizeof(*entries));
}

static bool learning_same_key(const struct learning_key *a, const struct learning_key *b)
{
    return a->model == b->model && a->settings == b->settings && a->engine == b->engine &&
           a->device == b->device && a->use == b->use;
}

static struct learning_entry *learning_find(const struct learning *l,
                                            const struct learning_key *key)
{
    for (uint32_t i = 0; i < l->capacity; i++) {
        if (l->entries[i].used && learning_same_key(&l->entries[i].key, key))
            return &l->entries[i];
    }
    return NULL;
}

/* The key's entry, made in a free place or in the one that was not used for longest. */
static struct learning_entry *learning_take(struct learning *l, const struct learning_key *key)
{
    struct learning_entry *entry = learning_find(l, key);
    if (!entry) {
        entry = &l->entries[0];
        for (uint32_t i = 0; i < l->capacity && entry->used; i++) {
            if (!l->entries[i].used || l->entries[i].touched < entry->touched)
                entry = &l->entries[i];
        }
        *entry = (struct learning_entry){.used = true, .key = *key};
    }
    entry->touched = ++l->clock;
    return entry;
}

int learning_note(struct learning *l, const struct learning_key *key, uint64_t measured_bytes)
{
    if (measured_bytes > LEDGER_BYTES_MAX || (unsigned)key->use >= LEARNING_USE_COUNT)
        return -ERANGE;
    struct learning_entry *entry = learning_take(l, key);
    entry->samples[entry->next] = measured_bytes;
    entry->next = (entry->next + 1) % LEARNING_SAMPLES;
    if (entry->count < LEARNING_SAMPLES)
        entry->count++;
    return 0;
}

int learning_keep(struct learning *l, const struct learning_key *key, const uint64_t *figures,
                  uint32_t count)
{
    if (count > LEARNING_SAMPLES || (unsigned)key->use >= LEARNING_USE_COUNT)
        return -ERANGE;
    for (uint32_t i = 0; i < count; i++) {
        if (figures[i] > LEDGER_BYTES_MAX)
            return -ERANGE;
    }
    struct learning_entry *entry = learning_take(l, key);
    for (uint32_t i = 0; i < count; i++)
        entry->samples[i] = figures[i];
    entry->count = count;
    entry->next = count % LEARNING_SAMPLES;
    return 0;
}

uint32_t learning_kept(const struct learning *l, const struct learning_key *key,
                       uint64_t *ret_figures)
{
    const struct learning_entry *entry = learning_find(l, key);
    if (!entry)
        return 0;
    uint32_t first = (entry->next + LEARNING_SAMPLES - entry->count) % LEARNING_SAMPLES;
    for (uint32_t i = 0; i < entry->count; i++)
        ret_figures[i] = entry->samples[(first + i) % LEARNING_SAMPLES];
    return entry->count;
}

/* The samples in rising order. */
static void learning_sorted(const struct learning_entry *entry, uint64_t out[LEARNING_SAMPLES])
{
    for (uint32_t i = 0; i < entry->count; i++) {
        uint32_t at = i;
        for (; at > 0 && out[at - 1] > entry->samples[i]; at--)
            out[at] = out[at - 1];
        out[at] = entry->samples[i];
    }
}

/* x × pct / 100 for x up to LEDGER_BYTES_MAX: no overflow. */
static uint64_t learning_share(uint64_t bytes, unsigned pct)
{
    return bytes * pct / LEARNING_PERCENT;
}

uint64_t learning_estimate(const struct learning *l, const struct learning_key *key,
                           uint64_t predicted_bytes, uint64_t floor_bytes)
{
    const struct learning_entry *entry = learning_find(l, key);
    if (!entry || entry->count == 0 || predicted_bytes > LEDGER_BYTES_MAX)
        return predicted_bytes;
    uint64_t sorted[LEARNING_SAMPLES] = {0};
    learning_sorted(entry, sorted);
    uint64_t most = sorted[entry->count - 1];
    uint32_t rank = (entry->count * LEARNING_PERCENTILE + LEARNING_PERCENT - 1) / LEARNING_PERCENT;
    uint64_t upper = learning_share(sorted[rank - 1], LEARNING_UPPER_PCT);
    if (upper < most)
        upper = most;
    if (most > predicted_bytes)
        return upper;
    if (entry->count < LEARNING_LOWER_LEAST ||
        predicted_bytes < learning_share(most, LEARNING_LOWER_FROM_PCT))
        return predicted_bytes;
    uint64_t bound = learning_share(predicted_bytes, LEARNING_LOWER_BOUND_PCT);
    if (bound < floor_bytes)
        bound = floor_bytes;
    if (upper < bound)
        upper = bound;
    return upper < predicted_bytes ? upper : predicted_bytes;
}

void learning_set_unfit(struct learning *l, const struct learning_key *key, bool unfit)
{
    if ((unsigned)key->use >= LEARNING_USE_COUNT || (!unfit && !learning_find(l, key)))
        return;
    learning_take(l, key)->unfit = unfit;
}

bool learning_is_unfit(const struct learning *l, const struct learning_key *key)
{
    const struct learning_entry *entry = learning_find(l, key);
    return entry && entry->unfit;
}

int learning_drop_others(struct learning *l, const struct learning_key *current)
{
    int dropped = 0;
    for (uint32_t i = 0; i < l->capacity; i++) {
        struct learning_entry *entry = &l->entries[i];
        if (!entry->used || entry->key.model != current->model ||
            entry->key.device != current->device)
            continue;
        if (entry->key.settings == current->settings && entry->key.engine == current->engine)
            continue;
        *entry = (struct learning_entry){0};
        dropped++;
    }
    return dropped;
}

uint64_t learning_seen_bytes(const struct learning *l, const struct learning_key *key,
                             uint32_t *ret_count)
{
    const struct learning_entry *entry = learning_find(l, key);
    uint64_t most = 0;
    for (uint32_t i = 0; entry && i < entry->count; i++) {
        if (entry->samples[i] > most)
            most = entry->samples[i];
    }
    *ret_count = entry ? entry->count : 0;
    return most;
}
