/*
 * Ids of entries in a fixed table: index and generation in one number. An entry that is used again
 * has another generation, so an id that was kept too long finds nothing instead of somebody else's
 * claim. 0 is no id.
 */
#ifndef FAILSOFT_POLICY_CLAIM_ID_H
#define FAILSOFT_POLICY_CLAIM_ID_H

#include <stdint.h>

enum { CLAIM_ID_INDEX_BITS = 16, CLAIM_ID_CAPACITY_MAX = 1 << CLAIM_ID_INDEX_BITS };

/* generation starts at 1 and has 48 bits: at a thousand claims a second it lasts 8900 years. */
static inline uint64_t claim_id_make(uint32_t index, uint64_t generation)
{
    return generation << CLAIM_ID_INDEX_BITS | index;
}

static inline uint32_t claim_id_index(uint64_t id)
{
    return (uint32_t)(id & (CLAIM_ID_CAPACITY_MAX - 1));
}

static inline uint64_t claim_id_generation(uint64_t id)
{
    return id >> CLAIM_ID_INDEX_BITS;
}

#endif
