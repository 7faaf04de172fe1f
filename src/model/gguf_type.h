/*
 * The tensor types of ggml: how many bytes how many elements take. From ggml.h and ggml-common.h of
 * llama.cpp v0.4.0. A type that is not listed is no error: forks and later versions have more, and
 * their tensors are sized by where the next one begins (field case F133). Pure.
 */
#ifndef FAILSOFT_MODEL_GGUF_TYPE_H
#define FAILSOFT_MODEL_GGUF_TYPE_H

#include <stdbool.h>
#include <stdint.h>

/* Those that the estimator has to name. */
enum gguf_type_id {
    GGUF_TYPE_F32 = 0,
    GGUF_TYPE_F16 = 1,
    GGUF_TYPE_Q4_0 = 2,
    GGUF_TYPE_Q8_0 = 8,
    GGUF_TYPE_Q2_K = 10,
    GGUF_TYPE_Q4_K = 12,
    GGUF_TYPE_IQ4_NL = 20,
    GGUF_TYPE_MXFP4 = 39,
};

struct gguf_type {
    uint32_t id;
    const char *name;     /* as `--cache-type-k` and the configuration spell it */
    uint32_t block;       /* elements in a block */
    uint32_t block_bytes; /* bytes of a block */
};

/* NULL: unknown here. */
const struct gguf_type *gguf_type_find(uint32_t id);
const struct gguf_type *gguf_type_find_name(const char *name);

/*
 * Bytes of a row of `elements`, rounded up to whole blocks. False when it does not fit 64 bits.
 * ggml refuses rows that are no whole number of blocks; rounding up keeps the estimate a bound.
 */
bool gguf_type_row_bytes(const struct gguf_type *type, uint64_t elements, uint64_t *ret_bytes);

#endif
