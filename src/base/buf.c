/* The growable, capped byte buffer. Any thread, one owner at a time. */
#include "base/buf.h"

#include "base/utf8.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUF_FIRST_CAPACITY = 256 };

void buf_init(struct buf *b, size_t max_bytes)
{
    *b = (struct buf){.max = max_bytes};
}

void buf_free(struct buf *b)
{
    if (!b)
        return;
    free(b->data);
    b->data = NULL;
    b->len = 0;
    b->cap = 0;
}

static int buf_grow_to(struct buf *b, size_t cap)
{
    char *data = realloc(b->data, cap);
    if (!data)
        return -ENOMEM;
    b->data = data;
    b->cap = cap;
    return 0;
}

int buf_reserve_exact(struct buf *b, size_t extra_bytes)
{
    if (extra_bytes > b->max - b->len)
        return -EMSGSIZE;
    size_t need = b->len + extra_bytes;
    return need <= b->cap ? 0 : buf_grow_to(b, need);
}

int buf_reserve(struct buf *b, size_t extra_bytes)
{
    if (extra_bytes > b->max - b->len)
        return -EMSGSIZE;
    size_t need = b->len + extra_bytes;
    if (need <= b->cap)
        return 0;
    size_t cap = b->cap ? b->cap : BUF_FIRST_CAPACITY;
    while (cap < need)
        cap = cap > b->max / 2 ? b->max : cap * 2;
    if (cap > b->max)
        cap = b->max;
    return buf_grow_to(b, cap);
}

int buf_append_slow(struct buf *b, const void *bytes, size_t n)
{
    int r = buf_reserve(b, n);
    if (r < 0)
        return r;
    memcpy(b->data + b->len, bytes, n);
    b->len += n;
    return 0;
}

int buf_append_str(struct buf *b, const char *s)
{
    return buf_append(b, s, strlen(s));
}

int buf_printf(struct buf *b, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    va_list again;
    va_copy(again, args);
    /* Into the room that is there; only what does not fit is formatted a second time. */
    size_t room = b->cap - b->len;
    int n = vsnprintf(room > 0 ? b->data + b->len : NULL, room, format, args);
    va_end(args);
    int r = -EINVAL;
    if (n < 0)
        goto out;
    r = -EMSGSIZE;
    if ((size_t)n > b->max - b->len)
        goto out;
    /* One more for the terminator that vsnprintf writes; it is not counted in len. */
    if (room < (size_t)n + 1) {
        size_t need = b->len + (size_t)n + 1;
        size_t cap = b->cap ? b->cap * 2 : BUF_FIRST_CAPACITY;
        if (cap < need || cap > b->max)
            cap = need;
        r = buf_grow_to(b, cap);
        if (r < 0)
            goto out;
        vsnprintf(b->data + b->len, (size_t)n + 1, format, again);
    }
    b->len += (size_t)n;
    r = 0;
out:
    va_end(again);
    return r;
}

int buf_append_json(struct buf *b, struct span s)
{
    static const char hex[] = "0123456789abcdef";
    size_t i = 0;
    while (i < s.len) {
        unsigned char c = (unsigned char)s.ptr[i];
        size_t n = utf8_sequence_length(s.ptr + i, s.len - i);
        int r;
        if (n == 0) {
            r = buf_append(b, "\xEF\xBF\xBD", 3);
            n = 1;
        } else if (n > 1) {
            r = buf_append(b, s.ptr + i, n);
        } else if (c == '"' || c == '\\') {
            r = buf_append(b, (char[]){'\\', (char)c}, 2);
        } else if (c == '\n') {
            r = buf_append(b, "\\n", 2);
        } else if (c == '\t') {
            r = buf_append(b, "\\t", 2);
        } else if (c < 0x20) {
            r = buf_append(b, (char[]){'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]}, 6);
        } else {
            r = buf_append(b, s.ptr + i, 1);
        }
        if (r < 0)
            return r;
        i += n;
    }
    return 0;
}

void buf_consume(struct buf *b, size_t n)
{
    if (n >= b->len) {
        b->len = 0;
        return;
    }
    memmove(b->data, b->data + n, b->len - n);
    b->len -= n;
}
