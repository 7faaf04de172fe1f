/*
 * Child processes with real ones: what they inherit, how their end is seen, that nothing of them is
 * left, also when the parent is killed.
 */
#include "worker_rig.h"

#include "tests/unit/unit.h"
#include "worker/process.h"
#include "worker/spawn.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

struct child {
    struct process *process;
    struct process_exit exit;
    unsigned exits;
    char out[2][8192];
    size_t out_len[2];
    size_t total[2];
};

static void on_output(struct process *p, int stream, struct span bytes, void *ctx)
{
    struct child *c = ctx;
    int i = stream - 1;
    size_t room = sizeof(c->out[i]) - 1 - c->out_len[i];
    size_t n = bytes.len < room ? bytes.len : room;

    (void)p;
    memcpy(c->out[i] + c->out_len[i], bytes.ptr, n);
    c->out_len[i] += n;
    c->total[i] += bytes.len;
}

static void on_exit_seen(struct process *p, const struct process_exit *exit, void *ctx)
{
    struct child *c = ctx;

    assert_ptr_equal(p, c->process);
    c->exit = *exit;
    c->exits++;
    c->process = NULL;
}

static const struct process_events events = {on_output, on_exit_seen, NULL};

static bool has_exited(void *ctx)
{
    return ((struct child *)ctx)->exits > 0;
}

static struct rig rig;

static int setup(void **state)
{
    (void)state;
    rig_init(&rig);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    rig_end(&rig);
    return 0;
}

/* The guard of a group: its pid, or 0. */
static pid_t find_guard(pid_t group)
{
    DIR *dir = opendir("/proc");
    struct dirent *entry;
    pid_t found = 0;

    assert_non_null(dir);
    while ((entry = readdir(dir)) != NULL) {
        char path[300], line[512], name[64] = "";
        char state = '?';
        int pgrp = 0;
        FILE *file;

        snprintf(path, sizeof(path), "/proc/%s/stat", entry->d_name);
        file = entry->d_name[0] >= '1' && entry->d_name[0] <= '9' ? fopen(path, "re") : NULL;
        if (file == NULL)
            continue;
        if (fgets(line, sizeof(line), file) != NULL &&
            sscanf(line, "%*d (%63[^)]) %c %*d %d", name, &state, &pgrp) == 3 && pgrp == group &&
            strcmp(name, SPAWN_GUARD_NAME) == 0 && state != 'Z' && state != 'X')
            found = (pid_t)strtol(entry->d_name, NULL, 10);
        fclose(file);
    }
    closedir(dir);
    return found;
}

static char *const plain_env[] = {"PATH=/usr/bin:/bin", NULL};

static void spawn_shell(struct child *c, const char *script, bool without_pidfd)
{
    char *argv[] = {"sh", "-c", (char *)script, NULL};
    struct process_spec spec = {.program = "/bin/sh",
                                .argv = argv,
                                .envp = plain_env,
                                .oom_score_above = 100,
                                .without_pidfd = without_pidfd};

    *c = (struct child){.exits = 0};
    assert_int_equal(process_spawn(&rig.loop, &spec, &events, c, &c->process), 0);
    assert_true(process_pid(c->process) > 1);
}

static void status_and_output(void **state)
{
    struct child c;

    (void)state;
    for (int without_pidfd = 0; without_pidfd < 2; without_pidfd++) {
        spawn_shell(&c, "echo out; echo err >&2; exit 7", without_pidfd);
        rig_until(&rig, has_exited, &c);
        assert_int_equal(c.exit.exec_error, 0);
        assert_true(c.exit.known && !c.exit.signaled && !c.exit.asked);
        assert_int_equal(c.exit.code, 7);
        assert_string_equal(c.out[0], "out\n");
        assert_string_equal(c.out[1], "err\n");
    }
}

static void program_that_is_not_there(void **state)
{
    char *argv[] = {"x", NULL};
    struct process_spec spec = {.program = "/nonexistent/engine", .argv = argv, .envp = plain_env};
    struct child c = {.exits = 0};
    char text[256];

    (void)state;
    assert_int_equal(process_spawn(&rig.loop, &spec, &events, &c, &c.process), 0);
    rig_until(&rig, has_exited, &c);
    assert_int_equal(c.exit.exec_error, ENOENT);
    process_exit_text(&c.exit, text, sizeof(text));
    assert_non_null(strstr(text, "No such file"));
}

