/* NVIDIA cards, with the stub library: F34, F35, F37, F16, and lists of processes. */
#include "device_rig.h"

#include "device/nvml.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct device_spec spec = {.name = "gpu0", .kind = DEVICE_KIND_NVIDIA};

/* Opens it, takes `times` samples, returns the last result. */
static int sample_times(int times, struct device_sample *ret)
{
    char why[DEVICE_WHY_MAX] = "";
    void *source = NULL;
    int rc;

    device_sample_init(ret, "gpu0", "nvml");
    rc = device_source_nvml.open(&spec, &rig_roots, &source, &ret->state, why);
    for (int i = 0; rc == 0 && i < times; i++) {
        device_sample_init(ret, "gpu0", "nvml");
        ret->sampled_at_ms = 1000;
        rc = device_source_nvml.sample(source, ret);
        device_sample_check(ret, 128501256192ull);
    }
    device_source_nvml.close(source);
    return rc;
}

static uint64_t free_of(const struct device_sample *s)
{
    uint64_t bytes = UINT64_MAX;

    (void)device_sample_free(s, 1000, 2000, &bytes);
    return bytes;
}

static void use_old_library(void)
{
    snprintf(rig_roots.nvml_library, sizeof(rig_roots.nvml_library), "%s", STUB_NVML_OLD_PATH);
}

/* F34: total 24576, used 600, free 23500, reserved 476: only free counts, and it is not derived. */
static void test_f34_v2(void **state)
{
    struct device_sample s;

    (void)state;
    assert_int_equal(sample_times(1, &s), 0);
    assert_int_equal(rig_nvml->last_version, 0x02000028);
    assert_int_equal(free_of(&s), 23500 * MIB);
    assert_int_equal(s.used_bytes, 600 * MIB);
    assert_int_equal(s.reserved_bytes, 476 * MIB);
    assert_string_equal(s.pci, "0000:06:00.0");
    assert_int_equal(rig_nvml->n_memory_v1, 0);
    assert_int_equal(rig_nvml->n_init, rig_nvml->n_shutdown);
}

/* F35 and F34: whatever v2 answers, v1 is asked, and from then on only v1; nothing is lost. */
static void test_f35_v2_fails(void **state)
{
    static const int codes[] = {NVML_RETURN_FUNCTION_NOT_FOUND,
                                NVML_RETURN_UNKNOWN,
                                NVML_RETURN_ARGUMENT_VERSION_MISMATCH,
                                NVML_RETURN_INVALID_ARGUMENT,
                                NVML_RETURN_NOT_SUPPORTED,
                                NVML_RETURN_GPU_IS_LOST,
                                12345};

    (void)state;
    for (size_t i = 0; i < UNIT_COUNT(codes); i++) {
        struct device_sample s;

        rig_nvml->memory_v2 = codes[i];
        rig_nvml->n_memory_v1 = rig_nvml->n_memory_v2 = 0;
        assert_int_equal(sample_times(3, &s), 0);
        assert_int_equal(s.state, DEVICE_STATE_PRESENT);
        assert_int_equal(free_of(&s), 23500 * MIB);
        /* v1's `used` has the driver's share in it: not known as used. */
        assert_int_equal(s.has & (DEVICE_HAS_USED | DEVICE_HAS_RESERVED), 0);
        assert_int_equal(rig_nvml->n_memory_v2, 1);
        assert_int_equal(rig_nvml->n_memory_v1, 3);
    }
}

/* The stub itself refuses a bare 2, as drivers do; so the version word above was right. */
static void test_f35_version_word(void **state)
{
    struct nvml_memory_v2 memory = {.version = 2};
    struct nvml nvml;
    nvml_device device;
    char why[DEVICE_WHY_MAX];
    int code;

    (void)state;
    assert_int_equal(nvml_load(STUB_NVML_PATH, &nvml, &code, why), 0);
    assert_int_equal(nvml.device_by_index(0, &device), 0);
    assert_int_equal(nvml.memory_v2(device, &memory), NVML_RETURN_FUNCTION_NOT_FOUND);
    memory.version = NVML_MEMORY_V2_VERSION;
    assert_int_equal(nvml.memory_v2(device, &memory), 0);
    nvml_unload(&nvml);
}

