/*
 * The estimate as a whole: settings as the engine rounds them, the parts, the sums.
 */
#include "model/estimate_internal.h"

#include "model/gguf_type.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    /* What command.c passes. */
    CHAT_BATCH = 256,
    CHAT_MICRO_BATCH = 64,
    EMBEDDINGS_BATCH_MIN = 512,
    EMBEDDINGS_BATCH_UNKNOWN = 2048, /* context 0 */
    OFFLOAD_ROWS = 32,               /* of ggml-cuda, ggml-vulkan and the simulated card */
    DEVICE_ALIGNMENT = 128,          /* of CUDA; the simulated card has 64 */
    SLOTS_MAX = 256,                 /* LLAMA_MAX_SEQ */
    PROJECTOR_COMPUTE_PCT = 25,      /* of its weights, a guess: see projector_compute() */
};

void estimate_settings_init(struct estimate_settings *s)
{
    *s = (struct estimate_settings){
        .context_means = ESTIMATE_CONTEXT_PER_SLOT,
        .slots = 1,
        .cache_type_k = GGUF_TYPE_F16,
        .cache_type_v = GGUF_TYPE_F16,
        .flash_attention = ESTIMATE_SWITCH_ON,
        .device = true,
        .gpu_layers = -1,
        .batch = CHAT_BATCH,
        .micro_batch = CHAT_MICRO_BATCH,
        .mapped = true,
        .offload_rows = OFFLOAD_ROWS,
        .device_alignment = DEVICE_ALIGNMENT,
    };
}

void estimate_settings_embeddings(struct estimate_settings *s)
{
    uint64_t batch = s->context_tokens > EMBEDDINGS_BATCH_MIN ? s->context_tokens
                                                              : (uint64_t)EMBEDDINGS_BATCH_MIN;

    if (s->context_tokens == 0)
        batch = EMBEDDINGS_BATCH_UNKNOWN;
    if (s->slots > 1)
        batch = (batch + s->slots - 1) / s->slots * s->slots;
    s->embeddings = true;
    s->batch = batch > UINT32_MAX ? UINT32_MAX : (uint32_t)batch;
    s->micro_batch = s->batch;
}

const char *estimate_part_name(enum estimate_part part)
{
    static const char *const names[ESTIMATE_PART_COUNT] = {
        [ESTIMATE_WEIGHTS] = "weights", [ESTIMATE_CACHE] = "kv",
        [ESTIMATE_STATE] = "state",     [ESTIMATE_COMPUTE] = "compute",
        [ESTIMATE_OUTPUT] = "output",   [ESTIMATE_PROJECTOR] = "projector",
        [ESTIMATE_DRAFT] = "draft",     [ESTIMATE_RUNTIME] = "runtime",
    };

    return names[part];
}

const char *estimate_confidence_name(enum estimate_confidence confidence)
{
    switch (confidence) {
    case ESTIMATE_CONFIDENCE_HIGH: return "high";
    case ESTIMATE_CONFIDENCE_MEDIUM: return "medium";
    case ESTIMATE_CONFIDENCE_LOW: break;
    }
    return "low";
}

void estimate_doubt(struct estimate *e, enum estimate_confidence at_most, const char *format, ...)
{
    va_list args;

    if (e->confidence > at_most)
        e->confidence = at_most;
    if (e->reason_count >= ESTIMATE_REASONS_MAX)
        return;
    va_start(args, format);
    vsnprintf(e->reasons[e->reason_count], sizeof(e->reasons[0]), format, args);
    va_end(args);
    e->reason_count++;
}

void estimate_add_part(struct estimate_bytes *to, uint64_t bytes, uint64_t upper_bytes)
{
    to->bytes = estimate_add(to->bytes, bytes);
    to->upper_bytes = estimate_add(to->upper_bytes, estimate_max(bytes, upper_bytes));
}

uint64_t estimate_row_bytes(uint32_t type, uint64_t elements)
{
    const struct gguf_type *t = gguf_type_find(type);
    uint64_t bytes;

    if (t == NULL)
        return estimate_mul(elements, 4);
    return gguf_type_row_bytes(t, elements, &bytes) ? bytes : UINT64_MAX;
}

bool estimate_layer_on_device(const struct estimate_plan *p, uint32_t layer)
{
    return p->s->device && layer >= p->first_device_layer;
}

/* The constructor of llama_context, and i_gpu_start of load_tensors(). */
static struct estimate_plan plan_make(const struct model_facts *m,
                                      const struct estimate_settings *s)
{
    struct estimate_plan p = {.m = m, .s = s};
    uint64_t context = s->context_tokens;
    uint64_t layers = s->gpu_layers < 0 ? (uint64_t)m->layers + 1 : (uint64_t)s->gpu_layers;

    p.slots = estimate_min(s->slots > 0 ? s->slots : 1, SLOTS_MAX);
    if (context == 0)
        context = m->context;
    else if (s->context_means == ESTIMATE_CONTEXT_PER_SLOT)
        context = estimate_mul(context, p.slots);
    p.batch = m->causal ? estimate_min(context, s->batch) : s->batch;
    p.micro_batch = estimate_min(p.batch, s->micro_batch > 0 ? s->micro_batch : p.batch);
    context = estimate_pad(context, ESTIMATE_CONTEXT_PAD);
    p.streams = s->unified ? 1 : p.slots;
    p.cells = s->unified ? context : estimate_pad(context / p.slots, ESTIMATE_CONTEXT_PAD);
    p.window_cells = estimate_add(estimate_mul(m->window, s->unified ? p.slots : 1), p.micro_batch);
    p.window_cells = estimate_pad(estimate_min(p.cells, p.window_cells), ESTIMATE_CONTEXT_PAD);
    p.micro_batch = estimate_min(p.micro_batch, estimate_mul(p.cells, p.streams));
    /* A reserved batch has the same number of tokens of each sequence. */
    p.micro_batch = estimate_pad(p.micro_batch, p.slots);
    p.outputs = s->embeddings ? p.micro_batch : estimate_min(p.slots, p.micro_batch);
    p.flash = s->flash_attention != ESTIMATE_SWITCH_OFF;
    p.output_on_device = s->device && layers > 0;
    p.first_device_layer = !s->device || layers == 0 ? UINT32_MAX
                           : layers > m->layers      ? 0
                                                     : (uint32_t)(m->layers + 1 - layers);
    p.device_alignment = s->device_alignment > 0 ? s->device_alignment : 1;
    return p;
}

