/*
 * A list of chunks, the newest first; a piece larger than a quarter of a chunk gets its own.
 */
#include "config/arena.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK_BYTES = 4096 - 64 };

struct arena_chunk {
    struct arena_chunk *next;
    size_t used;
    size_t size;
    _Alignas(max_align_t) char bytes[];
};

static struct arena_chunk *chunk_new(size_t size)
{
    struct arena_chunk *chunk = calloc(1, sizeof(*chunk) + size);

    if (chunk)
        chunk->size = size;
    return chunk;
}

void *arena_alloc(struct arena *a, size_t count, size_t size)
{
    const size_t align = _Alignof(max_align_t);
    struct arena_chunk *chunk = a->chunks;
    size_t need;
    void *piece;

    if (__builtin_mul_overflow(count, size, &need) || need > SIZE_MAX / 2)
        return NULL;
    need = need ? (need + align - 1) & ~(align - 1) : align;
    if (!chunk || chunk->size - chunk->used < need) {
        struct arena_chunk *fresh = chunk_new(need > CHUNK_BYTES / 4 ? need : CHUNK_BYTES);

        if (!fresh)
            return NULL;
        if (need > CHUNK_BYTES / 4 && chunk) {
            /* Full at birth: behind the head, so that the head's room is still used. */
            fresh->next = chunk->next;
            chunk->next = fresh;
        } else {
            fresh->next = chunk;
            a->chunks = fresh;
        }
        chunk = fresh;
    }
    piece = chunk->bytes + chunk->used;
    chunk->used += need;
    return piece;
}

char *arena_copy(struct arena *a, const char *text, size_t len)
{
    char *copy = arena_alloc(a, len + 1, 1);

    if (copy && len > 0)
        memcpy(copy, text, len);
    return copy;
}

void arena_free(struct arena *a)
{
    struct arena_chunk *chunk = a->chunks;

    while (chunk) {
        struct arena_chunk *next = chunk->next;

        free(chunk);
        chunk = next;
    }
    a->chunks = NULL;
}
