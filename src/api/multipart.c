/*
 * multipart/form-data, cut in place. One pass with memmem; no state is kept.
 *
 *   --B CRLF headers CRLF CRLF content CRLF--B CRLF … CRLF--B-- [CRLF]
 *
 * Pure; any thread.
 */
#include "api/multipart.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

enum {
    BOUNDARY_MAX = 70,       /* RFC 2046 §5.1.1 */
    PART_HEAD_MAX = 8 * 1024 /* headers of one part; real ones are under 300 bytes */
};

struct walk {
    struct span body;
    struct span delimiter; /* "--B" */
    char delimiter_text[BOUNDARY_MAX + 2];
    const char *what;
    size_t offset;
};

static bool is_boundary_char(char c)
{
    /* bchars of RFC 2046 without the space, which nobody sends and parsers trim differently. */
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c != '\0' && strchr("'()+_,-./:=?", c) != NULL);
}

/* Takes `name=value` or `name="value"` off *rest, after a ';'. False at the end or when broken. */
static bool next_parameter(struct span *rest, struct span *ret_name, struct span *ret_value,
                           bool *ret_broken)
{
    *ret_broken = false;
    struct span r = span_trim(*rest);
    if (r.len == 0)
        return false;
    *ret_broken = true;
    if (r.ptr[0] != ';')
        return false;
    r = span_trim((struct span){r.ptr + 1, r.len - 1});
    if (r.len == 0) { /* a trailing ';' says nothing */
        *ret_broken = false;
        return false;
    }
    const char *equals = memchr(r.ptr, '=', r.len);
    if (equals == NULL)
        return false;
    *ret_name = span_trim((struct span){r.ptr, (size_t)(equals - r.ptr)});
    struct span v = {equals + 1, r.len - (size_t)(equals - r.ptr) - 1};
    size_t i = 0;
    if (v.len > 0 && v.ptr[0] == '"') {
        for (i = 1; i < v.len && v.ptr[i] != '"'; i++)
            if (v.ptr[i] == '\\')
                i++;
        if (i >= v.len)
            return false;
        *ret_value = (struct span){v.ptr + 1, i - 1};
        i++;
    } else {
        while (i < v.len && v.ptr[i] != ';' && v.ptr[i] != ' ' && v.ptr[i] != '\t')
            i++;
        *ret_value = (struct span){v.ptr, i};
    }
    *rest = (struct span){v.ptr + i, v.len - i};
    *ret_broken = false;
    return true;
}

bool multipart_boundary(struct span content_type, struct span *ret_boundary)
{
    struct span rest = content_type;
    const char *semicolon = rest.len ? memchr(rest.ptr, ';', rest.len) : NULL;
    if (semicolon == NULL)
        return false;
    struct span type = span_trim((struct span){rest.ptr, (size_t)(semicolon - rest.ptr)});
    if (!span_equals_nocase(type, SPAN_LIT("multipart/form-data")))
        return false;
    rest = (struct span){semicolon, rest.len - (size_t)(semicolon - rest.ptr)};
    struct span name, value, boundary = SPAN_NONE;
    bool broken;
    while (next_parameter(&rest, &name, &value, &broken)) {
        if (!span_equals_nocase(name, SPAN_LIT("boundary")))
            continue;
        if (boundary.ptr != NULL)
            return false; /* two boundaries: which one would the worker take? */
        boundary = value;
    }
    if (broken || boundary.ptr == NULL || boundary.len == 0 || boundary.len > BOUNDARY_MAX)
        return false;
    for (size_t i = 0; i < boundary.len; i++)
        if (!is_boundary_char(boundary.ptr[i]))
            return false;
    *ret_boundary = boundary;
    return true;
}

static int fail(struct walk *w, size_t offset, const char *what)
{
    w->offset = offset;
    w->what = what;
    return -EBADMSG;
}

/* Reads one Content-Disposition value into part. NULL when fine. */
static const char *read_disposition(struct span value, struct multipart_part *part)
{
    const char *semicolon = value.len ? memchr(value.ptr, ';', value.len) : NULL;
    size_t type_len = semicolon ? (size_t)(semicolon - value.ptr) : value.len;
    if (!span_equals_nocase(span_trim((struct span){value.ptr, type_len}), SPAN_LIT("form-data")))
        return "Content-Disposition of a part is not form-data";
    struct span rest = {value.ptr + type_len, value.len - type_len};
    struct span name, v;
    bool broken;
    while (next_parameter(&rest, &name, &v, &broken)) {
        if (span_equals_nocase(name, SPAN_LIT("name*")))
            return "name* is not allowed in a form (RFC 7578)";
        if (span_equals_nocase(name, SPAN_LIT("name"))) {
            if (part->name.ptr != NULL)
                return "a part with two names";
            part->name = v;
        } else if (span_equals_nocase(name, SPAN_LIT("filename")) ||
                   span_equals_nocase(name, SPAN_LIT("filename*"))) {
            part->is_file = true;
        }
    }
    return broken ? "broken parameters in a Content-Disposition" : NULL;
}

static bool is_plain_encoding(struct span value)
{
    return span_equals_nocase(value, SPAN_LIT("7bit")) ||
           span_equals_nocase(value, SPAN_LIT("8bit")) ||
           span_equals_nocase(value, SPAN_LIT("binary"));
}

