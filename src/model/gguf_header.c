/*
 * The walk through a header: magic, counts, metadata, tensors, then the tensors' sizes. Everything
 * comes through the window, which compares with the rest of the file; here are the caps on what is
 * kept and the sense of it.
 */
#include "model/gguf_header.h"

#include "model/gguf_type.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Value types of metadata. */
enum value_type {
    VALUE_U8 = 0,
    VALUE_I8,
    VALUE_U16,
    VALUE_I16,
    VALUE_U32,
    VALUE_I32,
    VALUE_F32,
    VALUE_BOOL,
    VALUE_STRING,
    VALUE_ARRAY,
    VALUE_U64,
    VALUE_I64,
    VALUE_F64,
    VALUE_COUNT,
};

static const unsigned char value_bytes[VALUE_COUNT] = {
    [VALUE_U8] = 1,  [VALUE_I8] = 1,  [VALUE_U16] = 2, [VALUE_I16] = 2,
    [VALUE_U32] = 4, [VALUE_I32] = 4, [VALUE_F32] = 4, [VALUE_BOOL] = 1,
    [VALUE_U64] = 8, [VALUE_I64] = 8, [VALUE_F64] = 8,
};

struct reader {
    struct gguf_window w;
    struct gguf_header *h;
    uint64_t metadata_left;
    uint64_t tensors_left;
    int error; /* -ENOMEM of ours */
};

bool gguf_header_usable(const struct gguf_header *h)
{
    return h->verdict == GGUF_OK || h->verdict == GGUF_TRAILING;
}

__attribute__((format(printf, 3, 4))) static bool
refuse(struct reader *r, enum gguf_verdict verdict, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(r->h->detail, sizeof(r->h->detail), format, args);
    va_end(args);
    r->h->verdict = verdict;
    return false;
}

static void count_memory(struct gguf_header *h)
{
    uint64_t all = GGUF_WINDOW_BYTES + h->entry_capacity * sizeof(*h->entries) + h->text_capacity +
                   h->number_capacity * sizeof(*h->numbers) +
                   h->tensor_capacity * sizeof(*h->tensors);

    if (all > h->memory_bytes)
        h->memory_bytes = all;
}

/* Room for `extra` more elements, doubling; nothing grows before its bytes were seen in the file. */
static void *grow(struct reader *r, void *items, size_t item_bytes, size_t count, size_t extra,
                  size_t *capacity)
{
    size_t wanted = *capacity > 0 ? *capacity : 64;
    void *grown;

    if (count + extra <= *capacity)
        return items;
    while (wanted < count + extra)
        wanted *= 2;
    grown = realloc(items, wanted * item_bytes);
    if (grown == NULL) {
        r->error = -ENOMEM;
        return NULL;
    }
    *capacity = wanted;
    return grown;
}

static bool grow_texts(struct reader *r, size_t extra)
{
    struct gguf_header *h = r->h;
    char *texts = grow(r, h->texts, 1, h->text_len, extra, &h->text_capacity);

    if (texts != NULL)
        h->texts = texts;
    count_memory(h);
    return texts != NULL;
}

/* Takes a text of len bytes from the file into the texts, with a NUL. */
static bool keep_text(struct reader *r, uint64_t len, uint32_t *ret_at)
{
    struct gguf_header *h = r->h;
    const unsigned char *p;

    if (!grow_texts(r, (size_t)len + 1))
        return false;
    p = gguf_window_take(&r->w, (size_t)len);
    if (p == NULL)
        return false;
    memcpy(h->texts + h->text_len, p, (size_t)len);
    h->texts[h->text_len + len] = '\0';
    *ret_at = (uint32_t)h->text_len;
    h->text_len += (size_t)len + 1;
    return true;
}

static bool is_integer(uint32_t type)
{
    return type < VALUE_COUNT && value_bytes[type] > 0 && type != VALUE_F32 && type != VALUE_F64;
}

