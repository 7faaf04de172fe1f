/* The recent peak of foreign memory. See foreign.h. */
#include "policy/foreign.h"

void foreign_init(struct foreign *f, uint64_t hold_ms)
{
    *f = (struct foreign){.hold_ms = hold_ms};
}

/* Length of the stretch of time that one peak stands for; at least 1. */
static uint64_t foreign_stretch_ms(const struct foreign *f)
{
    uint64_t stretch = 2 * f->hold_ms / (FOREIGN_BUCKETS - 1);
    return stretch > 0 ? stretch : 1;
}

void foreign_note(struct foreign *f, uint64_t bytes, uint64_t at_ms)
{
    f->now_bytes = bytes;
    uint64_t stretch = at_ms / foreign_stretch_ms(f);
    uint64_t end_ms = (stretch + 1) * foreign_stretch_ms(f);
    unsigned i = (unsigned)(stretch % FOREIGN_BUCKETS);
    if (f->peaks[i].end_ms != end_ms || bytes > f->peaks[i].bytes) {
        f->peaks[i].bytes = bytes;
        f->peaks[i].end_ms = end_ms;
    }
}

/* What a peak still counts at this age. Monotone in bytes; never below the straight line. */
static uint64_t foreign_faded_bytes(uint64_t bytes, uint64_t age_ms, uint64_t hold_ms)
{
    enum { PARTS = 1024 };
    if (age_ms <= hold_ms)
        return bytes;
    if (age_ms >= 2 * hold_ms)
        return 0;
    uint64_t parts_left = PARTS - (age_ms - hold_ms) * PARTS / hold_ms;
    uint64_t left = (bytes / PARTS + 1) * parts_left;
    return left < bytes ? left : bytes;
}

uint64_t foreign_held_bytes(const struct foreign *f, uint64_t now_ms)
{
    uint64_t held = f->now_bytes;
    for (unsigned i = 0; i < FOREIGN_BUCKETS; i++) {
        if (f->peaks[i].bytes <= held)
            continue;
        uint64_t age = now_ms > f->peaks[i].end_ms ? now_ms - f->peaks[i].end_ms : 0;
        uint64_t left = foreign_faded_bytes(f->peaks[i].bytes, age, f->hold_ms);
        if (left > held)
            held = left;
    }
    return held;
}
