/*
 * Makes the Nth allocation of a test fail, to prove that an out-of-memory answer leaves everything
 * as it was. For a test executable linked with `unit_alloc_fail_link_args` (the linker sends every
 * malloc, calloc and realloc of the code under test here); include it in its one source file only.
 *
 *   for (unsigned n = 1;; n++) {
 *       alloc_fail_arm(n);
 *       ... the operation; it must return -ENOMEM, or succeed ...
 *       if (!alloc_fail_disarm())
 *           break;     // fewer than n allocations were made: every one of them has failed once
 *   }
 */
#ifndef FAILSOFT_TESTS_ALLOC_FAIL_H
#define FAILSOFT_TESTS_ALLOC_FAIL_H

#include <stdbool.h>
#include <stddef.h>

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *p, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *p, size_t size);

static unsigned alloc_fail_left; /* 0: not armed; 1: the next one fails */
static bool alloc_fail_happened;
static unsigned alloc_fail_calls; /* allocations since the last arm, disarm or reset */

static inline void alloc_fail_reset_count(void)
{
    alloc_fail_calls = 0;
}

static inline unsigned alloc_fail_count(void)
{
    return alloc_fail_calls;
}

static inline void alloc_fail_arm(unsigned nth)
{
    alloc_fail_left = nth;
    alloc_fail_happened = false;
    alloc_fail_calls = 0;
}

/* True when an allocation has failed since alloc_fail_arm(). */
static inline bool alloc_fail_disarm(void)
{
    alloc_fail_left = 0;
    alloc_fail_calls = 0;
    return alloc_fail_happened;
}

static bool alloc_fail_now(void)
{
    alloc_fail_calls++;
    if (alloc_fail_left == 0 || --alloc_fail_left > 0)
        return false;
    alloc_fail_happened = true;
    return true;
}

void *__wrap_malloc(size_t size)
{
    return alloc_fail_now() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return alloc_fail_now() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *p, size_t size)
{
    return alloc_fail_now() ? NULL : __real_realloc(p, size);
}

#endif
