/*
 * External workers on a device that has to be given back: somebody else's server holds memory there
 * and can only be asked to let go of it (unload.h).
 *
 *   serves ─► yielded: no new requests ─► running ones ended, or the drain time has: asked to unload, once
 *     ▲                                        │
 *     └── there has been room for a while ◄────┴─► its memory is seen to come back, or some time passes
 *
 * It has no claim: what it uses is foreign to the ledger. So its answer changes nothing there, and what
 * starts on the device goes by what telemetry says is free. What came back is the drop of foreign memory
 * since it was asked, and the room that it needs to return.
 *
 * Under pressure those that failsoft runs go first, since their memory is sure to come back; then the
 * external one that has been idle longest, one at a time. One that has no way to unload goes on
 * serving then: taking it out of service would bring nothing. By hand all of them yield, and the
 * reason says which one cannot be helped.
 *
 * Loop thread only.
 */
#include "gateway/devices.h"

#include "base/log.h"
#include "base/units.h"

#include <stdio.h>
#include <string.h>

enum {
    /* Memory that is not back by then was not there, or somebody else has it: as for our own. */
    EXTERNAL_RELEASE_MS = 15000,
    /* Less is noise: caches of the driver, a page of a browser. */
    EXTERNAL_SEEN_BYTES = 64 * 1024 * 1024,
    /* So many times `back_after` without pressure: it may try with the room there is. */
    EXTERNAL_PATIENCE = 60,
};

static bool device_has_external(const struct gateway_device *d, const struct gateway_worker *w)
{
    return w->worker && !w->stopping && !worker_is_managed(w->worker) && w->on == d;
}

static bool by_hand(const struct gateway_device *d, uint64_t now_ms)
{
    return now_ms < d->yield_until_ms;
}

/* --- yielding --- */

void device_external_yield(struct gateway_device *d, struct gateway_worker *w, const char *why)
{
    struct gateway_unload *u = &w->unload;
    if (w->yielded)
        return;
    comeback_init(&w->comeback, 0, d->back_after_ms);
    u->calm_since_ms = 0;
    u->outcome = UNLOAD_NONE;
    u->seen = false;
    u->came_bytes = 0;
    w->need_bytes = 0;
    device_yield_worker(w, why);
    u->why_length = (uint32_t)strlen(w->yield_text);
}

void device_external_yield_all(struct gateway_device *d, const char *why)
{
    LIST_FOR_EACH(node, &d->gateway->workers)
    {
        struct gateway_worker *w = LIST_ENTRY(node, struct gateway_worker, node);
        if (!device_has_external(d, w))
            continue;
        w->unload.single_model = false; /* another server may listen there by now */
        device_external_yield(d, w, why);
    }
}

static bool is_giving(const struct gateway_worker *w, uint64_t now_ms)
{
    const struct gateway_unload *u = &w->unload;
    if (!w->yielded)
        return false;
    if (!w->yield_stopped || u->outcome == UNLOAD_ASKED)
        return true;
    return u->outcome == UNLOAD_DONE && !u->seen && now_ms - u->answered_ms < EXTERNAL_RELEASE_MS;
}

bool device_external_is_giving(const struct gateway_device *d, uint64_t now_ms)
{
    LIST_FOR_EACH(node, &d->gateway->workers)
    {
        struct gateway_worker *w = LIST_ENTRY(node, struct gateway_worker, node);
        if (device_has_external(d, w) && is_giving(w, now_ms))
            return true;
    }
    return false;
}

/* Idle before busy, then by its last output. */
static bool is_idler(const struct gateway_worker *a, const struct gateway_worker *b)
{
    if ((a->running > 0) != (b->running > 0))
        return a->running == 0;
    return a->last_event_ms < b->last_event_ms;
}

struct gateway_worker *device_external_next(const struct gateway_device *d)
{
    struct gateway_worker *next = NULL;
    LIST_FOR_EACH(node, &d->gateway->workers)
    {
        struct gateway_worker *w = LIST_ENTRY(node, struct gateway_worker, node);
        if (device_has_external(d, w) && !w->yielded && unload_is_known(w) &&
            (!next || is_idler(w, next)))
            next = w;
    }
    return next;
}

/* --- what came of it --- */

/* Its memory may be coming back just now. */
static bool is_measured(const struct gateway_worker *w, uint64_t now_ms)
{
    const struct gateway_unload *u = &w->unload;
    if (!w->yielded || !w->yield_stopped || u->seen)
        return false;
    return u->outcome == UNLOAD_ASKED ||
           (u->outcome == UNLOAD_DONE && now_ms - u->answered_ms < EXTERNAL_RELEASE_MS);
}

static void note_release(const struct gateway_device *d, struct gateway_worker *w, uint64_t bytes)
{
    struct gateway_unload *u = &w->unload;
    u->came_bytes += bytes;
    if (u->came_bytes < EXTERNAL_SEEN_BYTES)
        return;
    w->need_bytes = u->came_bytes;
    if (bytes > EXTERNAL_SEEN_BYTES / 4 || u->outcome != UNLOAD_DONE)
        return; /* there may be more of it */
    u->seen = true;
    char text[24];
    log_info("device", "%s/%s: %s of %s came back", w->service, w->tier,
             units_format_bytes(w->need_bytes, text, sizeof(text)), d->name);
}

/* By how much foreign memory is less than at the last sample, in equal parts to those that were asked:
 * whose it was nobody tells. */
