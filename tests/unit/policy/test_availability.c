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

/* One request's doubt, remembered as the gateway does. */
struct doubt {
    uint64_t owner;
    uint32_t run;
};

static struct doubt doubt(struct availability *a, uint64_t owner, uint64_t now_ms)
{
    availability_doubt(a, owner, now_ms);
    return (struct doubt){owner, a->run};
}

static bool settle(struct availability *a, struct doubt d, uint64_t now_ms)
{
    return availability_settle(a, d.owner, d.run, now_ms);
}

static bool forgive(struct availability *a, struct doubt d, uint64_t now_ms)
{
    return availability_forgive(a, d.owner, d.run, now_ms);
}

static void a_doubt_counts_when_it_is_settled(void **state)
{
    (void)state;
    struct availability a = fresh();
    struct doubt d[5];
    for (uint64_t i = 0; i < 5; i++)
        d[i] = doubt(&a, i + 1, 0);
    assert_int_equal(a.consecutive, 0); /* none of them yet, however many at a time */
    assert_int_equal(availability_ask(&a, 0), AVAILABILITY_VERDICT_YES);
    assert_false(settle(&a, d[0], 10));
    assert_false(settle(&a, d[1], 10));
    assert_true(settle(&a, d[2], 10));
    assert_int_equal(availability_retry_in_ms(&a, 10), 5000);
}

static void a_forgiven_doubt_leaves_no_trace(void **state)
{
    (void)state;
    struct availability a = fresh();
    availability_fault(&a, 1, false, 0);
    const struct availability before = a;
    for (uint64_t owner = 2; owner <= 10; owner++)
        assert_false(forgive(&a, doubt(&a, owner, owner), owner));
    assert_memory_equal(&a, &before, sizeof(a));
    availability_fault(&a, 11, false, 0);
    struct doubt d = doubt(&a, 12, 0);
    assert_true(availability_fault(&a, 13, false, 0));
    assert_false(forgive(&a, d, 1)); /* suspended by others, and stays so */
    assert_int_equal(availability_ask(&a, 1), AVAILABILITY_VERDICT_NO);
    assert_int_equal(availability_retry_in_ms(&a, 1), 4999);
}

static void what_others_decided_since_stands(void **state)
{
    (void)state;
    struct availability a = fresh();
    struct doubt d = doubt(&a, 1, 0);
    availability_success(&a, 2);
    assert_false(settle(&a, d, 0));
    assert_int_equal(a.consecutive, 0);

    d = doubt(&a, 1, 0);
    availability_fault(&a, 2, true, 0);
    availability_take_probe(&a, 4);
    assert_false(settle(&a, d, 6001));
    assert_int_equal(a.consecutive, 1);
    availability_fault(&a, 4, false, 6002);
    assert_false(forgive(&a, d, 6003));
    assert_int_equal(availability_ask(&a, 6003), AVAILABILITY_VERDICT_NO);
}

/* A bad file as the probe: it says nothing, the next request is the probe, the hold is as before. */
static void a_forgiven_probe_was_given_up(void **state)
{
    (void)state;
    struct availability a = fresh();
    availability_fault(&a, 1, true, 0);
    availability_take_probe(&a, 2);
    struct doubt d = doubt(&a, 2, 6000);
    assert_int_equal(availability_retry_in_ms(&a, 6000), 10000);
    struct doubt late = doubt(&a, 3, 6000);
    assert_false(forgive(&a, late, 6001)); /* not the probe's */
    assert_int_equal(availability_ask(&a, 6001), AVAILABILITY_VERDICT_NO);
    assert_true(forgive(&a, d, 6001));
    assert_false(forgive(&a, d, 6001));
    assert_int_equal(a.consecutive, 1);
    assert_int_equal(availability_ask(&a, 6001), AVAILABILITY_VERDICT_PROBE);
    availability_take_probe(&a, 5);
    availability_fault(&a, 5, false, 7000);
    assert_int_equal(availability_retry_in_ms(&a, 7000), 10000);
}

