/* The ledger: its rules one by one, and the field cases about memory that is not what it seems. */
#include "tests/unit/policy/ledger_rig.h"

#include <errno.h>
#include <string.h>

/* A reload. */
static void limits_can_be_changed(void **state)
{
    (void)state;
    struct rig r;
    rig_start(&r, 40 * GIB, 3 * GIB, 0);
    ledger_set_limits(&r.ledger, 2 * GIB, 16 * GIB);
    assert_int_equal(ledger_view(&r.ledger, 1000).reserve_bytes, 2 * GIB);
    assert_int_equal(rig_sample(&r, 40 * GIB, 0, 1500), 0);
    assert_int_equal(ledger_view(&r.ledger, 1500).total_bytes, 16 * GIB);
    assert_ledger_balances(&r.ledger, 1500);
    ledger_give_up_source(&r.ledger);
    ledger_set_limits(&r.ledger, 0, 8 * GIB);
    assert_int_equal(ledger_view(&r.ledger, 1600).total_bytes, 8 * GIB);
    assert_ledger_balances(&r.ledger, 1600);
}

static void starts_without_anything_to_give(void **state)
{
    (void)state;
    struct rig r;
    struct ledger_settings settings = ledger_settings_default();
    ledger_init(&r.ledger, "gpu0", &settings, r.claims, RIG_CLAIMS);
    struct ledger_view v = ledger_view(&r.ledger, 0);
    assert_int_equal(v.trust, LEDGER_TRUST_STALE);
    assert_true(v.admissible_bytes <= 0);
    uint64_t id = 99;
    assert_int_equal(rig_open(&r, "chat", 1, 0, &id), -ENOSPC);
    assert_int_equal(id, 99);
    assert_ledger_balances(&r.ledger, 0);
}

static void chooses_the_reserve(void **state)
{
    (void)state;
    struct rig r;
    rig_start(&r, 4 * GIB, 0, 0);
    assert_int_equal(ledger_view(&r.ledger, 1000).reserve_bytes, 512 * MIB);
    rig_start(&r, 40 * GIB, 0, 0);
    assert_int_equal(ledger_view(&r.ledger, 1000).reserve_bytes, 2 * GIB);
    rig_start(&r, 40 * GIB, 3 * GIB, 0);
    assert_int_equal(ledger_view(&r.ledger, 1000).reserve_bytes, 3 * GIB);
}

/* F39 ollama/ollama#6637: free stays at 16 GiB for 3 s; two loads of 10 GiB come within 50 ms. */
static void two_loads_do_not_share_bytes(void **state)
{
    (void)state;
    struct rig r;
    uint64_t first = 0;
    uint64_t second = 0;
    rig_start(&r, 16 * GIB, MIB, 0);
    assert_int_equal(rig_open(&r, "chat", 10 * GIB, 1000, &first), 0);
    assert_int_equal(rig_open(&r, "vision", 10 * GIB, 1050, &second), -ENOSPC);
    for (uint64_t now = 1500; now <= 4000; now += 500) {
        assert_int_equal(rig_sample(&r, 16 * GIB, 0, now), 0);
        assert_int_equal(rig_open(&r, "vision", 10 * GIB, now, &second), -ENOSPC);
        assert_ledger_balances(&r.ledger, now);
    }
    assert_int_equal(rig_open(&r, "stt", 5 * GIB, 4000, &second), 0);
}

/* The same with a device that tells per process, and the first load half visible. */
static void a_load_in_progress_counts_whole(void **state)
{
    (void)state;
    struct rig r;
    uint64_t id = 0;
    rig_start(&r, 16 * GIB, MIB, 0);
    assert_int_equal(rig_open(&r, "chat", 10 * GIB, 1000, &id), 0);
    assert_int_equal(ledger_claim_set_pid(&r.ledger, id, 41), 0);
    assert_int_equal(rig_sample_process(&r, 16 * GIB, 5 * GIB, 41, 5 * GIB, 1500), 0);
    struct ledger_view v = ledger_view(&r.ledger, 1500);
    assert_int_equal(v.foreign_bytes, 0);
    assert_int_equal(v.admissible_bytes, 6 * GIB - MIB);
}

/* Without figures per process, 5 GiB that appear while 10 GiB load may be anybody's. */
static void bytes_of_nobody_count_twice_for_admission_only(void **state)
{
    (void)state;
    struct rig r;
    uint64_t id = 0;
    rig_start(&r, 24 * GIB, MIB, 2 * GIB);
    assert_int_equal(rig_open(&r, "chat", 10 * GIB, 1000, &id), 0);
    assert_int_equal(rig_sample(&r, 24 * GIB, 7 * GIB, 1500), 0);
    struct ledger_view v = ledger_view(&r.ledger, 1500);
    assert_int_equal(v.foreign_bytes, 2 * GIB);
    assert_int_equal(v.headroom_bytes, 12 * GIB - MIB);
    assert_int_equal(v.admissible_bytes, 7 * GIB - MIB);
    /* Settled and seen: each byte counts once. */
    assert_int_equal(ledger_claim_settle(&r.ledger, id, 9 * GIB, 1600), 0);
    assert_int_equal(rig_sample(&r, 24 * GIB, 11 * GIB, 2000), 0);
    assert_int_equal(rig_admissible(&r, 2000), 13 * GIB - MIB);
}

