/*
 * The memory of devices and host, looked at once, with the ledger's own arithmetic: what is used is
 * somebody else's, the reserve is not planned with, unknown is not free. Threads of a monitor ask
 * the drivers; one that hangs is left behind when the time is over.
 */
#include "cli/plan.h"

#include "config/device_spec.h"
#include "device/monitor.h"
#include "policy/ledger.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct look {
    struct plan *plan;
    struct device_monitor *monitor;
    uv_loop_t loop;
    uv_timer_t deadline;
    bool closing;
    size_t waiting;  /* places without an answer yet */
    bool answered[]; /* one a place */
};

struct plan_place *plan_host(const struct plan *p)
{
    return &p->places[p->place_count - 1];
}

/* --- from samples to places --- */

static void add_holder(struct plan_place *place, const char *name, int32_t pid, uint64_t bytes)
{
    struct plan_holder *h;

    if (place->holder_count == PLAN_HOLDERS_MAX || bytes == 0)
        return;
    h = &place->holders[place->holder_count++];
    snprintf(h->name, sizeof(h->name), "%s", name[0] != '\0' ? name : "a process");
    h->pid = pid;
    h->bytes = bytes;
}

static int more_bytes_first(const void *a, const void *b)
{
    const struct plan_holder *x = a;
    const struct plan_holder *y = b;

    return (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

/* The ledger of a place with nothing of ours in it, at the time of its one sample. */
static void take_ledger(struct plan_place *place, const struct ledger *l, uint64_t now_ms)
{
    struct ledger_view v = ledger_view(l, now_ms);

    place->total_bytes = v.total_bytes;
    place->reserve_bytes = v.reserve_bytes;
    place->foreign_bytes = v.foreign_bytes;
    place->headroom_bytes = v.headroom_bytes;
    place->known = v.trust == LEDGER_TRUST_FRESH || v.trust == LEDGER_TRUST_NONE;
}

static void init_ledger(struct ledger *l, const struct plan_place *place, const struct config *c,
                        struct ledger_claim *claim)
{
    struct ledger_settings settings = ledger_settings_default();

    settings.reserve_bytes =
        place->device != NULL ? place->device->reserve_bytes : c->host_reserve_bytes;
    settings.declared_bytes = place->device != NULL ? place->device->memory_bytes : 0;
    ledger_init(l, place->name, &settings, claim, 1);
}

/* An integrated device: its driver's own limit; what the machine can give is the host's to say. */
static void take_shared(struct plan_place *place, const struct device_sample *s)
{
    place->shared = true;
    place->known = (s->has & DEVICE_HAS_FREE) != 0;
    place->total_bytes = s->has & DEVICE_HAS_TOTAL ? s->total_bytes : s->free_bytes;
    place->headroom_bytes = s->free_bytes <= INT64_MAX ? (int64_t)s->free_bytes : INT64_MAX;
    place->foreign_bytes =
        place->total_bytes > s->free_bytes ? place->total_bytes - s->free_bytes : 0;
}

static bool is_bad(uint32_t flags)
{
    return (flags & (DEVICE_FLAG_STALE | DEVICE_FLAG_IMPOSSIBLE | DEVICE_FLAG_RESUMED |
                     DEVICE_FLAG_HUNG)) != 0;
}

static void take_device(struct plan_place *place, const struct config *c,
                        const struct device_sample *s)
{
    struct ledger_claim claim;
    struct ledger l;
    struct ledger_sample figures = {
        .taken_ms = s->sampled_at_ms,
        .total_valid = s->has & DEVICE_HAS_TOTAL,
        .used_valid = s->has & DEVICE_HAS_USED,
        .free_valid = s->has & DEVICE_HAS_FREE,
        .total_bytes = s->total_bytes,
        .used_bytes = s->used_bytes,
        .free_bytes = s->free_bytes,
    };

    snprintf(place->why, sizeof(place->why), "%s", s->why);
    if (is_bad(s->flags))
        return;
    if (place->shared ||
        (s->flags & DEVICE_FLAG_SHARED_HOST && place->device->integrated != CONFIG_SWITCH_OFF)) {
        take_shared(place, s);
        return;
    }
    init_ledger(&l, place, c, &claim);
    if (ledger_observe(&l, &figures, s->sampled_at_ms) == 0)
        take_ledger(place, &l, s->sampled_at_ms);
    for (size_t i = 0; i < s->n_processes; i++) {
        if (s->processes[i].has_bytes)
            add_holder(place, s->processes[i].program, s->processes[i].pid, s->processes[i].bytes);
    }
    qsort(place->holders, place->holder_count, sizeof(place->holders[0]), more_bytes_first);
}

static void take_host(struct plan_place *place, const struct config *c, const struct host_sample *s)
{
    struct ledger_claim claim;
    struct ledger l;
    struct ledger_sample figures = {
        .taken_ms = s->sampled_at_ms, .total_valid = true, .used_valid = true};
    uint64_t available = s->available_bytes;

    snprintf(place->why, sizeof(place->why), "%s", s->why);
    if (is_bad(s->flags) || !(s->has & HOST_HAS_AVAILABLE) || !(s->has & HOST_HAS_TOTAL))
        return;
    figures.total_bytes = s->total_bytes;
    if (s->has & HOST_HAS_CGROUP && s->cgroup_limit_bytes < figures.total_bytes)
        figures.total_bytes = s->cgroup_limit_bytes;
    if (available > figures.total_bytes)
        available = figures.total_bytes;
    figures.used_bytes = figures.total_bytes - available;
    init_ledger(&l, place, c, &claim);
    if (ledger_observe(&l, &figures, s->sampled_at_ms) == 0)
        take_ledger(place, &l, s->sampled_at_ms);
}

/* Nobody answers for it: what its owner declares counts, if nobody else uses it. */
static void take_declared(struct plan_place *place, const struct config *c)
{
    struct ledger_claim claim;
    struct ledger l;

    if (place->known)
        return;
    if (place->why[0] == '\0')
        snprintf(place->why, sizeof(place->why), "no answer within %d s", PLAN_LOOK_MS / 1000);
    if (place->device == NULL || place->device->exclusive != CONFIG_SWITCH_ON ||
        place->device->memory_bytes == 0 || place->shared)
        return;
    init_ledger(&l, place, c, &claim);
    ledger_give_up_source(&l);
    take_ledger(place, &l, 0);
}

/* --- the look --- */

static void end_look(struct look *look)
{
    if (look->closing)
        return;
    look->closing = true;
    uv_stop(&look->loop);
}

static void note_answer(struct look *look, size_t place)
{
    if (look->closing || look->answered[place])
        return;
    look->answered[place] = true;
    if (--look->waiting == 0)
        end_look(look);
}

static void on_sample(void *ctx, const struct device_sample *sample)
{
    struct look *look = ctx;

    for (size_t i = 0; i + 1 < look->plan->place_count; i++) {
        struct plan_place *place = &look->plan->places[i];

        if (strcmp(place->name, sample->device) != 0 || look->answered[i])
            continue;
        take_device(place, look->plan->config, sample);
        note_answer(look, i);
    }
}

static void on_host(void *ctx, const struct host_sample *sample)
{
    struct look *look = ctx;

    if (look->answered[look->plan->place_count - 1])
        return;
    take_host(plan_host(look->plan), look->plan->config, sample);
    note_answer(look, look->plan->place_count - 1);
}

static void on_deadline(uv_timer_t *timer)
{
    end_look(timer->data);
}

static int run_look(struct look *look, const struct device_spec *specs)
{
    static const struct device_monitor_calls calls = {.on_sample = on_sample, .on_host = on_host};
    struct device_monitor_options options;
    int r = uv_loop_init(&look->loop);

    if (r < 0)
        return r;
    uv_timer_init(&look->loop, &look->deadline);
    look->deadline.data = look;
    device_monitor_options_init(&options);
    options.devices = specs;
    options.n_devices = look->plan->config->device_count;
    options.events = options.kmsg = false;
    r = device_monitor_create(&look->loop, &options, &calls, look, &look->monitor);
    if (r == 0) {
        uv_timer_start(&look->deadline, on_deadline, PLAN_LOOK_MS, 0);
        uv_run(&look->loop, UV_RUN_DEFAULT);
        look->closing = true;
        device_monitor_destroy(look->monitor);
    }
    uv_close((uv_handle_t *)&look->deadline, NULL);
    uv_run(&look->loop, UV_RUN_DEFAULT);
    (void)uv_loop_close(&look->loop);
    return r;
}

int plan_look(struct plan *p)
{
    const struct config *c = p->config;
    struct device_spec *specs = calloc(c->device_count + 1, sizeof(*specs));
    struct look *look = calloc(1, sizeof(*look) + (c->device_count + 1) * sizeof(bool));
    int r = -ENOMEM;

    p->places = calloc(c->device_count + 1, sizeof(*p->places));
    if (specs == NULL || look == NULL || p->places == NULL)
        goto out;
    p->place_count = c->device_count + 1;
    for (size_t i = 0; i < c->device_count; i++) {
        struct plan_place *place = &p->places[i];

        place->device = &c->devices[i];
        place->shared = c->devices[i].integrated == CONFIG_SWITCH_ON;
        snprintf(place->name, sizeof(place->name), "%s", c->devices[i].name);
        specs[i] = config_device_spec(&c->devices[i]);
    }
    snprintf(plan_host(p)->name, sizeof(plan_host(p)->name), "host");
    look->plan = p;
    look->waiting = p->place_count;
    r = run_look(look, specs);
    for (size_t i = 0; r == 0 && i < p->place_count; i++)
        take_declared(&p->places[i], c);
out:
    free(look);
    free(specs);
    return r;
}
