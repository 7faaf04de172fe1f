/*
 * Names are `blk.N.part.weight` or `part.weight`. What is not known by name is counted where it
 * costs most, and the estimator says so.
 */
#include "model/tensor_name.h"

#include <string.h>

enum { LAYER_MAX = 100000 };

struct known_name {
    const char *name; /* without `blk.N.`; a name that begins so and goes on with `.` */
    enum tensor_place place;
    enum tensor_part part;
};

/* Tensors outside of the layers. */
static const struct known_name outside[] = {
    {"token_embd", TENSOR_PLACE_INPUT, TENSOR_PART_TOKEN_EMBEDDING},
    /* llama.cpp asks for it as one of layer 0. */
    {"token_embd_norm", TENSOR_PLACE_LAYER, TENSOR_PART_EMBEDDING_NORM},
    {"token_types", TENSOR_PLACE_INPUT, TENSOR_PART_TOKEN_TYPES},
    {"position_embd", TENSOR_PLACE_INPUT, TENSOR_PART_POSITIONS},
    {"per_layer_token_embd", TENSOR_PLACE_INPUT, TENSOR_PART_OTHER},
    {"output", TENSOR_PLACE_OUTPUT, TENSOR_PART_OUTPUT},
    {"output_norm", TENSOR_PLACE_OUTPUT, TENSOR_PART_OUTPUT_NORM},
    {"cls", TENSOR_PLACE_OUTPUT, TENSOR_PART_OTHER},
    {"dense_2", TENSOR_PLACE_OUTPUT, TENSOR_PART_OTHER},
    {"dense_3", TENSOR_PLACE_OUTPUT, TENSOR_PART_OTHER},
    {"enc.output_norm", TENSOR_PLACE_OUTPUT, TENSOR_PART_OTHER},
    {"dec.output_norm", TENSOR_PLACE_OUTPUT, TENSOR_PART_OTHER},
    {"altup_proj", TENSOR_PLACE_OUTPUT, TENSOR_PART_OTHER},
    {"altup_unembd_proj", TENSOR_PLACE_OUTPUT, TENSOR_PART_OTHER},
    {"per_layer_model_proj", TENSOR_PLACE_OUTPUT, TENSOR_PART_OTHER},
    {"per_layer_proj_norm", TENSOR_PLACE_OUTPUT, TENSOR_PART_OTHER},
    {"rope_freqs", TENSOR_PLACE_EVERY, TENSOR_PART_OTHER},
    {"rope_factors_long", TENSOR_PLACE_EVERY, TENSOR_PART_OTHER},
    {"rope_factors_short", TENSOR_PLACE_EVERY, TENSOR_PART_OTHER},
};

static const struct known_name inside[] = {
    {"attn_norm", TENSOR_PLACE_LAYER, TENSOR_PART_ATTENTION_NORM},
    {"attn_qkv", TENSOR_PLACE_LAYER, TENSOR_PART_QKV},
    {"attn_q", TENSOR_PLACE_LAYER, TENSOR_PART_Q},
    {"attn_k", TENSOR_PLACE_LAYER, TENSOR_PART_K},
    {"attn_v", TENSOR_PLACE_LAYER, TENSOR_PART_V},
    {"attn_q_norm", TENSOR_PLACE_LAYER, TENSOR_PART_Q_NORM},
    {"attn_k_norm", TENSOR_PLACE_LAYER, TENSOR_PART_K_NORM},
    {"attn_output", TENSOR_PLACE_LAYER, TENSOR_PART_ATTENTION_OUT},
    {"post_attention_norm", TENSOR_PLACE_LAYER, TENSOR_PART_ATTENTION_POST_NORM},
    {"attn_post_norm", TENSOR_PLACE_LAYER, TENSOR_PART_ATTENTION_POST_NORM},
    {"attn_output_norm", TENSOR_PLACE_LAYER, TENSOR_PART_ATTENTION_OUT_NORM},
    {"ffn_norm", TENSOR_PLACE_LAYER, TENSOR_PART_FEED_NORM},
    {"ffn_gate_inp", TENSOR_PLACE_LAYER, TENSOR_PART_ROUTER},
    {"ffn_up", TENSOR_PLACE_LAYER, TENSOR_PART_UP},
    {"ffn_gate", TENSOR_PLACE_LAYER, TENSOR_PART_GATE},
    {"ffn_down", TENSOR_PLACE_LAYER, TENSOR_PART_DOWN},
    {"ffn_up_exps", TENSOR_PLACE_LAYER, TENSOR_PART_EXPERTS_UP},
    {"ffn_gate_exps", TENSOR_PLACE_LAYER, TENSOR_PART_EXPERTS_GATE},
    {"ffn_gate_up_exps", TENSOR_PLACE_LAYER, TENSOR_PART_EXPERTS_GATE_UP},
    {"ffn_down_exps", TENSOR_PLACE_LAYER, TENSOR_PART_EXPERTS_DOWN},
    {"post_ffw_norm", TENSOR_PLACE_LAYER, TENSOR_PART_FEED_POST_NORM},
    {"layer_output_norm", TENSOR_PLACE_LAYER, TENSOR_PART_LAYER_OUT_NORM},
};

static bool name_is(const char *text, size_t len, const char *known)
{
    size_t n = strlen(known);

    return len >= n && memcmp(text, known, n) == 0 && (len == n || text[n] == '.');
}

static const struct known_name *find(const struct known_name *table, size_t count, const char *text,
                                     size_t len)
{
    for (size_t i = 0; i < count; i++) {
        if (name_is(text, len, table[i].name))
            return &table[i];
    }
    return NULL;
}

/* `blk.N.` in front. Returns its length, 0: none. */
static size_t read_layer(const char *name, size_t len, uint32_t *ret_layer)
{
    size_t at = 4;
    uint32_t layer = 0;

    if (len < 7 || memcmp(name, "blk.", 4) != 0)
        return 0;
    for (; at < len && name[at] >= '0' && name[at] <= '9'; at++) {
        layer = layer * 10 + (uint32_t)(name[at] - '0');
        if (layer > LAYER_MAX)
            return 0;
    }
    if (at == 4 || at >= len || name[at] != '.')
        return 0;
    *ret_layer = layer;
    return at + 1;
}

static bool ends_with(const char *text, size_t len, const char *end)
{
    size_t n = strlen(end);

    return len >= n && memcmp(text + len - n, end, n) == 0;
}

struct tensor_role tensor_name_role(const char *name, size_t len)
{
    struct tensor_role role = {.place = TENSOR_PLACE_UNKNOWN};
    size_t prefix = read_layer(name, len, &role.layer);
    const struct known_name *known;

    if (prefix > 0) {
        known = find(inside, sizeof(inside) / sizeof(inside[0]), name + prefix, len - prefix);
        role.place = TENSOR_PLACE_LAYER;
    } else {
        known = find(outside, sizeof(outside) / sizeof(outside[0]), name, len);
    }
    if (known != NULL) {
        role.place = known->place;
        role.part = known->part;
    }
    role.bias = ends_with(name, len, ".bias");
    role.matrix = !role.bias && !ends_with(name, len, "norm.weight") &&
                  !ends_with(name, len, "norm_2.weight") && role.place != TENSOR_PLACE_EVERY;
    return role;
}

bool tensor_part_is_experts(enum tensor_part part)
{
    return part >= TENSOR_PART_EXPERTS_UP && part <= TENSOR_PART_EXPERTS_DOWN;
}
