/* Which loads can live together: scenes, and against brute force written another way. */
#include "tests/unit/policy/random.h"
#include "tests/unit/unit.h"

#include "policy/together.h"

#include <string.h>

enum { SETS_MAX = 13000 /* C(16, 8) is 12870 */ };

/* F45: 18.3 GiB and 7.7 GiB on 24 GiB; with a context of 8192 the first takes 14.2. */
static const uint64_t tenth_gib = (UINT64_C(1) << 30) / 10;

static void two_that_do_not_fit_together(void **state)
{
    (void)state;
    const uint64_t room = 240 * tenth_gib;
    const uint64_t long_context[] = {183 * tenth_gib, 77 * tenth_gib};
    const uint64_t short_context[] = {142 * tenth_gib, 77 * tenth_gib};
    uint32_t sets[4];

    assert_int_equal(together_maximal(long_context, 2, room, sets, 4), 2);
    assert_int_equal(sets[0], 1); /* the larger one first */
    assert_int_equal(sets[1], 2);
    assert_int_equal(together_leave_out(long_context, 2, 3, room), 2); /* the smaller is enough */
    assert_int_equal(together_maximal(short_context, 2, room, sets, 4), 1);
    assert_int_equal(sets[0], 3);
    assert_int_equal(together_leave_out(short_context, 2, 3, room), 0);
}

static void few_are_left_out_rather_than_small_ones(void **state)
{
    (void)state;
    const uint64_t bytes[] = {18, 8, 5, 1};

    /* 32 in all, 24 of room: 8 alone does it; so would 5, 1 and more, but that is two. */
    assert_int_equal(together_leave_out(bytes, 4, 15, 24), 1u << 1);
    assert_int_equal(together_leave_out(bytes, 4, 15, 32), 0);
    assert_int_equal(together_leave_out(bytes, 4, 15, 0), 15);
}

static void many_small_ones_come_before_a_large_one(void **state)
{
    (void)state;
    const uint64_t bytes[] = {18, 8, 5, 1};
    uint32_t sets[4];

    assert_int_equal(together_maximal(bytes, 4, 18, sets, 4), 2);
    assert_int_equal(sets[0], 14);
    assert_int_equal(sets[1], 1);
}

static void nothing_fits_and_everything_fits(void **state)
{
    (void)state;
    const uint64_t bytes[] = {5, 6};
    uint32_t sets[2] = {77, 77};

    assert_int_equal(together_maximal(bytes, 2, 4, sets, 2), 1);
    assert_int_equal(sets[0], 0);
    assert_int_equal(together_maximal(bytes, 2, 11, sets, 2), 1);
    assert_int_equal(sets[0], 3);
    assert_int_equal(together_maximal(bytes, 0, 0, sets, 2), 1);
    assert_int_equal(sets[0], 0);
}

static void sums_do_not_wrap(void **state)
{
    (void)state;
    const uint64_t bytes[] = {UINT64_MAX - 1, 3, UINT64_MAX};
    uint32_t sets[8];

    assert_int_equal(together_sum(bytes, 3, 3), UINT64_MAX);
    assert_false(together_fits(bytes, 3, 3, UINT64_MAX));
    assert_false(together_fits(bytes, 3, 4, UINT64_MAX)); /* no size at all */
    assert_int_equal(together_maximal(bytes, 3, UINT64_MAX, sets, 8), 2);
    assert_int_equal(sets[0], 1);
    assert_int_equal(sets[1], 2);
}

/* The first ones only, and the right ones. */
static void the_best_are_kept_where_there_is_little_room(void **state)
{
    (void)state;
    const uint64_t bytes[] = {1, 1, 1, 1, 1, 1};
    uint32_t all[32], few[3] = {0, 0, 99};

    assert_int_equal(together_maximal(bytes, 6, 3, all, 32), 20);
    assert_int_equal(together_maximal(bytes, 6, 3, few, 2), 20);
    assert_memory_equal(few, all, 2 * sizeof(all[0]));
    assert_int_equal(few[2], 99);
}

/* --- brute force: by recursion over the loads, and a comparison of all sets with all --- */

struct brute {
    const uint64_t *bytes;
    size_t count;
    uint64_t room;
    uint8_t fits[1 << TOGETHER_LOADS_MAX];
};

static void walk(struct brute *b, size_t i, uint32_t set, uint64_t left)
{
    if (i == b->count) {
        b->fits[set] = 1;
        return;
    }
    walk(b, i + 1, set, left);
    if (b->bytes[i] <= left)
        walk(b, i + 1, set | 1u << i, left - b->bytes[i]);
}

static void compare(struct brute *b)
{
    static uint32_t sets[SETS_MAX];
    const uint32_t all = (1u << b->count) - 1;
    const size_t n = together_maximal(b->bytes, b->count, b->room, sets, SETS_MAX);
    size_t expected = 0;

    memset(b->fits, 0, sizeof(b->fits));
    walk(b, 0, 0, b->room);
    for (uint32_t set = 0; set <= all; set++) {
        bool maximal = b->fits[set];
        for (uint32_t larger = set + 1; maximal && larger <= all; larger++)
            maximal = !((larger & set) == set && b->fits[larger]);
        expected += maximal;
        if (maximal) {
            bool listed = false;
            for (size_t i = 0; i < n; i++)
                listed |= sets[i] == set;
            assert_true(listed);
        }
    }
    assert_int_equal(n, expected);

    /* What is left out: nothing smaller does it. */
    const uint32_t out = together_leave_out(b->bytes, b->count, all, b->room);
    assert_true(b->fits[all & ~out]);
    for (uint32_t set = 0; set <= all; set++) {
        if (!b->fits[all & ~set])
            continue;
        const int size = __builtin_popcount(set), best = __builtin_popcount(out);
        assert_true(size >= best);
        assert_true(size > best ||
                    together_sum(b->bytes, b->count, set) >= together_sum(b->bytes, b->count, out));
    }
}

static void it_agrees_with_brute_force(void **state)
{
    (void)state;
    static struct brute b;
    uint64_t random = 1;

    for (unsigned round = 0; round < 400; round++) {
        uint64_t bytes[TOGETHER_LOADS_MAX];
        b.count = 1 + random_below(&random, 9);
        for (size_t i = 0; i < b.count; i++)
            bytes[i] = random_below(&random, 24);
        b.bytes = bytes;
        b.room = random_below(&random, 80);
        compare(&b);
    }
}

static void sixteen_loads(void **state)
{
    (void)state;
    uint64_t bytes[TOGETHER_LOADS_MAX];
    static uint32_t sets[SETS_MAX];

    for (size_t i = 0; i < TOGETHER_LOADS_MAX; i++)
        bytes[i] = 10;
    assert_int_equal(together_maximal(bytes, TOGETHER_LOADS_MAX, 80, sets, SETS_MAX), 12870);
    assert_int_equal(__builtin_popcount(together_leave_out(bytes, 16, 0xffff, 80)), 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_that_do_not_fit_together),
        cmocka_unit_test(few_are_left_out_rather_than_small_ones),
        cmocka_unit_test(many_small_ones_come_before_a_large_one),
        cmocka_unit_test(nothing_fits_and_everything_fits),
        cmocka_unit_test(sums_do_not_wrap),
        cmocka_unit_test(the_best_are_kept_where_there_is_little_room),
        cmocka_unit_test(it_agrees_with_brute_force),
        cmocka_unit_test(sixteen_loads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
