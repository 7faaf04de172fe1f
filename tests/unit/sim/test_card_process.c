/*
 * Whose memory it is, when a process counts as dead, and when the memory is back.
 */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "card_rig.h"

static uint64_t fake_ms = 1000000;

static uint64_t fake_now(void)
{
    return fake_ms;
}

static int exit_body(void *argument)
{
    return argument == NULL ? 0 : 1;
}

static void test_process_start(void **state)
{
    uint64_t before = 0;
    uint64_t after = 0;
    siginfo_t info;
    pid_t pid;

    (void)state;
    assert_int_equal(sim_process_start((int32_t)getpid(), &before), 0);
    assert_true(before > 0);
    /* A name that looks like the fields after it. */
    assert_int_equal(prctl(PR_SET_NAME, "x) Z 1 (y"), 0);
    assert_int_equal(sim_process_start((int32_t)getpid(), &after), 0);
    assert_int_equal(before, after);
    pid = rig_fork(exit_body, NULL);
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    assert_int_equal(sim_process_start(pid, &after), -ESRCH); /* a zombie */
    rig_reap(pid);
    assert_int_equal(sim_process_start(pid, &after), -ESRCH);
}

static int hold_body(void *argument)
{
    struct sim_card *card = rig_open(SIM_ROLE_ENGINE);
    uint64_t id = 0;

    if (sim_card_alloc(card, 20 * MIB, &id) < 0)
        return 1;
    if (argument != NULL) {
        sim_card_close(card);
        return 0;
    }
    for (;;)
        pause();
}

static void hold_until_seen(struct sim_card *card)
{
    for (uint32_t seen = sim_card_changes(card); rig_look(card)->used_bytes != 20 * MIB;
         seen = sim_card_changes(card))
        sim_card_wait(card, seen, 1000);
}

static void test_release_delay(void **state)
{
    struct sim_card *card = rig_open(SIM_ROLE_ENGINE);
    struct sim_settings settings = {.release_delay_ms = 3000};
    const struct sim_snapshot *snapshot;
    uint64_t id = 0;
    pid_t pid;

    (void)state;
    sim_test_now_ms = fake_now;
    assert_int_equal(sim_card_set(card, &settings, SIM_SET_RELEASE_DELAY), 0);
    pid = rig_fork(hold_body, NULL);
    hold_until_seen(card);
    kill(pid, SIGKILL);
    rig_reap(pid);
    snapshot = rig_look(card);
    assert_int_equal(snapshot->releasing_bytes, 20 * MIB);
    assert_int_equal(snapshot->used_bytes, 20 * MIB);
    assert_int_equal(snapshot->free_bytes, 44 * MIB);
    assert_int_equal(snapshot->release_in_ms, 3000);
    assert_int_equal(snapshot->n_processes, 1);
    fake_ms += 2999;
    assert_int_equal(sim_card_alloc(card, 50 * MIB, &id), -ENOMEM);
    assert_int_equal(rig_look(card)->release_in_ms, 1);
    fake_ms += 1;
    assert_int_equal(sim_card_alloc(card, 50 * MIB, &id), 0);
    assert_int_equal(rig_look(card)->releasing_bytes, 0);
    assert_int_equal(rig_look(card)->counters.processes_died, 1);
    sim_card_close(card);
}

static void test_orderly_close_is_at_once(void **state)
{
    struct sim_card *card = rig_open(SIM_ROLE_OBSERVER);
    struct sim_settings settings = {.release_delay_ms = 3000};

    (void)state;
    sim_test_now_ms = fake_now;
    assert_int_equal(sim_card_set(card, &settings, SIM_SET_RELEASE_DELAY), 0);
    assert_int_equal(rig_reap(rig_fork(hold_body, card)), 0);
    assert_int_equal(rig_look(card)->used_bytes, 0);
    assert_int_equal(rig_look(card)->counters.processes_died, 0);
    sim_card_close(card);
}

