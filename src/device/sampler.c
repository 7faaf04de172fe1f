/* The thread that may hang, and the loop's side of it. The picture is in sampler.h. */
#include "device/sampler.h"

#include "device/host.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A driver's library may want a good deal more than we do. */
#define SAMPLER_STACK_BYTES (1024u * 1024u)

static atomic_uint threads_alive;

struct sampler_thread {
    struct sampler *sampler;
    unsigned generation;
    void *state; /* what the source opened */
    bool opened;
    uint64_t open_after_ms;
    struct device_sample sample;
    struct host_sample host;
    struct device_event event;
};

unsigned sampler_threads(void)
{
    return atomic_load(&threads_alive);
}

/* Drops one reference; the lock is held and is released. */
static void unref_unlock(struct sampler *s)
{
    bool last = --s->refs == 0;

    pthread_mutex_unlock(&s->lock);
    if (!last)
        return;
    pthread_cond_destroy(&s->wake);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

/* --- the thread --- */

static bool is_current(const struct sampler_thread *t)
{
    return !t->sampler->stop && t->generation == t->sampler->generation;
}

static void wait_until_due(struct sampler *s, uint64_t wait_ms)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)(wait_ms / 1000);
    until.tv_nsec += (long)(wait_ms % 1000) * 1000000L;
    if (until.tv_nsec >= 1000000000L) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000L;
    }
    pthread_cond_timedwait(&s->wake, &s->lock, &until);
}

/* Sleeps for wait_ms or until poked, then marks the call as begun. False: end. */
static bool begin(struct sampler_thread *t, uint64_t wait_ms)
{
    struct sampler *s = t->sampler;
    uint64_t deadline = s->o.clock.monotonic_ms() + wait_ms;
    bool go;

    pthread_mutex_lock(&s->lock);
    while (is_current(t) && !s->poked) {
        uint64_t now = s->o.clock.monotonic_ms();

        if (now >= deadline)
            break;
        wait_until_due(s, deadline - now);
    }
    go = is_current(t);
    if (go) {
        s->poked = false;
        s->busy_since_ms = s->o.clock.monotonic_ms();
        if (s->busy_since_ms == 0)
            s->busy_since_ms = 1; /* 0 is "idle" */
    }
    pthread_mutex_unlock(&s->lock);
    return go;
}

/* The call came back. The lock is held on return; false: nobody waits for the result any more. */
static bool end_locked(struct sampler_thread *t)
{
    pthread_mutex_lock(&t->sampler->lock);
    if (!is_current(t))
        return false;
    t->sampler->busy_since_ms = 0;
    return true;
}

static void notify_locked(struct sampler *s)
{
    if (s->notify != NULL)
        uv_async_send(s->notify);
}

static void sample_device(struct sampler_thread *t)
{
    const struct sampler_options *o = &t->sampler->o;
    uint64_t now = o->clock.monotonic_ms();
    struct device_sample *out = &t->sample;
    struct host_meminfo host = {0};
    char why[DEVICE_WHY_MAX];
    int rc = 0;

    if (!t->opened && now < t->open_after_ms)
        return; /* what it said about the device stands */
    device_sample_init(out, o->spec.name, o->source->name);
    out->sampled_at_ms = now;
    why[0] = '\0';
    if (!t->opened) {
        rc = o->source->open(&o->spec, &o->roots, &t->state, &out->state, why);
        t->opened = rc == 0;
        if (rc < 0)
            device_sample_say(out, "%s", why[0] != '\0' ? why : strerror(-rc));
    }
    if (t->opened) {
        rc = o->source->sample(t->state, out);
        (void)host_meminfo_read(o->roots.proc, &host);
        device_sample_check(out, host.total_bytes);
    }
    if (rc < 0) {
        if (t->opened)
            o->source->close(t->state);
        t->opened = false;
        t->state = NULL;
        t->open_after_ms = o->clock.monotonic_ms() + o->reopen_ms;
    }
    out->took_ms = o->clock.monotonic_ms() - now;
}