static void inherits_three_descriptors_and_no_more(void **state)
{
    struct child c;
    int pair[2];

    (void)state;
    /* Descriptors without close-on-exec, as a careless library opens them. */
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    assert_int_equal(dup2(pair[0], 200), 200);
    spawn_shell(&c, "ls /proc/self/fd | tr '\\n' ' '; readlink /proc/$$/fd/0", false);
    rig_until(&rig, has_exited, &c);
    close(pair[0]);
    close(pair[1]);
    close(200);
    assert_string_equal(c.out[0], "0 1 2 3 /dev/null\n"); /* ls has the folder as 3 */
}

/* What this test was started with; a build machine often gives its jobs one above 0. */
static int own_oom_score(void)
{
    FILE *file = fopen("/proc/self/oom_score_adj", "re");
    int score = 0;

    assert_non_null(file);
    assert_int_equal(fscanf(file, "%d", &score), 1);
    fclose(file);
    return score;
}

static void signals_group_and_oom_score(void **state)
{
    struct child c;
    char expected[64];
    struct sigaction ignore = {.sa_handler = SIG_IGN}, before;
    unsigned long long blocked, ignored;
    int score;

    (void)state;
    sigaction(SIGPIPE, &ignore, &before);
    spawn_shell(&c,
                "grep -E 'SigIgn|SigBlk' /proc/self/status | cut -f2 | tr '\\n' ' ';"
                "cat /proc/self/oom_score_adj; echo $$; ps -o pgid= -p $$ | tr -d ' ';"
                "ulimit -c",
                false);
    snprintf(expected, sizeof(expected), "%d\n%d\n", process_pid(c.process),
             process_pid(c.process));
    rig_until(&rig, has_exited, &c);
    sigaction(SIGPIPE, &before, NULL);
    assert_int_equal(sscanf(c.out[0], "%16llx %16llx %d\n", &blocked, &ignored, &score), 3);
    assert_int_equal(blocked, 0);
    /* 32 and 33 are the C library's own, out of reach of sigaction(); what GNU make starts with
     * posix_spawn() comes with 32 ignored. */
    assert_int_equal(ignored & ~(3ULL << 31), 0);
    assert_int_equal(score, own_oom_score() < 900 ? own_oom_score() + 100 : 1000);
    assert_non_null(strstr(c.out[0], expected));
    assert_string_equal(c.out[0] + c.out_len[0] - 3, "\n0\n"); /* no core dump */
}

static void killed_by_a_signal(void **state)
{
    struct child c;
    char text[256];

    (void)state;
    spawn_shell(&c, "kill -SEGV $$", false);
    rig_until(&rig, has_exited, &c);
    assert_true(c.exit.signaled);
    assert_int_equal(c.exit.code, SIGSEGV);
    process_exit_text(&c.exit, text, sizeof(text));
    assert_non_null(strstr(text, "SIGSEGV"));

    spawn_shell(&c, "kill -KILL $$", false);
    rig_until(&rig, has_exited, &c);
    assert_non_null(strstr(process_exit_hint(&c.exit), "want of memory"));
    c.exit.killed_by_us = true;
    assert_string_equal(process_exit_hint(&c.exit), "");
}

static void term_then_kill(void **state)
{
    struct child c;

    (void)state;
    /* Obeys TERM: KILL is not needed however long the grace. */
    spawn_shell(&c, "trap 'exit 3' TERM; echo ready; while :; do sleep 0.01; done", false);
    while (c.total[0] == 0)
        uv_run(&rig.loop, UV_RUN_ONCE);
    process_stop(c.process, 60000);
    rig_until(&rig, has_exited, &c);
    assert_false(c.exit.signaled);
    assert_int_equal(c.exit.code, 3);
    assert_true(c.exit.asked && !c.exit.killed_by_us);

    /* Ignores TERM: KILL after the grace; a second stop may shorten it. */
    spawn_shell(&c, "trap '' TERM; echo ready; while :; do sleep 0.01; done", false);
    while (c.total[0] == 0)
        uv_run(&rig.loop, UV_RUN_ONCE);
    process_stop(c.process, 60000);
    process_stop(c.process, 30);
    process_stop(c.process, 60000);
    rig_until(&rig, has_exited, &c);
    assert_true(c.exit.signaled && c.exit.killed_by_us);
    assert_int_equal(c.exit.code, SIGKILL);
}

