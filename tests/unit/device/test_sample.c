/* What can not be is dropped, and unknown is never free (R4). */
#include "device_rig.h"

#include "device/sample.h"

#include <string.h>

#define MEMORY (DEVICE_HAS_TOTAL | DEVICE_HAS_USED | DEVICE_HAS_FREE | DEVICE_HAS_RESERVED)

static struct device_sample sample_of(uint64_t total, uint64_t used, uint64_t free_bytes,
                                      uint64_t reserved)
{
    struct device_sample s;

    device_sample_init(&s, "gpu0", "test");
    s.state = DEVICE_STATE_PRESENT;
    s.has = MEMORY;
    s.sampled_at_ms = 1000;
    s.total_bytes = total;
    s.used_bytes = used;
    s.free_bytes = free_bytes;
    s.reserved_bytes = reserved;
    return s;
}

static void test_impossible_numbers(void **state)
{
    static const struct {
        const char *name;
        uint64_t total, used, free_bytes, reserved, host;
        bool good;
    } cases[] = {
        {"F34: used + free is not the total", 24576 * MIB, 600 * MIB, 23500 * MIB, 476 * MIB, 0,
         true},
        {"sum above the total", 24 * GIB, 20 * GIB, 10 * GIB, 0, 0, true},
        {"free above the total", 24 * GIB, 0, 24 * GIB + 1, 0, 0, false},
        {"used above the total", 24 * GIB, 25 * GIB, 0, 0, 0, false},
        {"reserved above the total", 24 * GIB, 0, 0, 25 * GIB, 0, false},
        {"total of nothing", 0, 0, 0, 0, 0, false},
        {"all bits set", UINT64_MAX, 0, UINT64_MAX, 0, 0, false},
        {"a large card in a small host", 141 * GIB, 0, 140 * GIB, 0, 8 * GIB, true},
        {"absurd beside the host", 1024 * GIB, 0, 1024 * GIB, 0, 8 * GIB, false},
    };

    (void)state;
    for (size_t i = 0; i < UNIT_COUNT(cases); i++) {
        struct device_sample s =
            sample_of(cases[i].total, cases[i].used, cases[i].free_bytes, cases[i].reserved);
        uint64_t bytes = 77;

        device_sample_check(&s, cases[i].host);
        if (device_sample_free(&s, 1000, 2000, &bytes) != cases[i].good)
            fail_msg("%s", cases[i].name);
        assert_int_equal(bytes, cases[i].good ? cases[i].free_bytes : 77);
        assert_int_equal((s.flags & DEVICE_FLAG_IMPOSSIBLE) != 0, !cases[i].good);
        if (!cases[i].good) {
            assert_int_equal(s.has & DEVICE_HAS_MEMORY, 0);
            assert_true(s.why[0] != '\0');
        }
    }
}

static void test_free_without_total_is_not_trusted(void **state)
{
    struct device_sample s = sample_of(0, 0, GIB, 0);

    (void)state;
    s.has = DEVICE_HAS_FREE;
    device_sample_check(&s, 0);
    assert_int_equal(s.has, 0);
}

static void test_overcommitted_is_not_impossible(void **state)
{
    struct device_sample s = sample_of(GIB, 2 * GIB, 0, 0);

    (void)state;
    s.has |= DEVICE_HAS_OVERCOMMITTED;
    device_sample_check(&s, 0);
    assert_true((s.has & DEVICE_HAS_FREE) != 0);
}

static void test_process_above_the_total(void **state)
{
    struct device_sample s = sample_of(8 * GIB, 0, 8 * GIB, 0);
    struct device_process *p = device_sample_add_process(&s, 42);
    uint64_t bytes = 1;

    (void)state;
    p->has_bytes = true;
    p->bytes = 9 * GIB;
    device_sample_check(&s, 0);
    assert_false(device_sample_process(&s, 42, &bytes));
    assert_int_equal(bytes, 1);
    assert_true((s.flags & DEVICE_FLAG_PROCESSES_PARTIAL) != 0);
}

/* F18, F39, R4: each reason by itself closes the door. */
static void test_what_is_not_free_memory(void **state)
{
    struct device_sample s = sample_of(8 * GIB, 0, 8 * GIB, 0);
    uint64_t bytes;

    (void)state;
    assert_true(device_sample_free(&s, 3000, 2000, &bytes));
    assert_false(device_sample_free(&s, 3001, 2000, &bytes)); /* stale */
    assert_false(device_sample_free(&s, 999, 2000, &bytes));  /* from the future */
    for (uint32_t flag = DEVICE_FLAG_IMPOSSIBLE; flag <= DEVICE_FLAG_RESUMED; flag <<= 1) {
        s.flags = flag;
        assert_false(device_sample_free(&s, 1000, 2000, &bytes));
    }
    s.flags = DEVICE_FLAG_SHARED_HOST | DEVICE_FLAG_PROCESSES_PARTIAL | DEVICE_FLAG_HUNG;
    assert_true(device_sample_free(&s, 1000, 2000, &bytes)); /* young enough is young enough */
    s.flags = 0;
    for (int st = DEVICE_STATE_UNKNOWN; st <= DEVICE_STATE_MISMATCH; st++) {
        s.state = (enum device_state)st;
        assert_int_equal(device_sample_free(&s, 1000, 2000, &bytes), st == DEVICE_STATE_PRESENT);
        assert_string_not_equal(device_state_name(s.state), "");
    }
    s.state = DEVICE_STATE_PRESENT;
    s.has &= ~DEVICE_HAS_FREE;
    assert_false(device_sample_free(&s, 1000, 2000, &bytes));
    s.has |= DEVICE_HAS_FREE;
    s.sampled_at_ms = 0; /* never sampled */
    assert_false(device_sample_free(&s, 1000, 2000, &bytes));
}

static void test_list_of_processes_is_bounded(void **state)
{
    struct device_sample s = sample_of(8 * GIB, 0, 8 * GIB, 0);

    (void)state;
    for (int i = 1; i <= DEVICE_PROCESSES_MAX; i++)
        assert_non_null(device_sample_add_process(&s, i));
    assert_ptr_equal(device_sample_add_process(&s, 3), &s.processes[2]);
    assert_int_equal(s.flags, 0);
    assert_null(device_sample_add_process(&s, 1000));
    assert_true((s.flags & DEVICE_FLAG_PROCESSES_PARTIAL) != 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_impossible_numbers),
        cmocka_unit_test(test_free_without_total_is_not_trusted),
        cmocka_unit_test(test_overcommitted_is_not_impossible),
        cmocka_unit_test(test_process_above_the_total),
        cmocka_unit_test(test_what_is_not_free_memory),
        cmocka_unit_test(test_list_of_processes_is_bounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