static void sample_host(struct sampler_thread *t)
{
    const struct sampler_options *o = &t->sampler->o;
    int32_t pids[DEVICE_WATCH_MAX];
    size_t n;

    pthread_mutex_lock(&t->sampler->lock);
    n = t->sampler->n_pids;
    memcpy(pids, t->sampler->pids, n * sizeof(pids[0]));
    pthread_mutex_unlock(&t->sampler->lock);
    memset(&t->host, 0, sizeof(t->host));
    t->host.sampled_at_ms = o->clock.monotonic_ms();
    host_sample_read(&o->roots, pids, n, &t->host);
    t->host.took_ms = o->clock.monotonic_ms() - t->host.sampled_at_ms;
}

static void run_samples(struct sampler_thread *t)
{
    struct sampler *s = t->sampler;
    uint64_t wait_ms = 0;

    while (begin(t, wait_ms)) {
        if (s->o.kind == SAMPLER_KIND_HOST)
            sample_host(t);
        else
            sample_device(t);
        wait_ms = s->o.interval_ms;
        if (end_locked(t)) {
            s->fresh = true;
            if (s->o.kind == SAMPLER_KIND_HOST)
                s->host = t->host;
            else
                s->sample = t->sample;
            notify_locked(s);
        }
        pthread_mutex_unlock(&s->lock);
    }
}

/* A full list keeps what matters: a lost device is not crowded out by a storm of lesser lines. */
static void put_event(struct sampler *s, const struct device_event *event)
{
    size_t at = s->n_events;

    if (at == SAMPLER_EVENTS_MAX) {
        for (at = 0; at < SAMPLER_EVENTS_MAX && s->events[at].fault >= event->fault; at++)
            ;
        if (at == SAMPLER_EVENTS_MAX)
            return;
    } else {
        s->n_events++;
    }
    s->events[at] = *event;
}

static void run_events(struct sampler_thread *t)
{
    struct sampler *s = t->sampler;
    const struct device_events_ops *ops = s->o.events;
    uint64_t wait_ms = 0;

    while (begin(t, wait_ms)) {
        int rc = 0;

        if (!t->opened) {
            rc = ops->open(&s->o.spec, &s->o.roots, &t->state);
            t->opened = rc == 0;
        }
        if (t->opened)
            rc = ops->wait(t->state, (unsigned)s->o.interval_ms, &t->event);
        if (rc > 0)
            t->event.at_ms = s->o.clock.monotonic_ms();
        if (rc < 0 && t->opened) {
            ops->close(t->state);
            t->opened = false;
            t->state = NULL;
        }
        wait_ms = rc < 0 ? s->o.reopen_ms : 0;
        if (end_locked(t)) {
            s->fresh = true; /* it turns; nobody fetches this */
            if (rc > 0) {
                put_event(s, &t->event);
                notify_locked(s);
            }
            if (rc == -ENOTSUP)
                s->stop = s->no_more = true;
        }
        pthread_mutex_unlock(&s->lock);
    }
}

static void *thread_main(void *argument)
{
    struct sampler_thread *t = argument;
    struct sampler *s = t->sampler;

    if (s->o.kind == SAMPLER_KIND_EVENTS) {
        run_events(t);
        if (t->opened)
            s->o.events->close(t->state);
    } else {
        run_samples(t);
        if (t->opened)
            s->o.source->close(t->state);
    }
    free(t);
    pthread_mutex_lock(&s->lock);
    s->threads--;
    atomic_fetch_sub(&threads_alive, 1);
    notify_locked(s); /* there is room for a new one */
    unref_unlock(s);
    return NULL;
}

/* --- the loop's side --- */

/* One more thread, of the current generation. */
static int start_thread(struct sampler *s)
{
    struct sampler_thread *t = calloc(1, sizeof(*t));
    sigset_t all, old;
    pthread_attr_t attr;
    pthread_t id;
    int rc;

    if (t == NULL)
        return -ENOMEM;
    t->sampler = s;
    pthread_mutex_lock(&s->lock);
    t->generation = s->generation;
    s->refs++;
    s->threads++;
    pthread_mutex_unlock(&s->lock);
    atomic_fetch_add(&threads_alive, 1);
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attr, SAMPLER_STACK_BYTES);
    /* Signals are the loop thread's. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    rc = pthread_create(&id, &attr, thread_main, t);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
    if (rc == 0)
        return 0;
    free(t);
    atomic_fetch_sub(&threads_alive, 1);
    pthread_mutex_lock(&s->lock);
    s->threads--;
    s->refs--; /* never the last: the caller has one */
    pthread_mutex_unlock(&s->lock);
    return -rc;
}

