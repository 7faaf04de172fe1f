/* Levels of pressure, their hysteresis, and the way back up. */
#include "tests/unit/policy/ledger_rig.h"
#include "tests/unit/policy/random.h"

#include "policy/pressure.h"

/* A reserve of 1 GiB: high below 0, critical below −512 MiB, back with 256 MiB more for 10 s. */
static enum pressure_level look(struct pressure *p, int64_t headroom_mib, uint64_t foreign_mib,
                                uint64_t now_ms)
{
    struct pressure_facts facts = {.headroom_bytes = headroom_mib * (int64_t)MIB,
                                   .reserve_bytes = GIB,
                                   .foreign_bytes = foreign_mib * MIB,
                                   .trusted = true};
    return pressure_update(p, &facts, now_ms);
}

static struct pressure fresh(void)
{
    struct pressure p;
    struct pressure_settings settings = pressure_settings_default();
    pressure_init(&p, &settings);
    return p;
}

static void levels_follow_the_headroom(void **state)
{
    (void)state;
    static const struct {
        int64_t headroom_mib;
        enum pressure_level level;
    } rows[] = {
        {8192, PRESSURE_LEVEL_NORMAL},   {1024, PRESSURE_LEVEL_NORMAL},
        {1023, PRESSURE_LEVEL_ELEVATED}, {0, PRESSURE_LEVEL_ELEVATED},
        {-1, PRESSURE_LEVEL_HIGH},       {-511, PRESSURE_LEVEL_HIGH},
        {-513, PRESSURE_LEVEL_CRITICAL}, {-9000, PRESSURE_LEVEL_CRITICAL},
    };
    for (unsigned i = 0; i < UNIT_COUNT(rows); i++) {
        struct pressure p = fresh();
        assert_int_equal(look(&p, rows[i].headroom_mib, 0, 0), rows[i].level);
    }
}

/* A game that takes 700 MiB a second is seen before the device has run out. */
static void growth_counts_as_if_it_went_on(void **state)
{
    (void)state;
    struct pressure p = fresh();
    int64_t headroom = 6000;
    uint64_t foreign = 0;
    uint64_t now = 0;
    while (look(&p, headroom, foreign, now) < PRESSURE_LEVEL_CRITICAL) {
        assert_true(now < 20000);
        now += 500;
        headroom -= 350;
        foreign += 350;
    }
    assert_in_range(headroom, 500, 1300);
    assert_int_equal(p.grown_bytes, 1400 * MIB);
}

static void an_own_load_is_no_growth(void **state)
{
    (void)state;
    struct pressure p = fresh();
    assert_int_equal(look(&p, 12000, 500, 0), PRESSURE_LEVEL_NORMAL);
    assert_int_equal(look(&p, 1100, 500, 500), PRESSURE_LEVEL_NORMAL);
    assert_int_equal(p.grown_bytes, 0);
}

static enum pressure_level look_with(struct pressure *p, int64_t headroom_mib, uint64_t foreign_mib,
                                     uint64_t releasing_mib, uint64_t now_ms)
{
    struct pressure_facts facts = {.headroom_bytes = headroom_mib * (int64_t)MIB,
                                   .reserve_bytes = GIB,
                                   .foreign_bytes = foreign_mib * MIB,
                                   .releasing_bytes = releasing_mib * MIB,
                                   .trusted = true};
    return pressure_update(p, &facts, now_ms);
}

/* 8 GiB of an ended worker do not come back and are called foreign from then on: nobody took them. */
static void memory_that_did_not_come_back_has_not_grown(void **state)
{
    (void)state;
    struct pressure p = fresh();
    assert_int_equal(look_with(&p, 4000, 100, 8000, 0), PRESSURE_LEVEL_NORMAL);
    assert_int_equal(look_with(&p, 4000, 8100, 0, 500), PRESSURE_LEVEL_NORMAL);
    assert_int_equal(p.grown_bytes, 0);
    /* What is given back later is no growth either, and a stranger's still is. */
    assert_int_equal(look_with(&p, 4000, 8100, 3000, 1000), PRESSURE_LEVEL_NORMAL);
    assert_int_equal(p.grown_bytes, 0);
    look_with(&p, 3000, 9100, 3000, 1500);
    assert_int_equal(p.grown_bytes, 1000 * MIB);
}

static enum pressure_level with_load(const struct pressure *p, int64_t headroom_mib,
                                     uint64_t load_mib)
{
    struct pressure_facts facts = {.headroom_bytes = headroom_mib * (int64_t)MIB,
                                   .reserve_bytes = GIB};
    return pressure_with(p, &facts, load_mib * MIB);
}

