/*
 * Which tier a request goes to now: the first in order of preference that speaks its dialect, may
 * be used and has room (or a place to wait). Why a tier was left is remembered and told.
 * Loop thread only.
 */
#include "gateway/internal.h"

#include "base/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    DECIDE_LOADING_RECHECK_MS = 250,
    DECIDE_RETRY_AFTER_MIN_MS = 1000,
    DECIDE_RETRY_AFTER_MAX_MS = 30000,
};

static bool engine_speaks(enum worker_engine engine, const struct api_route *route)
{
    if (engine == WORKER_ENGINE_UNKNOWN)
        return true;
    if (route->dialect == API_DIALECT_OLLAMA)
        return engine == WORKER_ENGINE_OLLAMA;
    switch (route->operation) {
    case API_OPERATION_NATIVE_COMPLETION:
    case API_OPERATION_NATIVE_EMBEDDING:
    case API_OPERATION_INFILL: return engine != WORKER_ENGINE_OLLAMA;
    default: return true;
    }
}

bool tier_can_serve(const struct gateway_request *r, unsigned tier_index)
{
    const struct gateway_tier *tier = &r->service->tiers[tier_index];
    int kind = tier->config->kind;
    if (r->accept == REQUEST_ACCEPT_GPU_ONLY && kind != CONFIG_TIER_KIND_GPU)
        return false;
    if (r->accept == REQUEST_ACCEPT_SAME_MODEL && kind == CONFIG_TIER_KIND_SUBSTITUTE)
        return false;
    return tier->worker->worker &&
           engine_speaks(worker_get_engine(tier->worker->worker), &r->route);
}

static bool is_loading(const struct gateway_worker *w)
{
    if (!w->worker || w->yielded)
        return false;
    enum worker_state state = worker_get_state(w->worker);
    return state == WORKER_STATE_STARTING || state == WORKER_STATE_LOADING;
}

static int64_t retry_after_ms(const struct gateway_request *r)
{
    uint64_t now_ms = uv_now(r->gateway->loop);
    uint64_t best = DECIDE_RETRY_AFTER_MAX_MS;
    for (unsigned i = 0; i < r->service->tier_count; i++) {
        const struct gateway_worker *w = r->service->tiers[i].worker;
        uint64_t in_ms = availability_retry_in_ms(&w->availability, now_ms);
        uint64_t at_ms = w->worker ? worker_retry_at_ms(w->worker) : 0;
        if (at_ms > now_ms && at_ms - now_ms > in_ms)
            in_ms = at_ms - now_ms;
        if (in_ms < best)
            best = in_ms;
    }
    if (best < DECIDE_RETRY_AFTER_MIN_MS)
        best = DECIDE_RETRY_AFTER_MIN_MS;
    if (r->retry_after_last_ms > (int64_t)best)
        best = (uint64_t)r->retry_after_last_ms;
    return (int64_t)best;
}

/* Nothing is left: says so, with the reason of each tier. */
static void give_up(struct gateway_request *r)
{
    struct api_error_tier tiers[GATEWAY_MAX_TIERS];
    size_t count = 0;
    for (unsigned i = 0; i < r->service->tier_count; i++) {
        const char *reason = r->tier_reasons[i];
        if (!reason)
            reason = "cannot serve this kind of request";
        tiers[count++] = (struct api_error_tier){r->service->tiers[i].config->name, reason};
    }
    struct api_error *e = request_error(r);
    if (e) {
        const char *service = r->service->config->name;
        if (r->attempts == 0 || r->unreachable_last || r->status_last == 503 ||
            r->status_last == 429)
            api_error_no_capacity(e, service, tiers, count, retry_after_ms(r));
        else
            api_error_upstream_failed(e, service, tiers, count);
        if (r->timed_out_last)
            e->status = 504;
        else if (r->status_last >= 400)
            e->status = r->status_last;
        snprintf(e->request_id, sizeof(e->request_id), "%s", r->id);
    }
    log_warning("gateway", "%s: no tier of %s is left after %u attempts", r->id,
                r->service->config->name, r->attempts);
    request_step(r, LIFECYCLE_EVENT_NO_TIER);
}

/* Tiers that only said that they load are asked again, within the time that may be waited. */
static bool wait_for_loading(struct gateway_request *r, uint64_t now_ms)
{
    for (unsigned i = 0; i < r->service->tier_count; i++) {
        const struct gateway_tier *tier = &r->service->tiers[i];
        bool said_loading = (r->loading & (1U << i)) != 0;
        if (!said_loading && ((r->excluded & (1U << i)) || !is_loading(tier->worker)))
            continue;
        if (!tier_can_serve(r, i) || tier->worker->waiting_count >= tier->config->queue.length)
            continue;
        uint64_t until_ms = r->accepted_ms + tier->config->queue.wait_ms;
        if (now_ms >= until_ms)
            continue;
        r->loading &= ~(1U << i);
        r->excluded &= ~(1U << i);
        r->tier_index = i;
        r->waits_for_load = true;
        r->wait_deadline_ms = until_ms;
        r->wake_at_ms = said_loading ? now_ms + DECIDE_LOADING_RECHECK_MS : 0;
        request_step(r, LIFECYCLE_EVENT_QUEUED);
        return true;
    }
    return false;
}

/* True when the request went to this tier or waits for it. */
static bool try_tier(struct gateway_request *r, unsigned i, uint64_t now_ms)
{
    const struct gateway_tier *tier = &r->service->tiers[i];
    struct gateway_worker *w = tier->worker;
    char why[320];
    gateway_worker_explain(w, why, sizeof(why));
    bool usable = gateway_worker_may_serve(w);
    if (!usable) {
        if (!(r->excluded & (1U << i)))
            request_note_tier(r, i, why);
        return false;
    }
    /* Those who wait go first, but for the one whose turn it is. */
    bool my_turn = w->waiting_count == 0 || r->woken;
    if (gateway_worker_has_room(w) && my_turn) {
        r->tier_index = i;
        request_step(r, LIFECYCLE_EVENT_SLOT);
        return true;
    }
    if (w->waiting_count < tier->config->queue.length) {
        r->tier_index = i;
        r->waits_for_load = false;
        r->wait_deadline_ms = now_ms + tier->config->queue.wait_ms;
        r->wake_at_ms = 0;
        request_step(r, LIFECYCLE_EVENT_QUEUED);
        return true;
    }
    snprintf(why, sizeof(why), "all %" PRIu32 " slots are busy and %" PRIu32 " requests wait",
             w->slots, w->waiting_count);
    request_note_tier(r, i, why);
    return false;
}

void request_decide(struct gateway_request *r)
{
    uint64_t now_ms = uv_now(r->gateway->loop);
    if (r->retry_same) {
        r->retry_same = false;
        unsigned same = r->tier_index;
        if (try_tier(r, same, now_ms))
            return;
        r->excluded |= 1U << same;
    }
    for (unsigned i = 0; i < r->service->tier_count; i++) {
        if (r->excluded & (1U << i))
            continue;
        if (!tier_can_serve(r, i)) {
            request_note_tier(r, i,
                              r->accept == REQUEST_ACCEPT_ANY
                                  ? "does not speak this API"
                                  : "not accepted by the client (X-Failsoft-Accept)");
            continue;
        }
        if (try_tier(r, i, now_ms))
            return;
    }
    if (wait_for_loading(r, now_ms))
        return;
    give_up(r);
}
