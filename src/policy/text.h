/*
 * Sentences with numbers into a buffer of fixed size, for the reasons that decisions carry: policy/
 * has neither stdio nor memory of its own. What does not fit is cut at a whole character and ends in
 * "...". ASCII in, ASCII out: a reason also travels in a header field.
 *
 * Pure.
 */
#ifndef FAILSOFT_POLICY_TEXT_H
#define FAILSOFT_POLICY_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct text {
    char *out;   /* always terminated */
    size_t size; /* of out, at least 1 */
    size_t len;
    bool cut; /* something did not fit */
};

/* An empty text in out. */
void text_init(struct text *t, char *out, size_t size);

/* Appends. Bytes that are no printable ASCII become '?'; s NULL: nothing. */
void text_add(struct text *t, const char *s);
void text_add_u64(struct text *t, uint64_t value);
void text_add_hex(struct text *t, uint64_t value); /* 16 digits */
void text_add_bytes(struct text *t, uint64_t bytes);
void text_add_ms(struct text *t, uint64_t ms);

#endif
