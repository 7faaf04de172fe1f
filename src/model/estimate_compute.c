/*
 * The buffers of a batch, and its results. The graph of a micro-batch is built as the engine reserves
 * it when it starts (llama_context::sched_reserve: all sequences, the whole cache, as many outputs as
 * the server allows), from the matrices that the file has, and measured. Of a model with many layers
 * only some are built: the first and the last, and those on both sides of where the device begins;
 * the others repeat what these need.
 */
#include "model/estimate_graph.h"
#include "model/estimate_internal.h"

#include "model/gguf_type.h"

#include <string.h>

enum {
    BUILT_LAYERS_MAX = 20,
    EDGE_LAYERS = 6,
    F32 = 4,
    F16 = 2,
    /* Of a bound on architectures whose graph is not built exactly. */
    UNSURE_FACTOR = 2,
    SLACK_PART = 10,
    SLACK_BYTES = 1024 * 1024,
};

struct layer_tensors {
    const struct gguf_tensor *weight[TENSOR_PART_COUNT];
    const struct gguf_tensor *bias[TENSOR_PART_COUNT];
    uint64_t others; /* rows of results of matrices that are not known by name */
};

struct builder {
    const struct estimate_plan *p;
    const struct model_facts *m;
    struct graph *g;
    struct layer_tensors layer; /* the one that is built */
    struct layer_tensors outside;
    bool on_device; /* the layer */
    bool exact;
    uint64_t tokens, outputs;
    int tokens_in, positions, output_rows, type_rows;
    int mask, mask_window;
    int key_place, value_place, key_place_window, value_place_window;
    int key_turn, value_turn, key_turn_window, value_turn_window;
};

/* --- tensors of a layer --- */

static void note_tensor(struct layer_tensors *l, const struct gguf_tensor *t)
{
    if (t->part == TENSOR_PART_OTHER) {
        if (t->matrix && t->shape[1] > 1)
            l->others = estimate_add(l->others, t->shape[1]);
        return;
    }
    if (t->bias)
        l->bias[t->part] = t;
    else
        l->weight[t->part] = t;
}

static void find_tensors(const struct model_facts *m, uint32_t layer, struct layer_tensors *ret)
{
    *ret = (struct layer_tensors){.others = 0};
    for (size_t s = 0; s < m->file->shard_count; s++) {
        const struct gguf_header *h = &m->file->shards[s];

        for (size_t i = 0; i < h->tensor_count; i++) {
            const struct gguf_tensor *t = &h->tensors[i];

            if (layer == UINT32_MAX ? t->place != TENSOR_PLACE_LAYER
                                    : t->place == TENSOR_PLACE_LAYER && t->layer == layer)
                note_tensor(ret, t);
        }
    }
}

/* --- pieces of a graph --- */

static uint64_t row(const struct builder *b, uint64_t width, uint64_t rows)
{
    (void)b;
    return estimate_mul(estimate_mul(width, rows), F32);
}

static int weight_item(struct builder *b, const struct gguf_tensor *t, bool on_device)
{
    enum tensor_part part = (enum tensor_part)t->part;

    if (b->p->s->experts_on_host && tensor_part_is_experts(part))
        on_device = false;
    return graph_weight(b->g, t->bytes, on_device ? GRAPH_SIDE_DEVICE : GRAPH_SIDE_HOST,
                        !on_device && !estimate_is_repacked(b->p, t));
}

/* What is multiplied by a vector of weights, or has one added: in place where it may be. */
static int by_vector(struct builder *b, int x, const struct gguf_tensor *t, uint64_t bytes,
                     uint64_t rows, bool on_device)
{
    if (t == NULL)
        return x;
    return graph_result(b->g, bytes, rows, GRAPH_IN_PLACE, x, weight_item(b, t, on_device), -1, -1);
}

