/*
 * Does each tier fit now, alone, beside what is there; and if not, which change of its settings makes
 * it fit. Every change is a configuration that differs in this one value, and is estimated like the
 * first (F31 ollama/ollama#17099, F45).
 */
#include "cli/plan.h"

#include "model/gguf_type.h"

#include <inttypes.h>
#include <string.h>

enum { CONTEXT_STEP = 256 }; /* the engine pads to it */

static const char small_cache_type[] = "q8_0";

/* --- verdicts --- */

static uint64_t room_of(const struct plan_place *place)
{
    return place->headroom_bytes > 0 ? (uint64_t)place->headroom_bytes : 0;
}

static bool is_short(const struct plan_place *place, uint64_t bytes, uint64_t *ret_short)
{
    uint64_t room = room_of(place);

    if (!place->known || bytes <= room)
        return false;
    *ret_short = bytes - room;
    /* Below zero, that is missing too. */
    if (place->headroom_bytes < 0)
        *ret_short += (uint64_t) - (place->headroom_bytes + 1) + 1;
    return true;
}

static void judge(const struct plan *p, struct plan_entry *e)
{
    struct plan_place *host = plan_host(p);

    if (e->estimate == NULL || e->fit == PLAN_FIT_LOADED)
        return;
    e->fit = PLAN_FIT_NO;
    if (e->device != NULL && is_short(e->device, e->device_bytes, &e->short_bytes)) {
        e->short_of = e->device;
    } else if (is_short(host, e->host_bytes, &e->short_bytes)) {
        e->short_of = host;
    } else if (e->unfit) {
        e->short_of = e->device;
    } else if (e->device != NULL && !e->device->known) {
        e->fit = PLAN_FIT_UNKNOWN;
        e->short_of = e->device;
    } else if (!host->known) {
        e->fit = PLAN_FIT_UNKNOWN;
        e->short_of = host;
    } else {
        e->fit = PLAN_FIT_YES;
    }
}

/* --- other settings --- */

/* The tier with one value changed. False: it has no such setting, or it changes nothing. */
static bool change(const struct plan_entry *e, enum plan_hint_kind kind, uint64_t value,
                   struct config_service *service, struct config_tier *tier)
{
    static char cache_type[] = "q8_0";

    *service = *e->service;
    *tier = *e->tier;
    switch (kind) {
    case PLAN_HINT_CONTEXT: service->context_tokens = (uint32_t)value; return true;
    case PLAN_HINT_SLOTS: tier->slots = (uint32_t)value; return true;
    case PLAN_HINT_GPU_LAYERS: tier->gpu_layers = (int32_t)value; return true;
    case PLAN_HINT_CACHE_TYPE:
        service->cache_type_k = service->cache_type_v = cache_type;
        return true;
    case PLAN_HINT_RESERVE: break;
    }
    return false;
}

/* What the entry takes with the value. False: it cannot be told. */
static bool try_value(const struct plan *p, const struct plan_entry *e, enum plan_hint_kind kind,
                      uint64_t value, struct plan_hint *ret)
{
    struct tier_estimate estimate;
    struct config_service service;
    struct config_tier tier;
    struct tier_source source;

    if (!change(e, kind, value, &service, &tier) ||
        tier_source_init(p->config, &service, &tier, &source) < 0)
        return false;
    tier_model_estimate(e->model, &source.settings, &estimate);
    tier_source_free(&source);
    *ret = (struct plan_hint){.kind = kind, .value = value, .entry = (size_t)(e - p->entries)};
    plan_need(e, &estimate, &ret->device_bytes, &ret->host_bytes);
    return true;
}

