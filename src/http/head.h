/*
 * Writing message heads. A head is made for every request and every answer, so this is done without
 * printf: format strings took a third of the gateway's own time when they were used here.
 *
 * Pure. Nothing here checks what is written: names and values come from a parser or from us.
 */
#ifndef FAILSOFT_HTTP_HEAD_H
#define FAILSOFT_HTTP_HEAD_H

#include "base/buf.h"
#include "http/fields.h"

#include <stddef.h>
#include <stdint.h>

enum { HTTP_HEAD_DIGITS = 20 }; /* of the largest number in decimal */

/*
 * Writes a number in base 10 or 16 (small letters) so that it ends before `end`, where
 * HTTP_HEAD_DIGITS bytes are free. Returns how many digits it took.
 */
size_t http_head_digits(char *end, uint64_t value, unsigned base);

/* Appends "name: value\r\n" for every field, in order. 0; -EMSGSIZE; -ENOMEM, nothing appended. */
int http_head_append_fields(struct buf *b, const struct http_fields *fields);

/* Appends "name: number\r\n". Errors as above. */
int http_head_append_number(struct buf *b, struct span name, uint64_t value);

/* Appends all parts or, on an error, none of them. Errors as above. */
int http_head_append(struct buf *b, const struct span *parts, size_t count);

#endif