static int norm(struct builder *b, int x, enum tensor_part part, const struct layer_tensors *l,
                uint64_t bytes, uint64_t rows, bool on_device)
{
    if (l->weight[part] == NULL)
        return x;
    x = graph_result(b->g, bytes, rows, b->m->rms_norm ? GRAPH_IN_PLACE : 0, x, -1, -1, -1);
    x = by_vector(b, x, l->weight[part], bytes, rows, on_device);
    return by_vector(b, x, l->bias[part], bytes, rows, on_device);
}

static uint64_t width_of(const struct gguf_tensor *t)
{
    return t != NULL ? t->shape[1] : 0;
}

/* A matrix and its bias. */
static int multiply(struct builder *b, int x, enum tensor_part part, uint64_t rows)
{
    const struct gguf_tensor *t = b->layer.weight[part];
    uint64_t bytes = row(b, width_of(t), rows);

    if (t == NULL)
        return x;
    x = graph_result(b->g, bytes, rows, 0, weight_item(b, t, b->on_device), x, -1, -1);
    return by_vector(b, x, b->layer.bias[part], bytes, rows, b->on_device);
}

/* --- attention --- */

struct heads {
    uint64_t query, key, value; /* widths of all heads together */
    uint64_t cells;
    int mask, key_place, value_place, key_turn, value_turn;
};

static struct heads heads_of(const struct builder *b, const struct model_layer *l)
{
    const struct model_facts *m = b->m;
    uint64_t key_length = l->window ? m->key_length_window : m->key_length;
    uint64_t value_length = l->window ? m->value_length_window : m->value_length;

    return (struct heads){
        .query = key_length * l->heads,
        .key = key_length * l->kv_heads,
        .value = value_length * l->kv_heads,
        .cells = l->window ? b->p->window_cells : b->p->cells,
        .mask = l->window ? b->mask_window : b->mask,
        .key_place = l->window ? b->key_place_window : b->key_place,
        .value_place = l->window ? b->value_place_window : b->value_place,
        .key_turn = l->window ? b->key_turn_window : b->key_turn,
        .value_turn = l->window ? b->value_turn_window : b->value_turn,
    };
}

/* One of query, key and value: matrix, norm, position, turn (quantized caches). */
static int project(struct builder *b, int x, enum tensor_part part, enum tensor_part norm_part,
                   uint64_t width, uint64_t heads, bool position, int turn)
{
    uint64_t bytes = row(b, width, b->tokens);
    uint64_t rows = estimate_mul(heads, b->tokens);

    x = b->layer.weight[part] != NULL ? multiply(b, x, part, b->tokens)
                                      : graph_result(b->g, bytes, b->tokens, 0, x, -1, -1, -1);
    x = graph_view(b->g, x, bytes);
    if (norm_part != part)
        x = norm(b, x, norm_part, &b->layer, bytes, rows, b->on_device);
    if (position)
        x = graph_result(b->g, bytes, rows, GRAPH_IN_PLACE | GRAPH_NO_WEIGHT, x, b->positions, -1,
                         -1);
    if (position && b->m->scaled_input && part == TENSOR_PART_Q)
        x = graph_result(b->g, bytes, rows, GRAPH_IN_PLACE, x, -1, -1, -1);
    if (turn >= 0) {
        x = graph_view(b->g, x, bytes);
        x = graph_result(b->g, bytes, rows, 0, turn, x, -1, -1);
        x = graph_view(b->g, x, bytes);
    }
    return x;
}

/* Without flash attention: the scores of every cell for every token and head. */
static int attend_plainly(struct builder *b, int q, int k, int v, const struct heads *h,
                          const struct model_layer *l, uint64_t result)
{
    uint64_t scores = estimate_mul(row(b, h->cells, b->tokens), l->heads);
    int x;

    if (b->m->memory == MODEL_MEMORY_NONE)
        scores = estimate_mul(row(b, b->tokens, b->tokens), l->heads);
    /* The values come first: the graph is walked from its result, and they are its first source. */
    if (b->m->memory == MODEL_MEMORY_NONE)
        v = graph_result(b->g, row(b, h->value, b->tokens), b->tokens, 0, v, -1, -1, -1);
    x = graph_result(b->g, scores, b->tokens, 0, k, q, -1, -1);
    x = graph_result(b->g, scores, b->tokens, GRAPH_IN_PLACE, x, h->mask, -1, -1);
    x = graph_result(b->g, result, b->tokens, 0, v, x, -1, -1);
    x = graph_view(b->g, x, result);
    return graph_result(b->g, result, b->tokens, 0, x, -1, -1, -1);
}

