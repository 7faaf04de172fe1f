/*
 * Devices as the gateway sees them: what telemetry says (device/monitor), who holds what
 * (policy/ledger), how close it is to running out (policy/pressure), and what follows for the workers
 * on them.
 *
 *   sample ─► ledger ─► pressure ─► critical: one worker yields: no new requests, its running ones
 *                │                   end or the drain time passes, then it is stopped
 *                │                 ─► room for it, and calm for back_after: it is started again
 *                └─► a worker that wants to start asks: its predicted bytes are claimed, or it waits
 *
 * A claim is opened when a worker starts (predicted), settled when it is ready and its process was
 * measured, and released when the process is gone, which counts until telemetry sees it back.
 *
 * Loop thread only; telemetry comes from threads of its own, so a driver that hangs only makes these
 * figures old.
 */
#include "gateway/internal.h"

#include "base/log.h"
#include "base/units.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    DEVICES_DRAIN_MS = 5000,
    DEVICES_MAX_PROCESSES = 64,
    DEVICES_FIRST_SAMPLE_MS = 3000, /* after that, a device is one without telemetry */
};

static struct gateway_device *find_device(struct gateway *g, const char *name)
{
    LIST_FOR_EACH(node, &g->devices)
    {
        struct gateway_device *d = LIST_ENTRY(node, struct gateway_device, node);
        if (strcmp(d->name, name) == 0)
            return d;
    }
    return NULL;
}

static bool is_on(const struct gateway_worker *w, const struct gateway_device *d)
{
    return w->worker && worker_is_managed(w->worker) && strcmp(w->device, d->name) == 0;
}

static void label_of(const struct gateway_worker *w, char out[LEDGER_NAME_MAX])
{
    snprintf(out, LEDGER_NAME_MAX, "%.20s/%.10s", w->service, w->tier);
}

/* --- claims --- */

/* The process is measured: what it holds replaces what was predicted. */
static void settle_worker(struct gateway_device *d, struct gateway_worker *w,
                          const struct device_sample *sample, uint64_t now_ms)
{
    int pid = worker_pid(w->worker);
    uint64_t bytes;
    if (pid == 0 || !device_sample_process(sample, pid, &bytes))
        return;
    if (w->claim == LEDGER_CLAIM_NONE) {
        char label[LEDGER_NAME_MAX];
        label_of(w, label);
        struct ledger_request request = {
            .owner = LEDGER_OWNER_WORKER,
            .label = label,
            .bytes = bytes,
            .pid = (uint32_t)pid,
            .adopt = true,
        };
        if (ledger_claim_open(&d->ledger, &request, now_ms, &w->claim) < 0)
            return;
    }
    if (worker_get_state(w->worker) == WORKER_STATE_READY && bytes == w->measured_bytes)
        (void)ledger_claim_settle(&d->ledger, w->claim, bytes, now_ms);
    w->measured_bytes = bytes;
}

void devices_worker_changed(struct gateway_worker *w, enum worker_state to)
{
    struct gateway_device *d = find_device(w->gateway, w->device);
    if (!d || w->claim == LEDGER_CLAIM_NONE || !w->worker)
        return;
    uint64_t now_ms = uv_now(w->gateway->loop);
    if (to == WORKER_STATE_LOADING) {
        (void)ledger_claim_set_pid(&d->ledger, w->claim, (uint32_t)worker_pid(w->worker));
    } else if (to == WORKER_STATE_BACKOFF || to == WORKER_STATE_FAILED ||
               to == WORKER_STATE_STOPPED) {
        (void)ledger_claim_begin_release(&d->ledger, w->claim, now_ms);
        w->claim = LEDGER_CLAIM_NONE;
        w->measured_bytes = 0;
        device_monitor_poke(w->gateway->monitor, d->name);
    }
}

void devices_worker_gone(struct gateway_worker *w)
{
    struct gateway_device *d = find_device(w->gateway, w->device);
    if (d && w->claim != LEDGER_CLAIM_NONE)
        (void)ledger_claim_begin_release(&d->ledger, w->claim, uv_now(w->gateway->loop));
    w->claim = LEDGER_CLAIM_NONE;
}

/* --- starting --- */

