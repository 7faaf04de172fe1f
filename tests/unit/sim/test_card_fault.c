/*
 * Faults on command: what each does, that it ends, and that a waiting graph is woken or killed.
 */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "card_rig.h"

static void test_fail_next(void **state)
{
    struct sim_card *card = rig_open(SIM_ROLE_ENGINE);
    uint64_t id = 0;

    (void)state;
    assert_int_equal(sim_card_set_fail(card, 2, 0), 0);
    assert_int_equal(sim_card_alloc(card, 1, &id), -ENOMEM);
    assert_int_equal(sim_card_alloc(card, 1, &id), -ENOMEM);
    assert_int_equal(sim_card_alloc(card, 1, &id), 0);
    assert_int_equal(rig_look(card)->counters.allocations_failed, 2);
    sim_card_close(card);
}

static void test_fail_above(void **state)
{
    struct sim_card *card = rig_open(SIM_ROLE_ENGINE);
    struct sim_settings settings = {.max_alloc_bytes = 4 * MIB};
    uint64_t id = 0;

    (void)state;
    assert_int_equal(sim_card_set_fail(card, 0, 8 * MIB), 0);
    assert_int_equal(sim_card_alloc(card, 8 * MIB, &id), 0);
    assert_int_equal(sim_card_alloc(card, 8 * MIB + 1, &id), -EOVERFLOW);
    assert_int_equal(sim_card_set_fail(card, 0, 0), 0);
    assert_int_equal(sim_card_alloc(card, 8 * MIB + 1, &id), 0);
    assert_true(sim_card_max_alloc(card) == UINT64_MAX);
    assert_int_equal(sim_card_set(card, &settings, SIM_SET_MAX_ALLOC), 0);
    assert_int_equal(sim_card_max_alloc(card), 4 * MIB);
    assert_int_equal(sim_card_alloc(card, 5 * MIB, &id), -EOVERFLOW);
    sim_card_close(card);
}

static void test_shrink_below_use(void **state)
{
    struct sim_card *card = rig_open(SIM_ROLE_ENGINE);
    struct sim_settings settings = {.capacity_bytes = 10 * MIB};
    uint64_t total = 0;
    uint64_t available = 1;
    uint64_t low = 0;
    uint64_t high = 0;
    uint64_t id = 0;

    (void)state;
    assert_int_equal(sim_card_alloc(card, 8 * MIB, &low), 0);
    assert_int_equal(sim_card_alloc(card, 24 * MIB, &high), 0);
    assert_int_equal(sim_card_set(card, &settings, SIM_SET_CAPACITY), 0);
    assert_int_equal(rig_look(card)->overcommitted_bytes, 22 * MIB);
    assert_int_equal(sim_card_memory(card, &total, &available), 0);
    assert_int_equal(total, 10 * MIB);
    assert_int_equal(available, 0);
    assert_int_equal(sim_card_alloc(card, 1, &id), -ENOMEM);
    /* The low block leaves a hole within the capacity, but more is in use than there is. */
    assert_int_equal(sim_card_free(card, low), 0);
    assert_int_equal(sim_card_alloc(card, 1, &id), -ENOMEM);
    assert_int_equal(sim_card_free(card, high), 0);
    assert_int_equal(sim_card_alloc(card, 10 * MIB, &id), 0);
    settings.capacity_bytes = 64 * MIB;
    assert_int_equal(sim_card_set(card, &settings, SIM_SET_CAPACITY), 0);
    assert_int_equal(sim_card_alloc(card, 54 * MIB, &id), 0);
    sim_card_close(card);
}

static void test_settings_bounds(void **state)
{
    struct sim_card *card = rig_open(SIM_ROLE_OBSERVER);
    struct sim_settings settings;

    (void)state;
    sim_settings_init(&settings, SIM_CAPACITY_MAX + 1);
    assert_int_equal(sim_card_set(card, &settings, SIM_SET_CAPACITY), -EINVAL);
    settings.slowdown_pct = 99;
    assert_int_equal(sim_card_set(card, &settings, SIM_SET_SLOWDOWN), -EINVAL);
    settings.slowdown_pct = SIM_SLOWDOWN_MAX + 1;
    assert_int_equal(sim_card_set(card, &settings, SIM_SET_SLOWDOWN), -EINVAL);
    assert_int_equal(rig_look(card)->settings.slowdown_pct, 100);
    /* A reserve larger than the card leaves nothing, and wraps nowhere. */
    settings.reserve_bytes = 65 * MIB;
    assert_int_equal(sim_card_set(card, &settings, SIM_SET_RESERVE), 0);
    assert_int_equal(rig_look(card)->free_bytes, 0);
    sim_card_close(card);
}