static int attend(struct builder *b, int q, int k, int v, const struct heads *h,
                  const struct model_layer *l, uint64_t result)
{
    q = graph_view(b->g, q, row(b, h->query, b->tokens));
    if (!b->p->flash)
        return attend_plainly(b, q, k, v, h, l, result);
    if (b->m->memory == MODEL_MEMORY_NONE) {
        k = graph_result(b->g, estimate_mul(h->key * F16, b->tokens), b->tokens, 0, k, -1, -1, -1);
        v = graph_result(b->g, estimate_mul(h->value * F16, b->tokens), b->tokens, 0, v, -1, -1,
                         -1);
    }
    return graph_result(b->g, result, b->tokens, GRAPH_NO_WEIGHT, q, k, v, h->mask);
}

static int cache_view(struct builder *b, uint32_t type, uint64_t width, const struct heads *h)
{
    bool on_device = b->on_device && !b->p->s->cache_on_host;
    uint64_t bytes =
        estimate_mul(estimate_row_bytes(type, width), estimate_mul(h->cells, b->p->streams));
    int cache = graph_cache(b->g, bytes, on_device ? GRAPH_SIDE_DEVICE : GRAPH_SIDE_HOST);

    return graph_view(b->g, cache, bytes);
}

static int attention(struct builder *b, int x, const struct model_layer *l)
{
    struct heads h = heads_of(b, l);
    bool fused = b->layer.weight[TENSOR_PART_QKV] != NULL;
    bool cached = b->m->memory != MODEL_MEMORY_NONE;
    /* Positions are turned into the vectors; BERT adds them at the start. */
    bool position = b->outside.weight[TENSOR_PART_POSITIONS] == NULL;
    uint64_t result = row(b, estimate_max(h.query, width_of(NULL)), b->tokens);
    int q, k, v;

    if (fused)
        x = multiply(b, x, TENSOR_PART_QKV, b->tokens);
    q = project(b, x, TENSOR_PART_Q, TENSOR_PART_Q_NORM, h.query, l->heads, position, h.key_turn);
    if (cached && b->m->window == 0) {
        v = project(b, x, TENSOR_PART_V, TENSOR_PART_V, h.value, l->kv_heads, false, h.value_turn);
        k = project(b, x, TENSOR_PART_K, TENSOR_PART_K_NORM, h.key, l->kv_heads, position,
                    h.key_turn);
    } else {
        k = project(b, x, TENSOR_PART_K, TENSOR_PART_K_NORM, h.key, l->kv_heads, position,
                    h.key_turn);
        v = project(b, x, TENSOR_PART_V, TENSOR_PART_V, h.value, l->kv_heads, false, h.value_turn);
    }
    if (cached) {
        int keys = cache_view(b, b->p->s->cache_type_k, h.key, &h);
        int values = cache_view(b, b->p->s->cache_type_v, h.value, &h);

        k = graph_view(b->g, k, row(b, h.key, b->tokens));
        graph_store(b->g, keys, k, h.key_place);
        v = graph_view(b->g, v, row(b, h.value, b->tokens));
        graph_store(b->g, values, v, h.value_place);
        k = keys;
        v = values;
    }
    x = attend(b, q, k, v, &h, l, result);
    x = graph_view(b->g, x, result);
    if (h.value_turn >= 0) {
        x = graph_result(b->g, result, b->tokens * l->heads, 0, h.value_turn, x, -1, -1);
        x = graph_view(b->g, x, result);
    }
    return multiply(b, x, TENSOR_PART_ATTENTION_OUT, b->tokens);
}