static void stopped_process_takes_term(void **state)
{
    struct child c;
    siginfo_t info;

    (void)state;
    spawn_shell(&c, "kill -STOP $$; exit 5", false);
    assert_int_equal(waitid(P_PID, (id_t)process_pid(c.process), &info, WSTOPPED | WNOWAIT), 0);
    process_stop(c.process, 60000);
    rig_until(&rig, has_exited, &c);
    assert_true(c.exit.asked && !c.exit.killed_by_us);
}

static void group_goes_with_the_leader(void **state)
{
    struct child c;
    pid_t grandchild;

    (void)state;
    /* Holds the output pipes, ignores TERM, and its parent exits by itself. */
    spawn_shell(&c, "(trap '' TERM; exec sleep 1000) & echo $!; exit 0", false);
    rig_until(&rig, has_exited, &c);
    grandchild = (pid_t)strtol(c.out[0], NULL, 10);
    assert_true(grandchild > 1);
    rig_until_gone(&rig, grandchild);
}

static void flood_is_read_to_the_end(void **state)
{
    struct child c;

    (void)state;
    spawn_shell(&c, "head -c 3000000 /dev/zero; head -c 1000000 /dev/zero >&2", false);
    rig_until(&rig, has_exited, &c);
    assert_int_equal(c.exit.code, 0);
    assert_int_equal(c.total[0], 3000000);
    assert_int_equal(c.total[1], 1000000);
}

static void abandoned_is_killed_and_reaped(void **state)
{
    struct child c;
    pid_t pid;

    (void)state;
    spawn_shell(&c, "trap '' TERM; echo x; while :; do sleep 1; done", false);
    while (c.total[0] == 0)
        uv_run(&rig.loop, UV_RUN_ONCE);
    pid = process_pid(c.process);
    process_abandon(c.process);
    rig_until_gone(&rig, pid);
    assert_int_equal(c.exits, 0);
    /* teardown: no child is left, the loop is empty */
}

static void reaped_by_somebody_else(void **state)
{
    struct child c;
    int status;

    (void)state;
    spawn_shell(&c, "exit 0", false);
    assert_int_equal(waitpid(process_pid(c.process), &status, 0), process_pid(c.process));
    rig_until(&rig, has_exited, &c);
    assert_false(c.exit.known);
}

static void check_sees_an_exit_before_the_loop_does(void **state)
{
    struct child c;
    siginfo_t info;

    (void)state;
    spawn_shell(&c, "echo last words; exit 9", false);
    assert_int_equal(waitid(P_PID, (id_t)process_pid(c.process), &info, WEXITED | WNOWAIT), 0);
    process_check(c.process);
    assert_int_equal(c.exits, 1);
    assert_int_equal(c.exit.code, 9);
    assert_string_equal(c.out[0], "last words\n"); /* handed out before the exit */
}

/* A gateway of its own that spawns one child, says the pids of it and of what it printed, and is
 * killed with -9. */
static void run_gateway_that_dies(int fd, const char *script, bool guarded)
{
    char *argv[] = {"sh", "-c", (char *)script, NULL};
    struct process_spec spec = {
        .program = "/bin/sh", .argv = argv, .envp = plain_env, .guarded = guarded};
    struct child c = {.exits = 0};
    uv_loop_t loop;
    pid_t pids[2];

    uv_loop_init(&loop);
    if (process_spawn(&loop, &spec, &events, &c, &c.process) < 0)
        _exit(1);
    /* Not before it runs: until then it would see by itself that its parent is gone. */
    while (strchr(c.out[0], '\n') == NULL)
        uv_run(&loop, UV_RUN_ONCE);
    pids[0] = process_pid(c.process);
    pids[1] = (pid_t)strtol(c.out[0], NULL, 10);
    if (write(fd, pids, sizeof(pids)) != (ssize_t)sizeof(pids))
        _exit(1);
    for (;;)
        pause();
}

static void kill_a_gateway(const char *script, bool guarded, pid_t pids[2])
{
    int fds[2], status;
    pid_t gateway;

    assert_int_equal(pipe(fds), 0);
    gateway = fork();
    assert_true(gateway >= 0);
    if (gateway == 0)
        run_gateway_that_dies(fds[1], script, guarded);
    close(fds[1]);
    assert_int_equal(read(fds[0], pids, 2 * sizeof(pids[0])), 2 * sizeof(pids[0]));
    close(fds[0]);
    assert_true(rig_is_alive(pids[0]) && rig_is_alive(pids[1]));
    assert_int_equal(find_guard(pids[0]) != 0, guarded);
    kill(gateway, SIGKILL);
    assert_int_equal(waitpid(gateway, &status, 0), gateway);
}

