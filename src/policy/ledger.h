/*
 * The memory of one device, in double entry:
 *
 *     total = reserve + foreign + settled + unsettled + releasing + headroom
 *
 * exactly, at every moment; headroom is negative while more is used than there should be. Whatever
 * wants memory of the device opens a claim first, so two loads that start 50 ms apart cannot both
 * spend what telemetry still calls free.
 *
 *            open                 settle                begin_release
 *   (none) ────────► UNSETTLED ──────────► SETTLED ───────────────────► RELEASING ───► (none)
 *                      │    ▲                │  ▲ settle: measured again   ▲    │
 *                      │    └──── resize ────┘  └──┘                       │    │ seen to be back in
 *                      ├───────── begin_release (the load failed) ─────────┘    │ two samples, or
 *                      └───────── cancel (nothing was ever allocated) ──► (none)│ finish_release, or
 *                                                                               │ deadline: what is
 *                                                                               │ not back is foreign
 *
 * What telemetry says is only ever believed against us:
 *
 *   - foreign is all that is used and that no claim explains, held at its recent peak (foreign.h).
 *     A process of ours explains at most what it claimed; what it uses beyond is foreign.
 *   - News comes late. A process that is no longer listed may have ended before anybody told us, and
 *     what it was last seen to hold may not be back: that is no stranger's.
 *   - Used bytes that may be a load in progress or somebody else's (no figures per process) count
 *     twice for admission, as both, until the load has settled. Not for pressure: an own load must
 *     not look like an emergency.
 *   - A sample that is old (stale_ms), impossible, or contradicts what is known to be loaded changes
 *     no figure; nothing is admitted until a good one comes.
 *
 * A pool that the device shares with the host (integrated graphics) is one ledger, used for the
 * device and for the host: ledger_uma_sample.
 *
 * Memory: the table of claims is the caller's, given at init. Pure; times are milliseconds of any
 * monotonic clock, and never run backwards between calls.
 */
#ifndef FAILSOFT_POLICY_LEDGER_H
#define FAILSOFT_POLICY_LEDGER_H

#include "policy/foreign.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    LEDGER_NAME_MAX = 32,  /* with the terminator; longer names are cut */
    LEDGER_HOLDERS_MAX = 3 /* of a view */
};

/* No device has more: 64 TiB. What is above is a broken figure; sums of it cannot wrap. */
#define LEDGER_BYTES_MAX (UINT64_C(1) << 46)

/* No claim has this id. */
#define LEDGER_CLAIM_NONE UINT64_C(0)

enum ledger_owner {
    LEDGER_OWNER_WORKER = 0, /* a worker's load: weights, KV, buffers */
    LEDGER_OWNER_ATTEMPT,    /* what one request adds */
    LEDGER_OWNER_WORKSPACE,  /* what a worker's engine allocates at its first computations */
};

enum ledger_state {
    LEDGER_STATE_NONE = 0,
    LEDGER_STATE_UNSETTLED,
    LEDGER_STATE_SETTLED,
    LEDGER_STATE_RELEASING,
};

struct ledger_settings {
    uint64_t reserve_bytes;   /* 0: the larger of 512 MiB and 5 % of the total */
    uint64_t declared_bytes;  /* total where telemetry has none; else an upper limit. 0: not said */
    bool no_source;           /* the device has no telemetry: only claims count */
    uint64_t stale_ms;        /* 2000 */
    uint64_t foreign_hold_ms; /* 10000 */
    uint64_t release_ms;      /* 5000: memory that is not back by then stays on as foreign */
};

struct ledger_claim {
    enum ledger_state state;
    enum ledger_owner owner;
    uint64_t generation; /* of this entry; see claim_id.h */
    uint64_t owner_id;   /* the caller's: worker or request */
    char label[LEDGER_NAME_MAX];
    uint32_t pid;             /* 0: not known */
    uint64_t held_bytes;      /* what counts: predicted, then measured, then what is not back yet */
    uint64_t predicted_bytes; /* upper bound */
    uint64_t measured_bytes;  /* since it settled */
    uint64_t shown_bytes;     /* of its process, in the last sample that had any */
    uint64_t since_ms;        /* of the state */
    uint64_t deadline_ms;     /* releasing */
    unsigned looks;           /* releasing: samples taken since, 2 at most */
};

