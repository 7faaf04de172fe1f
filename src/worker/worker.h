/*
 * A worker: a running engine that serves a tier. Managed: a child process that failsoft starts,
 * watches, stops and restarts. External: somebody else's server, known by its URL only.
 *
 * One loop thread owns everything here; that thread must live as long as the workers do, because
 * the kernel ties the death signal of a child to the thread that started it (prctl(2),
 * PR_SET_PDEATHSIG).
 *
 *                 worker_start                process up        probe says ready
 *       stopped ───────────────→ starting ───────────────→ loading ───────────────→ ready
 *          ↑                        │ ↑                       │                       │
 *          │                        │ └── pause over ──┐      │ exit, deadline        │ exit, recycle
 *          │ process gone           ↓ cannot start     │      ↓                       ↓
 *       stopping ←── worker_stop ── … ──────────────→ backoff / failed ←──────────────┘
 *
 * `failed` differs from `backoff` only in what we know: the cause will not go away by itself
 * (no engine, no model file, several starts in a row without ever getting ready). It is retried,
 * too, after a longer pause, and at once by worker_retry_now().
 *
 * Lifetime: the caller owns the worker. Callbacks come from the loop, never from inside
 * worker_create(); inside a callback every function here may be called, worker_destroy() included.
 */
#ifndef FAILSOFT_WORKER_WORKER_H
#define FAILSOFT_WORKER_WORKER_H

#include "base/span.h"
#include "worker/options.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct worker;
struct http_origin;

enum worker_state {
    WORKER_STATE_STOPPED = 0, /* not running, not wanted */
    WORKER_STATE_STARTING,    /* about to be spawned, or waits for the last one's memory */
    WORKER_STATE_LOADING,     /* process runs, not ready yet */
    WORKER_STATE_READY,       /* answered the readiness probe */
    WORKER_STATE_STOPPING,    /* TERM sent, waits for the exit */
    WORKER_STATE_BACKOFF,     /* not running, started again at retry_at */
    WORKER_STATE_FAILED,      /* as backoff, with the longer pause: needs attention */
    WORKER_STATE_EXTERNAL,    /* somebody else's process: may be used, nothing is known */
    WORKER_STATE_COUNT
};

struct worker_events {
    /*
     * The state changed; worker_reason() says why. For a dead worker this comes right after its
     * exit, before anything else is done, so that its requests can move.
     */
    void (*on_state)(struct worker *w, enum worker_state from, enum worker_state to, void *ctx);
    /*
     * Managed: everything is there to start the engine. False: not now; `why` (one sentence) is shown
     * as the reason, and it is asked again after memory_poll_ms or at worker_look_again().
     */
    bool (*may_start)(struct worker *w, char *why, size_t why_size, void *ctx);
    /*
     * One line of the engine's output, without its end, cut to WORKER_LOG_LINE_BYTES; any byte
     * but LF may be inside, NUL included. Valid during the call.
     */
    void (*on_log_line)(struct worker *w, struct span line, void *ctx);
    /* External: the engine's kind was found (or found to have changed). */
    void (*on_engine)(struct worker *w, enum worker_engine engine, void *ctx);
};

enum { WORKER_LOG_LINE_BYTES = 1024 };

/*
 * A worker in state stopped (managed) or external. Options are copied; `events` is borrowed and
 * must outlive the worker, any member may be NULL. For a managed worker the run directory
 * is made when missing (mode 0700).
 * 0; -EINVAL (a needed option is missing); -ENAMETOOLONG (socket path over 107 bytes); -EACCES
 * (the run directory belongs to somebody else or is open to others); -EPROTONOSUPPORT (https);
 * -ENOMEM and errors of mkdir(2).
 */
int worker_create(uv_loop_t *loop, const struct worker_options *options,
                  const struct worker_events *events, void *ctx, struct worker **ret_worker);

/*
 * Frees the worker when its handles are closed (the loop must run on). A process that still runs
 * is killed (SIGKILL) and reaped. No callback afterwards. NULL is fine.
 */
void worker_destroy(struct worker *w);

