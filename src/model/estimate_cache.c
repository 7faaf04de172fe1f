/*
 * Keys and values that are kept of what was read, layer by layer, and the states of recurrent layers
 * (llama_kv_cache, llama_kv_cache_iswa, llama_memory_recurrent).
 */
#include "model/estimate_internal.h"

struct cache {
    uint64_t device, host;
};

static uint64_t tensor_bytes(uint64_t row_bytes, uint64_t rows, uint64_t alignment)
{
    return estimate_pad(estimate_mul(row_bytes, rows), alignment);
}

/* Without flash attention values are kept transposed, and as wide as the widest layer's. */
uint64_t estimate_widest_values(const struct model_facts *m)
{
    uint64_t widest = 0;

    for (uint32_t i = 0; i < m->layers; i++) {
        uint64_t length = m->layer[i].window ? m->value_length_window : m->value_length;

        widest = estimate_max(widest, length * m->layer[i].kv_heads);
    }
    return widest;
}

static uint64_t layer_cache(const struct estimate_plan *p, const struct model_layer *l, bool window,
                            uint64_t alignment)
{
    const struct model_facts *m = p->m;
    uint64_t rows = estimate_mul(window ? p->window_cells : p->cells, p->streams);
    uint64_t keys = (uint64_t)(l->window ? m->key_length_window : m->key_length) * l->kv_heads;
    uint64_t values =
        (uint64_t)(l->window ? m->value_length_window : m->value_length) * l->kv_heads;
    uint64_t bytes;

    if (!p->flash)
        values = estimate_widest_values(m);
    bytes = tensor_bytes(estimate_row_bytes(p->s->cache_type_k, keys), rows, alignment);
    if (m->latent)
        return bytes;
    return estimate_add(
        bytes, tensor_bytes(estimate_row_bytes(p->s->cache_type_v, values), rows, alignment));
}

static void add_layer(const struct estimate_plan *p, uint32_t i, struct cache *c)
{
    const struct model_layer *l = &p->m->layer[i];
    bool on_device = estimate_layer_on_device(p, i) && !p->s->cache_on_host;
    uint64_t alignment = on_device ? p->device_alignment : (uint64_t)ESTIMATE_HOST_ALIGNMENT;
    uint64_t bytes = layer_cache(p, l, l->window, alignment);

    if (on_device)
        c->device = estimate_add(c->device, bytes);
    else
        c->host = estimate_add(c->host, bytes);
}

static void add_states(const struct estimate_plan *p, struct estimate *e)
{
    const struct model_facts *m = p->m;

    for (uint32_t i = 0; i < m->layers; i++) {
        bool on_device = estimate_layer_on_device(p, i) && !p->s->cache_on_host;
        uint64_t alignment = on_device ? p->device_alignment : (uint64_t)ESTIMATE_HOST_ALIGNMENT;
        uint64_t bytes;

        if (!m->layer[i].recurrent)
            continue;
        bytes = estimate_add(tensor_bytes(estimate_mul(m->conv_state, 4), p->slots, alignment),
                             tensor_bytes(estimate_mul(m->scan_state, 4), p->slots, alignment));
        estimate_add_part(on_device ? &e->device[ESTIMATE_STATE] : &e->host[ESTIMATE_STATE], bytes,
                          bytes);
    }
}

void estimate_cache(const struct estimate_plan *p, struct estimate *e)
{
    struct cache c = {0};

    if (p->m->memory == MODEL_MEMORY_NONE)
        return;
    for (uint32_t i = 0; i < p->m->layers; i++) {
        const struct model_layer *l = &p->m->layer[i];

        if (!l->shared && !(l->recurrent && l->kv_heads == 0) &&
            p->m->memory != MODEL_MEMORY_RECURRENT)
            add_layer(p, i, &c);
    }
    estimate_add_part(&e->device[ESTIMATE_CACHE], c.device, c.device);
    estimate_add_part(&e->host[ESTIMATE_CACHE], c.host, c.host);
    add_states(p, e);
}