struct ledger {
    char name[LEDGER_NAME_MAX]; /* of the device */
    struct ledger_settings settings;
    struct ledger_claim *claims;
    uint32_t capacity;

    uint64_t total_bytes;
    uint64_t largest_bytes; /* largest single allocation; 0: not known */
    bool sampled;           /* a good sample was seen */
    bool distrusted;        /* the last sample was no good */
    uint64_t sampled_ms;    /* when the last good one was taken */
    struct foreign foreign;
    uint64_t base_bytes;    /* foreign without the peak */
    uint64_t excess_bytes;  /* used, not explained, not taken for foreign */
    uint64_t hidden_bytes;  /* at the last sample: what of live claims may be among the excess */
    uint64_t last_not_back; /* of the releasing claims, at the last sample */
};

struct ledger_request {
    enum ledger_owner owner;
    uint64_t owner_id;
    const char *label; /* copied; who holds it, for people: "chat" */
    uint64_t bytes;    /* upper bound */
    uint32_t pid;      /* 0: not known yet */
    /* It exists already, or the owner wants it in spite of unknown memory: never refused. */
    bool adopt;
};

/* Memory of one of our own processes on the device. */
struct ledger_process {
    uint32_t pid;
    uint64_t bytes;
};

struct ledger_sample {
    uint64_t taken_ms; /* when the source was asked, not when the answer came */
    bool total_valid;
    bool used_valid;
    bool free_valid;
    bool processes_valid; /* the device tells per process; a process that is not listed has none */
    uint64_t total_bytes;
    uint64_t used_bytes;
    uint64_t free_bytes;    /* with used, the worse of the two counts: drivers keep some (F34) */
    uint64_t largest_bytes; /* largest single allocation that can succeed; 0: not known */
    const struct ledger_process *processes;
    size_t process_count;
};

enum ledger_trust {
    LEDGER_TRUST_FRESH = 0,
    LEDGER_TRUST_STALE,  /* no good sample yet, or too old */
    LEDGER_TRUST_BROKEN, /* the last sample was impossible or contradicted what is loaded */
    LEDGER_TRUST_NONE,   /* a device without telemetry: only claims are known */
};

struct ledger_holder {
    char label[LEDGER_NAME_MAX];
    uint64_t bytes;
};

/* The ledger at one moment. */
struct ledger_view {
    char name[LEDGER_NAME_MAX];
    enum ledger_trust trust;
    uint64_t age_ms; /* of the figures; 0 without telemetry */
    uint64_t total_bytes;
    uint64_t reserve_bytes;
    uint64_t foreign_bytes;
    uint64_t settled_bytes;
    uint64_t unsettled_bytes;
    uint64_t releasing_bytes;
    int64_t headroom_bytes; /* the identity */
    /* What may be admitted: ≤ headroom, and ≤ 0 unless FRESH. Without a trusted figure only an owner
     * who says that the device is not shared may go by headroom_bytes. */
    int64_t admissible_bytes;
    uint64_t largest_bytes; /* 0: not known */
    uint64_t return_in_ms;  /* releasing memory is back, or given up, within; 0: none */
    uint32_t claim_count;
    /* Who holds most, all claims with the same label together; entries with 0 bytes are unused. */
    struct ledger_holder holders[LEDGER_HOLDERS_MAX];
};

/* name is copied. claims: capacity (≤ 65536) entries, the caller's, kept for the ledger's life. */
void ledger_init(struct ledger *l, const char *name, const struct ledger_settings *settings,
                 struct ledger_claim *claims, uint32_t capacity);

/* No telemetry will come for it: from now on only claims count, against what was declared. */
void ledger_give_up_source(struct ledger *l);

