/*
 * Which loads can live together: of what each takes and the room there is, the sets to which nothing
 * can be added any more, and for a set that is too large the least that has to be left out.
 *
 *     room 24       A 18   B 8   C 5         A + C           (A + B is 26)
 *                                            B + C
 *     A + B + C:    leave out B              (one load; C alone would not be enough)
 *
 * Sets are bits: bit i is load i. Everything is tried (at most 2^16 sets); sums cannot wrap. Pure; no
 * memory of its own.
 */
#ifndef FAILSOFT_POLICY_TOGETHER_H
#define FAILSOFT_POLICY_TOGETHER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TOGETHER_LOADS_MAX = 16 };

/* Sum of the loads in the set; UINT64_MAX where it is no number any more. */
uint64_t together_sum(const uint64_t *bytes, size_t count, uint32_t set);

bool together_fits(const uint64_t *bytes, size_t count, uint32_t set, uint64_t room_bytes);

/*
 * The sets that fit and that no further load fits into, those with most loads first, then those with
 * most bytes, then by number. The first `capacity` of them go to ret_sets. How many there are in all:
 * at least one, which is the empty one where nothing fits. count ≤ TOGETHER_LOADS_MAX.
 */
size_t together_maximal(const uint64_t *bytes, size_t count, uint64_t room_bytes,
                        uint32_t *ret_sets, size_t capacity);

/* What has to leave so that the rest of `set` fits: fewest loads, then fewest bytes, then by number. 0:
 * it fits as it is. */
uint32_t together_leave_out(const uint64_t *bytes, size_t count, uint32_t set, uint64_t room_bytes);

#endif
