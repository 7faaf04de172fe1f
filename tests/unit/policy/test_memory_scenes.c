/*
 * Ledger, pressure and admission together, in virtual time, on a card of 16 GiB: what the gateway will
 * do with them. The card is a model that refuses what does not fit, as a real one does.
 */
#include "tests/unit/policy/ledger_rig.h"

#include "policy/admission.h"

enum { STEP_MS = 100, SAMPLE_MS = 500, WORKER_PID = 41, RETURN_MS = 1500, LOAD_MS = 2000 };

#define CARD_TOTAL  (16 * GIB)
#define WORKER_NEED (7 * GIB)

/* How the worker is doing. */
enum life { LIFE_OUT, LIFE_LOADING, LIFE_READY, LIFE_ENDING };

struct scene {
    struct rig rig;
    struct pressure pressure;
    struct comeback comeback;
    enum life life;
    uint64_t claim;
    uint64_t worker;   /* its bytes on the card, really */
    uint64_t since_ms; /* of its life */
    uint64_t game;     /* the other's bytes, really */
    uint64_t now_ms;
    bool per_process; /* the card tells whose memory it is */
    unsigned loads;
    unsigned unloads;
    unsigned refused; /* allocations that the card refused: what must never happen */
};

static void start(struct scene *s, bool per_process)
{
    *s = (struct scene){.now_ms = 1000, .per_process = per_process};
    rig_start(&s->rig, CARD_TOTAL, GIB, 0);
    struct pressure_settings settings = pressure_settings_default();
    pressure_init(&s->pressure, &settings);
    comeback_init(&s->comeback, GIB, 0);
}

static void enter(struct scene *s, enum life life)
{
    s->life = life;
    s->since_ms = s->now_ms;
}

static void allocate(struct scene *s, uint64_t *what, uint64_t bytes)
{
    if (s->game + s->worker - *what + bytes > CARD_TOTAL)
        s->refused++;
    else
        *what = bytes;
}

static void sample(struct scene *s)
{
    uint64_t used = s->game + s->worker;
    int rc = s->per_process
                 ? rig_sample_process(&s->rig, CARD_TOTAL, used,
                                      s->life == LIFE_ENDING ? 0 : WORKER_PID, s->worker, s->now_ms)
                 : rig_sample(&s->rig, CARD_TOTAL, used, s->now_ms);
    assert_int_equal(rc, 0);
}

static void try_to_load(struct scene *s, const struct ledger_view *view)
{
    if (!comeback_update(&s->comeback, view->admissible_bytes, WORKER_NEED, s->pressure.level,
                         s->now_ms))
        return;
    struct admission_tier tier = {.name = "gpu",
                                  .device = view,
                                  .pressure = s->pressure.level,
                                  .device_bytes = {WORKER_NEED, WORKER_NEED}};
    struct admission_facts facts = {.tiers = &tier, .tier_count = 1};
    if (admission_decide(&facts).action != ADMISSION_ACTION_ADMIT)
        return;
    assert_int_equal(rig_open(&s->rig, "chat", WORKER_NEED, s->now_ms, &s->claim), 0);
    assert_int_equal(ledger_claim_set_pid(&s->rig.ledger, s->claim, WORKER_PID), 0);
    s->loads++;
    enter(s, LIFE_LOADING);
}

static void step_worker(struct scene *s, const struct ledger_view *view)
{
    uint64_t age = s->now_ms - s->since_ms;
    switch (s->life) {
    case LIFE_OUT: try_to_load(s, view); return;
    case LIFE_LOADING:
        allocate(s, &s->worker, age >= LOAD_MS ? WORKER_NEED : WORKER_NEED / LOAD_MS * age);
        if (age < LOAD_MS)
            return;
        assert_int_equal(ledger_claim_settle(&s->rig.ledger, s->claim, s->worker, s->now_ms), 0);
        enter(s, LIFE_READY);
        return;
    case LIFE_READY:
        if (s->pressure.level < PRESSURE_LEVEL_CRITICAL)
            return;
        assert_int_equal(ledger_claim_begin_release(&s->rig.ledger, s->claim, s->now_ms), 0);
        s->unloads++;
        comeback_init(&s->comeback, GIB, 30000);
        enter(s, LIFE_ENDING);
        return;
    case LIFE_ENDING:
        if (age < RETURN_MS)
            return;
        s->worker = 0;
        enter(s, LIFE_OUT);
        return;
    }
}