/* A projector's buffers depend on the pictures; its own engine says what it takes when it loads. */
static void add_projector(const struct estimate_plan *p, struct estimate *e)
{
    const struct model_facts *projector = p->s->projector;
    uint64_t weights;
    uint64_t compute;

    if (projector == NULL)
        return;
    weights = projector->usable ? projector->file->tensor_bytes : projector->file_bytes;
    compute = weights / 100 * PROJECTOR_COMPUTE_PCT;
    estimate_add_part(p->output_on_device ? &e->device[ESTIMATE_PROJECTOR]
                                          : &e->host[ESTIMATE_PROJECTOR],
                      estimate_add(weights, compute), estimate_mul(weights, 2));
    estimate_doubt(e, ESTIMATE_CONFIDENCE_MEDIUM,
                   "what the projector needs for a picture is not in its file; a quarter of its "
                   "weights is assumed, at most as much again");
}

static uint64_t sum(const struct estimate_bytes *parts, bool upper)
{
    uint64_t all = 0;

    for (size_t i = 0; i < ESTIMATE_PART_COUNT; i++)
        all = estimate_add(all, upper ? parts[i].upper_bytes : parts[i].bytes);
    return all;
}

static void add_draft(const struct estimate_plan *p, struct estimate *e)
{
    struct estimate_settings s = *p->s;
    struct estimate draft;

    if (p->s->draft == NULL)
        return;
    s.draft = NULL;
    s.projector = NULL;
    s.device_fixed_bytes = s.host_fixed_bytes = 0;
    s.host_token_bytes = 0;
    estimate_make(p->s->draft, &s, &draft);
    estimate_add_part(&e->device[ESTIMATE_DRAFT], draft.device_total.bytes,
                      draft.device_total.upper_bytes);
    estimate_add_part(&e->host[ESTIMATE_DRAFT], draft.host_total.bytes,
                      draft.host_total.upper_bytes);
    for (uint32_t i = 0; i < draft.reason_count; i++)
        estimate_doubt(e, draft.confidence, "draft model: %.140s", draft.reasons[i]);
}

static void add_unreadable(const struct estimate_plan *p, struct estimate *e)
{
    uint64_t file = p->m->file_bytes;

    /* Weights at most once on each side, and as much again for all that the header would tell. */
    estimate_add_part(p->s->device ? &e->device[ESTIMATE_WEIGHTS] : &e->host[ESTIMATE_WEIGHTS],
                      file, file);
    estimate_add_part(p->s->device ? &e->device[ESTIMATE_CACHE] : &e->host[ESTIMATE_CACHE], 0,
                      file);
    estimate_add_part(&e->host[ESTIMATE_WEIGHTS], 0, file);
}

void estimate_make(const struct model_facts *m, const struct estimate_settings *s,
                   struct estimate *ret)
{
    struct estimate_plan p = plan_make(m, s);
    struct estimate *e = ret;
    uint64_t host;

    memset(e, 0, sizeof(*e));
    e->confidence = ESTIMATE_CONFIDENCE_HIGH;
    for (uint32_t i = 0; i < m->doubt_count; i++)
        estimate_doubt(e, ESTIMATE_CONFIDENCE_LOW, "%.158s", m->doubts[i]);
    e->kv_tokens = m->memory == MODEL_MEMORY_NONE ? 0 : estimate_mul(p.cells, p.streams);
    e->slot_tokens = p.cells;
    e->layers = m->layers + 1;
    if (p.output_on_device)
        e->device_layers = e->layers - p.first_device_layer;
    if (m->usable) {
        estimate_weights(&p, e);
        estimate_cache(&p, e);
        estimate_compute(&p, e);
    } else {
        add_unreadable(&p, e);
    }
    add_projector(&p, e);
    add_draft(&p, e);
    if (p.s->device)
        estimate_add_part(&e->device[ESTIMATE_RUNTIME], s->device_fixed_bytes,
                          s->device_fixed_bytes);
    host = estimate_add(s->host_fixed_bytes, estimate_mul(s->host_token_bytes, m->vocabulary));
    estimate_add_part(&e->host[ESTIMATE_RUNTIME], host, host);
    e->device_total = (struct estimate_bytes){sum(e->device, false), sum(e->device, true)};
    e->host_total = (struct estimate_bytes){sum(e->host, false), sum(e->host, true)};
}
