/*
 * A worker's claim in the ledger of its device: opened when it wants to start (predicted), settled
 * when it is ready and its process was measured, and released when the process is gone, which counts
 * until telemetry sees it back. A worker without room waits, and says for what.
 *
 * Loop thread only.
 */
#include "gateway/devices.h"

#include "base/log.h"
#include "base/units.h"
#include "policy/admission.h"
#include "worker/fingerprint.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { DEVICE_FIRST_SAMPLE_MS = 3000 }; /* after that, a device is one without telemetry */

/* --- claims --- */

int device_claim_open(struct ledger *l, const struct gateway_worker *w, struct ledger_request what,
                      uint64_t now_ms, uint64_t *ret_claim)
{
    char label[LEDGER_NAME_MAX];
    snprintf(label, sizeof(label), "%.20s/%.10s", w->service, w->tier);
    what.owner = LEDGER_OWNER_WORKER;
    what.label = label;
    return ledger_claim_open(l, &what, now_ms, ret_claim);
}

void device_claim_release(struct ledger *l, uint64_t *claim, uint64_t now_ms)
{
    if (*claim != LEDGER_CLAIM_NONE)
        (void)ledger_claim_begin_release(l, *claim, now_ms);
    *claim = LEDGER_CLAIM_NONE;
}

void device_settle_worker(struct gateway_device *d, struct gateway_worker *w,
                          const struct device_sample *sample, uint64_t now_ms)
{
    int pid = worker_pid(w->worker);
    uint64_t bytes;
    if (pid == 0 || !device_sample_process(sample, pid, &bytes))
        return;
    if (d->shared) {
        w->measured_bytes = bytes; /* the next sample of the host counts it */
        return;
    }
    if (w->claim == LEDGER_CLAIM_NONE) {
        struct ledger_request seen = {.bytes = bytes, .pid = (uint32_t)pid, .adopt = true};
        if (device_claim_open(&d->ledger, w, seen, now_ms, &w->claim) < 0)
            return;
    }
    bool steady = bytes == w->measured_bytes;
    if (worker_get_state(w->worker) == WORKER_STATE_READY && steady)
        (void)ledger_claim_settle(&d->ledger, w->claim, bytes, now_ms);
    w->measured_bytes = bytes;
    learn_sampled(d, w, bytes, steady, now_ms);
}

void devices_worker_changed(struct gateway_worker *w, enum worker_state to)
{
    struct gateway_device *d = w->on;
    device_host_worker_changed(w, to);
    if (!d || !w->worker)
        return;
    if (to != WORKER_STATE_LOADING && to != WORKER_STATE_STARTING)
        device_start_those_that_wait(d);
    uint64_t now_ms = uv_now(w->gateway->loop);
    if (to == WORKER_STATE_LOADING)
        learn_loading(w);
    else if (to == WORKER_STATE_READY)
        learn_ready(w);
    else if (to == WORKER_STATE_BACKOFF || to == WORKER_STATE_FAILED)
        learn_load_failed(d, w, now_ms);
    if (w->claim == LEDGER_CLAIM_NONE)
        return;
    if (to == WORKER_STATE_LOADING) {
        (void)ledger_claim_set_pid(&d->ledger, w->claim, (uint32_t)worker_pid(w->worker));
    } else if (to == WORKER_STATE_BACKOFF || to == WORKER_STATE_FAILED ||
               to == WORKER_STATE_STOPPED) {
        device_claim_release(&d->ledger, &w->claim, now_ms);
        w->measured_bytes = 0;
        device_monitor_poke(w->gateway->monitor, d->name);
    }
}

void devices_worker_gone(struct gateway_worker *w)
{
    struct gateway_device *d = w->on;
    learn_ask_forget(d, w);
    if (d)
        device_claim_release(&d->ledger, &w->claim, uv_now(w->gateway->loop));
    device_host_worker_gone(w);
}

/* --- starting --- */