/*
 * Managed: wanted from now on; started, and started again when it exits. External: looks for the
 * engine's kind in the background. Does nothing when already wanted. Never fails: what goes wrong
 * is a state with a reason.
 */
void worker_start(struct worker *w);

/*
 * Not wanted any more: TERM, after stop_grace_ms KILL, to the whole process group. on_stopped
 * (may be NULL) is called once, from the loop, when no process is left; for external workers and
 * those without a process in the next loop turn. A second call replaces nothing: each on_stopped is called.
 */
void worker_stop(struct worker *w, void (*on_stopped)(struct worker *w, void *ctx), void *ctx);

/* KILL now, to the whole process group; wanted as before. Nothing when there is no process. */
void worker_kill_now(struct worker *w);

/*
 * Ends the process and starts another: for a worker that is stalled (its `/health` may say
 * otherwise) or whose device is lost. KILL at once when `force`, else TERM → grace → KILL; the pause
 * before the restart is the usual one. Without a process it changes nothing but the pooled
 * connections, which are closed: several requests may fail of one cause, and none may cut a pause
 * short. `reason` (copied) is shown as the state's reason.
 */
void worker_recycle(struct worker *w, const char *reason, bool force);

/*
 * A person's "try again now": in backoff or failed the pause ends and the counters start anew.
 * Nothing in any other state.
 */
void worker_retry_now(struct worker *w);

/* What may_start() answers may have changed: a start that waits is tried now. */
void worker_look_again(struct worker *w);

/*
 * Managed llama-server: its next starts get this context, in tokens of one slot, instead of the
 * configured one. 0: the configured one again. For may_start(), where a shorter one would fit.
 */
void worker_set_context_tokens(struct worker *w, uint32_t context_tokens);
/* Tokens of one slot that the next start gets; 0: the model's own. */
uint32_t worker_context_tokens(const struct worker *w);

/*
 * A connect to a worker in state ready was refused or reset: looks at the process at once, so that
 * an exit is seen before the loop comes to report it. External: looks for the engine's kind again.
 */
void worker_suspect(struct worker *w);

/* --- what it is and how it is --- */

enum worker_state worker_get_state(const struct worker *w);
const char *worker_state_name(enum worker_state state); /* "ready", … */
/* May be given a request: ready or external. */
bool worker_is_usable(const struct worker *w);
/* Why it is in this state, one sentence without a full stop, "" when all is well. Valid until the
 * next change. */
const char *worker_reason(const struct worker *w);
/* Something to know though it works: "offloaded 0 of 33 layers to the GPU", failed mlock, …; "". */
const char *worker_warning(const struct worker *w);
/* uv_now() of the last state change, in milliseconds. */
uint64_t worker_state_since_ms(const struct worker *w);
/* uv_now() of the next start when in backoff or failed; 0 otherwise. */
uint64_t worker_retry_at_ms(const struct worker *w);
/* 0 when none. */
int worker_pid(const struct worker *w);
/* Starts after the first. */
uint32_t worker_restarts(const struct worker *w);
bool worker_is_managed(const struct worker *w);
/* Borrowed; lives as long as the worker, over restarts. */
struct http_origin *worker_origin(const struct worker *w);
/* `unix:/path` or the base URL, for people. Valid until the next start. */
const char *worker_address(const struct worker *w);
enum worker_engine worker_get_engine(const struct worker *w);
const struct worker_options *worker_get_options(const struct worker *w);

/* Layers on the GPU as the engine said while loading. False: it said nothing yet. */
bool worker_offload(const struct worker *w, uint32_t *ret_offloaded, uint32_t *ret_layers);

/*
 * Reads what the engine has written until now, so that a line that explains a failure is heard
 * (on_log_line) before the failure is judged. Nothing when there is no process.
 */
void worker_read_log_now(struct worker *w);

/*
 * The last lines of output, oldest first, at most `max`; returns how many. Valid until control
 * returns to the loop.
 */
size_t worker_log_tail(const struct worker *w, struct span *ret_lines, size_t max);

#endif
