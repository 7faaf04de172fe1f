/*
 * Header fields: one text buffer and an array of positions in it. The text of a field that is being
 * built lies at the end of the buffer behind the last entry; positions are offsets, because the
 * buffer moves when it grows. Owned by its message; one thread.
 *
 *   text:     Host|example|Accept|json|Conn…      ← open field: name complete, value arriving
 *   entries:  [0]         [1]         [count] (open, not counted yet)
 */
#include "http/fields.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void http_fields_init(struct http_fields *f, size_t max_bytes)
{
    *f = (struct http_fields){0};
    /* Offsets are 32 bits wide. */
    buf_init(&f->text, max_bytes < UINT32_MAX ? max_bytes : UINT32_MAX);
}

void http_fields_free(struct http_fields *f)
{
    if (!f)
        return;
    buf_free(&f->text);
    free(f->entries);
    f->entries = NULL;
    f->count = 0;
    f->capacity = 0;
}

void http_fields_clear(struct http_fields *f)
{
    f->text.len = 0;
    f->count = 0;
    if (f->capacity > 0)
        f->entries[0] = (struct http_field_position){0};
}

/* Where the text of the open field begins. */
static uint32_t fields_open_offset(const struct http_fields *f)
{
    if (f->count == 0)
        return 0;
    const struct http_field_position *last = &f->entries[f->count - 1];
    return last->value_offset + last->value_length;
}

/* Makes sure that entries[count] exists; it is the open field. Touched only when it is new. */
static int fields_open(struct http_fields *f)
{
    if (f->count == HTTP_FIELDS_MAX_COUNT)
        return -EMSGSIZE;
    if (f->count < f->capacity)
        return 0;
    uint32_t capacity = f->capacity ? f->capacity * 2 : 16;
    struct http_field_position *entries = realloc(f->entries, capacity * sizeof(*entries));
    if (!entries)
        return -ENOMEM;
    memset(entries + f->capacity, 0, (capacity - f->capacity) * sizeof(*entries));
    f->entries = entries;
    f->capacity = capacity;
    return 0;
}

int http_fields_append_name(struct http_fields *f, struct span part)
{
    int r = fields_open(f);
    if (r < 0)
        return r;
    r = buf_append_span(&f->text, part);
    if (r < 0)
        return r;
    struct http_field_position *open = &f->entries[f->count];
    open->name_offset = fields_open_offset(f);
    open->name_length += (uint32_t)part.len;
    return 0;
}

int http_fields_append_value(struct http_fields *f, struct span part)
{
    int r = fields_open(f);
    if (r < 0)
        return r;
    r = buf_append_span(&f->text, part);
    if (r < 0)
        return r;
    f->entries[f->count].value_length += (uint32_t)part.len;
    return 0;
}

int http_fields_end(struct http_fields *f)
{
    int r = fields_open(f);
    if (r < 0)
        return r;
    struct http_field_position *open = &f->entries[f->count];
    open->name_offset = fields_open_offset(f);
    open->value_offset = open->name_offset + open->name_length;
    f->count++;
    /* The next open field starts from nothing, also where an array place is used again. */
    if (f->count < f->capacity)
        f->entries[f->count] = (struct http_field_position){0};
    return 0;
}

int http_fields_add(struct http_fields *f, struct span name, struct span value)
{
    size_t mark = f->text.len;
    int r = http_fields_append_name(f, name);
    if (r == 0)
        r = http_fields_append_value(f, value);
    if (r == 0)
        return http_fields_end(f);
    f->text.len = mark;
    if (f->count < f->capacity)
        f->entries[f->count] = (struct http_field_position){0};
    return r;
}

struct span http_fields_name(const struct http_fields *f, uint32_t index)
{
    const struct http_field_position *e = &f->entries[index];
    return (struct span){f->text.data + e->name_offset, e->name_length};
}

struct span http_fields_value(const struct http_fields *f, uint32_t index)
{
    const struct http_field_position *e = &f->entries[index];
    return (struct span){f->text.data + e->value_offset, e->value_length};
}

struct span http_fields_find(const struct http_fields *f, struct span wanted)
{
    for (uint32_t i = 0; i < f->count; i++)
        if (span_equals_nocase(http_fields_name(f, i), wanted))
            return http_fields_value(f, i);
    return SPAN_NONE;
}

uint32_t http_fields_count(const struct http_fields *f, const char *name)
{
    struct span wanted = span_from_str(name);
    uint32_t count = 0;
    for (uint32_t i = 0; i < f->count; i++)
        count += span_equals_nocase(http_fields_name(f, i), wanted);
    return count;
}

bool http_fields_is_hop_by_hop(const struct http_fields *f, struct span name)
{
    static const struct span always[] = {
        {"connection", 10}, {"keep-alive", 10},        {"te", 2},
        {"trailer", 7},     {"transfer-encoding", 17}, {"upgrade", 7},
    };
    static const struct span proxy_prefix = {"proxy-", 6};
    for (size_t i = 0; i < sizeof(always) / sizeof(always[0]); i++)
        if (span_equals_nocase(name, always[i]))
            return true;
    if (name.len >= proxy_prefix.len &&
        span_equals_nocase((struct span){name.ptr, proxy_prefix.len}, proxy_prefix))
        return true;
    for (uint32_t i = 0; i < f->count; i++) {
        if (!span_equals_nocase(http_fields_name(f, i), SPAN_LIT("connection")))
            continue;
        struct span rest = http_fields_value(f, i);
        struct span token;
        while (span_split_next(&rest, ',', &token))
            if (token.len > 0 && span_equals_nocase(token, name))
                return true;
    }
    return false;
}