/* Other settings of the same name, from the next figure on; claims stay. A declared total is the total
 * at once where only claims count, else with the next sample. */
void ledger_set_limits(struct ledger *l, uint64_t reserve_bytes, uint64_t declared_bytes);

/* Defaults seen to work elsewhere: reserve chosen, 2 s, 10 s, 5 s. */
struct ledger_settings ledger_settings_default(void);

/*
 * Opens a claim. 0; -ENOSPC: more than is admissible now (never with adopt); -ENOBUFS: the table is
 * full; -ERANGE: no such size.
 */
int ledger_claim_open(struct ledger *l, const struct ledger_request *request, uint64_t now_ms,
                      uint64_t *ret_id);

/* The process that allocates for the claim. 0, -ENOENT. */
int ledger_claim_set_pid(struct ledger *l, uint64_t id, uint32_t pid);

/*
 * The owner has allocated all it will: measured replaces predicted, be it more or less. Again on a
 * settled claim when it is measured anew. 0, -ENOENT, -ERANGE, -EALREADY (releasing).
 */
int ledger_claim_settle(struct ledger *l, uint64_t id, uint64_t measured_bytes, uint64_t now_ms);

/*
 * Another upper bound. A claim that grows is unsettled again. 0; -ENOSPC: what it grows by is not
 * admissible; -EBUSY: a settled claim shrinks only by being measured; -ENOENT; -ERANGE; -EALREADY.
 */
int ledger_claim_resize(struct ledger *l, uint64_t id, uint64_t bytes, uint64_t now_ms);

/* Nothing was allocated for it: gone at once. 0, -ENOENT, -EBUSY (not unsettled). */
int ledger_claim_cancel(struct ledger *l, uint64_t id);

/* The owner ended or is ending: its bytes count until they are seen to be back. 0, -ENOENT,
 * -EALREADY. */
int ledger_claim_begin_release(struct ledger *l, uint64_t id, uint64_t now_ms);

/* The caller knows that all of it is back (the source says so per process). 0, -ENOENT, -EBUSY (not
 * releasing). */
int ledger_claim_finish_release(struct ledger *l, uint64_t id);

/* The claim, valid until the next change of the ledger; NULL: no such claim (any more). */
const struct ledger_claim *ledger_claim_find(const struct ledger *l, uint64_t id);

/*
 * New figures. 0: taken; -ENODATA: no total, or neither used nor free (nothing changes, the figures
 * grow stale); -ESTALE: taken before the last one, or too old (nothing changes); -ERANGE: impossible
 * or contradictory (nothing is admitted until a good sample). Also does what ledger_tick does.
 */
int ledger_observe(struct ledger *l, const struct ledger_sample *sample, uint64_t now_ms);

/* Ends releases that are past their deadline. Number of claims that ended, 0: none. */
int ledger_tick(struct ledger *l, uint64_t now_ms);

struct ledger_view ledger_view(const struct ledger *l, uint64_t now_ms);

/* An integrated device, whose memory is the host's (F37, F41). */
struct ledger_uma {
    uint64_t carve_out_total; /* what the firmware keeps from the host for the device */
    uint64_t carve_out_used;
    uint64_t gtt_total; /* host memory that the driver may map for the device */
    uint64_t gtt_used;
    uint64_t host_total;     /* MemTotal */
    uint64_t host_available; /* MemAvailable, and no more than the cgroups allow */
    uint64_t physical_total; /* of the machine; 0: not known */
};

/*
 * The pool as a sample for the one ledger that device and host share: free is what both the driver
 * and the host would give. A carve-out about as large as the host's memory is taken for the same
 * memory under two names, unless physical_total says otherwise. 0; -ERANGE: nothing sensible.
 */
int ledger_uma_sample(const struct ledger_uma *uma, uint64_t taken_ms,
                      struct ledger_sample *ret_sample);

const char *ledger_state_name(enum ledger_state state);
const char *ledger_trust_name(enum ledger_trust trust);

#endif