void device_describe_lack(const struct ledger_view *v, uint64_t need_bytes, const char *place,
                          const char *limit, char *out, size_t size)
{
    char need[24], room[24], foreign[24], total[24];
    int64_t left = v->trust == LEDGER_TRUST_NONE ? v->headroom_bytes : v->admissible_bytes;
    uint64_t admissible = left > 0 ? (uint64_t)left : 0;
    int n = snprintf(out, size,
                     "waits for memory: needs %s%s, where %s of %s%s may be used; others hold %s",
                     units_format_bytes(need_bytes, need, sizeof(need)), place,
                     units_format_bytes(admissible, room, sizeof(room)),
                     units_format_bytes(v->total_bytes, total, sizeof(total)), limit,
                     units_format_bytes(v->foreign_bytes, foreign, sizeof(foreign)));
    for (unsigned i = 0; i < LEDGER_HOLDERS_MAX && v->holders[i].bytes > 0; i++) {
        char bytes[24];
        if (n < 0 || (size_t)n >= size)
            return;
        n += snprintf(out + n, size - (size_t)n, ", %s %s", v->holders[i].label,
                      units_format_bytes(v->holders[i].bytes, bytes, sizeof(bytes)));
    }
}

/* One load at a time: two that fit by their predictions may not while both are growing. */
static const struct gateway_worker *loading_on(const struct gateway_device *d,
                                               const struct gateway_worker *besides)
{
    LIST_FOR_EACH(node, &d->gateway->workers)
    {
        const struct gateway_worker *w = LIST_ENTRY(node, struct gateway_worker, node);
        if (w != besides && device_has_worker(d, w) &&
            worker_get_state(w->worker) == WORKER_STATE_LOADING)
            return w;
    }
    return NULL;
}

/* A device that tells nothing: only its owner can say that what we hold is all that is used. */
static bool may_go_by_claims(struct gateway_device *d, uint64_t now_ms, char *why, size_t why_size,
                             bool *ret_lasting)
{
    if (now_ms - d->since_ms < DEVICE_FIRST_SAMPLE_MS) {
        snprintf(why, why_size, "waits for the first figures of %s", d->name);
        return false;
    }
    if (!d->exclusive) {
        *ret_lasting = true;
        snprintf(why, why_size,
                 "nothing is known about the memory of %s%s%s; if nobody else uses it, give it "
                 "`exclusive: on` and `memory`",
                 d->name, d->why[0] ? ": " : "", d->why);
        return false;
    }
    if (!d->ledger.settings.no_source)
        ledger_give_up_source(&d->ledger);
    return true;
}

/* Is it the time to start it, whatever it needs? */
static bool may_be_looked_at(struct gateway_device *d, struct gateway_worker *w, uint64_t now_ms,
                             char *why, size_t why_size, bool *ret_lasting)
{
    if (now_ms < d->yield_until_ms) {
        *ret_lasting = true;
        snprintf(why, why_size, "%s is given back by hand", d->name);
        return false;
    }
    if (w->predict_job) {
        snprintf(why, why_size, "its memory is being estimated");
        return false;
    }
    const struct gateway_worker *other = loading_on(d, w);
    if (other) {
        snprintf(why, why_size, "waits until %s/%s is loaded on %s", other->service, other->tier,
                 d->name);
        return false;
    }
    return d->shared || d->ledger.sampled ||
           may_go_by_claims(d, now_ms, why, why_size, ret_lasting);
}

/* An integrated device's own limit, which may be lower than the machine's memory. What it could not be
 * given by the machine is the host's ledger to say. One load at a time makes a look enough. */
static bool fits_driver(struct gateway_device *d, struct gateway_worker *w, uint64_t now_ms,
                        char *why, size_t why_size)
{
    struct device_sample sample;
    uint64_t free_bytes;
    char need[24], room[24];
    bool told = device_monitor_latest(w->gateway->monitor, d->name, &sample);
    uint64_t apart =
        told && (sample.has & DEVICE_HAS_DEDICATED_FREE) ? sample.dedicated_free_bytes : 0;
    w->host_apart_bytes = apart < w->predicted_bytes ? apart : w->predicted_bytes;
    if (!told || !device_sample_free(&sample, now_ms, d->ledger.settings.stale_ms, &free_bytes)) {
        snprintf(why, why_size, "waits for figures of %s that can be trusted%s%s", d->name,
                 d->why[0] ? ": " : "", d->why);
        return false;
    }
    if (w->predicted_bytes <= free_bytes)
        return true;
    snprintf(why, why_size, "waits for memory: needs %s on %s, where %s are free",
             units_format_bytes(w->predicted_bytes, need, sizeof(need)), d->name,
             units_format_bytes(free_bytes, room, sizeof(room)));
    return false;
}

