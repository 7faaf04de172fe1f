/* What follows from a fault before the commit point: a table, then all combinations. */
#include "tests/unit/unit.h"

#include "policy/failover.h"

struct row {
    const char *what;
    struct failover_facts facts;
    struct failover_decision expected;
};

static const struct row rows[] = {
    {"the request's own error goes to the client",
     {.own_error = true, .may_retry = true, .retry_after_ms = -1},
     {.move = FAILOVER_MOVE_PASS_ON, .uncounted = true}},
    {"the keep-alive race is tried again on a fresh connection, uncounted",
     {.stale_connection = true, .retry_after_ms = -1},
     {.move = FAILOVER_MOVE_RETRY, .fresh_connection = true, .uncounted = true}},
    {"… once",
     {.stale_connection = true, .stale_retries = 1, .retry_after_ms = -1},
     {.move = FAILOVER_MOVE_NEXT}},
    {"a transient fault is tried once more",
     {.may_retry = true, .retry_after_ms = -1},
     {.move = FAILOVER_MOVE_RETRY, .fresh_connection = true}},
    {"… after the pause that the worker asked for",
     {.may_retry = true, .retry_after_ms = 1500, .retry_after_max_ms = 2000},
     {.move = FAILOVER_MOVE_RETRY, .pause_ms = 1500, .fresh_connection = true}},
    {"… unless that is too long",
     {.may_retry = true, .retry_after_ms = 2001, .retry_after_max_ms = 2000},
     {.move = FAILOVER_MOVE_NEXT}},
    {"… and not twice",
     {.may_retry = true, .retries = 1, .retry_after_ms = -1},
     {.move = FAILOVER_MOVE_NEXT}},
    {"a worker that is gone is not tried again",
     {.may_retry = true, .worker_gone = true, .retry_after_ms = -1},
     {.move = FAILOVER_MOVE_NEXT}},
    {"a doubt is tried once more on the same worker, and waits",
     {.doubt = true, .may_retry = true, .others_left = true, .retry_after_ms = -1},
     {.move = FAILOVER_MOVE_RETRY, .fresh_connection = true, .waits = true}},
    {"… then it moves on, and is no second doubt",
     {.doubt = true,
      .doubted_here = true,
      .may_retry = true,
      .retries = 1,
      .others_left = true,
      .retry_after_ms = -1},
     {.move = FAILOVER_MOVE_NEXT, .uncounted = true}},
    {"the same from another worker goes to the client at once, and is nobody's fault",
     {.doubt = true, .doubted = true, .may_retry = true, .retry_after_ms = -1},
     {.move = FAILOVER_MOVE_PASS_ON, .uncounted = true, .forgive = true}},
    {"… but not while there is a tier that may know better",
     {.doubt = true, .doubted = true, .may_retry = true, .others_left = true, .retry_after_ms = -1},
     {.move = FAILOVER_MOVE_NEXT, .waits = true}},
    {"a fault of another kind proves nothing about a doubt before",
     {.doubted = true, .retry_after_ms = -1},
     {.move = FAILOVER_MOVE_NEXT}},
    {"another worker that says what is wrong with the request resolves the doubt",
     {.own_error = true, .doubt = true, .doubted = true, .retry_after_ms = -1},
     {.move = FAILOVER_MOVE_PASS_ON, .uncounted = true, .forgive = true}},
    {"… one that does not know the client does not",
     {.own_error = true, .doubted = true, .retry_after_ms = -1},
     {.move = FAILOVER_MOVE_PASS_ON, .uncounted = true}},
    {"a lost device moves on at once", {.retry_after_ms = -1}, {.move = FAILOVER_MOVE_NEXT}},
};

static void decisions_are_those_of_the_table(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct failover_decision d = failover_decide(&rows[i].facts);
        if (d.move != rows[i].expected.move || d.pause_ms != rows[i].expected.pause_ms ||
            d.fresh_connection != rows[i].expected.fresh_connection ||
            d.uncounted != rows[i].expected.uncounted || d.waits != rows[i].expected.waits ||
            d.forgive != rows[i].expected.forgive)
            fail_msg("%s", rows[i].what);
    }
}

/* Over every combination: at most one retry of each kind, the client's own error never counts nor
 * moves, and a doubt waits once, is passed on only when two agree, and is never counted at once. */
static void retries_are_bounded(void **state)
{
    (void)state;
    for (unsigned bits = 0; bits < 4096; bits++) {
        struct failover_facts f = {
            .own_error = bits & 1,
            .may_retry = bits & 2,
            .stale_connection = bits & 4,
            .worker_gone = bits & 8,
            .retries = (bits >> 4) & 1,
            .stale_retries = (bits >> 5) & 1,
            .retry_after_ms = (bits & 64) ? 500 : -1,
            .retry_after_max_ms = (bits & 128) ? 100 : 2000,
            .doubt = bits & 256,
            .doubted = bits & 512,
            .doubted_here = bits & 1024,
            .others_left = bits & 2048,
        };
        struct failover_decision d = failover_decide(&f);
        assert_true(!d.forgive || (d.move == FAILOVER_MOVE_PASS_ON && f.doubt && f.doubted));
        assert_true(!f.doubt || d.uncounted != d.waits);
        assert_true(!d.waits || (f.doubt && !f.doubted_here));
        if (f.own_error) {
            assert_int_equal(d.move, FAILOVER_MOVE_PASS_ON);
            assert_true(d.uncounted);
            continue;
        }
        if (d.move == FAILOVER_MOVE_PASS_ON) {
            assert_true(d.forgive && !f.others_left);
            continue;
        }
        if (d.move == FAILOVER_MOVE_RETRY)
            assert_true(d.uncounted ? f.stale_retries == 0 : f.retries == 0);
        if (d.move == FAILOVER_MOVE_NEXT)
            assert_int_equal(d.pause_ms, 0);
        assert_true(d.pause_ms <= f.retry_after_max_ms);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decisions_are_those_of_the_table),
        cmocka_unit_test(retries_are_bounded),
    };
    return cmocka_run_group_tests_name("policy/failover", tests, NULL, NULL);
}
