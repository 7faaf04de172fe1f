/*
 * Which tier a request goes to now: the first in order of preference that speaks its dialect, may
 * be used and has room (or a place to wait). Why a tier was left is remembered and told.
 * Loop thread only.
 */
#include "gateway/admit.h"

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

bool tier_speaks(const struct gateway_request *r, unsigned tier_index)
{
    const struct gateway_worker *w = r->service->tiers[tier_index].worker;
    return w->worker && engine_speaks(worker_get_engine(w->worker), &r->route);
}

/* What the client accepts. */
static bool is_accepted(const struct gateway_request *r, unsigned tier_index)
{
    int kind = r->service->tiers[tier_index].config->kind;
    if (r->accept == REQUEST_ACCEPT_GPU_ONLY)
        return kind == CONFIG_TIER_KIND_GPU;
    return r->accept != REQUEST_ACCEPT_SAME_MODEL || kind != CONFIG_TIER_KIND_SUBSTITUTE;
}

static bool tier_can_serve(const struct gateway_request *r, unsigned tier_index)
{
    bool denied = r->service->config->cpu == CONFIG_CPU_DENY &&
                  r->service->tiers[tier_index].config->kind == CONFIG_TIER_KIND_CPU;
    return !denied && is_accepted(r, tier_index) && tier_speaks(r, tier_index);
}

bool request_has_other_tier(const struct gateway_request *r)
{
    for (unsigned i = 0; i < r->service->tier_count; i++) {
        if (i != r->tier_index && !(r->excluded & (1U << i)) && tier_can_serve(r, i) &&
            gateway_worker_may_serve(r->service->tiers[i].worker))
            return true;
    }
    return false;
}

static bool is_loading(const struct gateway_worker *w)
{
    if (!w->worker || w->yielded || w->held_back)
        return false;
    enum worker_state state = worker_get_state(w->worker);
    return state == WORKER_STATE_STARTING || state == WORKER_STATE_LOADING;
}

static int64_t retry_after_ms(const struct gateway_request *r, const struct admission_decision *d)
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
    if (d->retry_after_ms > 0 && d->retry_after_ms < best)
        best = d->retry_after_ms;
    if (best < DECIDE_RETRY_AFTER_MIN_MS)
        best = DECIDE_RETRY_AFTER_MIN_MS;
    if (r->retry_after_last_ms > (int64_t)best)
        best = (uint64_t)r->retry_after_last_ms;
    return (int64_t)best;
}

/* Nothing is left: says so, with the reason of each tier. */
static void say_nothing_left(struct gateway_request *r, struct api_error *e,
                             const struct admission_decision *d)
{
    struct api_error_tier tiers[GATEWAY_MAX_TIERS];
    size_t count = 0;
    for (unsigned i = 0; i < r->service->tier_count; i++) {
        const char *reason = r->tier_reasons[i];
        if (!reason)
            reason = "cannot serve this kind of request";
        tiers[count++] = (struct api_error_tier){r->service->tiers[i].config->name, reason};
    }
    const char *service = r->service->config->name;
    if (r->attempts == 0 || r->unreachable_last || r->status_last == 503 || r->status_last == 429)
        api_error_no_capacity(e, service, tiers, count, retry_after_ms(r, d));
    else
        api_error_upstream_failed(e, service, tiers, count);
    if (r->timed_out_last)
        e->status = 504;
    else if (r->status_last >= 400)
        e->status = r->status_last;
}

static void give_up(struct gateway_request *r, const struct admission_decision *d)
{
    struct api_error *e = request_error(r);
    if (e) {
        if (d->too_long && r->attempts == 0)
            admit_refuse(r, d, e);
        else
            say_nothing_left(r, e, d);
        snprintf(e->request_id, sizeof(e->request_id), "%s", r->id);
    }
    log_warning("gateway", "%s: no tier of %s is left after %u attempts", r->id,
                r->service->config->name, r->attempts);
    request_step(r, LIFECYCLE_EVENT_NO_TIER);
}

static void wait_on(struct gateway_request *r, unsigned i, enum request_wait what,
                    uint64_t until_ms, uint64_t wake_at_ms)
{
    r->tier_index = i;
    r->waits_for = (unsigned char)what;
    r->wait_deadline_ms = until_ms;
    r->wake_at_ms = wake_at_ms;
    request_step(r, LIFECYCLE_EVENT_QUEUED);
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
        wait_on(r, i, REQUEST_WAIT_LOAD, until_ms,
                said_loading ? now_ms + DECIDE_LOADING_RECHECK_MS : 0);
        return true;
    }
    return false;
}

