/*
 * What follows from a fault of an attempt before the commit point: once more on the same worker,
 * the next tier, or on to the client; and whether it counts against the worker.
 *
 * Some errors (a bare HTTP 500 to a file that is no picture) do not say whose they are; only another
 * worker's answer to the same request does. Such a doubt waits, one for a worker and a request
 * however often it was tried. When the next worker answers well, or nobody can tell, it counts. When
 * the next one says the same and no other tier is left to ask, the request is to blame: the answer
 * goes to the client, and no worker is counted for it.
 *
 * Pure.
 */
#ifndef FAILSOFT_POLICY_FAILOVER_H
#define FAILSOFT_POLICY_FAILOVER_H

#include <stdbool.h>
#include <stdint.h>

struct failover_facts {
    bool own_error;        /* the fault is the request's: any equal worker would answer the same */
    bool may_retry;        /* of a class that passes by itself */
    bool doubt;            /* the fault may be the request's; with own_error: by its content */
    bool doubted_here;     /* a doubt about this request waits for this worker … */
    bool doubted;          /* … and for another one */
    bool others_left;      /* another tier can be asked */
    bool stale_connection; /* a pooled connection was closed under the request; no byte came back */
    bool worker_gone;      /* the worker cannot take another try now */
    unsigned retries;      /* retries already made on this worker for this request */
    unsigned stale_retries;
    int64_t retry_after_ms;      /* what the worker asked for, -1: nothing */
    uint64_t retry_after_max_ms; /* longest pause that is waited out */
};

enum failover_move {
    FAILOVER_MOVE_RETRY = 0, /* same worker, after pause_ms */
    FAILOVER_MOVE_NEXT,
    FAILOVER_MOVE_PASS_ON,
};

struct failover_decision {
    enum failover_move move;
    uint64_t pause_ms;
    bool fresh_connection; /* the retry must not use a pooled connection */
    bool uncounted;        /* this fault says nothing (new) about the worker */
    bool waits;            /* it does not count yet */
    bool forgive;          /* what waits will not count */
};

struct failover_decision failover_decide(const struct failover_facts *facts);

#endif
