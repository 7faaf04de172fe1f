/*
 * News comes late: a sample is taken before an exit, a start or a settling, and arrives after it; a
 * driver drops a dead process from its list before its memory. None of this makes own memory a
 * stranger's, which would count twice and stay for the time that a foreign peak is held.
 */
#include "tests/unit/policy/ledger_rig.h"
#include "tests/unit/policy/random.h"

#include <errno.h>
#include <string.h>

#define TOTAL (16 * GIB)

enum { PID = 41 };

/* Taken at one time, known at another. */
static int late_sample(struct rig *r, uint64_t used, uint32_t pid, uint64_t bytes,
                       uint64_t taken_ms, uint64_t now_ms)
{
    struct ledger_process process = {.pid = pid, .bytes = bytes};
    struct ledger_sample s = {.taken_ms = taken_ms,
                              .total_valid = true,
                              .used_valid = true,
                              .processes_valid = true,
                              .total_bytes = TOTAL,
                              .used_bytes = used,
                              .processes = &process,
                              .process_count = pid != 0};
    return ledger_observe(&r->ledger, &s, now_ms);
}

/* A worker of 4 GiB, loaded, measured and seen at 2000 ms. */
static uint64_t late_worker(struct rig *r)
{
    uint64_t id = 0;
    rig_start(r, TOTAL, MIB, 0);
    assert_int_equal(rig_open(r, "chat", 5 * GIB, 1000, &id), 0);
    assert_int_equal(ledger_claim_set_pid(&r->ledger, id, PID), 0);
    assert_int_equal(late_sample(r, 4 * GIB, PID, 4 * GIB, 1500, 1500), 0);
    assert_int_equal(ledger_claim_settle(&r->ledger, id, 4 * GIB, 2000), 0);
    assert_int_equal(late_sample(r, 4 * GIB, PID, 4 * GIB, 2000, 2000), 0);
    return id;
}

static void assert_foreign(const struct rig *r, uint64_t bytes, uint64_t now_ms)
{
    assert_int_equal(ledger_view(&r->ledger, now_ms).foreign_bytes, bytes);
    assert_ledger_balances(&r->ledger, now_ms);
}

/* With the process in its list, or without: its owner has other things to list by then. */
static void a_sample_from_before_an_exit(void **state)
{
    (void)state;
    for (unsigned listed = 0; listed < 2; listed++) {
        struct rig r;
        uint64_t id = late_worker(&r);
        assert_int_equal(ledger_claim_begin_release(&r.ledger, id, 2600), 0);
        assert_int_equal(late_sample(&r, 4 * GIB, listed ? PID : 0, 4 * GIB, 2550, 2700), 0);
        assert_foreign(&r, 0, 2700);
        assert_int_equal(late_sample(&r, 0, 0, 0, 3000, 3000), 0);
        assert_int_equal(late_sample(&r, 0, 0, 0, 3500, 3500), 0);
        assert_foreign(&r, 0, 3500);
        assert_int_equal(rig_admissible(&r, 3500), TOTAL - MIB);
    }
}

/* The driver has dropped the process from its list, its memory is not back, and nobody told us yet. */
static void an_exit_that_is_seen_before_it_is_heard_of(void **state)
{
    (void)state;
    struct rig r;
    uint64_t id = late_worker(&r);
    assert_int_equal(late_sample(&r, 4 * GIB, 0, 0, 2500, 2500), 0);
    assert_foreign(&r, 0, 2500);
    assert_int_equal(late_sample(&r, 4 * GIB, 0, 0, 3000, 3000), 0);
    assert_foreign(&r, 0, 3000);
    assert_int_equal(ledger_view(&r.ledger, 3000).headroom_bytes, 12 * GIB - MIB);
    /* For admission it is still the worse of both. */
    assert_int_equal(rig_admissible(&r, 3000), 8 * GIB - MIB);
    assert_int_equal(ledger_claim_begin_release(&r.ledger, id, 3100), 0);
    assert_int_equal(late_sample(&r, 4 * GIB, 0, 0, 3500, 3500), 0);
    assert_foreign(&r, 0, 3500);
    assert_int_equal(late_sample(&r, 0, 0, 0, 4000, 4000), 0);
    assert_int_equal(late_sample(&r, 0, 0, 0, 4500, 4500), 0);
    assert_foreign(&r, 0, 4500);
    assert_int_equal(rig_admissible(&r, 4500), TOTAL - MIB);
}

