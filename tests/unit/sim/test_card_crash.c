/*
 * kill -9 in the critical section: at every point of every operation, during the repair of such a
 * death, and at random times. Afterwards the card is not locked, nobody's memory is lost or
 * counted twice, and all of the dead's is back.
 */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "card_rig.h"

static int points_left;

static void point_kill(void)
{
    if (points_left-- == 0)
        kill(getpid(), SIGKILL);
}

/* A crash is one operation in a child that dies at its nth point. */
struct crash {
    void (*operation)(struct sim_card *card);
    int point;
};

static void do_alloc(struct sim_card *card)
{
    uint64_t id;

    sim_card_alloc(card, 5 * MIB, &id);
}

static void do_alloc_free(struct sim_card *card)
{
    uint64_t a = 0;
    uint64_t b = 0;

    sim_card_alloc(card, 3 * MIB, &a);
    sim_card_alloc(card, 4 * MIB, &b);
    sim_card_free(card, a);
    sim_card_free(card, b);
}

static void do_fail_alloc(struct sim_card *card)
{
    uint64_t id;

    sim_card_alloc(card, 500 * MIB, &id);
}

static void do_graph(struct sim_card *card)
{
    struct sim_loss loss;
    struct sim_settings settings = {.workspace_bytes = SIM_PAGE_BYTES};

    sim_card_set(card, &settings, SIM_SET_WORKSPACE);
    sim_card_graph_begin(card, 4, &loss);
    sim_card_graph_end(card, 10, &loss);
    sim_card_graph_begin(card, 40, &loss);
    sim_card_graph_end(card, 10, &loss);
}

static void do_faults(struct sim_card *card)
{
    sim_card_set_fail(card, 0, 48 * MIB);
    sim_card_set_stalled(card, true);
    sim_card_set_stalled(card, false);
    sim_card_lose(card, SIM_LOSE_ABORT, SIM_MESSAGE_VULKAN, 1000000);
}

static void do_leave(struct sim_card *card)
{
    uint64_t id;

    sim_card_alloc(card, MIB, &id);
    sim_card_alloc(card, MIB, &id);
    sim_card_close(card);
}

static void do_look(struct sim_card *card)
{
    static struct sim_snapshot snapshot;

    sim_card_snapshot(card, &snapshot);
}

static int crash_body(void *argument)
{
    const struct crash *crash = argument;
    struct sim_card *card = NULL;

    points_left = crash->point;
    sim_test_point = point_kill;
    /* Opening is part of it: it dies while attaching, too. */
    if (sim_card_open("t", SIM_ROLE_ENGINE, &card, NULL, 0) < 0)
        return 9;
    crash->operation(card);
    return 0;
}

/* True when the child died, false when it got through: then there is no nth point any more. */
static bool crash_once(void (*operation)(struct sim_card *card), int point)
{
    struct crash crash = {operation, point};
    int status = rig_reap(rig_fork(crash_body, &crash));

    if (WIFEXITED(status)) {
        assert_int_equal(WEXITSTATUS(status), 0);
        return false;
    }
    assert_int_equal(WTERMSIG(status), SIGKILL);
    return true;
}

/* The parent's own block stays, the dead's are gone, and everything fits again. */
static void expect_whole(struct sim_card *card, uint64_t own_bytes)
{
    const struct sim_snapshot *snapshot;
    uint64_t id = 0;

    /* The first look finds the dead, the release delay of 0 ends with the next one at the latest. */
    rig_look(card);
    snapshot = rig_look(card);
    assert_int_equal(snapshot->used_bytes, own_bytes);
    assert_int_equal(snapshot->free_bytes, 64 * MIB - own_bytes);
    assert_int_equal(snapshot->counters.blocks_repaired, 0);
    assert_int_equal(snapshot->n_processes, 1);
    rig_check_table(card);
    assert_int_equal(sim_card_alloc(card, 16 * MIB, &id), 0);
    assert_int_equal(sim_card_free(card, id), 0);
}

static int crash_everywhere(void (*operation)(struct sim_card *card))
{
    struct sim_card *card = rig_open(SIM_ROLE_ENGINE);
    uint64_t own = 0;
    int deaths = 0;

    assert_int_equal(sim_card_alloc(card, 7 * MIB, &own), 0);
    while (crash_once(operation, deaths)) {
        deaths++;
        expect_whole(card, 7 * MIB);
    }
    expect_whole(card, 7 * MIB);
    assert_true(deaths > 8);
    assert_true(rig_look(card)->counters.lock_recoveries > 0);
    assert_int_equal(sim_card_free(card, own), 0);
    sim_card_close(card);
    return deaths;
}

static void test_kill_at_every_point(void **state)
{
    static void (*const operations[])(struct sim_card * card) = {
        do_alloc, do_alloc_free, do_fail_alloc, do_graph, do_faults, do_leave, do_look,
    };
    int deaths = 0;

    (void)state;
    for (size_t i = 0; i < sizeof operations / sizeof operations[0]; i++)
        deaths += crash_everywhere(operations[i]);
    print_message("%d deaths in the critical section\n", deaths);
    assert_true(deaths > 150);
}

static void do_reset(struct sim_card *card)
{
    sim_card_reset(card);
}

/* A reset takes everybody's memory: half a reset may have taken some of it, never wrongly. */
static void test_kill_in_reset(void **state)
{
    (void)state;
    for (int point = 0;; point += 37) {
        struct sim_card *card = rig_open(SIM_ROLE_ENGINE);
        uint64_t id = 0;
        bool died;

        for (int i = 0; i < 4; i++)
            assert_int_equal(sim_card_alloc(card, MIB, &id), 0);
        died = crash_once(do_reset, point);
        rig_check_table(card);
        sim_card_close(card);
        card = rig_open(SIM_ROLE_ENGINE);
        rig_look(card);
        assert_int_equal(rig_look(card)->used_bytes, 0);
        assert_int_equal(sim_card_alloc(card, 64 * MIB, &id), 0);
        sim_card_close(card);
        if (!died)
            break;
    }
}