static void test_f34_library_without_v2(void **state)
{
    struct device_sample s;
    struct stub_nvml *old;

    (void)state;
    use_old_library();
    /* Its own state is all zeros: a total of nothing, which is not 0 bytes free. */
    assert_int_equal(sample_times(1, &s), 0);
    assert_int_equal(free_of(&s), UINT64_MAX);
    assert_true((s.flags & DEVICE_FLAG_IMPOSSIBLE) != 0);
    old = rig_open_stub(STUB_NVML_OLD_PATH);
    old->total = 8 * GIB;
    old->free = 7 * GIB;
    old->n_compute = 1;
    old->compute[0] = (struct stub_process){100, 300 * MIB};
    assert_int_equal(sample_times(1, &s), 0);
    assert_int_equal(free_of(&s), 7 * GIB);
    assert_int_equal(s.n_processes, 1);
    assert_int_equal(s.processes[0].bytes, 300 * MIB);
    assert_int_equal(s.has & DEVICE_HAS_RECOVERY, 0);
    old->total = 0;
    old->n_compute = 0;
}

/* F37: "not supported" is the host's memory only where the device is known to be integrated. */
static void test_f37_not_supported(void **state)
{
    static const struct {
        const char *name;
        enum device_integrated given;
        bool pool;
    } cases[] = {
        {"NVIDIA GB10", DEVICE_INTEGRATED_AUTO, true},
        {"Orin (nvgpu)", DEVICE_INTEGRATED_AUTO, true},
        {"NVIDIA Thor", DEVICE_INTEGRATED_AUTO, true},
        {"NVIDIA GB100", DEVICE_INTEGRATED_AUTO, false},
        {"NVIDIA GeForce RTX 3090", DEVICE_INTEGRATED_AUTO, false},
        {"", DEVICE_INTEGRATED_AUTO, false},
        {"NVIDIA N1X", DEVICE_INTEGRATED_YES, true},
        {"NVIDIA GB10", DEVICE_INTEGRATED_NO, false},
    };

    (void)state;
    rig_nvml->memory_v1 = rig_nvml->memory_v2 = NVML_RETURN_NOT_SUPPORTED;
    for (size_t i = 0; i < UNIT_COUNT(cases); i++) {
        struct device_spec with = spec;
        struct device_sample s;

        rig_meminfo(128501256192ull, 100 * GIB);
        snprintf(rig_nvml->name, sizeof(rig_nvml->name), "%s", cases[i].name);
        with.integrated = cases[i].given;
        assert_int_equal(rig_sample(&device_source_nvml, &with, &s), 0);
        if (free_of(&s) != (cases[i].pool ? 100 * GIB : UINT64_MAX))
            fail_msg("%s: %s", cases[i].name, s.why);
        assert_int_equal((s.flags & DEVICE_FLAG_SHARED_HOST) != 0, cases[i].pool);
        if (cases[i].pool) {
            assert_int_equal(s.total_bytes, 128501256192ull);
        } else {
            assert_int_equal(s.state, DEVICE_STATE_UNKNOWN); /* and not lost */
            assert_true(s.why[0] != '\0');
        }
        /* An integrated device whose host can not be read. */
        rig_meminfo(128501256192ull, UINT64_MAX);
        assert_int_equal(rig_sample(&device_source_nvml, &with, &s), 0);
        assert_int_equal(free_of(&s), UINT64_MAX);
    }
}

/* Only "not supported" makes a pool of the host's memory, even for an integrated device. */
static void test_f37_other_errors_make_no_pool(void **state)
{
    struct device_sample s;

    (void)state;
    rig_meminfo(128501256192ull, 100 * GIB);
    snprintf(rig_nvml->name, sizeof(rig_nvml->name), "NVIDIA GB10");
    rig_nvml->memory_v1 = rig_nvml->memory_v2 = NVML_RETURN_UNKNOWN;
    assert_int_equal(rig_sample(&device_source_nvml, &spec, &s), 0);
    assert_int_equal(free_of(&s), UINT64_MAX);
}

