/*
 * The output of an engine: bytes of two pipes become lines, the last of which are kept. Memory is
 * fixed: LOG_TAIL_BYTES of text and LOG_TAIL_LINES lines, whatever is written; a line longer than
 * LOG_LINE_BYTES is cut and its rest dropped. Any byte but LF may be in a line, NUL included.
 * Pure; one thread.
 */
#ifndef FAILSOFT_WORKER_LOG_TAIL_H
#define FAILSOFT_WORKER_LOG_TAIL_H

#include "base/span.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LOG_LINE_BYTES = 1024, LOG_TAIL_BYTES = 32 * 1024, LOG_TAIL_LINES = 256 };

/* One per pipe: puts lines together. Zero-initialise. */
struct log_assembler {
    char line[LOG_LINE_BYTES];
    size_t len;
    bool overlong; /* the rest of the line is dropped */
};

typedef void log_line_fn(struct span line, void *ctx);

/*
 * Hands out every line completed by `bytes`, without LF and a CR before it. The span is valid
 * during the call. Empty lines are not handed out.
 */
void log_assembler_feed(struct log_assembler *a, struct span bytes, log_line_fn *on_line,
                        void *ctx);
/* The pipe is closed: what is left is a line. */
void log_assembler_finish(struct log_assembler *a, log_line_fn *on_line, void *ctx);

/* The last lines. Zero-initialise. */
struct log_tail {
    char text[LOG_TAIL_BYTES];
    struct {
        uint32_t offset;
        uint32_t len;
    } lines[LOG_TAIL_LINES]; /* a ring, oldest at `first` */
    uint32_t first, count;
    uint32_t end; /* where the next line's text goes */
};

/* Keeps a copy of the line (cut to LOG_LINE_BYTES); the oldest ones make room. */
void log_tail_push(struct log_tail *t, struct span line);
/* The last `max` lines, oldest first; returns how many. Valid until the next push. */
size_t log_tail_get(const struct log_tail *t, struct span *ret_lines, size_t max);
void log_tail_clear(struct log_tail *t);

#endif
