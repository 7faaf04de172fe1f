/*
 * Where each tensor lies: the input layer on the host, layers from the first offloaded one and the
 * output layer on the device (llama_model_base::load_tensors, llama_model_loader::create_tensor).
 * Token embeddings that are also the output matrix lie on both sides.
 */
#include "model/estimate_internal.h"

#include "model/gguf_type.h"

struct host_range {
    uint64_t first, last; /* in the data section of a shard */
    bool any;
};

struct weights {
    const struct estimate_plan *p;
    struct estimate *e;
    uint64_t device;   /* each tensor padded */
    uint64_t host;     /* tensors used on the host, repacked ones aside */
    uint64_t repacked; /* each padded */
    uint64_t mapped;   /* from the first to the last of each shard */
    uint64_t unsure;   /* may lie on the other side as well */
    bool any_device_layer, any_host_layer;
};

/* The tensor types that the CPU reorders for 8 rows at a time (ggml-cpu/repack.cpp, x86-64). */
bool estimate_is_repacked(const struct estimate_plan *p, const struct gguf_tensor *t)
{
    bool experts = tensor_part_is_experts((enum tensor_part)t->part);

    if (!p->s->repack || t->shape[1] % 8 != 0 || !t->matrix)
        return false;
    if (t->shape[3] > 1 || (t->shape[2] > 1 && !experts))
        return false;
    switch (t->type) {
    case GGUF_TYPE_Q4_0:
    case GGUF_TYPE_Q4_K:
    case GGUF_TYPE_IQ4_NL:
    case GGUF_TYPE_MXFP4: return t->shape[1] > 1;
    case GGUF_TYPE_Q2_K: return p->s->avx512 && t->shape[1] > 1;
    default: return false;
    }
}

static void put_on_host(struct weights *w, struct host_range *range, const struct gguf_tensor *t,
                        bool multiplied)
{
    uint64_t end = estimate_add(t->offset, t->bytes);

    if (multiplied && estimate_is_repacked(w->p, t)) {
        w->repacked = estimate_add(w->repacked, estimate_pad(t->bytes, ESTIMATE_HOST_ALIGNMENT));
        return;
    }
    if (w->p->s->mapped)
        w->host = estimate_add(w->host, t->bytes);
    else
        w->host = estimate_add(w->host, estimate_pad(t->bytes, ESTIMATE_HOST_ALIGNMENT));
    if (!range->any || t->offset < range->first)
        range->first = t->offset;
    if (!range->any || end > range->last)
        range->last = end;
    range->any = true;
}

static void put_on_device(struct weights *w, const struct gguf_tensor *t)
{
    w->device = estimate_add(w->device, estimate_pad(t->bytes, w->p->device_alignment));
}

static void put(struct weights *w, struct host_range *range, const struct gguf_tensor *t)
{
    const struct estimate_plan *p = w->p;
    bool on_device;

    switch ((enum tensor_place)t->place) {
    case TENSOR_PLACE_INPUT:
        put_on_host(w, range, t, false);
        if (t->part != TENSOR_PART_TOKEN_EMBEDDING || p->m->has_output || !p->m->has_head)
            return;
        /* Tied: the same tensor once more, as the output matrix. */
        if (p->output_on_device)
            put_on_device(w, t);
        else if (estimate_is_repacked(p, t))
            put_on_host(w, range, t, true);
        return;
    case TENSOR_PLACE_EVERY:
        if (w->any_device_layer)
            put_on_device(w, t);
        if (w->any_host_layer)
            put_on_host(w, range, t, false);
        return;
    case TENSOR_PLACE_LAYER: on_device = estimate_layer_on_device(p, t->layer); break;
    case TENSOR_PLACE_OUTPUT: on_device = p->output_on_device; break;
    default:
        on_device = p->output_on_device;
        w->unsure = estimate_add(w->unsure, t->bytes);
        break;
    }
    if (p->s->experts_on_host && tensor_part_is_experts((enum tensor_part)t->part))
        on_device = false;
    if (on_device)
        put_on_device(w, t);
    else
        put_on_host(w, range, t, true);
}

void estimate_weights(const struct estimate_plan *p, struct estimate *e)
{
    const struct gguf_file *file = p->m->file;
    struct weights w = {.p = p, .e = e};
    uint64_t mapped;

    w.any_device_layer = p->s->device && p->first_device_layer < p->m->layers;
    w.any_host_layer = !p->s->device || p->first_device_layer > 0;
    for (size_t s = 0; s < file->shard_count; s++) {
        const struct gguf_header *h = &file->shards[s];
        struct host_range range = {0};

        for (size_t i = 0; i < h->tensor_count; i++)
            put(&w, &range, &h->tensors[i]);
        if (range.any)
            w.mapped = estimate_add(w.mapped, range.last - range.first);
    }
    mapped = p->s->mapped ? w.mapped : 0;
    estimate_add_part(&e->device[ESTIMATE_WEIGHTS], w.device,
                      estimate_add(w.device, p->s->device && !p->output_on_device ? w.unsure : 0));
    /* Pages between two tensors are read when the file is loaded; they need not stay. */
    estimate_add_part(&e->host[ESTIMATE_WEIGHTS], estimate_add(w.host, w.repacked),
                      estimate_add(estimate_add(estimate_max(w.host, mapped), w.repacked),
                                   p->output_on_device ? w.unsure : 0));
    e->mapped_bytes = mapped;
    e->repacked_bytes = w.repacked;
}
