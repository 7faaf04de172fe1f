/*
 * What the files of the estimator share: saturating arithmetic, the settings as the engine ends up
 * with them, and the parts.
 */
#ifndef FAILSOFT_MODEL_ESTIMATE_INTERNAL_H
#define FAILSOFT_MODEL_ESTIMATE_INTERNAL_H

#include "model/estimate.h"

enum {
    ESTIMATE_CONTEXT_PAD = 256,   /* contexts are rounded up to this */
    ESTIMATE_HOST_ALIGNMENT = 32, /* TENSOR_ALIGNMENT of ggml */
};

static inline uint64_t estimate_add(uint64_t a, uint64_t b)
{
    uint64_t sum;

    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

static inline uint64_t estimate_mul(uint64_t a, uint64_t b)
{
    uint64_t product;

    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

static inline uint64_t estimate_pad(uint64_t n, uint64_t to)
{
    uint64_t rest = to > 0 ? n % to : 0;

    return rest > 0 ? estimate_add(n, to - rest) : n;
}

static inline uint64_t estimate_min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t estimate_max(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Settings after the engine's own rounding (the constructor of llama_context). */
struct estimate_plan {
    const struct model_facts *m;
    const struct estimate_settings *s;
    uint64_t slots;
    uint64_t streams;      /* separate caches: the slots, or one that is shared */
    uint64_t cells;        /* of one stream, layers that see all */
    uint64_t window_cells; /* of one stream, layers with a window */
    uint64_t batch, micro_batch;
    uint64_t outputs; /* rows of logits, or of embeddings, that a batch is reserved for */
    bool flash;
    uint32_t first_device_layer; /* layers from here on are on the device */
    bool output_on_device;
    uint64_t device_alignment;
};

bool estimate_layer_on_device(const struct estimate_plan *p, uint32_t layer);

/* Bytes of one row of `type`; types that are not known are counted as f32. */
uint64_t estimate_row_bytes(uint32_t type, uint64_t elements);

void estimate_add_part(struct estimate_bytes *to, uint64_t bytes, uint64_t upper_bytes);

__attribute__((format(printf, 3, 4))) void
estimate_doubt(struct estimate *e, enum estimate_confidence at_most, const char *format, ...);

/* estimate_weights.c */
bool estimate_is_repacked(const struct estimate_plan *p, const struct gguf_tensor *t);
void estimate_weights(const struct estimate_plan *p, struct estimate *e);

/* estimate_cache.c: keys, values and states */
uint64_t estimate_widest_values(const struct model_facts *m);
void estimate_cache(const struct estimate_plan *p, struct estimate *e);

/* estimate_compute.c: buffers of a batch, and its results */
void estimate_compute(const struct estimate_plan *p, struct estimate *e);

#endif