/* The tier may be used. True when the request went to it or waits for room on it. */
static bool take_tier(struct gateway_request *r, unsigned i, uint64_t now_ms)
{
    const struct gateway_tier *tier = &r->service->tiers[i];
    struct gateway_worker *w = tier->worker;
    /* Those who wait go first, but for the one whose turn it is. */
    bool my_turn = w->waiting_count == 0 || r->woken;
    bool slot = gateway_worker_has_room(w);
    if (slot && my_turn && admit_has_kv_room(r, i)) {
        r->tier_index = i;
        request_step(r, LIFECYCLE_EVENT_SLOT);
        return true;
    }
    if (w->waiting_count < tier->config->queue.length) {
        wait_on(r, i, REQUEST_WAIT_SLOT, now_ms + tier->config->queue.wait_ms, 0);
        return true;
    }
    char why[160];
    if (slot)
        snprintf(why, sizeof(why), "no room in its KV cache and %" PRIu32 " requests wait",
                 w->waiting_count);
    else
        snprintf(why, sizeof(why), "all %" PRIu32 " slots are busy and %" PRIu32 " requests wait",
                 w->slots, w->waiting_count);
    request_note_tier(r, i, why);
    return false;
}

/* True when the request went to this tier or waits for it. */
static bool try_tier(struct gateway_request *r, unsigned i, uint64_t now_ms)
{
    char why[320];
    if (gateway_worker_may_serve(r->service->tiers[i].worker))
        return take_tier(r, i, now_ms);
    gateway_worker_explain(r->service->tiers[i].worker, why, sizeof(why));
    if (!(r->excluded & (1U << i)))
        request_note_tier(r, i, why);
    return false;
}

/* Nothing about memory or tokens is known that could speak against a tier: the first that may be used. */
static bool take_first(struct gateway_request *r, uint64_t now_ms)
{
    for (unsigned i = 0; i < r->service->tier_count; i++) {
        if (r->excluded & (1U << i))
            continue;
        if (!tier_can_serve(r, i)) {
            request_note_tier(r, i,
                              is_accepted(r, i) ? "does not speak this API"
                                                : "not accepted by the client (X-Failsoft-Accept)");
            continue;
        }
        if (try_tier(r, i, now_ms))
            return true;
    }
    return false;
}

/* Until the worker is there: it is woken when it is, or when it cannot be. */
static bool wait_for_memory(struct gateway_request *r, unsigned i, uint64_t now_ms)
{
    const struct gateway_tier *tier = &r->service->tiers[i];
    if (tier->worker->waiting_count >= tier->config->queue.length)
        return false;
    if (r->delay_since_ms == 0)
        r->delay_since_ms = now_ms;
    uint64_t until_ms = r->delay_since_ms + r->service->config->memory_wait_ms;
    if (now_ms >= until_ms)
        return false;
    wait_on(r, i, REQUEST_WAIT_MEMORY, until_ms, 0);
    return true;
}

/* As admission says. False: it refuses; *ret has why. */
static bool take_admitted(struct gateway_request *r, uint64_t now_ms,
                          struct admission_decision *ret)
{
    uint32_t full = 0; /* tiers whose queue has no place */
    for (unsigned round = 0; round <= r->service->tier_count; round++) {
        admit_decide(r, full, ret);
        if (ret->action == ADMISSION_ACTION_REFUSE)
            return false;
        unsigned i = (unsigned)ret->tier;
        const struct gateway_tier *tier = &r->service->tiers[i];
        if (ret->action == ADMISSION_ACTION_DELAY || !gateway_worker_may_serve(tier->worker)) {
            if (wait_for_memory(r, i, now_ms))
                return true;
        } else {
            r->max_tokens = ret->max_tokens;
            if (take_tier(r, i, now_ms))
                return true;
        }
        full |= 1U << i;
    }
    return false;
}

void request_decide(struct gateway_request *r)
{
    uint64_t now_ms = uv_now(r->gateway->loop);
    struct admission_decision decision = {.action = ADMISSION_ACTION_REFUSE};
    if (r->retry_same) {
        r->retry_same = false;
        unsigned same = r->tier_index;
        if (try_tier(r, same, now_ms))
            return;
        r->excluded |= 1U << same;
    }
    if (!admit_weighs(r)) {
        if (take_first(r, now_ms))
            return;
    } else {
        if (admit_wants_count(r)) {
            request_step(r, LIFECYCLE_EVENT_ASK_COUNT);
            return;
        }
        if (take_admitted(r, now_ms, &decision))
            return;
    }
    if (!decision.too_long && wait_for_loading(r, now_ms))
        return;
    give_up(r, &decision);
}