/* It died while it was loading: it may have grown since it was last seen. */
static void a_load_that_ends_unheard(void **state)
{
    (void)state;
    struct rig r;
    uint64_t id = 0;
    rig_start(&r, TOTAL, MIB, 0);
    assert_int_equal(rig_open(&r, "chat", 8 * GIB, 1000, &id), 0);
    assert_int_equal(ledger_claim_set_pid(&r.ledger, id, PID), 0);
    assert_int_equal(late_sample(&r, 3 * GIB, PID, 3 * GIB, 1500, 1500), 0);
    assert_int_equal(late_sample(&r, 5 * GIB, 0, 0, 2000, 2000), 0);
    assert_foreign(&r, 0, 2000);
    assert_int_equal(late_sample(&r, 9 * GIB, 0, 0, 2500, 2500), 0);
    assert_foreign(&r, GIB, 2500);
}

/* One that was never seen to hold anything has not begun: a stranger is seen at once. */
static void a_stranger_beside_a_load_that_begins(void **state)
{
    (void)state;
    struct rig r;
    uint64_t id = 0;
    rig_start(&r, TOTAL, MIB, 0);
    assert_int_equal(rig_open(&r, "chat", 8 * GIB, 1000, &id), 0);
    assert_int_equal(ledger_claim_set_pid(&r.ledger, id, PID), 0);
    assert_int_equal(late_sample(&r, 3 * GIB, 0, 0, 1500, 1500), 0);
    assert_foreign(&r, 3 * GIB, 1500);
}

/* A stranger that comes at the same time is seen, less what may be the worker's. */
static void a_stranger_beside_an_unheard_exit(void **state)
{
    (void)state;
    struct rig r;
    (void)late_worker(&r);
    assert_int_equal(late_sample(&r, 10 * GIB, 0, 0, 2500, 2500), 0);
    assert_foreign(&r, 6 * GIB, 2500);
    assert_int_equal(ledger_view(&r.ledger, 2500).headroom_bytes, 6 * GIB - MIB);
}

/* One job of a program ended: for one sample its bytes may be on their way; then they are foreign, as
 * nothing says that they are not. */
static void a_process_that_holds_less(void **state)
{
    (void)state;
    struct rig r;
    uint64_t id = late_worker(&r);
    assert_int_equal(late_sample(&r, 4 * GIB, PID, 3 * GIB, 2500, 2500), 0);
    assert_foreign(&r, 0, 2500);
    assert_int_equal(late_sample(&r, 4 * GIB, PID, 3 * GIB, 3000, 3000), 0);
    assert_foreign(&r, GIB, 3000);
    assert_int_equal(ledger_claim_settle(&r.ledger, id, 3 * GIB, 3000), 0);
}

/* Started, and even measured, between the taking of a sample and its arrival. */
static void a_sample_from_before_a_start(void **state)
{
    (void)state;
    for (unsigned settled = 0; settled < 2; settled++) {
        struct rig r;
        uint64_t id = 0;
        rig_start(&r, TOTAL, MIB, 2 * GIB);
        assert_int_equal(rig_open(&r, "chat", 5 * GIB, 1400, &id), 0);
        assert_int_equal(ledger_claim_set_pid(&r.ledger, id, PID), 0);
        if (settled)
            assert_int_equal(ledger_claim_settle(&r.ledger, id, 4 * GIB, 1450), 0);
        assert_int_equal(late_sample(&r, 2 * GIB, 0, 0, 1300, 1500), 0);
        assert_foreign(&r, 2 * GIB, 1500);
        assert_int_equal(late_sample(&r, 6 * GIB, PID, 4 * GIB, 2000, 2000), 0);
        assert_foreign(&r, 2 * GIB, 2000);
    }
}

