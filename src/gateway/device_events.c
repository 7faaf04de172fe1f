/*
 * What telemetry tells of a device beside its figures, and what follows for the workers on it, before
 * any request has failed:
 *
 *   Xid or driver's line: needs a reset, lost   its workers are suspended and started anew (F18, F19)
 *   … that ends one process                     nothing: that process's exit is seen (Xid 13, 31)
 *   the machine slept                           its workers are suspended: what a driver is after a
 *                                               sleep, one real request has to show (F15)
 *   a call to the driver does not come back     nothing new is sent there until it does (F18)
 *   free memory that our loads do not move      its figures are not believed (F44)
 *
 * Loop thread only.
 */
#include "gateway/devices.h"

#include "base/log.h"
#include "base/units.h"

#include <stdio.h>
#include <string.h>

static void suspend_workers(struct gateway_device *d, const char *why, bool restart)
{
    LIST_FOR_EACH(node, &d->gateway->workers)
    {
        struct gateway_worker *w = LIST_ENTRY(node, struct gateway_worker, node);
        if (w->worker && !w->stopping && w->on == d)
            gateway_worker_suspend(w, why, restart);
    }
}

static void on_trouble(struct gateway_device *d, const struct device_event *event)
{
    char why[DEVICE_WHY_MAX + 64];
    switch (event->fault) {
    case DEVICE_FAULT_NONE:
    case DEVICE_FAULT_APPLICATION:
    case DEVICE_FAULT_SUSPECT:
        log_info("device", "%s: %s: %s", d->name, device_fault_name(event->fault), event->text);
        return;
    case DEVICE_FAULT_RESET:
    case DEVICE_FAULT_LOST: break;
    }
    snprintf(why, sizeof(why), "%s, by its driver: %s",
             event->fault == DEVICE_FAULT_LOST ? "device-lost" : "the device needs a reset",
             event->text);
    log_warning("device", "%s: %s", d->name, why);
    suspend_workers(d, why, true);
}

static void on_resume(struct gateway_device *d, uint64_t slept_ms)
{
    char why[128], time[24];
    snprintf(why, sizeof(why), "the machine slept for %s; whether %s still works is to be seen",
             units_format_duration_ms(slept_ms, time, sizeof(time)), d->name);
    log_warning("device", "%s: %s", d->name, why);
    suspend_workers(d, why, false);
}

static void on_hang(struct gateway_device *d, bool hung)
{
    if (d->hung == hung)
        return;
    d->hung = hung;
    log_warning("device", "%s: its driver %s", d->name,
                hung ? "does not answer: nothing new is sent to it" : "answers again");
    LIST_FOR_EACH(node, &d->gateway->workers)
    {
        struct gateway_worker *w = LIST_ENTRY(node, struct gateway_worker, node);
        if (w->on == d && w->worker)
            gateway_worker_pump(w);
    }
}

void device_on_event(void *ctx, const char *device, const struct device_event *event)
{
    struct gateway *g = ctx;
    if (g->stopping || !g->admission)
        return;
    LIST_FOR_EACH(node, &g->devices)
    {
        struct gateway_device *d = LIST_ENTRY(node, struct gateway_device, node);
        /* A sleep is everybody's; anything else about nobody is no reason to suspend anything. */
        bool meant = device ? strcmp(device, d->name) == 0 : event->kind == DEVICE_EVENT_RESUMED;
        if (!meant)
            continue;
        switch (event->kind) {
        case DEVICE_EVENT_XID:
        case DEVICE_EVENT_FAULT: on_trouble(d, event); break;
        case DEVICE_EVENT_RESUMED: on_resume(d, event->slept_ms); break;
        case DEVICE_EVENT_HUNG: on_hang(d, true); break;
        case DEVICE_EVENT_UNHUNG: on_hang(d, false); break;
        }
    }
}

bool device_moves(struct gateway_device *d, const struct device_sample *sample)
{
    uint64_t own = 0;
    if (!(sample->has & DEVICE_HAS_FREE))
        return true;
    LIST_FOR_EACH(node, &d->gateway->workers)
    {
        struct gateway_worker *w = LIST_ENTRY(node, struct gateway_worker, node);
        /* By the engine's own word: it is ready, and so holds at least its weights and cache. */
        if (device_has_worker(d, w) && worker_get_state(w->worker) == WORKER_STATE_READY &&
            w->estimate && !w->estimate->declared)
            own += w->estimate->floor_bytes;
    }
    bool before = d->free_watch.unreliable;
    bool unreliable = free_watch_step(&d->free_watch, sample->free_bytes, own);
    if (unreliable && !before)
        log_warning(
            "device",
            "%s: its free memory is the same whatever is loaded: its figures are not believed",
            d->name);
    return !unreliable;
}
