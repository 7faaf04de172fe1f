/*
 * How much memory a worker will take, before it is started: from the model's facts and the worker's
 * settings to bytes by part, on the device and on the host, each with the value that is expected and
 * an upper bound. Formulas are those of llama.cpp v0.4.0 (src/llama-kv-cache.cpp, llama-model.cpp,
 * llama-context.cpp, ggml-alloc.c); where a formula is not known the larger possibility is counted
 * and the confidence says so. Never refuses, never wraps: what does not fit 64 bits is the largest
 * number (field case F33). Pure; no allocation.
 */
#ifndef FAILSOFT_MODEL_ESTIMATE_H
#define FAILSOFT_MODEL_ESTIMATE_H

#include "model/facts.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ESTIMATE_REASONS_MAX = 12, ESTIMATE_REASON_BYTES = MODEL_DOUBT_BYTES };

/* What the number of context tokens means to an engine (field case F25). */
enum estimate_context {
    ESTIMATE_CONTEXT_SHARED = 0, /* llama-server's -c: divided by the slots */
    ESTIMATE_CONTEXT_PER_SLOT,   /* Ollama's num_ctx, and `context` of our configuration */
};

enum estimate_switch {
    ESTIMATE_SWITCH_OFF = 0,
    ESTIMATE_SWITCH_ON,
    ESTIMATE_SWITCH_AUTO,
};

struct estimate_settings {
    enum estimate_context context_means;
    uint64_t context_tokens; /* 0: what the model was trained for, shared by the slots */
    uint32_t slots;          /* 0 is 1 */
    bool unified;            /* one cache that all slots share */
    uint32_t cache_type_k, cache_type_v; /* ids of gguf_type.h */
    enum estimate_switch flash_attention;
    bool device;        /* there is one; false: everything on the host */
    int32_t gpu_layers; /* -1: all, the output layer too */
    bool experts_on_host;
    bool cache_on_host;
    uint32_t batch, micro_batch;
    bool embeddings; /* every token of a batch is an output */
    bool mapped;     /* weights on the host are a mapping of the file */
    bool repack;     /* the CPU keeps some matrices in an order of its own, in memory */
    bool avx512;     /* then also those that only AVX-512 can use so */
    /* The device takes over the matrices of layers on the host for batches of this many rows and
     * more, and needs a copy of each; 0: never. */
    uint32_t offload_rows;
    uint32_t device_alignment;   /* of tensors in device memory */
    uint64_t device_fixed_bytes; /* what the runtime takes by being there, e.g. a CUDA context */
    uint64_t host_fixed_bytes;   /* the process without its model */
    uint32_t host_token_bytes;   /* and what it keeps of each token of the vocabulary */
    const struct model_facts *projector; /* NULL: none */
    const struct model_facts *draft;     /* NULL: none; same context, one micro-batch */
};

enum estimate_part {
    ESTIMATE_WEIGHTS = 0,
    ESTIMATE_CACHE,
    ESTIMATE_STATE, /* of recurrent layers */
    ESTIMATE_COMPUTE,
    ESTIMATE_OUTPUT, /* logits and embeddings, always on the host */
    ESTIMATE_PROJECTOR,
    ESTIMATE_DRAFT,
    ESTIMATE_RUNTIME,
    ESTIMATE_PART_COUNT,
};

enum estimate_confidence {
    ESTIMATE_CONFIDENCE_LOW = 0,
    ESTIMATE_CONFIDENCE_MEDIUM,
    ESTIMATE_CONFIDENCE_HIGH,
};

struct estimate_bytes {
    uint64_t bytes;
    uint64_t upper_bytes; /* never less than bytes */
};

struct estimate {
    struct estimate_bytes device[ESTIMATE_PART_COUNT];
    struct estimate_bytes host[ESTIMATE_PART_COUNT];
    struct estimate_bytes device_total;
    struct estimate_bytes host_total;
    /* Part of the host's weights: pages of the file, which the kernel may drop and read again. The
     * engine maps from the first to the last tensor that it needs, those between them included. */
    uint64_t mapped_bytes;
    uint64_t repacked_bytes; /* part of the host's weights, in anonymous memory */
    uint64_t kv_tokens;      /* that fit into the cache, all slots together */
    uint64_t slot_tokens;    /* longest context of one slot */
    uint32_t layers;         /* repeating layers and the output layer */
    uint32_t device_layers;  /* of them, on the device */
    enum estimate_confidence confidence;
    char reasons[ESTIMATE_REASONS_MAX][ESTIMATE_REASON_BYTES]; /* why it is not high */
    uint32_t reason_count;
};

/* As failsoft starts llama-server for chat: see src/worker/command.c. All layers on a device. */
void estimate_settings_init(struct estimate_settings *s);

/* As failsoft starts it for embeddings: batch and micro-batch hold one whole text. */
void estimate_settings_embeddings(struct estimate_settings *s);

void estimate_make(const struct model_facts *m, const struct estimate_settings *s,
                   struct estimate *ret);

const char *estimate_part_name(enum estimate_part part);
const char *estimate_confidence_name(enum estimate_confidence confidence);

#endif