/* A stranger took 6 GiB and keeps still: what fits beside it is not started before that is known. */
static void a_load_waits_for_the_end_of_growth(void **state)
{
    (void)state;
    struct pressure p = fresh();
    assert_int_equal(look(&p, 14000, 0, 0), PRESSURE_LEVEL_NORMAL);
    assert_int_equal(look(&p, 8000, 6000, 500), PRESSURE_LEVEL_NORMAL);
    assert_int_equal(with_load(&p, 8000, 500), PRESSURE_LEVEL_NORMAL);
    assert_int_equal(with_load(&p, 8000, 5000), PRESSURE_LEVEL_CRITICAL);
    for (uint64_t now = 1000; now <= 2500; now += 500)
        assert_int_equal(look(&p, 8000, 6000, now), PRESSURE_LEVEL_NORMAL);
    assert_int_equal(with_load(&p, 8000, 5000), PRESSURE_LEVEL_NORMAL);
    assert_int_equal(look(&p, 3000, 6000, 3000), PRESSURE_LEVEL_NORMAL);
}

/* Whoever asks first is not sent away by growth that he was told of. */
static void what_was_let_in_stays(void **state)
{
    (void)state;
    uint64_t seed = 11;
    unsigned started = 0;
    for (unsigned walk = 0; walk < 3000; walk++) {
        struct pressure p = fresh();
        int64_t headroom = 16000;
        uint64_t foreign = 0;
        uint64_t now = 0;
        for (unsigned i = 0; i < 12; i++) {
            uint64_t taken = random_below(&seed, 2) ? random_below(&seed, 3000) : 0;
            headroom -= (int64_t)taken;
            foreign += taken;
            look(&p, headroom, foreign, now += 250 + random_below(&seed, 500));
        }
        uint64_t load = random_below(&seed, 12000);
        if (with_load(&p, headroom, load) == PRESSURE_LEVEL_CRITICAL)
            continue;
        started++;
        for (unsigned i = 0; i < 8; i++)
            assert_true(look(&p, headroom - (int64_t)load, foreign,
                             now += 1 + random_below(&seed, 700)) < PRESSURE_LEVEL_CRITICAL);
    }
    assert_in_range(started, 100, 2900);
}

static void gets_better_slowly_one_level_at_a_time(void **state)
{
    (void)state;
    struct pressure p = fresh();
    assert_int_equal(look(&p, -600, 0, 0), PRESSURE_LEVEL_CRITICAL);
    uint64_t changes[3] = {0};
    for (uint64_t now = 500; now <= 60000; now += 500) {
        enum pressure_level before = p.level;
        enum pressure_level after = look(&p, 9000, 0, now);
        assert_true(after == before || after + 1 == before);
        if (after != before)
            changes[after] = now;
    }
    assert_int_equal(changes[PRESSURE_LEVEL_HIGH], 10500);
    assert_int_equal(changes[PRESSURE_LEVEL_ELEVATED], 20500 + 500);
    assert_int_equal(changes[PRESSURE_LEVEL_NORMAL], 31500);
}

/* Back needs a quarter of the reserve more than coming down did. */
static void back_needs_more_than_down(void **state)
{
    (void)state;
    struct pressure p = fresh();
    assert_int_equal(look(&p, -1, 0, 0), PRESSURE_LEVEL_HIGH);
    uint64_t now = 0;
    for (unsigned i = 0; i < 200; i++)
        assert_int_equal(look(&p, 250, 0, now += 500), PRESSURE_LEVEL_HIGH);
    for (unsigned i = 0; i < 30; i++)
        look(&p, 260, 0, now += 500);
    assert_int_equal(p.level, PRESSURE_LEVEL_ELEVATED);
}

/* Whatever swings around a limit faster than calm_ms changes the level once, and not back. */
static void does_not_flap(void **state)
{
    (void)state;
    for (uint64_t walk = 1; walk < 300; walk++) {
        uint64_t seed = walk;
        struct pressure p = fresh();
        int64_t centre = (int64_t)random_below(&seed, 3000) - 1500;
        int64_t swing = 1 + (int64_t)random_below(&seed, 3000);
        uint64_t period = 2 + random_below(&seed, 16); /* samples; below 9 s */
        unsigned better = 0;
        enum pressure_level worst = PRESSURE_LEVEL_NORMAL;
        for (uint64_t i = 0; i < 400; i++) {
            enum pressure_level before = p.level;
            int64_t headroom = centre + (i % period < (period + 1) / 2 ? swing : -swing);
            enum pressure_level after = look(&p, headroom, 0, i * 500);
            better += after < before;
            if (after > worst)
                worst = after;
        }
        if (better != 0 || p.level != worst)
            fail_msg("walk %u: got better %u times", (unsigned)walk, better);
    }
}

