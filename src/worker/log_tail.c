/*
 * Lines out of bytes, and the last of them in fixed memory (Makememo/MemoAI#430: an engine whose
 * output nobody reads stops). A line's text is kept in one piece: it is put at the start when it does
 * not fit before the end, and pushes out whatever lay there.
 */
#include "worker/log_tail.h"

#include <string.h>

static void hand_out(struct log_assembler *a, log_line_fn *on_line, void *ctx)
{
    size_t len = a->len;

    if (len > 0 && a->line[len - 1] == '\r')
        len--;
    a->len = 0;
    a->overlong = false;
    if (len > 0)
        on_line((struct span){a->line, len}, ctx);
}

void log_assembler_feed(struct log_assembler *a, struct span bytes, log_line_fn *on_line, void *ctx)
{
    while (bytes.len > 0) {
        const char *lf = memchr(bytes.ptr, '\n', bytes.len);
        size_t piece = lf ? (size_t)(lf - bytes.ptr) : bytes.len;
        size_t room = sizeof(a->line) - a->len;
        size_t n = piece < room ? piece : room;

        memcpy(a->line + a->len, bytes.ptr, n);
        a->len += n;
        if (n < piece)
            a->overlong = true;
        if (lf == NULL)
            return;
        hand_out(a, on_line, ctx);
        bytes.ptr += piece + 1;
        bytes.len -= piece + 1;
    }
}

void log_assembler_finish(struct log_assembler *a, log_line_fn *on_line, void *ctx)
{
    hand_out(a, on_line, ctx);
}

static void drop_oldest(struct log_tail *t)
{
    t->first = (t->first + 1) % LOG_TAIL_LINES;
    t->count--;
}

static bool oldest_overlaps(const struct log_tail *t, uint32_t from, uint32_t to)
{
    uint32_t offset = t->lines[t->first].offset;

    return offset < to && offset + t->lines[t->first].len > from;
}

void log_tail_push(struct log_tail *t, struct span line)
{
    uint32_t len = (uint32_t)(line.len < LOG_LINE_BYTES ? line.len : LOG_LINE_BYTES);
    uint32_t at = t->end;

    if (at + len > LOG_TAIL_BYTES) {
        /* Lines between here and the end are older than any at the start. */
        while (t->count > 0 && t->lines[t->first].offset >= at)
            drop_oldest(t);
        at = 0;
    }
    while (t->count > 0 && (t->count == LOG_TAIL_LINES || oldest_overlaps(t, at, at + len)))
        drop_oldest(t);
    if (len > 0)
        memcpy(t->text + at, line.ptr, len);
    t->lines[(t->first + t->count) % LOG_TAIL_LINES].offset = at;
    t->lines[(t->first + t->count) % LOG_TAIL_LINES].len = len;
    t->count++;
    t->end = at + len;
}

size_t log_tail_get(const struct log_tail *t, struct span *ret_lines, size_t max)
{
    size_t n = t->count < max ? t->count : max;

    for (size_t i = 0; i < n; i++) {
        uint32_t slot = (uint32_t)((t->first + t->count - n + i) % LOG_TAIL_LINES);

        ret_lines[i] = (struct span){t->text + t->lines[slot].offset, t->lines[slot].len};
    }
    return n;
}

void log_tail_clear(struct log_tail *t)
{
    t->first = t->count = t->end = 0;
}
