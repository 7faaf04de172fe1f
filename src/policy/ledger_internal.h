/* What ledger.c and ledger_observe.c share; nobody else includes it. */
#ifndef FAILSOFT_POLICY_LEDGER_INTERNAL_H
#define FAILSOFT_POLICY_LEDGER_INTERNAL_H

#include "policy/ledger.h"

struct ledger_sums {
    uint64_t settled;
    uint64_t unsettled;
    uint64_t releasing;
    uint64_t releasing_unseen; /* of that, begun after the last sample was taken */
    uint64_t deadline_ms;      /* the latest of the releasing claims */
    uint32_t count;
};

struct ledger_sums ledger_sum(const struct ledger *l);

/* The entry is free again. */
void ledger_claim_end(struct ledger_claim *claim);

#endif