/* Headers of a part: lines ended by CRLF. NULL when fine. */
static const char *read_head(struct span head, struct multipart_part *part)
{
    bool has_disposition = false;
    while (head.len > 0) {
        const char *cr = memchr(head.ptr, '\r', head.len);
        size_t len = cr ? (size_t)(cr - head.ptr) : head.len;
        struct span line = {head.ptr, len};
        size_t step = cr ? len + 2 : len;
        if (cr && (len + 1 >= head.len || cr[1] != '\n'))
            return "bare CR in the headers of a part";
        if (memchr(line.ptr, '\n', line.len) || memchr(line.ptr, '\0', line.len))
            return "bare LF or NUL in the headers of a part";
        const char *colon = memchr(line.ptr, ':', line.len);
        if (colon == NULL || line.ptr[0] == ' ' || line.ptr[0] == '\t')
            return "a header line of a part without a name";
        struct span name = {line.ptr, (size_t)(colon - line.ptr)};
        struct span value = span_trim((struct span){colon + 1, line.len - name.len - 1});
        if (span_equals_nocase(name, SPAN_LIT("content-disposition"))) {
            if (has_disposition)
                return "two Content-Disposition headers in a part";
            has_disposition = true;
            const char *why = read_disposition(value, part);
            if (why != NULL)
                return why;
        } else if (span_equals_nocase(name, SPAN_LIT("content-transfer-encoding"))) {
            part->is_encoded = !is_plain_encoding(value);
        }
        head = (struct span){head.ptr + step, head.len - step};
    }
    return has_disposition && part->name.ptr != NULL ? NULL : "a part without a name";
}

/* Offset of the CRLF of the next delimiter line at or after `from`, or -1. */
static ptrdiff_t find_delimiter(const struct walk *w, size_t from)
{
    char needle[sizeof(w->delimiter_text) + 2] = "\r\n";
    memcpy(needle + 2, w->delimiter.ptr, w->delimiter.len);
    size_t needle_len = w->delimiter.len + 2;
    while (from + needle_len <= w->body.len) {
        const char *hit = memmem(w->body.ptr + from, w->body.len - from, needle, needle_len);
        if (hit == NULL)
            return -1;
        size_t at = (size_t)(hit - w->body.ptr);
        size_t after = at + needle_len;
        if (after + 2 <= w->body.len && (memcmp(w->body.ptr + after, "\r\n", 2) == 0 ||
                                         memcmp(w->body.ptr + after, "--", 2) == 0))
            return (ptrdiff_t)at;
        from = at + 2; /* looks like the boundary but is content */
    }
    return -1;
}

/* One part that begins at *at (after the delimiter's CRLF); moves *at behind its delimiter. */
static int read_part(struct walk *w, size_t *at, struct multipart_part *part)
{
    size_t window = w->body.len - *at;
    window = window > PART_HEAD_MAX ? PART_HEAD_MAX : window;
    const char *start = w->body.ptr + *at;
    const char *blank = memmem(start, window, "\r\n\r\n", 4);
    if (blank == NULL)
        return fail(w, *at, "the headers of a part do not end");
    size_t head_len = (size_t)(blank - start);
    *part = (struct multipart_part){0};
    const char *why = read_head((struct span){start, head_len}, part);
    if (why != NULL)
        return fail(w, *at, why);
    size_t content = *at + head_len + 4;
    /* The CRLF before the delimiter may be the one that ends the headers: an empty part. */
    ptrdiff_t end = find_delimiter(w, content - 2);
    if (end < 0)
        return fail(w, w->body.len, "the last boundary is missing, the body is cut");
    size_t content_end = (size_t)end < content ? content : (size_t)end;
    part->content = (struct span){w->body.ptr + content, content_end - content};
    *at = (size_t)end + 2 + w->delimiter.len;
    return 0;
}

int multipart_each(struct span body, struct span boundary,
                   void (*on_part)(void *ctx, const struct multipart_part *part), void *ctx,
                   const char **ret_what, size_t *ret_offset)
{
    struct walk w = {.body = body};
    memcpy(w.delimiter_text, "--", 2);
    memcpy(w.delimiter_text + 2, boundary.ptr, boundary.len);
    w.delimiter = (struct span){w.delimiter_text, boundary.len + 2};
    int r = 0;
    size_t at = w.delimiter.len;
    if (!span_starts_with(body, w.delimiter))
        r = fail(&w, 0, "the body does not begin with the boundary of its Content-Type");
    while (r == 0) {
        if (at + 2 > body.len) {
            r = fail(&w, body.len, "the body ends in a boundary");
        } else if (memcmp(body.ptr + at, "--", 2) == 0) {
            struct span epilogue = {body.ptr + at + 2, body.len - at - 2};
            if (epilogue.len != 0 && !span_equals(epilogue, SPAN_LIT("\r\n")))
                r = fail(&w, at + 2, "something follows the last boundary");
            break;
        } else if (memcmp(body.ptr + at, "\r\n", 2) != 0) {
            r = fail(&w, at, "something follows a boundary on its line");
        } else {
            struct multipart_part part;
            at += 2;
            r = read_part(&w, &at, &part);
            if (r == 0)
                on_part(ctx, &part);
        }
    }
    if (r < 0) {
        *ret_what = w.what;
        *ret_offset = w.offset;
    }
    return r;
}