int sampler_create(const struct sampler_options *o, uv_async_t *notify, struct sampler **ret)
{
    struct sampler *s = calloc(1, sizeof(*s));
    pthread_condattr_t attr;
    int rc;

    if (s == NULL)
        return -ENOMEM;
    s->o = *o;
    s->refs = 1;
    s->notify = notify;
    s->restart_pause_ms = o->restart_ms;
    pthread_mutex_init(&s->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&s->wake, &attr);
    pthread_condattr_destroy(&attr);
    rc = start_thread(s);
    if (rc < 0) {
        sampler_release(s);
        return rc;
    }
    *ret = s;
    return 0;
}

void sampler_release(struct sampler *s)
{
    if (s == NULL)
        return;
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    s->notify = NULL;
    pthread_cond_broadcast(&s->wake);
    unref_unlock(s);
}

static uint64_t deadline_of(const struct sampler *s)
{
    /* The wait for an event is meant to take its time. */
    return s->o.deadline_ms + (s->o.kind == SAMPLER_KIND_EVENTS ? s->o.interval_ms : 0);
}

static void abandon(struct sampler *s, uint64_t now_ms)
{
    s->generation++;
    s->busy_since_ms = 0;
    s->fresh = false;
    s->hung = true;
    s->restart_at_ms = now_ms + s->restart_pause_ms;
    s->restart_pause_ms *= 2;
    if (s->restart_pause_ms > s->o.restart_max_ms)
        s->restart_pause_ms = s->o.restart_max_ms;
}

enum sampler_change sampler_check(struct sampler *s, uint64_t now_ms)
{
    enum sampler_change change = SAMPLER_CHANGE_NONE;
    bool start = false;

    pthread_mutex_lock(&s->lock);
    if (s->busy_since_ms != 0 && now_ms > s->busy_since_ms &&
        now_ms - s->busy_since_ms > deadline_of(s)) {
        abandon(s, now_ms);
        change = SAMPLER_CHANGE_HUNG;
    } else if (s->hung && !s->stop && s->restart_at_ms != 0) {
        /* All came back: the driver answers again, so the pause is over. */
        bool back = s->threads == 0;

        start = s->threads < SAMPLER_THREADS_MAX && (back || now_ms >= s->restart_at_ms);
    }
    if (s->hung && s->fresh) {
        s->hung = false;
        s->restart_pause_ms = s->o.restart_ms;
        change = SAMPLER_CHANGE_UNHUNG;
    }
    if (s->o.kind == SAMPLER_KIND_EVENTS)
        s->fresh = false;
    pthread_mutex_unlock(&s->lock);
    /* A thread that can not be had now is tried again at the next check. */
    if (start && start_thread(s) == 0)
        s->restart_at_ms = 0;
    return change;
}

bool sampler_take_sample(struct sampler *s, struct device_sample *ret)
{
    bool fresh;

    pthread_mutex_lock(&s->lock);
    fresh = s->fresh;
    if (fresh)
        *ret = s->sample;
    s->fresh = false;
    pthread_mutex_unlock(&s->lock);
    return fresh;
}

bool sampler_take_host(struct sampler *s, struct host_sample *ret)
{
    bool fresh;

    pthread_mutex_lock(&s->lock);
    fresh = s->fresh;
    if (fresh)
        *ret = s->host;
    s->fresh = false;
    pthread_mutex_unlock(&s->lock);
    return fresh;
}

size_t sampler_take_events(struct sampler *s, struct device_event *out)
{
    size_t n;

    pthread_mutex_lock(&s->lock);
    n = s->n_events;
    memcpy(out, s->events, n * sizeof(out[0]));
    s->n_events = 0;
    pthread_mutex_unlock(&s->lock);
    return n;
}

void sampler_poke(struct sampler *s)
{
    pthread_mutex_lock(&s->lock);
    s->poked = true;
    pthread_cond_broadcast(&s->wake);
    pthread_mutex_unlock(&s->lock);
}

void sampler_set_pids(struct sampler *s, const int32_t *pids, size_t n)
{
    if (n > DEVICE_WATCH_MAX)
        n = DEVICE_WATCH_MAX;
    pthread_mutex_lock(&s->lock);
    memcpy(s->pids, pids, n * sizeof(pids[0]));
    s->n_pids = n;
    pthread_mutex_unlock(&s->lock);
}
