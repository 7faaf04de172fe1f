/* What is learned of a worker's memory. See device_learn.h. */
#include "gateway/device_learn.h"

#include "base/log.h"
#include "base/units.h"
#include "gateway/devices.h"
#include "gateway/learned.h"

#include <stdio.h>
#include <string.h>

enum {
    LEARN_IDLE_SAMPLES = 3, /* the same figure so often without a request: that is what stays */
    LEARN_RECYCLE_PAUSE_MS = 10 * 60 * 1000,
    LEARN_UNFIT_AFTER = 2,                 /* once may have been somebody else's memory */
    LEARN_UNFIT_RETRY_MS = 60 * 60 * 1000, /* what made it fail may have gone unseen */
    LEARN_ENOUGH_PCT = 125,                /* of the prediction: more than enough */
    LEARN_PERCENT = 100,
};

static struct learning *table_of(const struct gateway_worker *w)
{
    struct learned *learned = w->gateway->learned;
    return learned && w->learn.known ? learned_table(learned) : NULL;
}

static struct learning_key key_of(const struct gateway_worker *w, enum learning_use use)
{
    struct learning_key key = w->learn.key;
    key.use = use;
    return key;
}

/* A measurement; the file is written again when the next claim is another because of it. */
static void note(struct gateway_worker *w, enum learning_use use, uint64_t bytes)
{
    struct learning *table = table_of(w);
    struct learning_key key = key_of(w, use);
    if (!table)
        return;
    uint32_t count;
    uint64_t most = learning_seen_bytes(table, &key, &count);
    uint64_t formula = use == LEARNING_USE_LOAD ? w->learn.formula_bytes : 0;
    uint64_t before = learning_estimate(table, &key, formula, w->learn.floor_bytes);
    if (bytes == 0 && count == 0)
        return; /* requests that add nothing */
    if (learning_note(table, &key, bytes) < 0)
        return;
    if (count == 0 || bytes > most || use == LEARNING_USE_LOAD ||
        learning_estimate(table, &key, formula, w->learn.floor_bytes) != before)
        learned_changed(w->gateway->learned);
}

/* --- the prediction of a load --- */

void learn_prepare(struct gateway_worker *w, uint64_t model, uint64_t settings, uint64_t engine,
                   uint64_t formula_bytes, uint64_t floor_bytes)
{
    w->learn.known = true;
    w->learn.key = (struct learning_key){
        .model = model, .settings = settings, .engine = engine, .use = LEARNING_USE_LOAD};
    w->learn.formula_bytes = formula_bytes;
    w->learn.floor_bytes = floor_bytes < formula_bytes ? floor_bytes : formula_bytes;
}

/* Two services may share model and device with settings of their own: theirs must stay. */
static bool is_alone_with_its_model(const struct gateway_device *d, const struct gateway_worker *w)
{
    LIST_FOR_EACH(node, &d->gateway->workers)
    {
        const struct gateway_worker *o = LIST_ENTRY(node, struct gateway_worker, node);
        if (o == w || o->stopping || !device_has_worker(d, o))
            continue;
        /* One whose hashes are still being made may be one. */
        if (o->predict_job || (o->learn.known && o->learn.key.model == w->learn.key.model))
            return false;
    }
    return true;
}

static void forget_other_settings(struct gateway_device *d, struct gateway_worker *w)
{
    struct learning *table = table_of(w);
    if (!is_alone_with_its_model(d, w))
        return;
    int dropped = learning_drop_others(table, &w->learn.key);
    if (dropped == 0)
        return;
    log_info("learning",
             "%s/%s: other settings or another engine than before: %d learned entries "
             "are dropped, the formula predicts",
             w->service, w->tier, dropped);
    learned_changed(w->gateway->learned);
}

/* The room in which it failed; LEDGER_BYTES_MAX: more would not help. */
static uint64_t room_of_failure(const struct gateway_worker *w)
{
    uint64_t figures[LEARNING_SAMPLES];
    struct learning_key key = key_of(w, LEARNING_USE_ROOM);
    return learning_kept(table_of(w), &key, figures) == 1 ? figures[0] : LEDGER_BYTES_MAX;
}

/* It failed with more than enough, by the prediction; that may be wrong. So it is tried again where
 * there is clearly more: not in a circle, as the room must be larger each time. */
