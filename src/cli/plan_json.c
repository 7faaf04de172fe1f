/* The plan for machines. */
#include "cli/plan.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <yyjson.h>

static void add_bytes(yyjson_mut_doc *doc, yyjson_mut_val *to, const char *key,
                      const struct estimate_bytes *b)
{
    yyjson_mut_val *o = yyjson_mut_obj_add_obj(doc, to, key);

    yyjson_mut_obj_add_uint(doc, o, "bytes", b->bytes);
    yyjson_mut_obj_add_uint(doc, o, "upper_bytes", b->upper_bytes);
}

static void add_side(yyjson_mut_doc *doc, yyjson_mut_val *to, const char *key,
                     const struct estimate_bytes *parts, const struct estimate_bytes *total)
{
    yyjson_mut_val *o = yyjson_mut_obj_add_obj(doc, to, key);

    for (int i = 0; i < ESTIMATE_PART_COUNT; i++)
        add_bytes(doc, o, estimate_part_name((enum estimate_part)i), &parts[i]);
    add_bytes(doc, o, "total", total);
}

static void add_model(yyjson_mut_doc *doc, yyjson_mut_val *o, const struct plan_entry *e)
{
    const struct model_facts *facts = tier_model_facts(e->model);
    const struct estimate *t = &e->estimate->estimate;

    yyjson_mut_obj_add_bool(doc, o, "declared", e->estimate->declared);
    if (facts == NULL)
        return;
    yyjson_mut_obj_add_strcpy(doc, o, "architecture", facts->architecture);
    yyjson_mut_obj_add_uint(doc, o, "layers", t->layers);
    yyjson_mut_obj_add_uint(doc, o, "device_layers", t->device_layers);
    yyjson_mut_obj_add_uint(doc, o, "slots", e->estimate->settings.slots);
    yyjson_mut_obj_add_uint(doc, o, "kv_tokens", t->kv_tokens);
    yyjson_mut_obj_add_uint(doc, o, "slot_tokens", t->slot_tokens);
    yyjson_mut_obj_add_uint(doc, o, "device_bytes_per_token", e->estimate->device_bytes_per_token);
    yyjson_mut_obj_add_uint(doc, o, "host_bytes_per_token", e->estimate->host_bytes_per_token);
    yyjson_mut_obj_add_uint(doc, o, "floor_bytes", e->estimate->floor_bytes);
    yyjson_mut_obj_add_uint(doc, o, "largest_bytes", e->estimate->largest_bytes);
    yyjson_mut_obj_add_uint(doc, o, "mapped_bytes", t->mapped_bytes);
    yyjson_mut_obj_add_uint(doc, o, "repacked_bytes", t->repacked_bytes);
    yyjson_mut_obj_add_uint(doc, o, "header_read_bytes", facts->file->read_bytes);
}

static void add_estimate(yyjson_mut_doc *doc, yyjson_mut_val *o, const struct plan_entry *e)
{
    const struct estimate *t = &e->estimate->estimate;
    yyjson_mut_val *reasons;

    add_model(doc, o, e);
    yyjson_mut_obj_add_str(doc, o, "confidence", estimate_confidence_name(t->confidence));
    reasons = yyjson_mut_obj_add_arr(doc, o, "reasons");
    for (uint32_t i = 0; i < t->reason_count; i++)
        yyjson_mut_arr_add_strcpy(doc, reasons, t->reasons[i]);
    add_side(doc, o, "device", t->device, &t->device_total);
    add_side(doc, o, "host", t->host, &t->host_total);
    yyjson_mut_obj_add_uint(doc, o, "prompt_cache_bytes", e->source.host_cache_bytes);
}

