/* Units: what people write, what is refused, and that nothing wraps. */
#include "tests/unit/unit.h"

#include "base/units.h"

#include <errno.h>

struct parse_case {
    const char *text;
    int result;
    uint64_t value;
};

static void check(const struct parse_case *cases, size_t count,
                  int (*parse)(const char *text, uint64_t *ret_value))
{
    for (size_t i = 0; i < count; i++) {
        uint64_t value = 4711;
        int r = parse(cases[i].text, &value);
        if (r != cases[i].result)
            fail_msg("\"%s\": returned %d, expected %d", cases[i].text, r, cases[i].result);
        uint64_t expected = r == 0 ? cases[i].value : 4711; /* untouched on failure */
        if (value != expected)
            fail_msg("\"%s\": %llu, expected %llu", cases[i].text, (unsigned long long)value,
                     (unsigned long long)expected);
    }
}

static void bytes(void **state)
{
    (void)state;
    static const struct parse_case cases[] = {
        {"0", 0, 0},
        {"0B", 0, 0},
        {"17B", 0, 17},
        {"6GiB", 0, UINT64_C(6) << 30},
        {"6 gib", 0, UINT64_C(6) << 30},
        {"512MiB", 0, UINT64_C(512) << 20},
        {"1KiB", 0, 1024},
        {"1KB", 0, 1000},
        {"2mb", 0, 2000000},
        {"3GB", 0, UINT64_C(3000000000)},
        {"1TB", 0, UINT64_C(1000000000000)},
        {"1.5GiB", 0, UINT64_C(1610612736)},
        {"0.1GiB", 0, 107374182}, /* rounded down */
        {"0.5B", 0, 0},
        {"0.000GiB", 0, 0},
        {"1.00000000000000000000000000GiB", 0, UINT64_C(1) << 30},
        {"100.000000000000000000000000GiB", 0, UINT64_C(100) << 30},
        {"16777215TiB", 0, UINT64_C(16777215) << 40},
        {"18446744073709551615B", 0, UINT64_MAX},
        {"18446744073709551616B", -ERANGE, 0},
        {"16777216TiB", -ERANGE, 0},
        {"99999999999999999999999999GiB", -ERANGE, 0},
        {"99999999999999999999999999", -EINVAL, 0},
        {"99999999999999999999999999zz", -EINVAL, 0},
        {"", -EINVAL, 0},
        {"GiB", -EINVAL, 0},
        {"6", -EINVAL, 0},
        {"0 ", -EINVAL, 0},
        {"6G", -EINVAL, 0},
        {"6GiBs", -EINVAL, 0},
        {"-1GiB", -EINVAL, 0},
        {"+1GiB", -EINVAL, 0},
        {" 1GiB", -EINVAL, 0},
        {"1.GiB", -EINVAL, 0},
        {".5GiB", -EINVAL, 0},
        {"1.2.3GiB", -EINVAL, 0},
        {"1e3B", -EINVAL, 0},
        {"0x10B", -EINVAL, 0},
        {"1,5GiB", -EINVAL, 0},
        {"1GiB 2MiB", -EINVAL, 0},
    };
    check(cases, UNIT_COUNT(cases), units_parse_bytes);
}

static void durations(void **state)
{
    (void)state;
    static const struct parse_case cases[] = {
        {"0", 0, 0},
        {"250ms", 0, 250},
        {"30s", 0, 30000},
        {"1.5s", 0, 1500},
        {"2 m", 0, 120000},
        {"3h", 0, 10800000},
        {"1d", 0, 86400000},
        {"0.0015s", 0, 1},
        {"5S", 0, 5000},
        {"5", -EINVAL, 0},
        {"s", -EINVAL, 0},
        {"5sec", -EINVAL, 0},
        {"5min", -EINVAL, 0},
        {"-5s", -EINVAL, 0},
        {"1h30m", -EINVAL, 0},
        {"", -EINVAL, 0},
        {"213503982334d", 0, UINT64_C(18446744073657600000)},
        {"213503982335d", -ERANGE, 0},
    };
    check(cases, UNIT_COUNT(cases), units_parse_duration_ms);
}

