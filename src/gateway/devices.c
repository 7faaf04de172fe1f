/*
 * Devices as the gateway sees them: what telemetry says (device/monitor), who holds what
 * (policy/ledger), how close it is to running out (policy/pressure), and what follows for the workers
 * on them.
 *
 *   sample ─► ledger ─► pressure ─► critical: one worker yields (device_yield.c)
 *                │
 *                └─► a worker that wants to start asks: its predicted bytes are claimed, or it waits
 *                    (device_claims.c)
 *
 * Loop thread only; telemetry comes from threads of its own, so a driver that hangs only makes these
 * figures old.
 */
#include "gateway/devices.h"

#include "base/log.h"
#include "config/device_spec.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    DEVICES_MAX_PROCESSES = 64,
    /* As long as a worker's restart waits for the memory of the last process (worker_options): some
     * drivers take more than five seconds (F38). */
    DEVICES_RELEASE_MS = 15000,
};

struct gateway_device *device_find(struct gateway *g, const char *name)
{
    LIST_FOR_EACH(node, &g->devices)
    {
        struct gateway_device *d = LIST_ENTRY(node, struct gateway_device, node);
        if (strcmp(d->name, name) == 0)
            return d;
    }
    return NULL;
}

bool device_has_worker(const struct gateway_device *d, const struct gateway_worker *w)
{
    return w->worker && worker_is_managed(w->worker) && w->on == d;
}

/* --- samples --- */

/* Whose group is it? A worker, or the trial run for one, leads a process group of its own. */
static bool is_leader(const struct gateway_device *d, int pid)
{
    LIST_FOR_EACH(node, &d->gateway->workers)
    {
        const struct gateway_worker *w = LIST_ENTRY(node, struct gateway_worker, node);
        if (device_has_worker(d, w) && (worker_pid(w->worker) == pid || w->learn.ask_pid == pid))
            return true;
    }
    return false;
}

/*
 * What a worker's children hold is the worker's: a program may load its model in a process that it
 * forked. Asked of the listed processes alone, which are few. A child that has ended since cannot be
 * asked any more: its bytes are missing for one sample, which the ledger bears (ledger_observe.c); one
 * that leads a group of its own is a stranger.
 */
static void add_children(const struct gateway_device *d, struct device_sample *s)
{
    for (size_t i = 0; i < s->n_processes;) {
        struct device_process *child = &s->processes[i];
        int group = child->pid > 0 ? getpgid(child->pid) : -1;
        if (group <= 0 || group == child->pid || !is_leader(d, group)) {
            i++;
            continue;
        }
        struct device_process *leader = NULL;
        for (size_t j = 0; j < s->n_processes && !leader; j++)
            leader = s->processes[j].pid == group ? &s->processes[j] : NULL;
        if (!leader) {
            child->pid = group;
            i++;
            continue;
        }
        if (child->has_bytes)
            leader->bytes += child->bytes;
        leader->has_bytes = leader->has_bytes || child->has_bytes;
        *child = s->processes[--s->n_processes];
    }
}

/*
 * What one buffer must fit into: the largest hole. A driver's limit on single buffers is none for us:
 * ggml cuts every part of a model into buffers of at most the backend's max_size (measured: weights of
 * 85 MiB load onto a card that grants 50), so the limit alone refuses nothing, and a hole that takes the
 * largest piece is none either. What cannot be cut, one tensor above the limit, fails with a line of its
 * own, and is not tried again (device_learn.c).
 */
static uint64_t largest_block(const struct device_sample *s)
{
    if (!(s->has & DEVICE_HAS_LARGEST_FREE))
        return 0;
    bool fits_pieces =
        (s->has & DEVICE_HAS_MAX_ALLOC) && s->max_alloc_bytes <= s->largest_free_bytes;
    return fits_pieces ? 0 : s->largest_free_bytes;
}