/* What the pure core says of this load alone: would it fit with a shorter context, does one buffer
 * keep it out, is it the reserve? */
static struct admission_decision weigh_load(const struct gateway_worker *w,
                                            const struct ledger_view *view)
{
    const struct tier_estimate *e = w->estimate;
    bool known = e && !e->declared;
    struct admission_tier tier = {
        .name = w->tier,
        .kind = ADMISSION_TIER_GPU,
        .device = view,
        .device_bytes = {w->predicted_bytes, w->predicted_bytes},
        .largest_block_bytes = known ? e->largest_bytes : 0,
        .low_confidence = known && e->estimate.confidence == ESTIMATE_CONFIDENCE_LOW,
        .context_tokens = known ? e->estimate.kv_tokens : 0,
        .context_slots = known ? e->settings.slots : 0,
        .bytes_per_context_token = known ? e->device_bytes_per_token : 0,
    };
    struct admission_facts facts = {
        .tiers = &tier,
        .tier_count = 1,
        .may_shrink_context = w->may_shrink_context,
        .trust_claims_alone = true, /* only where its owner vouches has a device no source */
    };
    return admission_decide(&facts);
}

/* The worker is started with the context that fits; its claim is smaller by what that saves. */
static uint64_t shrink_load(struct gateway_worker *w, const struct admission_decision *d)
{
    const struct tier_estimate *e = w->estimate;
    uint32_t slots = e->settings.slots > 0 ? e->settings.slots : 1;
    uint64_t fewer = e->estimate.kv_tokens - d->context_tokens;
    w->short_context = (uint32_t)(d->context_tokens / slots);
    worker_set_context_tokens(w->worker, w->short_context);
    log_warning("device", "%s/%s: is started with a context of %u tokens instead of %u: %s",
                w->service, w->tier, (unsigned)w->short_context,
                (unsigned)(e->estimate.kv_tokens / slots), d->reason);
    return w->predicted_bytes - fewer * e->device_bytes_per_token;
}

static void describe_refusal(const struct gateway_device *d, const struct gateway_worker *w,
                             const struct ledger_view *view, const struct admission_decision *load,
                             char *why, size_t why_size)
{
    char place[DEVICE_NAME_MAX + 8], bytes[24];
    uint64_t block = w->estimate && !w->estimate->declared ? w->estimate->largest_bytes : 0;
    if (view->trust == LEDGER_TRUST_STALE || view->trust == LEDGER_TRUST_BROKEN) {
        snprintf(why, why_size, "waits for figures of %s that can be trusted (%s)%s%s", d->name,
                 ledger_trust_name(view->trust), d->why[0] ? ": " : "", d->why);
        return;
    }
    if (view->largest_bytes > 0 && block > view->largest_bytes) {
        snprintf(why, why_size, "waits for memory: %s", load->reason);
        return;
    }
    snprintf(place, sizeof(place), " on %s", view->name);
    device_describe_lack(view, w->predicted_bytes, place, "", why, why_size);
    size_t used = strlen(why);
    uint32_t slots =
        w->estimate && w->estimate->settings.slots > 0 ? w->estimate->settings.slots : 1;
    if (load->would_fit_context > 0 && used < why_size)
        used +=
            (size_t)snprintf(why + used, why_size - used, "; a context of %" PRIu64 " would fit",
                             load->would_fit_context / slots);
    if (load->margin_bytes > 0 && used < why_size)
        snprintf(why + used, why_size - used, "; the reserve alone prevents it, by %s",
                 units_format_bytes(load->margin_bytes, bytes, sizeof(bytes)));
}

/*
 * Would the load be undone at once? A worker that is started while the device is under critical pressure
 * is the next to yield, and so is one that would make it critical with what others have just taken, which
 * counts as if it went on. That passes with the window; then the load stays.
 */
