/*
 * Watching and ending a child process; see process.h for states and invariants. The exit is seen
 * through a pidfd in the loop, at once and without a SIGCHLD handler that other code may replace.
 */
#include "worker/process.h"

#include "worker/spawn.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROCESS_LOOK_MS = 50, PROCESS_DRAIN_BYTES = 1024 * 1024 };

/* The KILL timer has three uses, one after the other. */
enum process_wait { PROCESS_WAIT_NONE, PROCESS_WAIT_GRACE, PROCESS_WAIT_STUCK };

struct process {
    uv_loop_t *loop;
    const struct process_events *events; /* NULL: abandoned */
    void *ctx;
    pid_t pid;
    int output_fd[2]; /* -1: closed */
    int error_fd;
    int guard_fd; /* -1: no guard */
    int pidfd;    /* -1: none, looked at by look_timer */
    bool exited;
    bool term_sent, kill_sent, stuck;
    enum process_wait waiting;
    uv_poll_t output_poll[2];
    uv_poll_t exit_poll;
    uv_timer_t look_timer;
    uv_timer_t wait_timer;
    unsigned open_handles;
};

static void handle_closed(uv_handle_t *handle)
{
    struct process *p = handle->data;

    if (--p->open_handles == 0)
        free(p);
}

static void handle_close(uv_handle_t *handle)
{
    if (!uv_is_closing(handle))
        uv_close(handle, handle_closed);
}

static void handle_add(struct process *p, uv_handle_t *handle)
{
    handle->data = p;
    p->open_handles++;
}

static void close_output(struct process *p, int index)
{
    if (p->output_fd[index] < 0)
        return;
    handle_close((uv_handle_t *)&p->output_poll[index]);
    close(p->output_fd[index]);
    p->output_fd[index] = -1;
}

/* Closes everything; the struct is freed in the next loop turn. */
static void process_finish(struct process *p)
{
    p->exited = true;
    close_output(p, 0);
    close_output(p, 1);
    if (p->pidfd >= 0) {
        handle_close((uv_handle_t *)&p->exit_poll);
        close(p->pidfd);
        p->pidfd = -1;
    }
    if (p->error_fd >= 0)
        close(p->error_fd);
    p->error_fd = -1;
    if (p->guard_fd >= 0)
        close(p->guard_fd);
    p->guard_fd = -1;
    handle_close((uv_handle_t *)&p->look_timer);
    handle_close((uv_handle_t *)&p->wait_timer);
}

/* Reads what is there, up to max_bytes. False: the pipe has been closed by all writers. */
static bool read_output(struct process *p, int index, size_t max_bytes)
{
    char bytes[16 * 1024];
    size_t total = 0;

    while (total < max_bytes && p->output_fd[index] >= 0) {
        ssize_t n = read(p->output_fd[index], bytes, sizeof(bytes));

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN;
        if (n == 0)
            return false;
        total += (size_t)n;
        if (p->events != NULL && p->events->on_output != NULL)
            p->events->on_output(p, index + 1, (struct span){bytes, (size_t)n}, p->ctx);
    }
    return true;
}

static void on_output_ready(uv_poll_t *poll, int status, int events)
{
    struct process *p = poll->data;
    int index = poll == &p->output_poll[0] ? 0 : 1;

    (void)events;
    if (status < 0 || !read_output(p, index, PROCESS_READ_BYTES))
        close_output(p, index);
}

static void read_exec_error(struct process *p, struct process_exit *exit)
{
    struct spawn_error e;

    if (p->error_fd < 0 || read(p->error_fd, &e, sizeof(e)) != (ssize_t)sizeof(e))
        return;
    exit->exec_error = e.error > 0 ? e.error : EIO;
    exit->step = e.step == SPAWN_STEP_EXEC ? "exec" : "set-up";
}

/* The leader is gone. What is left of its group goes, too, while the number still is ours. */
static void process_reap(struct process *p, const siginfo_t *info)
{
    const struct process_events *events;
    struct process_exit exit = {.killed_by_us = p->kill_sent,
                                .asked = p->term_sent || p->kill_sent};

    if (info != NULL) {
        siginfo_t ignored;

        kill(-p->pid, SIGKILL);
        waitid(P_PID, (id_t)p->pid, &ignored, WEXITED | WNOHANG);
        exit.known = true;
        exit.signaled = info->si_code != CLD_EXITED;
        exit.code = info->si_status;
    }
    p->exited = true;
    read_exec_error(p, &exit);
    read_output(p, 0, PROCESS_DRAIN_BYTES);
    read_output(p, 1, PROCESS_DRAIN_BYTES);
    events = p->events; /* a callback may have abandoned us */
    process_finish(p);
    if (events != NULL && events->on_exit != NULL)
        events->on_exit(p, &exit, p->ctx);
}

