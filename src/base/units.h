/*
 * Numbers with written units, as people put them in a configuration: `6GiB`, `30s`, `85%`.
 * Pure; checked arithmetic: what does not fit is an error, never a wrapped number.
 */
#ifndef FAILSOFT_BASE_UNITS_H
#define FAILSOFT_BASE_UNITS_H

#include <stddef.h>
#include <stdint.h>

/*
 * Bytes: a number (a fraction is allowed) and one of B, KiB, MiB, GiB, TiB, KB, MB, GB, TB
 * (binary and decimal, case-insensitive, space allowed between). "0" needs no unit.
 * 0, -EINVAL (not a size), -ERANGE (too large).
 */
int units_parse_bytes(const char *text, uint64_t *ret_bytes);

/* Duration: a number and ms, s, m, h or d. "0" needs no unit. 0, -EINVAL, -ERANGE. */
int units_parse_duration_ms(const char *text, uint64_t *ret_ms);

/* Percent: a number 0 to 100 with `%`. Result in 1/100 percent (85% → 8500). 0, -EINVAL, -ERANGE. */
int units_parse_percent(const char *text, uint32_t *ret_hundredths);

/* Plain non-negative decimal integer, nothing else. 0, -EINVAL, -ERANGE. */
int units_parse_u64(const char *text, uint64_t *ret_value);

/* "1.5 GiB", "512 MiB", "17 B" into out (at least 24 bytes); returns out. */
char *units_format_bytes(uint64_t bytes, char *out, size_t out_size);

/* "250 ms", "1.5 s", "2 min 5 s", "3 h 2 min" into out (at least 24 bytes); returns out. */
char *units_format_duration_ms(uint64_t ms, char *out, size_t out_size);

#endif