static bool would_stay(struct gateway_device *d, uint64_t bytes, char *why, size_t why_size)
{
    const struct gateway_device *pool = device_pool(d);
    struct ledger_view view = ledger_view(&pool->ledger, uv_now(d->gateway->loop));
    struct pressure_facts facts = {.headroom_bytes = view.headroom_bytes,
                                   .reserve_bytes = view.reserve_bytes};
    const struct pressure *p = &pool->pressure;
    bool grew = p->grown_bytes > 0;
    char size[24], time[24];
    if (p->level == PRESSURE_LEVEL_CRITICAL) {
        snprintf(why, why_size, "waits: critical memory pressure on %s, others hold %s", d->name,
                 units_format_bytes(view.foreign_bytes, size, sizeof(size)));
        return false;
    }
    if (!grew || pressure_with(p, &facts, bytes) < PRESSURE_LEVEL_CRITICAL)
        return true;
    snprintf(why, why_size, "waits: others took %s on %s within %s, and may take as much again",
             units_format_bytes(p->grown_bytes, size, sizeof(size)), d->name,
             units_format_duration_ms(p->settings.window_ms, time, sizeof(time)));
    return false;
}

/* The device's own ledger: claims there. False: not now; *ret_lasting when that is no matter of a
 * moment, as first figures, an estimate or memory on its way back are. */
static bool may_start_on(struct gateway_device *d, struct gateway_worker *w, char *why,
                         size_t why_size, bool *ret_lasting)
{
    uint64_t now_ms = uv_now(w->gateway->loop);
    bool decides = w->gateway->admission;
    if (decides && !may_be_looked_at(d, w, now_ms, why, why_size, ret_lasting))
        return false;
    w->learn.key.device = fingerprint_device(d->name, d->kind, d->ledger.total_bytes);
    if (decides && learn_asks(d, w, why, why_size))
        return false;
    if (!learn_before_start(d, w, why, why_size) && decides) {
        *ret_lasting = true;
        return false;
    }
    if (d->shared)
        return !decides || (fits_driver(d, w, now_ms, why, why_size) &&
                            would_stay(d, w->predicted_bytes, why, why_size));
    device_claim_release(&d->ledger, &w->claim, now_ms);
    struct ledger_view view = ledger_view(&d->ledger, now_ms);
    struct admission_decision load = weigh_load(w, &view);
    uint64_t bytes = w->predicted_bytes;
    if (w->short_context > 0)
        worker_set_context_tokens(w->worker, w->short_context = 0);
    if (decides && load.action == ADMISSION_ACTION_SHRINK)
        bytes = shrink_load(w, &load);
    bool blocked = load.action == ADMISSION_ACTION_REFUSE && w->predicted_bytes > 0;
    bool vouched = view.trust == LEDGER_TRUST_NONE && view.headroom_bytes >= 0 &&
                   (uint64_t)view.headroom_bytes >= bytes;
    struct ledger_request request = {
        .bytes = bytes,
        /* What cannot be predicted is measured once it runs. */
        .adopt = !decides || vouched || w->predicted_bytes == 0,
    };
    bool refused = decides && blocked;
    bool fits = !refused && (request.adopt || (int64_t)bytes <= view.admissible_bytes);
    if (decides && fits && !would_stay(d, bytes, why, why_size))
        return false;
    if (!refused && (device_claim_open(&d->ledger, w, request, now_ms, &w->claim) == 0 || !decides))
        return true;
    describe_refusal(d, w, &view, &load, why, why_size);
    *ret_lasting = view.trust == LEDGER_TRUST_FRESH && view.releasing_bytes == 0;
    return false;
}

void device_hold_back(struct gateway_worker *w, bool lasting, const char *why)
{
    if (lasting == w->held_back)
        return;
    w->held_back = lasting;
    if (lasting)
        log_warning("device", "%s/%s: %s", w->service, w->tier, why);
    gateway_worker_pump(w);
}

bool devices_may_start(struct gateway_worker *w, char *why, size_t why_size)
{
    struct gateway_device *d = w->on;
    bool lasting = false;
    if (d && !may_start_on(d, w, why, why_size, &lasting)) {
        device_hold_back(w, lasting, why);
        return false;
    }
    if (device_host_may_start(w, why, why_size))
        return true;
    if (d && w->claim != LEDGER_CLAIM_NONE)
        (void)ledger_claim_cancel(&d->ledger, w->claim);
    w->claim = LEDGER_CLAIM_NONE;
    return false;
}

void device_start_those_that_wait(struct gateway_device *d)
{
    LIST_FOR_EACH(node, &d->gateway->workers)
    {
        struct gateway_worker *w = LIST_ENTRY(node, struct gateway_worker, node);
        if (device_has_worker(d, w) && !w->stopping)
            worker_look_again(w->worker);
    }
}