static bool is_unfit_here(const struct gateway_device *d, struct gateway_worker *w, char *why,
                          size_t why_size)
{
    uint64_t now_ms = uv_now(d->gateway->loop);
    if (!learning_is_unfit(table_of(w), &w->learn.key))
        return false;
    if (w->learn.unfit_since_ms == 0)
        w->learn.unfit_since_ms = now_ms;
    if (now_ms - w->learn.unfit_since_ms >= LEARN_UNFIT_RETRY_MS) {
        w->learn.unfit_since_ms = now_ms;
        return false;
    }
    uint64_t failed_in = room_of_failure(w);
    char size[24], more[64] = "";
    if (failed_in < LEDGER_BYTES_MAX / 2) {
        uint64_t enough = failed_in / LEARN_PERCENT * LEARN_ENOUGH_PCT;
        struct ledger_view v = ledger_view(&d->ledger, now_ms);
        if (v.admissible_bytes > 0 && (uint64_t)v.admissible_bytes >= enough)
            return false;
        snprintf(more, sizeof(more), "%s are free, ",
                 units_format_bytes(enough, size, sizeof(size)));
    }
    snprintf(
        why, why_size,
        "does not fit on %s: loading it failed although there was more than enough memory%s%s; "
        "not tried again before %sa reload (SIGHUP) or a change of its settings, engine or "
        "device, or an hour later",
        d->name, w->learn.failed_text[0] ? ": " : "", w->learn.failed_text, more);
    return true;
}

bool learn_before_start(struct gateway_device *d, struct gateway_worker *w, char *why,
                        size_t why_size)
{
    struct learning *table = table_of(w);
    if (!table)
        return true;
    forget_other_settings(d, w);
    learn_apply_sizes(w);
    if (is_unfit_here(d, w, why, why_size))
        return false;
    if (w->learn.formula_bytes > 0)
        w->predicted_bytes =
            learning_estimate(table, &w->learn.key, w->learn.formula_bytes, w->learn.floor_bytes);
    return true;
}

/* --- loads --- */

void learn_heard(struct gateway_worker *w, const struct fault *fault, struct span line)
{
    if (fault->class != FAULT_CAPACITY || !w->worker ||
        worker_get_state(w->worker) != WORKER_STATE_LOADING)
        return;
    /* "failed to allocate CPU buffer of size": the host's memory, which comes and goes. */
    if (span_find_nocase(line, SPAN_LIT("cpu")) >= 0)
        return;
    /* The first line says most; the engine then says that loading failed. */
    if (!w->learn.capacity_failed)
        snprintf(w->learn.failed_text, sizeof(w->learn.failed_text), "%s", fault->reason);
    w->learn.capacity_failed = true;
    w->learn.over_buffer_limit |=
        span_find_nocase(line, SPAN_LIT("exceeds device buffer size limit")) >= 0;
}

void learn_loading(struct gateway_worker *w)
{
    w->learn.settled = false;
    w->learn.loaded_bytes = w->learn.most_bytes = 0;
    w->learn.attempts_judged = w->attempts_total;
    w->learn.idle_samples = 0;
    w->learn.image_ran = false;
    w->learn.capacity_failed = w->learn.over_buffer_limit = false;
    leak_init(&w->learn.leak, 0);
}

void learn_ready(struct gateway_worker *w)
{
    struct learning *table = table_of(w);
    w->learn.failed_in_row = 0;
    w->learn.failed_text[0] = '\0';
    w->learn.capacity_failed = w->learn.over_buffer_limit = false;
    if (!table || !learning_is_unfit(table, &w->learn.key))
        return;
    learning_set_unfit(table, &w->learn.key, false);
    learned_changed(w->gateway->learned);
}

/* Was there more than enough for the load, in all and in one piece? Others may have taken it since it
 * was claimed, so the figures of the moment count, and its own claim is part of the room. */
static bool had_more_than_enough(const struct gateway_device *d, const struct gateway_worker *w,
                                 uint64_t now_ms, uint64_t *ret_room)
{
    struct ledger_view v = ledger_view(&d->ledger, now_ms);
    const struct ledger_claim *claim = ledger_claim_find(&d->ledger, w->claim);
    if (v.trust != LEDGER_TRUST_FRESH || !claim || w->predicted_bytes == 0)
        return false;
    int64_t room = v.headroom_bytes + (int64_t)claim->held_bytes;
    uint64_t want = w->predicted_bytes / LEARN_PERCENT * LEARN_ENOUGH_PCT;
    *ret_room = room > 0 ? (uint64_t)room : 0;
    return *ret_room >= want && (v.largest_bytes == 0 || v.largest_bytes >= w->predicted_bytes);
}

void learn_load_failed(struct gateway_device *d, struct gateway_worker *w, uint64_t now_ms)
{
    struct learning *table = table_of(w);
    struct learning_key room_key = key_of(w, LEARNING_USE_ROOM);
    uint64_t room = LEDGER_BYTES_MAX;
    if (!table || !w->learn.capacity_failed)
        return;
    if (!w->learn.over_buffer_limit && !had_more_than_enough(d, w, now_ms, &room)) {
        w->learn.failed_in_row = 0;
        return;
    }
    if (++w->learn.failed_in_row < LEARN_UNFIT_AFTER && !w->learn.over_buffer_limit)
        return;
    learning_set_unfit(table, &w->learn.key, true);
    (void)learning_keep(table, &room_key, &room, 1);
    learned_changed(w->gateway->learned);
    log_warning("learning",
                "%s/%s: cannot be loaded on %s although there is memory (%s): it is not tried "
                "again with these settings for an hour; a reload (SIGHUP) tries at once",
                w->service, w->tier, d->name, w->learn.failed_text);
}

