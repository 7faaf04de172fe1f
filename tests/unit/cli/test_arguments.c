/*
 * Reading arguments: what is taken, and what is told about a mistake.
 */
#include "unit.h"

#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

struct result {
    int r;
    int status;
    bool json;
    bool extra;
    const char *format;
    const char *file;
    const char *word;
};

static struct result read_words(int argc, char **argv)
{
    struct result got = {0};
    const struct cli_flag flags[] = {{"--json", CLI_FLAG_SWITCH, &got.json, NULL},
                                     {"--file", CLI_FLAG_VALUE, NULL, &got.file},
                                     {"--extra", CLI_FLAG_OPTIONAL, &got.extra, &got.format},
                                     {NULL, CLI_FLAG_SWITCH, NULL, NULL}};
    const struct cli_arguments arguments = {"check", "", flags, &got.word};

    got.status = -1;
    got.r = cli_read_arguments(&arguments, argc, argv, &got.status);
    return got;
}

#define READ(...)                                                                                  \
    read_words((int)(sizeof((char *[]){"check", __VA_ARGS__}) / sizeof(char *)),                   \
               (char *[]){"check", __VA_ARGS__, NULL})

static void test_taken(void **state)
{
    struct result got = READ("--json", "--file", "a", "w");

    (void)state;
    assert_int_equal(got.r, 0);
    assert_true(got.json);
    assert_string_equal(got.file, "a");
    assert_string_equal(got.word, "w");
    got = READ("--file=", "--extra");
    assert_int_equal(got.r, 0);
    assert_string_equal(got.file, "");
    assert_true(got.extra);
    assert_null(got.format);
    got = READ("--extra=x", "--", "--json");
    assert_int_equal(got.r, 0);
    assert_string_equal(got.format, "x");
    assert_false(got.json);
    assert_string_equal(got.word, "--json");
}

static void test_refused(void **state)
{
    (void)state;
    assert_int_equal(READ("--jsn").status, CLI_EXIT_USAGE);
    assert_int_equal(READ("--json=1").status, CLI_EXIT_USAGE);
    assert_int_equal(READ("--file").status, CLI_EXIT_USAGE);
    assert_int_equal(READ("a", "b").status, CLI_EXIT_USAGE);
    assert_int_equal(READ("-x").status, CLI_EXIT_USAGE);
    assert_true(READ("--jsn").r < 0);
    assert_int_equal(READ("--help").status, CLI_EXIT_GOOD);
    assert_true(READ("--help").r < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_taken),
                                       cmocka_unit_test(test_refused)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