static void step(struct scene *s, uint64_t game)
{
    s->now_ms += STEP_MS;
    if (game != s->game)
        allocate(s, &s->game, game);
    ledger_tick(&s->rig.ledger, s->now_ms);
    if (s->now_ms % SAMPLE_MS == 0)
        sample(s);
    struct ledger_view view = ledger_view(&s->rig.ledger, s->now_ms);
    struct pressure_facts facts = {.headroom_bytes = view.headroom_bytes,
                                   .reserve_bytes = view.reserve_bytes,
                                   .foreign_bytes = view.foreign_bytes,
                                   .trusted = view.trust == LEDGER_TRUST_FRESH};
    pressure_update(&s->pressure, &facts, s->now_ms);
    step_worker(s, &view);
    assert_ledger_balances(&s->rig.ledger, s->now_ms);
}

static void run(struct scene *s, uint64_t ms, uint64_t game)
{
    for (uint64_t t = 0; t < ms; t += STEP_MS)
        step(s, game);
}

/* A load of our own, half of it visible, is no emergency whether or not the card tells whose it is. */
static void an_own_load_raises_no_alarm(void **state)
{
    (void)state;
    for (unsigned per_process = 0; per_process < 2; per_process++) {
        struct scene s;
        start(&s, per_process);
        run(&s, 2000, 3 * GIB);
        run(&s, 20000, 3 * GIB);
        assert_int_equal(s.life, LIFE_READY);
        assert_int_equal(s.loads, 1);
        assert_int_equal(s.unloads, 0);
        assert_true(s.pressure.level <= PRESSURE_LEVEL_ELEVATED);
    }
}

/* A game takes 800 MiB a second up to 12 GiB. The worker is gone in time, and comes back once after
 * the game has ended, not in its loading screens. */
static void a_game_gets_its_memory_in_time(void **state)
{
    (void)state;
    for (unsigned per_process = 0; per_process < 2; per_process++) {
        struct scene s;
        start(&s, per_process);
        run(&s, 10000, 0);
        assert_int_equal(s.life, LIFE_READY);
        for (uint64_t game = 0; game <= 12 * GIB; game += 80 * MIB)
            step(&s, game);
        assert_int_equal(s.refused, 0);
        assert_int_equal(s.unloads, 1);
        for (unsigned level = 0; level < 10; level++) {
            run(&s, 20000, 12 * GIB);
            run(&s, level % 2 ? 3000 : 35000, 2 * GIB);
        }
        run(&s, 20000, 12 * GIB);
        assert_int_equal(s.loads, 1);
        run(&s, 120000, 0);
        assert_int_equal(s.life, LIFE_READY);
        assert_int_equal(s.loads, 2);
        assert_int_equal(s.unloads, 1);
        assert_int_equal(s.refused, 0);
    }
}

/* Somebody whose use swings by less than the room that is left disturbs nobody. */
static void swings_that_fit_change_nothing(void **state)
{
    (void)state;
    struct scene s;
    start(&s, true);
    run(&s, 10000, 2 * GIB);
    for (unsigned i = 0; i < 60; i++)
        run(&s, 1500, i % 2 ? 2 * GIB : 3 * GIB);
    assert_int_equal(s.loads, 1);
    assert_int_equal(s.unloads, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_own_load_raises_no_alarm),
        cmocka_unit_test(a_game_gets_its_memory_in_time),
        cmocka_unit_test(swings_that_fit_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
