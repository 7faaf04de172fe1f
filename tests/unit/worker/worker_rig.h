/*
 * What the tests of processes and workers share: a real loop that runs until something is true or a
 * deadline has passed, a private folder, a file that passes for a model, and the pretended engine.
 */
#ifndef FAILSOFT_TESTS_WORKER_RIG_H
#define FAILSOFT_TESTS_WORKER_RIG_H

#include "worker/worker.h"

#include <stdbool.h>
#include <sys/types.h>
#include <uv.h>

enum { RIG_TRACE = 64, RIG_DEADLINE_MS = 20000, RIG_TICK_MS = 5 };

struct rig {
    uv_loop_t loop;
    uv_timer_t deadline;
    bool late;
    uint64_t late_at_ms;
    char dir[64];
    char run_dir[80];
    char model[80];
    char orders[4096]; /* FAKE_ENGINE */
    struct worker_pair env[2];
    struct worker_options options;
    struct worker *worker;
    enum worker_state trace[RIG_TRACE]; /* every state entered */
    char reasons[RIG_TRACE][256];       /* with its reason */
    size_t trace_count;
    unsigned stopped; /* calls of on_stopped */
    unsigned lines;
    size_t longest_line;
    char last_line[128];
    unsigned engines;                                      /* calls of on_engine */
    void (*on_state)(struct rig *r, enum worker_state to); /* extra action of a test */
    int descriptors;                                       /* open when the rig was made */
};

/* Folder, model, options for the pretended engine with short times. */
void rig_init(struct rig *r);
/* Destroys the worker, runs the loop until it is empty, and checks that nothing is left: no open
 * descriptor, no child process, no file in the folder. */
void rig_end(struct rig *r);

/* The orders of the pretended engine: JSON with %D for the rig's folder. */
void rig_orders(struct rig *r, const char *json);
void rig_create(struct rig *r);

/* Runs the loop until condition(ctx) holds; fails the test after RIG_DEADLINE_MS. */
void rig_until(struct rig *r, bool (*condition)(void *ctx), void *ctx);
/* Until the worker is in the state. */
void rig_until_state(struct rig *r, enum worker_state state);
/* Until at least this many states were entered. */
void rig_until_trace(struct rig *r, size_t count);
/* Until a file exists in the folder. */
void rig_until_file(struct rig *r, const char *name);
/* Until the process does not exist, or is a zombie that init has not come to yet. */
void rig_until_gone(struct rig *r, pid_t pid);
/* Runs the loop for so long, for what must not happen. */
void rig_run_for(struct rig *r, uint64_t ms);

/* worker_stop() and wait for on_stopped. */
void rig_stop(struct rig *r);
void rig_path(const struct rig *r, const char *name, char *out, size_t out_size);
/* The content of a file in the folder; freed by the caller. */
char *rig_read(const struct rig *r, const char *name);
long rig_read_pid(const struct rig *r, const char *name);
void rig_touch(const struct rig *r, const char *name);
bool rig_is_alive(pid_t pid);
unsigned rig_count_state(const struct rig *r, enum worker_state state);
/* The reason with which the state was last entered, "" when it was not. */
const char *rig_reason_of(const struct rig *r, enum worker_state state);

#endif