static void growth_beyond_every_load_is_foreign_at_once(void **state)
{
    (void)state;
    struct rig r;
    uint64_t id = 0;
    rig_start(&r, 24 * GIB, MIB, 2 * GIB);
    assert_int_equal(rig_open(&r, "chat", 4 * GIB, 1000, &id), 0);
    assert_int_equal(rig_sample(&r, 24 * GIB, 9 * GIB, 1500), 0);
    assert_int_equal(ledger_view(&r.ledger, 1500).foreign_bytes, 5 * GIB);
}

static void a_process_explains_no_more_than_its_claims(void **state)
{
    (void)state;
    struct rig r;
    uint64_t id = 0;
    rig_start(&r, 16 * GIB, MIB, 0);
    assert_int_equal(rig_open(&r, "chat", 4 * GIB, 1000, &id), 0);
    assert_int_equal(ledger_claim_set_pid(&r.ledger, id, 41), 0);
    assert_int_equal(ledger_claim_settle(&r.ledger, id, 4 * GIB, 1100), 0);
    /* It grew by 1 GiB, and somebody else has 2. */
    assert_int_equal(rig_sample_process(&r, 16 * GIB, 7 * GIB, 41, 5 * GIB, 1500), 0);
    assert_int_equal(ledger_view(&r.ledger, 1500).foreign_bytes, 3 * GIB);
    /* A process that nobody claimed for explains nothing. */
    rig_start(&r, 16 * GIB, MIB, 0);
    assert_int_equal(rig_sample_process(&r, 16 * GIB, 7 * GIB, 42, 7 * GIB, 2000), 0);
    assert_int_equal(ledger_view(&r.ledger, 2000).foreign_bytes, 7 * GIB);
}

static void a_process_that_is_listed_twice_has_one_memory(void **state)
{
    (void)state;
    struct rig r;
    uint64_t id = 0;
    rig_start(&r, 16 * GIB, MIB, 0);
    assert_int_equal(rig_open(&r, "chat", 8 * GIB, 1000, &id), 0);
    assert_int_equal(ledger_claim_set_pid(&r.ledger, id, 41), 0);
    struct ledger_process twice[] = {{41, 3 * GIB}, {41, 3 * GIB}};
    struct ledger_sample s = {.taken_ms = 1500,
                              .total_valid = true,
                              .used_valid = true,
                              .processes_valid = true,
                              .total_bytes = 16 * GIB,
                              .used_bytes = 6 * GIB,
                              .processes = twice,
                              .process_count = 2};
    assert_int_equal(ledger_observe(&r.ledger, &s, 1500), 0);
    assert_int_equal(ledger_view(&r.ledger, 1500).foreign_bytes, 3 * GIB);
}

static void foreign_memory_is_held_at_its_peak(void **state)
{
    (void)state;
    struct rig r;
    rig_start(&r, 16 * GIB, MIB, 0);
    assert_int_equal(rig_sample(&r, 16 * GIB, 8 * GIB, 2000), 0);
    assert_int_equal(rig_sample(&r, 16 * GIB, 2 * GIB, 2500), 0);
    assert_int_equal(ledger_view(&r.ledger, 2500).foreign_bytes, 8 * GIB);
    assert_int_equal(rig_sample(&r, 16 * GIB, 2 * GIB, 12000), 0);
    assert_int_equal(ledger_view(&r.ledger, 12000).foreign_bytes, 8 * GIB);
    assert_int_equal(rig_sample(&r, 16 * GIB, 2 * GIB, 18000), 0);
    uint64_t halfway = ledger_view(&r.ledger, 18000).foreign_bytes;
    assert_in_range(halfway, 4 * GIB, 6 * GIB);
    assert_int_equal(rig_sample(&r, 16 * GIB, 2 * GIB, 24000), 0);
    assert_int_equal(ledger_view(&r.ledger, 24000).foreign_bytes, 2 * GIB);
}

