/* Bounded sentences. See text.h. */
#include "policy/text.h"

#include "base/units.h"

#include <string.h>

enum { UNITS_TEXT_MAX = 40, DECIMAL_MAX = 20, HEX_DIGITS = 16, DECIMAL = 10 };

void text_init(struct text *t, char *out, size_t size)
{
    *t = (struct text){.out = out, .size = size};
    out[0] = '\0';
}

/* The end of a text that was cut says so. */
static void text_mark_cut(struct text *t)
{
    static const char mark[] = "...";
    size_t mark_len = sizeof(mark) - 1;
    t->cut = true;
    if (t->size > mark_len) {
        t->len = t->size - 1;
        memcpy(t->out + t->len - mark_len, mark, mark_len);
        t->out[t->len] = '\0';
    }
}

void text_add(struct text *t, const char *s)
{
    if (!s || t->cut)
        return;
    for (; *s; s++) {
        if (t->len + 1 >= t->size) {
            text_mark_cut(t);
            return;
        }
        bool printable = *s >= ' ' && *s <= '~';
        t->out[t->len++] = printable ? *s : '?';
        t->out[t->len] = '\0';
    }
}

void text_add_u64(struct text *t, uint64_t value)
{
    char digits[DECIMAL_MAX + 1];
    size_t at = DECIMAL_MAX;
    digits[at] = '\0';
    do {
        digits[--at] = (char)('0' + value % DECIMAL);
        value /= DECIMAL;
    } while (value > 0);
    text_add(t, digits + at);
}

void text_add_hex(struct text *t, uint64_t value)
{
    static const char hex[] = "0123456789abcdef";
    char digits[HEX_DIGITS + 1];
    for (unsigned i = 0; i < HEX_DIGITS; i++)
        digits[i] = hex[(value >> (4 * (HEX_DIGITS - 1 - i))) & 0xf];
    digits[HEX_DIGITS] = '\0';
    text_add(t, digits);
}

void text_add_bytes(struct text *t, uint64_t bytes)
{
    char shown[UNITS_TEXT_MAX];
    text_add(t, units_format_bytes(bytes, shown, sizeof(shown)));
}

void text_add_ms(struct text *t, uint64_t ms)
{
    char shown[UNITS_TEXT_MAX];
    text_add(t, units_format_duration_ms(ms, shown, sizeof(shown)));
}
