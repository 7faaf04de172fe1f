/*
 * The lifecycle table, over every pair of state and event and every path through it. What is
 * asserted is the invariants, not the rows: a row that breaks one of them makes a test red.
 */
#include "tests/unit/unit.h"

#include "policy/lifecycle.h"

#include <string.h>

#define FOR_EACH_PAIR(s, e)                                                                        \
    for (int s = 0; s < LIFECYCLE_STATE_COUNT; s++)                                                \
        for (int e = 0; e < LIFECYCLE_EVENT_COUNT; e++)

static struct lifecycle_step step_of(int s, int e)
{
    return lifecycle_next((enum lifecycle_state)s, (enum lifecycle_event)e);
}

/* States that can be reached from `from`, itself included, as bits. */
static unsigned reachable(enum lifecycle_state from)
{
    unsigned seen = 1U << from;
    for (unsigned before = 0; before != seen;) {
        before = seen;
        FOR_EACH_PAIR(s, e)
        {
            if ((seen & (1U << s)) && step_of(s, e).legal)
                seen |= 1U << step_of(s, e).next;
        }
    }
    return seen;
}

static void final_states_take_no_event(void **state)
{
    (void)state;
    FOR_EACH_PAIR(s, e)
    {
        struct lifecycle_step step = step_of(s, e);
        if (lifecycle_is_final((enum lifecycle_state)s)) {
            assert_false(step.legal);
            assert_int_equal(step.next, s);
            assert_int_equal(step.actions, 0);
        }
    }
}

static void every_running_state_ends_when_the_client_leaves_or_cancels(void **state)
{
    (void)state;
    for (int s = 0; s < LIFECYCLE_STATE_DONE; s++) {
        assert_true(step_of(s, LIFECYCLE_EVENT_GONE).legal);
        assert_int_equal(step_of(s, LIFECYCLE_EVENT_GONE).next, LIFECYCLE_STATE_CANCELLED);
        assert_true(step_of(s, LIFECYCLE_EVENT_CANCEL).legal);
        assert_int_equal(step_of(s, LIFECYCLE_EVENT_CANCEL).next, LIFECYCLE_STATE_CANCELLED);
    }
}

static void nothing_is_replayed_after_the_commit_point(void **state)
{
    (void)state;
    unsigned after = reachable(LIFECYCLE_STATE_RELAYING);
    assert_false(after & (1U << LIFECYCLE_STATE_DISPATCHED));
    assert_false(after & (1U << LIFECYCLE_STATE_DECIDING));
    assert_false(after & (1U << LIFECYCLE_STATE_COUNTING));
    assert_false(after & (1U << LIFECYCLE_STATE_WAITING));
    assert_false(after & (1U << LIFECYCLE_STATE_PAUSED));
}

static void every_running_state_is_reached_and_can_end_well(void **state)
{
    (void)state;
    unsigned all = reachable(LIFECYCLE_STATE_RECEIVED);
    assert_int_equal(all, (1U << LIFECYCLE_STATE_COUNT) - 1);
    for (int s = 0; s < LIFECYCLE_STATE_DONE; s++)
        assert_true(reachable((enum lifecycle_state)s) & (1U << LIFECYCLE_STATE_DONE));
}

/* Whoever leaves DISPATCHED or RELAYING lets go of the attempt, except at the commit point; whoever
 * leaves WAITING leaves the queue. Otherwise slots and places leak. */
static void what_a_state_holds_is_released_on_leaving(void **state)
{
    (void)state;
    FOR_EACH_PAIR(s, e)
    {
        struct lifecycle_step step = step_of(s, e);
        if (!step.legal)
            continue;
        bool held_attempt = s == LIFECYCLE_STATE_DISPATCHED || s == LIFECYCLE_STATE_RELAYING;
        bool keeps_it = step.next == LIFECYCLE_STATE_RELAYING;
        bool drops = (step.actions & LIFECYCLE_ACTION_DROP_ATTEMPT) != 0;
        assert_int_equal(drops, held_attempt && !keeps_it);
        bool leaves = (step.actions & LIFECYCLE_ACTION_LEAVE_QUEUE) != 0;
        assert_int_equal(leaves, s == LIFECYCLE_STATE_WAITING);
        /* A count that ended by itself holds nothing any more. */
        bool forgets = (step.actions & LIFECYCLE_ACTION_DROP_COUNT) != 0;
        assert_int_equal(forgets, s == LIFECYCLE_STATE_COUNTING && e != LIFECYCLE_EVENT_COUNTED);
        bool counts = (step.actions & LIFECYCLE_ACTION_START_COUNT) != 0;
        assert_int_equal(counts, step.next == LIFECYCLE_STATE_COUNTING);
    }
}

/* A final state says exactly one thing to a client that still listens, and nothing to one that left. */
static void every_outcome_is_said_once(void **state)
{
    (void)state;
    unsigned words = LIFECYCLE_ACTION_REPLY | LIFECYCLE_ACTION_SAY_ERROR |
                     LIFECYCLE_ACTION_SAY_CUT | LIFECYCLE_ACTION_END;
    FOR_EACH_PAIR(s, e)
    {
        struct lifecycle_step step = step_of(s, e);
        if (!step.legal || !lifecycle_is_final(step.next))
            continue;
        int said = __builtin_popcount(step.actions & words);
        assert_int_equal(said, e == LIFECYCLE_EVENT_GONE ? 0 : 1);
        assert_int_equal((step.actions & LIFECYCLE_ACTION_CLOSE) != 0, e == LIFECYCLE_EVENT_GONE);
        /* An error answer has a status line: impossible once one was sent. */
        if (s == LIFECYCLE_STATE_RELAYING)
            assert_false(step.actions & (LIFECYCLE_ACTION_REPLY | LIFECYCLE_ACTION_SAY_ERROR));
        else
            assert_false(step.actions & LIFECYCLE_ACTION_SAY_CUT);
    }
}

static void a_cut_is_never_a_success(void **state)
{
    (void)state;
    assert_int_equal(step_of(LIFECYCLE_STATE_RELAYING, LIFECYCLE_EVENT_CUT).next,
                     LIFECYCLE_STATE_FAILED);
    assert_false(step_of(LIFECYCLE_STATE_RELAYING, LIFECYCLE_EVENT_CUT).actions &
                 LIFECYCLE_ACTION_END);
}

static void out_of_range_is_illegal_and_everything_has_a_name(void **state)
{
    (void)state;
    assert_false(step_of(LIFECYCLE_STATE_COUNT, 0).legal);
    assert_false(step_of(0, LIFECYCLE_EVENT_COUNT).legal);
    for (int s = 0; s < LIFECYCLE_STATE_COUNT; s++)
        assert_true(strlen(lifecycle_state_name((enum lifecycle_state)s)) > 1);
    for (int e = 0; e < LIFECYCLE_EVENT_COUNT; e++)
        assert_true(strlen(lifecycle_event_name((enum lifecycle_event)e)) > 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(final_states_take_no_event),
        cmocka_unit_test(every_running_state_ends_when_the_client_leaves_or_cancels),
        cmocka_unit_test(nothing_is_replayed_after_the_commit_point),
        cmocka_unit_test(every_running_state_is_reached_and_can_end_well),
        cmocka_unit_test(what_a_state_holds_is_released_on_leaving),
        cmocka_unit_test(every_outcome_is_said_once),
        cmocka_unit_test(a_cut_is_never_a_success),
        cmocka_unit_test(out_of_range_is_illegal_and_everything_has_a_name),
    };
    return cmocka_run_group_tests_name("policy/lifecycle", tests, NULL, NULL);
}
