/*
 * No restart before the memory of the last process is back (F09, F38), with a real simulated card
 * and the pretended engine: memory on the card is held by a process of the test that dies with it.
 */
#include "worker_rig.h"

#include "device/memory.h"
#include "sim/card.h"
#include "tests/unit/unit.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct rig rig;
static char card[SIM_NAME_MAX];

static void make_card(uint64_t release_delay_ms)
{
    struct sim_settings settings;
    char why[SIM_WHY_MAX];

    snprintf(card, sizeof(card), "memory-%ld", (long)getpid());
    sim_settings_init(&settings, 1ull << 30);
    settings.release_delay_ms = release_delay_ms;
    if (sim_card_create(card, &settings, why, sizeof(why)) < 0)
        fail_msg("%s", why);
}

static int setup(void **state)
{
    (void)state;
    rig_init(&rig);
    setenv("FAILSOFT_SIM_DIR", rig.dir, 1);
    rig.options.tier = "gpu";
    rig.options.device = WORKER_DEVICE_SIM;
    rig.options.device_name = "gpu0";
    rig.options.sim_card = card;
    rig.options.sim_plugin = FAKE_ENGINE_PATH; /* any readable file: this engine loads none */
    rig.options.gpu_layers = -1;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    sim_card_destroy(card, true, NULL, 0);
    rig_end(&rig);
    unsetenv("FAILSOFT_SIM_DIR");
    return 0;
}

/* A process that holds 3 MiB on the card; returns when it does. */
static pid_t start_holder(void)
{
    struct sim_card *c = NULL;
    uint64_t id;
    int fds[2];
    char byte = 0;
    pid_t pid;

    assert_int_equal(pipe(fds), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (sim_card_open(card, SIM_ROLE_HOG, &c, NULL, 0) < 0 ||
            sim_card_alloc(c, 3u << 20, &id) < 0 || write(fds[1], "x", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    close(fds[1]);
    assert_int_equal(read(fds[0], &byte, 1), 1);
    close(fds[0]);
    return pid;
}

static void kill_holder(pid_t pid)
{
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void held_follows_the_process(void **state)
{
    uint64_t bytes = 1;
    pid_t pid;

    (void)state;
    make_card(0);
    assert_int_equal(device_memory_sim.held(card, 1, &bytes), 0);
    assert_int_equal(bytes, 0);
    pid = start_holder();
    assert_int_equal(device_memory_sim.held(card, pid, &bytes), 0);
    assert_int_equal(bytes, 3u << 20);
    assert_int_equal(device_memory_sim.held(card, 1, &bytes), 0); /* somebody else's, alive */
    assert_int_equal(bytes, 0);
    kill_holder(pid);
    assert_int_equal(device_memory_sim.held(card, pid, &bytes), 0);
    assert_int_equal(bytes, 0);
    assert_int_equal(device_memory_sim.held("no-such-card", 1, &bytes), -ENOENT);
    assert_int_equal(device_memory_unknown.held("gpu0", 1, &bytes), -ENOTSUP);
}

static void start_then_lose_it_with_memory(void)
{
    pid_t holder;

    rig_create(&rig);
    worker_start(rig.worker);
    rig_until_state(&rig, WORKER_STATE_READY);
    holder = start_holder();
    kill_holder(holder);
    kill(worker_pid(rig.worker), SIGKILL);
    rig_until_state(&rig, WORKER_STATE_BACKOFF);
    rig_until_state(&rig, WORKER_STATE_STARTING);
}

static bool says_that_it_waits(void *ctx)
{
    (void)ctx;
    return strstr(worker_reason(rig.worker), "waits for 3 MiB on gpu0") != NULL ||
           strstr(worker_reason(rig.worker), "waits for 3.0 MiB on gpu0") != NULL;
}

static void restart_waits_until_it_is_back(void **state)
{
    uint64_t bytes = 1;

    (void)state;
    make_card(900);
    start_then_lose_it_with_memory();
    rig_until(&rig, says_that_it_waits, NULL);
    assert_int_equal(worker_get_state(rig.worker), WORKER_STATE_STARTING);
    rig_until_state(&rig, WORKER_STATE_LOADING);
    assert_int_equal(device_memory_sim.held(card, 0, &bytes), 0);
    assert_int_equal(bytes, 0);
    assert_string_equal(worker_warning(rig.worker), "");
    rig_until_state(&rig, WORKER_STATE_READY);
}

static void memory_that_never_comes_back_is_not_waited_for_for_ever(void **state)
{
    (void)state;
    make_card(60000);
    rig.options.memory_wait_ms = 300;
    start_then_lose_it_with_memory();
    rig_until_state(&rig, WORKER_STATE_LOADING);
    assert_non_null(
        strstr(worker_warning(rig.worker), "on gpu0 of the last process were not back"));
}

static void stop_while_waiting(void **state)
{
    (void)state;
    make_card(60000);
    start_then_lose_it_with_memory();
    rig_until(&rig, says_that_it_waits, NULL);
    rig_stop(&rig);
    assert_int_equal(worker_get_state(rig.worker), WORKER_STATE_STOPPED);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(held_follows_the_process),
        T(restart_waits_until_it_is_back),
        T(memory_that_never_comes_back_is_not_waited_for_for_ever),
        T(stop_while_waiting),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
