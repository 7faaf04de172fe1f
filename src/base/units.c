/*
 * Numbers with units as people write them. A decimal number is read into an integer and a count of
 * decimal places, and multiplied by its unit in 128 bits, so that "0.1GiB" is exact, rounding is
 * down, and nothing can wrap. Pure; any thread.
 */
#include "base/units.h"

#include "base/span.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

__extension__ typedef unsigned __int128 units_wide;

/* The value is digits / 10^places. */
struct units_decimal {
    uint64_t digits;
    unsigned places;
};

struct units_unit {
    const char *name;
    uint64_t factor;
};

static const struct units_unit byte_units[] = {
    {"B", 1},
    {"KiB", 1024},
    {"MiB", 1024 * 1024},
    {"GiB", 1024 * 1024 * 1024},
    {"TiB", UINT64_C(1024) * 1024 * 1024 * 1024},
    {"KB", 1000},
    {"MB", 1000 * 1000},
    {"GB", 1000 * 1000 * 1000},
    {"TB", UINT64_C(1000) * 1000 * 1000 * 1000},
    {NULL, 0},
};

enum { MS_PER_S = 1000, MS_PER_MIN = 60 * MS_PER_S, MS_PER_H = 60 * MS_PER_MIN };

static const struct units_unit duration_units[] = {
    {"ms", 1}, {"s", MS_PER_S}, {"m", MS_PER_MIN}, {"h", MS_PER_H}, {"d", UINT64_C(24) * MS_PER_H},
    {NULL, 0},
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Takes a decimal number off the start of *text. At least one digit on each side of the point. */
static int take_decimal(const char **text, struct units_decimal *ret_number)
{
    /* Places beyond what 64 bits hold are dropped: they are far below a byte or a millisecond. */
    const uint64_t full = UINT64_MAX / 10 - 1;
    struct units_decimal number = {0, 0};
    const char *p = *text;
    bool in_fraction = false;
    if (!is_digit(*p))
        return -EINVAL;
    for (; is_digit(*p) || (*p == '.' && !in_fraction); p++) {
        if (*p == '.') {
            if (!is_digit(p[1]))
                return -EINVAL;
            in_fraction = true;
            continue;
        }
        if (in_fraction && number.digits >= full)
            continue;
        if (__builtin_mul_overflow(number.digits, UINT64_C(10), &number.digits) ||
            __builtin_add_overflow(number.digits, (uint64_t)(*p - '0'), &number.digits))
            return -ERANGE;
        if (in_fraction)
            number.places++;
    }
    *text = p;
    *ret_number = number;
    return 0;
}

static int multiply(struct units_decimal number, uint64_t factor, uint64_t *ret_value)
{
    units_wide wide = (units_wide)number.digits * factor;
    for (unsigned i = 0; i < number.places; i++)
        wide /= 10;
    if (wide > UINT64_MAX)
        return -ERANGE;
    *ret_value = (uint64_t)wide;
    return 0;
}

static int parse_with_unit(const char *text, const struct units_unit *units, uint64_t *ret_value)
{
    struct units_decimal number = {0, 0}; /* read only when complete; gcc does not see it */
    const char *p = text;
    int r = take_decimal(&p, &number);
    /* A number that is too long is out of range only if what follows it is a unit at all. */
    if (r == -ERANGE) {
        while (is_digit(*p) || *p == '.')
            p++;
    } else if (r < 0) {
        return r;
    }
    struct span unit = span_trim(span_from_str(p));
    if (unit.len == 0 && r == 0 && number.digits == 0 && *p == '\0') {
        *ret_value = 0;
        return 0;
    }
    for (const struct units_unit *u = units; u->name; u++)
        if (span_equals_nocase(unit, span_from_str(u->name)))
            return r < 0 ? r : multiply(number, u->factor, ret_value);
    return -EINVAL;
}

int units_parse_bytes(const char *text, uint64_t *ret_bytes)
{
    return parse_with_unit(text, byte_units, ret_bytes);
}

int units_parse_duration_ms(const char *text, uint64_t *ret_ms)
{
    return parse_with_unit(text, duration_units, ret_ms);
}

int units_parse_percent(const char *text, uint32_t *ret_hundredths)
{
    static const struct units_unit percent_units[] = {{"%", 100}, {NULL, 0}};
    uint64_t hundredths;
    struct span whole = span_trim((struct span){text, strlen(text)});
    if (whole.len == 0 || whole.ptr[whole.len - 1] != '%')
        return -EINVAL;
    int r = parse_with_unit(text, percent_units, &hundredths);
    if (r < 0)
        return r;
    if (hundredths > 100 * 100)
        return -ERANGE;
    *ret_hundredths = (uint32_t)hundredths;
    return 0;
}

int units_parse_u64(const char *text, uint64_t *ret_value)
{
    uint64_t value = 0;
    bool too_large = false;
    if (*text == '\0')
        return -EINVAL;
    for (const char *p = text; *p; p++) {
        if (!is_digit(*p))
            return -EINVAL;
        if (__builtin_mul_overflow(value, UINT64_C(10), &value) ||
            __builtin_add_overflow(value, (uint64_t)(*p - '0'), &value))
            too_large = true;
    }
    if (too_large)
        return -ERANGE;
    *ret_value = value;
    return 0;
}

char *units_format_bytes(uint64_t bytes, char *out, size_t out_size)
{
    static const char *const names[] = {"KiB", "MiB", "GiB", "TiB"};
    if (bytes < 1024) {
        snprintf(out, out_size, "%" PRIu64 " B", bytes);
        return out;
    }
    unsigned shift = 10;
    unsigned i = 0;
    /* "1024.0 MiB" would be a rounded "1 GiB": go up as soon as the rounded value would. */
    while (i + 1 < sizeof(names) / sizeof(names[0]) &&
           (((units_wide)bytes * 10 + (UINT64_C(1) << shift) / 2) >> shift) >= 10240) {
        shift += 10;
        i++;
    }
    uint64_t tenths = (uint64_t)(((units_wide)bytes * 10 + (UINT64_C(1) << shift) / 2) >> shift);
    if (tenths % 10 == 0)
        snprintf(out, out_size, "%" PRIu64 " %s", tenths / 10, names[i]);
    else
        snprintf(out, out_size, "%" PRIu64 ".%" PRIu64 " %s", tenths / 10, tenths % 10, names[i]);
    return out;
}

/* "2 min 5 s", or "2 min" when nothing of the smaller unit is left. */
static void format_pair(char *out, size_t out_size, uint64_t large, const char *large_name,
                        uint64_t small, const char *small_name)
{
    if (small == 0)
        snprintf(out, out_size, "%" PRIu64 " %s", large, large_name);
    else
        snprintf(out, out_size, "%" PRIu64 " %s %" PRIu64 " %s", large, large_name, small,
                 small_name);
}

char *units_format_duration_ms(uint64_t ms, char *out, size_t out_size)
{
    if (ms < MS_PER_S) {
        snprintf(out, out_size, "%" PRIu64 " ms", ms);
        return out;
    }
    uint64_t tenths = ms / 100;
    uint64_t seconds = ms / MS_PER_S;
    if (ms < MS_PER_MIN) {
        if (tenths % 10 == 0)
            snprintf(out, out_size, "%" PRIu64 " s", seconds);
        else
            snprintf(out, out_size, "%" PRIu64 ".%" PRIu64 " s", seconds, tenths % 10);
    } else if (ms < MS_PER_H) {
        format_pair(out, out_size, seconds / 60, "min", seconds % 60, "s");
    } else if (ms < UINT64_C(48) * MS_PER_H) {
        format_pair(out, out_size, seconds / 3600, "h", seconds / 60 % 60, "min");
    } else {
        format_pair(out, out_size, seconds / 86400, "d", seconds / 3600 % 24, "h");
    }
    return out;
}
