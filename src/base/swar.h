/*
 * Eight bytes at a time in an ordinary register ("SIMD within a register"): the question "is there
 * an interesting byte among these eight?" for loops that skip over long plain text. The answers are
 * exact for the word as a whole; which byte it was, the caller finds by looking. Works with any
 * byte order. The formulas are those of "Bit Twiddling Hacks", S. E. Anderson, Stanford.
 */
#ifndef FAILSOFT_BASE_SWAR_H
#define FAILSOFT_BASE_SWAR_H

#include <stdint.h>
#include <string.h>

#define SWAR_ONES  UINT64_C(0x0101010101010101)
#define SWAR_HIGHS UINT64_C(0x8080808080808080)

static inline uint64_t swar_load(const char *p)
{
    uint64_t word;
    memcpy(&word, p, sizeof(word));
    return word;
}

/* Not zero when a byte of the word is `byte`. */
static inline uint64_t swar_has_byte(uint64_t word, unsigned char byte)
{
    uint64_t diff = word ^ (SWAR_ONES * byte);
    return (diff - SWAR_ONES) & ~diff & SWAR_HIGHS;
}

/* Not zero when a byte of the word is below `limit` (1 to 128). */
static inline uint64_t swar_has_below(uint64_t word, unsigned char limit)
{
    return (word - SWAR_ONES * limit) & ~word & SWAR_HIGHS;
}

/* Not zero when a byte of the word is 128 or above. */
static inline uint64_t swar_has_high(uint64_t word)
{
    return word & SWAR_HIGHS;
}

#endif
