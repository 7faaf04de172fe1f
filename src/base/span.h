/*
 * A span is a borrowed piece of bytes: pointer and length, no terminator, no ownership. It stays
 * valid as long as the memory it points into; whoever returns a span says what that is.
 */
#ifndef FAILSOFT_BASE_SPAN_H
#define FAILSOFT_BASE_SPAN_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

struct span {
    const char *ptr;
    size_t len;
};

#define SPAN_LIT(s) ((struct span){(s), sizeof(s) - 1})
#define SPAN_NONE   ((struct span){NULL, 0})
/* For printf: printf("%.*s", SPAN_FMT(sp)). */
#define SPAN_FMT(s) (int)(s).len, ((s).ptr ? (s).ptr : "")

static inline struct span span_from_str(const char *s)
{
    return (struct span){s, s ? strlen(s) : 0};
}

static inline bool span_equals(struct span a, struct span b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

static inline bool span_equals_str(struct span a, const char *s)
{
    return span_equals(a, span_from_str(s));
}

static inline bool span_starts_with(struct span a, struct span prefix)
{
    return a.len >= prefix.len && (prefix.len == 0 || memcmp(a.ptr, prefix.ptr, prefix.len) == 0);
}

/* The same bytes but for the case of ASCII letters; both have `len`. Use span_equals_nocase. */
bool span_same_letters(const char *a, const char *b, size_t len);

/*
 * ASCII case-insensitive comparison, as HTTP field names and tokens are compared (RFC 9110 §5.1).
 * Inline up to the first letter: most names that are compared differ in length or there.
 */
static inline bool span_equals_nocase(struct span a, struct span b)
{
    enum { CASE_BIT = 0x20 };
    if (a.len != b.len)
        return false;
    return a.len == 0 || ((a.ptr[0] | CASE_BIT) == (b.ptr[0] | CASE_BIT) &&
                          span_same_letters(a.ptr, b.ptr, a.len));
}

/* Without leading and trailing SP and HTAB (RFC 9110 OWS). */
struct span span_trim(struct span a);

/* Position of needle in a, or -1. */
ptrdiff_t span_find(struct span a, struct span needle);

/* As span_find, ASCII case-insensitive. */
ptrdiff_t span_find_nocase(struct span a, struct span needle);

/*
 * Takes the next element of a list separated by `separator` off *rest and trims it.
 * False when nothing is left. Empty elements are returned as empty spans.
 */
bool span_split_next(struct span *rest, char separator, struct span *ret_item);

#endif
