/* The text format of metrics: samples, labels, and what is passed over. */
#include "tests/unit/unit.h"

#include "worker/metrics_text.h"

#include <math.h>

static void samples_of_a_page(void **state)
{
    struct span page = SPAN_LIT("# HELP a_b what it is {not} a sample\r\n"
                                "# TYPE a_b gauge\r\n"
                                "# 7\n"
                                "a_b 1.5\r\n"
                                "\n"
                                "a:c{x=\"1\",y=\"a } b\\\"{\"} 2e3 1790347303000\n"
                                "nameonly\n"
                                "broken{x=\"1\" 3\n"
                                "word{} seven\n"
                                "  d\t{ x = \"1\" , y=\"\" }\t-0.25");
    struct metrics_sample s;
    struct span value;

    (void)state;
    assert_true(metrics_next(&page, &s));
    assert_true(span_equals_str(s.name, "a_b"));
    assert_int_equal(s.labels.len, 0);
    assert_true(s.value == 1.5);

    assert_true(metrics_next(&page, &s));
    assert_true(span_equals_str(s.name, "a:c"));
    assert_true(s.value == 2000);
    assert_true(metrics_label(s.labels, "y", &value));
    assert_true(span_equals_str(value, "a } b\\\"{"));
    assert_false(metrics_label(s.labels, "z", &value));

    assert_true(metrics_next(&page, &s));
    assert_true(span_equals_str(s.name, "d"));
    assert_true(s.value == -0.25);
    assert_true(metrics_label(s.labels, "x", &value));
    assert_true(span_equals_str(value, "1"));
    assert_true(metrics_label(s.labels, "y", &value));
    assert_int_equal(value.len, 0);
    assert_false(metrics_next(&page, &s));
}

static void words_for_no_number(void **state)
{
    struct span page = SPAN_LIT("a NaN\nb +Inf\nc -Inf\n");
    struct metrics_sample s;

    (void)state;
    assert_true(metrics_next(&page, &s) && isnan(s.value));
    assert_true(metrics_next(&page, &s) && isinf(s.value));
    assert_true(metrics_next(&page, &s) && isinf(s.value));
    assert_false(metrics_next(&page, &s));
}

static void whole_numbers_in_labels(void **state)
{
    struct span labels = SPAN_LIT("a=\"24188\",b=\"None\",c=\"-1\",d=\"1.5\",e=\"\","
                                  "f=\"1000000000000000000\",g=\"999999999999999999\"");
    uint64_t value = 7;

    (void)state;
    assert_true(metrics_label_u64(labels, "a", &value));
    assert_int_equal(value, 24188);
    assert_true(metrics_label_u64(labels, "g", &value));
    value = 7;
    for (const char *name = "bcdefh"; *name; name++) {
        char one[2] = {*name, '\0'};
        assert_false(metrics_label_u64(labels, one, &value));
    }
    assert_int_equal(value, 7);
}

/* Every cut of a page is read to its end, and nothing outside of it is touched (sanitizers). */
static void any_cut(void **state)
{
    static const char page[] =
        "a{x=\"1\\\\\",y=\"\\\"\"} 1 2\nb{x 1\nc=\"{\n{} 4\n\"\n# x\nd 1e999\n";

    (void)state;
    for (size_t from = 0; from < sizeof(page) - 1; from++) {
        for (size_t len = 0; from + len < sizeof(page); len++) {
            char *copy = test_malloc(len + 1);
            memcpy(copy, page + from, len);
            struct span rest = {copy, len}, value;
            struct metrics_sample s;
            size_t left = len + 1;
            while (metrics_next(&rest, &s)) {
                assert_true(rest.len < left);
                left = rest.len;
                (void)metrics_label(s.labels, "y", &value);
            }
            (void)metrics_label((struct span){copy, len}, "y", &value);
            test_free(copy);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_of_a_page),
        cmocka_unit_test(words_for_no_number),
        cmocka_unit_test(whole_numbers_in_labels),
        cmocka_unit_test(any_cut),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