static void note_releases(struct gateway_device *d, uint64_t now_ms)
{
    uint64_t now_bytes = device_pool(d)->ledger.base_bytes;
    uint64_t less = d->foreign_before > now_bytes ? d->foreign_before - now_bytes : 0;
    unsigned count = 0;
    d->foreign_before = now_bytes;
    LIST_FOR_EACH(node, &d->gateway->workers)
    {
        struct gateway_worker *w = LIST_ENTRY(node, struct gateway_worker, node);
        count += device_has_external(d, w) && is_measured(w, now_ms);
    }
    LIST_FOR_EACH(node, &d->gateway->workers)
    {
        struct gateway_worker *w = LIST_ENTRY(node, struct gateway_worker, node);
        if (count > 0 && device_has_external(d, w) && is_measured(w, now_ms))
            note_release(d, w, less / count);
    }
}

/* The reason of the yield stays in front; what is known of the rest goes behind it. */
static void describe(const struct gateway_device *d, struct gateway_worker *w, uint64_t now_ms)
{
    const struct gateway_unload *u = &w->unload;
    size_t size = sizeof(w->yield_text);
    char *out = w->yield_text, bytes[24];
    size_t used = u->why_length < size ? u->why_length : size - 1;
    out[used] = '\0';
    out += used;
    size -= used;
    if (!w->yield_stopped) {
        snprintf(out, size, "; finishes what runs there");
        return;
    }
    switch (u->outcome) {
    case UNLOAD_NONE: break;
    case UNLOAD_ASKED: snprintf(out, size, "; asked to unload"); break;
    case UNLOAD_EMPTY: snprintf(out, size, "; it says that it holds no model"); break;
    case UNLOAD_IMPOSSIBLE:
        snprintf(out, size, ", and failsoft cannot make it give memory back: set `unload`");
        break;
    case UNLOAD_FAILED: snprintf(out, size, "; its unload failed: %s", u->why); break;
    case UNLOAD_DONE:
        if (w->need_bytes > 0)
            snprintf(out, size, "; %s of %s came back",
                     units_format_bytes(w->need_bytes, bytes, sizeof(bytes)), d->name);
        else if (now_ms - u->answered_ms < EXTERNAL_RELEASE_MS)
            snprintf(out, size, "; it was asked to unload, and its memory is not back yet");
        else
            snprintf(out, size, "; it was asked to unload, and no memory came back");
        break;
    }
}

static void ask_drained(struct gateway_worker *w, uint64_t now_ms)
{
    if (w->yield_stopped || (w->running > 0 && now_ms - w->yielded_ms < DEVICE_DRAIN_MS))
        return;
    w->yield_stopped = true;
    unload_start(w);
    if (w->unload.outcome == UNLOAD_IMPOSSIBLE)
        log_warning("device",
                    "%s/%s: failsoft cannot make it give memory back: set `unload` of the tier",
                    w->service, w->tier);
}

/* --- coming back --- */

static bool may_return(struct gateway_device *d, const struct ledger_view *view,
                       struct gateway_worker *w, uint64_t now_ms)
{
    enum pressure_level level = device_pressure(d);
    if (by_hand(d, now_ms) || !w->yield_stopped || is_giving(w, now_ms))
        return false;
    if (w->unload.outcome == UNLOAD_IMPOSSIBLE)
        return true; /* staying away brings nothing */
    if (w->need_bytes == 0)
        /* It holds what it held, or nothing: no room has to be found, and it is in the figures. */
        return comeback_update(&w->comeback, 0, 0,
                               level == PRESSURE_LEVEL_CRITICAL ? level : PRESSURE_LEVEL_NORMAL,
                               now_ms);
    if (comeback_update(&w->comeback, view->admissible_bytes, w->need_bytes, level, now_ms))
        return true;
    /* It may have held more than the reserve leaves to anybody: such room never comes. */
    if (level != PRESSURE_LEVEL_NORMAL || w->unload.calm_since_ms == 0)
        w->unload.calm_since_ms = now_ms;
    return now_ms - w->unload.calm_since_ms > EXTERNAL_PATIENCE * d->back_after_ms;
}

static void bring_back(struct gateway_device *d, struct gateway_worker *w)
{
    log_info("device", "%s/%s: takes requests again on %s", w->service, w->tier, d->name);
    w->yielded = false;
    w->yield_stopped = false;
    w->unload.outcome = UNLOAD_NONE;
    gateway_worker_pump(w);
    /* What it loads is seen only then: the others wait anew. */
    LIST_FOR_EACH(node, &d->gateway->workers)
    {
        struct gateway_worker *other = LIST_ENTRY(node, struct gateway_worker, node);
        if (device_has_external(d, other))
            other->comeback.waiting = false;
    }
}

void device_external_step(struct gateway_device *d, const struct ledger_view *view, bool may_come,
                          uint64_t now_ms)
{
    note_releases(d, now_ms);
    LIST_FOR_EACH(node, &d->gateway->workers)
    {
        struct gateway_worker *w = LIST_ENTRY(node, struct gateway_worker, node);
        if (!device_has_external(d, w))
            continue;
        if (!w->yielded && by_hand(d, now_ms)) /* new since: a reload */
            device_external_yield(d, w, "its device is given back by hand");
        if (!w->yielded)
            continue;
        ask_drained(w, now_ms);
        describe(d, w, now_ms);
        if (may_come && may_return(d, view, w, now_ms)) {
            bring_back(d, w);
            may_come = false;
        }
    }
}