static void test_spill(void **state)
{
    struct sim_card *card = rig_open(SIM_ROLE_ENGINE);
    struct sim_settings settings = {.spill = true};
    uint64_t a = 0;
    uint64_t b = 0;

    (void)state;
    assert_int_equal(sim_card_alloc(card, 60 * MIB, &a), 0);
    assert_int_equal(sim_card_alloc(card, 30 * MIB, &b), -ENOMEM);
    assert_int_equal(sim_card_set(card, &settings, SIM_SET_SPILL), 0);
    assert_int_equal(sim_card_alloc(card, 30 * MIB, &b), 0);
    assert_int_equal(rig_look(card)->used_bytes, 60 * MIB);
    assert_int_equal(rig_look(card)->free_bytes, 4 * MIB);
    assert_int_equal(rig_look(card)->spilled_bytes, 30 * MIB);
    assert_int_equal(rig_look(card)->processes[0].spilled_bytes, 30 * MIB);
    assert_int_equal(sim_card_free(card, b), 0);
    assert_int_equal(rig_look(card)->spilled_bytes, 0);
    rig_check_table(card);
    sim_card_close(card);
}

/* How long a graph of 4 ms takes, by the monotonic clock; lower bounds only. */
static uint64_t graph_ms(struct sim_card *card)
{
    struct sim_loss loss;
    uint64_t start_ms = sim_now_ms();

    assert_int_equal(sim_card_graph_begin(card, 1, &loss), 0);
    assert_int_equal(sim_card_graph_end(card, 4000000, &loss), 0);
    return sim_now_ms() - start_ms;
}

static void test_slowdown(void **state)
{
    struct sim_card *card = rig_open(SIM_ROLE_ENGINE);
    struct sim_settings settings = {.slowdown_pct = 500, .spill_slowdown_pct = 2100, .spill = true};
    uint64_t id = 0;

    (void)state;
    assert_int_equal(sim_card_set(card, &settings, SIM_SET_SLOWDOWN), 0);
    assert_true(graph_ms(card) >= 15);
    settings.slowdown_pct = 100;
    assert_int_equal(
        sim_card_set(card, &settings, SIM_SET_SLOWDOWN | SIM_SET_SPILL | SIM_SET_SPILL_SLOWDOWN),
        0);
    /* Half of it spilled: half of 20 times slower on top. */
    assert_int_equal(sim_card_alloc(card, 64 * MIB, &id), 0);
    assert_int_equal(sim_card_alloc(card, 64 * MIB, &id), 0);
    assert_true(graph_ms(card) >= 39);
    sim_card_close(card);
}

static int graph_body(void *argument)
{
    struct sim_card *card = rig_open(SIM_ROLE_ENGINE);
    struct sim_loss loss;
    int r = sim_card_graph_begin(card, 1, &loss);

    (void)argument;
    sim_card_close(card);
    return r == 0 ? 0 : r == -ENODEV ? 19 : 1;
}

static void wait_attached(struct sim_card *card)
{
    for (uint32_t seen = sim_card_changes(card); rig_look(card)->n_processes == 0;
         seen = sim_card_changes(card))
        sim_card_wait(card, seen, 1000);
}

static void test_stall(void **state)
{
    struct sim_card *card = rig_open(SIM_ROLE_OBSERVER);
    int status = 0;
    pid_t pid;

    (void)state;
    assert_int_equal(sim_card_set_stalled(card, true), 0);
    pid = rig_fork(graph_body, NULL);
    wait_attached(card);
    assert_int_equal(waitpid(pid, &status, WNOHANG), 0);
    assert_int_equal(rig_look(card)->counters.graphs, 0);
    assert_int_equal(sim_card_set_stalled(card, false), 0);
    assert_int_equal(rig_reap(pid), 0);
    assert_int_equal(rig_look(card)->counters.graphs, 1);
    sim_card_close(card);
}

