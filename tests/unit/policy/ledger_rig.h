/* Small words for tests of the ledger: gibibytes, samples, claims. */
#ifndef FAILSOFT_TESTS_UNIT_POLICY_LEDGER_RIG_H
#define FAILSOFT_TESTS_UNIT_POLICY_LEDGER_RIG_H

#include "tests/unit/unit.h"

#include "policy/ledger.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

enum { RIG_CLAIMS = 16 };

struct rig {
    struct ledger ledger;
    struct ledger_claim claims[RIG_CLAIMS];
};

/* A device with a reserve, and one good sample of it at 1000 ms. */
static inline void rig_start(struct rig *r, uint64_t total, uint64_t reserve, uint64_t used)
{
    struct ledger_settings settings = ledger_settings_default();
    settings.reserve_bytes = reserve;
    ledger_init(&r->ledger, "gpu0", &settings, r->claims, RIG_CLAIMS);
    struct ledger_sample s = {.taken_ms = 1000,
                              .total_valid = true,
                              .used_valid = true,
                              .total_bytes = total,
                              .used_bytes = used};
    assert_int_equal(ledger_observe(&r->ledger, &s, 1000), 0);
}

/* A sample without figures per process; the result of ledger_observe. */
static inline int rig_sample(struct rig *r, uint64_t total, uint64_t used, uint64_t now_ms)
{
    struct ledger_sample s = {.taken_ms = now_ms,
                              .total_valid = true,
                              .used_valid = true,
                              .total_bytes = total,
                              .used_bytes = used};
    return ledger_observe(&r->ledger, &s, now_ms);
}

/* A sample that tells one process of ours. */
static inline int rig_sample_process(struct rig *r, uint64_t total, uint64_t used, uint32_t pid,
                                     uint64_t bytes, uint64_t now_ms)
{
    struct ledger_process process = {.pid = pid, .bytes = bytes};
    struct ledger_sample s = {.taken_ms = now_ms,
                              .total_valid = true,
                              .used_valid = true,
                              .processes_valid = true,
                              .total_bytes = total,
                              .used_bytes = used,
                              .processes = &process,
                              .process_count = 1};
    return ledger_observe(&r->ledger, &s, now_ms);
}

static inline int rig_open(struct rig *r, const char *label, uint64_t bytes, uint64_t now_ms,
                           uint64_t *ret_id)
{
    struct ledger_request request = {.label = label, .bytes = bytes, .owner_id = 7};
    return ledger_claim_open(&r->ledger, &request, now_ms, ret_id);
}

static inline int64_t rig_admissible(const struct rig *r, uint64_t now_ms)
{
    return ledger_view(&r->ledger, now_ms).admissible_bytes;
}

/* The sum, exactly. */
static inline void assert_ledger_balances(const struct ledger *l, uint64_t now_ms)
{
    struct ledger_view v = ledger_view(l, now_ms);
    int64_t sum = (int64_t)(v.reserve_bytes + v.foreign_bytes + v.settled_bytes +
                            v.unsettled_bytes + v.releasing_bytes) +
                  v.headroom_bytes;
    if (sum != (int64_t)v.total_bytes)
        fail_msg("total %lld, sum %lld", (long long)v.total_bytes, (long long)sum);
    if (v.admissible_bytes > v.headroom_bytes)
        fail_msg("admissible %lld, headroom %lld", (long long)v.admissible_bytes,
                 (long long)v.headroom_bytes);
    if (v.trust != LEDGER_TRUST_FRESH && v.admissible_bytes > 0)
        fail_msg("admissible %lld without trust", (long long)v.admissible_bytes);
}

#endif