static void a_settled_probe_has_failed_once(void **state)
{
    (void)state;
    struct availability a = fresh();
    availability_fault(&a, 1, true, 0);
    availability_take_probe(&a, 2);
    struct doubt d = doubt(&a, 2, 6000);
    assert_false(settle(&a, d, 6001)); /* suspended already */
    assert_int_equal(a.consecutive, 2);
    assert_int_equal(availability_retry_in_ms(&a, 6001), 9999);
    assert_false(forgive(&a, d, 6002));
}

static void a_device_lost_since_keeps_its_hold(void **state)
{
    (void)state;
    struct availability a = fresh();
    availability_fault(&a, 1, true, 0);
    availability_take_probe(&a, 2);
    struct doubt d = doubt(&a, 2, 6000);
    availability_fault(&a, 0, true, 6001);
    assert_false(forgive(&a, d, 6002));
    assert_int_equal(availability_ask(&a, 6002), AVAILABILITY_VERDICT_NO);
}

static uint32_t next_random(uint32_t *seed)
{
    *seed = *seed * 1664525U + 1013904223U;
    return *seed >> 8;
}

/* Doubts among faults, forgiven or settled in any order: what is left is what the faults and the
 * settled ones alone have done. */
static void forgiven_doubts_might_not_have_been(void **state)
{
    (void)state;
    for (uint32_t walk = 1; walk <= 2000; walk++) {
        uint32_t seed = walk;
        struct availability a = fresh(), others = fresh();
        struct doubt open[8];
        size_t count = 0;
        for (uint64_t now = 1; now <= 12; now++) {
            uint32_t what = next_random(&seed) % 4;
            if (what == 0 && count < 8) {
                open[count++] = doubt(&a, now, now);
            } else if (what == 1) {
                availability_fault(&a, now, false, now);
                availability_fault(&others, now, false, now);
            } else if (count > 0) {
                size_t k = next_random(&seed) % count;
                if (what == 2) {
                    forgive(&a, open[k], now);
                } else {
                    settle(&a, open[k], now);
                    availability_fault(&others, open[k].owner, false, now);
                }
                open[k] = open[--count];
            }
        }
        if (a.state != others.state || a.consecutive != others.consecutive ||
            a.until_ms != others.until_ms || a.next_hold_ms != others.next_hold_ms)
            fail_msg("walk %u: %s after %u faults, should be %s after %u", walk,
                     availability_state_name(a.state), a.consecutive,
                     availability_state_name(others.state), others.consecutive);
    }
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
        struct doubt open[4] = {{0}};
        for (int i = 0; i < 400; i++) {
            uint64_t owner = 1 + next_random(&seed) % 5;
            now += next_random(&seed) % 3000;
            size_t k = next_random(&seed) % 4;
            switch (next_random(&seed) % 8) {
            case 0: availability_fault(&a, owner, next_random(&seed) % 4 == 0, now); break;
            case 1: availability_success(&a, owner); break;
            case 2: availability_give_up(&a, owner, now); break;
            case 3: availability_restarted(&a, now); break;
            case 4:
                if (open[k].owner == 0)
                    open[k] = doubt(&a, owner, now);
                break;
            case 5:
                if (open[k].owner != 0)
                    settle(&a, open[k], now);
                open[k].owner = 0;
                break;
            case 6:
                if (open[k].owner != 0)
                    forgive(&a, open[k], now);
                open[k].owner = 0;
                break;
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
        cmocka_unit_test(a_doubt_counts_when_it_is_settled),
        cmocka_unit_test(a_forgiven_doubt_leaves_no_trace),
        cmocka_unit_test(what_others_decided_since_stands),
        cmocka_unit_test(a_forgiven_probe_was_given_up),
        cmocka_unit_test(a_settled_probe_has_failed_once),
        cmocka_unit_test(a_device_lost_since_keeps_its_hold),
        cmocka_unit_test(forgiven_doubts_might_not_have_been),
        cmocka_unit_test(random_walks_keep_the_invariants),
    };
    return cmocka_run_group_tests_name("policy/availability", tests, NULL, NULL);
}
