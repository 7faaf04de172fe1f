/*
 * fork and exec. Not uv_spawn(): it can set neither the death signal nor the OOM score in the child.
 * fork() and not vfork(): the gateway is small, and the child may then change its own state freely.
 *
 * The death signal reaches the child alone. A program that starts others gets a guard beside it: a
 * fork of the gateway that never execs, in the child's group, asleep on a pipe whose other end only
 * the gateway has.
 *
 *   gateway ── fork ──► child ── exec ──► program ──► what it starts
 *      │ pipe             └─ fork, fork ─► guard (init's child; the same process group)
 *      └──────────────────────────────────►  end of file: TERM to the group, grace, KILL
 *
 * It is nobody's child, so that neither the program nor the gateway meets an unknown one. While it
 * lives the group's number is nobody else's; every end of the group ends it, too.
 */
#include "worker/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Descriptors are kept above the ones that the child puts in place. */
enum { SPAWN_FD_ERROR = 3, SPAWN_FD_GUARD = 3, SPAWN_FD_FIRST = 10 };

struct child_plan {
    const struct process_spec *spec;
    pid_t parent;
    int null, out, err, error;
    int guard; /* read end; -1: no guard */
    char oom_score[16];
    size_t oom_score_len;
};

/* --- in the child: async-signal-safe only --- */

static _Noreturn void child_fail(int fd, int step)
{
    struct spawn_error e = {errno, step};
    ssize_t ignored = write(fd, &e, sizeof(e));

    (void)ignored;
    _exit(127);
}