static void test_stalled_is_killed_or_lost(void **state)
{
    struct sim_card *card = rig_open(SIM_ROLE_OBSERVER);
    int status;
    pid_t pid;

    (void)state;
    assert_int_equal(sim_card_set_stalled(card, true), 0);
    pid = rig_fork(graph_body, NULL);
    wait_attached(card);
    kill(pid, SIGKILL);
    status = rig_reap(pid);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(rig_look(card)->n_processes, 0);
    pid = rig_fork(graph_body, NULL);
    wait_attached(card);
    assert_int_equal(sim_card_lose(card, SIM_LOSE_GRAPH, SIM_MESSAGE_CUDA, 0), 0);
    assert_int_equal(WEXITSTATUS(rig_reap(pid)), 19);
    assert_int_equal(sim_card_reset(card), 0);
    assert_int_equal(sim_card_set_stalled(card, true), 0);
    pid = rig_fork(graph_body, NULL);
    wait_attached(card);
    /* A reset ends the stall, but who waited in it is lost. */
    assert_int_equal(sim_card_reset(card), 0);
    assert_int_equal(WEXITSTATUS(rig_reap(pid)), 19);
    sim_card_close(card);
}

static void test_lose_after_graphs(void **state)
{
    struct sim_card *card = rig_open(SIM_ROLE_ENGINE);
    struct sim_loss loss = {0};
    uint64_t total = 0;
    uint64_t available = 1;
    uint64_t id = 0;

    (void)state;
    assert_int_equal(sim_card_lose(card, SIM_LOSE_ABORT, SIM_MESSAGE_VULKAN, 3), 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(sim_card_graph_begin(card, 1, &loss), 0);
        assert_int_equal(sim_card_graph_end(card, 1, &loss), 0);
    }
    assert_int_equal(sim_card_graph_begin(card, 1, &loss), -ENODEV);
    assert_int_equal(loss.mode, SIM_LOSE_ABORT);
    assert_int_equal(loss.message, SIM_MESSAGE_VULKAN);
    assert_true(rig_look(card)->faults.lost);
    assert_int_equal(sim_card_alloc(card, 1, &id), -ENODEV);
    assert_int_equal(sim_card_memory(card, &total, &available), 0);
    assert_int_equal(available, 0);
    assert_int_equal(rig_look(card)->counters.graphs, 3);
    assert_int_equal(rig_look(card)->counters.graphs_failed, 1);
    sim_card_close(card);
}

static void test_lost_while_computing(void **state)
{
    struct sim_card *card = rig_open(SIM_ROLE_ENGINE);
    struct sim_loss loss = {0};

    (void)state;
    assert_int_equal(sim_card_graph_begin(card, 1, &loss), 0);
    assert_int_equal(sim_card_lose(card, SIM_LOSE_GRAPH, SIM_MESSAGE_CUDA, 0), 0);
    assert_true(rig_look(card)->faults.lost);
    assert_false(rig_look(card)->faults.lose_armed);
    assert_int_equal(sim_card_graph_end(card, 1, &loss), -ENODEV);
    assert_int_equal(loss.mode, SIM_LOSE_GRAPH);
    sim_card_close(card);
}

static void test_reset(void **state)
{
    struct sim_card *old = rig_open(SIM_ROLE_ENGINE);
    struct sim_card *fresh;
    struct sim_loss loss = {0};
    struct sim_settings settings = {.slowdown_pct = 200};
    uint64_t id = 0;
    uint64_t other = 0;

    (void)state;
    assert_int_equal(sim_card_alloc(old, 40 * MIB, &id), 0);
    assert_int_equal(sim_card_set(old, &settings, SIM_SET_SLOWDOWN), 0);
    assert_int_equal(sim_card_set_fail(old, 5, 5), 0);
    assert_int_equal(sim_card_lose(old, SIM_LOSE_ABORT, SIM_MESSAGE_CUDA, 0), 0);
    assert_int_equal(sim_card_reset(old), 0);
    assert_int_equal(rig_look(old)->used_bytes, 0);
    assert_int_equal(rig_look(old)->generation, 2);
    assert_true(rig_look(old)->processes[0].stale);
    assert_false(rig_look(old)->faults.lost);
    assert_int_equal(rig_look(old)->faults.fail_next, 0);
    assert_int_equal(rig_look(old)->settings.slowdown_pct, 200);
    fresh = rig_open(SIM_ROLE_ENGINE);
    assert_int_equal(sim_card_alloc(fresh, 64 * MIB, &other), 0);
    /* Attached before: lost for good, and its block numbers mean nothing any more. */
    assert_int_equal(sim_card_alloc(old, 1, &id), -ENODEV);
    assert_int_equal(sim_card_graph_begin(old, 1, &loss), -ENODEV);
    assert_int_equal(loss.mode, SIM_LOSE_ABORT);
    assert_int_equal(sim_card_free(old, id), -ENOENT);
    assert_int_equal(sim_card_graph_begin(fresh, 1, &loss), 0);
    sim_card_close(old);
    assert_int_equal(rig_look(fresh)->used_bytes, 64 * MIB);
    sim_card_close(fresh);
}

