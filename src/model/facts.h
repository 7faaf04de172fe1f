/*
 * What a model's header says about memory, as plain numbers: layers, heads, windows, states. Keys
 * and defaults are those of llama.cpp v0.4.0 (llama_model_base::load_hparams and the architectures'
 * load_arch_hparams). What is missing or not understood is named in `doubts`; the estimator then
 * counts the larger possibility and says that it is not sure. Pure.
 */
#ifndef FAILSOFT_MODEL_FACTS_H
#define FAILSOFT_MODEL_FACTS_H

#include "model/gguf_file.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    MODEL_LAYERS_MAX = 512, /* LLAMA_MAX_LAYERS */
    MODEL_DOUBTS_MAX = 8,
    MODEL_DOUBT_BYTES = 160,
};

/* How an architecture remembers what it has read. */
enum model_memory {
    MODEL_MEMORY_CACHE = 0, /* keys and values of every layer */
    MODEL_MEMORY_NONE,      /* nothing between batches: encoders such as BERT */
    MODEL_MEMORY_RECURRENT, /* a state of fixed size: Mamba, RWKV */
    MODEL_MEMORY_HYBRID,    /* some layers so, some so */
};

struct model_layer {
    uint32_t heads;
    uint32_t kv_heads; /* 0: this layer keeps no keys */
    uint32_t feed_forward;
    bool window;    /* remembers the sliding window only */
    bool recurrent; /* has a state */
    bool shared;    /* uses the keys of an earlier layer */
};

struct model_facts {
    bool usable; /* false: nothing but file_bytes is known */
    const struct gguf_file *file;
    uint64_t file_bytes;
    char architecture[64];
    enum model_memory memory;
    bool projector; /* a file for pictures or sound (clip), not a language model */
    uint32_t layers;
    uint32_t own_layers; /* without those that only predict further tokens (NextN) */
    uint32_t context;    /* tokens it was trained for */
    uint32_t embedding, embedding_out;
    uint32_t vocabulary;
    uint32_t key_length, value_length;               /* of one head */
    uint32_t key_length_window, value_length_window; /* in layers with a window */
    uint32_t window;                                 /* tokens; 0: none */
    bool causal;
    bool latent;                     /* compressed keys (MLA): no values are kept */
    uint64_t conv_state, scan_state; /* numbers of a recurrent layer's state, for one sequence */
    uint32_t experts, experts_used;
    bool has_head;     /* it predicts tokens; encoders such as BERT do not */
    bool has_output;   /* output.weight; else the token embeddings are used again */
    bool rms_norm;     /* norms that can be computed in place; else those of BERT */
    bool scaled_input; /* embeddings are multiplied first (Gemma) */
    bool pooled;       /* embeddings are averaged */
    struct model_layer layer[MODEL_LAYERS_MAX];
    char doubts[MODEL_DOUBTS_MAX][MODEL_DOUBT_BYTES];
    uint32_t doubt_count;
};

/* From a header. Never fails: what is wrong is a doubt. `file` is borrowed and must stay. */
void model_facts_read(const struct gguf_file *file, struct model_facts *ret);

/* Adds a sentence to the doubts; more than there is room for are dropped. */
__attribute__((format(printf, 2, 3))) void model_facts_doubt(struct model_facts *m,
                                                             const char *format, ...);

#endif
