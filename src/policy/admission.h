/*
 * Where a request runs, decided before it reaches a device, and before a worker is loaded. From what
 * it needs (upper bounds), what the ledgers say, and what service and client allow, one of six
 * actions and the reason in words and numbers:
 *
 *   ADMIT    the first tier takes it
 *   DELAY    that tier takes it after delay_ms: memory, a slot or the device is expected back by then
 *   SHRINK   a tier takes it with fewer output tokens (max_tokens) or a shorter context; never said
 *            unless service or client allows it
 *   OFFLOAD  a hybrid tier takes it
 *   ROUTE    another tier further down takes it
 *   REFUSE   none does; retry_after_ms, or never when `permanent`, and what would fit
 *
 * The tiers are tried in their order; at each one delaying comes before shrinking, and shrinking before
 * the next tier. What is not known is never free: a tier whose memory is needed and not known is not
 * taken.
 *
 * The decision reserves nothing. The caller opens the claims next (ledger_claim_open, kv_take), on
 * the same turn of its loop; they check again by themselves.
 *
 * Pure; a decision allocates nothing and keeps no pointer.
 */
#ifndef FAILSOFT_POLICY_ADMISSION_H
#define FAILSOFT_POLICY_ADMISSION_H

#include "policy/ledger.h"
#include "policy/pressure.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ADMISSION_REASON_MAX = 512, ADMISSION_SAID_MAX = 16 };

/* No request has more tokens (F33): beyond it the figure is not a size but an overflow. */
#define ADMISSION_TOKENS_MAX (UINT64_C(1) << 31)

enum admission_action {
    ADMISSION_ACTION_ADMIT = 0,
    ADMISSION_ACTION_DELAY,
    ADMISSION_ACTION_SHRINK,
    ADMISSION_ACTION_OFFLOAD,
    ADMISSION_ACTION_ROUTE,
    ADMISSION_ACTION_REFUSE,
};

enum admission_tier_kind {
    ADMISSION_TIER_GPU = 0,
    ADMISSION_TIER_HYBRID,
    ADMISSION_TIER_CPU,
    ADMISSION_TIER_SUBSTITUTE,
    ADMISSION_TIER_REMOTE,
};

/* What the client takes (X-Failsoft-Accept). */
enum admission_accept {
    ADMISSION_ACCEPT_ANY = 0,
    ADMISSION_ACCEPT_SAME_MODEL, /* no substitute */
    ADMISSION_ACCEPT_GPU_ONLY,   /* nothing but gpu tiers */
};

/* A predicted amount. Decisions go by `upper`; `value` is for people. */
struct admission_amount {
    uint64_t value;
    uint64_t upper; /* ≥ value, or it is not a prediction and the tier is not taken */
};

struct admission_tier {
    const char *name;
    enum admission_tier_kind kind;

    /* Ledgers of the moment. The same pointer for both: one pool (ledger.h), needs are added. NULL:
     * the tier has none; then it may need nothing of it. */
    const struct ledger_view *device;
    const struct ledger_view *host;
    enum pressure_level pressure; /* of the device, or of the host where there is none */

    bool loaded;              /* its worker runs; the needs are what the request adds */
    bool excluded;            /* failed for this request already, suspended, or not configured */
    const char *excluded_why; /* NULL: nothing to say */
    bool unfit;               /* this load failed for good with these settings (F13, learning.h) */
    uint64_t held_back_ms;    /* yielded, or not back yet after pressure (pressure.h): not before */
    uint64_t load_wait_ms;    /* another load is in progress on the device: expected end; 0: none */

    /* Of the worker's load where it is not loaded, and of the attempt. */
    struct admission_amount device_bytes;
    struct admission_amount host_bytes;
    uint64_t largest_block_bytes; /* upper bound of its largest single buffer; 0: not known */
    /* Loaded, and a request of this kind was never measured on it: it may add more than its needs say,
     * so it is not given one while the reserve is being used. */
    bool may_grow;
    bool low_confidence;     /* said in the reason; `upper` is wide already */
    uint64_t memory_back_ms; /* releasing memory is expected within; 0: by its deadline */

    /* KV (kv.h). Loaded: of the worker. Else: of the worker as it would be loaded. */
    uint64_t kv_request_max; /* longest request it can ever run; 0: not limited */
    uint64_t kv_free_tokens; /* longest it can start now (loaded only) */
    uint64_t kv_free_in_ms;  /* expected until room is back; 0: not known */
    /* What counts as output here: engines with a context of one request's own end an answer at its
     * end by themselves. 0: the request's output_tokens. */
    uint64_t kv_output_tokens;
    /* A load with a shorter context. */
    uint64_t context_tokens;          /* as configured, in all */
    uint64_t context_slots;           /* that share it; 0: one */
    uint64_t bytes_per_context_token; /* of device_bytes; 0: shortening does not help */
};

struct admission_facts {
    const struct admission_tier *tiers; /* in order of preference */
    size_t tier_count;
    uint64_t prompt_tokens; /* upper bound; 0 where the kind has none */
    uint64_t output_tokens; /* requested, or the service's bound */

    enum admission_accept accept;
    bool may_shrink_output;  /* service or client */
    bool may_shrink_context; /* the service */
    bool cpu_denied;         /* by the service */
    /* Memory that no telemetry vouches for may be used: the owner says that nobody else is there. */
    bool trust_claims_alone;
    uint64_t output_tokens_min;  /* shrunk output is at least this; 0: 16 */
    uint64_t context_tokens_min; /* shrunk context is at least this; 0: 4096 */
    uint64_t delay_max_ms;       /* bound of all delays of the request */
    uint64_t delayed_ms;         /* of that, used up */
    uint64_t retry_after_ms;     /* for a refusal where nothing better is known; 0: 5000 */
};

struct admission_decision {
    enum admission_action action;
    size_t tier;             /* index; REFUSE: the first one that was looked at */
    uint64_t delay_ms;       /* DELAY */
    uint64_t max_tokens;     /* SHRINK of the output; 0: as asked */
    uint64_t context_tokens; /* SHRINK of the context, in all; 0: as configured */
    uint64_t retry_after_ms; /* REFUSE, unless permanent */
    bool permanent;          /* REFUSE: waiting does not help */
    /* REFUSE: its tokens alone speak against it, on every tier that might have been taken. */
    bool too_long;
    bool nonsense; /* REFUSE: not a size (F33, F48); no capacity fault */
    /* Would fit on the first tier that was not excluded; 0: nothing, or not known. */
    uint64_t would_fit_context; /* tokens */
    uint64_t would_fit_tokens;  /* prompt and output together */
    uint64_t short_bytes;       /* what is missing there */
    uint64_t margin_bytes;      /* of that, what only the reserve keeps from fitting (F31) */
    /* Printable ASCII: each tier that was looked at, "; " between. */
    char reason[ADMISSION_REASON_MAX];
    /* Where each of them stands in it, without its name; empty for those not looked at. */
    struct {
        uint16_t start, end;
    } said[ADMISSION_SAID_MAX];
};

struct admission_decision admission_decide(const struct admission_facts *facts);

const char *admission_action_name(enum admission_action action);

#endif
