/* One retry for what passes by itself, then the next tier. See failover.h. */
#include "policy/failover.h"

struct failover_decision failover_decide(const struct failover_facts *facts)
{
    struct failover_decision d = {.move = FAILOVER_MOVE_NEXT};
    if (facts->own_error) {
        d.move = FAILOVER_MOVE_PASS_ON;
        d.uncounted = true;
        d.forgive = facts->doubt && facts->doubted;
        return d;
    }
    if (facts->doubt && facts->doubted && !facts->others_left) {
        d.move = FAILOVER_MOVE_PASS_ON;
        d.uncounted = true;
        d.forgive = true;
        return d;
    }
    if (facts->stale_connection && facts->stale_retries == 0) {
        /* The keep-alive race: the worker never saw the request. */
        d.move = FAILOVER_MOVE_RETRY;
        d.fresh_connection = true;
        d.uncounted = true;
        return d;
    }
    bool pause_is_short =
        facts->retry_after_ms < 0 || (uint64_t)facts->retry_after_ms <= facts->retry_after_max_ms;
    d.waits = facts->doubt && !facts->doubted_here;
    d.uncounted = facts->doubt && facts->doubted_here;
    /* What two workers say alike is learned from no retry. */
    bool worth_it = facts->may_retry && facts->retries == 0 && !d.uncounted &&
                    !(facts->doubt && facts->doubted);
    if (worth_it && !facts->worker_gone && pause_is_short) {
        d.move = FAILOVER_MOVE_RETRY;
        d.pause_ms = facts->retry_after_ms > 0 ? (uint64_t)facts->retry_after_ms : 0;
        d.fresh_connection = true;
    }
    return d;
}
