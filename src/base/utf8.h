/* UTF-8 as RFC 3629 has it: no overlong forms, no surrogates, nothing above U+10FFFF. */
#ifndef FAILSOFT_BASE_UTF8_H
#define FAILSOFT_BASE_UTF8_H

#include <stddef.h>

/*
 * Length of the well-formed sequence that starts at p (1 to 4 bytes), or 0 when the bytes there are
 * not well-formed within the n that are left (a cut sequence is not well-formed).
 */
size_t utf8_sequence_length(const char *p, size_t n);

#endif