/* F38 ollama/ollama#9016: free 2,2,2,2,2,9,14,14 GiB, a second apart, after a worker of 12 GiB ended. */
static void memory_is_free_when_it_is_seen_to_be(void **state)
{
    (void)state;
    static const uint64_t free_gib[] = {2, 2, 2, 2, 2, 9, 14, 14};
    struct rig r;
    uint64_t id = 0;
    uint64_t next = 0;
    struct ledger_settings settings = ledger_settings_default();
    settings.reserve_bytes = MIB;
    settings.release_ms = 20000;
    ledger_init(&r.ledger, "gpu0", &settings, r.claims, RIG_CLAIMS);
    assert_int_equal(rig_sample(&r, 16 * GIB, 2 * GIB, 500), 0);
    assert_int_equal(rig_open(&r, "chat", 12 * GIB, 600, &id), 0);
    assert_int_equal(ledger_claim_settle(&r.ledger, id, 12 * GIB, 700), 0);
    assert_int_equal(rig_sample(&r, 16 * GIB, 14 * GIB, 1000), 0);
    assert_int_equal(ledger_claim_begin_release(&r.ledger, id, 1000), 0);
    for (unsigned i = 0; i < UNIT_COUNT(free_gib); i++) {
        uint64_t now = 2000 + 1000 * (uint64_t)i;
        assert_int_equal(rig_sample(&r, 16 * GIB, (16 - free_gib[i]) * GIB, now), 0);
        assert_ledger_balances(&r.ledger, now);
        int rc = rig_open(&r, "chat", 12 * GIB, now, &next);
        assert_int_equal(rc, i == 7 ? 0 : -ENOSPC);
        assert_true(ledger_view(&r.ledger, now).return_in_ms > 0 || i == 7);
    }
    assert_null(ledger_claim_find(&r.ledger, id));
}

/* F50: the engine says that it has unloaded, and nothing moves for 7 s: the claim becomes foreign. */
static void memory_that_does_not_come_back_stays_on_as_foreign(void **state)
{
    (void)state;
    struct rig r;
    uint64_t id = 0;
    rig_start(&r, 16 * GIB, MIB, 0);
    assert_int_equal(rig_open(&r, "pictures", 9 * GIB, 1000, &id), 0);
    assert_int_equal(ledger_claim_settle(&r.ledger, id, 9 * GIB, 1000), 0);
    assert_int_equal(ledger_claim_begin_release(&r.ledger, id, 1000), 0);
    for (uint64_t now = 1500; now < 6000; now += 500)
        assert_int_equal(rig_sample(&r, 16 * GIB, 9 * GIB, now), 0);
    assert_int_equal(ledger_view(&r.ledger, 5900).releasing_bytes, 9 * GIB);
    assert_int_equal(ledger_tick(&r.ledger, 6000), 1);
    struct ledger_view v = ledger_view(&r.ledger, 6000);
    assert_int_equal(v.releasing_bytes, 0);
    assert_int_equal(v.foreign_bytes, 9 * GIB);
    assert_ledger_balances(&r.ledger, 6000);
    /* Back at 8 s, and held at its peak like all foreign memory. */
    assert_int_equal(rig_sample(&r, 16 * GIB, 0, 8000), 0);
    assert_int_equal(ledger_view(&r.ledger, 8000).foreign_bytes, 9 * GIB);
    assert_int_equal(rig_sample(&r, 16 * GIB, 0, 30000), 0);
    assert_int_equal(ledger_view(&r.ledger, 30000).foreign_bytes, 0);
}

/* One sample may be a slip of the driver. */
static void one_sample_returns_nothing(void **state)
{
    (void)state;
    struct rig r;
    uint64_t id = 0;
    rig_start(&r, 16 * GIB, MIB, 0);
    assert_int_equal(rig_open(&r, "chat", 9 * GIB, 1000, &id), 0);
    assert_int_equal(ledger_claim_settle(&r.ledger, id, 9 * GIB, 1000), 0);
    assert_int_equal(ledger_claim_begin_release(&r.ledger, id, 1100), 0);
    /* From before the release. */
    assert_int_equal(rig_sample(&r, 16 * GIB, 9 * GIB, 1100), 0);
    assert_int_equal(rig_sample(&r, 16 * GIB, 0, 1500), 0);
    assert_int_equal(ledger_view(&r.ledger, 1500).releasing_bytes, 9 * GIB);
    assert_int_equal(rig_sample(&r, 16 * GIB, 9 * GIB, 2000), 0);
    assert_int_equal(ledger_view(&r.ledger, 2000).releasing_bytes, 9 * GIB);
    assert_int_equal(rig_sample(&r, 16 * GIB, 4 * GIB, 2500), 0);
    assert_int_equal(ledger_view(&r.ledger, 2500).releasing_bytes, 9 * GIB);
    assert_int_equal(rig_sample(&r, 16 * GIB, 3 * GIB, 3000), 0);
    assert_int_equal(ledger_view(&r.ledger, 3000).releasing_bytes, 4 * GIB);
}

