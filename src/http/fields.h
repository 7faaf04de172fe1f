/*
 * The header fields of one message: names and values in one owned buffer, in the order received.
 * Also used to build a head. Spans handed out are valid until the next change.
 */
#ifndef FAILSOFT_HTTP_FIELDS_H
#define FAILSOFT_HTTP_FIELDS_H

#include "base/buf.h"
#include "base/span.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct http_field_position {
    uint32_t name_offset, name_length;
    uint32_t value_offset, value_length;
};

struct http_fields {
    struct buf text;
    struct http_field_position *entries;
    uint32_t count, capacity;
};

enum { HTTP_FIELDS_MAX_COUNT = 128 };

/* An empty set that holds at most max_bytes of text. Allocates nothing. */
void http_fields_init(struct http_fields *f, size_t max_bytes);
void http_fields_free(struct http_fields *f);
/* Empty again, the memory is kept. */
void http_fields_clear(struct http_fields *f);

/* Appends a field. 0; -EMSGSIZE (text or count over the cap); -ENOMEM. */
int http_fields_add(struct http_fields *f, struct span name, struct span value);

/*
 * Building a field piece by piece, as a parser delivers it: `name` and `value` may be called
 * several times each; `http_fields_end` closes the field. Errors as http_fields_add.
 */
int http_fields_append_name(struct http_fields *f, struct span part);
int http_fields_append_value(struct http_fields *f, struct span part);
int http_fields_end(struct http_fields *f);

struct span http_fields_name(const struct http_fields *f, uint32_t index);
struct span http_fields_value(const struct http_fields *f, uint32_t index);

/* First value of a field by name (case-insensitive); .ptr is NULL when absent. */
struct span http_fields_find(const struct http_fields *f, struct span name);

/* The same with a literal, whose length the compiler knows. */
static inline struct span http_fields_get(const struct http_fields *f, const char *name)
{
    return http_fields_find(f, span_from_str(name));
}

/* How often a field is present. */
uint32_t http_fields_count(const struct http_fields *f, const char *name);

/*
 * True for fields that belong to one connection and must not be forwarded (RFC 9110 §7.6.1):
 * Connection, Keep-Alive, Proxy-*, TE, Trailer, Transfer-Encoding, Upgrade, and every field named
 * in the message's own Connection field.
 */
bool http_fields_is_hop_by_hop(const struct http_fields *f, struct span name);

#endif