/* --- feed-forward --- */

static int experts(struct builder *b, int x, uint64_t rows)
{
    uint64_t used = b->m->experts_used > 0 ? b->m->experts_used : 1;
    const struct gguf_tensor *up = b->layer.weight[TENSOR_PART_EXPERTS_UP];
    const struct gguf_tensor *both = b->layer.weight[TENSOR_PART_EXPERTS_GATE_UP];
    const struct gguf_tensor *gate = b->layer.weight[TENSOR_PART_EXPERTS_GATE];
    const struct gguf_tensor *down = b->layer.weight[TENSOR_PART_EXPERTS_DOWN];
    uint64_t width = up ? up->shape[1] : both ? both->shape[1] / 2 : 0;
    uint64_t inner = row(b, estimate_mul(width, used), rows);
    uint64_t outer = row(b, estimate_mul(width_of(down), used), rows);
    uint64_t choice = row(b, b->m->experts, rows);
    int chosen = graph_result(b->g, choice, rows, 0, x, -1, -1, -1);
    int u, v;

    if (b->layer.weight[TENSOR_PART_ROUTER] != NULL)
        chosen = multiply(b, x, TENSOR_PART_ROUTER, rows);
    chosen = graph_result(b->g, choice, rows, 0, chosen, -1, -1, -1);
    chosen = graph_result(b->g, choice, rows, 0, chosen, -1, -1, -1);
    u = graph_result(b->g, both ? estimate_mul(inner, 2) : inner, rows, 0,
                     weight_item(b,
                                 up     ? up
                                 : both ? both
                                        : down,
                                 b->on_device),
                     x, chosen, -1);
    v = gate ? graph_result(b->g, inner, rows, 0, weight_item(b, gate, b->on_device), x, chosen, -1)
             : -1;
    u = graph_result(b->g, inner, rows, gate || both ? 0 : GRAPH_IN_PLACE, u, v, -1, -1);
    u = graph_result(b->g, outer, rows, 0, weight_item(b, down, b->on_device), u, chosen, -1);
    u = graph_result(b->g, outer, rows, GRAPH_IN_PLACE, u, chosen, -1, -1);
    return graph_result(b->g, row(b, width_of(down), rows), rows, 0, u, -1, -1, -1);
}

static int feed_forward(struct builder *b, int x, uint64_t rows)
{
    const struct gguf_tensor *up = b->layer.weight[TENSOR_PART_UP];
    bool gated = b->layer.weight[TENSOR_PART_GATE] != NULL;
    int dense = -1;
    int routed = -1;

    if (b->layer.weight[TENSOR_PART_EXPERTS_DOWN] != NULL)
        routed = experts(b, x, rows);
    if (up != NULL) {
        /* The gate comes first: the graph is walked from its result. */
        int g = gated ? multiply(b, x, TENSOR_PART_GATE, rows) : -1;
        int u = multiply(b, x, TENSOR_PART_UP, rows);

        u = graph_result(b->g, row(b, width_of(up), rows), rows, gated ? 0 : GRAPH_IN_PLACE,
                         gated ? g : u, gated ? u : -1, -1, -1);
        dense = multiply(b, u, TENSOR_PART_DOWN, rows);
    }
    if (routed >= 0 && dense >= 0)
        return graph_result(b->g, row(b, b->m->embedding, rows), rows, GRAPH_IN_PLACE, routed,
                            dense, -1, -1);
    return routed >= 0 ? routed : dense >= 0 ? dense : x;
}

/* --- a layer, and all of it --- */

/* Matrices that nobody here knows: their results are all kept to the end of the layer. */
static int unknown_matrices(struct builder *b, int x)
{
    int kept;

    if (b->layer.others == 0)
        return x;
    b->exact = false;
    kept = graph_result(b->g, row(b, b->layer.others, b->tokens), b->tokens, 0, x, -1, -1, -1);
    return graph_result(b->g, row(b, b->m->embedding, b->tokens), b->tokens, 0, kept, x, -1, -1);
}