static int64_t read_integer(const unsigned char *p, uint32_t type)
{
    uint64_t v = 0;

    for (unsigned i = value_bytes[type]; i-- > 0;)
        v = v << 8 | p[i];
    switch (type) {
    case VALUE_BOOL: return v != 0;
    case VALUE_I8: return (int8_t)v;
    case VALUE_I16: return (int16_t)v;
    case VALUE_I32: return (int32_t)v;
    case VALUE_I64: return (int64_t)v;
    default: return v > INT64_MAX ? INT64_MAX : (int64_t)v;
    }
}

/* --- metadata --- */

/* Passes over `count` texts. Each takes at least its length, so the count is bounded by the file. */
static bool skip_texts(struct reader *r, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        if (!gguf_window_skip(&r->w, gguf_window_u64(&r->w)))
            return false;
    }
    return !gguf_window_failed(&r->w);
}

static bool keep_numbers(struct reader *r, struct gguf_entry *e, uint32_t type)
{
    struct gguf_header *h = r->h;
    int64_t *numbers = grow(r, h->numbers, sizeof(*numbers), h->number_count, (size_t)e->count,
                            &h->number_capacity);

    if (numbers == NULL)
        return false;
    h->numbers = numbers;
    count_memory(h);
    e->kind = GGUF_ENTRY_NUMBERS;
    e->at = (uint32_t)h->number_count;
    for (uint64_t i = 0; i < e->count; i++) {
        const unsigned char *p = gguf_window_take(&r->w, value_bytes[type]);

        if (p == NULL)
            return false;
        h->numbers[h->number_count++] = read_integer(p, type);
    }
    return true;
}

static bool read_array(struct reader *r, struct gguf_entry *e, bool keep)
{
    uint32_t type = gguf_window_u32(&r->w);
    uint64_t bytes;

    e->count = gguf_window_u64(&r->w);
    if (gguf_window_failed(&r->w))
        return false;
    if (type >= VALUE_COUNT || type == VALUE_ARRAY)
        return refuse(r, GGUF_DAMAGED, "metadata has an array of the impossible type %" PRIu32,
                      type);
    if (__builtin_mul_overflow(e->count, (uint64_t)(type == VALUE_STRING ? 8 : value_bytes[type]),
                               &bytes))
        bytes = UINT64_MAX;
    if (!gguf_window_has(&r->w, bytes))
        return false;
    if (type == VALUE_STRING)
        return skip_texts(r, e->count);
    if (keep && is_integer(type) && e->count <= GGUF_KEPT_ARRAY_MAX) {
        if (r->h->number_count + e->count <= GGUF_KEPT_NUMBERS_MAX)
            return keep_numbers(r, e, type);
        r->h->incomplete = true;
    }
    return gguf_window_skip(&r->w, bytes);
}

static bool read_value(struct reader *r, struct gguf_entry *e, uint32_t type, bool keep)
{
    const unsigned char *p;

    if (type >= VALUE_COUNT)
        return refuse(r, GGUF_DAMAGED, "metadata has a value of the unknown type %" PRIu32, type);
    e->kind = GGUF_ENTRY_PASSED;
    if (type == VALUE_ARRAY)
        return read_array(r, e, keep);
    if (type == VALUE_STRING) {
        e->count = gguf_window_u64(&r->w);
        if (!gguf_window_has(&r->w, e->count))
            return false;
        if (!keep || e->count > GGUF_KEPT_TEXT_MAX)
            return gguf_window_skip(&r->w, e->count);
        e->kind = GGUF_ENTRY_TEXT;
        return keep_text(r, e->count, &e->at);
    }
    p = gguf_window_take(&r->w, value_bytes[type]);
    if (p == NULL)
        return false;
    if (is_integer(type)) {
        e->kind = GGUF_ENTRY_NUMBER;
        e->number = read_integer(p, type);
    }
    return true;
}

