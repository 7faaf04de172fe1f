/*
 * What a tensor is for, by its name: which layer it belongs to, and so which device it goes to.
 * Names and places follow llama.cpp v0.4.0 (src/llama-arch.cpp, LLM_TENSOR_INFOS). Pure.
 */
#ifndef FAILSOFT_MODEL_TENSOR_NAME_H
#define FAILSOFT_MODEL_TENSOR_NAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum tensor_place {
    TENSOR_PLACE_INPUT = 0, /* token embeddings and the like: always in host memory */
    TENSOR_PLACE_LAYER,     /* of a repeating layer */
    TENSOR_PLACE_OUTPUT,    /* counted as the layer after the last */
    TENSOR_PLACE_EVERY,     /* one copy on each device that has layers (rope_freqs) */
    TENSOR_PLACE_UNKNOWN,   /* not known by name */
};

enum tensor_part {
    TENSOR_PART_OTHER = 0,
    TENSOR_PART_TOKEN_EMBEDDING,
    TENSOR_PART_TOKEN_TYPES,
    TENSOR_PART_POSITIONS,
    TENSOR_PART_EMBEDDING_NORM,
    TENSOR_PART_OUTPUT, /* the matrix that makes logits */
    TENSOR_PART_OUTPUT_NORM,
    TENSOR_PART_ATTENTION_NORM, /* in front of attention */
    TENSOR_PART_QKV,            /* query, key and value in one matrix */
    TENSOR_PART_Q,
    TENSOR_PART_K,
    TENSOR_PART_V,
    TENSOR_PART_Q_NORM,
    TENSOR_PART_K_NORM,
    TENSOR_PART_ATTENTION_OUT,
    TENSOR_PART_ATTENTION_POST_NORM, /* of attention's result, before it is added */
    TENSOR_PART_ATTENTION_OUT_NORM,  /* of the sum (BERT) */
    TENSOR_PART_FEED_NORM,
    TENSOR_PART_ROUTER, /* which experts */
    TENSOR_PART_UP,
    TENSOR_PART_GATE,
    TENSOR_PART_DOWN,
    TENSOR_PART_EXPERTS_UP, /* what `--cpu-moe` keeps in host memory */
    TENSOR_PART_EXPERTS_GATE,
    TENSOR_PART_EXPERTS_GATE_UP,
    TENSOR_PART_EXPERTS_DOWN,
    TENSOR_PART_FEED_POST_NORM,
    TENSOR_PART_LAYER_OUT_NORM, /* of the sum (BERT) */
    TENSOR_PART_COUNT,
};

struct tensor_role {
    enum tensor_place place;
    enum tensor_part part;
    uint32_t layer; /* place LAYER */
    bool bias;      /* what is added behind a matrix or a norm */
    bool matrix;    /* something is multiplied by it: no norm, no bias */
};

bool tensor_part_is_experts(enum tensor_part part);

struct tensor_role tensor_name_role(const char *name, size_t len);

#endif