void learn_retry(struct gateway *g)
{
    LIST_FOR_EACH(node, &g->workers)
    {
        struct gateway_worker *w = LIST_ENTRY(node, struct gateway_worker, node);
        struct learning *table = table_of(w);
        if (!table || !learning_is_unfit(table, &w->learn.key))
            continue;
        learning_set_unfit(table, &w->learn.key, false);
        w->learn.failed_in_row = 0;
        learned_changed(g->learned);
        if (w->worker && !w->stopping)
            worker_look_again(w->worker);
    }
}

/* --- requests --- */

void learn_attempt(struct gateway_worker *w, enum learning_use use)
{
    w->learn.image_ran |= use == LEARNING_USE_IMAGE;
    w->learn.idle_samples = 0;
}

uint64_t learned_request_bytes(const struct gateway_worker *w, enum learning_use use)
{
    const struct learning *table = table_of(w);
    if (!table)
        return 0;
    struct learning_key key = key_of(w, use);
    uint64_t grows = learning_estimate(table, &key, 0, 0);
    /* What it has grown already is in its claim. */
    uint64_t grown = w->learn.settled && w->measured_bytes > w->learn.loaded_bytes
                         ? w->measured_bytes - w->learn.loaded_bytes
                         : 0;
    return grows > grown ? grows - grown : 0;
}

uint64_t learned_load_bytes(const struct gateway_worker *w, uint32_t *ret_count)
{
    const struct learning *table = table_of(w);
    *ret_count = 0;
    if (!table)
        return 0;
    struct learning_key key = key_of(w, LEARNING_USE_LOAD);
    return learning_seen_bytes(table, &key, ret_count);
}

/* --- leaks --- */

static void recycle_if_leaking(struct gateway_worker *w, uint64_t now_ms)
{
    if (!leak_is_suspected(&w->learn.leak) || w->waiting_count > 0 || w->stopping || w->yielded ||
        (w->learn.recycled_ms > 0 && now_ms - w->learn.recycled_ms < LEARN_RECYCLE_PAUSE_MS))
        return;
    char why[160];
    learn_explain(w, why, sizeof(why));
    log_warning("learning", "%s/%s: %s", w->service, w->tier, why);
    w->learn.recycles++;
    w->learn.recycled_ms = now_ms;
    worker_recycle(w->worker, why, false);
}

void learn_explain(const struct gateway_worker *w, char *out, size_t out_size)
{
    char grown[24];
    out[0] = '\0';
    if (leak_is_suspected(&w->learn.leak))
        snprintf(out, out_size,
                 "its memory grew by %s since it was loaded and stays so: recycled when idle",
                 units_format_bytes(leak_grown_bytes(&w->learn.leak), grown, sizeof(grown)));
}

/* Idle again after requests: what they added, and what stays of it. */
static void judge_requests(struct gateway_worker *w, uint64_t bytes)
{
    struct gateway_learning *l = &w->learn;
    uint64_t grown = l->most_bytes > l->loaded_bytes ? l->most_bytes - l->loaded_bytes : 0;
    note(w, l->image_ran ? LEARNING_USE_IMAGE : LEARNING_USE_TEXT, grown);
    l->attempts_judged = w->attempts_total;
    l->most_bytes = bytes;
    l->image_ran = false;
    /* The first figure is taken after the first requests: buffers that are made when they are first
     * needed are no leak. */
    (void)leak_note(&l->leak, bytes);
}

void learn_sampled(struct gateway_device *d, struct gateway_worker *w, uint64_t bytes, bool steady,
                   uint64_t now_ms)
{
    struct gateway_learning *l = &w->learn;
    if (worker_get_state(w->worker) != WORKER_STATE_READY)
        return;
    if (!l->settled && steady) {
        char size[24];
        l->settled = true;
        l->loaded_bytes = l->most_bytes = bytes;
        /* A load with a shorter context says nothing about the whole one. */
        if (w->short_context == 0)
            note(w, LEARNING_USE_LOAD, bytes);
        log_debug("learning", "%s/%s: loaded, %s on %s", w->service, w->tier,
                  units_format_bytes(bytes, size, sizeof(size)), d->name);
    }
    if (bytes > l->most_bytes)
        l->most_bytes = bytes;
    if (!l->settled || w->running > 0 || !steady) {
        l->idle_samples = 0;
        return;
    }
    if (++l->idle_samples < LEARN_IDLE_SAMPLES)
        return;
    if (w->attempts_total != l->attempts_judged)
        judge_requests(w, bytes);
    recycle_if_leaking(w, now_ms);
}