/* No sample since the release, or only one that was taken before it and comes late. */
static void the_first_sample_after_a_release_is_not_enough(void **state)
{
    (void)state;
    for (unsigned late = 0; late < 2; late++) {
        struct rig r;
        uint64_t id = 0;
        rig_start(&r, 16 * GIB, MIB, 0);
        assert_int_equal(rig_open(&r, "chat", 9 * GIB, 1000, &id), 0);
        assert_int_equal(ledger_claim_begin_release(&r.ledger, id, 1100), 0);
        struct ledger_sample s = {
            .taken_ms = 1050, .total_valid = true, .used_valid = true, .total_bytes = 16 * GIB};
        if (late)
            assert_int_equal(ledger_observe(&r.ledger, &s, 1200), 0);
        assert_int_equal(rig_sample(&r, 16 * GIB, 0, 1500), 0);
        assert_int_equal(ledger_view(&r.ledger, 1500).releasing_bytes, 9 * GIB);
        assert_int_equal(rig_sample(&r, 16 * GIB, 0, 2000), 0);
        assert_int_equal(ledger_view(&r.ledger, 2000).releasing_bytes, 0);
    }
}

/* A figure from before the load settled does not have its bytes; they explain nothing in it. */
static void a_late_sample_does_not_explain_a_new_claim(void **state)
{
    (void)state;
    struct rig r;
    uint64_t id = 0;
    rig_start(&r, 16 * GIB, MIB, 0);
    assert_int_equal(rig_open(&r, "chat", 6 * GIB, 1000, &id), 0);
    assert_int_equal(ledger_claim_settle(&r.ledger, id, 6 * GIB, 1500), 0);
    /* Taken before: 4 GiB are in use, and who knows whose. */
    struct ledger_sample s = {.taken_ms = 1400,
                              .total_valid = true,
                              .used_valid = true,
                              .total_bytes = 16 * GIB,
                              .used_bytes = 4 * GIB};
    assert_int_equal(ledger_observe(&r.ledger, &s, 1600), 0);
    assert_int_equal(rig_admissible(&r, 1600), 6 * GIB - MIB);
}

static void claims_of_one_process_are_explained_once(void **state)
{
    (void)state;
    struct rig r;
    uint64_t id = 0;
    rig_start(&r, 16 * GIB, MIB, 0);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(rig_open(&r, "chat", 4 * GIB, 1000, &id), 0);
        assert_int_equal(ledger_claim_set_pid(&r.ledger, id, 41), 0);
    }
    assert_int_equal(rig_sample_process(&r, 16 * GIB, 7 * GIB, 41, 5 * GIB, 1500), 0);
    assert_int_equal(ledger_view(&r.ledger, 1500).foreign_bytes, 2 * GIB);
}

static void a_declared_total_is_an_upper_limit(void **state)
{
    (void)state;
    struct rig r;
    struct ledger_settings settings = ledger_settings_default();
    settings.declared_bytes = 8 * GIB;
    settings.reserve_bytes = GIB;
    ledger_init(&r.ledger, "gpu0", &settings, r.claims, RIG_CLAIMS);
    assert_int_equal(rig_sample(&r, 16 * GIB, GIB, 1000), 0);
    assert_int_equal(rig_admissible(&r, 1000), 6 * GIB);
    assert_int_equal(rig_sample(&r, 4 * GIB, GIB, 1500), 0);
    assert_int_equal(rig_admissible(&r, 1500), 2 * GIB);
}

/* A load that failed may have allocated, although no sample ever saw it. */
static void a_failed_load_is_released_not_forgotten(void **state)
{
    (void)state;
    struct rig r;
    uint64_t id = 0;
    uint64_t next = 0;
    rig_start(&r, 16 * GIB, MIB, 0);
    assert_int_equal(rig_open(&r, "chat", 10 * GIB, 1000, &id), 0);
    assert_int_equal(ledger_claim_begin_release(&r.ledger, id, 1200), 0);
    assert_int_equal(rig_open(&r, "chat", 10 * GIB, 1200, &next), -ENOSPC);
    assert_int_equal(ledger_claim_begin_release(&r.ledger, id, 1200), -EALREADY);
    assert_int_equal(ledger_claim_cancel(&r.ledger, id), -EBUSY);
    assert_int_equal(ledger_claim_finish_release(&r.ledger, id), 0);
    assert_int_equal(ledger_claim_finish_release(&r.ledger, id), -ENOENT);
    assert_int_equal(rig_open(&r, "chat", 10 * GIB, 1200, &next), 0);
    assert_int_not_equal(next, id);
    assert_int_equal(ledger_claim_finish_release(&r.ledger, id), -ENOENT);
    assert_int_equal(ledger_claim_settle(&r.ledger, id, 1, 1200), -ENOENT);
    assert_non_null(ledger_claim_find(&r.ledger, next));
}