static void test_workspace(void **state)
{
    struct sim_card *card = rig_open(SIM_ROLE_ENGINE);
    struct sim_settings settings = {.workspace_bytes = MIB};
    struct sim_loss loss;
    uint64_t id = 0;

    (void)state;
    assert_int_equal(sim_card_set(card, &settings, SIM_SET_WORKSPACE), 0);
    assert_int_equal(sim_card_alloc(card, 40 * MIB, &id), 0);
    assert_int_equal(sim_card_graph_begin(card, 2, &loss), 0);
    assert_int_equal(rig_look(card)->used_bytes, 42 * MIB);
    assert_int_equal(sim_card_graph_begin(card, 10, &loss), 0);
    assert_int_equal(sim_card_graph_begin(card, 1, &loss), 0);
    /* Kept, as a pool is. */
    assert_int_equal(rig_look(card)->used_bytes, 50 * MIB);
    assert_int_equal(sim_card_graph_begin(card, 25, &loss), -ENOMEM);
    assert_int_equal(sim_card_graph_begin(card, UINT64_MAX, &loss), -ENOMEM);
    assert_int_equal(rig_look(card)->counters.graphs_failed, 2);
    assert_int_equal(sim_card_graph_begin(card, 24, &loss), 0);
    settings.workspace_bytes = 0;
    assert_int_equal(sim_card_set(card, &settings, SIM_SET_WORKSPACE), 0);
    assert_int_equal(sim_card_graph_begin(card, 24, &loss), 0);
    assert_int_equal(rig_look(card)->used_bytes, 40 * MIB);
    sim_card_close(card);
}

static void test_context(void **state)
{
    struct sim_card *card = rig_open(SIM_ROLE_OBSERVER);
    struct sim_settings settings = {.context_bytes = 30 * MIB};
    struct sim_card *a;
    struct sim_card *b;
    struct sim_card *c = NULL;
    char why[SIM_WHY_MAX] = "";

    (void)state;
    assert_int_equal(sim_card_set(card, &settings, SIM_SET_CONTEXT), 0);
    a = rig_open(SIM_ROLE_ENGINE);
    b = rig_open(SIM_ROLE_ENGINE);
    assert_int_equal(rig_look(card)->used_bytes, 60 * MIB);
    assert_int_equal(sim_card_open("t", SIM_ROLE_ENGINE, &c, why, sizeof why), -ENOMEM);
    assert_non_null(strstr(why, "runtime context"));
    assert_int_equal(rig_look(card)->n_processes, 2);
    sim_card_close(a);
    sim_card_close(b);
    assert_int_equal(rig_look(card)->used_bytes, 0);
    sim_card_close(card);
}

static void test_words_of_a_driver(void **state)
{
    char text[512];

    (void)state;
    sim_card_loss_text("gpu0", SIM_MESSAGE_CUDA, text, sizeof text);
    assert_non_null(strstr(text, "gpu0 (simulated)"));
    assert_non_null(strstr(text, "CUDA error: unspecified launch failure\n"));
    sim_card_loss_text("gpu0", SIM_MESSAGE_VULKAN, text, sizeof text);
    assert_non_null(strstr(text, "vk::DeviceLostError"));
    assert_non_null(strstr(text, "ErrorDeviceLost\n"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_fail_next, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_fail_above, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_shrink_below_use, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_settings_bounds, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_spill, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_slowdown, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_stall, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_stalled_is_killed_or_lost, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_lose_after_graphs, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_lost_while_computing, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_reset, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_workspace, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_context, rig_setup, rig_teardown),
        cmocka_unit_test(test_words_of_a_driver),
    };

    return cmocka_run_group_tests_name("sim_card_fault", tests, NULL, NULL);
}