static int build_layer(struct builder *b, uint32_t layer, bool last, int x)
{
    const struct model_layer *l = &b->m->layer[layer];
    uint64_t rows = b->tokens;
    uint64_t bytes = row(b, b->m->embedding, rows);
    int before = x;

    find_tensors(b->m, layer, &b->layer);
    b->on_device = estimate_layer_on_device(b->p, layer);
    x = norm(b, x, TENSOR_PART_ATTENTION_NORM, &b->layer, bytes, rows, b->on_device);
    x = unknown_matrices(b, x);
    if (l->heads > 0 && (l->kv_heads > 0 || l->shared))
        x = attention(b, x, l);
    if (last) {
        rows = b->outputs;
        bytes = row(b, b->m->embedding, rows);
        x = graph_result(b->g, bytes, rows, 0, x, b->output_rows, -1, -1);
        before = graph_result(b->g, bytes, rows, 0, before, b->output_rows, -1, -1);
    }
    x = norm(b, x, TENSOR_PART_ATTENTION_POST_NORM, &b->layer, bytes, rows, b->on_device);
    x = graph_result(b->g, bytes, rows, GRAPH_IN_PLACE, x, before, -1, -1);
    x = norm(b, x, TENSOR_PART_ATTENTION_OUT_NORM, &b->layer, bytes, rows, b->on_device);
    before = x;
    x = norm(b, x, TENSOR_PART_FEED_NORM, &b->layer, bytes, rows, b->on_device);
    x = feed_forward(b, x, rows);
    x = norm(b, x, TENSOR_PART_FEED_POST_NORM, &b->layer, bytes, rows, b->on_device);
    x = graph_result(b->g, bytes, rows, GRAPH_IN_PLACE, x, before, -1, -1);
    return norm(b, x, TENSOR_PART_LAYER_OUT_NORM, &b->layer, bytes, rows, b->on_device);
}

/* Quantized caches are turned by a Hadamard matrix first: its width, 0: none (llama-kv-cache.cpp). */
static uint64_t turn_width(const struct builder *b, uint32_t type, uint64_t length,
                           uint64_t length_window, bool key)
{
    const struct gguf_type *t = gguf_type_find(type);
    uint64_t width = 64;

    if (t == NULL || t->block == 1 || length == 0 || length % 64 != 0 ||
        b->m->memory == MODEL_MEMORY_NONE || (b->m->window > 0 && length != length_window))
        return 0;
    while (key && length % (width * 2) == 0)
        width *= 2;
    return width;
}

static int turn_input(struct builder *b, uint32_t type, uint64_t length, uint64_t window, bool key)
{
    uint64_t width = turn_width(b, type, length, window, key);

    return width > 0 ? graph_input(b->g, row(b, width, width)) : -1;
}