/*
 * Workers that follow each other fast: whenever a sample is taken, one of them is on its way out. The
 * first of them must not wait for the last, and become foreign in the end.
 */
static void fast_reloads_leave_nothing_behind(void **state)
{
    (void)state;
    struct rig r;
    rig_start(&r, TOTAL, MIB, 0);
    uint64_t now = 1000;
    for (unsigned i = 0; i < 40; i++) {
        uint64_t id = 0;
        uint32_t pid = 100 + i;
        struct ledger_request request = {
            .label = "ocr", .bytes = 4 * GIB, .pid = pid, .adopt = true};
        assert_int_equal(ledger_claim_open(&r.ledger, &request, now, &id), 0);
        now += 300;
        assert_int_equal(ledger_claim_settle(&r.ledger, id, 4 * GIB, now), 0);
        now += 100;
        assert_int_equal(ledger_claim_begin_release(&r.ledger, id, now), 0);
        /* Taken just before, delivered just after. */
        assert_int_equal(late_sample(&r, 4 * GIB, pid, 4 * GIB, now - 10, now + 50), 0);
        struct ledger_view v = ledger_view(&r.ledger, now + 50);
        assert_int_equal(v.foreign_bytes, 0);
        assert_true(v.releasing_bytes <= 12 * GIB);
        assert_ledger_balances(&r.ledger, now + 50);
        now += 100;
    }
}

/* What is not back at the deadline is foreign; what a later worker may still hold of it is not. */
static void a_deadline_takes_no_more_than_is_there(void **state)
{
    (void)state;
    struct rig r;
    uint64_t first = late_worker(&r);
    uint64_t second = 0;
    assert_int_equal(ledger_claim_begin_release(&r.ledger, first, 2600), 0);
    assert_int_equal(rig_open(&r, "next", 6 * GIB, 2700, &second), 0);
    /* Without figures per process: 4 GiB that are the first's, or the second's already. */
    for (uint64_t now = 3000; now <= 7500; now += 500)
        assert_int_equal(rig_sample(&r, TOTAL, 4 * GIB, now), 0);
    assert_int_equal(ledger_tick(&r.ledger, 7600), 1);
    assert_foreign(&r, 0, 7600);
    assert_int_equal(rig_admissible(&r, 7600), 6 * GIB - MIB);
}

/* --- any order of events, with samples up to two seconds old --- */

enum { OWNERS = 5, WALKS = 400, STEPS = 300, PAST = 512 };

struct late_owner {
    bool used;
    bool grown;  /* it allocates no more */
    bool shown;  /* the ledger has seen it */
    bool dead;   /* no longer listed; its memory comes back at back_ms */
    bool heard;  /* the ledger was told */
    uint64_t id; /* of the claim */
    uint32_t pid;
    uint64_t bound;
    uint64_t allocated;
    uint64_t heard_ms;
    uint64_t back_ms;
};

struct late_world {
    struct rig rig;
    struct late_owner owners[OWNERS];
    uint64_t seed;
    uint64_t walk;
    uint64_t now_ms;
    uint64_t others;
    uint32_t last_pid;
    struct {
        uint64_t at_ms;
        uint64_t others;
    } past[PAST];
    unsigned past_count;
    bool under_way;
    uint64_t due_ms;
    uint64_t sample_others;
    uint64_t known_others; /* in the last sample that the ledger took */
    struct ledger_sample sample;
    struct ledger_process processes[OWNERS];
};

/*
 * At every step. Where a stranger leaves while memory of ours is on its way back, nobody can tell which
 * of the two it was: a claim may end for a stranger's bytes, and what is left of ours is then taken for
 * his, once.
 */
