/* Bounded sentences. */
#include "tests/unit/unit.h"

#include "policy/text.h"

#include <string.h>

static void puts_numbers_into_words(void **state)
{
    (void)state;
    char out[128];
    struct text t;
    text_init(&t, out, sizeof(out));
    text_add(&t, "needs ");
    text_add_bytes(&t, UINT64_C(5583457484));
    text_add(&t, ", ");
    text_add_u64(&t, UINT64_MAX);
    text_add(&t, ", ");
    text_add_u64(&t, 0);
    text_add(&t, ", ");
    text_add_hex(&t, 0xab);
    text_add(&t, ", ");
    text_add_ms(&t, 1500);
    text_add(&t, NULL);
    assert_string_equal(out, "needs 5.2 GiB, 18446744073709551615, 0, 00000000000000ab, 1.5 s");
    assert_false(t.cut);
    assert_int_equal(t.len, strlen(out));
}

static void a_reason_fits_a_header_field(void **state)
{
    (void)state;
    char out[16];
    struct text t;
    text_init(&t, out, sizeof(out));
    text_add(&t, "a\r\nX: b\x7f\xc3\xa4");
    assert_string_equal(out, "a??X: b???");
}

static void what_does_not_fit_is_marked(void **state)
{
    (void)state;
    for (size_t size = 1; size < 20; size++) {
        char out[32];
        memset(out, '#', sizeof(out));
        struct text t;
        text_init(&t, out, size);
        text_add(&t, "abcdefgh");
        text_add(&t, "ijklmnop");
        assert_int_equal(t.cut, size < 17);
        assert_true(strlen(out) < size);
        assert_int_equal(out[size], '#');
        if (t.cut && size > 3)
            assert_string_equal(out + strlen(out) - 3, "...");
        size_t len = t.len;
        if (t.cut)
            text_add(&t, "more");
        assert_int_equal(t.len, len);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(puts_numbers_into_words),
        cmocka_unit_test(a_reason_fits_a_header_field),
        cmocka_unit_test(what_does_not_fit_is_marked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