/* Values count in steps from 1 to the one below what it is now; 0: there is nothing to change. */
static uint64_t steps_of(const struct plan_entry *e, enum plan_hint_kind kind, uint64_t *ret_step)
{
    const struct estimate *now = &e->estimate->estimate;
    const struct estimate_settings *s = &e->estimate->settings;
    const struct gguf_type *small = gguf_type_find_name(small_cache_type);
    uint64_t context = now->slot_tokens < UINT32_MAX ? now->slot_tokens : UINT32_MAX;

    *ret_step = kind == PLAN_HINT_CONTEXT ? CONTEXT_STEP : 1;
    switch (kind) {
    case PLAN_HINT_CONTEXT: return context > 0 ? (context - 1) / CONTEXT_STEP : 0;
    case PLAN_HINT_SLOTS: return s->slots > 1 ? s->slots - 1 : 0;
    case PLAN_HINT_GPU_LAYERS: return now->device_layers > 1 ? now->device_layers - 1 : 0;
    case PLAN_HINT_CACHE_TYPE:
        /* Values in fewer bits need flash attention. */
        return small != NULL && s->flash_attention != ESTIMATE_SWITCH_OFF && now->kv_tokens > 0 &&
                       (s->cache_type_k == GGUF_TYPE_F16 || s->cache_type_k == GGUF_TYPE_F32) &&
                       (s->cache_type_v == GGUF_TYPE_F16 || s->cache_type_v == GGUF_TYPE_F32)
                   ? 1
                   : 0;
    case PLAN_HINT_RESERVE: break;
    }
    return 0;
}

bool plan_find_hint(const struct plan *p, const struct plan_entry *e, enum plan_hint_kind kind,
                    uint64_t device_bytes, uint64_t host_bytes, struct plan_hint *ret)
{
    struct plan_hint hint;
    uint64_t step;
    uint64_t low = 0;
    uint64_t high;
    bool found = false;

    if (e->estimate == NULL || e->estimate->declared || e->unfit)
        return false;
    high = steps_of(e, kind, &step);
    /* More takes more: the largest that fits lies where it stops fitting. Only what was seen to fit
     * is told. */
    while (low < high) {
        uint64_t middle = low + (high - low + 1) / 2;

        if (try_value(p, e, kind, middle * step, &hint) && hint.device_bytes <= device_bytes &&
            hint.host_bytes <= host_bytes) {
            *ret = hint;
            found = true;
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return found;
}

/* --- hints --- */

static void add_hints(const struct plan *p, struct plan_entry *e)
{
    static const enum plan_hint_kind kinds[] = {PLAN_HINT_CONTEXT, PLAN_HINT_SLOTS,
                                                PLAN_HINT_GPU_LAYERS, PLAN_HINT_CACHE_TYPE};
    const struct plan_place *host = plan_host(p);
    uint64_t device = e->device != NULL && e->device->known ? room_of(e->device) : UINT64_MAX;
    uint64_t on_host = host->known ? room_of(host) : UINT64_MAX;

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (plan_find_hint(p, e, kinds[i], device, on_host, &e->hints[e->hint_count]))
            e->hint_count++;
    }
    /* The reserve alone: with it there would be room, and the other place has room as well. */
    if (e->unfit || e->short_bytes > e->short_of->reserve_bytes)
        return;
    if (e->short_of != host && host->known && e->host_bytes > room_of(host))
        return;
    e->hints[e->hint_count++] = (struct plan_hint){
        .kind = PLAN_HINT_RESERVE,
        .value = e->short_of->reserve_bytes,
        .entry = (size_t)(e - p->entries),
        .device_bytes = e->device_bytes,
        .host_bytes = e->host_bytes,
    };
}

void plan_judge(struct plan *p)
{
    for (size_t i = 0; i < p->count; i++) {
        struct plan_entry *e = &p->entries[i];

        judge(p, e);
        if (e->fit == PLAN_FIT_NO)
            add_hints(p, e);
    }
}

const char *plan_fit_name(enum plan_fit fit)
{
    switch (fit) {
    case PLAN_FIT_YES: return "yes";
    case PLAN_FIT_NO: return "no";
    case PLAN_FIT_UNKNOWN: return "unknown";
    case PLAN_FIT_LOADED: return "loaded";
    case PLAN_FIT_NOT_ASKED: break;
    }
    return "";
}
