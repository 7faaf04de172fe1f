/*
 * What the files of `failsoft plan` share. Private to cli/.
 *
 *   plan.c          arguments, the order of things, the exit status
 *   plan_tiers.c    what each tier takes: estimate, and what was learned of it
 *   plan_places.c   the memory of devices and host, looked at once
 *   plan_gateway.c  … as the ledger of the running gateway has it, and what is loaded there
 *   plan_fit.c      does each tier fit now, and what would make it fit
 *   plan_together.c which of them can live together in one place
 *   plan_print.c    for people;  plan_json.c  for machines
 *
 * A place is memory that tiers share: a device, or the host. One thread; nothing outlives the command.
 */
#ifndef FAILSOFT_CLI_PLAN_H
#define FAILSOFT_CLI_PLAN_H

#include "base/buf.h"
#include "cli/gateway_url.h"
#include "config/config.h"
#include "policy/together.h"
#include "worker/tier_estimate.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PLAN_NAME_BYTES = 64,
    PLAN_WHY_BYTES = 256,
    PLAN_HOLDERS_MAX = 16,
    PLAN_HINTS_MAX = 12,
    PLAN_SETS_MAX = 6,
    PLAN_LOOK_MS = 3000, /* a driver that has not answered by then says nothing */
};

enum plan_hint_kind {
    PLAN_HINT_CONTEXT = 0, /* `context` of the service, at most */
    PLAN_HINT_SLOTS,       /* `slots` of the tier, at most */
    PLAN_HINT_GPU_LAYERS,  /* `gpu_layers` of the tier, at most */
    PLAN_HINT_CACHE_TYPE,  /* `cache_type_k` and `cache_type_v` of the service: q8_0 */
    PLAN_HINT_RESERVE,     /* without the reserve (value, in bytes) it would fit */
};

/* A change with which it fits: re-estimated, not guessed. */
struct plan_hint {
    enum plan_hint_kind kind;
    uint64_t value;
    size_t entry; /* whose setting */
    uint64_t device_bytes, host_bytes;
};

struct plan_holder {
    char name[PLAN_NAME_BYTES];
    bool own; /* a claim of the gateway's: "chat/gpu" */
    int32_t pid;
    uint64_t bytes;
};

struct plan_place {
    char name[PLAN_NAME_BYTES];         /* of the device; "host" */
    const struct config_device *device; /* NULL: the host */
    bool shared;                        /* a device whose memory is the host's */
    bool known;                         /* else `why` says what is missing */
    char why[PLAN_WHY_BYTES];
    uint64_t total_bytes, reserve_bytes, foreign_bytes;
    uint64_t claimed_bytes; /* by workers of the running gateway */
    int64_t headroom_bytes; /* total − reserve − foreign − claimed */
    struct plan_holder holders[PLAN_HOLDERS_MAX];
    size_t holder_count;

    /* Everything that the configuration would put there. */
    size_t loads[TOGETHER_LOADS_MAX]; /* entries */
    uint64_t load_bytes[TOGETHER_LOADS_MAX];
    size_t load_count; /* may be more than there is room for; then no sets are looked for */
    uint64_t room_bytes, sum_bytes;
    uint32_t sets[PLAN_SETS_MAX];
    size_t set_count; /* in all */
    uint32_t leave_out;
    struct plan_hint hints[PLAN_HINTS_MAX];
    size_t hint_count;
};

enum plan_fit {
    PLAN_FIT_NOT_ASKED = 0, /* one model file, or a tier of somebody else's */
    PLAN_FIT_YES,
    PLAN_FIT_NO,
    PLAN_FIT_UNKNOWN,
    PLAN_FIT_LOADED,
};

struct plan_entry {
    const struct config_service *service; /* NULL: a model file named on the command line */
    const struct config_tier *tier;
    const char *path;             /* borrowed; NULL: none */
    char problem[PLAN_WHY_BYTES]; /* why there is no estimate; "": there is one */
    bool broken;                  /* … and that is a finding */
    struct tier_source source;
    struct tier_model *model;
    struct tier_estimate *estimate;

    uint64_t learned_bytes; /* the most that its loads were measured to take; 0: never measured */
    uint32_t learned_count;
    uint64_t device_hash;  /* with the estimate's hashes the key of what is learned; 0: no device */
    bool unfit;            /* loading it failed for good */
    uint64_t excess_bytes; /* what was learned says that the formula is short by so much */
    uint64_t device_bytes, host_bytes; /* what is claimed for it */

    enum plan_fit fit;
    struct plan_place *device;   /* NULL: none */
    struct plan_place *short_of; /* where it does not fit, or what is not known; NULL: nowhere */
    uint64_t short_bytes;
    struct plan_hint hints[PLAN_HINTS_MAX];
    size_t hint_count;
};

struct plan {
    const struct config *config; /* NULL: one model file */
    struct plan_entry *entries;
    size_t count;
    struct plan_place *places; /* devices, then the host */
    size_t place_count;
    char gateway_url[CLI_URL_SIZE];   /* of the running gateway whose ledger is shown; "": none */
    char gateway_why[PLAN_WHY_BYTES]; /* something answers there and is not used; "" */
};

/* plan_tiers.c. 0 or -ENOMEM. */
int plan_read_tiers(struct plan *p);
/* Headers and estimate of an entry whose source is set; what goes wrong becomes its problem. */
int plan_read_entry(struct plan_entry *e);
/* What was learned, once the places are known (their size is part of the key), and the need. */
void plan_add_learned(struct plan *p);
/* The need of an entry with another estimate: device and host bytes. */
void plan_need(const struct plan_entry *e, const struct tier_estimate *estimate,
               uint64_t *ret_device, uint64_t *ret_host);
void plan_free_entries(struct plan *p);

/* plan_places.c. Returns after PLAN_LOOK_MS at the latest. 0 or negative errno. */
int plan_look(struct plan *p);
struct plan_place *plan_host(const struct plan *p);

/* plan_gateway.c. No gateway is fine. */
void plan_ask_gateway(struct plan *p);

/* plan_fit.c */
void plan_judge(struct plan *p);
/*
 * The largest value of the setting up to what it is now with which the entry takes at most so much.
 * UINT64_MAX bytes: any amount. False: none, or the entry has no such setting.
 */
bool plan_find_hint(const struct plan *p, const struct plan_entry *e, enum plan_hint_kind kind,
                    uint64_t device_bytes, uint64_t host_bytes, struct plan_hint *ret);

/* plan_together.c */
void plan_put_together(struct plan *p);

/* plan_print.c, plan_json.c. 0, -ENOMEM, -ENOBUFS. */
int plan_write_text(struct buf *out, const struct plan *p);
int plan_write_json(struct buf *out, const struct plan *p);
const char *plan_fit_name(enum plan_fit fit);

#endif