/* The inputs, in the order in which the engine meets them. */
static int build_inputs(struct builder *b)
{
    const struct model_facts *m = b->m;
    uint64_t mask_row = b->p->flash ? F16 : F32;
    uint64_t cells = m->memory == MODEL_MEMORY_NONE ? b->tokens : b->p->cells;
    uint64_t places = 8 * b->tokens;
    /* Transposed values are stored number by number. */
    uint64_t value_places = b->p->flash ? places : estimate_mul(places, estimate_widest_values(m));
    uint64_t bytes = row(b, m->embedding, b->tokens);
    bool cached = m->memory != MODEL_MEMORY_NONE;
    const struct gguf_tensor *types = b->outside.weight[TENSOR_PART_TOKEN_TYPES];
    const struct gguf_tensor *positions = b->outside.weight[TENSOR_PART_POSITIONS];
    const struct gguf_tensor *embedding = b->outside.weight[TENSOR_PART_TOKEN_EMBEDDING];
    int rows = -1;
    int x;

    b->tokens_in = graph_input(b->g, F32 * b->tokens);
    (void)graph_input(b->g, bytes); /* for embeddings instead of tokens */
    b->positions = graph_input(b->g, F32 * b->tokens);
    b->key_place = cached ? graph_input(b->g, places) : -1;
    b->value_place = cached ? graph_input(b->g, value_places) : -1;
    b->mask = graph_input(b->g, estimate_mul(estimate_mul(mask_row, cells), b->tokens));
    b->key_turn = turn_input(b, b->p->s->cache_type_k, m->key_length, m->key_length_window, true);
    b->value_turn =
        turn_input(b, b->p->s->cache_type_v, m->value_length, m->value_length_window, false);
    b->key_turn_window = b->value_turn_window = -1;
    if (m->window > 0) {
        b->key_place_window = cached ? graph_input(b->g, places) : -1;
        b->value_place_window = cached ? graph_input(b->g, value_places) : -1;
        b->mask_window =
            graph_input(b->g, estimate_mul(estimate_mul(mask_row, b->p->window_cells), b->tokens));
        b->key_turn_window =
            turn_input(b, b->p->s->cache_type_k, m->key_length, m->key_length_window, true);
        b->value_turn_window =
            turn_input(b, b->p->s->cache_type_v, m->value_length, m->value_length_window, false);
    }
    b->output_rows = graph_input(b->g, F32 * b->outputs);
    x = graph_result(b->g, bytes, 0, 0,
                     graph_weight(b->g, embedding ? embedding->bytes : 0, GRAPH_SIDE_HOST, true),
                     b->tokens_in, -1, -1);
    if (positions != NULL)
        rows = graph_result(b->g, bytes, 0, 0,
                            graph_weight(b->g, positions->bytes, GRAPH_SIDE_HOST, true),
                            b->positions, -1, -1);
    if (types != NULL) {
        int all = graph_weight(b->g, types->bytes, GRAPH_SIDE_HOST, true);

        x = graph_result(b->g, bytes, b->tokens, GRAPH_IN_PLACE, x,
                         graph_view(b->g, all, row(b, m->embedding, 1)), -1, -1);
    }
    if (rows >= 0)
        x = graph_result(b->g, bytes, b->tokens, GRAPH_IN_PLACE, rows, x, -1, -1);
    if (m->scaled_input)
        x = graph_result(b->g, bytes, b->tokens, GRAPH_IN_PLACE, x, -1, -1, -1);
    find_tensors(m, 0, &b->layer);
    return norm(b, x, TENSOR_PART_EMBEDDING_NORM, &b->layer, bytes, b->tokens,
                estimate_layer_on_device(b->p, 0));
}

static void build_outputs(struct builder *b, int x)
{
    const struct model_facts *m = b->m;
    uint64_t bytes = row(b, m->embedding, b->outputs);
    const struct gguf_tensor *head = b->outside.weight[TENSOR_PART_OUTPUT];
    bool on_device = b->p->output_on_device;

    if (head == NULL)
        head = b->outside.weight[TENSOR_PART_TOKEN_EMBEDDING];
    x = norm(b, x, TENSOR_PART_OUTPUT_NORM, &b->outside, bytes, b->outputs, on_device);
    b->g->items[x].flags |= GRAPH_OUTPUT;
    if (m->has_head && head != NULL)
        (void)graph_result(b->g, row(b, m->vocabulary, b->outputs), b->outputs, GRAPH_OUTPUT,
                           weight_item(b, head, on_device), x, -1, -1);
    if (b->p->s->embeddings && m->pooled) {
        int weights = graph_input(b->g, row(b, b->tokens, b->p->slots));
        int turned = graph_view(b->g, x, bytes);

        turned = graph_result(b->g, bytes, b->outputs, 0, turned, -1, -1, -1);
        (void)graph_result(b->g, row(b, m->embedding, b->p->slots), b->p->slots, GRAPH_OUTPUT,
                           turned, weights, -1, -1);
    }
}