static void describe_lack(const struct ledger_view *v, uint64_t need_bytes, char *out, size_t size)
{
    char need[24], room[24], foreign[24], total[24];
    uint64_t admissible = v->admissible_bytes > 0 ? (uint64_t)v->admissible_bytes : 0;
    int n = snprintf(out, size,
                     "waits for memory: needs %s on %s, where %s of %s may be used; others hold %s",
                     units_format_bytes(need_bytes, need, sizeof(need)), v->name,
                     units_format_bytes(admissible, room, sizeof(room)),
                     units_format_bytes(v->total_bytes, total, sizeof(total)),
                     units_format_bytes(v->foreign_bytes, foreign, sizeof(foreign)));
    for (unsigned i = 0; i < LEDGER_HOLDERS_MAX && v->holders[i].bytes > 0; i++) {
        char bytes[24];
        if (n < 0 || (size_t)n >= size)
            return;
        n += snprintf(out + n, size - (size_t)n, ", %s %s", v->holders[i].label,
                      units_format_bytes(v->holders[i].bytes, bytes, sizeof(bytes)));
    }
}

bool devices_may_start(struct gateway_worker *w, char *why, size_t why_size)
{
    struct gateway_device *d = find_device(w->gateway, w->device);
    if (!d)
        return true;
    uint64_t now_ms = uv_now(w->gateway->loop);
    if (now_ms < d->yield_until_ms) {
        snprintf(why, why_size, "%s is given back by hand", d->name);
        return false;
    }
    if (w->predict_job) {
        snprintf(why, why_size, "its memory is being estimated");
        return false;
    }
    struct ledger_view view = ledger_view(&d->ledger, now_ms);
    bool no_figures = !d->ledger.sampled;
    if (no_figures && now_ms - d->since_ms < DEVICES_FIRST_SAMPLE_MS) {
        snprintf(why, why_size, "waits for the first figures of %s", d->name);
        return false;
    }
    if (w->claim != LEDGER_CLAIM_NONE)
        (void)ledger_claim_begin_release(&d->ledger, w->claim, now_ms);
    char label[LEDGER_NAME_MAX];
    label_of(w, label);
    struct ledger_request request = {
        .owner = LEDGER_OWNER_WORKER,
        .label = label,
        .bytes = w->predicted_bytes,
        /* A device that no telemetry tells of is the owner's to vouch for: nothing would ever be
         * started there otherwise. What cannot be predicted is measured once it runs. */
        .adopt = no_figures || w->predicted_bytes == 0,
    };
    w->claim = LEDGER_CLAIM_NONE;
    int r = ledger_claim_open(&d->ledger, &request, now_ms, &w->claim);
    if (r == 0)
        return true;
    w->claim = LEDGER_CLAIM_NONE;
    if (view.trust != LEDGER_TRUST_FRESH)
        snprintf(why, why_size, "waits for figures of %s that can be trusted (%s)%s%s", d->name,
                 ledger_trust_name(view.trust), d->why[0] ? ": " : "", d->why);
    else
        describe_lack(&view, w->predicted_bytes, why, why_size);
    return false;
}

/* --- yielding --- */

static void yield_worker(struct gateway_worker *w, const char *why)
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

/* One at a time: what it gives back may be enough. The one that holds most goes first. */
static void yield_under_pressure(struct gateway_device *d, const struct ledger_view *view)
{
    struct gateway_worker *most = NULL;
    LIST_FOR_EACH(node, &d->gateway->workers)
    {
        struct gateway_worker *w = LIST_ENTRY(node, struct gateway_worker, node);
        if (!is_on(w, d) || w->stopping)
            continue;
        if (w->yielded && worker_pid(w->worker) != 0)
            return; /* still giving back */
        if (!w->yielded && worker_pid(w->worker) != 0 &&
            (!most || w->measured_bytes > most->measured_bytes))
            most = w;
    }
    if (!most || view->releasing_bytes > 0)
        return;
    char why[160];
    describe_pressure(view, pressure_level_name(d->pressure.level), why, sizeof(why));
    yield_worker(most, why);
}