static void old_ids_find_nothing(void **state)
{
    (void)state;
    struct rig r;
    uint64_t id = 0;
    rig_start(&r, 16 * GIB, MIB, 0);
    static const uint64_t wrong[] = {0, 1, 0xffff, UINT64_MAX, UINT64_C(1) << 16};
    for (unsigned i = 0; i < UNIT_COUNT(wrong); i++) {
        assert_null(ledger_claim_find(&r.ledger, wrong[i]));
        assert_int_equal(ledger_claim_cancel(&r.ledger, wrong[i]), -ENOENT);
    }
    for (unsigned i = 0; i < 3; i++) {
        uint64_t last = id;
        assert_int_equal(rig_open(&r, "chat", GIB, 1000, &id), 0);
        assert_int_not_equal(id, last);
        assert_int_equal(ledger_claim_cancel(&r.ledger, last), -ENOENT);
        assert_int_equal(ledger_claim_cancel(&r.ledger, id), 0);
    }
}

static void a_full_table_is_an_ordinary_answer(void **state)
{
    (void)state;
    struct rig r;
    uint64_t id = 0;
    rig_start(&r, 16 * GIB, MIB, 0);
    for (unsigned i = 0; i < RIG_CLAIMS; i++)
        assert_int_equal(rig_open(&r, "attempt", MIB, 1000, &id), 0);
    uint64_t more = 5;
    assert_int_equal(rig_open(&r, "attempt", MIB, 1000, &more), -ENOBUFS);
    assert_int_equal(more, 5);
    assert_int_equal(ledger_claim_cancel(&r.ledger, id), 0);
    assert_int_equal(rig_open(&r, "attempt", MIB, 1000, &more), 0);
}

static void a_claim_that_grows_is_unsettled_again(void **state)
{
    (void)state;
    struct rig r;
    uint64_t id = 0;
    rig_start(&r, 16 * GIB, MIB, 0);
    assert_int_equal(rig_open(&r, "chat", 8 * GIB, 1000, &id), 0);
    assert_int_equal(ledger_claim_resize(&r.ledger, id, 6 * GIB, 1000), 0);
    assert_int_equal(ledger_claim_settle(&r.ledger, id, 6 * GIB, 1100), 0);
    assert_int_equal(ledger_claim_resize(&r.ledger, id, 5 * GIB, 1100), -EBUSY);
    assert_int_equal(ledger_claim_resize(&r.ledger, id, 17 * GIB, 1100), -ENOSPC);
    assert_int_equal(ledger_claim_resize(&r.ledger, id, 9 * GIB, 1100), 0);
    assert_int_equal(ledger_claim_find(&r.ledger, id)->state, LEDGER_STATE_UNSETTLED);
    assert_int_equal(rig_sample(&r, 16 * GIB, 6 * GIB, 1500), 0);
    assert_int_equal(ledger_view(&r.ledger, 1500).foreign_bytes, 0);
    assert_int_equal(ledger_claim_resize(&r.ledger, id, LEDGER_BYTES_MAX + 1, 1500), -ERANGE);
}

/* A measured load that is larger than predicted is a fact, whatever the headroom. */
static void measured_replaces_predicted(void **state)
{
    (void)state;
    struct rig r;
    uint64_t id = 0;
    rig_start(&r, 8 * GIB, GIB, 0);
    assert_int_equal(rig_open(&r, "chat", 5 * GIB, 1000, &id), 0);
    assert_int_equal(ledger_claim_settle(&r.ledger, id, 9 * GIB, 1200), 0);
    assert_int_equal(ledger_view(&r.ledger, 1200).headroom_bytes, -2 * (int64_t)GIB);
    assert_int_equal(ledger_claim_settle(&r.ledger, id, 4 * GIB, 1300), 0);
    assert_int_equal(ledger_view(&r.ledger, 1300).headroom_bytes, 3 * GIB);
    assert_int_equal(ledger_claim_settle(&r.ledger, id, UINT64_MAX, 1300), -ERANGE);
    assert_ledger_balances(&r.ledger, 1300);
}

static void adopting_is_never_refused(void **state)
{
    (void)state;
    struct rig r;
    uint64_t id = 0;
    rig_start(&r, 8 * GIB, GIB, 0);
    struct ledger_request request = {.label = "found running", .bytes = 20 * GIB, .adopt = true};
    assert_int_equal(ledger_claim_open(&r.ledger, &request, 1000, &id), 0);
    assert_true(ledger_view(&r.ledger, 1000).headroom_bytes < 0);
    assert_ledger_balances(&r.ledger, 1000);
}

