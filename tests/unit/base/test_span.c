/* Spans: comparing, trimming, searching, splitting. */
#include "tests/unit/unit.h"

static void equality_is_of_bytes(void **state)
{
    (void)state;
    assert_true(span_equals(SPAN_LIT("ab"), SPAN_LIT("ab")));
    assert_false(span_equals(SPAN_LIT("ab"), SPAN_LIT("aB")));
    assert_false(span_equals(SPAN_LIT("ab"), SPAN_LIT("abc")));
    assert_true(span_equals(SPAN_NONE, SPAN_LIT("")));
    assert_true(span_equals_str(SPAN_LIT("x"), "x"));
    assert_true(span_equals((struct span){"a\0b", 3}, (struct span){"a\0b", 3}));
    assert_false(span_equals((struct span){"a\0b", 3}, (struct span){"a\0c", 3}));
    assert_true(span_starts_with(SPAN_LIT("data: x"), SPAN_LIT("data")));
    assert_true(span_starts_with(SPAN_NONE, SPAN_LIT("")));
    assert_false(span_starts_with(SPAN_LIT("dat"), SPAN_LIT("data")));
}

static void nocase_is_ascii_only(void **state)
{
    (void)state;
    assert_true(span_equals_nocase(SPAN_LIT("Content-Type"), SPAN_LIT("cOnTENT-tYPE")));
    assert_false(span_equals_nocase(SPAN_LIT("a"), SPAN_LIT("b")));
    /* '@' and '`', '[' and '{' differ by the bit that separates the cases of letters. */
    assert_false(span_equals_nocase(SPAN_LIT("@"), SPAN_LIT("`")));
    assert_false(span_equals_nocase(SPAN_LIT("["), SPAN_LIT("{")));
    assert_false(span_equals_nocase(SPAN_LIT("\xC4"), SPAN_LIT("\xE4")));
}

static void trim_takes_space_and_tab(void **state)
{
    (void)state;
    assert_span_equal(span_trim(SPAN_LIT(" \t a b \t")), "a b");
    assert_span_equal(span_trim(SPAN_LIT("\na\r")), "\na\r");
    assert_span_equal(span_trim(SPAN_LIT(" \t ")), "");
    assert_int_equal(span_trim(SPAN_NONE).len, 0);
}

static void find_gives_first_position(void **state)
{
    (void)state;
    assert_int_equal(span_find(SPAN_LIT("abcabc"), SPAN_LIT("bc")), 1);
    assert_int_equal(span_find(SPAN_LIT("abc"), SPAN_LIT("abcd")), -1);
    assert_int_equal(span_find(SPAN_LIT("abc"), SPAN_LIT("")), 0);
    assert_int_equal(span_find(SPAN_NONE, SPAN_LIT("a")), -1);
    assert_int_equal(span_find(SPAN_NONE, SPAN_NONE), 0);
    assert_int_equal(span_find_nocase(SPAN_LIT("xxOuT Of MeMory"), SPAN_LIT("out of memory")), 2);
    assert_int_equal(span_find_nocase(SPAN_LIT("out of"), SPAN_LIT("out of memory")), -1);
    assert_int_equal(span_find_nocase(SPAN_LIT("abc"), SPAN_LIT("bc")), 1);
}

static void split_gives_every_item_once(void **state)
{
    (void)state;
    struct span rest = SPAN_LIT(" a, b ,,c");
    struct span item;
    assert_true(span_split_next(&rest, ',', &item));
    assert_span_equal(item, "a");
    assert_true(span_split_next(&rest, ',', &item));
    assert_span_equal(item, "b");
    assert_true(span_split_next(&rest, ',', &item));
    assert_span_equal(item, "");
    assert_true(span_split_next(&rest, ',', &item));
    assert_span_equal(item, "c");
    assert_false(span_split_next(&rest, ',', &item));

    rest = SPAN_LIT("a,");
    assert_true(span_split_next(&rest, ',', &item));
    assert_true(span_split_next(&rest, ',', &item));
    assert_int_equal(item.len, 0);
    assert_false(span_split_next(&rest, ',', &item));

    rest = SPAN_NONE;
    assert_false(span_split_next(&rest, ',', &item));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equality_is_of_bytes),        cmocka_unit_test(nocase_is_ascii_only),
        cmocka_unit_test(trim_takes_space_and_tab),    cmocka_unit_test(find_gives_first_position),
        cmocka_unit_test(split_gives_every_item_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
