/*
 * A growable byte buffer with a cap given at init. Reaching the cap is an ordinary return
 * (-EMSGSIZE) that the caller turns into backpressure or a typed error; nothing here grows without
 * end. The buffer owns its bytes; an empty buffer owns no memory, so idle connections cost nothing.
 */
#ifndef FAILSOFT_BASE_BUF_H
#define FAILSOFT_BASE_BUF_H

#include "base/span.h"

#include <stddef.h>
#include <stdint.h>

struct buf {
    char *data;
    size_t len;
    size_t cap;
    size_t max; /* bytes; len never exceeds it */
};

/* Prepares an empty buffer that may hold up to max_bytes. Allocates nothing. */
void buf_init(struct buf *b, size_t max_bytes);

/* Frees the bytes; the buffer is empty again and may be used again with the same cap. NULL is fine. */
void buf_free(struct buf *b);

/*
 * Makes room for extra_bytes more. Doubles, so that appends are amortised; with `exact` allocates
 * just what is asked (for a body whose length is known, so that no second copy is ever made).
 * 0, -EMSGSIZE (over the cap), -ENOMEM; the content is untouched on failure.
 */
int buf_reserve(struct buf *b, size_t extra_bytes);
int buf_reserve_exact(struct buf *b, size_t extra_bytes);

/* Appends n bytes. 0, -EMSGSIZE, -ENOMEM; nothing is appended on failure. */
static inline int buf_append(struct buf *b, const void *bytes, size_t n);
static inline int buf_append_span(struct buf *b, struct span s);
int buf_append_str(struct buf *b, const char *s);

/* Appends formatted text. 0, -EMSGSIZE, -ENOMEM, -EINVAL (bad format). */
int buf_printf(struct buf *b, const char *format, ...) __attribute__((format(printf, 2, 3)));

/*
 * Appends text as the inside of a JSON string: quotes, backslashes and control characters escaped,
 * invalid UTF-8 replaced by U+FFFD. Without the surrounding quotes. Errors as buf_append; on
 * failure a part may have been appended.
 */
int buf_append_json(struct buf *b, struct span s);

/* Drops the first n bytes (n ≤ len). */
void buf_consume(struct buf *b, size_t n);

/* The bytes as a span, valid until the next change of the buffer. */
static inline struct span buf_span(const struct buf *b)
{
    return (struct span){b->data, b->len};
}

/* buf_append where room has to be made first. */
int buf_append_slow(struct buf *b, const void *bytes, size_t n);

/* Heads are made of many small pieces: the usual case is a copy and nothing else. */
static inline int buf_append(struct buf *b, const void *bytes, size_t n)
{
    if (n == 0)
        return 0;
    if (n > b->cap - b->len || n > b->max - b->len)
        return buf_append_slow(b, bytes, n);
    memcpy(b->data + b->len, bytes, n);
    b->len += n;
    return 0;
}

static inline int buf_append_span(struct buf *b, struct span s)
{
    return buf_append(b, s.ptr, s.len);
}

#endif