static void to_ledger(struct gateway_device *d, const struct device_sample *s,
                      struct ledger_process *processes, struct ledger_sample *out)
{
    *out = (struct ledger_sample){
        .taken_ms = s->sampled_at_ms,
        .total_valid = s->has & DEVICE_HAS_TOTAL,
        .used_valid = s->has & DEVICE_HAS_USED,
        .free_valid = s->has & DEVICE_HAS_FREE,
        .processes_valid =
            (s->has & DEVICE_HAS_PROCESSES) && !(s->flags & DEVICE_FLAG_PROCESSES_PARTIAL),
        .total_bytes = s->total_bytes,
        .used_bytes = s->used_bytes,
        .free_bytes = s->free_bytes,
        .largest_bytes = largest_block(s),
        .processes = processes,
    };
    LIST_FOR_EACH(node, &d->gateway->workers)
    {
        struct gateway_worker *w = LIST_ENTRY(node, struct gateway_worker, node);
        uint64_t bytes;
        if (!device_has_worker(d, w))
            continue;
        const int pids[] = {worker_pid(w->worker), w->learn.ask_pid};
        for (size_t i = 0; i < sizeof(pids) / sizeof(pids[0]); i++) {
            if (pids[i] != 0 && out->process_count < DEVICES_MAX_PROCESSES &&
                device_sample_process(s, pids[i], &bytes))
                processes[out->process_count++] =
                    (struct ledger_process){.pid = (uint32_t)pids[i], .bytes = bytes};
        }
    }
}

/* From now on its claims are in the host's ledger; those that there are, are found there again when
 * their processes are measured. */
static void share_with_host(struct gateway_device *d)
{
    if (d->shared)
        return;
    d->shared = true;
    log_info("device", "%s: its memory is the machine's", d->name);
    LIST_FOR_EACH(node, &d->gateway->workers)
    {
        struct gateway_worker *w = LIST_ENTRY(node, struct gateway_worker, node);
        if (device_has_worker(d, w))
            w->claim = LEDGER_CLAIM_NONE;
    }
    device_start_those_that_wait(d);
}

static void on_sample(void *ctx, const struct device_sample *told)
{
    struct gateway *g = ctx;
    struct gateway_device *d = device_find(g, told->device);
    struct device_sample copy = *told;
    const struct device_sample *sample = &copy;
    if (!d || g->stopping)
        return;
    add_children(d, &copy);
    /* The monitor counts in CLOCK_MONOTONIC, and so does the loop; but the loop's time stands still
     * within a turn, and a sample may be younger than that. */
    uv_update_time(g->loop);
    uint64_t now_ms = uv_now(g->loop);
    snprintf(d->why, sizeof(d->why), "%s", sample->why);
    if (d->takes_host_flag && (sample->flags & DEVICE_FLAG_SHARED_HOST))
        share_with_host(d);
    bool bad = sample->flags & (DEVICE_FLAG_STALE | DEVICE_FLAG_IMPOSSIBLE | DEVICE_FLAG_RESUMED |
                                DEVICE_FLAG_HUNG);
    /* One whose driver asks for a reset still has figures: nothing new is to be started by them. */
    bad |= sample->state == DEVICE_STATE_RESET_REQUIRED;
    bool first = !d->ledger.sampled;
    if (!bad) {
        LIST_FOR_EACH(node, &g->workers)
        {
            struct gateway_worker *w = LIST_ENTRY(node, struct gateway_worker, node);
            if (device_has_worker(d, w))
                device_settle_worker(d, w, sample, now_ms);
        }
    }
    if (d->shared)
        return; /* its figures come with the host's */
    if (!bad && device_moves(d, sample)) {
        struct ledger_process processes[DEVICES_MAX_PROCESSES];
        struct ledger_sample figures;
        to_ledger(d, sample, processes, &figures);
        (void)ledger_observe(&d->ledger, &figures, now_ms);
    }
    (void)ledger_tick(&d->ledger, now_ms);
    struct ledger_view view = ledger_view(&d->ledger, now_ms);
    enum pressure_level before = d->pressure.level;
    struct pressure_facts facts = {
        .headroom_bytes = view.headroom_bytes,
        .reserve_bytes = view.reserve_bytes,
        .foreign_bytes = view.foreign_bytes,
        .releasing_bytes = view.releasing_bytes,
        .trusted = view.trust == LEDGER_TRUST_FRESH,
    };
    /* Before it has told anything it has no pressure: of a total of nothing, all of the reserve is
     * missing, and of a device without telemetry it would be for good. */
    enum pressure_level level = before;
    if (d->ledger.sampled)
        level = pressure_update(&d->pressure, &facts, now_ms);
    if (level != before)
        log_info("device", "%s: pressure %s -> %s", d->name, pressure_level_name(before),
                 pressure_level_name(level));
    device_yield_step(d, &view, now_ms);
    if (first && d->ledger.sampled)
        device_start_those_that_wait(d);
}

/* --- life --- */

