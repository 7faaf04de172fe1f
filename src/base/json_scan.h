/*
 * A validating JSON scanner that copies nothing. It checks a whole text against RFC 8259 (UTF-8
 * included) and tells where the members of the top-level object stand, so that a large body can be
 * validated, routed and changed by splicing without a second copy in memory. A DOM library would
 * hold 16 bytes a value, or destroy the text it reads in place; small texts go to yyjson.
 */
#ifndef FAILSOFT_BASE_JSON_SCAN_H
#define FAILSOFT_BASE_JSON_SCAN_H

#include "base/span.h"

#include <stdbool.h>

enum json_kind {
    JSON_KIND_NONE = 0, /* absent */
    JSON_KIND_OBJECT,
    JSON_KIND_ARRAY,
    JSON_KIND_STRING,
    JSON_KIND_NUMBER,
    JSON_KIND_TRUE,
    JSON_KIND_FALSE,
    JSON_KIND_NULL,
};

/* Deeper nesting than this is an error ("too deep"): no recursion on input, a bit a level. */
enum { JSON_SCAN_MAX_DEPTH = 512 };

struct json_member {
    struct span key;   /* raw, between the quotes, escapes not resolved */
    struct span value; /* raw, with quotes for a string, without surrounding white space */
    enum json_kind kind;
    bool key_has_escape; /* the key is written with backslashes */
};

struct json_scan_error {
    size_t offset; /* of the first byte that is wrong; the length of the text if it ends early */
    const char *message; /* static text, e.g. "expected ':' after a key" */
};

/*
 * Validates text as exactly one JSON value (white space around it allowed, a BOM is an error, and so
 * is a \u escape of half a surrogate pair). Numbers may have any size and keys may repeat.
 * If it is an object, `on_member` (may be NULL) is called for each top-level member, in order,
 * while scanning, before the rest is known to be valid. *ret_kind is the kind of the value.
 * 0; -EBADMSG with *ret_error (may be NULL) filled. Time: linear. Memory: none.
 */
int json_scan(struct span text, void (*on_member)(void *ctx, const struct json_member *m),
              void *ctx, enum json_kind *ret_kind, struct json_scan_error *ret_error);

/*
 * Resolves the escapes of a raw string value (with its quotes, known valid) into out, terminated.
 * 0; -EMSGSIZE when out is too small; -EINVAL when it is not a string or has an unpaired surrogate
 * or an embedded NUL. What out holds after an error is not specified.
 */
int json_scan_get_string(struct span raw, char *out, size_t out_size);

/* The key of a member, its escapes resolved into text where it has any. False: it has text_size bytes or
 * more, or cannot be resolved; text_size is chosen larger than every name that matters. */
bool json_scan_get_key(const struct json_member *m, char *text, size_t text_size,
                       struct span *ret_key);

/* Line and column (both from 1, column in bytes) of an offset, for messages. */
void json_scan_locate(struct span text, size_t offset, size_t *ret_line, size_t *ret_column);

#endif
