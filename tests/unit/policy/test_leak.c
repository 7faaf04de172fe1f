/* A worker whose idle memory creeps up. */
#include "tests/unit/policy/ledger_rig.h"

#include "policy/leak.h"

/* F04 ggml-org/llama.cpp#23446: 9.0, 9.3, 9.6, 9.9 GiB after idle. */
static void a_creeping_baseline_is_suspected(void **state)
{
    (void)state;
    static const uint64_t tenths[] = {90, 93, 96, 99};
    struct leak k;
    leak_init(&k, 0);
    for (unsigned i = 0; i < UNIT_COUNT(tenths); i++)
        assert_int_equal(leak_note(&k, tenths[i] * GIB / 10), i == 3);
    assert_true(leak_is_suspected(&k));
    assert_in_range(leak_grown_bytes(&k), 9 * GIB / 10 - 1, 9 * GIB / 10 + 1);
    /* Recycled: from the start. */
    leak_init(&k, 0);
    assert_false(leak_note(&k, 99 * GIB / 10));
}

static void warming_up_is_no_leak(void **state)
{
    (void)state;
    static const uint64_t mib[] = {9000, 9300, 9400, 9410, 9405, 9410, 9400};
    struct leak k;
    leak_init(&k, 0);
    for (unsigned i = 0; i < UNIT_COUNT(mib); i++)
        assert_false(leak_note(&k, mib[i] * MIB));
}

static void one_high_figure_is_no_leak(void **state)
{
    (void)state;
    struct leak k;
    leak_init(&k, 100 * MIB);
    assert_false(leak_note(&k, 1000 * MIB));
    for (unsigned i = 0; i < 10; i++) {
        assert_false(leak_note(&k, 2000 * MIB));
        assert_false(leak_note(&k, 1050 * MIB));
    }
    assert_false(leak_note(&k, 500 * MIB));
    assert_int_equal(leak_grown_bytes(&k), 0);
    assert_false(leak_note(&k, 900 * MIB));
    assert_false(leak_note(&k, 900 * MIB));
    assert_false(leak_note(&k, 1101 * MIB));
    assert_true(leak_note(&k, 1108 * MIB));
}

/* A longer prompt than ever made a buffer larger. It stays so, and nothing leaks. */
static void a_step_is_no_leak(void **state)
{
    (void)state;
    struct leak k;
    leak_init(&k, 0);
    assert_false(leak_note(&k, 2000 * MIB));
    for (unsigned i = 0; i < 50; i++)
        assert_false(leak_note(&k, (2600 + i % 3) * MIB));
    /* But what goes on growing, however slowly, is found. */
    bool found = false;
    for (unsigned i = 0; i < 20 && !found; i++)
        found = leak_note(&k, (2600 + 3 * i) * MIB);
    assert_true(found);
}

/* A small worker is not suspected over 1/16 of next to nothing. */
static void small_workers_may_grow_a_little(void **state)
{
    (void)state;
    struct leak k;
    leak_init(&k, 0);
    leak_note(&k, 200 * MIB);
    assert_false(leak_note(&k, 450 * MIB));
    assert_false(leak_note(&k, 456 * MIB));
    assert_false(leak_note(&k, 457 * MIB));
    assert_false(leak_note(&k, 473 * MIB));
    assert_true(leak_note(&k, 474 * MIB));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_creeping_baseline_is_suspected), cmocka_unit_test(warming_up_is_no_leak),
        cmocka_unit_test(one_high_figure_is_no_leak),       cmocka_unit_test(a_step_is_no_leak),
        cmocka_unit_test(small_workers_may_grow_a_little),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