static int add_device(struct gateway *g, const struct config_device *c)
{
    struct gateway_device *d = calloc(1, sizeof(*d));
    if (!d)
        return -ENOMEM;
    d->name = strdup(c->name);
    if (!d->name) {
        free(d);
        return -ENOMEM;
    }
    d->gateway = g;
    d->kind = c->kind;
    d->spec = config_device_spec(c);
    d->back_after_ms = c->back_after_ms;
    d->since_ms = uv_now(g->loop);
    struct ledger_settings settings = ledger_settings_default();
    settings.reserve_bytes = c->reserve_bytes;
    settings.declared_bytes = c->memory_bytes;
    settings.release_ms = DEVICES_RELEASE_MS;
    d->shared = c->integrated == CONFIG_SWITCH_ON;
    d->takes_host_flag = c->integrated != CONFIG_SWITCH_OFF;
    d->exclusive = c->exclusive == CONFIG_SWITCH_ON;
    ledger_init(&d->ledger, d->name, &settings, d->claims, GATEWAY_DEVICE_CLAIMS);
    struct pressure_settings pressure = pressure_settings_default();
    pressure_init(&d->pressure, &pressure);
    list_push_back(&g->devices, &d->node);
    return 0;
}

int devices_start(struct gateway *g, const struct config *config)
{
    struct device_spec *specs = calloc(config->device_count + 1, sizeof(*specs));
    int r = specs ? 0 : -ENOMEM;
    for (size_t i = 0; r == 0 && i < config->device_count; i++) {
        const struct config_device *c = &config->devices[i];
        specs[i] = config_device_spec(c);
        r = add_device(g, c);
    }
    device_host_init(g, config);
    if (r == 0) {
        static const struct device_monitor_calls calls = {
            .on_sample = on_sample, .on_event = device_on_event, .on_host = device_host_sampled};
        struct device_monitor_options options;
        device_monitor_options_init(&options);
        options.devices = specs;
        options.n_devices = config->device_count;
        options.kmsg = config->device_count > 0;
        r = device_monitor_create(g->loop, &options, &calls, g, &g->monitor);
    }
    free(specs);
    if (r < 0)
        devices_stop(g);
    return r;
}

void devices_stop(struct gateway *g)
{
    device_monitor_destroy(g->monitor);
    g->monitor = NULL;
    LIST_FOR_EACH(node, &g->workers)
    LIST_ENTRY(node, struct gateway_worker, node)->on = NULL;
    LIST_FOR_EACH(node, &g->devices)
    {
        struct gateway_device *d = LIST_ENTRY(node, struct gateway_device, node);
        list_remove(&d->node);
        free(d->name);
        free(d);
    }
}

static const struct config_device *find_config(const struct config *config, const char *name)
{
    for (size_t i = 0; i < config->device_count; i++)
        if (strcmp(config->devices[i].name, name) == 0)
            return &config->devices[i];
    return NULL;
}

/* The same device of the machine, looked at in the same way. */
static bool is_same_device(const struct device_spec *a, const struct config_device *c)
{
    struct device_spec b = config_device_spec(c);
    return a->kind == b.kind && a->index == b.index && a->integrated == b.integrated &&
           strcmp(a->card, b.card) == 0;
}

/* What takes no new telemetry. */
static void configure(struct gateway_device *d, const struct config_device *c)
{
    ledger_set_limits(&d->ledger, c->reserve_bytes, c->memory_bytes);
    d->exclusive = c->exclusive == CONFIG_SWITCH_ON;
    d->back_after_ms = c->back_after_ms;
    LIST_FOR_EACH(node, &d->gateway->workers)
    {
        struct gateway_worker *w = LIST_ENTRY(node, struct gateway_worker, node);
        if (w->on == d)
            w->comeback.hold_ms = d->back_after_ms;
    }
    device_start_those_that_wait(d);
}

bool devices_reload(struct gateway *g, const struct config *config)
{
    size_t count = 0;
    ledger_set_limits(&g->host.pool.ledger, config->host_reserve_bytes, 0);
    LIST_FOR_EACH(node, &g->devices)
    {
        struct gateway_device *d = LIST_ENTRY(node, struct gateway_device, node);
        const struct config_device *c = find_config(config, d->name);
        if (!c || !is_same_device(&d->spec, c))
            continue;
        configure(d, c);
        count++;
    }
    return count == config->device_count && count == devices_count(g);
}

void devices_prepare_worker(struct gateway_worker *w)
{
    struct gateway_device *d = device_find(w->gateway, w->device);
    w->on = d;
    w->claim = LEDGER_CLAIM_NONE;
    w->host_claim = LEDGER_CLAIM_NONE;
    comeback_init(&w->comeback, 0, d ? d->back_after_ms : 0);
}