static bool read_entry(struct reader *r)
{
    struct gguf_header *h = r->h;
    struct gguf_entry e = {0};
    uint64_t key_len = gguf_window_u64(&r->w);
    bool keep = h->entry_count < GGUF_KEPT_ENTRIES_MAX && key_len <= GGUF_KEPT_KEY_MAX;

    if (!gguf_window_has(&r->w, key_len))
        return false;
    if (key_len == 0 || key_len > GGUF_KEY_MAX_BYTES)
        return refuse(r, GGUF_DAMAGED, "metadata has a key of %" PRIu64 " bytes", key_len);
    if (keep ? !keep_text(r, key_len, &e.key_at) : !gguf_window_skip(&r->w, key_len))
        return false;
    h->incomplete = h->incomplete || !keep;
    if (!read_value(r, &e, gguf_window_u32(&r->w), keep))
        return false;
    if (keep) {
        struct gguf_entry *entries =
            grow(r, h->entries, sizeof(*entries), h->entry_count, 1, &h->entry_capacity);

        if (entries == NULL)
            return false;
        h->entries = entries;
        h->entries[h->entry_count++] = e;
        count_memory(h);
    }
    return !gguf_window_failed(&r->w);
}

static bool read_alignment(struct reader *r)
{
    int64_t alignment = 32;

    if (gguf_header_find(r->h, "general.alignment") &&
        !gguf_header_get_number(r->h, "general.alignment", &alignment))
        return refuse(r, GGUF_DAMAGED, "general.alignment is not a number");
    if (alignment < GGUF_ALIGNMENT_MIN || alignment > GGUF_ALIGNMENT_MAX ||
        (alignment & (alignment - 1)) != 0)
        return refuse(r, GGUF_DAMAGED,
                      "general.alignment is %" PRId64 ", not a power of two from %d to %d",
                      alignment, GGUF_ALIGNMENT_MIN, GGUF_ALIGNMENT_MAX);
    r->h->alignment = (uint64_t)alignment;
    return true;
}

/* --- tensors --- */

/* Bytes by type and shape. False: more than any file has. */
static bool measure(struct gguf_tensor *t)
{
    const struct gguf_type *type = gguf_type_find(t->type);
    uint64_t rows;
    uint64_t row_bytes;
    uint64_t elements;

    if (__builtin_mul_overflow(t->shape[1], t->shape[2], &rows) ||
        __builtin_mul_overflow(rows, t->shape[3], &rows) ||
        __builtin_mul_overflow(rows, t->shape[0], &elements) || elements > INT64_MAX)
        return false;
    if (type == NULL)
        return true;
    t->exact = true;
    return gguf_type_row_bytes(type, t->shape[0], &row_bytes) &&
           !__builtin_mul_overflow(rows, row_bytes, &t->bytes);
}

static bool read_name(struct reader *r, struct gguf_tensor *t)
{
    uint64_t len = gguf_window_u64(&r->w);
    const unsigned char *p;
    struct tensor_role role;

    if (!gguf_window_has(&r->w, len))
        return false;
    if (len == 0 || len > GGUF_KEY_MAX_BYTES)
        return refuse(r, GGUF_DAMAGED, "tensor %zu has a name of %" PRIu64 " bytes",
                      r->h->tensor_count, len);
    p = gguf_window_take(&r->w, (size_t)len);
    if (p == NULL)
        return false;
    role = tensor_name_role((const char *)p, (size_t)len);
    t->place = (uint8_t)role.place;
    t->part = (uint8_t)role.part;
    t->layer = role.layer;
    t->bias = role.bias;
    t->matrix = role.matrix;
    return true;
}

static bool read_tensor(struct reader *r)
{
    struct gguf_header *h = r->h;
    struct gguf_tensor t = {.shape = {1, 1, 1, 1}};
    struct gguf_tensor *tensors;
    uint32_t dimensions;

    if (!read_name(r, &t))
        return false;
    dimensions = gguf_window_u32(&r->w);
    if (gguf_window_failed(&r->w))
        return false;
    if (dimensions < 1 || dimensions > GGUF_DIMENSIONS_MAX)
        return refuse(r, GGUF_DAMAGED,
                      "tensor %zu has %" PRIu32 " dimensions; 1 to %d are possible",
                      h->tensor_count, dimensions, GGUF_DIMENSIONS_MAX);
    for (uint32_t i = 0; i < dimensions; i++)
        t.shape[i] = gguf_window_u64(&r->w);
    t.type = gguf_window_u32(&r->w);
    t.offset = gguf_window_u64(&r->w);
    if (gguf_window_failed(&r->w))
        return false;
    if (!measure(&t))
        return refuse(r, GGUF_DAMAGED, "tensor %zu has an impossible shape", h->tensor_count);
    if (t.offset % h->alignment != 0)
        return refuse(r, GGUF_DAMAGED,
                      "tensor %zu begins at %" PRIu64 ", not at a multiple of %" PRIu64,
                      h->tensor_count, t.offset, h->alignment);
    tensors = grow(r, h->tensors, sizeof(*tensors), h->tensor_count, 1, &h->tensor_capacity);
    if (tensors == NULL)
        return false;
    h->tensors = tensors;
    h->tensors[h->tensor_count++] = t;
    count_memory(h);
    return true;
}

