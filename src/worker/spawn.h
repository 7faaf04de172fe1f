/*
 * fork and exec, the part of process.c that runs between the two: only async-signal-safe calls, as
 * the gateway has other threads whose locks a forked child may inherit held.
 */
#ifndef FAILSOFT_WORKER_SPAWN_H
#define FAILSOFT_WORKER_SPAWN_H

#include "worker/process.h"

#include <sys/types.h>

enum { SPAWN_GUARD_GRACE_MS = 2000 };

/* What `ps` and `top` call it; not "failsoft", so that a `pkill failsoft` spares it. */
#define SPAWN_GUARD_NAME "fs-guard"

struct spawn_result {
    pid_t pid;
    int output[2]; /* read ends of stdout and stderr, non-blocking */
    int error;     /* read end: a struct spawn_error if exec failed, end of file if it did not */
    int guard;     /* write end, to be kept open as long as the process shall live; -1: no guard */
};

struct spawn_error {
    int error; /* positive errno */
    int step;  /* enum spawn_step */
};

enum spawn_step { SPAWN_STEP_SETUP, SPAWN_STEP_EXEC };

/* 0 or a negative errno; on failure nothing is left open. The caller owns the descriptors. */
int spawn_process(const struct process_spec *spec, struct spawn_result *ret_result);

#endif
