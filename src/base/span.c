/* Comparing and cutting borrowed pieces of bytes. Pure; any thread. */
#include "base/span.h"

static unsigned char ascii_lower(char c)
{
    unsigned char u = (unsigned char)c;
    return (u >= 'A' && u <= 'Z') ? (unsigned char)(u + 32) : u;
}

bool span_same_letters(const char *a, const char *b, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (ascii_lower(a[i]) != ascii_lower(b[i]))
            return false;
    return true;
}

struct span span_trim(struct span a)
{
    while (a.len > 0 && (a.ptr[0] == ' ' || a.ptr[0] == '\t')) {
        a.ptr++;
        a.len--;
    }
    while (a.len > 0 && (a.ptr[a.len - 1] == ' ' || a.ptr[a.len - 1] == '\t'))
        a.len--;
    return a;
}

ptrdiff_t span_find(struct span a, struct span needle)
{
    if (needle.len == 0)
        return 0;
    const char *hit = a.len >= needle.len ? memmem(a.ptr, a.len, needle.ptr, needle.len) : NULL;
    return hit ? hit - a.ptr : -1;
}

ptrdiff_t span_find_nocase(struct span a, struct span needle)
{
    if (needle.len == 0)
        return 0;
    for (size_t i = 0; i + needle.len <= a.len; i++)
        if (span_equals_nocase((struct span){a.ptr + i, needle.len}, needle))
            return (ptrdiff_t)i;
    return -1;
}

bool span_split_next(struct span *rest, char separator, struct span *ret_item)
{
    if (!rest->ptr)
        return false;
    const char *hit = rest->len ? memchr(rest->ptr, separator, rest->len) : NULL;
    if (hit) {
        size_t n = (size_t)(hit - rest->ptr);
        *ret_item = span_trim((struct span){rest->ptr, n});
        rest->ptr = hit + 1;
        rest->len -= n + 1;
    } else {
        *ret_item = span_trim(*rest);
        *rest = SPAN_NONE;
    }
    return true;
}
