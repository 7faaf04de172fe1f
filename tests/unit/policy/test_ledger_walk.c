/*
 * Properties of the ledger under any interleaving: random walks against a model of what really
 * happens on the devices, and every sequence of a small world.
 *
 * The model knows what each process has really allocated and what others have. The ledger sees only
 * samples: good, without figures per process, old, impossible, or none.
 */
#include "tests/unit/policy/ledger_rig.h"
#include "tests/unit/policy/random.h"

#include <errno.h>
#include <string.h>

enum { DEVICES = 3, OWNERS = 12, STEPS = 400, WALKS = 300, TOTAL_GIB = 24 };

/* One owner of a claim, as it really is. */
struct owner {
    bool used;
    bool dying;         /* its claim is being released, or was */
    bool ended;         /* the ledger has no claim of it any more, but memory may be left */
    uint64_t id;        /* of its claim */
    uint32_t pid;       /* 0: not told to the ledger */
    uint64_t allocated; /* really */
    uint64_t bound;     /* claimed */
};

struct world {
    struct rig rig;
    struct owner owners[OWNERS];
    uint64_t others;         /* really */
    uint64_t others_sampled; /* at the last good sample */
    bool under_way;          /* a sample was taken that the ledger does not have yet */
    struct ledger_sample late;
    struct ledger_process late_processes[OWNERS];
    uint64_t late_others;
    uint64_t ended_id;
    uint64_t now_ms;
    uint64_t seed;
};

static uint64_t world_used(const struct world *w)
{
    uint64_t used = w->others;
    for (unsigned i = 0; i < OWNERS; i++)
        used += w->owners[i].allocated;
    return used;
}

static struct ledger_sample world_sample(const struct world *w, bool per_process,
                                         struct ledger_process processes[OWNERS])
{
    struct ledger_sample s = {.taken_ms = w->now_ms,
                              .total_valid = true,
                              .used_valid = true,
                              .processes_valid = per_process,
                              .total_bytes = TOTAL_GIB * GIB,
                              .used_bytes = world_used(w),
                              .processes = processes};
    for (unsigned i = 0; i < OWNERS; i++) {
        if (w->owners[i].pid != 0)
            processes[s.process_count++] =
                (struct ledger_process){w->owners[i].pid, w->owners[i].allocated};
    }
    return s;
}

/* Claims that the ledger ended by itself. */
static void world_notice_ends(struct world *w)
{
    for (unsigned i = 0; i < OWNERS; i++) {
        struct owner *o = &w->owners[i];
        if (!o->used || o->ended || ledger_claim_find(&w->rig.ledger, o->id))
            continue;
        assert_true(o->dying);
        o->ended = true;
        w->ended_id = o->id;
        if (o->allocated == 0)
            o->used = false;
    }
}

/* What was admitted fits, even if every owner takes all it may: the point of the whole thing. */
static void world_assert_safe(const struct world *w)
{
    uint64_t worst = w->others_sampled;
    for (unsigned i = 0; i < OWNERS; i++) {
        if (w->owners[i].used)
            worst += w->owners[i].dying ? w->owners[i].allocated : w->owners[i].bound;
    }
    if (worst + GIB > TOTAL_GIB * GIB)
        fail_msg("seed %llu: %llu MiB of %u GiB may be used", (unsigned long long)w->seed,
                 (unsigned long long)(worst / MIB), TOTAL_GIB);
}

static void world_open(struct world *w, unsigned at, uint64_t *seed)
{
    struct owner *o = &w->owners[at];
    uint64_t bytes = random_below(seed, 12 * GIB);
    int64_t admissible = rig_admissible(&w->rig, w->now_ms);
    struct ledger_request request = {.label = "owner", .bytes = bytes, .owner_id = at};
    if (random_below(seed, 2))
        request.pid = 100 + at;
    uint64_t id = 0;
    int rc = ledger_claim_open(&w->rig.ledger, &request, w->now_ms, &id);
    bool fits = bytes == 0 || (int64_t)bytes <= admissible;
    assert_int_equal(rc, fits ? 0 : -ENOSPC);
    if (rc < 0)
        return;
    *o = (struct owner){.used = true, .id = id, .pid = request.pid, .bound = bytes};
    world_assert_safe(w);
    assert_true(ledger_view(&w->rig.ledger, w->now_ms).headroom_bytes >= 0 || bytes == 0);
}

static void world_bad_sample(struct world *w, uint64_t *seed)
{
    struct ledger_process processes[OWNERS];
    struct ledger_sample s = world_sample(w, random_below(seed, 2), processes);
    ledger_tick(&w->rig.ledger, w->now_ms); /* what a deadline gives, it does not */
    int64_t before = rig_admissible(&w->rig, w->now_ms);
    switch (random_below(seed, 5)) {
    case 0: s.total_valid = false; break;
    case 1: s.used_bytes = UINT64_MAX - random_below(seed, GIB); break;
    case 2:
        s.free_valid = true;
        s.free_bytes = s.total_bytes + 1 + random_below(seed, GIB);
        break;
    case 3: s.taken_ms = w->now_ms > 4000 ? w->now_ms - 3000 : 0; break;
    default: s.taken_ms = w->now_ms + 1 + random_below(seed, 1000); break;
    }
    int rc = ledger_observe(&w->rig.ledger, &s, w->now_ms);
    assert_true(rc < 0);
    int64_t after = rig_admissible(&w->rig, w->now_ms);
    if (after > before && after > 0)
        fail_msg("seed %llu: a bad sample gave %lld bytes", (unsigned long long)w->seed,
                 (long long)(after - before));
}