/* A worker that yields is stopped when its requests have ended, or the drain time has. */
static void stop_drained(struct gateway_device *d, uint64_t now_ms)
{
    LIST_FOR_EACH(node, &d->gateway->workers)
    {
        struct gateway_worker *w = LIST_ENTRY(node, struct gateway_worker, node);
        if (!is_on(w, d) || !w->yielded || w->yield_stopped || w->stopping)
            continue;
        if (w->running > 0 && now_ms - w->yielded_ms < DEVICES_DRAIN_MS)
            continue;
        w->yield_stopped = true;
        worker_stop(w->worker, NULL, NULL);
    }
}

static void bring_back(struct gateway_device *d, const struct ledger_view *view, uint64_t now_ms)
{
    if (now_ms < d->yield_until_ms)
        return;
    LIST_FOR_EACH(node, &d->gateway->workers)
    {
        struct gateway_worker *w = LIST_ENTRY(node, struct gateway_worker, node);
        if (!is_on(w, d) || !w->yield_stopped || w->stopping)
            continue;
        if (!comeback_update(&w->comeback, view->admissible_bytes, w->need_bytes, d->pressure.level,
                             now_ms))
            continue;
        log_info("device", "%s/%s: there has been room on %s for a while, it comes back",
                 w->service, w->tier, d->name);
        w->yielded = false;
        w->yield_stopped = false;
        worker_start(w->worker);
        return; /* one at a time: the next one is judged with this one's claim */
    }
}

/* --- samples --- */

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
        .largest_bytes = s->has & DEVICE_HAS_LARGEST_FREE ? s->largest_free_bytes : 0,
        .processes = processes,
    };
    LIST_FOR_EACH(node, &d->gateway->workers)
    {
        struct gateway_worker *w = LIST_ENTRY(node, struct gateway_worker, node);
        uint64_t bytes;
        int pid = is_on(w, d) ? worker_pid(w->worker) : 0;
        if (pid != 0 && out->process_count < DEVICES_MAX_PROCESSES &&
            device_sample_process(s, pid, &bytes))
            processes[out->process_count++] =
                (struct ledger_process){.pid = (uint32_t)pid, .bytes = bytes};
    }
}

static void start_those_that_wait(struct gateway_device *d)
{
    LIST_FOR_EACH(node, &d->gateway->workers)
    {
        struct gateway_worker *w = LIST_ENTRY(node, struct gateway_worker, node);
        if (is_on(w, d) && !w->stopping)
            worker_look_again(w->worker);
    }
}

static void on_sample(void *ctx, const struct device_sample *sample)
{
    struct gateway *g = ctx;
    struct gateway_device *d = find_device(g, sample->device);
    if (!d || g->stopping)
        return;
    /* The monitor counts in CLOCK_MONOTONIC, and so does the loop; but the loop's time stands still
     * within a turn, and a sample may be younger than that. */
    uv_update_time(g->loop);
    uint64_t now_ms = uv_now(g->loop);
    snprintf(d->why, sizeof(d->why), "%s", sample->why);
    bool bad = sample->flags & (DEVICE_FLAG_STALE | DEVICE_FLAG_IMPOSSIBLE | DEVICE_FLAG_RESUMED |
                                DEVICE_FLAG_HUNG);
    bool first = !d->ledger.sampled;
    if (!bad) {
        LIST_FOR_EACH(node, &g->workers)
        {
            struct gateway_worker *w = LIST_ENTRY(node, struct gateway_worker, node);
            if (is_on(w, d))
                settle_worker(d, w, sample, now_ms);
        }
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
        .trusted = view.trust == LEDGER_TRUST_FRESH,
    };
    enum pressure_level level = pressure_update(&d->pressure, &facts, now_ms);
    if (level != before)
        log_info("device", "%s: pressure %s -> %s", d->name, pressure_level_name(before),
                 pressure_level_name(level));
    if (level == PRESSURE_LEVEL_CRITICAL && facts.trusted)
        yield_under_pressure(d, &view);
    stop_drained(d, now_ms);
    bring_back(d, &view, now_ms);
    if (first && d->ledger.sampled)
        start_those_that_wait(d);
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
            if (for_ms > 0 && is_on(w, d) && !w->stopping)
                yield_worker(w, why);
        }
        stop_drained(d, now_ms);
        return 0;
    }
    return -ENOENT;
}

/* --- for the status pages --- */

size_t devices_count(const struct gateway *g)
{
    size_t n = 0;
    LIST_FOR_EACH(node, &g->devices)
    n++;
    return n;
}

