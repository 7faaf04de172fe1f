/* The table of well-formed byte sequences (Unicode 15, table 3-7) as code. Pure; any thread. */
#include "base/utf8.h"

#include <stdbool.h>

static bool in_range(unsigned char c, unsigned char low, unsigned char high)
{
    return c >= low && c <= high;
}

size_t utf8_sequence_length(const char *p, size_t n)
{
    const unsigned char *u = (const unsigned char *)p;
    if (n == 0)
        return 0;
    if (u[0] < 0x80)
        return 1;
    if (in_range(u[0], 0xC2, 0xDF))
        return n >= 2 && in_range(u[1], 0x80, 0xBF) ? 2 : 0;
    if (in_range(u[0], 0xE0, 0xEF)) {
        unsigned char low = u[0] == 0xE0 ? 0xA0 : 0x80;
        unsigned char high = u[0] == 0xED ? 0x9F : 0xBF;
        return n >= 3 && in_range(u[1], low, high) && in_range(u[2], 0x80, 0xBF) ? 3 : 0;
    }
    if (in_range(u[0], 0xF0, 0xF4)) {
        unsigned char low = u[0] == 0xF0 ? 0x90 : 0x80;
        unsigned char high = u[0] == 0xF4 ? 0x8F : 0xBF;
        return n >= 4 && in_range(u[1], low, high) && in_range(u[2], 0x80, 0xBF) &&
                       in_range(u[3], 0x80, 0xBF)
                   ? 4
                   : 0;
    }
    return 0;
}
