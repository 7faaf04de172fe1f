/* Which loads can live together. See together.h. */
#include "policy/together.h"

/* 0 ≤ set < 2^TOGETHER_LOADS_MAX. */
static unsigned together_size(uint32_t set)
{
    unsigned n = 0;
    for (; set != 0; set &= set - 1)
        n++;
    return n;
}

uint64_t together_sum(const uint64_t *bytes, size_t count, uint32_t set)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++) {
        if (!(set & (UINT32_C(1) << i)))
            continue;
        if (bytes[i] > UINT64_MAX - sum)
            return UINT64_MAX;
        sum += bytes[i];
    }
    return sum;
}

bool together_fits(const uint64_t *bytes, size_t count, uint32_t set, uint64_t room_bytes)
{
    uint64_t sum = together_sum(bytes, count, set);
    return sum <= room_bytes && sum != UINT64_MAX;
}

static bool is_maximal(const uint64_t *bytes, size_t count, uint32_t set, uint64_t room_bytes)
{
    uint64_t sum = together_sum(bytes, count, set);
    if (sum > room_bytes || sum == UINT64_MAX)
        return false;
    for (size_t i = 0; i < count; i++)
        if (!(set & (UINT32_C(1) << i)) && bytes[i] <= room_bytes - sum)
            return false;
    return true;
}

/* Does a come before b in the answer? */
static bool goes_before(const uint64_t *bytes, size_t count, uint32_t a, uint32_t b)
{
    unsigned size_a = together_size(a), size_b = together_size(b);
    if (size_a != size_b)
        return size_a > size_b;
    uint64_t sum_a = together_sum(bytes, count, a), sum_b = together_sum(bytes, count, b);
    return sum_a != sum_b ? sum_a > sum_b : a < b;
}

size_t together_maximal(const uint64_t *bytes, size_t count, uint64_t room_bytes,
                        uint32_t *ret_sets, size_t capacity)
{
    size_t found = 0;
    for (uint32_t set = 0; set < UINT32_C(1) << count; set++) {
        if (!is_maximal(bytes, count, set, room_bytes))
            continue;
        size_t at = found < capacity ? found : capacity;
        found++;
        while (at > 0 && goes_before(bytes, count, set, ret_sets[at - 1])) {
            if (at < capacity)
                ret_sets[at] = ret_sets[at - 1];
            at--;
        }
        if (at < capacity)
            ret_sets[at] = set;
    }
    return found;
}

uint32_t together_leave_out(const uint64_t *bytes, size_t count, uint32_t set, uint64_t room_bytes)
{
    uint32_t best = set;
    for (uint32_t out = 0; out < UINT32_C(1) << count; out++) {
        if ((out & ~set) != 0 || !together_fits(bytes, count, set & ~out, room_bytes))
            continue;
        unsigned size = together_size(out), best_size = together_size(best);
        if (size < best_size || (size == best_size && together_sum(bytes, count, out) <
                                                          together_sum(bytes, count, best)))
            best = out;
    }
    return best;
}
