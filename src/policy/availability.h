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
 * A doubt is a fault that may be the request's own, to be seen by what another worker answers. It
 * waits, and is then counted (settle) or not (forgive). Were it counted at once, a few bad requests
 * at the same time would suspend a worker for a moment, and those that come in that moment, with
 * nobody left to compare with, would be counted against the next one. Only a probe cannot wait: its
 * doubt ends it as a fault does, and forgiving makes that undone.
 *
 * Faults come in runs; a success and a probe begin a new one each. What waited from a run before is
 * neither counted nor forgiven any more: others have decided since.
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
    uint32_t run;          /* number of the run of faults */
    /* Suspended by a probe's doubt: the request, never 0 then, and its hold. */
    uint64_t doubted_probe, doubted_hold_ms;
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

/* An attempt of `owner` failed, perhaps by its request's own fault. True when that suspended the
 * worker: it was the probe. Ended by one of the two below, with `run` as it is after this call. */
bool availability_doubt(struct availability *a, uint64_t owner, uint64_t now_ms);

/* It was the worker's fault after all, or nobody can tell. True when that suspended the worker. */
bool availability_settle(struct availability *a, uint64_t owner, uint32_t run, uint64_t now_ms);

/* It was the request's. True when the worker may be tried at once instead of after a hold: it was the
 * probe, and nobody else has given cause for a suspension since. */
bool availability_forgive(struct availability *a, uint64_t owner, uint32_t run, uint64_t now_ms);

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