static void add_hints(yyjson_mut_doc *doc, yyjson_mut_val *to, const struct plan *p,
                      const struct plan_hint *hints, size_t count)
{
    static const char *const names[] = {
        [PLAN_HINT_CONTEXT] = "context",       [PLAN_HINT_SLOTS] = "slots",
        [PLAN_HINT_GPU_LAYERS] = "gpu_layers", [PLAN_HINT_CACHE_TYPE] = "cache_type",
        [PLAN_HINT_RESERVE] = "reserve",
    };
    yyjson_mut_val *list = yyjson_mut_obj_add_arr(doc, to, "would_fit");

    for (size_t i = 0; i < count; i++) {
        const struct plan_entry *e = &p->entries[hints[i].entry];
        yyjson_mut_val *o = yyjson_mut_arr_add_obj(doc, list);

        yyjson_mut_obj_add_strcpy(doc, o, "service", e->service->name);
        yyjson_mut_obj_add_strcpy(doc, o, "tier", e->tier->name);
        yyjson_mut_obj_add_str(doc, o, "setting", names[hints[i].kind]);
        if (hints[i].kind == PLAN_HINT_CACHE_TYPE)
            yyjson_mut_obj_add_str(doc, o, "value", "q8_0");
        else
            yyjson_mut_obj_add_uint(doc, o, "value", hints[i].value);
        yyjson_mut_obj_add_uint(doc, o, "device_bytes", hints[i].device_bytes);
        yyjson_mut_obj_add_uint(doc, o, "host_bytes", hints[i].host_bytes);
    }
}

static void add_hash(yyjson_mut_doc *doc, yyjson_mut_val *to, const char *key, uint64_t hash)
{
    char text[20];

    snprintf(text, sizeof(text), "%016" PRIx64, hash);
    yyjson_mut_obj_add_strcpy(doc, to, key, text);
}

/* What was learned of it, and under which key of the state file. */
static void add_learned(yyjson_mut_doc *doc, yyjson_mut_val *to, const struct plan_entry *e)
{
    yyjson_mut_val *o = yyjson_mut_obj_add_obj(doc, to, "learned");

    yyjson_mut_obj_add_uint(doc, o, "bytes", e->learned_bytes);
    yyjson_mut_obj_add_uint(doc, o, "loads", e->learned_count);
    yyjson_mut_obj_add_bool(doc, o, "unfit", e->unfit);
    add_hash(doc, o, "model", e->estimate->model_hash);
    add_hash(doc, o, "settings", e->estimate->settings_hash);
    add_hash(doc, o, "engine", e->estimate->engine_hash);
    add_hash(doc, o, "device", e->device_hash);
}

static void add_fit(yyjson_mut_doc *doc, yyjson_mut_val *o, const struct plan *p,
                    const struct plan_entry *e)
{
    yyjson_mut_obj_add_uint(doc, o, "need_device_bytes", e->device_bytes);
    yyjson_mut_obj_add_uint(doc, o, "need_host_bytes", e->host_bytes);
    add_learned(doc, o, e);
    yyjson_mut_obj_add_str(doc, o, "fits", plan_fit_name(e->fit));
    if (e->short_of != NULL) {
        yyjson_mut_obj_add_strcpy(doc, o, "short_of", e->short_of->name);
        yyjson_mut_obj_add_uint(doc, o, "short_bytes", e->short_bytes);
    }
    if (e->fit == PLAN_FIT_UNKNOWN)
        yyjson_mut_obj_add_strcpy(doc, o, "why", e->short_of->why);
    add_hints(doc, o, p, e->hints, e->hint_count);
}

static void add_entry(yyjson_mut_doc *doc, yyjson_mut_val *o, const struct plan *p,
                      const struct plan_entry *e)
{
    if (e->service != NULL) {
        yyjson_mut_obj_add_strcpy(doc, o, "service", e->service->name);
        yyjson_mut_obj_add_strcpy(doc, o, "tier", e->tier->name);
    }
    if (e->device != NULL)
        yyjson_mut_obj_add_strcpy(doc, o, "on", e->device->name);
    if (e->path != NULL)
        yyjson_mut_obj_add_strcpy(doc, o, "model", e->path);
    if (e->problem[0] != '\0')
        yyjson_mut_obj_add_strcpy(doc, o, "problem", e->problem);
    if (e->estimate != NULL) {
        add_estimate(doc, o, e);
        if (e->fit != PLAN_FIT_NOT_ASKED)
            add_fit(doc, o, p, e);
    }
}

static void add_set(yyjson_mut_doc *doc, yyjson_mut_val *list, const struct plan *p,
                    const struct plan_place *place, uint32_t set)
{
    for (size_t i = 0; i < place->load_count; i++) {
        const struct plan_entry *e = &p->entries[place->loads[i]];
        yyjson_mut_val *o;

        if (!(set & (UINT32_C(1) << i)))
            continue;
        o = yyjson_mut_arr_add_obj(doc, list);
        yyjson_mut_obj_add_strcpy(doc, o, "service", e->service->name);
        yyjson_mut_obj_add_strcpy(doc, o, "tier", e->tier->name);
        yyjson_mut_obj_add_uint(doc, o, "bytes", place->load_bytes[i]);
    }
}