/* The same state, told that a little more is used: never more is admitted for it. */
static void world_good_sample(struct world *w, uint64_t *seed)
{
    struct ledger_process processes[OWNERS];
    struct ledger_sample s = world_sample(w, random_below(seed, 2), processes);
    struct rig more = w->rig;
    struct ledger_sample more_used = s;
    more.ledger.claims = more.claims;
    more_used.used_bytes += random_below(seed, 8 * GIB);
    int more_rc = ledger_observe(&more.ledger, &more_used, w->now_ms);
    int rc = ledger_observe(&w->rig.ledger, &s, w->now_ms);
    if (rc != 0)
        fail_msg("seed %llu: a good sample gave %d", (unsigned long long)w->seed, rc);
    assert_int_equal(more_rc, 0);
    w->others_sampled = w->others;
    int64_t with_more = rig_admissible(&more, w->now_ms);
    if (with_more > rig_admissible(&w->rig, w->now_ms))
        fail_msg("seed %llu: more foreign memory gave more room", (unsigned long long)w->seed);
}

/* A sample that takes its time: things happen between the look and the answer. */
static void world_late_sample(struct world *w, uint64_t *seed)
{
    if (!w->under_way) {
        w->late = world_sample(w, random_below(seed, 2), w->late_processes);
        w->late_others = w->others;
        w->under_way = true;
        return;
    }
    w->under_way = false;
    if (ledger_observe(&w->rig.ledger, &w->late, w->now_ms) == 0)
        w->others_sampled = w->late_others;
}

static void world_step_owner(struct world *w, struct owner *o, uint64_t *seed)
{
    struct ledger *l = &w->rig.ledger;
    const struct ledger_claim *claim = ledger_claim_find(l, o->id);
    if (o->dying) {
        /* Memory comes back bit by bit. */
        o->allocated = random_below(seed, 3) ? o->allocated / 2 : 0;
        if (o->allocated == 0 && o->ended)
            o->used = false;
        if (o->allocated == 0 && claim && random_below(seed, 4) == 0) {
            assert_int_equal(ledger_claim_finish_release(l, o->id), 0);
            assert_int_equal(ledger_claim_finish_release(l, o->id), -ENOENT);
        }
        return;
    }
    assert_non_null(claim);
    switch (random_below(seed, 5)) {
    case 0: /* loads on */
        if (claim->state == LEDGER_STATE_UNSETTLED)
            o->allocated += random_below(seed, o->bound - o->allocated + 1);
        break;
    case 1:
        assert_int_equal(ledger_claim_settle(l, o->id, o->allocated, w->now_ms), 0);
        o->bound = o->allocated;
        break;
    case 2:
        assert_int_equal(ledger_claim_begin_release(l, o->id, w->now_ms), 0);
        assert_int_equal(ledger_claim_begin_release(l, o->id, w->now_ms), -EALREADY);
        o->dying = true;
        break;
    case 3:
        if (o->allocated == 0 && claim->state == LEDGER_STATE_UNSETTLED) {
            assert_int_equal(ledger_claim_cancel(l, o->id), 0);
            w->ended_id = o->id;
            o->used = false;
        }
        break;
    default: {
        uint64_t bytes = o->bound + random_below(seed, GIB);
        if (ledger_claim_resize(l, o->id, bytes, w->now_ms) == 0) {
            o->bound = bytes;
            if (bytes > o->allocated)
                world_assert_safe(w);
        }
        break;
    }
    }
}

static void world_step(struct world *w, uint64_t *seed)
{
    unsigned at = (unsigned)random_below(seed, OWNERS);
    switch (random_below(seed, 10)) {
    case 0: w->now_ms += 1 + random_below(seed, 700); break;
    case 1:
        w->now_ms++;
        world_good_sample(w, seed);
        break;
    case 2: world_bad_sample(w, seed); break;
    case 3: w->others = random_below(seed, 6) ? w->others : random_below(seed, 8 * GIB); break;
    case 4: ledger_tick(&w->rig.ledger, w->now_ms); break;
    case 5:
    case 6:
        w->now_ms++;
        world_late_sample(w, seed);
        break;
    default:
        w->now_ms++;
        if (w->owners[at].used)
            world_step_owner(w, &w->owners[at], seed);
        else
            world_open(w, at, seed);
        break;
    }
    world_notice_ends(w);
    if (w->ended_id)
        assert_null(ledger_claim_find(&w->rig.ledger, w->ended_id));
    assert_ledger_balances(&w->rig.ledger, w->now_ms);
    uint32_t claims = 0;
    for (unsigned i = 0; i < OWNERS; i++)
        claims += w->owners[i].used && !w->owners[i].ended;
    assert_int_equal(ledger_view(&w->rig.ledger, w->now_ms).claim_count, claims);
}