/* The pid lives, but it is another process than the one that attached. */
static void test_reused_pid(void **state)
{
    struct sim_card *mine = rig_open(SIM_ROLE_ENGINE);
    struct sim_card *card = rig_open(SIM_ROLE_OBSERVER);
    struct sim_attachment *attachment;
    uint64_t id = 0;

    (void)state;
    assert_int_equal(sim_card_alloc(mine, 20 * MIB, &id), 0);
    assert_int_equal(rig_look(card)->used_bytes, 20 * MIB);
    attachment = sim_attachment_find(card->shared, mine->attachment);
    assert_non_null(attachment);
    attachment->start_ticks--;
    assert_int_equal(rig_look(card)->n_processes, 0);
    assert_int_equal(rig_look(card)->used_bytes, 0);
    /* Its late free finds nothing, least of all another's block. */
    assert_int_equal(sim_card_free(mine, id), -ENOENT);
    sim_card_close(mine);
    sim_card_close(card);
}

static void test_use_by_process(void **state)
{
    struct sim_card *a = rig_open(SIM_ROLE_ENGINE);
    struct sim_card *b = rig_open(SIM_ROLE_HOG);
    const struct sim_snapshot *snapshot;
    uint64_t id = 0;

    (void)state;
    assert_int_equal(sim_card_alloc(a, 3 * MIB, &id), 0);
    assert_int_equal(sim_card_alloc(b, 5 * MIB, &id), 0);
    assert_int_equal(sim_card_alloc(a, 4 * MIB, &id), 0);
    snapshot = rig_look(a);
    assert_int_equal(snapshot->n_processes, 2);
    assert_int_equal(snapshot->processes[0].pid, getpid());
    assert_int_equal(snapshot->processes[0].role, SIM_ROLE_ENGINE);
    assert_int_equal(snapshot->processes[0].used_bytes, 7 * MIB);
    assert_int_equal(snapshot->processes[1].role, SIM_ROLE_HOG);
    assert_int_equal(snapshot->processes[1].used_bytes, 5 * MIB);
    sim_card_close(a);
    assert_int_equal(rig_look(b)->used_bytes, 5 * MIB);
    sim_card_close(b);
}

static void test_table_of_processes_full(void **state)
{
    struct sim_card *cards[SIM_PROCESSES_MAX];
    struct sim_card *more = NULL;
    char why[SIM_WHY_MAX] = "";

    (void)state;
    for (size_t i = 0; i < SIM_PROCESSES_MAX; i++)
        cards[i] = rig_open(SIM_ROLE_ENGINE);
    assert_int_equal(sim_card_open("t", SIM_ROLE_ENGINE, &more, why, sizeof why), -EUSERS);
    assert_non_null(strstr(why, "no room for another process"));
    sim_card_close(cards[9]);
    assert_int_equal(sim_card_open("t", SIM_ROLE_ENGINE, &cards[9], why, sizeof why), 0);
    for (size_t i = 0; i < SIM_PROCESSES_MAX; i++)
        sim_card_close(cards[i]);
}

static void test_events_say_what_happened(void **state)
{
    struct sim_card *card = rig_open(SIM_ROLE_OBSERVER);
    const struct sim_snapshot *snapshot;
    pid_t pid = rig_fork(hold_body, NULL);
    bool died = false;

    (void)state;
    hold_until_seen(card);
    kill(pid, SIGKILL);
    rig_reap(pid);
    rig_look(card);
    snapshot = rig_look(card);
    for (size_t i = 0; i < snapshot->n_events; i++) {
        const struct sim_event *event = &snapshot->events[i];

        died |=
            event->kind == SIM_EVENT_PROCESS_DIED && event->pid == pid && event->bytes == 20 * MIB;
        assert_true(i == 0 || event->seq == snapshot->events[i - 1].seq + 1);
    }
    assert_true(died);
    assert_string_equal(sim_event_name((enum sim_event_kind)snapshot->events[0].kind), "created");
    sim_card_close(card);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_process_start),
        cmocka_unit_test_setup_teardown(test_release_delay, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_orderly_close_is_at_once, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_reused_pid, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_use_by_process, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_table_of_processes_full, rig_setup, rig_teardown),
        cmocka_unit_test_setup_teardown(test_events_say_what_happened, rig_setup, rig_teardown),
    };

    return cmocka_run_group_tests_name("sim_card_process", tests, NULL, NULL);
}
