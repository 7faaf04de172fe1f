/*
 * Writes GGUF headers for tests, good ones and wrong ones: into memory, or as a sparse file whose
 * tensor data are holes. Counts are patched in at the end, so a test can also lie about them.
 */
#ifndef FAILSOFT_TESTS_GGUF_WRITER_H
#define FAILSOFT_TESTS_GGUF_WRITER_H

#include "unit.h"

#include "model/gguf_header.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WRITER_MAX = 8 * 1024 * 1024 };

struct gguf_writer {
    unsigned char *data;
    size_t len;
    uint64_t metadata, tensors;
    uint64_t data_bytes; /* of the data section so far */
    uint64_t alignment;
};

static inline void writer_put(struct gguf_writer *w, const void *bytes, size_t n)
{
    assert_true(w->len + n <= WRITER_MAX);
    memcpy(w->data + w->len, bytes, n);
    w->len += n;
}

static inline void writer_u32(struct gguf_writer *w, uint32_t v)
{
    writer_put(w, &v, sizeof(v));
}

static inline void writer_u64(struct gguf_writer *w, uint64_t v)
{
    writer_put(w, &v, sizeof(v));
}

static inline void writer_text(struct gguf_writer *w, const char *text)
{
    writer_u64(w, strlen(text));
    writer_put(w, text, strlen(text));
}

static inline void writer_init(struct gguf_writer *w)
{
    *w = (struct gguf_writer){.alignment = 32};
    w->data = calloc(1, WRITER_MAX);
    assert_non_null(w->data);
    writer_put(w, "GGUF", 4);
    writer_u32(w, 3);
    writer_u64(w, 0);
    writer_u64(w, 0);
}

static inline void writer_free(struct gguf_writer *w)
{
    free(w->data);
    w->data = NULL;
}

static inline void writer_key(struct gguf_writer *w, const char *key, uint32_t type)
{
    writer_text(w, key);
    writer_u32(w, type);
    w->metadata++;
}

static inline void writer_number(struct gguf_writer *w, const char *key, uint32_t value)
{
    writer_key(w, key, 4);
    writer_u32(w, value);
}

static inline void writer_string(struct gguf_writer *w, const char *key, const char *value)
{
    writer_key(w, key, 8);
    writer_text(w, value);
}

static inline void writer_numbers(struct gguf_writer *w, const char *key, const uint32_t *values,
                                  size_t count)
{
    writer_key(w, key, 9);
    writer_u32(w, 4);
    writer_u64(w, count);
    for (size_t i = 0; i < count; i++)
        writer_u32(w, values[i]);
}

/* A tensor at a place that the caller chose. */
static inline void writer_tensor_at(struct gguf_writer *w, const char *name, uint32_t type,
                                    uint64_t columns, uint64_t rows, uint64_t offset)
{
    writer_text(w, name);
    writer_u32(w, 2);
    writer_u64(w, columns);
    writer_u64(w, rows);
    writer_u32(w, type);
    writer_u64(w, offset);
    w->tensors++;
}

/* A tensor of `bytes` behind the others. */
static inline void writer_tensor(struct gguf_writer *w, const char *name, uint32_t type,
                                 uint64_t columns, uint64_t rows, uint64_t bytes)
{
    writer_tensor_at(w, name, type, columns, rows, w->data_bytes);
    w->data_bytes += (bytes + w->alignment - 1) / w->alignment * w->alignment;
}

/* The counts, and zeros up to the data section. */
static inline void writer_finish(struct gguf_writer *w)
{
    memcpy(w->data + 8, &w->tensors, 8);
    memcpy(w->data + 16, &w->metadata, 8);
    w->len = (w->len + w->alignment - 1) / w->alignment * w->alignment;
}

/* --- as a source --- */

struct memory_source {
    const unsigned char *data;
    size_t len;     /* what is stored; behind it the file is holes */
    uint64_t asked; /* the highest byte that was read */
    uint64_t reads;
    int error; /* returned by the n-th read */
    uint64_t error_at;
};

static inline int memory_read(void *ctx, uint64_t offset, void *out, size_t len)
{
    struct memory_source *m = ctx;

    if (m->error < 0 && ++m->reads == m->error_at)
        return m->error;
    for (size_t i = 0; i < len; i++)
        ((unsigned char *)out)[i] = offset + i < m->len ? m->data[offset + i] : 0;
    if (offset + len > m->asked)
        m->asked = offset + len;
    return 0;
}

/* Reads a header of a file of file_bytes that begins with these bytes. */
static inline int memory_header(const void *data, size_t len, uint64_t file_bytes,
                                struct gguf_header *ret)
{
    struct memory_source m = {.data = data, .len = len};
    struct gguf_source source = {memory_read, &m, file_bytes};

    return gguf_header_read(&source, ret);
}

#endif