static void test_states(void **state)
{
    static const struct {
        int init, handle, memory;
        enum device_state device;
        int rc;
    } cases[] = {
        {0, 0, NVML_RETURN_GPU_IS_LOST, DEVICE_STATE_LOST, -ENODEV},
        {0, 0, NVML_RETURN_RESET_REQUIRED, DEVICE_STATE_RESET_REQUIRED, -ENODEV},
        {0, 0, NVML_RETURN_UNKNOWN, DEVICE_STATE_UNKNOWN, 0},
        {0, 0, NVML_RETURN_UNINITIALIZED, DEVICE_STATE_UNKNOWN, -ENODEV},
        {0, 0, NVML_RETURN_INVALID_ARGUMENT, DEVICE_STATE_UNKNOWN, 0},
        {0, NVML_RETURN_GPU_IS_LOST, 0, DEVICE_STATE_LOST, -ENODEV},
        {0, NVML_RETURN_INVALID_ARGUMENT, 0, DEVICE_STATE_ABSENT, -ENODEV},
        {0, 800, 0, DEVICE_STATE_UNKNOWN, -ENODEV}, /* F38: nobody knows what that is */
        {NVML_RETURN_DRIVER_NOT_LOADED, 0, 0, DEVICE_STATE_NO_DRIVER, -EIO},
        {NVML_RETURN_LIB_RM_VERSION_MISMATCH, 0, 0, DEVICE_STATE_MISMATCH, -EIO}, /* F16 */
        {NVML_RETURN_UNKNOWN, 0, 0, DEVICE_STATE_UNKNOWN, -EIO},                  /* F15: 999 */
    };

    (void)state;
    for (size_t i = 0; i < UNIT_COUNT(cases); i++) {
        struct device_sample s;

        rig_nvml->init = cases[i].init;
        rig_nvml->handle = cases[i].handle;
        rig_nvml->memory_v1 = rig_nvml->memory_v2 = cases[i].memory;
        assert_int_equal(rig_sample(&device_source_nvml, &spec, &s), cases[i].rc);
        if (s.state != cases[i].device || free_of(&s) != UINT64_MAX || s.why[0] == '\0')
            fail_msg("%zu: %s, %s", i, device_state_name(s.state), s.why);
    }
}

static void test_no_library(void **state)
{
    struct device_sample s;

    (void)state;
    snprintf(rig_roots.nvml_library, sizeof(rig_roots.nvml_library), "%s/none.so", rig_root);
    assert_int_equal(rig_sample(&device_source_nvml, &spec, &s), -ENOENT);
    assert_int_equal(s.state, DEVICE_STATE_NO_DRIVER);
    snprintf(rig_roots.nvml_library, sizeof(rig_roots.nvml_library), "libm.so.6");
    assert_int_equal(rig_sample(&device_source_nvml, &spec, &s), -ENOENT);
    assert_non_null(strstr(s.why, "is not NVML"));
}

/* R4 */
static void test_impossible_numbers(void **state)
{
    struct device_sample s;

    (void)state;
    rig_nvml->free = rig_nvml->total + 1;
    assert_int_equal(sample_times(1, &s), 0);
    assert_int_equal(free_of(&s), UINT64_MAX);
    assert_true((s.flags & DEVICE_FLAG_IMPOSSIBLE) != 0);
}

static void put_processes(void)
{
    rig_nvml->n_compute = 3;
    rig_nvml->compute[0] = (struct stub_process){100, 5 * GIB};
    rig_nvml->compute[1] = (struct stub_process){101, NVML_USED_NOT_AVAILABLE};
    rig_nvml->compute[2] = (struct stub_process){102, 0};
    rig_nvml->n_graphics = 2;
    rig_nvml->graphics[0] = (struct stub_process){100, 5 * GIB}; /* C+G: one figure, twice */
    rig_nvml->graphics[1] = (struct stub_process){200, 700 * MIB};
}