static void child_dies_with_the_gateway(void **state)
{
    pid_t pids[2];

    (void)state;
    kill_a_gateway("trap '' TERM INT HUP; echo $$; exec sleep 1000", false, pids);
    rig_until_gone(&rig, pids[0]);
}

static bool guard_is_gone(void *ctx)
{
    return find_guard(*(pid_t *)ctx) == 0;
}

/* Parent, child, and the guard itself; whatever they think of TERM. */
static void guarded_group_dies_with_the_gateway(void **state)
{
    pid_t pids[2];

    (void)state;
    kill_a_gateway("trap '' TERM HUP; (exec sleep 1000) & echo $!; while :; do wait; done", true,
                   pids);
    rig_until_gone(&rig, pids[1]);
    rig_until_gone(&rig, pids[0]);
    rig_until(&rig, guard_is_gone, &pids[0]);
}

/* One that ends by itself at TERM, with a child that does not. Nobody reads its outputs any more. */
static void guarded_child_may_clean_up(void **state)
{
    char script[512], path[256];
    pid_t pids[2];

    (void)state;
    rig_path(&rig, "cleaned", path, sizeof(path));
    snprintf(script, sizeof(script),
             "(trap '' TERM; exec sleep 1000) & trap 'echo $! >%s; exit 0' TERM; trap '' PIPE;"
             "echo $!; while :; do sleep 0.01; done",
             path);
    kill_a_gateway(script, true, pids);
    rig_until_file(&rig, "cleaned");
    rig_until_gone(&rig, pids[0]);
    rig_until_gone(&rig, pids[1]);
}

/* An ordinary end: nothing of it is left either, and the program never met it. */
static void a_guard_ends_with_its_group(void **state)
{
    struct child c;
    pid_t group;
    char *argv[] = {
        "sh", "-c",
        "trap 'exit 4' TERM; ps -o comm= --ppid $$; echo x; while :; do sleep 0.01; done", NULL};
    struct process_spec spec = {
        .program = "/bin/sh", .argv = argv, .envp = plain_env, .guarded = true};

    (void)state;
    c = (struct child){.exits = 0};
    assert_int_equal(process_spawn(&rig.loop, &spec, &events, &c, &c.process), 0);
    while (strchr(c.out[0], 'x') == NULL)
        uv_run(&rig.loop, UV_RUN_ONCE);
    assert_null(strstr(c.out[0], SPAWN_GUARD_NAME));
    group = process_pid(c.process);
    assert_int_not_equal(find_guard(group), 0);
    assert_int_equal(getpgid(find_guard(group)), group);
    process_stop(c.process, 60000);
    rig_until(&rig, has_exited, &c);
    assert_int_equal(c.exit.code, 4);
    rig_until(&rig, guard_is_gone, &group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(status_and_output, setup, teardown),
        cmocka_unit_test_setup_teardown(program_that_is_not_there, setup, teardown),
        cmocka_unit_test_setup_teardown(inherits_three_descriptors_and_no_more, setup, teardown),
        cmocka_unit_test_setup_teardown(signals_group_and_oom_score, setup, teardown),
        cmocka_unit_test_setup_teardown(killed_by_a_signal, setup, teardown),
        cmocka_unit_test_setup_teardown(term_then_kill, setup, teardown),
        cmocka_unit_test_setup_teardown(stopped_process_takes_term, setup, teardown),
        cmocka_unit_test_setup_teardown(group_goes_with_the_leader, setup, teardown),
        cmocka_unit_test_setup_teardown(flood_is_read_to_the_end, setup, teardown),
        cmocka_unit_test_setup_teardown(abandoned_is_killed_and_reaped, setup, teardown),
        cmocka_unit_test_setup_teardown(reaped_by_somebody_else, setup, teardown),
        cmocka_unit_test_setup_teardown(check_sees_an_exit_before_the_loop_does, setup, teardown),
        cmocka_unit_test_setup_teardown(child_dies_with_the_gateway, setup, teardown),
        cmocka_unit_test_setup_teardown(guarded_group_dies_with_the_gateway, setup, teardown),
        cmocka_unit_test_setup_teardown(guarded_child_may_clean_up, setup, teardown),
        cmocka_unit_test_setup_teardown(a_guard_ends_with_its_group, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