/* Samples that are no good. Each must leave nothing to admit, or what there was; never more. */
static void samples_that_cannot_be_true(void **state)
{
    (void)state;
    static const struct {
        const char *what;
        struct ledger_sample s;
        int rc;
        enum ledger_trust trust;
    } rows[] = {
        {"no total",
         {.used_valid = true, .used_bytes = 1, .taken_ms = 1500},
         -ENODATA,
         LEDGER_TRUST_FRESH},
        {"F37: Not Supported is not a pool", {.taken_ms = 1500}, -ENODATA, LEDGER_TRUST_FRESH},
        {"neither used nor free",
         {.total_valid = true, .total_bytes = 64 * GIB, .taken_ms = 1500},
         -ENODATA,
         LEDGER_TRUST_FRESH},
        {"free above total",
         {.total_valid = true,
          .free_valid = true,
          .total_bytes = 16 * GIB,
          .free_bytes = 17 * GIB,
          .taken_ms = 1500},
         -ERANGE,
         LEDGER_TRUST_BROKEN},
        {"total of nothing",
         {.total_valid = true, .free_valid = true, .taken_ms = 1500},
         -ERANGE,
         LEDGER_TRUST_BROKEN},
        {"total beyond all devices",
         {.total_valid = true,
          .free_valid = true,
          .total_bytes = UINT64_MAX,
          .free_bytes = UINT64_MAX,
          .taken_ms = 1500},
         -ERANGE,
         LEDGER_TRUST_BROKEN},
        {"used without end",
         {.total_valid = true,
          .used_valid = true,
          .total_bytes = 16 * GIB,
          .used_bytes = UINT64_MAX,
          .taken_ms = 1500},
         -ERANGE,
         LEDGER_TRUST_BROKEN},
        {"F44 ggml-org/whisper.cpp#3254: all free although 6 GiB are loaded",
         {.total_valid = true,
          .free_valid = true,
          .total_bytes = 16 * GIB,
          .free_bytes = 16 * GIB,
          .taken_ms = 1500},
         -ERANGE,
         LEDGER_TRUST_BROKEN},
        {"taken before the last one",
         {.total_valid = true,
          .free_valid = true,
          .total_bytes = 16 * GIB,
          .free_bytes = 10 * GIB,
          .taken_ms = 900},
         -ESTALE,
         LEDGER_TRUST_FRESH},
        {"taken in the future",
         {.total_valid = true,
          .free_valid = true,
          .total_bytes = 16 * GIB,
          .free_bytes = 10 * GIB,
          .taken_ms = 9000},
         -ERANGE,
         LEDGER_TRUST_BROKEN},
    };
    for (unsigned i = 0; i < UNIT_COUNT(rows); i++) {
        struct rig r;
        uint64_t id = 0;
        rig_start(&r, 16 * GIB, GIB, 0);
        assert_int_equal(rig_open(&r, "chat", 6 * GIB, 1000, &id), 0);
        assert_int_equal(ledger_claim_settle(&r.ledger, id, 6 * GIB, 1000), 0);
        int64_t before = rig_admissible(&r, 1500);
        int rc = ledger_observe(&r.ledger, &rows[i].s, 1500);
        if (rc != rows[i].rc)
            fail_msg("%s: %d", rows[i].what, rc);
        struct ledger_view v = ledger_view(&r.ledger, 1500);
        if (v.trust != rows[i].trust || v.admissible_bytes > before)
            fail_msg("%s: trust %s, %lld admissible", rows[i].what, ledger_trust_name(v.trust),
                     (long long)v.admissible_bytes);
        assert_int_equal(v.total_bytes, 16 * GIB);
        /* A good one heals it. */
        assert_int_equal(rig_sample(&r, 16 * GIB, 6 * GIB, 2000), 0);
        assert_int_equal(rig_admissible(&r, 2000), before);
    }
}

/* F34 rust-nvml/nvml-wrapper#57: used and free do not add up; the worse of the two counts. */
static void free_is_not_total_less_used(void **state)
{
    (void)state;
    struct rig r;
    struct ledger_settings settings = ledger_settings_default();
    settings.reserve_bytes = MIB;
    ledger_init(&r.ledger, "gpu0", &settings, r.claims, RIG_CLAIMS);
    struct ledger_sample s = {.taken_ms = 1000,
                              .total_valid = true,
                              .used_valid = true,
                              .free_valid = true,
                              .total_bytes = 24576 * MIB,
                              .used_bytes = 600 * MIB,
                              .free_bytes = 23500 * MIB};
    assert_int_equal(ledger_observe(&r.ledger, &s, 1000), 0);
    assert_int_equal(rig_admissible(&r, 1000), 23499 * MIB);
    /* Version 1 of the call: used includes what the driver keeps. */
    s.taken_ms = 1500;
    s.used_bytes = 1076 * MIB;
    s.free_bytes = 23500 * MIB;
    assert_int_equal(ledger_observe(&r.ledger, &s, 1500), 0);
    assert_int_equal(rig_admissible(&r, 1500), 23499 * MIB);
    /* The free figure is missing. */
    s.taken_ms = 2000;
    s.free_valid = false;
    assert_int_equal(ledger_observe(&r.ledger, &s, 2000), 0);
    assert_int_equal(rig_admissible(&r, 2000), 23499 * MIB);
}