/* One dies holding the lock; the next dies while repairing; the third finds it whole. */
static void test_kill_in_repair(void **state)
{
    struct sim_card *card = rig_open(SIM_ROLE_ENGINE);
    uint64_t own = 0;

    (void)state;
    assert_int_equal(sim_card_alloc(card, 7 * MIB, &own), 0);
    for (int point = 0; point < 12; point++) {
        assert_true(crash_once(do_alloc, 6));
        crash_once(do_alloc_free, point);
        expect_whole(card, 7 * MIB);
    }
    sim_card_close(card);
}

struct loop {
    uint64_t seed;
};

static int loop_body(void *argument)
{
    struct loop *loop = argument;
    struct sim_card *card = rig_open(SIM_ROLE_ENGINE);
    uint64_t ids[16] = {0};

    for (;;) {
        size_t slot = rig_random(&loop->seed) % 16;

        if (ids[slot] != 0 && sim_card_free(card, ids[slot]) == 0)
            ids[slot] = 0;
        else if (sim_card_alloc(card, 1 + rig_random(&loop->seed) % (3 * MIB), &ids[slot]) < 0)
            ids[slot] = 0;
    }
    return 0;
}

/* Killed from outside after a random number of changes and nanoseconds. */
static void test_kill_at_random_times(void **state)
{
    struct sim_card *card = rig_open(SIM_ROLE_ENGINE);
    struct loop loop = {.seed = 4711};
    uint64_t own = 0;

    (void)state;
    assert_int_equal(sim_card_alloc(card, 7 * MIB, &own), 0);
    for (int round = 0; round < 300; round++) {
        uint32_t seen = sim_card_changes(card);
        uint32_t moves = 1 + rig_random(&loop.seed) % 40;
        struct timespec pause = {0, (long)(rig_random(&loop.seed) % 20000)};
        pid_t pid = rig_fork(loop_body, &loop);

        while (sim_card_changes(card) - seen < moves)
            sim_card_wait(card, sim_card_changes(card), 5);
        nanosleep(&pause, NULL);
        assert_int_equal(kill(pid, SIGKILL), 0);
        rig_reap(pid);
        expect_whole(card, 7 * MIB);
    }
    print_message("%llu of 300 held the lock\n",
                  (unsigned long long)rig_look(card)->counters.lock_recoveries);
    sim_card_close(card);
}

static int stop_at;

static void point_stop(void)
{
    if (stop_at-- == 0)
        kill(getpid(), SIGSTOP);
}

static int stop_body(void *argument)
{
    struct sim_card *card = rig_open(SIM_ROLE_ENGINE);
    uint64_t id = 0;

    stop_at = *(int *)argument;
    sim_test_point = point_stop;
    return sim_card_alloc(card, MIB, &id) == 0 ? 0 : 1;
}

/* A stopped holder is alive: others do not break in, they give up and say so. */
static void test_stopped_holder(void **state)
{
    struct sim_card *card = rig_open(SIM_ROLE_OBSERVER);
    struct sim_snapshot *snapshot = calloc(1, sizeof *snapshot);
    uint64_t before_ms = sim_lock_timeout_ms;
    int point = 3;
    int status = 0;
    pid_t pid = rig_fork(stop_body, &point);

    (void)state;
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    assert_true(WIFSTOPPED(status));
    sim_lock_timeout_ms = 50;
    assert_int_equal(sim_card_snapshot(card, snapshot), -ETIMEDOUT);
    sim_lock_timeout_ms = before_ms;
    assert_int_equal(kill(pid, SIGCONT), 0);
    assert_int_equal(rig_reap(pid), 0);
    assert_int_equal(sim_card_snapshot(card, snapshot), 0);
    assert_int_equal(snapshot->counters.lock_recoveries, 0);
    free(snapshot);
    sim_card_close(card);
}

/* Slots that no code of ours writes: the repair drops them rather than believe them. */
static void test_repair_drops_nonsense(void **state)
{
    struct sim_card *card = rig_open(SIM_ROLE_ENGINE);
    struct sim_block *blocks = card->shared->blocks;
    uint64_t id = 0;

    (void)state;
    assert_int_equal(sim_card_alloc(card, 4 * MIB, &id), 0);
    blocks[5] = blocks[0];
    blocks[5].id = 900; /* over the same bytes, younger */
    blocks[6] = blocks[0];
    blocks[6].offset = UINT64_MAX - 5; /* wraps */
    blocks[7] = blocks[0];
    blocks[7].state = 77;
    blocks[8] = blocks[0];
    blocks[8].offset = 8 * MIB;
    blocks[8].owner = 12345; /* of nobody: comes back like a dead one's */
    blocks[8].id = 901;
    sim_shared_repair(card->shared);
    rig_check_table(card);
    assert_int_equal(card->shared->counters.blocks_repaired, 3);
    assert_int_equal(blocks[8].state, SIM_SLOT_RELEASING);
    assert_true(card->shared->next_id > 901);
    assert_int_equal(rig_look(card)->used_bytes, 4 * MIB);
    sim_card_close(card);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_kill_at_every_point, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_kill_in_reset, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_kill_in_repair, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_kill_at_random_times, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_stopped_holder, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_repair_drops_nonsense, rig_setup, rig_teardown),
    };

    return cmocka_run_group_tests_name("sim_card_crash", tests, NULL, NULL);
}
