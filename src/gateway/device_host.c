/*
 * The machine's memory, so that what runs on the CPU never exhausts it (F120): one ledger a gateway,
 * for every worker that failsoft runs, on whatever device.
 *
 * What is used is what the kernel would not give: the total less MemAvailable, or less what the
 * tightest cgroup still has. But weights that are mapped from a file count as available there, and
 * dropping them makes an engine read its model again for every token (F124). So the mapped pages of
 * our own processes are taken out of what is available, and count as theirs:
 *
 *     available = least of  MemAvailable − mapped,  cgroup's − (mapped − its active file pages)
 *     used      = total − available = foreign + resident memory of our processes
 *
 * A cgroup's figure has active file pages as used already. Which of them are ours nobody tells; they
 * are taken to be ours first, since a worker's weights are what is read most. Where that is wrong, the
 * cache of somebody else counts as available, which it is.
 *
 * The total is the lowest limit there is, whichever decides at the moment: foreign memory must not
 * jump when another limit becomes the tightest.
 *
 * A device whose memory is the machine's (F37, F41) has no ledger of its own: its claims are in this
 * one, so that both tiers cannot be given the same bytes. A carve-out that only the device can use is
 * not part of it.
 *
 * Loop thread only.
 */
#include "gateway/devices.h"

#include "base/log.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum {
    HOST_STALL_BEGINS = 6000, /* 1/100 percent of the time, some process waits for memory */
    HOST_STALL_ENDS = 3000,
};

void device_host_init(struct gateway *g, const struct config *config)
{
    struct gateway_device *d = &g->host.pool;
    d->gateway = g;
    d->name = "host";
    d->since_ms = uv_now(g->loop);
    list_init(&d->node);
    struct ledger_settings settings = ledger_settings_default();
    settings.reserve_bytes = config->host_reserve_bytes;
    ledger_init(&d->ledger, d->name, &settings, d->claims, GATEWAY_DEVICE_CLAIMS);
    struct pressure_settings pressure = pressure_settings_default();
    pressure_init(&d->pressure, &pressure);
}

void devices_host_view(struct gateway *g, struct ledger_view *ret_view)
{
    *ret_view = ledger_view(&g->host.pool.ledger, uv_now(g->loop));
}

enum pressure_level devices_host_pressure(const struct gateway *g)
{
    if (!g->admission)
        return PRESSURE_LEVEL_NORMAL;
    return g->host.stalled ? PRESSURE_LEVEL_CRITICAL : g->host.pool.pressure.level;
}

struct gateway_device *device_pool(struct gateway_device *d)
{
    return d->shared ? &d->gateway->host.pool : d;
}

enum pressure_level device_pressure(const struct gateway_device *d)
{
    return d->shared ? d->gateway->host.pool.pressure.level : d->pressure.level;
}

void device_host_watch(struct gateway *g)
{
    int32_t pids[DEVICE_WATCH_MAX];
    size_t count = 0;
    LIST_FOR_EACH(node, &g->workers)
    {
        struct gateway_worker *w = LIST_ENTRY(node, struct gateway_worker, node);
        int pid = w->worker && worker_is_managed(w->worker) ? worker_pid(w->worker) : 0;
        if (pid != 0 && count < DEVICE_WATCH_MAX)
            pids[count++] = pid;
    }
    if (g->monitor)
        device_monitor_watch(g->monitor, pids, count);
}

/* --- from a sample to the ledger --- */

/* Our processes, as a sample shows them. */
struct host_seen {
    struct ledger_process processes[DEVICE_WATCH_MAX];
    size_t count;
    uint64_t mapped_bytes; /* file pages of all of them */
    bool all;              /* none was missed */
};

static const struct host_process *process_of(const struct host_sample *s, int pid)
{
    for (size_t i = 0; i < s->n_processes; i++)
        if (s->processes[i].pid == pid && s->processes[i].known)
            return &s->processes[i];
    return NULL;
}

/* What it holds of an integrated device is the machine's memory, and no driver counts it as
 * resident; but for the simulated card, which lives in the engine's own memory. */
static uint64_t shared_bytes(const struct gateway_worker *w)
{
    const struct gateway_device *d = w->on;
    if (!d || !d->shared || d->kind == CONFIG_DEVICE_KIND_SIM)
        return 0;
    return w->measured_bytes > w->host_apart_bytes ? w->measured_bytes - w->host_apart_bytes : 0;
}

static void look_at_workers(struct gateway *g, const struct host_sample *s, uint64_t now_ms,
                            struct host_seen *out)
{
    out->all = true;
    LIST_FOR_EACH(node, &g->workers)
    {
        struct gateway_worker *w = LIST_ENTRY(node, struct gateway_worker, node);
        int pid = w->worker && worker_is_managed(w->worker) ? worker_pid(w->worker) : 0;
        if (pid == 0)
            continue;
        const struct host_process *p = process_of(s, pid);
        /* One that was known has ended, and nobody has told us yet: it holds nothing any more. Taken
         * for one that cannot be looked at, its memory would seem not to come back. */
        bool ended = !p && w->host_measured_bytes > 0;
        if ((!p && !ended) || out->count == DEVICE_WATCH_MAX) {
            out->all = false;
            continue;
        }
        if (ended) {
            out->processes[out->count++] = (struct ledger_process){.pid = (uint32_t)pid};
            continue;
        }
        uint64_t bytes = p->rss_bytes + shared_bytes(w);
        out->mapped_bytes += p->rss_bytes > p->anon_bytes ? p->rss_bytes - p->anon_bytes : 0;
        out->processes[out->count++] =
            (struct ledger_process){.pid = (uint32_t)pid, .bytes = bytes};
        device_host_settle(w, bytes, now_ms);
    }
}

