/*
 * A sampler: one source of telemetry and the thread that may hang in it.
 *
 *     loop thread                          sampler thread (one that counts, others abandoned)
 *     ───────────                          ──────────────
 *     create ──────── starts ────────────▶ wait for the interval, or a poke
 *                                          │ busy_since = now
 *                                          │ ops->sample()   may take for ever
 *     on_async ◀───── uv_async_send ────── result, busy_since = 0
 *     check():  busy for more than the deadline
 *        generation + 1: that thread is abandoned, its result will be dropped
 *        after a pause (doubling) a new thread, if fewer than 2 are alive
 *     release ─────── stop ──────────────▶ closes its state, ends
 *
 * Invariants
 *   - The loop thread takes the lock only where the sampler thread holds it for a copy: it never
 *     waits for a driver.
 *   - A thread owns what its source opened and frees it itself, however late; the sampler lives until
 *     the last thread is gone. Threads are detached: nobody waits for one.
 *   - At most SAMPLER_THREADS_MAX threads of a sampler are alive: a driver that hangs for a week
 *     holds two threads, not a thousand.
 *   - The thread whose generation is the sampler's is the only one whose results count.
 */
#ifndef FAILSOFT_DEVICE_SAMPLER_H
#define FAILSOFT_DEVICE_SAMPLER_H

#include "device/source.h"

#include <pthread.h>
#include <stdbool.h>
#include <uv.h>

#define SAMPLER_THREADS_MAX 2u
#define SAMPLER_EVENTS_MAX  32u

struct device_clock {
    uint64_t (*monotonic_ms)(void); /* any thread */
    uint64_t (*boottime_ms)(void);
};

enum sampler_kind {
    SAMPLER_KIND_DEVICE,
    SAMPLER_KIND_HOST,
    SAMPLER_KIND_EVENTS,
};

struct sampler_options {
    enum sampler_kind kind;
    struct device_spec spec;
    struct device_roots roots;
    const struct device_source_ops *source; /* DEVICE */
    const struct device_events_ops *events; /* EVENTS */
    struct device_clock clock;
    uint64_t interval_ms;
    uint64_t deadline_ms; /* of one call */
    uint64_t reopen_ms;   /* between attempts to open a source that is not there */
    uint64_t restart_ms;  /* pause before a hung thread is replaced, doubled each time */
    uint64_t restart_max_ms;
};

struct sampler {
    struct sampler_options o;
    pthread_mutex_t lock;
    pthread_cond_t wake;

    /* Under the lock. */
    unsigned refs; /* the owner and each thread */
    unsigned threads;
    unsigned generation;
    bool stop;
    bool poked;
    bool no_more; /* events: there is no such thing here */
    bool fresh;
    uint64_t busy_since_ms; /* of the thread that counts; 0: idle */
    uv_async_t *notify;     /* NULL when the owner is gone */
    struct device_sample sample;
    struct host_sample host;
    struct device_event events[SAMPLER_EVENTS_MAX];
    size_t n_events;
    int32_t pids[DEVICE_WATCH_MAX];
    size_t n_pids;

    /* The loop thread's. */
    bool hung;
    uint64_t restart_at_ms;
    uint64_t restart_pause_ms;
};

/* Starts the thread. The owner calls sampler_release once. 0, -ENOMEM, -EAGAIN. */
int sampler_create(const struct sampler_options *o, uv_async_t *notify, struct sampler **ret);

/* Ends it without waiting; what hangs is freed when it comes back. NULL is fine. */
void sampler_release(struct sampler *s);

enum sampler_change {
    SAMPLER_CHANGE_NONE,
    SAMPLER_CHANGE_HUNG,   /* the call is over its deadline; the thread was abandoned */
    SAMPLER_CHANGE_UNHUNG, /* a new result is there, or a thread came back and sampling restarts */
};

/* Deadline and restart; to be called at every tick and every notification. */
enum sampler_change sampler_check(struct sampler *s, uint64_t now_ms);

/* The newest result, once each; false: nothing new. */
bool sampler_take_sample(struct sampler *s, struct device_sample *ret);
bool sampler_take_host(struct sampler *s, struct host_sample *ret);
/* Up to SAMPLER_EVENTS_MAX events into `out`; how many. */
size_t sampler_take_events(struct sampler *s, struct device_event *out);

/* Sample now instead of at the end of the interval. */
void sampler_poke(struct sampler *s);

/* Processes for the host source, at most DEVICE_WATCH_MAX. */
void sampler_set_pids(struct sampler *s, const int32_t *pids, size_t n);

/* Threads of all samplers that are alive, hung ones included. */
unsigned sampler_threads(void);

#endif