static void old_figures_never_make_it_better_nor_critical(void **state)
{
    (void)state;
    struct pressure p = fresh();
    look(&p, -10, 0, 0);
    struct pressure_facts facts = {.headroom_bytes = 9000 * (int64_t)MIB, .reserve_bytes = GIB};
    for (uint64_t now = 500; now < 60000; now += 500)
        assert_int_equal(pressure_update(&p, &facts, now), PRESSURE_LEVEL_HIGH);
    facts.headroom_bytes = -4000 * (int64_t)MIB;
    assert_int_equal(pressure_update(&p, &facts, 60500), PRESSURE_LEVEL_HIGH);
    facts.trusted = true;
    assert_int_equal(pressure_update(&p, &facts, 61000), PRESSURE_LEVEL_CRITICAL);
    facts.trusted = false;
    assert_int_equal(pressure_update(&p, &facts, 61500), PRESSURE_LEVEL_CRITICAL);
    p = fresh();
    assert_int_equal(pressure_update(&p, &facts, 0), PRESSURE_LEVEL_HIGH);
}

/* More headroom is never a worse level, from any state. */
static void is_monotone(void **state)
{
    (void)state;
    uint64_t seed = 5;
    struct pressure p = fresh();
    uint64_t now = 0;
    for (unsigned i = 0; i < 20000; i++) {
        now += random_below(&seed, 3000);
        int64_t headroom = (int64_t)random_below(&seed, 5000) - 2500;
        struct pressure roomier = p;
        uint64_t foreign = random_below(&seed, 2000);
        enum pressure_level level = look(&p, headroom, foreign, now);
        assert_true(look(&roomier, headroom + (int64_t)random_below(&seed, 3000), foreign, now) <=
                    level);
    }
}

static void a_worker_comes_back_after_a_while(void **state)
{
    (void)state;
    struct comeback c;
    comeback_init(&c, GIB, 60000);
    int64_t room = 6 * (int64_t)GIB;
    assert_false(comeback_update(&c, room, 5 * GIB, PRESSURE_LEVEL_NORMAL, 1000));
    assert_int_equal(comeback_in_ms(&c, 31000), 30000);
    assert_false(comeback_update(&c, room, 5 * GIB, PRESSURE_LEVEL_NORMAL, 60999));
    /* Short of the margin once: from the start again. */
    assert_false(comeback_update(&c, room - 1, 5 * GIB, PRESSURE_LEVEL_NORMAL, 61000));
    assert_int_equal(comeback_in_ms(&c, 61000), 60000);
    assert_false(comeback_update(&c, room, 5 * GIB, PRESSURE_LEVEL_ELEVATED, 62000));
    assert_false(comeback_update(&c, room, 5 * GIB, PRESSURE_LEVEL_HIGH, 63000));
    assert_int_equal(comeback_in_ms(&c, 63000), 60000);
    assert_false(comeback_update(&c, -1, 0, PRESSURE_LEVEL_NORMAL, 64000));
    assert_false(comeback_update(&c, room, 5 * GIB, PRESSURE_LEVEL_NORMAL, 65000));
    assert_true(comeback_update(&c, room, 5 * GIB, PRESSURE_LEVEL_NORMAL, 125000));
    assert_int_equal(comeback_in_ms(&c, 125000), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(levels_follow_the_headroom),
        cmocka_unit_test(growth_counts_as_if_it_went_on),
        cmocka_unit_test(an_own_load_is_no_growth),
        cmocka_unit_test(memory_that_did_not_come_back_has_not_grown),
        cmocka_unit_test(a_load_waits_for_the_end_of_growth),
        cmocka_unit_test(what_was_let_in_stays),
        cmocka_unit_test(gets_better_slowly_one_level_at_a_time),
        cmocka_unit_test(back_needs_more_than_down),
        cmocka_unit_test(does_not_flap),
        cmocka_unit_test(old_figures_never_make_it_better_nor_critical),
        cmocka_unit_test(is_monotone),
        cmocka_unit_test(a_worker_comes_back_after_a_while),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
