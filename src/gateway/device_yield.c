/*
 * Giving a device's memory back in time: under critical pressure from others, or because its owner
 * asks for it. A worker that yields takes no new requests; it is stopped when its running ones have
 * ended or the drain time has passed, and started again when there has been room for a while.
 *
 * Loop thread only.
 */
#include "gateway/devices.h"

#include "base/log.h"
#include "base/units.h"

#include <errno.h>
#include <stdio.h>

void device_yield_worker(struct gateway_worker *w, const char *why)
{
    if (w->yielded)
        return;
    w->yielded = true;
    w->yielded_ms = uv_now(w->gateway->loop);
    /* What it will need again. */
    w->need_bytes = w->measured_bytes > 0 ? w->measured_bytes : w->need_bytes;
    snprintf(w->yield_text, sizeof(w->yield_text), "yielded: %s", why);
    log_warning("device", "%s/%s: %s", w->service, w->tier, w->yield_text);
    gateway_worker_pump(w);
}

static void describe_pressure(const struct ledger_view *v, const char *level, char *out,
                              size_t size)
{
    char foreign[24], total[24], room[24];
    uint64_t magnitude =
        v->headroom_bytes < 0 ? (uint64_t)-v->headroom_bytes : (uint64_t)v->headroom_bytes;
    snprintf(out, size, "%s memory pressure on %s: others hold %s of %s, headroom %s%s", level,
             v->name, units_format_bytes(v->foreign_bytes, foreign, sizeof(foreign)),
             units_format_bytes(v->total_bytes, total, sizeof(total)),
             v->headroom_bytes < 0 ? "-" : "", units_format_bytes(magnitude, room, sizeof(room)));
}

/* One at a time: what it gives back may be enough. The one of ours that holds most goes first; those
 * that are not ours when none is left. */
static void yield_under_pressure(struct gateway_device *d, const struct ledger_view *view,
                                 uint64_t now_ms)
{
    struct gateway_worker *most = NULL;
    LIST_FOR_EACH(node, &d->gateway->workers)
    {
        struct gateway_worker *w = LIST_ENTRY(node, struct gateway_worker, node);
        if (!device_has_worker(d, w) || w->stopping)
            continue;
        if (w->yielded && worker_pid(w->worker) != 0)
            return; /* still giving back */
        if (!w->yielded && worker_pid(w->worker) != 0 &&
            (!most || w->measured_bytes > most->measured_bytes))
            most = w;
    }
    if (view->releasing_bytes > 0 || device_external_is_giving(d, now_ms))
        return;
    char why[160];
    describe_pressure(view, pressure_level_name(device_pressure(d)), why, sizeof(why));
    struct gateway_worker *external = most ? NULL : device_external_next(d);
    if (most)
        device_yield_worker(most, why);
    else if (external)
        device_external_yield(d, external, why);
}

/* A worker that yields is stopped when its requests have ended, or the drain time has. */
static void stop_drained(struct gateway_device *d, uint64_t now_ms)
{
    LIST_FOR_EACH(node, &d->gateway->workers)
    {
        struct gateway_worker *w = LIST_ENTRY(node, struct gateway_worker, node);
        if (!device_has_worker(d, w) || !w->yielded || w->yield_stopped || w->stopping)
            continue;
        if (w->running > 0 && now_ms - w->yielded_ms < DEVICE_DRAIN_MS)
            continue;
        w->yield_stopped = true;
        worker_stop(w->worker, NULL, NULL);
    }
}

/* True: one comes back. */
static bool bring_back(struct gateway_device *d, const struct ledger_view *view, uint64_t now_ms)
{
    if (now_ms < d->yield_until_ms)
        return false;
    LIST_FOR_EACH(node, &d->gateway->workers)
    {
        struct gateway_worker *w = LIST_ENTRY(node, struct gateway_worker, node);
        if (!device_has_worker(d, w) || !w->yield_stopped || w->stopping)
            continue;
        if (!comeback_update(&w->comeback, view->admissible_bytes, w->need_bytes,
                             device_pressure(d), now_ms))
            continue;
        log_info("device", "%s/%s: there has been room on %s for a while, it comes back",
                 w->service, w->tier, d->name);
        w->yielded = false;
        w->yield_stopped = false;
        worker_start(w->worker);
        return true; /* one at a time: the next one is judged with this one's claim */
    }
    return false;
}

void device_yield_step(struct gateway_device *d, const struct ledger_view *view, uint64_t now_ms)
{
    if (device_pressure(d) == PRESSURE_LEVEL_CRITICAL && view->trust == LEDGER_TRUST_FRESH &&
        d->gateway->admission)
        yield_under_pressure(d, view, now_ms);
    stop_drained(d, now_ms);
    bool comes = bring_back(d, view, now_ms);
    device_external_step(d, view, !comes, now_ms);
}

/* --- by hand --- */

int gateway_device_yield(struct gateway *g, struct span name, uint64_t for_ms)
{
    LIST_FOR_EACH(node, &g->devices)
    {
        struct gateway_device *d = LIST_ENTRY(node, struct gateway_device, node);
        if (!span_equals_str(name, d->name))
            continue;
        uint64_t now_ms = uv_now(g->loop);
        d->yield_until_ms = for_ms > 0 ? now_ms + for_ms : 0;
        char why[96], time[24];
        snprintf(why, sizeof(why), "asked to give %s back for %s", d->name,
                 units_format_duration_ms(for_ms, time, sizeof(time)));
        LIST_FOR_EACH(wnode, &g->workers)
        {
            struct gateway_worker *w = LIST_ENTRY(wnode, struct gateway_worker, node);
            if (for_ms > 0 && device_has_worker(d, w) && !w->stopping)
                device_yield_worker(w, why);
        }
        if (for_ms > 0)
            device_external_yield_all(d, why);
        stop_drained(d, now_ms);
        struct ledger_view view = ledger_view(&device_pool(d)->ledger, now_ms);
        device_external_step(d, &view, false, now_ms);
        return 0;
    }
    return -ENOENT;
}
