/* Writing message heads. Each function makes room once and copies; see head.h. */
#include "http/head.h"

#include <string.h>

size_t http_head_digits(char *end, uint64_t value, unsigned base)
{
    size_t count = 0;
    do {
        *--end = "0123456789abcdef"[value % base];
        value /= base;
        count++;
    } while (value > 0);
    return count;
}

int http_head_append(struct buf *b, const struct span *parts, size_t count)
{
    size_t total = 0;
    for (size_t i = 0; i < count; i++)
        total += parts[i].len;
    int r = buf_reserve(b, total);
    if (r < 0)
        return r;
    for (size_t i = 0; i < count; i++)
        if (parts[i].len > 0) {
            memcpy(b->data + b->len, parts[i].ptr, parts[i].len);
            b->len += parts[i].len;
        }
    return 0;
}

int http_head_append_fields(struct buf *b, const struct http_fields *fields)
{
    enum { AROUND = 4 }; /* ": " and "\r\n" */
    size_t total = 0;
    for (uint32_t i = 0; i < fields->count; i++)
        total += http_fields_name(fields, i).len + http_fields_value(fields, i).len + AROUND;
    int r = buf_reserve(b, total);
    for (uint32_t i = 0; r == 0 && i < fields->count; i++) {
        const struct span parts[] = {http_fields_name(fields, i), SPAN_LIT(": "),
                                     http_fields_value(fields, i), SPAN_LIT("\r\n")};
        r = http_head_append(b, parts, sizeof(parts) / sizeof(parts[0]));
    }
    return r;
}

int http_head_append_number(struct buf *b, struct span name, uint64_t value)
{
    char text[HTTP_HEAD_DIGITS];
    char *end = text + sizeof(text);
    size_t length = http_head_digits(end, value, 10);
    const struct span parts[] = {name, SPAN_LIT(": "), {end - length, length}, SPAN_LIT("\r\n")};
    return http_head_append(b, parts, sizeof(parts) / sizeof(parts[0]));
}
