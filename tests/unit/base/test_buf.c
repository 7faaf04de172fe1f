/* The buffer: growth, the cap, and every allocation failing once. */
#include "tests/unit/unit.h"

#include "base/buf.h"
#include "tests/unit/alloc_fail.h"

#include <errno.h>
#include <stdlib.h>

static void empty_owns_nothing(void **state)
{
    (void)state;
    struct buf b;
    alloc_fail_reset_count();
    buf_init(&b, 10);
    assert_null(b.data);
    assert_int_equal(buf_append(&b, "", 0), 0);
    assert_int_equal(buf_append_span(&b, SPAN_NONE), 0);
    assert_null(b.data);
    buf_free(&b);
    buf_free(NULL);
    assert_int_equal(alloc_fail_count(), 0);
}

static void cap_is_exact(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 300);
    char block[300] = {0};
    assert_int_equal(buf_append(&b, block, 299), 0);
    assert_int_equal(buf_append(&b, block, 2), -EMSGSIZE);
    assert_int_equal(b.len, 299);
    assert_int_equal(buf_append(&b, "x", 1), 0);
    assert_int_equal(buf_append(&b, "x", 1), -EMSGSIZE);
    assert_int_equal(buf_reserve(&b, SIZE_MAX), -EMSGSIZE);
    assert_int_equal(buf_reserve_exact(&b, SIZE_MAX), -EMSGSIZE);
    assert_int_equal(buf_printf(&b, "%s", "y"), -EMSGSIZE);
    assert_int_equal(b.len, 300);
    assert_true(b.cap <= 300);
    buf_free(&b);
    assert_int_equal(buf_append(&b, block, 300), 0);
    buf_free(&b);
}

static void growth_is_amortised_and_bounded(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 1000000);
    alloc_fail_reset_count();
    for (size_t i = 0; i < 1000000; i++)
        assert_int_equal(buf_append(&b, "x", 1), 0);
    assert_true(alloc_fail_count() <= 14);
    assert_true(b.cap <= b.max);
    buf_free(&b);

    /* A small cap is not rounded up, and text does not double past it. */
    buf_init(&b, 10);
    assert_int_equal(buf_append(&b, "x", 1), 0);
    assert_true(b.cap <= 10);
    buf_free(&b);
    buf_init(&b, 400);
    for (size_t i = 0; i < 40; i++)
        assert_int_equal(buf_printf(&b, "%d", 1234567890), 0);
    assert_true(b.cap <= 401);
    buf_free(&b);

    buf_init(&b, SIZE_MAX);
    alloc_fail_reset_count();
    assert_int_equal(buf_reserve_exact(&b, 12345), 0);
    assert_int_equal(b.cap, 12345);
    assert_int_equal(buf_reserve_exact(&b, 12345), 0);
    assert_int_equal(alloc_fail_count(), 1);
    buf_free(&b);
}

static void printf_appends(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 10000);
    assert_int_equal(buf_append_str(&b, "a="), 0);
    assert_int_equal(buf_printf(&b, "%d,%s", 42, "text"), 0);
    assert_span_equal(buf_span(&b), "a=42,text");
    assert_int_equal(buf_printf(&b, "%*s", 5000, ""), 0);
    assert_int_equal(b.len, 5009);
    buf_free(&b);
    /* Text that fills the cap to the last byte fits, its terminator does not count. */
    buf_init(&b, 4);
    assert_int_equal(buf_printf(&b, "%s", "1234"), 0);
    assert_int_equal(b.len, 4);
    buf_free(&b);
}

static void json_text_is_escaped(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 10000);
    assert_int_equal(buf_append_json(&b, (struct span){"a\"b\\c\n\t\r\x01\x1f\0/", 12}), 0);
    assert_span_equal(buf_span(&b), "a\\\"b\\\\c\\n\\t\\u000d\\u0001\\u001f\\u0000/");
    b.len = 0;
    assert_int_equal(buf_append_json(&b, SPAN_LIT("\xC3\xA9\xF0\x9F\x98\x80")), 0);
    assert_span_equal(buf_span(&b), "\xC3\xA9\xF0\x9F\x98\x80");
    b.len = 0;
    assert_int_equal(buf_append_json(&b, SPAN_LIT("a\xFFz\xC3")), 0);
    assert_span_equal(buf_span(&b), "a\xEF\xBF\xBDz\xEF\xBF\xBD");
    buf_free(&b);
}

static void consume_drops_the_front(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 100);
    assert_int_equal(buf_append_str(&b, "abcdef"), 0);
    buf_consume(&b, 2);
    assert_span_equal(buf_span(&b), "cdef");
    buf_consume(&b, 0);
    assert_span_equal(buf_span(&b), "cdef");
    buf_consume(&b, 4);
    assert_int_equal(b.len, 0);
    buf_free(&b);
}

/* A run of appends of every kind; the first error, with the length before it in *ret_before. */
static int append_everything(struct buf *b, size_t *ret_before)
{
    int r = 0;
    char block[3000] = {0};
    for (int step = 0; step < 6 && r == 0; step++) {
        *ret_before = b->len;
        if (step == 0)
            r = buf_append_str(b, "0123456789");
        else if (step == 1)
            r = buf_append(b, block, sizeof(block));
        else if (step == 2)
            r = buf_printf(b, "%*d", 4000, 7);
        else if (step == 3)
            r = buf_reserve(b, 20000);
        else if (step == 4)
            r = buf_reserve_exact(b, 50000);
        else
            r = buf_append_span(b, SPAN_LIT("end"));
    }
    return r;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    unsigned failed = 0;
    for (unsigned n = 1;; n++) {
        struct buf b;
        buf_init(&b, 100000);
        alloc_fail_arm(n);
        size_t before = 0;
        int r = append_everything(&b, &before);
        bool happened = alloc_fail_disarm();
        assert_int_equal(r, happened ? -ENOMEM : 0);
        if (happened) {
            failed++;
            assert_int_equal(b.len, before); /* nothing was appended */
            if (before > 0)
                assert_memory_equal(b.data, "0123456789", 10);
            /* The buffer goes on as if nothing had been. */
            assert_int_equal(buf_append_str(&b, "more"), 0);
            assert_memory_equal(b.data + before, "more", 4);
        }
        buf_free(&b);
        if (!happened)
            break;
    }
    assert_int_equal(failed, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(empty_owns_nothing),
        cmocka_unit_test(cap_is_exact),
        cmocka_unit_test(growth_is_amortised_and_bounded),
        cmocka_unit_test(printf_appends),
        cmocka_unit_test(json_text_is_escaped),
        cmocka_unit_test(consume_drops_the_front),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
