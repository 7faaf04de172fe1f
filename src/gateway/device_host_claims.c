/*
 * What each worker holds of the machine's memory: opened before its engine starts, with what the
 * process is predicted to take, its prompt cache included, and released when it is gone.
 *
 * A running worker's claim holds what it needs to run well, not what happens to be resident: mapped
 * weights that the kernel dropped are read again at the next token, a buffer that was allocated and
 * not touched yet will be, and a prompt cache grows up to its cap.
 *
 *     held = greater of  resident,  base + cap of the prompt cache
 *     base = greater of  what was resident when it became ready,  what it is expected to touch
 *
 * Where the machine tells nothing, unknown is not free, but the CPU is the last resort: its workers
 * are then started one at a time. Workers on a device are not held up, as they take little.
 *
 * Loop thread only.
 */
#include "gateway/devices.h"

#include "base/log.h"
#include "base/units.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    HOST_FIRST_SAMPLE_MS = 3000, /* after that, a machine that tells nothing */
    HOST_STEADY_SHARE = 64,      /* of its bytes: it no longer grows */
};

#define HOST_STEADY_BYTES (UINT64_C(8) << 20)

static struct gateway_device *pool_of(const struct gateway_worker *w)
{
    return &w->gateway->host.pool;
}

/* What it takes of its device is the machine's memory, too: of an integrated one, and of a simulated
 * one, which lives in the engine's own memory. A program that is not ggml takes none there: what the
 * card holds for it is a number. */
static uint64_t device_part(const struct gateway_worker *w)
{
    const struct gateway_device *d = w->on;
    bool in_engine =
        d && d->kind == CONFIG_DEVICE_KIND_SIM && worker_get_options(w->worker)->command_count == 0;
    if (!d || !(d->shared || in_engine))
        return 0;
    return w->predicted_bytes > w->host_apart_bytes ? w->predicted_bytes - w->host_apart_bytes : 0;
}

/* 0: not known. */
static uint64_t need_bytes(const struct gateway_worker *w)
{
    if (w->host_predicted_bytes == 0)
        return 0;
    return w->host_predicted_bytes + w->host_cache_bytes + device_part(w);
}

static uint64_t bounded(uint64_t bytes)
{
    return bytes < LEDGER_BYTES_MAX ? bytes : LEDGER_BYTES_MAX;
}

void devices_host_predicted(struct gateway_worker *w, uint64_t upper_bytes, uint64_t expected_bytes,
                            uint64_t cache_bytes)
{
    w->host_predicted_bytes = bounded(upper_bytes);
    w->host_expected_bytes = bounded(expected_bytes < upper_bytes ? expected_bytes : upper_bytes);
    w->host_cache_bytes = bounded(cache_bytes);
}

/* --- a running worker --- */

uint64_t device_host_held_bytes(const struct gateway_worker *w)
{
    uint64_t base = w->host_expected_bytes + (w->host_expected_bytes > 0 ? device_part(w) : 0);
    if (w->host_base_bytes > base)
        base = w->host_base_bytes;
    base += w->host_cache_bytes;
    return w->host_measured_bytes > base ? w->host_measured_bytes : base;
}

void device_host_settle(struct gateway_worker *w, uint64_t bytes, uint64_t now_ms)
{
    struct ledger *l = &pool_of(w)->ledger;
    uint64_t before = w->host_measured_bytes;
    uint64_t slack = bytes / HOST_STEADY_SHARE;
    slack = slack > HOST_STEADY_BYTES ? slack : HOST_STEADY_BYTES;
    bool steady = before > 0 && bytes <= before + slack;
    w->host_measured_bytes = bytes;
    if (w->host_claim == LEDGER_CLAIM_NONE) {
        uint32_t pid = (uint32_t)worker_pid(w->worker);
        struct ledger_request seen = {.bytes = bytes, .pid = pid, .adopt = true};
        if (device_claim_open(l, w, seen, now_ms, &w->host_claim) < 0)
            return;
    }
    bool settled =
        worker_get_state(w->worker) == WORKER_STATE_READY && (w->host_base_bytes > 0 || steady);
    if (!settled) {
        /* Still loading, and above what it claimed: then that was no upper bound. */
        const struct ledger_claim *claim = ledger_claim_find(l, w->host_claim);
        if (claim && bytes > claim->held_bytes)
            (void)ledger_claim_settle(l, w->host_claim, bytes, now_ms);
        return;
    }
    if (w->host_base_bytes == 0)
        w->host_base_bytes = bytes;
    (void)ledger_claim_settle(l, w->host_claim, device_host_held_bytes(w), now_ms);
}

/* --- starting --- */

static const struct gateway_worker *loading_on_cpu(const struct gateway_worker *besides)
{
    LIST_FOR_EACH(node, &besides->gateway->workers)
    {
        const struct gateway_worker *w = LIST_ENTRY(node, struct gateway_worker, node);
        if (w != besides && w->worker && worker_is_managed(w->worker) && !w->on &&
            worker_get_state(w->worker) == WORKER_STATE_LOADING)
            return w;
    }
    return NULL;
}

