/* Heads: numbers, order of fields, all or nothing at the cap. */
#include "tests/unit/unit.h"

#include "http/head.h"
#include "tests/unit/alloc_fail.h"

#include <errno.h>

static void digits_end_where_told(void **state)
{
    static const struct {
        uint64_t value;
        unsigned base;
        const char *text;
    } rows[] = {
        {0, 10, "0"}, {9, 10, "9"},    {10, 10, "10"},     {UINT64_MAX, 10, "18446744073709551615"},
        {0, 16, "0"}, {255, 16, "ff"}, {0x10a, 16, "10a"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[HTTP_HEAD_DIGITS + 1] = {0};
        size_t n = http_head_digits(text + HTTP_HEAD_DIGITS, rows[i].value, rows[i].base);
        assert_string_equal(text + HTTP_HEAD_DIGITS - n, rows[i].text);
    }
}

static void fields_are_written_in_order(void **state)
{
    (void)state;
    struct http_fields f;
    struct buf b;
    http_fields_init(&f, 100);
    buf_init(&b, 100);
    assert_int_equal(http_head_append_fields(&b, &f), 0);
    assert_int_equal(b.len, 0);
    assert_int_equal(http_fields_add(&f, SPAN_LIT("B"), SPAN_LIT("2")), 0);
    assert_int_equal(http_fields_add(&f, SPAN_LIT("A"), SPAN_LIT("")), 0);
    assert_int_equal(http_head_append_fields(&b, &f), 0);
    assert_int_equal(http_head_append_number(&b, SPAN_LIT("N"), 1050), 0);
    assert_span_equal(buf_span(&b), "B: 2\r\nA: \r\nN: 1050\r\n");
    buf_free(&b);
    http_fields_free(&f);
}

static void nothing_is_written_over_the_cap(void **state)
{
    (void)state;
    const struct span parts[] = {SPAN_LIT("12345"), SPAN_NONE, SPAN_LIT("67890")};
    struct http_fields f;
    struct buf b;
    http_fields_init(&f, 100);
    assert_int_equal(http_fields_add(&f, SPAN_LIT("A"), SPAN_LIT("1")), 0);
    assert_int_equal(http_fields_add(&f, SPAN_LIT("B"), SPAN_LIT("2")), 0);
    buf_init(&b, 9);
    assert_int_equal(http_head_append(&b, parts, 3), -EMSGSIZE);
    assert_int_equal(http_head_append_fields(&b, &f), -EMSGSIZE);
    assert_int_equal(http_head_append_number(&b, SPAN_LIT("Length"), 1), -EMSGSIZE);
    assert_int_equal(b.len, 0);
    buf_free(&b);
    buf_init(&b, 10);
    assert_int_equal(http_head_append(&b, parts, 3), 0);
    assert_span_equal(buf_span(&b), "1234567890");
    buf_free(&b);
    http_fields_free(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(digits_end_where_told),
        cmocka_unit_test(fields_are_written_in_order),
        cmocka_unit_test(nothing_is_written_over_the_cap),
    };
    return cmocka_run_group_tests_name("http/head", tests, NULL, NULL);
}
