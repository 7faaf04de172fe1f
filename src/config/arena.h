/*
 * Memory that lives as long as one configuration: many small pieces, freed all at once. Pieces are
 * zeroed and aligned for any object. Not for anything that grows or goes while the owner lives.
 */
#ifndef FAILSOFT_CONFIG_ARENA_H
#define FAILSOFT_CONFIG_ARENA_H

#include <stddef.h>

struct arena_chunk;

struct arena {
    struct arena_chunk *chunks; /* newest first */
};

/* Zeroed memory for count objects of `size` bytes, or NULL (no memory, or the product overflows). */
void *arena_alloc(struct arena *a, size_t count, size_t size);

/* A terminated copy of len bytes, or NULL. */
char *arena_copy(struct arena *a, const char *text, size_t len);

/* Frees every piece; the arena is empty again. */
void arena_free(struct arena *a);

#endif
