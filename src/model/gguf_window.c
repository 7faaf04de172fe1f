/*
 * The comparison with what is left comes before every read: a length in a hostile file is at most
 * compared, never allocated.
 */
#include "model/gguf_window.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* FNV-1a's constants, over words of eight bytes: a fingerprint to tell files apart, no proof. */
static const uint64_t hash_start = 0xcbf29ce484222325u;
static const uint64_t hash_prime = 0x100000001b3u;

int gguf_window_init(struct gguf_window *w, const struct gguf_source *source, uint64_t cap_bytes)
{
    unsigned char *data = malloc(GGUF_WINDOW_BYTES);

    if (data == NULL)
        return -ENOMEM;
    *w = (struct gguf_window){
        .source = source, .data = data, .cap_bytes = cap_bytes, .hash = hash_start};
    return 0;
}

void gguf_window_free(struct gguf_window *w)
{
    free(w->data);
    w->data = NULL;
}

bool gguf_window_failed(const struct gguf_window *w)
{
    return w->error < 0 || w->truncated || w->capped;
}

bool gguf_window_has(struct gguf_window *w, uint64_t n)
{
    uint64_t end;

    if (gguf_window_failed(w))
        return false;
    if (n <= w->source->bytes - w->position)
        return true;
    if (__builtin_add_overflow(w->position, n, &end))
        end = UINT64_MAX;
    w->needed_bytes = end;
    w->truncated = true;
    return false;
}

static void mix(struct gguf_window *w, const unsigned char *p, size_t n)
{
    uint64_t word;

    for (; n >= sizeof(word); n -= sizeof(word), p += sizeof(word)) {
        memcpy(&word, p, sizeof(word));
        w->hash = (w->hash ^ word) * hash_prime;
        w->hash ^= w->hash >> 29;
    }
    for (; n > 0; n--, p++)
        w->hash = (w->hash ^ *p) * hash_prime;
}

/* Makes room at the front and reads on; at least n bytes are there afterwards. */
static bool refill(struct gguf_window *w, size_t n)
{
    size_t kept = w->len - w->at;
    uint64_t offset = w->position + kept;
    uint64_t left = w->source->bytes - offset;
    uint64_t allowed = w->cap_bytes > w->read_bytes ? w->cap_bytes - w->read_bytes : 0;
    size_t want = GGUF_WINDOW_BYTES - kept;

    if (want > left)
        want = (size_t)left;
    if (want > allowed)
        want = (size_t)allowed;
    if (kept + want < n) {
        w->capped = true;
        return false;
    }
    memmove(w->data, w->data + w->at, kept);
    w->at = 0;
    w->len = kept;
    w->error = w->source->read(w->source->ctx, offset, w->data + kept, want);
    if (w->error < 0)
        return false;
    mix(w, w->data + kept, want);
    w->len += want;
    w->read_bytes += want;
    return true;
}

const unsigned char *gguf_window_take(struct gguf_window *w, size_t n)
{
    const unsigned char *p;

    if (!gguf_window_has(w, n) || n > GGUF_WINDOW_BYTES)
        return NULL;
    if (w->len - w->at < n && !refill(w, n))
        return NULL;
    p = w->data + w->at;
    w->at += n;
    w->position += n;
    return p;
}

bool gguf_window_skip(struct gguf_window *w, uint64_t n)
{
    if (!gguf_window_has(w, n))
        return false;
    while (n > 0) {
        size_t there = w->len - w->at;
        size_t step;

        if (there == 0 && !refill(w, 1))
            return false;
        there = w->len - w->at;
        step = n < there ? (size_t)n : there;
        w->at += step;
        w->position += step;
        n -= step;
    }
    return true;
}

static uint64_t take_number(struct gguf_window *w, unsigned n)
{
    const unsigned char *p = gguf_window_take(w, n);
    uint64_t v = 0;

    for (unsigned i = n; p != NULL && i-- > 0;)
        v = v << 8 | p[i];
    return v;
}

uint32_t gguf_window_u32(struct gguf_window *w)
{
    return (uint32_t)take_number(w, 4);
}

uint64_t gguf_window_u64(struct gguf_window *w)
{
    return take_number(w, 8);
}
