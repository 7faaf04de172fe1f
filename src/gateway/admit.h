/*
 * Admission of one request: the facts that policy/admission decides from, gathered on the loop at the
 * moment of the decision, and what is held of device memory and KV cache while an attempt runs.
 */
#ifndef FAILSOFT_GATEWAY_ADMIT_H
#define FAILSOFT_GATEWAY_ADMIT_H

#include "gateway/internal.h"
#include "policy/admission.h"

/* Is there anything about memory or tokens to weigh for this request's service? Without, the first
 * tier that may be used takes it, as nothing could be said against it. */
bool admit_weighs(const struct gateway_request *r);

/*
 * Decides. `passed`: bits of tiers that are not to be taken this time, whatever their memory says (their
 * queue is full). Notes at the request why each tier before the chosen one was left, and keeps the
 * decision for the status page.
 */
void admit_decide(struct gateway_request *r, uint32_t passed, struct admission_decision *ret);

/* The prompt's exact length would change the decision, and a worker can say it. */
bool admit_wants_count(struct gateway_request *r);
/* LIFECYCLE_ACTION_START_COUNT and _DROP_COUNT. */
void admit_start_count(struct gateway_request *r);

/* Is there room in the worker's KV cache for the request now? True where nothing is known of it. */
bool admit_has_kv_room(const struct gateway_request *r, unsigned tier_index);

/* Around an attempt: takes what the request may need of its worker's cache and device, and gives it
 * back. Taking cannot fail: what was decided on this turn of the loop is there. */
void admit_take(struct gateway_request *r);
void admit_give(struct gateway_request *r);

/* Its worker has answered: what such a request makes the engine allocate, it has allocated. */
void admit_answered(struct gateway_request *r);

/* A request that is too long for every tier, in the words of an error, with what would fit. */
void admit_refuse(const struct gateway_request *r, const struct admission_decision *d,
                  struct api_error *e);

#endif
