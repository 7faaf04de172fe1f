/* Availability of a worker: the rules one by one, then random walks against the invariants. */
#include "tests/unit/unit.h"

#include "policy/availability.h"

static const struct availability_settings three = {
    .failures = 3, .hold_ms = 5000, .hold_max_ms = 40000};

static struct availability fresh(void)
{
    struct availability a;
    availability_init(&a, &three);
    return a;
}

static void suspends_after_consecutive_faults_only(void **state)
{
    (void)state;
    struct availability a = fresh();
    assert_false(availability_fault(&a, 1, false, 0));
    assert_false(availability_fault(&a, 2, false, 0));
    availability_success(&a, 3);
    assert_false(availability_fault(&a, 4, false, 0));
    assert_false(availability_fault(&a, 5, false, 0));
    assert_int_equal(availability_ask(&a, 0), AVAILABILITY_VERDICT_YES);
    assert_true(availability_fault(&a, 6, false, 100));
    assert_int_equal(availability_ask(&a, 100), AVAILABILITY_VERDICT_NO);
    assert_int_equal(availability_retry_in_ms(&a, 100), 5000);
}

static void a_lost_device_suspends_at_once(void **state)
{
    (void)state;
    struct availability a = fresh();
    assert_true(availability_fault(&a, 1, true, 0));
    assert_int_equal(availability_ask(&a, 0), AVAILABILITY_VERDICT_NO);
}

/* Fifty ask at half-open: one may go (F76). */
static void exactly_one_probe(void **state)
{
    (void)state;
    struct availability a = fresh();
    availability_fault(&a, 1, true, 0);
    assert_int_equal(availability_ask(&a, 4999), AVAILABILITY_VERDICT_NO);
    unsigned went = 0;
    for (uint64_t owner = 10; owner < 60; owner++) {
        if (availability_ask(&a, 5000) != AVAILABILITY_VERDICT_PROBE)
            continue;
        availability_take_probe(&a, owner);
        went++;
    }
    assert_int_equal(went, 1);
    availability_success(&a, 10);
    assert_int_equal(availability_ask(&a, 5000), AVAILABILITY_VERDICT_YES);
}

static void only_its_owner_ends_a_probe(void **state)
{
    (void)state;
    struct availability a = fresh();
    availability_fault(&a, 1, true, 0);
    availability_take_probe(&a, 7);
    availability_success(&a, 1);
    assert_int_equal(a.state, AVAILABILITY_STATE_PROBING);
    assert_false(availability_fault(&a, 2, true, 6000));
    availability_give_up(&a, 3, 6000);
    assert_int_equal(a.state, AVAILABILITY_STATE_PROBING);
    availability_success(&a, 7);
    assert_int_equal(a.state, AVAILABILITY_STATE_AVAILABLE);
}

static void a_probe_given_up_frees_the_place(void **state)
{
    (void)state;
    struct availability a = fresh();
    availability_fault(&a, 1, true, 0);
    availability_take_probe(&a, 7);
    availability_give_up(&a, 7, 9000);
    assert_int_equal(availability_ask(&a, 9000), AVAILABILITY_VERDICT_PROBE);
}

static void the_hold_doubles_and_is_bounded(void **state)
{
    (void)state;
    struct availability a = fresh();
    uint64_t now = 0;
    const uint64_t holds[] = {5000, 10000, 20000, 40000, 40000, 40000};
    availability_fault(&a, 1, true, now);
    for (size_t i = 0; i < sizeof(holds) / sizeof(holds[0]); i++) {
        assert_int_equal(availability_retry_in_ms(&a, now), holds[i]);
        now += holds[i];
        availability_take_probe(&a, 2);
        assert_true(availability_fault(&a, 2, false, now));
    }
    availability_give_up(&a, 2, now);
    now += 40000;
    availability_take_probe(&a, 3);
    availability_success(&a, 3);
    assert_true(availability_fault(&a, 4, true, now));
    assert_int_equal(availability_retry_in_ms(&a, now), 5000);
}

