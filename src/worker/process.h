/*
 * A child process: started in its own process group, watched, ended on demand, never left behind.
 * Knows nothing of engines.
 *
 *   spawned ──→ running ──process_stop──→ TERM sent ──grace over──→ KILL sent ──→ exited (on_exit)
 *                  └────────────────────── process_kill ───────────────↑   └ 5 s: on_stuck, once
 *
 * Invariants
 *   - A signal goes out only between fork and reap. Until we reap it, the kernel gives neither the
 *     pid nor the group's number to anybody else, so no stranger is ever hit.
 *   - What is left of the group gets KILL when the leader has exited, before it is reaped.
 *   - The child inherits descriptors 0 (/dev/null), 1 and 2 (pipes to us) and nothing else; default
 *     signal dispositions; no core dump.
 *   - It gets KILL when the thread that spawned it ends (PR_SET_PDEATHSIG is tied to the thread, not
 *     the process), so also when the gateway is killed with -9. Only the child itself; a guarded one
 *     gets TERM, and a guard ends its whole group (TERM, grace, KILL): see spawn.c.
 *   - Both pipes are always read, up to PROCESS_READ_BYTES a turn of the loop.
 *
 * One loop thread. The struct frees itself after on_exit, or after process_abandon().
 */
#ifndef FAILSOFT_WORKER_PROCESS_H
#define FAILSOFT_WORKER_PROCESS_H

#include "base/span.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct process;

enum { PROCESS_READ_BYTES = 64 * 1024, PROCESS_STUCK_MS = 5000 };

struct process_spec {
    const char *program; /* path; not looked up */
    char *const *argv;
    char *const *envp;
    int oom_score_above; /* added to our own oom_score_adj; the sum is cut to 1000 */
    bool guarded;        /* it may start others, which shall not survive the gateway */
    bool without_pidfd;  /* as on a kernel without pidfd_open(2): look every 50 ms; for tests */
};

struct process_exit {
    int exec_error;    /* the program never ran: a positive errno, else 0 */
    const char *step;  /* what failed then: "exec", … */
    bool known;        /* status known (somebody else may have reaped it) */
    bool signaled;     /* ended by a signal that `code` names */
    bool killed_by_us; /* KILL was ours */
    bool asked;        /* TERM or KILL was sent by us before it ended */
    int code;          /* exit status or signal number */
};

struct process_events {
    /* Output: stream 1 (stdout) or 2 (stderr). Valid during the call. */
    void (*on_output)(struct process *p, int stream, struct span bytes, void *ctx);
    /* Gone and reaped, all output handed out. The process is invalid afterwards. */
    void (*on_exit)(struct process *p, const struct process_exit *exit, void *ctx);
    /* KILL was sent PROCESS_STUCK_MS ago and it is still there (uninterruptible in a driver). */
    void (*on_stuck)(struct process *p, void *ctx);
};

/*
 * Starts a process. `events` is borrowed and must outlive it. A program that can not be executed is
 * an exit with exec_error. 0; -EMFILE, -ENFILE, -EAGAIN (process limit), -ENOMEM.
 */
int process_spawn(uv_loop_t *loop, const struct process_spec *spec,
                  const struct process_events *events, void *ctx, struct process **ret_process);

/* TERM to the group, KILL after grace_ms. A later call may shorten the wait, never lengthen it. */
void process_stop(struct process *p, uint64_t grace_ms);
/* KILL to the group. */
void process_kill(struct process *p);
/* Looks now whether it has exited; on_exit may be called from inside. */
void process_check(struct process *p);
/* Hands out the output that is there already. */
void process_read_now(struct process *p);
/* KILL; no callback any more; frees itself once reaped, or gives up after PROCESS_STUCK_MS. */
void process_abandon(struct process *p);

int process_pid(const struct process *p);

/* "exited with status 1", "was ended by signal 9 (SIGKILL)", … into out; returns out. */
char *process_exit_text(const struct process_exit *exit, char *out, size_t out_size);
/* What such an end most likely means, "" when it says enough. */
const char *process_exit_hint(const struct process_exit *exit);

#endif
