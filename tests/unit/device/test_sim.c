/* The simulated accelerator as a source, with a real card. */
#include "device_rig.h"

#include "device/memory.h"
#include "sim/card.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const struct device_spec spec = {.name = "gpu0", .kind = DEVICE_KIND_SIM, .card = "t"};
static struct sim_card *card; /* ours, as an engine */

static int setup(void **state)
{
    struct sim_settings settings;

    if (rig_setup(state) != 0 || setenv(SIM_DIR_ENV, rig_root, 1) != 0)
        return -1;
    sim_settings_init(&settings, 64 * MIB);
    settings.reserve_bytes = 4 * MIB;
    settings.release_delay_ms = 0;
    if (sim_card_create("t", &settings, NULL, 0) < 0)
        return -1;
    return sim_card_open("t", SIM_ROLE_ENGINE, &card, NULL, 0);
}

static int teardown(void **state)
{
    sim_card_close(card);
    card = NULL;
    (void)sim_card_destroy("t", true, NULL, 0);
    return rig_teardown(state);
}

static struct device_sample sample(void)
{
    struct device_sample s;

    assert_int_equal(rig_sample(&device_source_sim, &spec, &s), 0);
    return s;
}

static void test_what_a_process_holds(void **state)
{
    struct device_sample s;
    uint64_t id, bytes, held;

    (void)state;
    assert_int_equal(sim_card_alloc(card, 10 * MIB, &id), 0);
    s = sample();
    assert_int_equal(s.state, DEVICE_STATE_PRESENT);
    assert_string_equal(s.source, "sim");
    assert_true((s.flags & DEVICE_FLAG_SIMULATED) != 0);
    assert_int_equal(s.total_bytes, 64 * MIB);
    assert_int_equal(s.reserved_bytes, 4 * MIB);
    assert_int_equal(s.used_bytes, 10 * MIB);
    assert_true(device_sample_free(&s, 1000, 2000, &bytes));
    assert_int_equal(bytes, 50 * MIB);
    assert_true(device_sample_process(&s, getpid(), &bytes));
    assert_int_equal(bytes, 10 * MIB);
    assert_false(device_sample_process(&s, getpid() + 1, &bytes));
    assert_int_equal(s.has & DEVICE_HAS_MAX_ALLOC, 0);
    /* The question that a restart asks sees the same. */
    assert_int_equal(device_memory_sim.held("t", getpid(), &held), 0);
    assert_int_equal(held, 10 * MIB);
}

/* F13: free memory in holes, and a limit on one buffer. */
static void test_f13_largest(void **state)
{
    struct sim_settings settings = {.max_alloc_bytes = 8 * MIB};
    uint64_t ids[6];
    struct device_sample s;

    (void)state;
    for (int i = 0; i < 6; i++)
        assert_int_equal(sim_card_alloc(card, 10 * MIB, &ids[i]), 0);
    assert_int_equal(sim_card_free(card, ids[1]), 0);
    assert_int_equal(sim_card_free(card, ids[3]), 0);
    assert_int_equal(sim_card_set(card, &settings, SIM_SET_MAX_ALLOC), 0);
    s = sample();
    assert_int_equal(s.free_bytes, 20 * MIB);
    assert_int_equal(s.largest_free_bytes, 10 * MIB);
    assert_true((s.has & DEVICE_HAS_MAX_ALLOC) != 0);
    assert_int_equal(s.max_alloc_bytes, 8 * MIB);
}

static void test_capacity_lowered_under_use(void **state)
{
    struct sim_settings settings = {.capacity_bytes = 16 * MIB};
    struct device_sample s;
    uint64_t id, bytes;

    (void)state;
    assert_int_equal(sim_card_alloc(card, 40 * MIB, &id), 0);
    assert_int_equal(sim_card_set(card, &settings, SIM_SET_CAPACITY), 0);
    s = sample();
    assert_true(device_sample_free(&s, 1000, 2000, &bytes)); /* true, not impossible */
    assert_int_equal(bytes, 0);
    assert_int_equal(s.overcommitted_bytes, 28 * MIB);
}

static void test_hidden_and_lost(void **state)
{
    struct sim_settings settings = {.hidden = true};
    struct device_sample s;
    uint64_t bytes;

    (void)state;
    assert_int_equal(sim_card_set(card, &settings, SIM_SET_HIDDEN), 0);
    s = sample();
    assert_int_equal(s.state, DEVICE_STATE_HIDDEN);
    assert_false(device_sample_free(&s, 1000, 2000, &bytes));
    settings.hidden = false;
    assert_int_equal(sim_card_set(card, &settings, SIM_SET_HIDDEN), 0);
    assert_int_equal(sim_card_lose(card, SIM_LOSE_GRAPH, SIM_MESSAGE_CUDA, 0), 0);
    s = sample();
    assert_int_equal(s.state, DEVICE_STATE_LOST);
    assert_int_equal(s.has & DEVICE_HAS_FREE, 0);
    assert_int_equal(sim_card_reset(card), 0);
    s = sample();
    assert_int_equal(s.state, DEVICE_STATE_PRESENT);
    assert_true(device_sample_free(&s, 1000, 2000, &bytes));
    /* This process holds a handle from before the reset. */
    assert_int_equal(s.n_processes, 1);
    assert_true(s.processes[0].lost);
}

static void test_a_card_that_goes_and_comes(void **state)
{
    struct sim_settings settings;
    struct device_sample s;
    uint64_t bytes;

    (void)state;
    assert_int_equal(sim_card_destroy("t", true, NULL, 0), 0);
    s = sample();
    assert_int_equal(s.state, DEVICE_STATE_ABSENT);
    assert_false(device_sample_free(&s, 1000, 2000, &bytes));
    assert_true(s.why[0] != '\0');
    sim_settings_init(&settings, 32 * MIB);
    assert_int_equal(sim_card_create("t", &settings, NULL, 0), 0);
    s = sample();
    assert_int_equal(s.total_bytes, 32 * MIB);
}

static void test_a_name_that_is_none(void **state)
{
    struct device_spec bad = {.name = "gpu0", .card = "a/b"};
    struct device_sample s;

    (void)state;
    assert_int_equal(rig_sample(&device_source_sim, &bad, &s), -EINVAL);
    assert_int_equal(s.state, DEVICE_STATE_ABSENT);
}

#define WITH_CARD(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_CARD(test_what_a_process_holds),       WITH_CARD(test_f13_largest),
        WITH_CARD(test_capacity_lowered_under_use), WITH_CARD(test_hidden_and_lost),
        WITH_CARD(test_a_card_that_goes_and_comes), WITH_CARD(test_a_name_that_is_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