static void check_processes(const struct device_sample *s)
{
    uint64_t bytes;

    assert_true((s->has & DEVICE_HAS_PROCESSES) != 0);
    assert_int_equal(s->n_processes, 4);
    assert_int_equal(s->flags, 0); /* "not available" is an answer, not nonsense */
    assert_true(device_sample_process(s, 100, &bytes));
    assert_int_equal(bytes, 5 * GIB);
    assert_false(device_sample_process(s, 101, &bytes)); /* unknown is not none */
    assert_true(device_sample_process(s, 102, &bytes));
    assert_int_equal(bytes, 0);
    assert_true(device_sample_process(s, 200, &bytes));
    assert_int_equal(bytes, 700 * MIB);
}

static void test_processes(void **state)
{
    static const struct {
        int v3, v2, v1;
        bool wide;
    } cases[] = {
        {0, 0, 0, false},
        {NVML_RETURN_FUNCTION_NOT_FOUND, 0, 0, false},
        {NVML_RETURN_UNKNOWN, NVML_RETURN_UNKNOWN, 0, false},
        {0, 0, 0, true}, /* another layout than the library's: not half believed */
    };

    (void)state;
    rig_put("proc/100/comm", "llama-server\n");
    put_processes();
    for (size_t i = 0; i < UNIT_COUNT(cases); i++) {
        struct device_sample s;

        rig_nvml->processes_v3 = cases[i].v3;
        rig_nvml->processes_v2 = cases[i].v2;
        rig_nvml->processes_v1 = cases[i].v1;
        rig_nvml->wide_entries = cases[i].wide;
        rig_nvml->n_processes_v3 = 0;
        assert_int_equal(sample_times(3, &s), 0);
        check_processes(&s);
        assert_string_equal(s.processes[0].program, "llama-server");
        assert_int_equal(rig_nvml->n_processes_v3, i == 0 ? 6 : 2); /* remembered */
    }
}

static void test_processes_not_told(void **state)
{
    struct device_sample s;

    (void)state;
    put_processes();
    rig_nvml->processes_v3 = rig_nvml->processes_v2 = NVML_RETURN_NOT_SUPPORTED;
    rig_nvml->processes_v1 = NVML_RETURN_NO_PERMISSION;
    assert_int_equal(sample_times(1, &s), 0);
    assert_int_equal(s.has & DEVICE_HAS_PROCESSES, 0);
    assert_true((s.flags & DEVICE_FLAG_PROCESSES_PARTIAL) != 0);
    assert_int_equal(free_of(&s), 23500 * MIB); /* the rest stands */
}

static void test_recovery_action(void **state)
{
    static const struct {
        int code;
        unsigned value;
        bool known;
        enum device_recovery recovery;
        enum device_state device;
    } cases[] = {
        {0, 0, true, DEVICE_RECOVERY_NONE, DEVICE_STATE_PRESENT},
        {0, 1, true, DEVICE_RECOVERY_RESET, DEVICE_STATE_RESET_REQUIRED},
        {0, 2, true, DEVICE_RECOVERY_REBOOT, DEVICE_STATE_RESET_REQUIRED},
        {0, 4, true, DEVICE_RECOVERY_DRAIN_AND_RESET, DEVICE_STATE_RESET_REQUIRED},
        {0, 99, true, DEVICE_RECOVERY_OTHER, DEVICE_STATE_RESET_REQUIRED},
        {NVML_RETURN_UNKNOWN, 1, false, 0, DEVICE_STATE_PRESENT},
    };
    struct device_sample s;

    (void)state;
    for (size_t i = 0; i < UNIT_COUNT(cases); i++) {
        rig_nvml->field = cases[i].code;
        rig_nvml->recovery = cases[i].value;
        assert_int_equal(sample_times(1, &s), 0);
        assert_int_equal((s.has & DEVICE_HAS_RECOVERY) != 0, cases[i].known);
        assert_int_equal(s.recovery, cases[i].recovery);
        assert_int_equal(s.state, cases[i].device);
    }
    /* A driver before 570 is asked once. */
    rig_nvml->field = NVML_RETURN_NOT_SUPPORTED;
    rig_nvml->n_fields = 0;
    assert_int_equal(sample_times(5, &s), 0);
    assert_int_equal(rig_nvml->n_fields, 1);
}

