/*
 * What the gateway has learned (policy/learning), kept over restarts: a table in memory and its file.
 *
 *   start: file ─► table
 *   change ─► (some seconds, further changes join) ─► text ─► thread of the pool ─► file
 *   close: the same at once, if anything is unsaved
 *
 * Without a folder, or where it cannot be written, learning goes on in memory; that is said once. A
 * damaged file loses the lines that cannot be read and is kept aside for a person (state_file.h).
 *
 * Loop thread only; learned_read() on any.
 */
#ifndef FAILSOFT_GATEWAY_LEARNED_H
#define FAILSOFT_GATEWAY_LEARNED_H

#include "policy/learning.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

enum { LEARNED_CAPACITY = 256, LEARNED_WRITE_AFTER_MS = 3000 };

struct learned;

/* What a file said, beside what went into the table. */
struct learned_reading {
    uint32_t skipped; /* lines that could not be read */
    bool cut;         /* its end is missing */
    bool foreign;     /* no such file, or of another version: nothing was taken */
};

/*
 * Reads the file into an initialised table. Blocks on the file. 0, also where a part of it could not
 * be used: see *ret; -ENOENT and other errors of reading: the table is as it was.
 */
int learned_read(const char *path, struct learning *table, struct learned_reading *ret);

/* path: copied; "" or NULL: memory only. Reads the file; what is wrong with it goes to the log.
 * write_after_ms: from a change to the file. 0; -ENOMEM; errors of uv_timer_init. */
int learned_open(uv_loop_t *loop, const char *path, uint64_t write_after_ms,
                 struct learned **ret_learned);

/* The table; whoever changes it says so with learned_changed(). */
struct learning *learned_table(struct learned *l);
void learned_changed(struct learned *l);

/* Writes what is unsaved, frees l, then tells. NULL: on_closed is not called. */
void learned_close(struct learned *l, void (*on_closed)(void *ctx), void *ctx);

#endif
