/* Small files: strict and bounded. Garbage is an error and never a zero. */
#include "device_rig.h"

#include "device/text.h"

#include <errno.h>
#include <string.h>

static void test_numbers(void **state)
{
    static const struct {
        const char *text;
        int rc;
        uint64_t value;
    } cases[] = {
        {"0\n", 0, 0},
        {" 42 \n", 0, 42},
        {"18446744073709551615\n", 0, UINT64_MAX},
        {"18446744073709551616\n", -ERANGE, 0},
        {"99999999999999999999999999\n", -ERANGE, 0},
        {"", -EINVAL, 0},
        {"\n", -EINVAL, 0},
        {"-1\n", -EINVAL, 0},
        {"+1\n", -EINVAL, 0},
        {"12x\n", -EINVAL, 0},
        {"0x10\n", -EINVAL, 0},
        {"1.5\n", -EINVAL, 0},
        {"1 2\n", -EINVAL, 0},
        {"[N/A]\n", -EINVAL, 0},
    };

    (void)state;
    for (size_t i = 0; i < UNIT_COUNT(cases); i++) {
        uint64_t value = 7;

        rig_put("n", "%s", cases[i].text);
        assert_int_equal(device_text_read_u64(rig_root, "n", &value), cases[i].rc);
        assert_int_equal(value, cases[i].rc == 0 ? cases[i].value : 7);
    }
    assert_int_equal(device_text_read_u64(rig_root, "missing", &(uint64_t){0}), -ENOENT);
}

static void test_sizes(void **state)
{
    static const struct {
        const char *text;
        int rc;
        uint64_t bytes;
    } cases[] = {
        {"  123 kB", 0, 123 * 1024},
        {"5 KiB", 0, 5 * 1024},
        {"7 MiB", 0, 7 * MIB},
        {"2 GiB", 0, 2 * GIB},
        {"99", 0, 99},
        {"12 MB", -EINVAL, 0},
        {"kB", -EINVAL, 0},
        {"12 kBx", -EINVAL, 0},
        {"18446744073709551615 kB", -ERANGE, 0},
    };

    (void)state;
    for (size_t i = 0; i < UNIT_COUNT(cases); i++) {
        uint64_t bytes = 7;

        assert_int_equal(device_text_parse_size(span_from_str(cases[i].text), &bytes), cases[i].rc);
        assert_int_equal(bytes, cases[i].rc == 0 ? cases[i].bytes : 7);
    }
}

static void test_reading_is_bounded(void **state)
{
    char small[8];
    struct span text = SPAN_NONE;

    (void)state;
    rig_put("f", "1234567");
    assert_int_equal(device_text_read(rig_root, "f", small, sizeof(small), &text), 0);
    assert_span_equal(text, "1234567");
    rig_put("f", "12345678");
    assert_int_equal(device_text_read(rig_root, "f", small, sizeof(small), &text), -EFBIG);
    assert_int_equal(device_text_read(rig_root, "", small, sizeof(small), &text), -EISDIR);
}

static void test_fields(void **state)
{
    struct span text = SPAN_LIT("MemTotalX: 1 kB\nMemTotal:  2 kB\nlast: 9");
    uint64_t value = 7;

    (void)state;
    assert_int_equal(device_text_field_size(text, "MemTotal", ':', &value), 0);
    assert_int_equal(value, 2048);
    assert_int_equal(device_text_field_u64(text, "last", ':', &value), 0);
    assert_int_equal(value, 9);
    assert_int_equal(device_text_field_u64(text, "Mem", ':', &value), -ENOENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_numbers, rig_setup, rig_teardown),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test_setup_teardown(test_reading_is_bounded, rig_setup, rig_teardown),
        cmocka_unit_test(test_fields),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
