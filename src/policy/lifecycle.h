/*
 * A request's life as a table: which event may come in which state, where it leads, and what has
 * to be done. The gateway does nothing to a request that this table does not say.
 *
 *                 refused                       no tier, final fault, wait expired
 *   RECEIVED ───────────────────────────┐      ┌───────────────────────────────────┐
 *      │ identified                     ▼      ▼                                   │
 *      └──────────────► DECIDING ────► FAILED ◄──── cut ──── RELAYING ──► DONE     │
 *                        ▲ │  ▲ │                              ▲           ▲       │
 *          wake, expired │ │  │ │ slot                  output │    answer │       │
 *                        │ ▼  │ ▼                              │           │       │
 *                    WAITING  └─ DISPATCHED ───────────────────┴───────────┴───────┘
 *                       fault, next │   ▲ wake
 *                                   ▼   │
 *                                   PAUSED   (the worker asked for a short pause)
 *
 *   DECIDING ── count ─► COUNTING ── counted ─► DECIDING   (a worker counts the prompt's tokens)
 *
 *   gone or cancel: any state that is not final ──► CANCELLED
 *
 * What follows from the table, and is tested over all of it: one outcome (final states take no
 * event), no replay after effect (nothing leads from RELAYING back to an attempt), no silence (a
 * client that leaves is noticed in every state).
 *
 * Pure: no clock, no I/O, no allocation.
 */
#ifndef FAILSOFT_POLICY_LIFECYCLE_H
#define FAILSOFT_POLICY_LIFECYCLE_H

#include <stdbool.h>

enum lifecycle_state {
    LIFECYCLE_STATE_RECEIVED = 0, /* head and body are there */
    LIFECYCLE_STATE_DECIDING,     /* accepted; a tier is to be chosen */
    LIFECYCLE_STATE_COUNTING,     /* deciding takes the prompt's exact length */
    LIFECYCLE_STATE_WAITING,      /* queued for a worker */
    LIFECYCLE_STATE_DISPATCHED,   /* an attempt runs, nothing of it was forwarded */
    LIFECYCLE_STATE_PAUSED,       /* before the one retry on the same worker */
    LIFECYCLE_STATE_RELAYING,     /* past the commit point */
    LIFECYCLE_STATE_DONE,
    LIFECYCLE_STATE_FAILED,
    LIFECYCLE_STATE_CANCELLED,
    LIFECYCLE_STATE_COUNT,
};

enum lifecycle_event {
    LIFECYCLE_EVENT_IDENTIFIED = 0, /* valid, and its service is known: accepted */
    LIFECYCLE_EVENT_REFUSED,        /* not accepted: the client's own error */
    LIFECYCLE_EVENT_ASK_COUNT,      /* the prompt's length is asked for */
    LIFECYCLE_EVENT_COUNTED,        /* it is known, or known not to be had */
    LIFECYCLE_EVENT_SLOT,           /* a worker with room was chosen */
    LIFECYCLE_EVENT_QUEUED,         /* a worker was chosen that has no room yet */
    LIFECYCLE_EVENT_NO_TIER,        /* nothing is left to try */
    LIFECYCLE_EVENT_WAKE,           /* room, a changed worker, or the end of a pause */
    LIFECYCLE_EVENT_EXPIRED,        /* waited as long as allowed */
    LIFECYCLE_EVENT_OUTPUT,         /* the first event that carries output: the commit point */
    LIFECYCLE_EVENT_ANSWER,         /* a whole answer: forwarded and complete in one */
    LIFECYCLE_EVENT_FAULT_RETRY,    /* a fault; policy: once more on the same worker */
    LIFECYCLE_EVENT_FAULT_NEXT,     /* a fault; policy: the next tier */
    LIFECYCLE_EVENT_FAULT_FINAL,    /* a fault that is the client's own: passed on */
    LIFECYCLE_EVENT_CUT,            /* a fault after the commit point */
    LIFECYCLE_EVENT_END,            /* the proper end of a stream */
    LIFECYCLE_EVENT_GONE,           /* the client left */
    LIFECYCLE_EVENT_CANCEL,         /* cancelled by the owner, or by shutdown */
    LIFECYCLE_EVENT_COUNT,
};

/* What to do, in the order of the bits. */
enum lifecycle_action {
    LIFECYCLE_ACTION_DROP_ATTEMPT = 1 << 0, /* close the call to the worker, release its slot */
    LIFECYCLE_ACTION_LEAVE_QUEUE = 1 << 1,
    LIFECYCLE_ACTION_DROP_COUNT = 1 << 2, /* nobody waits for the count any more */
    LIFECYCLE_ACTION_DECIDE = 1 << 3,
    LIFECYCLE_ACTION_START_COUNT = 1 << 4,
    LIFECYCLE_ACTION_DISPATCH = 1 << 5,
    LIFECYCLE_ACTION_ENQUEUE = 1 << 6,
    LIFECYCLE_ACTION_PAUSE = 1 << 7,
    LIFECYCLE_ACTION_COMMIT = 1 << 8,     /* send status, headers and what was held back */
    LIFECYCLE_ACTION_REPLY = 1 << 9,      /* send the whole answer */
    LIFECYCLE_ACTION_SAY_ERROR = 1 << 10, /* answer with an error: nothing was sent yet */
    LIFECYCLE_ACTION_SAY_CUT = 1 << 11,   /* one typed error event, then the proper end */
    LIFECYCLE_ACTION_END = 1 << 12,       /* end the response properly */
    LIFECYCLE_ACTION_CLOSE = 1 << 13,     /* nobody listens: nothing is said */
};

struct lifecycle_step {
    bool legal;
    enum lifecycle_state next;
    unsigned actions; /* enum lifecycle_action bits */
};

/* The table's entry. An illegal pair has legal == false, the same state and no action. */
struct lifecycle_step lifecycle_next(enum lifecycle_state state, enum lifecycle_event event);

/* DONE, FAILED or CANCELLED. */
bool lifecycle_is_final(enum lifecycle_state state);

/* "deciding", …, for the status page and the log. */
const char *lifecycle_state_name(enum lifecycle_state state);
const char *lifecycle_event_name(enum lifecycle_event event);

#endif