static void figures_grow_old(void **state)
{
    (void)state;
    struct rig r;
    uint64_t id = 0;
    rig_start(&r, 16 * GIB, GIB, 0);
    assert_int_equal(rig_admissible(&r, 3000), 15 * GIB);
    struct ledger_view v = ledger_view(&r.ledger, 3001);
    assert_int_equal(v.trust, LEDGER_TRUST_STALE);
    assert_int_equal(v.age_ms, 2001);
    assert_int_equal(v.admissible_bytes, 0);
    assert_int_equal(v.headroom_bytes, 15 * GIB);
    assert_int_equal(rig_open(&r, "chat", 1, 3001, &id), -ENOSPC);
    /* An answer that took 3 s is no news. */
    struct ledger_sample late = {.taken_ms = 3000,
                                 .total_valid = true,
                                 .free_valid = true,
                                 .total_bytes = 16 * GIB,
                                 .free_bytes = 16 * GIB};
    assert_int_equal(ledger_observe(&r.ledger, &late, 6000), -ESTALE);
    assert_int_equal(ledger_view(&r.ledger, 6000).trust, LEDGER_TRUST_STALE);
}

static void a_device_that_gets_smaller(void **state)
{
    (void)state;
    struct rig r;
    uint64_t id = 0;
    rig_start(&r, 16 * GIB, GIB, 0);
    assert_int_equal(rig_open(&r, "chat", 10 * GIB, 1000, &id), 0);
    assert_int_equal(ledger_claim_settle(&r.ledger, id, 10 * GIB, 1100), 0);
    assert_int_equal(rig_sample(&r, 8 * GIB, 10 * GIB, 1500), 0);
    assert_int_equal(ledger_view(&r.ledger, 1500).headroom_bytes, -3 * (int64_t)GIB);
    assert_ledger_balances(&r.ledger, 1500);
}

static void without_telemetry_only_claims_count(void **state)
{
    (void)state;
    struct rig r;
    uint64_t id = 0;
    struct ledger_settings settings = ledger_settings_default();
    settings.no_source = true;
    settings.declared_bytes = 8 * GIB;
    settings.reserve_bytes = GIB;
    ledger_init(&r.ledger, "gpu0", &settings, r.claims, RIG_CLAIMS);
    struct ledger_view v = ledger_view(&r.ledger, 50);
    assert_int_equal(v.trust, LEDGER_TRUST_NONE);
    assert_int_equal(v.headroom_bytes, 7 * GIB);
    assert_int_equal(v.admissible_bytes, 0);
    struct ledger_request request = {.label = "chat", .bytes = 5 * GIB, .adopt = true};
    assert_int_equal(ledger_claim_open(&r.ledger, &request, 50, &id), 0);
    assert_int_equal(ledger_view(&r.ledger, 50).headroom_bytes, 2 * GIB);
    assert_int_equal(ledger_claim_begin_release(&r.ledger, id, 60), 0);
    assert_int_equal(ledger_tick(&r.ledger, 5060), 1);
    assert_int_equal(ledger_view(&r.ledger, 5060).headroom_bytes, 7 * GIB);
}

/* F46 open-webui/open-webui#11003: an idle whisper keeps its 4 GiB, and is named. */
static void holders_are_named(void **state)
{
    (void)state;
    struct rig r;
    uint64_t id = 0;
    rig_start(&r, 24 * GIB, MIB, 0);
    static const struct {
        const char *label;
        uint64_t mib;
    } claims[] = {{"embeddings", 300}, {"stt", 3000}, {"chat", 700},
                  {"stt", 1096},       {"ocr", 100},  {"chat", 100}};
    for (unsigned i = 0; i < UNIT_COUNT(claims); i++)
        assert_int_equal(rig_open(&r, claims[i].label, claims[i].mib * MIB, 1000, &id), 0);
    struct ledger_view v = ledger_view(&r.ledger, 1000);
    assert_string_equal(v.holders[0].label, "stt");
    assert_int_equal(v.holders[0].bytes, 4096 * MIB);
    assert_string_equal(v.holders[1].label, "chat");
    assert_int_equal(v.holders[1].bytes, 800 * MIB);
    assert_string_equal(v.holders[2].label, "embeddings");
    assert_int_equal(v.claim_count, 6);
}