static void add_together(yyjson_mut_doc *doc, yyjson_mut_val *to, const struct plan *p,
                         const struct plan_place *place)
{
    yyjson_mut_val *o, *sets;

    if (!place->known || place->load_count == 0 || place->load_count > TOGETHER_LOADS_MAX)
        return;
    o = yyjson_mut_obj_add_obj(doc, to, "together");
    yyjson_mut_obj_add_bool(doc, o, "all_fit", place->leave_out == 0);
    yyjson_mut_obj_add_uint(doc, o, "set_count", place->set_count);
    sets = yyjson_mut_obj_add_arr(doc, o, "sets");
    for (size_t i = 0; i < place->set_count && i < PLAN_SETS_MAX; i++)
        add_set(doc, yyjson_mut_arr_add_arr(doc, sets), p, place, place->sets[i]);
    add_set(doc, yyjson_mut_obj_add_arr(doc, o, "leave_out"), p, place, place->leave_out);
    add_hints(doc, o, p, place->hints, place->hint_count);
}

static void add_place(yyjson_mut_doc *doc, yyjson_mut_val *o, const struct plan *p,
                      const struct plan_place *place)
{
    yyjson_mut_val *holders;

    yyjson_mut_obj_add_strcpy(doc, o, "name", place->name);
    yyjson_mut_obj_add_bool(doc, o, "known", place->known);
    yyjson_mut_obj_add_bool(doc, o, "integrated", place->shared);
    yyjson_mut_obj_add_strcpy(doc, o, "why", place->why);
    yyjson_mut_obj_add_uint(doc, o, "total_bytes", place->total_bytes);
    yyjson_mut_obj_add_uint(doc, o, "reserve_bytes", place->reserve_bytes);
    yyjson_mut_obj_add_uint(doc, o, "foreign_bytes", place->foreign_bytes);
    yyjson_mut_obj_add_uint(doc, o, "claimed_bytes", place->claimed_bytes);
    yyjson_mut_obj_add_sint(doc, o, "headroom_bytes", place->headroom_bytes);
    yyjson_mut_obj_add_uint(doc, o, "room_bytes", place->room_bytes);
    yyjson_mut_obj_add_uint(doc, o, "planned_bytes", place->sum_bytes);
    holders = yyjson_mut_obj_add_arr(doc, o, "holders");
    for (size_t i = 0; i < place->holder_count; i++) {
        yyjson_mut_val *h = yyjson_mut_arr_add_obj(doc, holders);

        yyjson_mut_obj_add_strcpy(doc, h, "name", place->holders[i].name);
        yyjson_mut_obj_add_sint(doc, h, "pid", place->holders[i].pid);
        yyjson_mut_obj_add_uint(doc, h, "bytes", place->holders[i].bytes);
    }
    add_together(doc, o, p, place);
}

int plan_write_json(struct buf *out, const struct plan *p)
{
    yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *root = doc ? yyjson_mut_obj(doc) : NULL;
    yyjson_mut_val *list;
    char *text = NULL;
    int r = -ENOMEM;

    if (root == NULL)
        goto out;
    yyjson_mut_doc_set_root(doc, root);
    list = yyjson_mut_obj_add_arr(doc, root, "plans");
    for (size_t i = 0; i < p->count; i++)
        add_entry(doc, yyjson_mut_arr_add_obj(doc, list), p, &p->entries[i]);
    if (p->config != NULL) {
        list = yyjson_mut_obj_add_arr(doc, root, "places");
        for (size_t i = 0; i < p->place_count; i++)
            add_place(doc, yyjson_mut_arr_add_obj(doc, list), p, &p->places[i]);
        yyjson_mut_obj_add_strcpy(doc, root, "gateway", p->gateway_url);
        yyjson_mut_obj_add_strcpy(doc, root, "gateway_why", p->gateway_why);
    }
    text = yyjson_mut_write(doc, YYJSON_WRITE_PRETTY, NULL);
    if (text != NULL)
        r = buf_append_str(out, text);
    if (r == 0)
        r = buf_append_str(out, "\n");
out:
    free(text);
    yyjson_mut_doc_free(doc);
    return r;
}
