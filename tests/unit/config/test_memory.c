/*
 * Each allocation fails once: the answer is -ENOMEM, nothing leaks, the output is untouched.
 */
#include "unit.h"

#include "alloc_fail.h"
#include "config/config.h"

#include <errno.h>
#include <string.h>

static const char good[] = "devices: { gpu0: { kind: sim } }\n"
                           "services:\n"
                           "  chat:\n"
                           "    model: /m.gguf\n"
                           "    aliases: [a, b]\n"
                           "    sampling: { top_k: 4 }\n"
                           "    tiers:\n"
                           "      - { name: gpu, env: { A: b }, args: [--mlock] }\n"
                           "      - { name: cpu, url: 'http://h:1/x', model: y }\n";

static void test_good_file(void **state)
{
    bool failed = true;

    (void)state;
    for (unsigned n = 1; failed; n++) {
        struct config_report report;
        struct config *c = NULL;
        int r;

        config_report_init(&report);
        alloc_fail_arm(n);
        r = config_load_string(good, sizeof(good) - 1, "/", &c, &report);
        failed = alloc_fail_disarm();
        assert_int_equal(r, failed ? -ENOMEM : 0);
        assert_true((c == NULL) == failed);
        config_free(c);
        config_report_free(&report);
    }
}

/* A problem that can not be kept is still counted: a bad file never becomes a good one. */
static void test_bad_file(void **state)
{
    static const char bad[] = "x: 1\nservices: { chat: { model: /m.gguf, y: 2 } }\n";
    bool failed = true;

    (void)state;
    for (unsigned n = 1; failed; n++) {
        struct config_report report;
        struct config *c = NULL;
        int r;

        config_report_init(&report);
        alloc_fail_arm(n);
        r = config_load_string(bad, sizeof(bad) - 1, "/", &c, &report);
        failed = alloc_fail_disarm();
        assert_true(r == -ENOMEM || r == -EINVAL);
        assert_null(c);
        if (r == -EINVAL)
            assert_int_equal(report.errors, 2);
        config_report_free(&report);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_good_file),
                                       cmocka_unit_test(test_bad_file)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
