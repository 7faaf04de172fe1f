/* cmocka with the headers that it wants before it, and what it lacks. */
#ifndef FAILSOFT_TESTS_UNIT_H
#define FAILSOFT_TESTS_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/span.h"

#define UNIT_COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* The span has exactly these bytes. */
#define assert_span_equal(span_value, text)                                                        \
    do {                                                                                           \
        struct span unit_span = (span_value);                                                      \
        const char *unit_text = (text);                                                            \
        assert_non_null(unit_span.ptr);                                                            \
        if (!span_equals_str(unit_span, unit_text))                                                \
            fail_msg("got \"%.*s\", expected \"%s\"", SPAN_FMT(unit_span), unit_text);             \
    } while (0)

#endif
