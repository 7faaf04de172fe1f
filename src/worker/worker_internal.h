/*
 * What worker.c (lifetime, commands, accessors), supervise.c (the managed engine) and external.c
 * (finding out an external engine) share. Private to them.
 *
 * Memory: a worker is freed when every handle in it is closed and no job runs (open_handles,
 * job_running). Callbacks may destroy the worker: after worker_set_state() or an event, code looks at
 * `destroying` before it goes on; the memory itself stays until the loop's next turn.
 */
#ifndef FAILSOFT_WORKER_WORKER_INTERNAL_H
#define FAILSOFT_WORKER_WORKER_INTERNAL_H

#include "http/ask.h"
#include "http/client.h"
#include "worker/command.h"
#include "worker/load_report.h"
#include "worker/log_tail.h"
#include "worker/port.h"
#include "worker/preflight.h"
#include "worker/probe.h"
#include "worker/process.h"
#include "worker/run_dir.h"
#include "worker/worker.h"

enum { WORKER_REASON_BYTES = 768, WORKER_STOP_WAITERS = 8 };

/* Output of the engine; managed workers only, for its size. */
struct worker_output {
    struct log_assembler assembler[2];
    struct log_tail tail;
    struct load_report report;
};

struct worker_stop_waiter {
    void (*on_stopped)(struct worker *w, void *ctx);
    void *ctx;
};

struct worker {
    uv_loop_t *loop;
    struct worker_options *options;
    const struct worker_events *events;
    void *ctx;
    bool managed;
    bool program; /* managed, and not llama-server */
    bool wanted;
    bool destroying;

    enum worker_state state;
    uint64_t state_since_ms;
    uint64_t retry_at_ms;
    char reason[WORKER_REASON_BYTES];
    char warning[WORKER_REASON_BYTES];
    enum worker_engine engine;

    struct http_origin *origin;
    struct http_ask *ask; /* what it is asked, see worker_ask(); NULL: nothing */
    char *address;

    /* Managed. */
    char run_dir[RUN_DIR_SOCKET_PATH_MAX + 1];
    bool run_dir_made;
    char socket_path[RUN_DIR_SOCKET_PATH_MAX + 1];
    uint16_t port; /* of this or the last start, ours until the next; 0: none, or a socket */
    struct process *process; /* NULL: none */
    struct worker_output *output;
    uint64_t spawned_at_ms;
    uint32_t starts;           /* processes started */
    uint32_t failures;         /* in a row, since it was settled: how long the next pause is */
    uint32_t starts_not_ready; /* in a row */
    uint32_t deadline_factor;  /* the deadline was too short this often: doubled each time */
    unsigned probes;           /* of this start */
    bool was_ready;            /* in this start */
    bool fail_next;            /* when the process is gone: failed, not backoff */
    bool keep_reason;          /* the reason of stopping says more than the exit status */
    uint32_t context_tokens;   /* of a slot, instead of the configured one; 0: that */
    int last_pid;              /* whose memory on the device may not be back; 0: nobody's */
    uint64_t exited_at_ms;
    uint64_t memory_since_ms; /* since when a start waits for it; 0: it does not */

    /* External: the next step of finding out the engine, and what was seen on the way. */
    unsigned engine_step;
    bool engine_answered;
    unsigned engine_tries;
    uint64_t engine_asked_ms;

    struct preflight job_data;
    uv_work_t job;
    bool job_running;

    uv_timer_t step_timer;     /* next probe, next try, next look at memory: one per state */
    uv_timer_t deadline_timer; /* loading: too long; ready: settled */
    uv_timer_t notice_timer;   /* tells stop waiters in the next turn */
    unsigned open_handles;

    struct worker_stop_waiter waiters[WORKER_STOP_WAITERS];
    unsigned waiter_count;
};

/* worker.c */
void worker_set_state(struct worker *w, enum worker_state state);
void worker_set_reason(struct worker *w, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void worker_notify_stopped(struct worker *w);
void worker_maybe_free(struct worker *w);
/*
 * GET path on a new connection, one at a time; supervise_answered() or external_answered() gets the
 * answer. Errors of http_ask_start().
 */
int worker_ask(struct worker *w, const char *path, uint64_t timeout_ms);

/* supervise.c */
/* See worker_look_again(). */
void supervise_look_again(struct worker *w);
void supervise_start(struct worker *w);
/* Ends the process; what comes after is decided by `wanted`, fail_next and keep_reason. */
void supervise_end(struct worker *w, bool force);
/* For a worker without a process. */
void supervise_cancel_wait(struct worker *w);
void supervise_answered(struct worker *w, const struct http_answer *answer);

/* external.c */
void external_find_engine(struct worker *w);
void external_answered(struct worker *w, const struct http_answer *answer);

#endif