/* --- sizes --- */

static int compare_offsets(const void *a, const void *b)
{
    const struct gguf_tensor *x = a;
    const struct gguf_tensor *y = b;

    return (x->offset > y->offset) - (x->offset < y->offset);
}

/*
 * Sizes of tensors whose type is unknown: up to where the next one begins, or to the end of the
 * file. That includes the padding, less than one alignment too much. Then the end of the last one.
 */
static bool settle_sizes(struct reader *r)
{
    struct gguf_header *h = r->h;
    uint64_t data_bytes = h->file_bytes > h->data_offset ? h->file_bytes - h->data_offset : 0;
    uint64_t end = 0;

    for (size_t i = 1; i < h->tensor_count; i++) {
        if (h->tensors[i].offset < h->tensors[i - 1].offset) {
            qsort(h->tensors, h->tensor_count, sizeof(*h->tensors), compare_offsets);
            break;
        }
    }
    for (size_t i = 0; i < h->tensor_count; i++) {
        struct gguf_tensor *t = &h->tensors[i];
        bool last = i + 1 == h->tensor_count;
        uint64_t next = last ? data_bytes : h->tensors[i + 1].offset;
        uint64_t tensor_end;

        if (!t->exact)
            t->bytes = next > t->offset ? next - t->offset : 0;
        if (__builtin_add_overflow(t->offset, t->bytes, &tensor_end))
            return refuse(r, GGUF_DAMAGED, "a tensor ends beyond any file");
        if (!last && tensor_end > next)
            return refuse(r, GGUF_DAMAGED, "two tensors lie over each other at %" PRIu64, next);
        end = tensor_end > end ? tensor_end : end;
    }
    if (__builtin_add_overflow(h->data_offset, end, &h->needed_bytes))
        return refuse(r, GGUF_DAMAGED, "the tensors end beyond any file");
    if (h->needed_bytes > h->file_bytes)
        return refuse(r, GGUF_TRUNCATED, "weights");
    /* A file may be padded to the alignment after its last tensor. */
    if (h->file_bytes - h->needed_bytes > (h->alignment - end % h->alignment) % h->alignment)
        h->verdict = GGUF_TRAILING;
    return true;
}

/* --- the whole --- */

static bool read_head(struct reader *r)
{
    struct gguf_header *h = r->h;
    size_t len = h->file_bytes < GGUF_MAGIC_HEAD_BYTES ? (size_t)h->file_bytes
                                                       : (size_t)GGUF_MAGIC_HEAD_BYTES;
    const unsigned char *p = gguf_window_take(&r->w, len);

    if (p == NULL)
        return false;
    gguf_magic_judge(p, len, h->file_bytes, &h->magic);
    /* A first shard may hold metadata alone. */
    if (h->magic.verdict != GGUF_MAGIC_OK && h->magic.verdict != GGUF_MAGIC_NO_TENSORS)
        return refuse(r, GGUF_NOT_GGUF, "magic");
    if (h->magic.metadata_count > GGUF_METADATA_MAX)
        return refuse(r, GGUF_TOO_LARGE, "%" PRIu64 " metadata entries; at most %d are read",
                      h->magic.metadata_count, GGUF_METADATA_MAX);
    if (h->magic.tensor_count > GGUF_TENSORS_MAX)
        return refuse(r, GGUF_TOO_LARGE, "%" PRIu64 " tensors; at most %d are read",
                      h->magic.tensor_count, GGUF_TENSORS_MAX);
    return true;
}