/* All owners end, time passes, good samples come: every byte is there again. */
static void world_drain(struct world *w)
{
    for (unsigned i = 0; i < OWNERS; i++) {
        struct owner *o = &w->owners[i];
        if (o->used && !o->dying)
            assert_int_equal(ledger_claim_begin_release(&w->rig.ledger, o->id, w->now_ms), 0);
        o->allocated = 0;
    }
    w->others = 0;
    struct ledger_sample s = {0};
    for (unsigned i = 0; i < 60; i++) {
        w->now_ms += 500;
        struct ledger_process processes[OWNERS];
        s = world_sample(w, true, processes);
        s.process_count = 0;
        assert_int_equal(ledger_observe(&w->rig.ledger, &s, w->now_ms), 0);
    }
    struct ledger_view v = ledger_view(&w->rig.ledger, w->now_ms);
    assert_int_equal(v.claim_count, 0);
    assert_int_equal(v.foreign_bytes, 0);
    assert_int_equal(v.admissible_bytes, (TOTAL_GIB - 1) * GIB);
}

static void any_interleaving_keeps_the_books(void **state)
{
    (void)state;
    for (uint64_t walk = 1; walk <= WALKS; walk++) {
        uint64_t seed = walk;
        struct world worlds[DEVICES];
        memset(worlds, 0, sizeof(worlds));
        for (unsigned i = 0; i < DEVICES; i++) {
            rig_start(&worlds[i].rig, TOTAL_GIB * GIB, GIB, 0);
            worlds[i].now_ms = 1000;
            worlds[i].seed = walk;
        }
        for (unsigned step = 0; step < STEPS; step++)
            world_step(&worlds[random_below(&seed, DEVICES)], &seed);
        for (unsigned i = 0; i < DEVICES; i++)
            world_drain(&worlds[i]);
    }
}

/* --- every sequence of a small world: two claims of 6 GiB on 8, to a depth --- */

enum { SMALL_DEPTH = 7, SMALL_OPS = 14 };

struct small {
    struct rig rig;
    uint64_t ids[2];
    uint64_t now_ms;
};

/* One operation; false: it does not apply here. Whatever is refused must change nothing. */
static bool small_do(struct small *s, unsigned op)
{
    struct ledger *l = &s->rig.ledger;
    uint64_t *id = &s->ids[op % 2];
    int rc = 0;
    s->now_ms += 10;
    switch (op / 2) {
    case 0: rc = rig_open(&s->rig, op % 2 ? "b" : "a", 6 * GIB, s->now_ms, id); break;
    case 1: rc = ledger_claim_settle(l, *id, 5 * GIB, s->now_ms); break;
    case 2: rc = ledger_claim_begin_release(l, *id, s->now_ms); break;
    case 3: rc = ledger_claim_finish_release(l, *id); break;
    case 4: rc = ledger_claim_cancel(l, *id); break;
    case 5: /* samples: as claimed, or of an empty device */
    {
        struct ledger_view v = ledger_view(l, s->now_ms);
        uint64_t used = op % 2 ? v.settled_bytes + v.unsettled_bytes : v.settled_bytes;
        rc = rig_sample(&s->rig, 8 * GIB, used, s->now_ms);
        break;
    }
    default:
        s->now_ms += op % 2 ? 6000 : 2500;
        ledger_tick(l, s->now_ms);
        break;
    }
    return rc == 0;
}

static void small_explore(const struct small *from, unsigned depth, uint64_t *ret_states)
{
    for (unsigned op = 0; op < SMALL_OPS; op++) {
        struct small s = *from;
        s.rig.ledger.claims = s.rig.claims;
        /* An open would overwrite the id of a claim that still lives. */
        if (op / 2 == 0 && ledger_claim_find(&s.rig.ledger, s.ids[op % 2]))
            continue;
        bool applies = small_do(&s, op);
        (*ret_states)++;
        if (!applies) {
            struct rig before = from->rig;
            before.ledger.claims = s.rig.claims;
            if (op / 2 != 5)
                assert_memory_equal(&s.rig, &before, sizeof(before));
            continue;
        }
        assert_ledger_balances(&s.rig.ledger, s.now_ms);
        struct ledger_view v = ledger_view(&s.rig.ledger, s.now_ms);
        /* Two loads of 6 GiB never live together on 8. */
        assert_true(v.settled_bytes + v.unsettled_bytes <= 6 * GIB);
        if (depth > 1)
            small_explore(&s, depth - 1, ret_states);
    }
}

static void every_sequence_of_a_small_world(void **state)
{
    (void)state;
    struct small s = {.now_ms = 1000};
    rig_start(&s.rig, 8 * GIB, MIB, 0);
    uint64_t states = 0;
    small_explore(&s, SMALL_DEPTH, &states);
    print_message("%llu steps\n", (unsigned long long)states);
    assert_true(states > 10000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_interleaving_keeps_the_books),
        cmocka_unit_test(every_sequence_of_a_small_world),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