static void late_note(struct late_world *w)
{
    uint64_t bytes = w->others;
    for (unsigned i = 0; i < OWNERS; i++) {
        const struct late_owner *o = &w->owners[i];
        const struct ledger_claim *claim = ledger_claim_find(&w->rig.ledger, o->id);
        uint64_t held = claim ? claim->held_bytes : 0;
        if (o->used && o->heard && o->allocated > held)
            bytes += o->allocated - held;
    }
    w->past[w->past_count % PAST].at_ms = w->now_ms;
    w->past[w->past_count++ % PAST].others = bytes;
}

/* The most that others had while it may still be held: two hold times, their stretch, a late sample. */
static uint64_t late_peak(const struct late_world *w)
{
    uint64_t peak = w->others;
    for (unsigned i = 0; i < PAST && i < w->past_count; i++)
        if (w->past[i].at_ms + 24000 >= w->now_ms && w->past[i].others > peak)
            peak = w->past[i].others;
    return peak;
}

/* What lived and died between two samples was never told apart from a stranger. */
static bool late_may_die(const struct late_owner *o)
{
    return !o->dead && (o->shown || o->allocated == 0);
}

static void late_take(struct late_world *w)
{
    w->sample = (struct ledger_sample){.taken_ms = w->now_ms,
                                       .total_valid = true,
                                       .used_valid = true,
                                       .processes_valid = random_below(&w->seed, 8) > 0,
                                       .total_bytes = TOTAL,
                                       .used_bytes = w->others,
                                       .processes = w->processes};
    for (unsigned i = 0; i < OWNERS; i++) {
        struct late_owner *o = &w->owners[i];
        if (!o->used)
            continue;
        w->sample.used_bytes += o->allocated;
        /* Between the two questions that a driver is asked. */
        if (late_may_die(o) && random_below(&w->seed, 40) == 0) {
            o->dead = true;
            o->heard_ms = w->now_ms + random_below(&w->seed, 1500);
            o->back_ms = w->now_ms;
        }
        if (!o->dead)
            w->processes[w->sample.process_count++] = (struct ledger_process){o->pid, o->allocated};
    }
    w->sample_others = w->others;
    w->under_way = true;
    w->due_ms = w->now_ms + random_below(&w->seed, random_below(&w->seed, 4) ? 100 : 2000);
}

/* As the owner does: what is ready and was shown is measured, then the figures are taken. */
static void late_deliver(struct late_world *w)
{
    w->under_way = false;
    for (unsigned i = 0; i < OWNERS; i++) {
        struct late_owner *o = &w->owners[i];
        for (size_t p = 0; p < w->sample.process_count; p++) {
            if (o->used && !o->heard && o->grown && w->processes[p].pid == o->pid &&
                w->processes[p].bytes == o->allocated && w->sample.processes_valid) {
                assert_int_equal(
                    ledger_claim_settle(&w->rig.ledger, o->id, o->allocated, w->now_ms), 0);
                o->bound = o->allocated;
            }
        }
    }
    int rc = ledger_observe(&w->rig.ledger, &w->sample, w->now_ms);
    for (size_t p = 0; rc == 0 && w->sample.processes_valid && p < w->sample.process_count; p++)
        for (unsigned i = 0; i < OWNERS; i++)
            if (w->owners[i].pid == w->processes[p].pid && w->processes[p].bytes > 0)
                w->owners[i].shown = true;
    if (rc == 0)
        w->known_others = w->sample_others;
    /* A claim whose process is gone still counts, and explains where nobody tells of processes. */
    uint64_t counted = w->rig.ledger.base_bytes + w->rig.ledger.excess_bytes;
    for (unsigned i = 0; i < OWNERS; i++)
        if (w->owners[i].used && w->owners[i].dead && !w->owners[i].heard)
            counted += w->owners[i].bound;
    if (rc == 0 && counted < w->sample_others)
        fail_msg("walk %llu: a stranger's bytes are lost", (unsigned long long)w->walk);
}

static void late_assert_safe(const struct late_world *w)
{
    uint64_t worst = MIB + w->known_others;
    for (unsigned i = 0; i < OWNERS; i++)
        if (w->owners[i].used)
            worst += w->owners[i].dead ? w->owners[i].allocated : w->owners[i].bound;
    if (worst > TOTAL)
        fail_msg("walk %llu: %llu MiB may be used", (unsigned long long)w->walk,
                 (unsigned long long)(worst / MIB));
}

