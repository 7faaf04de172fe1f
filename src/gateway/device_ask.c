/*
 * Asking the engine for the sizes of a load before the first one, where the formula is not sure of
 * itself (worker/dry_run.h): once per model, settings, engine and device; the answer is kept with what
 * is learned. The program that is asked opens the device as well, so the ledger holds memory for its
 * context while it runs; where there is no room even for that, nobody is asked and the formula serves.
 *
 * Loop thread only.
 */
#include "gateway/devices.h"

#include "base/log.h"
#include "base/units.h"
#include "gateway/learned.h"
#include "worker/dry_run.h"
#include "worker/tier_estimate.h"

#include <stdio.h>
#include <string.h>

static struct learning_key sizes_key(const struct gateway_worker *w)
{
    struct learning_key key = w->learn.key;
    key.use = LEARNING_USE_SIZES;
    return key;
}

static bool find_sizes(const struct gateway_worker *w, struct dry_run_sizes *ret)
{
    uint64_t figures[LEARNING_SAMPLES];
    struct learning_key key = sizes_key(w);
    if (!w->gateway->learned)
        return false;
    uint32_t count = learning_kept(learned_table(w->gateway->learned), &key, figures);
    return dry_run_from_figures(figures, count, ret) == 0;
}

void learn_apply_sizes(struct gateway_worker *w)
{
    struct dry_run_sizes sizes;
    if (!w->estimate || w->estimate->declared || !find_sizes(w, &sizes))
        return;
    uint64_t bound = w->estimate->estimate.device_total.upper_bytes;
    uint64_t floor = w->estimate->floor_bytes;
    dry_run_refine(&sizes, &w->estimate->estimate, &bound, &floor);
    w->learn.formula_bytes = bound;
    w->learn.floor_bytes = floor;
}

static void release_claim(struct gateway_device *d, struct gateway_worker *w)
{
    if (d)
        device_claim_release(&d->ledger, &w->learn.ask_claim, uv_now(w->gateway->loop));
    w->learn.ask_pid = 0;
}

static void on_pid(int pid, void *ctx)
{
    struct gateway_worker *w = ctx;
    struct gateway_device *d = w->on;
    w->learn.ask_pid = pid;
    if (d && w->learn.ask_claim != LEDGER_CLAIM_NONE)
        (void)ledger_claim_set_pid(&d->ledger, w->learn.ask_claim, (uint32_t)pid);
}

static void keep_sizes(struct gateway_worker *w, const struct dry_run_sizes *sizes)
{
    uint64_t figures[DRY_RUN_FIGURES];
    struct learning_key key = sizes_key(w);
    char weights[24], cache[24], compute[24];
    log_info("learning",
             "%s/%s: its engine says %s of weights, %s of cache and up to %s to compute "
             "on %s",
             w->service, w->tier,
             units_format_bytes(sizes->device_weights_bytes, weights, sizeof(weights)),
             units_format_bytes(sizes->device_cache_bytes, cache, sizeof(cache)),
             units_format_bytes(sizes->device_compute_bytes, compute, sizeof(compute)), w->device);
    if (!w->gateway->learned)
        return;
    dry_run_to_figures(sizes, figures);
    if (learning_keep(learned_table(w->gateway->learned), &key, figures, DRY_RUN_FIGURES) == 0)
        learned_changed(w->gateway->learned);
}

static void on_done(int result, const struct dry_run_sizes *sizes, const char *why, void *ctx)
{
    struct gateway_worker *w = ctx;
    struct gateway_device *d = w->on;
    w->learn.dry_run = NULL;
    w->learn.ask = LEARN_ASK_DONE;
    release_claim(d, w);
    if (sizes)
        keep_sizes(w, sizes);
    else
        log_debug("learning", "%s/%s: its engine was asked for sizes in vain: %s%s%s", w->service,
                  w->tier, strerror(-result), why[0] ? ": " : "", why);
    if (w->worker && !w->stopping)
        worker_look_again(w->worker);
}

static const struct dry_run_events events = {.on_pid = on_pid, .on_done = on_done};

/* Memory for its context. False: there is none. */
static bool claim_context(struct gateway_device *d, struct gateway_worker *w, uint64_t now_ms)
{
    char label[LEDGER_NAME_MAX];
    snprintf(label, sizeof(label), "%.20s sizes", w->service);
    struct ledger_request request = {
        .owner = LEDGER_OWNER_WORKER,
        .label = label,
        .bytes = w->estimate->estimate.device[ESTIMATE_RUNTIME].upper_bytes,
    };
    w->learn.ask_claim = LEDGER_CLAIM_NONE;
    return request.bytes == 0 ||
           ledger_claim_open(&d->ledger, &request, now_ms, &w->learn.ask_claim) == 0;
}

bool learn_asks(struct gateway_device *d, struct gateway_worker *w, char *why, size_t why_size)
{
    struct dry_run_sizes sizes;
    if (w->learn.ask == LEARN_ASK_NOT_YET && w->learn.known && w->gateway->learned && w->estimate &&
        !w->estimate->declared && w->estimate->estimate.confidence != ESTIMATE_CONFIDENCE_HIGH) {
        w->learn.ask = LEARN_ASK_DONE;
        if (!find_sizes(w, &sizes) && claim_context(d, w, uv_now(w->gateway->loop))) {
            if (dry_run_start(w->gateway->loop, worker_get_options(w->worker), DRY_RUN_DEADLINE_MS,
                              &events, w, &w->learn.dry_run) == 0)
                w->learn.ask = LEARN_ASK_RUNS;
            else
                release_claim(d, w);
        }
    }
    if (w->learn.ask != LEARN_ASK_RUNS)
        return false;
    snprintf(why, why_size, "its engine is asked what it will take of %s", d->name);
    return true;
}

void learn_ask_forget(struct gateway_device *d, struct gateway_worker *w)
{
    dry_run_cancel(w->learn.dry_run);
    w->learn.dry_run = NULL;
    w->learn.ask = LEARN_ASK_NOT_YET;
    release_claim(d, w);
}