static void an_old_success_does_not_lift_a_suspension(void **state)
{
    (void)state;
    struct availability a = fresh();
    availability_fault(&a, 1, true, 0);
    availability_success(&a, 99);
    assert_int_equal(availability_ask(&a, 1), AVAILABILITY_VERDICT_NO);
}

static void a_restart_cuts_the_first_hold_only(void **state)
{
    (void)state;
    struct availability a = fresh();
    availability_fault(&a, 1, true, 0);
    availability_restarted(&a, 10);
    assert_int_equal(availability_ask(&a, 10), AVAILABILITY_VERDICT_PROBE);
    availability_take_probe(&a, 2);
    availability_fault(&a, 2, true, 20);
    availability_restarted(&a, 30);
    assert_int_equal(availability_ask(&a, 30), AVAILABILITY_VERDICT_NO);
}

static uint32_t next_random(uint32_t *seed)
{
    *seed = *seed * 1664525U + 1013904223U;
    return *seed >> 8;
}

/* Whatever happens in whatever order: one probe at most, no state without a timed way out. */
static void random_walks_keep_the_invariants(void **state)
{
    (void)state;
    for (uint32_t run = 1; run <= 300; run++) {
        uint32_t seed = run;
        struct availability a = fresh();
        uint64_t now = 0;
        uint64_t prober = 0;
        for (int i = 0; i < 400; i++) {
            uint64_t owner = 1 + next_random(&seed) % 5;
            now += next_random(&seed) % 3000;
            switch (next_random(&seed) % 5) {
            case 0: availability_fault(&a, owner, next_random(&seed) % 4 == 0, now); break;
            case 1: availability_success(&a, owner); break;
            case 2: availability_give_up(&a, owner, now); break;
            case 3: availability_restarted(&a, now); break;
            default:
                if (availability_ask(&a, now) == AVAILABILITY_VERDICT_PROBE) {
                    assert_int_equal(a.state, AVAILABILITY_STATE_SUSPENDED);
                    availability_take_probe(&a, owner);
                    prober = owner;
                }
            }
            if (a.state == AVAILABILITY_STATE_PROBING)
                assert_int_equal(a.probe_owner, prober);
            else
                assert_int_equal(a.probe_owner, 0);
            if (a.state == AVAILABILITY_STATE_SUSPENDED)
                assert_true(availability_retry_in_ms(&a, now) <= three.hold_max_ms);
            if (a.state == AVAILABILITY_STATE_AVAILABLE)
                assert_true(a.consecutive < three.failures);
            assert_in_range(a.next_hold_ms, three.hold_ms, three.hold_max_ms);
        }
        /* The way out: time passes, a probe goes, and works. */
        if (a.state == AVAILABILITY_STATE_PROBING)
            availability_success(&a, prober);
        now += three.hold_max_ms;
        if (availability_ask(&a, now) == AVAILABILITY_VERDICT_PROBE) {
            availability_take_probe(&a, 1);
            availability_success(&a, 1);
        }
        assert_int_equal(availability_ask(&a, now), AVAILABILITY_VERDICT_YES);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(suspends_after_consecutive_faults_only),
        cmocka_unit_test(a_lost_device_suspends_at_once),
        cmocka_unit_test(exactly_one_probe),
        cmocka_unit_test(only_its_owner_ends_a_probe),
        cmocka_unit_test(a_probe_given_up_frees_the_place),
        cmocka_unit_test(the_hold_doubles_and_is_bounded),
        cmocka_unit_test(an_old_success_does_not_lift_a_suspension),
        cmocka_unit_test(a_restart_cuts_the_first_hold_only),
        cmocka_unit_test(random_walks_keep_the_invariants),
    };
    return cmocka_run_group_tests_name("policy/availability", tests, NULL, NULL);
}