static void long_names_are_cut(void **state)
{
    (void)state;
    struct rig r;
    uint64_t id = 0;
    char name[100];
    memset(name, 'n', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    rig_start(&r, 24 * GIB, MIB, 0);
    assert_int_equal(rig_open(&r, name, MIB, 1000, &id), 0);
    assert_int_equal(strlen(ledger_claim_find(&r.ledger, id)->label), LEDGER_NAME_MAX - 1);
    assert_int_equal(rig_open(&r, NULL, MIB, 1000, &id), 0);
    assert_string_equal(ledger_claim_find(&r.ledger, id)->label, "");
}

/* F41 ollama/ollama#12062 and others, F37: one pool for device and host. */
static void an_integrated_device_shares_its_memory(void **state)
{
    (void)state;
    static const struct {
        const char *what;
        struct ledger_uma uma;
        uint64_t total;
        uint64_t free;
    } rows[] = {
        {"512 MiB carve-out, 108 GiB GTT",
         {.carve_out_total = 512 * MIB,
          .gtt_total = 108 * GIB,
          .host_total = 124 * GIB,
          .host_available = 100 * GIB},
         108 * GIB + 512 * MIB,
         100 * GIB + 512 * MIB},
        {"8 + 124 GiB summed on a box of 128",
         {.carve_out_total = 8 * GIB,
          .carve_out_used = GIB,
          .gtt_total = 124 * GIB,
          .host_total = 120 * GIB,
          .host_available = 90 * GIB},
         128 * GIB,
         97 * GIB},
        {"all RAM reported as device memory",
         {.carve_out_total = 62 * GIB, .host_total = 62 * GIB, .host_available = 40 * GIB},
         62 * GIB,
         40 * GIB},
        {"a real carve-out of half the machine, known to be one",
         {.carve_out_total = 64 * GIB,
          .host_total = 62 * GIB,
          .host_available = 40 * GIB,
          .physical_total = 128 * GIB},
         64 * GIB,
         64 * GIB},
        {"F37: the driver says nothing, 128,501,256,192 B of host memory",
         {.host_total = UINT64_C(128501256192), .host_available = 100 * GIB},
         UINT64_C(128501256192),
         100 * GIB},
    };
    for (unsigned i = 0; i < UNIT_COUNT(rows); i++) {
        struct ledger_sample s;
        assert_int_equal(ledger_uma_sample(&rows[i].uma, 1000, &s), 0);
        if (s.total_bytes != rows[i].total || s.free_bytes != rows[i].free)
            fail_msg("%s: %llu of %llu MiB", rows[i].what, (unsigned long long)(s.free_bytes / MIB),
                     (unsigned long long)(s.total_bytes / MIB));
        /* Device and host lanes of 70 GiB each: at most one. */
        struct rig r;
        uint64_t id = 0;
        struct ledger_settings settings = ledger_settings_default();
        ledger_init(&r.ledger, "apu", &settings, r.claims, RIG_CLAIMS);
        assert_int_equal(ledger_observe(&r.ledger, &s, 1000), 0);
        (void)rig_open(&r, "gpu", 70 * GIB, 1000, &id);
        assert_int_equal(rig_open(&r, "cpu", 70 * GIB, 1000, &id), -ENOSPC);
    }
    struct ledger_sample s = {.taken_ms = 3};
    struct ledger_uma wrong = {.host_total = GIB, .host_available = 2 * GIB};
    assert_int_equal(ledger_uma_sample(&wrong, 1000, &s), -ERANGE);
    wrong = (struct ledger_uma){.carve_out_total = UINT64_MAX, .host_total = GIB};
    assert_int_equal(ledger_uma_sample(&wrong, 1000, &s), -ERANGE);
    assert_int_equal(s.taken_ms, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(starts_without_anything_to_give),
        cmocka_unit_test(limits_can_be_changed),
        cmocka_unit_test(chooses_the_reserve),
        cmocka_unit_test(two_loads_do_not_share_bytes),
        cmocka_unit_test(a_load_in_progress_counts_whole),
        cmocka_unit_test(bytes_of_nobody_count_twice_for_admission_only),
        cmocka_unit_test(growth_beyond_every_load_is_foreign_at_once),
        cmocka_unit_test(a_process_explains_no_more_than_its_claims),
        cmocka_unit_test(a_process_that_is_listed_twice_has_one_memory),
        cmocka_unit_test(foreign_memory_is_held_at_its_peak),
        cmocka_unit_test(memory_is_free_when_it_is_seen_to_be),
        cmocka_unit_test(memory_that_does_not_come_back_stays_on_as_foreign),
        cmocka_unit_test(one_sample_returns_nothing),
        cmocka_unit_test(the_first_sample_after_a_release_is_not_enough),
        cmocka_unit_test(a_late_sample_does_not_explain_a_new_claim),
        cmocka_unit_test(claims_of_one_process_are_explained_once),
        cmocka_unit_test(a_declared_total_is_an_upper_limit),
        cmocka_unit_test(a_failed_load_is_released_not_forgotten),
        cmocka_unit_test(old_ids_find_nothing),
        cmocka_unit_test(a_full_table_is_an_ordinary_answer),
        cmocka_unit_test(a_claim_that_grows_is_unsettled_again),
        cmocka_unit_test(measured_replaces_predicted),
        cmocka_unit_test(adopting_is_never_refused),
        cmocka_unit_test(samples_that_cannot_be_true),
        cmocka_unit_test(free_is_not_total_less_used),
        cmocka_unit_test(figures_grow_old),
        cmocka_unit_test(a_device_that_gets_smaller),
        cmocka_unit_test(without_telemetry_only_claims_count),
        cmocka_unit_test(holders_are_named),
        cmocka_unit_test(long_names_are_cut),
        cmocka_unit_test(an_integrated_device_shares_its_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