static size_t fill_claims(const struct gateway_device *d, struct gateway_claim_snapshot *out)
{
    size_t n = 0;
    for (uint32_t i = 0; i < GATEWAY_DEVICE_CLAIMS; i++) {
        const struct ledger_claim *c = &d->claims[i];
        if (c->state == LEDGER_STATE_NONE)
            continue;
        out[n++] = (struct gateway_claim_snapshot){
            .label = c->label,
            .state = ledger_state_name(c->state),
            .bytes = c->held_bytes,
            .predicted_bytes = c->predicted_bytes,
        };
    }
    return n;
}

void devices_fill(struct gateway *g, struct gateway_device_snapshot *ret_devices,
                  struct gateway_claim_snapshot *ret_claims)
{
    uint64_t now_ms = uv_now(g->loop);
    LIST_FOR_EACH(node, &g->devices)
    {
        const struct gateway_device *d = LIST_ENTRY(node, struct gateway_device, node);
        struct ledger_view v = ledger_view(&d->ledger, now_ms);
        size_t count = fill_claims(d, ret_claims);
        *ret_devices++ = (struct gateway_device_snapshot){
            .name = d->name,
            .kind = config_device_kind_name(d->kind),
            .trust = ledger_trust_name(v.trust),
            .pressure = pressure_level_name(d->pressure.level),
            .reason = d->why,
            .age_ms = v.age_ms,
            .total_bytes = v.total_bytes,
            .reserve_bytes = v.reserve_bytes,
            .foreign_bytes = v.foreign_bytes,
            .settled_bytes = v.settled_bytes,
            .unsettled_bytes = v.unsettled_bytes,
            .releasing_bytes = v.releasing_bytes,
            .headroom_bytes = v.headroom_bytes,
            .yield_left_ms = d->yield_until_ms > now_ms ? d->yield_until_ms - now_ms : 0,
            .claims = ret_claims,
            .claim_count = count,
        };
        ret_claims += count;
    }
}

/* --- life --- */

static enum device_kind kind_of(int config_kind)
{
    switch (config_kind) {
    case CONFIG_DEVICE_KIND_AMD: return DEVICE_KIND_AMD;
    case CONFIG_DEVICE_KIND_INTEL: return DEVICE_KIND_INTEL;
    case CONFIG_DEVICE_KIND_SIM: return DEVICE_KIND_SIM;
    default: return DEVICE_KIND_NVIDIA;
    }
}

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
    d->back_after_ms = c->back_after_ms;
    d->since_ms = uv_now(g->loop);
    struct ledger_settings settings = ledger_settings_default();
    settings.reserve_bytes = c->reserve_bytes;
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
        snprintf(specs[i].name, sizeof(specs[i].name), "%s", c->name);
        specs[i].kind = kind_of(c->kind);
        specs[i].index = c->index;
        snprintf(specs[i].card, sizeof(specs[i].card), "%s", c->card ? c->card : c->name);
        r = add_device(g, c);
    }
    if (r == 0 && config->device_count > 0) {
        static const struct device_monitor_calls calls = {.on_sample = on_sample};
        struct device_monitor_options options;
        device_monitor_options_init(&options);
        options.devices = specs;
        options.n_devices = config->device_count;
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
    LIST_FOR_EACH(node, &g->devices)
    {
        struct gateway_device *d = LIST_ENTRY(node, struct gateway_device, node);
        list_remove(&d->node);
        free(d->name);
        free(d);
    }
}

bool devices_are_same(struct gateway *g, const struct config *config)
{
    size_t count = 0;
    LIST_FOR_EACH(node, &g->devices)
    {
        const struct gateway_device *d = LIST_ENTRY(node, struct gateway_device, node);
        bool found = false;
        for (size_t i = 0; i < config->device_count; i++)
            found |=
                strcmp(config->devices[i].name, d->name) == 0 && config->devices[i].kind == d->kind;
        if (!found)
            return false;
        count++;
    }
    return count == config->device_count;
}

void devices_prepare_worker(struct gateway_worker *w)
{
    struct gateway_device *d = find_device(w->gateway, w->device);
    w->claim = LEDGER_CLAIM_NONE;
    comeback_init(&w->comeback, 0, d ? d->back_after_ms : 0);
}
