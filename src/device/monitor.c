/*
 * The loop's side of telemetry: fetches results, ages them, tells what changed.
 *
 * A sample counts only when its pass began after the last resume of the host (F15: a driver may come
 * back from a suspend with another state, and memory figures from before are about another world).
 */
#include "device/monitor.h"

#include "device/kernel_log.h"
#include "device/watch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct monitor_device {
    struct device_spec spec;
    struct sampler *sampler;
    struct sampler *events; /* NULL: none */
    struct device_sample latest;
    bool stale_told;
};

struct device_monitor {
    uv_async_t async;
    uv_timer_t timer;
    unsigned open_handles;
    struct device_monitor_options o;
    struct device_monitor_calls calls;
    void *ctx;
    struct sampler *host; /* NULL: not sampled */
    struct sampler *kmsg;
    struct host_sample host_latest;
    bool host_stale_told;
    struct suspend_watch suspend;
    uint64_t resumed_at_ms; /* samples from before it do not count */
    size_t n_devices;
    struct monitor_device devices[];
};

static uint64_t read_clock(clockid_t id)
{
    struct timespec t;

    clock_gettime(id, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static uint64_t system_monotonic_ms(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

static uint64_t system_boottime_ms(void)
{
    return read_clock(CLOCK_BOOTTIME);
}

void device_monitor_options_init(struct device_monitor_options *o)
{
    memset(o, 0, sizeof(*o));
    device_roots_init(&o->roots);
    o->interval_ms = 500;
    o->stale_ms = 2000;
    o->deadline_ms = 2000;
    o->reopen_ms = 5000;
    o->restart_ms = 1000;
    o->restart_max_ms = 60000;
    o->suspend_ms = 1000;
    o->host = true;
    o->events = true;
    o->kmsg = true;
    o->clock = (struct device_clock){system_monotonic_ms, system_boottime_ms};
    o->source_for = device_source_for;
}

static uint64_t now_ms(const struct device_monitor *m)
{
    return m->o.clock.monotonic_ms();
}

/* --- telling --- */

static void tell_sample(struct device_monitor *m, struct monitor_device *d)
{
    if (m->calls.on_sample != NULL)
        m->calls.on_sample(m->ctx, &d->latest);
}

static void tell_host(struct device_monitor *m)
{
    if (m->calls.on_host != NULL)
        m->calls.on_host(m->ctx, &m->host_latest);
}

static void tell_event(struct device_monitor *m, const char *device,
                       const struct device_event *event)
{
    if (m->calls.on_event != NULL)
        m->calls.on_event(m->ctx, device, event);
}

/* --- resume --- */

/* Nothing that was known is known any more. */
static void forget(struct device_monitor *m)
{
    for (size_t i = 0; i < m->n_devices; i++) {
        struct monitor_device *d = &m->devices[i];
        char pci[DEVICE_PCI_MAX];

        memcpy(pci, d->latest.pci, sizeof(pci)); /* where it sits does not change */
        device_sample_init(&d->latest, d->spec.name, d->latest.source);
        memcpy(d->latest.pci, pci, sizeof(pci));
        d->latest.flags = DEVICE_FLAG_RESUMED;
        device_sample_say(&d->latest, "the host slept; nothing is known of the device since");
        tell_sample(m, d);
        sampler_poke(d->sampler);
    }
    if (m->host != NULL) {
        memset(&m->host_latest, 0, sizeof(m->host_latest));
        m->host_latest.flags = DEVICE_FLAG_RESUMED;
        tell_host(m);
        sampler_poke(m->host);
    }
}

static void check_resume(struct device_monitor *m)
{
    struct device_event event = {.kind = DEVICE_EVENT_RESUMED};

    event.at_ms = now_ms(m);
    if (!suspend_watch_step(&m->suspend, event.at_ms, m->o.clock.boottime_ms(), m->o.suspend_ms,
                            &event.slept_ms))
        return;
    m->resumed_at_ms = event.at_ms;
    forget(m);
    tell_event(m, NULL, &event);
}

/* --- fetching --- */

static void fetch_device(struct device_monitor *m, struct monitor_device *d)
{
    struct device_sample sample;

    if (!sampler_take_sample(d->sampler, &sample))
        return;
    if (m->resumed_at_ms != 0 && sample.sampled_at_ms <= m->resumed_at_ms)
        return;
    d->latest = sample;
    d->stale_told = false;
    tell_sample(m, d);
}

static void fetch_host(struct device_monitor *m)
{
    struct host_sample sample;

    if (m->host == NULL || !sampler_take_host(m->host, &sample))
        return;
    if (m->resumed_at_ms != 0 && sample.sampled_at_ms <= m->resumed_at_ms)
        return;
    m->host_latest = sample;
    m->host_stale_told = false;
    tell_host(m);
}

static void fetch_events(struct device_monitor *m, struct sampler *from, const char *device)
{
    struct device_event events[SAMPLER_EVENTS_MAX];
    size_t n = from != NULL ? sampler_take_events(from, events) : 0;

    for (size_t i = 0; i < n; i++) {
        const char *about = device;

        for (size_t j = 0; about == NULL && j < m->n_devices; j++) {
            if (kernel_log_is_about(&events[i], m->devices[j].latest.pci))
                about = m->devices[j].spec.name;
        }
        tell_event(m, about, &events[i]);
    }
}

static void fetch_all(struct device_monitor *m)
{
    check_resume(m);
    for (size_t i = 0; i < m->n_devices; i++) {
        fetch_device(m, &m->devices[i]);
        fetch_events(m, m->devices[i].events, m->devices[i].spec.name);
    }
    fetch_host(m);
    fetch_events(m, m->kmsg, NULL);
}

/* --- ageing --- */

static bool host_is_stale(const struct device_monitor *m, uint64_t now)
{
    uint64_t at = m->host_latest.sampled_at_ms;

    return at == 0 || at > now || now - at > m->o.stale_ms;
}

static void check_sampler(struct device_monitor *m, struct sampler *s, const char *device,
                          uint64_t now)
{
    enum sampler_change change = sampler_check(s, now);
    struct device_event event = {.at_ms = now};

    if (change == SAMPLER_CHANGE_NONE)
        return;
    event.kind = change == SAMPLER_CHANGE_HUNG ? DEVICE_EVENT_HUNG : DEVICE_EVENT_UNHUNG;
    tell_event(m, device, &event);
}

static void check_device(struct device_monitor *m, struct monitor_device *d, uint64_t now)
{
    check_sampler(m, d->sampler, d->spec.name, now);
    if (d->events != NULL)
        (void)sampler_check(d->events, now);
    if (d->stale_told || d->latest.sampled_at_ms == 0 ||
        !device_sample_is_stale(&d->latest, now, m->o.stale_ms))
        return;
    d->stale_told = true;
    d->latest.flags |= DEVICE_FLAG_STALE | (d->sampler->hung ? DEVICE_FLAG_HUNG : 0);
    tell_sample(m, d);
}

static void check_ages(struct device_monitor *m)
{
    uint64_t now = now_ms(m);

    for (size_t i = 0; i < m->n_devices; i++)
        check_device(m, &m->devices[i], now);
    if (m->kmsg != NULL)
        (void)sampler_check(m->kmsg, now);
    if (m->host == NULL)
        return;
    check_sampler(m, m->host, NULL, now);
    if (m->host_stale_told || m->host_latest.sampled_at_ms == 0 || !host_is_stale(m, now))
        return;
    m->host_stale_told = true;
    m->host_latest.flags |= DEVICE_FLAG_STALE | (m->host->hung ? DEVICE_FLAG_HUNG : 0);
    tell_host(m);
}

static void on_async(uv_async_t *handle)
{
    struct device_monitor *m = handle->data;

    /* Ages before fetching: whether a result is the first after a hang is decided before it goes. */
    check_ages(m);
    fetch_all(m);
}

static void on_timer(uv_timer_t *handle)
{
    struct device_monitor *m = handle->data;

    check_ages(m);
    fetch_all(m);
}

/* --- life --- */

static void on_handle_closed(uv_handle_t *handle)
{
    struct device_monitor *m = handle->data;

    if (--m->open_handles == 0)
        free(m);
}

void device_monitor_destroy(struct device_monitor *m)
{
    if (m == NULL)
        return;
    memset(&m->calls, 0, sizeof(m->calls));
    for (size_t i = 0; i < m->n_devices; i++) {
        sampler_release(m->devices[i].sampler);
        sampler_release(m->devices[i].events);
    }
    sampler_release(m->host);
    sampler_release(m->kmsg);
    uv_timer_stop(&m->timer);
    uv_close((uv_handle_t *)&m->timer, on_handle_closed);
    uv_close((uv_handle_t *)&m->async, on_handle_closed);
}

static bool names_are_good(const struct device_monitor_options *o)
{
    for (size_t i = 0; i < o->n_devices; i++) {
        if (o->devices[i].name[0] == '\0')
            return false;
        for (size_t j = 0; j < i; j++) {
            if (strcmp(o->devices[i].name, o->devices[j].name) == 0)
                return false;
        }
    }
    return true;
}

static int start_device(struct device_monitor *m, const struct sampler_options *common,
                        const struct device_spec *spec)
{
    struct monitor_device *d = &m->devices[m->n_devices];
    struct sampler_options o = *common;
    int rc;

    d->spec = *spec;
    o.kind = SAMPLER_KIND_DEVICE;
    o.spec = *spec;
    o.source = m->o.source_for(spec->kind);
    device_sample_init(&d->latest, spec->name, o.source->name);
    rc = sampler_create(&o, &m->async, &d->sampler);
    if (rc < 0)
        return rc;
    m->n_devices++;
    if (!m->o.events || spec->kind != DEVICE_KIND_NVIDIA)
        return 0;
    o.kind = SAMPLER_KIND_EVENTS;
    o.events = &device_events_nvml;
    return sampler_create(&o, &m->async, &d->events);
}

static int start_all(struct device_monitor *m)
{
    struct sampler_options o = {
        .roots = m->o.roots,
        .clock = m->o.clock,
        .interval_ms = m->o.interval_ms,
        .deadline_ms = m->o.deadline_ms,
        .reopen_ms = m->o.reopen_ms,
        .restart_ms = m->o.restart_ms,
        .restart_max_ms = m->o.restart_max_ms,
    };
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < m->o.n_devices; i++)
        rc = start_device(m, &o, &m->o.devices[i]);
    if (rc == 0 && m->o.host) {
        o.kind = SAMPLER_KIND_HOST;
        rc = sampler_create(&o, &m->async, &m->host);
    }
    if (rc == 0 && m->o.kmsg) {
        o.kind = SAMPLER_KIND_EVENTS;
        o.events = &device_events_kmsg;
        rc = sampler_create(&o, &m->async, &m->kmsg);
    }
    return rc;
}

int device_monitor_create(uv_loop_t *loop, const struct device_monitor_options *o,
                          const struct device_monitor_calls *calls, void *ctx,
                          struct device_monitor **ret)
{
    struct device_monitor *m;
    uint64_t tick_ms = o->interval_ms / 2 > 0 ? o->interval_ms / 2 : 1;
    int rc;

    if (!names_are_good(o))
        return -EINVAL;
    m = calloc(1, sizeof(*m) + o->n_devices * sizeof(m->devices[0]));
    if (m == NULL)
        return -ENOMEM;
    m->o = *o;
    m->calls = *calls;
    m->ctx = ctx;
    rc = uv_async_init(loop, &m->async, on_async);
    if (rc < 0) {
        free(m);
        return rc;
    }
    uv_timer_init(loop, &m->timer);
    m->async.data = m->timer.data = m;
    m->open_handles = 2;
    /* Telemetry alone is no reason for the loop to go on. */
    uv_unref((uv_handle_t *)&m->async);
    uv_unref((uv_handle_t *)&m->timer);
    rc = start_all(m);
    m->o.devices = NULL; /* the caller's */
    if (rc < 0) {
        device_monitor_destroy(m);
        return rc;
    }
    check_resume(m); /* from here on, a sleep counts */
    uv_timer_start(&m->timer, on_timer, tick_ms, tick_ms);
    *ret = m;
    return 0;
}

/* --- asking --- */

bool device_monitor_latest(const struct device_monitor *m, const char *device,
                           struct device_sample *ret)
{
    for (size_t i = 0; i < m->n_devices; i++) {
        const struct monitor_device *d = &m->devices[i];

        if (strcmp(d->spec.name, device) != 0)
            continue;
        *ret = d->latest;
        if (device_sample_is_stale(ret, now_ms(m), m->o.stale_ms))
            ret->flags |= DEVICE_FLAG_STALE;
        if (d->sampler->hung)
            ret->flags |= DEVICE_FLAG_HUNG;
        return true;
    }
    return false;
}

bool device_monitor_host(const struct device_monitor *m, struct host_sample *ret)
{
    if (m->host == NULL)
        return false;
    *ret = m->host_latest;
    if (host_is_stale(m, now_ms(m)))
        ret->flags |= DEVICE_FLAG_STALE;
    if (m->host->hung)
        ret->flags |= DEVICE_FLAG_HUNG;
    return true;
}

void device_monitor_watch(struct device_monitor *m, const int32_t *pids, size_t n)
{
    if (m->host != NULL)
        sampler_set_pids(m->host, pids, n);
}

void device_monitor_poke(struct device_monitor *m, const char *device)
{
    for (size_t i = 0; i < m->n_devices; i++) {
        if (device == NULL || strcmp(m->devices[i].spec.name, device) == 0)
            sampler_poke(m->devices[i].sampler);
    }
    if (device == NULL && m->host != NULL)
        sampler_poke(m->host);
}
