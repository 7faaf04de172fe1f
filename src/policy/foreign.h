/*
 * Foreign memory held at its recent peak. A game between two levels frees gigabytes for a second; who
 * loads a model into that gap is killed by the next level. A peak counts whole for hold_ms and then
 * goes down in a straight line for as long again.
 *
 *      bytes
 *        │    ●───────────────●╲
 *        │   ╱                  ╲
 *        │  ●                    ╲      what was seen: up to the peak, at once down again
 *        │   ╲___________________ ╲___
 *        └────┬───────────────┬────┬──── time
 *           peak            +hold  +2 hold
 *
 * Time is kept in stretches of a tenth of hold_ms, each aging from its end, so that more foreign memory
 * at any moment never gives a smaller value later.
 *
 * Pure.
 */
#ifndef FAILSOFT_POLICY_FOREIGN_H
#define FAILSOFT_POLICY_FOREIGN_H

#include <stdint.h>

enum { FOREIGN_BUCKETS = 21 }; /* over 2 × hold_ms, one in use */

struct foreign {
    uint64_t hold_ms;
    uint64_t now_bytes; /* the last figure */
    struct {
        uint64_t bytes;  /* the peak of this stretch of time */
        uint64_t end_ms; /* of the stretch; 0: unused */
    } peaks[FOREIGN_BUCKETS];
};

void foreign_init(struct foreign *f, uint64_t hold_ms);

/* `bytes` were foreign at at_ms. */
void foreign_note(struct foreign *f, uint64_t bytes, uint64_t at_ms);

/* What counts as foreign at now_ms; never less than the last figure. */
uint64_t foreign_held_bytes(const struct foreign *f, uint64_t now_ms);

#endif
