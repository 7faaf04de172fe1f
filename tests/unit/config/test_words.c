/* Likeness of words, and showing foreign text without harm. */
#include "unit.h"

#include "config/words.h"

#include <string.h>

static const char *const words[] = {"gpu", "hybrid", "cpu", "substitute", "remote", NULL};

static void test_distance(void **state)
{
    (void)state;
    assert_int_equal(words_distance("", ""), 0);
    assert_int_equal(words_distance("abc", ""), 3);
    assert_int_equal(words_distance("slots", "slot"), 1);
    assert_int_equal(words_distance("haed", "head"), 1);
    assert_int_equal(words_distance("kitten", "sitting"), 3);
    assert_int_equal(words_distance("Flash-Attention", "flash_attention"), 0);
    assert_true(words_distance("0123456789012345678901234567890123456789x", "a") > 1000);
}

static void test_suggest(void **state)
{
    (void)state;
    assert_string_equal(words_suggest_from("hybird", words), "hybrid");
    assert_string_equal(words_suggest_from("CPU", words), "cpu");
    assert_string_equal(words_suggest_from("remotes", words), "remote");
    assert_string_equal(words_suggest_from("subsitute", words), "substitute");
    assert_null(words_suggest_from("x", words));
    assert_null(words_suggest_from("", words));
    assert_null(words_suggest_from("elephant", words));
}

static const char *quote(const char *text, size_t len)
{
    static char out[WORDS_QUOTED_SIZE];

    return words_quote(text, len, out);
}

static void test_quote(void **state)
{
    char longest[200];

    (void)state;
    assert_string_equal(quote("a b", 3), "`a b`");
    assert_string_equal(quote("", 0), "``");
    assert_string_equal(quote("\x1b[1m\n\x7f", 6), "`\\x1b[1m\\x0a\\x7f`");
    assert_string_equal(quote("\xff\xfe", 2), "`\\xff\\xfe`");
    assert_string_equal(quote("äö", 4), "`äö`");
    assert_string_equal(quote("\xc2\x9b", 2), "`\\xc2\\x9b`");
    memset(longest, 1, sizeof(longest));
    assert_int_equal(strlen(quote(longest, sizeof(longest))), 48 * 4 + 2 + strlen("…"));
    /* Never in the middle of a character. */
    memcpy(longest, "x", 1);
    for (int i = 1; i + 3 < (int)sizeof(longest); i += 3)
        memcpy(longest + i, "€", 3);
    assert_int_equal(strlen(quote(longest, 100)), 1 + 46 + strlen("…") + 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_distance),
                                       cmocka_unit_test(test_suggest),
                                       cmocka_unit_test(test_quote)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