static bool read_all(struct reader *r)
{
    struct gguf_header *h = r->h;

    if (!read_head(r))
        return false;
    for (uint64_t i = 0; i < h->magic.metadata_count; i++) {
        if (!read_entry(r))
            return false;
    }
    if (!read_alignment(r))
        return false;
    for (uint64_t i = 0; i < h->magic.tensor_count; i++) {
        if (!read_tensor(r))
            return false;
    }
    h->data_offset = r->w.position + (h->alignment - r->w.position % h->alignment) % h->alignment;
    return settle_sizes(r);
}

static void forget(struct gguf_header *h)
{
    free(h->entries);
    free(h->texts);
    free(h->numbers);
    free(h->tensors);
    h->entries = NULL;
    h->texts = NULL;
    h->numbers = NULL;
    h->tensors = NULL;
    h->entry_count = h->text_len = h->number_count = h->tensor_count = 0;
    h->entry_capacity = h->text_capacity = h->number_capacity = h->tensor_capacity = 0;
}

int gguf_header_read(const struct gguf_source *source, struct gguf_header *ret)
{
    struct gguf_header h = {.file_bytes = source->bytes};
    struct reader r = {.h = &h};
    int rc = gguf_window_init(&r.w, source, GGUF_HEADER_MAX_BYTES);
    bool good;

    if (rc < 0)
        return rc;
    good = read_all(&r);
    rc = r.error < 0 ? r.error : r.w.error;
    h.fingerprint = r.w.hash;
    h.read_bytes = r.w.read_bytes;
    count_memory(&h);
    if (!good && rc == 0 && h.verdict == GGUF_OK) {
        h.verdict = r.w.capped ? GGUF_TOO_LARGE : GGUF_TRUNCATED;
        h.needed_bytes = r.w.needed_bytes;
        snprintf(h.detail, sizeof(h.detail), r.w.capped ? "a header of more than %d MiB" : "header",
                 GGUF_HEADER_MAX_BYTES / (1024 * 1024));
    }
    gguf_window_free(&r.w);
    if (!good)
        forget(&h);
    if (rc < 0)
        return rc;
    *ret = h;
    return 0;
}

void gguf_header_free(struct gguf_header *h)
{
    if (h != NULL)
        forget(h);
}

char *gguf_header_describe(const struct gguf_header *h, char *out, size_t out_size)
{
    switch (h->verdict) {
    case GGUF_OK: snprintf(out, out_size, "is a GGUF file"); break;
    case GGUF_TRAILING:
        snprintf(out, out_size, "is a GGUF file with %" PRIu64 " bytes after its last tensor",
                 h->file_bytes - h->needed_bytes);
        break;
    case GGUF_TRUNCATED:
        snprintf(out, out_size, "is cut off in its %s: needs %" PRIu64 " bytes, has %" PRIu64,
                 h->detail, h->needed_bytes, h->file_bytes);
        break;
    case GGUF_DAMAGED: snprintf(out, out_size, "is damaged: %s", h->detail); break;
    case GGUF_TOO_LARGE: snprintf(out, out_size, "has %s", h->detail); break;
    case GGUF_NOT_GGUF: gguf_magic_describe(&h->magic, out, out_size); break;
    }
    return out;
}

/* --- looking things up --- */

const char *gguf_header_key(const struct gguf_header *h, const struct gguf_entry *entry)
{
    return h->texts + entry->key_at;
}

const struct gguf_entry *gguf_header_find(const struct gguf_header *h, const char *key)
{
    for (size_t i = 0; i < h->entry_count; i++) {
        if (strcmp(gguf_header_key(h, &h->entries[i]), key) == 0)
            return &h->entries[i];
    }
    return NULL;
}

bool gguf_header_get_number(const struct gguf_header *h, const char *key, int64_t *ret)
{
    const struct gguf_entry *e = gguf_header_find(h, key);

    if (e == NULL || e->kind != GGUF_ENTRY_NUMBER)
        return false;
    *ret = e->number;
    return true;
}

const char *gguf_header_get_text(const struct gguf_header *h, const char *key)
{
    const struct gguf_entry *e = gguf_header_find(h, key);

    return e != NULL && e->kind == GGUF_ENTRY_TEXT ? h->texts + e->at : NULL;
}
