/* What admission.c finds at one tier, for admission_reason.c to put into words. */
#ifndef FAILSOFT_POLICY_ADMISSION_INTERNAL_H
#define FAILSOFT_POLICY_ADMISSION_INTERNAL_H

#include "policy/admission.h"
#include "policy/text.h"

enum finding_verdict {
    FINDING_FITS = 0,
    FINDING_LATER,   /* in wait_ms */
    FINDING_SHRINKS, /* with max_tokens or context_tokens */
    FINDING_NOT_NOW,
    FINDING_NEVER,
};

enum finding_why {
    FINDING_WHY_NONE = 0,
    FINDING_WHY_EXCLUDED,
    FINDING_WHY_CLIENT,   /* accepts no such tier */
    FINDING_WHY_SERVICE,  /* allows no CPU tier */
    FINDING_WHY_NONSENSE, /* need is not a size */
    FINDING_WHY_UNFIT,
    FINDING_WHY_HELD_BACK,
    FINDING_WHY_PRESSURE,
    FINDING_WHY_BLOCK,   /* a single buffer */
    FINDING_WHY_UNKNOWN, /* memory needed, figures not trusted */
    FINDING_WHY_LOADING, /* another load on the device */
    FINDING_WHY_MEMORY,
    FINDING_WHY_CONTEXT, /* longer than any request can be */
    FINDING_WHY_KV,      /* no room now */
};

struct finding {
    enum finding_verdict verdict;
    enum finding_why why;
    const struct ledger_view *pool; /* whose memory it is about */
    uint64_t need;                  /* bytes or tokens */
    uint64_t room;                  /* bytes or tokens; more than is there: 0 */
    uint64_t wait_ms;               /* LATER; else 0 or an idea of when */
    uint64_t max_tokens;            /* SHRINKS */
    uint64_t context_tokens;
    uint64_t fit_context; /* would fit */
    uint64_t fit_tokens;
    uint64_t margin_bytes;
};

/* Puts into words why the tier does not take it as asked, or what it takes. `full`: with who holds
 * the memory. */
void admission_say_finding(struct text *t, const struct admission_tier *tier,
                           const struct finding *finding, bool full);
void admission_say_taken(struct text *t, const struct admission_tier *tier);

#endif