/* Workers that nobody can say anything about, one after the other. */
static bool is_its_turn(const struct gateway_worker *w, const char *what, char *why,
                        size_t why_size)
{
    const struct gateway_worker *other = loading_on_cpu(w);
    if (!other)
        return true;
    snprintf(why, why_size, "waits until %s/%s is loaded: %s", other->service, other->tier, what);
    return false;
}

static bool may_be_looked_at(const struct gateway_worker *w, uint64_t now_ms, char *why,
                             size_t why_size)
{
    const struct gateway_host *h = &w->gateway->host;
    bool on_cpu = !w->on;
    if (w->predict_job) {
        snprintf(why, why_size, "its memory is being estimated");
        return false;
    }
    if (!h->told && now_ms - h->pool.since_ms < HOST_FIRST_SAMPLE_MS) {
        snprintf(why, why_size, "waits for the first figures of the machine's memory");
        return false;
    }
    if (on_cpu && h->stalled) {
        snprintf(why, why_size,
                 "waits: the machine is short of memory, its processes wait for it %" PRIu32
                 " %% of the time",
                 h->stall_pct);
        return false;
    }
    if (on_cpu && h->pool.pressure.level == PRESSURE_LEVEL_CRITICAL) {
        snprintf(why, why_size, "waits: critical memory pressure on this machine");
        return false;
    }
    if (on_cpu && !h->pool.ledger.sampled)
        return is_its_turn(w, "the memory of this machine cannot be told", why, why_size);
    if (on_cpu && need_bytes(w) == 0)
        return is_its_turn(w, "what this one needs is not known", why, why_size);
    return true;
}

static void say_lack(const struct gateway_worker *w, const struct ledger_view *view, char *why,
                     size_t why_size)
{
    const struct gateway_host *h = &w->gateway->host;
    if (view->trust == LEDGER_TRUST_STALE || view->trust == LEDGER_TRUST_BROKEN)
        snprintf(why, why_size,
                 "waits for figures of the machine's memory that can be trusted "
                 "(%s)%s%s",
                 ledger_trust_name(view->trust), h->pool.why[0] ? ": " : "", h->pool.why);
    else
        device_describe_lack(view, need_bytes(w), " of the machine", h->limit, why, why_size);
}

static bool claim_room(struct gateway_worker *w, char *why, size_t why_size)
{
    struct gateway_device *pool = pool_of(w);
    uint64_t now_ms = uv_now(w->gateway->loop);
    bool decides = w->gateway->admission;
    if (decides && !may_be_looked_at(w, now_ms, why, why_size))
        return false;
    device_claim_release(&pool->ledger, &w->host_claim, now_ms);
    w->host_measured_bytes = w->host_base_bytes = 0;
    struct ledger_view view = ledger_view(&pool->ledger, now_ms);
    uint64_t need = need_bytes(w);
    bool unknown = need == 0 || !pool->ledger.sampled;
    struct ledger_request request = {.bytes = need, .adopt = !decides || unknown};
    /* Of what is not known, at least something has to be left. */
    bool nothing_left = need == 0 && pool->ledger.sampled && view.admissible_bytes <= 0;
    if (decides && nothing_left) {
        say_lack(w, &view, why, why_size);
        return false;
    }
    if (device_claim_open(&pool->ledger, w, request, now_ms, &w->host_claim) == 0 || !decides)
        return true;
    say_lack(w, &view, why, why_size);
    /* Memory of an ended process is seen to be back by samples: have the next one soon. */
    if (view.releasing_bytes > 0 && w->gateway->monitor)
        device_monitor_poke(w->gateway->monitor, NULL);
    return false;
}

bool device_host_may_start(struct gateway_worker *w, char *why, size_t why_size)
{
    const struct gateway_host *h = &w->gateway->host;
    bool room = claim_room(w, why, why_size);
    struct ledger_view view = ledger_view(&h->pool.ledger, uv_now(w->gateway->loop));
    /* Not while it is only a matter of a moment: the first figures, an estimate, memory on its way. */
    device_hold_back(w, !room && !w->predict_job && h->told && view.releasing_bytes == 0, why);
    return room;
}

/* --- changes --- */

void device_host_worker_changed(struct gateway_worker *w, enum worker_state to)
{
    struct gateway_device *pool = pool_of(w);
    if (!w->worker || !worker_is_managed(w->worker))
        return;
    bool ended =
        to == WORKER_STATE_BACKOFF || to == WORKER_STATE_FAILED || to == WORKER_STATE_STOPPED;
    if (to == WORKER_STATE_LOADING)
        (void)ledger_claim_set_pid(&pool->ledger, w->host_claim, (uint32_t)worker_pid(w->worker));
    if (ended && w->host_claim != LEDGER_CLAIM_NONE) {
        device_claim_release(&pool->ledger, &w->host_claim, uv_now(w->gateway->loop));
        w->host_measured_bytes = w->host_base_bytes = 0;
        if (w->gateway->monitor)
            device_monitor_poke(w->gateway->monitor, NULL);
    }
    if (ended || to == WORKER_STATE_LOADING)
        device_host_watch(w->gateway);
}

void device_host_worker_gone(struct gateway_worker *w)
{
    device_claim_release(&pool_of(w)->ledger, &w->host_claim, uv_now(w->gateway->loop));
}
