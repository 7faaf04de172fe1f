/*
 * The last decisions of admission, with their reasons in words and numbers, for the status page, and
 * how many there were of each action.
 *
 * A ring of fixed size inside the gateway; loop thread only.
 */
#ifndef FAILSOFT_GATEWAY_DECISIONS_H
#define FAILSOFT_GATEWAY_DECISIONS_H

#include "policy/admission.h"

#include <stdint.h>

enum {
    DECISIONS_KEPT = 32,
    DECISIONS_ID_BYTES = 32,
    DECISIONS_NAME_BYTES = 64,
    DECISIONS_ACTIONS = ADMISSION_ACTION_REFUSE + 1,
};

struct gateway_request;

struct decision {
    char id[DECISIONS_ID_BYTES];
    char service[DECISIONS_NAME_BYTES]; /* longer names are cut */
    char tier[16];                      /* "" for a refusal */
    enum admission_action action;
    uint64_t at_ms;
    char reason[ADMISSION_REASON_MAX];
};

struct decisions {
    struct decision kept[DECISIONS_KEPT];
    uint64_t count; /* ever; the next one goes to count % DECISIONS_KEPT */
};

/* Keeps it, and counts it for its service. */
void decisions_note(const struct gateway_request *r, const struct admission_decision *d);

/* The newest but `back` ones; NULL: no such one. */
const struct decision *decisions_get(const struct decisions *all, uint64_t back);

#endif
