/* Detectors: suspend (F15) and free memory that never moves (F44). */
#include "device_rig.h"

#include "device/watch.h"

static void test_f15_clock_jump(void **state)
{
    static const struct {
        uint64_t monotonic, boottime, slept; /* 0: none */
    } steps[] = {
        {1000, 5000, 0},                            /* slept before we were started: not ours */
        {1500, 5500, 0},           {2000, 6900, 0}, /* 0.9 s: a clock read in between */
        {2500, 7400, 0},           {3000, 7400 + 7200500, 7200000}, /* 2 h */
        {3500, 7400 + 7201000, 0},                                  /* told once */
    };
    struct suspend_watch w = {0};

    (void)state;
    for (size_t i = 0; i < UNIT_COUNT(steps); i++) {
        uint64_t slept = 0;
        bool told = suspend_watch_step(&w, steps[i].monotonic, steps[i].boottime, 1000, &slept);

        assert_int_equal(told, steps[i].slept != 0);
        assert_int_equal(slept, steps[i].slept);
    }
}

static void test_f44_free_never_moves(void **state)
{
    struct free_watch w = {0};

    (void)state;
    /* Idle: no evidence, however long. */
    for (int i = 0; i < 100; i++)
        assert_false(free_watch_step(&w, 16 * GIB, 0));
    /* 5 GiB loaded and not a byte less free. */
    for (unsigned i = 1; i < FREE_WATCH_SAMPLES; i++)
        assert_false(free_watch_step(&w, 16 * GIB, 5 * GIB));
    assert_true(free_watch_step(&w, 16 * GIB, 5 * GIB));
    assert_true(free_watch_step(&w, 16 * GIB, 5 * GIB));
    assert_true(free_watch_step(&w, 16 * GIB, 0));  /* still the same after the unload */
    assert_false(free_watch_step(&w, 15 * GIB, 0)); /* it does move */
}

static void test_f44_a_source_that_moves(void **state)
{
    struct free_watch w = {0};

    (void)state;
    assert_false(free_watch_step(&w, 16 * GIB, 0));
    for (int i = 0; i < 4; i++)
        assert_false(free_watch_step(&w, 16 * GIB, 5 * GIB)); /* the driver is late */
    for (int i = 0; i < 20; i++)
        assert_false(free_watch_step(&w, 11 * GIB, 5 * GIB));
    for (int i = 0; i < 20; i++) /* little things are below its resolution */
        assert_false(free_watch_step(&w, 11 * GIB, 5 * GIB + 10 * MIB));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_f15_clock_jump),
        cmocka_unit_test(test_f44_free_never_moves),
        cmocka_unit_test(test_f44_a_source_that_moves),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