/* Is the layer one of those that are built? */
static bool is_built(const struct estimate_plan *p, uint32_t layer)
{
    const struct model_facts *m = p->m;
    uint32_t edge = p->first_device_layer;

    if (m->own_layers <= BUILT_LAYERS_MAX || layer < EDGE_LAYERS ||
        layer + EDGE_LAYERS >= m->own_layers)
        return true;
    return edge < m->layers && layer + 3 >= edge && layer < edge + 3;
}

static void build(struct builder *b)
{
    int x = build_inputs(b);
    uint32_t last = b->m->own_layers > 0 ? b->m->own_layers - 1 : 0;

    for (uint32_t i = 0; i < b->m->own_layers; i++) {
        if (is_built(b->p, i))
            x = build_layer(b, i, i == last, x);
    }
    build_outputs(b, x);
}

/* Results lie on the host: logits, and embeddings where they are asked for (output_reserve). */
static void add_results(const struct estimate_plan *p, struct estimate *e)
{
    uint64_t one = (uint64_t)p->m->vocabulary + (p->s->embeddings ? p->m->embedding_out : 0);
    uint64_t bytes = estimate_mul(estimate_mul(one, F32), p->slots);
    uint64_t most = bytes;

    /* An encoder makes room for every token of a text when the text comes, vocabulary included. */
    if (p->m->memory == MODEL_MEMORY_NONE)
        most = estimate_mul(estimate_mul(one, F32), p->batch);
    estimate_add_part(&e->host[ESTIMATE_OUTPUT], bytes, most);
}

static bool is_verified(const struct model_facts *m)
{
    static const char *const verified[] = {"llama", "gemma3", "bert"};

    for (size_t i = 0; i < sizeof(verified) / sizeof(verified[0]); i++) {
        if (strcmp(m->architecture, verified[i]) == 0)
            return m->experts == 0;
    }
    return false;
}

/* Another version orders its graph a little differently: a tenth and one MiB above, at the least. */
static void add_compute(struct estimate_bytes *to, uint64_t bytes, uint64_t factor)
{
    uint64_t upper = estimate_add(estimate_mul(bytes, factor), bytes / SLACK_PART);

    if (bytes > 0)
        estimate_add_part(to, bytes, estimate_add(upper, SLACK_BYTES));
}

void estimate_compute(const struct estimate_plan *p, struct estimate *e)
{
    struct graph graph;
    struct builder b = {.p = p,
                        .m = p->m,
                        .g = &graph,
                        .exact = true,
                        .tokens = p->micro_batch,
                        .outputs = p->outputs};
    uint64_t device = 0;
    uint64_t host = 0;
    uint64_t factor = 1;

    find_tensors(p->m, UINT32_MAX, &b.outside);
    graph_init(&graph, p->s->device, p->s->offload_rows, p->device_alignment,
               ESTIMATE_HOST_ALIGNMENT);
    build(&b);
    if (!graph_measure(&graph, &device, &host)) {
        estimate_doubt(e, ESTIMATE_CONFIDENCE_LOW,
                       "the graph of a batch is larger than can be measured");
        device = host = p->m->file_bytes;
    }
    if (!b.exact) {
        estimate_doubt(e, ESTIMATE_CONFIDENCE_LOW,
                       "some matrices are not known by name; compute buffers are a bound");
        factor = UNSURE_FACTOR;
    } else if (!is_verified(p->m)) {
        estimate_doubt(e, ESTIMATE_CONFIDENCE_MEDIUM,
                       "compute buffers of `%.40s` were not compared with a real engine yet",
                       p->m->architecture);
        factor = UNSURE_FACTOR;
    }
    add_compute(&e->device[ESTIMATE_COMPUTE], device, factor);
    add_compute(&e->host[ESTIMATE_COMPUTE], host, factor);
    add_results(p, e);
}