void process_check(struct process *p)
{
    siginfo_t info;

    if (p->exited)
        return;
    memset(&info, 0, sizeof(info));
    if (waitid(P_PID, (id_t)p->pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0) {
        if (errno == ECHILD)
            process_reap(p, NULL);
        return;
    }
    if (info.si_pid == p->pid)
        process_reap(p, &info);
}

static void on_pidfd_ready(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    process_check(poll->data);
}

static void on_look(uv_timer_t *timer)
{
    process_check(timer->data);
}

/* --- ending --- */

static void signal_group(struct process *p, int sig)
{
    if (!p->exited)
        kill(-p->pid, sig);
}

static void on_wait_over(uv_timer_t *timer)
{
    struct process *p = timer->data;

    if (p->waiting == PROCESS_WAIT_GRACE) {
        process_kill(p);
        return;
    }
    p->waiting = PROCESS_WAIT_NONE;
    if (p->events == NULL) {
        process_finish(p); /* abandoned and unkillable: init reaps it one day */
    } else if (!p->stuck) {
        p->stuck = true;
        if (p->events->on_stuck != NULL)
            p->events->on_stuck(p, p->ctx);
    }
}

void process_stop(struct process *p, uint64_t grace_ms)
{
    if (p->exited || p->kill_sent)
        return;
    if (!p->term_sent) {
        p->term_sent = true;
        signal_group(p, SIGTERM);
        signal_group(p, SIGCONT); /* a stopped process takes no TERM */
    } else if (p->waiting == PROCESS_WAIT_GRACE &&
               uv_timer_get_due_in(&p->wait_timer) <= grace_ms) {
        return;
    }
    p->waiting = PROCESS_WAIT_GRACE;
    uv_timer_start(&p->wait_timer, on_wait_over, grace_ms, 0);
}

void process_kill(struct process *p)
{
    if (p->exited)
        return;
    signal_group(p, SIGKILL);
    if (p->kill_sent)
        return;
    p->kill_sent = true;
    p->waiting = PROCESS_WAIT_STUCK;
    uv_timer_start(&p->wait_timer, on_wait_over, PROCESS_STUCK_MS, 0);
}

void process_read_now(struct process *p)
{
    read_output(p, 0, PROCESS_DRAIN_BYTES);
    read_output(p, 1, PROCESS_DRAIN_BYTES);
}

void process_abandon(struct process *p)
{
    if (p == NULL)
        return;
    p->events = NULL;
    if (p->exited)
        return;
    if (p->stuck)
        process_finish(p);
    else
        process_kill(p);
}

/* --- starting --- */

static void watch_output(struct process *p, int index)
{
    if (uv_poll_init(p->loop, &p->output_poll[index], p->output_fd[index]) < 0) {
        /* Without a reader the engine would stop at a full pipe; a closed one it survives or not. */
        close(p->output_fd[index]);
        p->output_fd[index] = -1;
        return;
    }
    handle_add(p, (uv_handle_t *)&p->output_poll[index]);
    uv_poll_start(&p->output_poll[index], UV_READABLE, on_output_ready);
}

static void watch_exit(struct process *p, bool without_pidfd)
{
    long fd = without_pidfd ? -1 : syscall(SYS_pidfd_open, p->pid, 0);

    p->pidfd = (int)fd;
    if (p->pidfd >= 0 && uv_poll_init(p->loop, &p->exit_poll, p->pidfd) < 0) {
        close(p->pidfd);
        p->pidfd = -1;
    }
    if (p->pidfd >= 0) {
        handle_add(p, (uv_handle_t *)&p->exit_poll);
        uv_poll_start(&p->exit_poll, UV_READABLE, on_pidfd_ready);
    } else {
        p->pidfd = -1;
        uv_timer_start(&p->look_timer, on_look, PROCESS_LOOK_MS, PROCESS_LOOK_MS);
    }
}

int process_spawn(uv_loop_t *loop, const struct process_spec *spec,
                  const struct process_events *events, void *ctx, struct process **ret_process)
{
    struct process *p = calloc(1, sizeof(*p));
    struct spawn_result r;
    int rc;

    if (p == NULL)
        return -ENOMEM;
    rc = spawn_process(spec, &r);
    if (rc < 0) {
        free(p);
        return rc;
    }
    p->loop = loop;
    p->events = events;
    p->ctx = ctx;
    p->pid = r.pid;
    p->output_fd[0] = r.output[0];
    p->output_fd[1] = r.output[1];
    p->error_fd = r.error;
    p->guard_fd = r.guard;
    uv_timer_init(loop, &p->look_timer);
    handle_add(p, (uv_handle_t *)&p->look_timer);
    uv_timer_init(loop, &p->wait_timer);
    handle_add(p, (uv_handle_t *)&p->wait_timer);
    watch_output(p, 0);
    watch_output(p, 1);
    watch_exit(p, spec->without_pidfd);
    *ret_process = p;
    return 0;
}

int process_pid(const struct process *p)
{
    return (int)p->pid;
}

static const char *signal_name(int sig)
{
    switch (sig) {
    case SIGABRT: return "SIGABRT";
    case SIGBUS: return "SIGBUS";
    case SIGFPE: return "SIGFPE";
    case SIGHUP: return "SIGHUP";
    case SIGILL: return "SIGILL";
    case SIGINT: return "SIGINT";
    case SIGKILL: return "SIGKILL";
    case SIGPIPE: return "SIGPIPE";
    case SIGSEGV: return "SIGSEGV";
    case SIGSYS: return "SIGSYS";
    case SIGTERM: return "SIGTERM";
    case SIGTRAP: return "SIGTRAP";
    default: return strsignal(sig);
    }
}

char *process_exit_text(const struct process_exit *exit, char *out, size_t out_size)
{
    if (exit->exec_error != 0)
        snprintf(out, out_size, "could not be run (%s): %s", exit->step,
                 strerror(exit->exec_error));
    else if (!exit->known)
        snprintf(out, out_size, "is gone, its status was taken by somebody else");
    else if (!exit->signaled)
        snprintf(out, out_size, "exited with status %d", exit->code);
    else
        snprintf(out, out_size, "was ended by signal %d (%s)", exit->code, signal_name(exit->code));
    return out;
}

const char *process_exit_hint(const struct process_exit *exit)
{
    if (!exit->known || !exit->signaled)
        return "";
    if (exit->code == SIGKILL && !exit->killed_by_us)
        return "perhaps by the kernel for want of memory";
    if (exit->code == SIGILL)
        return "perhaps it was built for another processor";
    return "";
}