/* F18: an Xid arrives although nobody asked. */
static void test_f18_events(void **state)
{
    static const struct {
        unsigned xid, recovery;
        int field;
        enum device_fault fault;
    } cases[] = {
        {79, 0, 0, DEVICE_FAULT_LOST},
        {13, 0, 0, DEVICE_FAULT_APPLICATION},
        {154, 1, 0, DEVICE_FAULT_RESET},
        {154, 0, 0, DEVICE_FAULT_NONE},
        {154, 0, NVML_RETURN_NOT_SUPPORTED, DEVICE_FAULT_RESET},
    };
    void *watcher = NULL;

    (void)state;
    assert_int_equal(device_events_nvml.open(&spec, &rig_roots, &watcher), 0);
    for (size_t i = 0; i < UNIT_COUNT(cases); i++) {
        struct device_event event;

        rig_nvml->field = cases[i].field;
        rig_nvml->recovery = cases[i].recovery;
        rig_nvml->xid = cases[i].xid;
        assert_int_equal(device_events_nvml.wait(watcher, 1000, &event), 1);
        assert_int_equal(event.code, cases[i].xid);
        assert_int_equal(event.fault, cases[i].fault);
        assert_string_equal(event.pci, "0000:06:00.0");
        assert_int_equal(device_events_nvml.wait(watcher, 0, &event), 0);
    }
    device_events_nvml.close(watcher);
}

static void test_events_that_are_not_there(void **state)
{
    struct device_event event = {0};
    void *watcher = NULL;

    (void)state;
    rig_nvml->events_register = NVML_RETURN_NOT_SUPPORTED;
    assert_int_equal(device_events_nvml.open(&spec, &rig_roots, &watcher), -ENOTSUP);
    rig_nvml->events_register = NVML_RETURN_UNKNOWN;
    assert_int_equal(device_events_nvml.open(&spec, &rig_roots, &watcher), -EIO);
    rig_nvml->events_register = 0;
    /* Lost while waiting: said once, then it has to be opened anew. */
    assert_int_equal(device_events_nvml.open(&spec, &rig_roots, &watcher), 0);
    rig_nvml->events_wait = NVML_RETURN_GPU_IS_LOST;
    assert_int_equal(device_events_nvml.wait(watcher, 1000, &event), 1);
    assert_int_equal(event.fault, DEVICE_FAULT_LOST);
    assert_int_equal(device_events_nvml.wait(watcher, 1000, &event), -ENODEV);
    device_events_nvml.close(watcher);
    use_old_library();
    assert_int_equal(device_events_nvml.open(&spec, &rig_roots, &watcher), -ENOTSUP);
}

#define WITH_STUB(test) cmocka_unit_test_setup_teardown(test, rig_setup, rig_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_STUB(test_f34_v2),
        WITH_STUB(test_f35_v2_fails),
        WITH_STUB(test_f35_version_word),
        WITH_STUB(test_f34_library_without_v2),
        WITH_STUB(test_f37_not_supported),
        WITH_STUB(test_f37_other_errors_make_no_pool),
        WITH_STUB(test_states),
        WITH_STUB(test_no_library),
        WITH_STUB(test_impossible_numbers),
        WITH_STUB(test_processes),
        WITH_STUB(test_processes_not_told),
        WITH_STUB(test_recovery_action),
        WITH_STUB(test_f18_events),
        WITH_STUB(test_events_that_are_not_there),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