static int percent(const char *text, uint64_t *ret_value)
{
    uint32_t value = 0;
    int r = units_parse_percent(text, &value);
    if (r == 0)
        *ret_value = value;
    return r;
}

static void percents(void **state)
{
    (void)state;
    static const struct parse_case cases[] = {
        {"85%", 0, 8500},     {"0%", 0, 0},
        {"100%", 0, 10000},   {"12.5 %", 0, 1250},
        {"0.01%", 0, 1},      {"100.01%", -ERANGE, 0},
        {"101%", -ERANGE, 0}, {"85", -EINVAL, 0},
        {"0", -EINVAL, 0},    {"%", -EINVAL, 0},
        {"", -EINVAL, 0},     {"85%%", -EINVAL, 0},
        {"-1%", -EINVAL, 0},  {"99999999999999999999999%", -ERANGE, 0},
    };
    check(cases, UNIT_COUNT(cases), percent);
    uint32_t untouched = 4711;
    assert_int_equal(units_parse_percent("101%", &untouched), -ERANGE);
    assert_int_equal(untouched, 4711);
}

static void plain_numbers(void **state)
{
    (void)state;
    static const struct parse_case cases[] = {
        {"0", 0, 0},
        {"007", 0, 7},
        {"18446744073709551615", 0, UINT64_MAX},
        {"18446744073709551616", -ERANGE, 0},
        {"99999999999999999999999", -ERANGE, 0},
        {"99999999999999999999999x", -EINVAL, 0},
        {"", -EINVAL, 0},
        {"-1", -EINVAL, 0},
        {"+1", -EINVAL, 0},
        {" 1", -EINVAL, 0},
        {"1 ", -EINVAL, 0},
        {"1.0", -EINVAL, 0},
        {"0x1", -EINVAL, 0},
    };
    check(cases, UNIT_COUNT(cases), units_parse_u64);
}

static void bytes_are_written_short(void **state)
{
    (void)state;
    static const struct {
        uint64_t value;
        const char *text;
    } cases[] = {
        {0, "0 B"},
        {17, "17 B"},
        {1023, "1023 B"},
        {1024, "1 KiB"},
        {1536, "1.5 KiB"},
        {UINT64_C(512) << 20, "512 MiB"},
        {(UINT64_C(1) << 30) - 1, "1 GiB"}, /* never "1024 MiB" */
        {(UINT64_C(1) << 20) - 1, "1 MiB"},
        {UINT64_C(1610612736), "1.5 GiB"},
        {UINT64_C(3) << 40, "3 TiB"},
        {UINT64_MAX, "16777216 TiB"},
    };
    char out[24];
    for (size_t i = 0; i < UNIT_COUNT(cases); i++)
        assert_string_equal(units_format_bytes(cases[i].value, out, sizeof(out)), cases[i].text);
}

static void durations_are_written_short(void **state)
{
    (void)state;
    static const struct {
        uint64_t value;
        const char *text;
    } cases[] = {
        {0, "0 ms"},
        {250, "250 ms"},
        {999, "999 ms"},
        {1000, "1 s"},
        {1500, "1.5 s"},
        {59999, "59.9 s"},
        {60000, "1 min"},
        {125000, "2 min 5 s"},
        {3600000, "1 h"},
        {10920000, "3 h 2 min"},
        {UINT64_C(86400000) * 2, "2 d"},
        {UINT64_C(86400000) * 3 + 3600000 * 5, "3 d 5 h"},
    };
    char out[24];
    for (size_t i = 0; i < UNIT_COUNT(cases); i++)
        assert_string_equal(units_format_duration_ms(cases[i].value, out, sizeof(out)),
                            cases[i].text);
    /* The longest one fits the promised 24 bytes. */
    assert_true(strlen(units_format_duration_ms(UINT64_MAX, out, sizeof(out))) < sizeof(out) - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes),
        cmocka_unit_test(durations),
        cmocka_unit_test(percents),
        cmocka_unit_test(plain_numbers),
        cmocka_unit_test(bytes_are_written_short),
        cmocka_unit_test(durations_are_written_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
