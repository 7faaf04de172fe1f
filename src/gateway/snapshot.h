/*
 * What the status API, the metrics page and `failsoft status` show: a plain copy of the gateway's
 * state at one moment, taken on the loop thread. Strings are borrowed from the gateway and valid
 * until control returns to the loop.
 */
#ifndef FAILSOFT_GATEWAY_SNAPSHOT_H
#define FAILSOFT_GATEWAY_SNAPSHOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gateway;

/* A histogram with fixed bounds (see gateway/metrics.h), for the metrics page. */
struct gateway_histogram {
    const double *bounds_s; /* upper bounds, ascending, without +Inf */
    const uint64_t *counts; /* bound_count + 1 entries, not cumulative */
    size_t bound_count;
    uint64_t count;
    double sum_s;
};

/* The KV cache of a worker, as its engine reports it. */
struct gateway_kv_snapshot {
    const char *kind; /* slots, unified, paged; NULL: not known */
    uint64_t tokens;
    uint32_t slots;        /* 0: no fixed number */
    uint64_t page_tokens;  /* 0: counted in tokens */
    uint64_t taken_tokens; /* by requests of ours: what they may need */
    uint64_t used_tokens;  /* those, and what others hold */
    uint64_t free_tokens;  /* the longest request that can start now */
};

/* What its worker takes of its device; 0: not known. */
struct gateway_memory_snapshot {
    uint64_t predicted_bytes; /* claimed for its next load */
    uint64_t formula_bytes;   /* what would be without measurements */
    uint64_t learned_bytes;   /* the most that a load was measured to take */
    uint32_t loads_measured;
    uint64_t measured_bytes; /* now */
    uint64_t request_bytes;  /* what one more request is reckoned to add to it */
};

struct gateway_tier_snapshot {
    const char *service;
    const char *kind;    /* chat, embeddings, … */
    const char *tier;    /* name of the tier: gpu, cpu, … */
    const char *engine;  /* llama-server, ollama, openai (generic OpenAI-compatible), generic */
    const char *address; /* unix:… or base URL */
    const char *device;  /* "" when none */
    bool managed;
    int pid; /* 0 when none */
    const char *
        state; /* worker state in a word: starting, loading, ready, backoff, failed, stopped, external */
    const char *availability; /* available, suspended, probing */
    bool usable;              /* may be given a request now, be it as the probe */
    bool proven;              /* usable, and its last attempt did not fail */
    bool promising;           /* proven, or seen to be there again: the next request will tell */
    const char *reason;       /* why it is not available; "" when it is */
    uint64_t state_age_ms;
    uint64_t retry_in_ms; /* when suspended or in back-off: until the next try; else 0 */
    uint32_t consecutive_failures;
    uint32_t running; /* attempts dispatched and not ended */
    uint32_t waiting; /* requests queued for this worker */
    uint32_t slots;   /* concurrency limit; 0: none known */
    uint32_t restarts;
    uint32_t recycles; /* of them because its memory crept up */
    struct gateway_memory_snapshot memory;
    uint64_t attempts_total;
    uint64_t attempts_failed; /* faults of the worker, request errors not counted */
    struct gateway_kv_snapshot kv;
    struct gateway_histogram first_event;
};

/* Who holds memory of a device, by our own claims. */
struct gateway_claim_snapshot {
    const char *label; /* service/tier */
    const char *state; /* unsettled, settled, releasing */
    uint64_t bytes;    /* what counts now */
    uint64_t predicted_bytes;
};

/* total = reserve + foreign + settled + unsettled + releasing + headroom */
struct gateway_device_snapshot {
    const char *name;
    const char *kind;     /* nvidia, amd, intel, sim; host */
    const char *trust;    /* fresh, stale, broken, none: of the figures */
    const char *pressure; /* normal, elevated, high, critical */
    const char *reason;   /* what telemetry has to say; "" when all is well */
    uint64_t age_ms;
    uint64_t total_bytes, reserve_bytes, foreign_bytes;
    uint64_t settled_bytes, unsettled_bytes, releasing_bytes;
    int64_t headroom_bytes;
    uint64_t yield_left_ms; /* given back by hand for this long */
    bool integrated;        /* its memory is the machine's: the figures are the host's */
    uint32_t stall_pct;     /* host: of the time, some process waits for memory */
    const struct gateway_claim_snapshot *claims;
    size_t claim_count;
};

struct gateway_request_snapshot {
    const char *id;
    const char *service;
    const char *operation; /* chat, completions, embeddings, … */
    const char *state;     /* deciding, waiting, dispatched, relaying */
    const char *tier;      /* "" while none */
    const char *degraded;  /* "" or why it is not as asked */
    bool streamed;
    bool committed;
    uint64_t age_ms;
    uint64_t events_sent;
    uint32_t attempts;
};

/* What admission decided of a request, newest first. */
struct gateway_decision_snapshot {
    const char *id;
    const char *service;
    const char *tier;   /* "" when refused */
    const char *action; /* admit, delay, shrink, offload, route, refuse */
    const char *reason; /* in words and numbers */
    uint64_t age_ms;
};

enum { GATEWAY_ACTIONS = 6 }; /* of admission */

struct gateway_service_counters {
    const char *service;
    uint64_t requests_total; /* accepted */
    uint64_t done, failed, cancelled;
    uint64_t failovers;        /* attempts that moved to another tier before the commit point */
    uint64_t retries;          /* second tries on the same worker */
    uint64_t cut_after_commit; /* ended with a resumable error */
    /* Decisions of admission by action, in the order of gateway_action_name(). */
    uint64_t decided[GATEWAY_ACTIONS];
    struct gateway_histogram duration;
};

struct gateway_snapshot {
    const char *version;
    uint64_t uptime_ms;
    bool ready;    /* every service has a tier that can serve */
    bool degraded; /* some first tier cannot serve */
    unsigned connections;
    uint64_t connections_refused;
    uint64_t config_generation; /* 1 at start, +1 per successful reload */
    const char *config_error;   /* why the last reload was not taken; "" when it was */
    const struct gateway_tier_snapshot *tiers;
    size_t tier_count;
    const struct gateway_request_snapshot *requests;
    size_t request_count;
    const struct gateway_service_counters *services;
    size_t service_count;
    const struct gateway_device_snapshot *devices;
    size_t device_count;
    struct gateway_device_snapshot host;         /* the machine's memory; its name is "host" */
    const struct gateway_claim_snapshot *claims; /* of all devices, and of the host */
    const struct gateway_decision_snapshot *decisions;
    size_t decision_count;
    void *texts; /* private: what some strings point into */
};

/* "admit", …; for 0 to GATEWAY_ACTIONS - 1. */
const char *gateway_action_name(unsigned action);

#endif