static void child_reset_signals(void)
{
    struct sigaction action = {.sa_handler = SIG_DFL};
    sigset_t none;

    for (int sig = 1; sig < NSIG; sig++)
        sigaction(sig, &action, NULL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static void child_close_from(unsigned first)
{
    struct rlimit limit;

    if (syscall(SYS_close_range, first, ~0u, 0u) == 0)
        return;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur > 1048576)
        limit.rlim_cur = 1048576;
    for (int fd = (int)first; fd < (int)limit.rlim_cur; fd++)
        close(fd);
}

static void child_set_limits(const struct child_plan *plan)
{
    /* A core dump of an engine is gigabytes, and keeps its memory while it is written. */
    struct rlimit no_core = {0, 0};
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

    setrlimit(RLIMIT_CORE, &no_core);
    if (fd >= 0) {
        ssize_t ignored = write(fd, plan->oom_score, plan->oom_score_len);

        (void)ignored;
        close(fd);
    }
}

/* Every signal but KILL and STOP is blocked since the gateway's fork: TERM is not for the guard. */
static _Noreturn void guard_run(int fd, pid_t group)
{
    const struct timespec grace = {.tv_sec = SPAWN_GUARD_GRACE_MS / 1000,
                                   .tv_nsec = SPAWN_GUARD_GRACE_MS % 1000 * 1000000L};
    char byte;

    prctl(PR_SET_NAME, SPAWN_GUARD_NAME);
    if (dup2(fd, SPAWN_FD_GUARD) < 0)
        _exit(1);
    for (int i = 0; i < SPAWN_FD_GUARD; i++)
        close(i);
    child_close_from(SPAWN_FD_GUARD + 1);
    while (read(SPAWN_FD_GUARD, &byte, 1) < 0 && errno == EINTR)
        ;
    kill(-group, SIGTERM);
    kill(-group, SIGCONT); /* a stopped process takes no TERM */
    nanosleep(&grace, NULL);
    kill(-group, SIGKILL);
    _exit(0);
}

/* False: there is none. */
static bool child_fork_guard(const struct child_plan *plan)
{
    pid_t group = getpid();
    pid_t pid = plan->guard < 0 ? -1 : fork();
    int status;

    if (pid == 0) {
        /* In between, so that it is init's child and not the program's. */
        pid = fork();
        if (pid == 0)
            guard_run(plan->guard, group);
        _exit(pid < 0);
    }
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

static _Noreturn void child_run(const struct child_plan *plan)
{
    setpgid(0, 0);
    /* With a guard it may clean up: the guard sees to it that it ends. */
    prctl(PR_SET_PDEATHSIG, child_fork_guard(plan) ? SIGTERM : SIGKILL);
    if (getppid() != plan->parent)
        _exit(127); /* it died before the line above */
    if (dup2(plan->null, 0) < 0 || dup2(plan->out, 1) < 0 || dup2(plan->err, 2) < 0 ||
        dup3(plan->error, SPAWN_FD_ERROR, O_CLOEXEC) < 0)
        child_fail(plan->error, SPAWN_STEP_SETUP);
    child_close_from(SPAWN_FD_ERROR + 1);
    child_set_limits(plan);
    child_reset_signals();
    execve(plan->spec->program, plan->spec->argv, plan->spec->envp);
    child_fail(SPAWN_FD_ERROR, SPAWN_STEP_EXEC);
}

/* --- in the parent --- */

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* Moves a descriptor out of the way of 0 to 3. */
static int lift_fd(int *fd)
{
    int high;

    if (*fd >= SPAWN_FD_FIRST)
        return 0;
    high = fcntl(*fd, F_DUPFD_CLOEXEC, SPAWN_FD_FIRST);
    if (high < 0)
        return -errno;
    close(*fd);
    *fd = high;
    return 0;
}

static int open_pipe(int *ret_read, int *ret_write)
{
    int fds[2];
    int rc;

    if (pipe2(fds, O_CLOEXEC) < 0)
        return -errno;
    *ret_read = fds[0];
    *ret_write = fds[1];
    rc = lift_fd(ret_read);
    if (rc == 0)
        rc = lift_fd(ret_write);
    if (rc == 0 && fcntl(*ret_read, F_SETFL, O_NONBLOCK) < 0)
        rc = -errno;
    return rc;
}

/* Ends with the process that has its write end, however that ends. */
static int open_guard(int *ret_read, int *ret_write)
{
    int rc = open_pipe(ret_read, ret_write);

    if (rc == 0 && fcntl(*ret_read, F_SETFL, 0) < 0)
        rc = -errno;
    return rc;
}

static void plan_oom_score(struct child_plan *plan)
{
    char text[16] = "";
    long score = 0;
    int fd = open("/proc/self/oom_score_adj", O_RDONLY | O_CLOEXEC);
    int n;

    if (fd >= 0) {
        ssize_t got = read(fd, text, sizeof(text) - 1);

        if (got > 0)
            score = strtol(text, NULL, 10);
        close(fd);
    }
    score += plan->spec->oom_score_above;
    if (score > 1000)
        score = 1000;
    n = snprintf(plan->oom_score, sizeof(plan->oom_score), "%ld", score);
    plan->oom_score_len = n > 0 ? (size_t)n : 0;
}

static int fork_child(const struct child_plan *plan, pid_t *ret_pid)
{
    sigset_t all, before;
    pid_t pid;
    int rc = 0;

    /* Our handlers write to the loop's wake-up pipe, which the child still shares: let none run. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pid = fork();
    if (pid == 0)
        child_run(plan);
    if (pid < 0)
        rc = -errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc < 0)
        return rc;
    /* Here as well as in the child, so that the group exists when either goes on. */
    setpgid(pid, pid);
    *ret_pid = pid;
    return 0;
}

int spawn_process(const struct process_spec *spec, struct spawn_result *ret_result)
{
    struct child_plan plan = {.spec = spec,
                              .parent = getpid(),
                              .null = -1,
                              .out = -1,
                              .err = -1,
                              .error = -1,
                              .guard = -1};
    struct spawn_result r = {.pid = -1, .output = {-1, -1}, .error = -1, .guard = -1};
    int rc;

    plan.null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    rc = plan.null < 0 ? -errno : lift_fd(&plan.null);
    if (rc == 0)
        rc = open_pipe(&r.output[0], &plan.out);
    if (rc == 0)
        rc = open_pipe(&r.output[1], &plan.err);
    if (rc == 0)
        rc = open_pipe(&r.error, &plan.error);
    /* When the first process of a PID namespace ends, the kernel ends all that are in it. */
    if (rc == 0 && spec->guarded && plan.parent != 1)
        rc = open_guard(&plan.guard, &r.guard);
    if (rc < 0)
        goto out;
    plan_oom_score(&plan);
    rc = fork_child(&plan, &r.pid);
out:
    close_fd(&plan.null);
    close_fd(&plan.out);
    close_fd(&plan.err);
    close_fd(&plan.error);
    close_fd(&plan.guard);
    if (rc < 0) {
        close_fd(&r.output[0]);
        close_fd(&r.output[1]);
        close_fd(&r.error);
        close_fd(&r.guard);
        return rc;
    }
    *ret_result = r;
    return 0;
}
