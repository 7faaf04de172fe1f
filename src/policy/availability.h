/*
 * Whether a worker may be given a request: consecutive faults suspend it, and after a hold exactly
 * one real request is the probe that decides.
 *
 *                 faults ≥ limit, or one that counts at once
 *   AVAILABLE ─────────────────────────────────────────────► SUSPENDED ◄──┐
 *       ▲                                                       │         │ fault, deadline,
 *       │                                        hold over, one │         │ or given up
 *       │                                       request takes   ▼         │ (its client left)
 *       └────────────────── success ───────────────────────── PROBING ────┘
 *
 * The hold doubles when a probe fails and starts anew after a success that lasted. A probe that was
 * given up says nothing about the worker: the next request may probe at once.
 *
 * Pure: time comes in as a number of milliseconds of any monotonic clock.
 */
#ifndef FAILSOFT_POLICY_AVAILABILITY_H
#define FAILSOFT_POLICY_AVAILABILITY_H

#include <stdbool.h>
#include <stdint.h>

enum availability_state {
    AVAILABILITY_STATE_AVAILABLE = 0,
    AVAILABILITY_STATE_SUSPENDED,
    AVAILABILITY_STATE_PROBING,
};

enum availability_verdict {
    AVAILABILITY_VERDICT_YES = 0,
    AVAILABILITY_VERDICT_PROBE, /* yes, as the probe: take it with availability_take_probe */
    AVAILABILITY_VERDICT_NO,
};

struct availability_settings {
    uint32_t failures;    /* consecutive faults that suspend; at least 1 */
    uint64_t hold_ms;     /* first hold */
    uint64_t hold_max_ms; /* it never grows beyond */
};

struct availability {
    struct availability_settings settings;
    enum availability_state state;
    uint32_t consecutive;  /* faults since the last success */
    uint64_t next_hold_ms; /* length of the next hold */
    uint64_t until_ms;     /* suspended: when a probe may go */
    uint64_t probe_owner;  /* probing: id of the request, never 0 then */
};

void availability_init(struct availability *a, const struct availability_settings *settings);

/* New settings; the state stays. */
void availability_configure(struct availability *a, const struct availability_settings *settings);

/* May a request go to the worker at this moment? Changes nothing. */
enum availability_verdict availability_ask(const struct availability *a, uint64_t now_ms);

/* Milliseconds until a probe may go; 0 when one may go now, or none is needed. While another
 * request probes: the hold that would follow a failure, as an estimate. */
uint64_t availability_retry_in_ms(const struct availability *a, uint64_t now_ms);

/* The request `owner` (not 0) is the probe from now on. Only after VERDICT_PROBE. */
void availability_take_probe(struct availability *a, uint64_t owner);

/* An attempt of `owner` worked (its worker produced output). */
void availability_success(struct availability *a, uint64_t owner);

/*
 * An attempt of `owner` failed by the worker's fault. at_once: suspends whatever the count (a lost
 * device). True when this fault suspended the worker.
 */
bool availability_fault(struct availability *a, uint64_t owner, bool at_once, uint64_t now_ms);

/* The attempt of `owner` ended without saying anything about the worker (client left, the
 * request's own error, busy). Does nothing unless it was the probe. */
void availability_give_up(struct availability *a, uint64_t owner, uint64_t now_ms);

/*
 * The worker's process was started anew and is ready. A first hold is cut short (the cause may be
 * gone with the process); a repeated one is kept, or an engine that loads well and fails at every
 * request would be hammered.
 */
void availability_restarted(struct availability *a, uint64_t now_ms);

const char *availability_state_name(enum availability_state state);

#endif
