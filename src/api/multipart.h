/*
 * Finds form fields in a multipart/form-data body (RFC 7578, RFC 2046) without copying it. Strict:
 * a body that two parsers could cut differently is refused.
 */
#ifndef FAILSOFT_API_MULTIPART_H
#define FAILSOFT_API_MULTIPART_H

#include "base/span.h"

#include <stdbool.h>

struct multipart_part {
    struct span name;    /* value of name="…", raw between the quotes */
    struct span content; /* the bytes of the part */
    bool is_file;        /* has a filename parameter */
    bool is_encoded;     /* has a Content-Transfer-Encoding other than 7bit, 8bit, binary */
};

/*
 * Takes the boundary out of a Content-Type value. True: *ret_boundary points into content_type.
 * False: not multipart/form-data, or no usable boundary (RFC 2046 §5.1.1: 1 to 70 characters).
 */
bool multipart_boundary(struct span content_type, struct span *ret_boundary);

/*
 * Walks the parts in order. Bytes in a part that look like the boundary are content unless they
 * begin a line and are followed by CRLF or "--". 0; -EBADMSG with *ret_what (static text) and
 * *ret_offset (where in the body). Parts before the error have been given out already.
 */
int multipart_each(struct span body, struct span boundary,
                   void (*on_part)(void *ctx, const struct multipart_part *part), void *ctx,
                   const char **ret_what, size_t *ret_offset);

#endif