static uint64_t less(uint64_t bytes, uint64_t by)
{
    return bytes > by ? bytes - by : 0;
}

static struct ledger_sample to_ledger(const struct host_sample *s, const struct host_seen *seen,
                                      bool *ret_cgroup)
{
    uint64_t total = s->total_bytes;
    uint64_t available = less(s->meminfo_available_bytes, seen->mapped_bytes);
    *ret_cgroup = false;
    if (s->has & HOST_HAS_CGROUP) {
        uint64_t counted = less(seen->mapped_bytes, s->cgroup_active_file_bytes);
        uint64_t left = less(s->cgroup_available_bytes, counted);
        *ret_cgroup = left < available;
        available = left < available ? left : available;
        total = s->cgroup_limit_bytes < total ? s->cgroup_limit_bytes : total;
    }
    return (struct ledger_sample){
        .taken_ms = s->sampled_at_ms,
        .total_valid = true,
        .used_valid = true,
        .processes_valid = seen->all,
        .total_bytes = total,
        .used_bytes = less(total, available),
        .processes = seen->processes,
        .process_count = seen->count,
    };
}

/* --- samples --- */

/* The share of time in which some process waits for memory, with a gap between its two limits. */
static void note_stalls(struct gateway_host *h, const struct host_sample *s)
{
    uint32_t share = s->has & HOST_HAS_PSI ? s->psi_some_avg10 : 0;
    bool before = h->stalled;
    h->stalled = share >= HOST_STALL_BEGINS || (h->stalled && share > HOST_STALL_ENDS);
    h->stall_pct = share / 100;
    if (h->stalled && !before)
        log_warning("device",
                    "host: processes wait for memory %u %% of the time: no more work for the CPU",
                    h->stall_pct);
    else if (before && !h->stalled)
        log_info("device", "host: processes wait for memory %u %% of the time", h->stall_pct);
}

static void note_silence(struct gateway_host *h)
{
    if (h->warned || h->pool.ledger.sampled)
        return;
    h->warned = true;
    log_warning("device",
                "the memory of this machine cannot be told (%s): workers on the CPU are started "
                "one at a time and unchecked",
                h->pool.why);
}

static void update_pressure(struct gateway_device *d, const struct ledger_view *view,
                            uint64_t now_ms)
{
    enum pressure_level before = d->pressure.level;
    struct pressure_facts facts = {
        .headroom_bytes = view->headroom_bytes,
        .reserve_bytes = view->reserve_bytes,
        .foreign_bytes = view->foreign_bytes,
        .releasing_bytes = view->releasing_bytes,
        .trusted = view->trust == LEDGER_TRUST_FRESH,
    };
    enum pressure_level level = pressure_update(&d->pressure, &facts, now_ms);
    if (level != before)
        log_info("device", "host: pressure %s -> %s", pressure_level_name(before),
                 pressure_level_name(level));
}

static void start_those_that_wait(struct gateway *g)
{
    LIST_FOR_EACH(node, &g->workers)
    {
        struct gateway_worker *w = LIST_ENTRY(node, struct gateway_worker, node);
        if (w->worker && worker_is_managed(w->worker) && !w->stopping)
            worker_look_again(w->worker);
    }
}

void device_host_sampled(void *ctx, const struct host_sample *sample)
{
    struct gateway *g = ctx;
    struct gateway_host *h = &g->host;
    struct gateway_device *d = &h->pool;
    if (g->stopping)
        return;
    uv_update_time(g->loop);
    uint64_t now_ms = uv_now(g->loop);
    bool first = !h->told;
    bool bad = sample->flags & (DEVICE_FLAG_STALE | DEVICE_FLAG_IMPOSSIBLE | DEVICE_FLAG_RESUMED |
                                DEVICE_FLAG_HUNG);
    snprintf(d->why, sizeof(d->why), "%s", sample->why);
    if (!bad)
        note_stalls(h, sample);
    if (!bad && (sample->has & HOST_HAS_AVAILABLE)) {
        struct host_seen seen = {0};
        bool cgroup;
        look_at_workers(g, sample, now_ms, &seen);
        struct ledger_sample figures = to_ledger(sample, &seen, &cgroup);
        (void)ledger_observe(&d->ledger, &figures, now_ms);
        h->limit[0] = '\0';
        if (cgroup)
            snprintf(h->limit, sizeof(h->limit), " (limit of cgroup %.70s)", sample->cgroup_level);
    } else if (!bad) {
        note_silence(h);
    }
    h->told = h->told || !bad;
    (void)ledger_tick(&d->ledger, now_ms);
    struct ledger_view view = ledger_view(&d->ledger, now_ms);
    if (d->ledger.sampled)
        update_pressure(d, &view, now_ms);
    LIST_FOR_EACH(node, &g->devices)
    {
        struct gateway_device *other = LIST_ENTRY(node, struct gateway_device, node);
        if (other->shared)
            device_yield_step(other, &view, now_ms);
    }
    if (first && h->told)
        start_those_that_wait(g);
}