static void late_owner_step(struct late_world *w, struct late_owner *o)
{
    if (!o->used) {
        struct ledger_request request = {
            .label = "owner", .bytes = random_below(&w->seed, 6 * GIB), .pid = ++w->last_pid};
        uint64_t id = 0;
        if (ledger_claim_open(&w->rig.ledger, &request, w->now_ms, &id) < 0)
            return;
        *o =
            (struct late_owner){.used = true, .id = id, .pid = request.pid, .bound = request.bytes};
        late_assert_safe(w);
    } else if (late_may_die(o) && random_below(&w->seed, 6) == 0) {
        o->dead = true;
        o->heard_ms = w->now_ms + random_below(&w->seed, 1500);
        o->back_ms = w->now_ms + random_below(&w->seed, 3000);
    } else if (!o->dead && !o->grown) {
        o->allocated += random_below(&w->seed, o->bound - o->allocated + 1);
        o->grown = random_below(&w->seed, 3) == 0;
    }
}

static void late_time_passes(struct late_world *w)
{
    w->now_ms += 1 + random_below(&w->seed, 200);
    for (unsigned i = 0; i < OWNERS; i++) {
        struct late_owner *o = &w->owners[i];
        if (!o->used || !o->dead)
            continue;
        if (!o->heard && w->now_ms >= o->heard_ms) {
            o->heard = true;
            assert_int_equal(ledger_claim_begin_release(&w->rig.ledger, o->id, w->now_ms), 0);
        }
        if (w->now_ms >= o->back_ms)
            o->allocated = 0;
        if (o->heard && o->allocated == 0)
            o->used = false; /* the claim may live on for a while */
    }
}

static void late_step(struct late_world *w)
{
    late_time_passes(w);
    if (w->under_way && w->now_ms >= w->due_ms)
        late_deliver(w);
    else if (!w->under_way && random_below(&w->seed, 2))
        late_take(w);
    if (random_below(&w->seed, 30) == 0)
        w->others = random_below(&w->seed, 4 * GIB);
    late_owner_step(w, &w->owners[random_below(&w->seed, OWNERS)]);
    late_note(w);
    assert_ledger_balances(&w->rig.ledger, w->now_ms);
    uint64_t foreign = ledger_view(&w->rig.ledger, w->now_ms).foreign_bytes;
    if (foreign > late_peak(w))
        fail_msg("walk %llu at %llu ms: %llu MiB foreign, of others %llu MiB at most",
                 (unsigned long long)w->walk, (unsigned long long)w->now_ms,
                 (unsigned long long)(foreign / MIB), (unsigned long long)(late_peak(w) / MIB));
}

static void nothing_of_ours_is_ever_foreign(void **state)
{
    (void)state;
    for (uint64_t walk = 1; walk <= WALKS; walk++) {
        struct late_world w;
        memset(&w, 0, sizeof(w));
        rig_start(&w.rig, TOTAL, MIB, 0);
        w.rig.ledger.settings.release_ms = 15000;
        w.seed = w.walk = walk;
        w.now_ms = 1000;
        w.last_pid = 100;
        for (unsigned step = 0; step < STEPS; step++)
            late_step(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sample_from_before_an_exit),
        cmocka_unit_test(an_exit_that_is_seen_before_it_is_heard_of),
        cmocka_unit_test(a_load_that_ends_unheard),
        cmocka_unit_test(a_stranger_beside_a_load_that_begins),
        cmocka_unit_test(a_stranger_beside_an_unheard_exit),
        cmocka_unit_test(a_process_that_holds_less),
        cmocka_unit_test(a_sample_from_before_a_start),
        cmocka_unit_test(fast_reloads_leave_nothing_behind),
        cmocka_unit_test(a_deadline_takes_no_more_than_is_there),
        cmocka_unit_test(nothing_of_ours_is_ever_foreign),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
