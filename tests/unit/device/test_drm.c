/* AMD and Intel cards from sysfs and fdinfo (F41), in fake trees. */
#include "device_rig.h"

#include "device/drm.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void put_card(unsigned n, const char *vendor, const char *driver, const char *pci)
{
    char path[128];

    snprintf(path, sizeof(path), "sys/class/drm/card%u/device/vendor", n);
    rig_put(path, "%s\n", vendor);
    snprintf(path, sizeof(path), "sys/class/drm/card%u/device/uevent", n);
    rig_put(path, "DRIVER=%s\nPCI_CLASS=30000\nPCI_SLOT_NAME=%s\n", driver, pci);
}

static void put_memory(unsigned n, const char *what, uint64_t total, uint64_t used)
{
    char path[128];

    snprintf(path, sizeof(path), "sys/class/drm/card%u/device/mem_info_%s_total", n, what);
    rig_put(path, "%" PRIu64 "\n", total);
    snprintf(path, sizeof(path), "sys/class/drm/card%u/device/mem_info_%s_used", n, what);
    rig_put(path, "%" PRIu64 "\n", used);
}

static void put_metrics_format(unsigned n, unsigned char format)
{
    const unsigned char head[] = {0x80, 0x00, format, 0x01, 0xff, 0xff};
    char path[128];

    snprintf(path, sizeof(path), "sys/class/drm/card%u/device/gpu_metrics", n);
    rig_put_bytes(path, head, sizeof(head));
}

static void put_client(int pid, int fd, const char *target, const char *text)
{
    char path[128];

    snprintf(path, sizeof(path), "proc/%d/fd/%d", pid, fd);
    rig_link(path, target);
    snprintf(path, sizeof(path), "proc/%d/fdinfo/%d", pid, fd);
    rig_put(path, "pos:\t0\nflags:\t02100002\nmnt_id:\t27\n%s", text);
}

static struct device_spec spec_of(enum device_kind kind, uint32_t index)
{
    struct device_spec spec = {.kind = kind, .index = index};

    snprintf(spec.name, sizeof(spec.name), "gpu0");
    return spec;
}

static void test_amd_card(void **state)
{
    struct device_spec spec = spec_of(DEVICE_KIND_AMD, 0);
    struct device_sample s;
    uint64_t bytes;

    (void)state;
    rig_meminfo(64 * GIB, 32 * GIB);
    put_card(0, "0x8086", "i915", "0000:00:02.0"); /* not counted */
    put_card(1, "0x1002", "amdgpu", "0000:03:00.0");
    put_card(3, "0x1002", "amdgpu", "0000:0c:00.0");
    put_memory(1, "vram", 16 * GIB, 3 * GIB);
    put_memory(3, "vram", 8 * GIB, GIB);
    put_metrics_format(1, 1);
    assert_int_equal(rig_sample(&device_source_amd, &spec, &s), 0);
    assert_string_equal(s.source, "amdgpu");
    assert_string_equal(s.pci, "0000:03:00.0");
    assert_true(device_sample_free(&s, 1000, 2000, &bytes));
    assert_int_equal(bytes, 13 * GIB);
    assert_int_equal(s.used_bytes, 3 * GIB);
    assert_int_equal(s.flags & DEVICE_FLAG_SHARED_HOST, 0);
    spec.index = 1; /* no gpu_metrics: VRAM alone */
    assert_int_equal(rig_sample(&device_source_amd, &spec, &s), 0);
    assert_int_equal(s.free_bytes, 7 * GIB);
    spec.index = 2;
    assert_true(rig_sample(&device_source_amd, &spec, &s) < 0);
    assert_int_equal(s.state, DEVICE_STATE_ABSENT);
}

/* F41: an APU's pool is the carve-out and what the host can give, never their sum on paper. */
static void test_f41_apu_pool(void **state)
{
    static const struct {
        const char *name;
        uint64_t vram_total, vram_used, gtt_total, gtt_used, host_total, host_available;
        uint64_t free_bytes, dedicated;
    } cases[] = {
        {"512 MiB carve-out, 108 GB of GTT: not a small GPU", 512 * MIB, 100 * MIB, 108 * GIB, 0,
         124 * GIB, 110 * GIB, 108 * GIB + 412 * MIB, 412 * MIB},
        {"the host is busy: MemAvailable decides", 512 * MIB, 100 * MIB, 108 * GIB, 0, 124 * GIB,
         20 * GIB, 20 * GIB + 412 * MIB, 412 * MIB},
        {"8 + 124 GiB on a machine of 128", 8 * GIB, GIB, 124 * GIB, 2 * GIB, 120 * GIB, 100 * GIB,
         107 * GIB, 7 * GIB},
        {"VRAM is all of the memory", 64 * GIB, GIB, 31 * GIB, 0, 62 * GIB, 50 * GIB, 50 * GIB, 0},
        {"96 of 128 GiB carved out", 96 * GIB, 6 * GIB, 16 * GIB, 0, 31 * GIB, 20 * GIB, 106 * GIB,
         90 * GIB},
    };

    (void)state;
    put_card(0, "0x1002", "amdgpu", "0000:c4:00.0");
    for (size_t i = 0; i < UNIT_COUNT(cases); i++) {
        struct device_spec spec = spec_of(DEVICE_KIND_AMD, 0);
        struct device_sample s;
        uint64_t bytes = 0;

        rig_meminfo(cases[i].host_total, cases[i].host_available);
        put_metrics_format(0, i % 2 == 0 ? 2 : 3);
        put_memory(0, "vram", cases[i].vram_total, cases[i].vram_used);
        put_memory(0, "gtt", cases[i].gtt_total, cases[i].gtt_used);
        assert_int_equal(rig_sample(&device_source_amd, &spec, &s), 0);
        if (!device_sample_free(&s, 1000, 2000, &bytes) || bytes != cases[i].free_bytes)
            fail_msg("%s: %" PRIu64 " MiB, %s", cases[i].name, bytes / MIB, s.why);
        assert_int_equal(s.dedicated_free_bytes, cases[i].dedicated);
        assert_true((s.flags & DEVICE_FLAG_SHARED_HOST) != 0);
        assert_true(s.total_bytes <= cases[i].host_total + cases[i].vram_total);
        /* Without the host's figures there is no pool. */
        rig_meminfo(cases[i].host_total, UINT64_MAX);
        (void)rig_sample(&device_source_amd, &spec, &s);
        assert_false(device_sample_free(&s, 1000, 2000, &bytes));
        /* The owner knows better. */
        spec.integrated = DEVICE_INTEGRATED_NO;
        assert_int_equal(rig_sample(&device_source_amd, &spec, &s), 0);
        assert_int_equal(s.free_bytes, cases[i].vram_total - cases[i].vram_used);
    }
}

static void test_amd_garbage(void **state)
{
    static const struct {
        const char *total, *used;
    } cases[] = {
        {"", "0"},
        {"17179869184", ""},
        {"lots", "0"},
        {"17179869184", "17179869185"},
        {"-1", "0"},
        {"0", "0"},
        {"18446744073709551615", "0"},
        {"17179869184", "1 MiB"},
    };

    (void)state;
    put_card(0, "0x1002", "amdgpu", "0000:03:00.0");
    for (size_t i = 0; i < UNIT_COUNT(cases); i++) {
        struct device_spec spec = spec_of(DEVICE_KIND_AMD, 0);
        struct device_sample s;
        uint64_t bytes;

        rig_put("sys/class/drm/card0/device/mem_info_vram_total", "%s\n", cases[i].total);
        rig_put("sys/class/drm/card0/device/mem_info_vram_used", "%s\n", cases[i].used);
        (void)rig_sample(&device_source_amd, &spec, &s);
        if (device_sample_free(&s, 1000, 2000, &bytes) || (s.has & DEVICE_HAS_MEMORY) != 0)
            fail_msg("%zu is believed", i);
        assert_true(s.why[0] != '\0');
    }
}

/* In a pool, an impossible half must not make the other half larger. */
static void test_f41_impossible_half(void **state)
{
    struct device_spec spec = spec_of(DEVICE_KIND_AMD, 0);
    struct device_sample s;

    (void)state;
    rig_meminfo(124 * GIB, 110 * GIB);
    put_card(0, "0x1002", "amdgpu", "0000:c4:00.0");
    put_metrics_format(0, 2);
    put_memory(0, "vram", 512 * MIB, 513 * MIB);
    put_memory(0, "gtt", 62 * GIB, 0);
    (void)rig_sample(&device_source_amd, &spec, &s);
    assert_int_equal(s.has & DEVICE_HAS_MEMORY, 0);
    assert_true((s.flags & DEVICE_FLAG_IMPOSSIBLE) != 0);
}

static void test_processes_of_a_card(void **state)
{
    struct device_spec spec = spec_of(DEVICE_KIND_AMD, 0);
    struct device_sample s;
    uint64_t bytes;

    (void)state;
    put_card(0, "0x1002", "amdgpu", "0000:03:00.0");
    put_memory(0, "vram", 16 * GIB, 3 * GIB);
    rig_put("proc/100/comm", "llama-server\n");
    put_client(100, 7, "/dev/dri/renderD128",
               "drm-driver:\tamdgpu\ndrm-client-id:\t11\ndrm-pdev:\t0000:03:00.0\n"
               "drm-memory-vram:\t2097152 KiB\ndrm-memory-gtt: \t5 KiB\ndrm-memory-cpu: \t9 KiB\n");
    /* The same client on another descriptor, and in a child that inherited it. */
    put_client(100, 8, "/dev/dri/card0",
               "drm-driver:\tamdgpu\ndrm-client-id:\t11\ndrm-pdev:\t0000:03:00.0\n"
               "drm-memory-vram:\t2097152 KiB\n");
    put_client(100, 9, "/dev/dri/renderD128",
               "drm-driver:\tamdgpu\ndrm-client-id:\t12\ndrm-pdev:\t0000:03:00.0\n"
               "drm-total-vram:\t900 MiB\ndrm-resident-vram:\t100 MiB\n");
    /* Another card, no DRM descriptor, and the spelling of an old kernel. */
    put_client(101, 3, "/dev/dri/renderD129",
               "drm-driver:\tamdgpu\ndrm-client-id:\t13\ndrm-pdev:\t0000:0c:00.0\n"
               "drm-memory-vram:\t1 GiB\n");
    put_client(102, 3, "/tmp/renderD128",
               "drm-client-id:\t14\ndrm-pdev:\t0000:03:00.0\ndrm-memory-vram:\t1 GiB\n");
    put_client(103, 3, "/dev/dri/renderD128",
               "pdev:\t0000:03:00.0\npasid:\t32769\nvram mem:\t512 kB\ngtt mem:\t1 kB\n");
    put_client(104, 3, "/dev/dri/renderD128",
               "drm-client-id:\t15\ndrm-pdev:\t0000:03:00.0\ndrm-total-vram:\t3 MiB\n");
    assert_int_equal(rig_sample(&device_source_amd, &spec, &s), 0);
    assert_true((s.has & DEVICE_HAS_PROCESSES) != 0);
    assert_int_equal(s.n_processes, 3);
    assert_true(device_sample_process(&s, 100, &bytes));
    assert_int_equal(bytes, 2 * GIB + 100 * MIB);
    assert_true(device_sample_process(&s, 103, &bytes));
    assert_int_equal(bytes, 512 * 1024);
    assert_true(device_sample_process(&s, 104, &bytes));
    assert_int_equal(bytes, 3 * MIB);
    assert_int_equal(s.flags & DEVICE_FLAG_PROCESSES_PARTIAL, 0);
    for (size_t i = 0; i < s.n_processes; i++) {
        if (s.processes[i].pid == 100)
            assert_string_equal(s.processes[i].program, "llama-server");
    }
}

/* Between two full walks only those that are known are looked at, and the sample says so. */
static void test_walks_are_rationed(void **state)
{
    static const char *const regions[] = {"vram"};
    static const char text[] = "drm-client-id:\t%d\ndrm-pdev:\t0000:03:00.0\n"
                               "drm-memory-vram:\t%d MiB\n";
    struct drm_card card = {.pci = "0000:03:00.0"};
    struct drm_scan scan = {0};
    struct device_sample s;
    char client[128];
    uint64_t bytes;

    (void)state;
    snprintf(client, sizeof(client), text, 1, 10);
    put_client(100, 3, "/dev/dri/renderD128", client);
    device_sample_init(&s, "gpu0", "test");
    drm_processes_read(rig_roots.proc, &card, regions, 1, &scan, &s);
    assert_int_equal(s.n_processes, 1);
    assert_true(scan.next_full_us > 0);
    scan.next_full_us = UINT64_MAX;
    rig_put("proc/100/fdinfo/3", text, 1, 20);
    snprintf(client, sizeof(client), text, 2, 30);
    put_client(101, 3, "/dev/dri/renderD128", client);
    device_sample_init(&s, "gpu0", "test");
    drm_processes_read(rig_roots.proc, &card, regions, 1, &scan, &s);
    assert_true(device_sample_process(&s, 100, &bytes));
    assert_int_equal(bytes, 20 * MIB);
    assert_false(device_sample_process(&s, 101, &bytes));
    assert_true((s.flags & DEVICE_FLAG_PROCESSES_PARTIAL) != 0);
    scan.next_full_us = 0;
    device_sample_init(&s, "gpu0", "test");
    drm_processes_read(rig_roots.proc, &card, regions, 1, &scan, &s);
    assert_true(device_sample_process(&s, 101, &bytes));
    assert_int_equal(s.flags, 0);
}

static void test_fdinfo_garbage(void **state)
{
    struct device_spec spec = spec_of(DEVICE_KIND_AMD, 0);
    struct device_sample s;
    uint64_t bytes;

    (void)state;
    put_card(0, "0x1002", "amdgpu", "0000:03:00.0");
    put_memory(0, "vram", 16 * GIB, 3 * GIB);
    put_client(100, 7, "/dev/dri/renderD128",
               "drm-client-id:\t11\ndrm-pdev:\t0000:03:00.0\ndrm-memory-vram:\tmuch\n");
    put_client(101, 7, "/dev/dri/renderD128",
               "drm-client-id:\t12\ndrm-pdev:\t0000:03:00.0\ndrm-memory-vram:\t17 GiB\n");
    assert_int_equal(rig_sample(&device_source_amd, &spec, &s), 0);
    assert_false(device_sample_process(&s, 100, &bytes));
    assert_false(device_sample_process(&s, 101, &bytes)); /* more than the card has */
    assert_true((s.flags & DEVICE_FLAG_PROCESSES_PARTIAL) != 0);
    assert_true(device_sample_free(&s, 1000, 2000, &bytes));
}

static void test_intel(void **state)
{
    struct device_spec spec = spec_of(DEVICE_KIND_INTEL, 0);
    struct device_sample s;
    uint64_t bytes;

    (void)state;
    put_card(0, "0x8086", "xe", "0000:03:00.0");
    put_card(1, "0x8086", "i915", "0000:04:00.0");
    put_card(2, "0x8086", "i915", "0000:00:02.0");
    rig_put("sys/class/drm/card0/device/tile0/physical_vram_size_bytes", "8589934592\n");
    rig_put("sys/class/drm/card0/device/tile1/physical_vram_size_bytes", "8589934592\n");
    rig_put("sys/class/drm/card1/lmem_total_bytes", "17179869184\n");
    put_client(100, 3, "/dev/dri/renderD128",
               "drm-driver:\txe\ndrm-client-id:\t1\ndrm-pdev:\t0000:03:00.0\n"
               "drm-total-system:\t7 MiB\ndrm-total-vram0:\t900 MiB\ndrm-resident-vram0:\t300 MiB\n"
               "drm-resident-vram1:\t200 MiB\n");
    put_client(
        101, 3, "/dev/dri/renderD129",
        "drm-driver:\ti915\ndrm-client-id:\t1\ndrm-pdev:\t0000:04:00.0\n"
        "drm-total-local0:\t2 GiB\ndrm-resident-local0:\t1 GiB\ndrm-resident-system0:\t5 MiB\n");
    assert_int_equal(rig_sample(&device_source_intel, &spec, &s), 0);
    assert_int_equal(s.total_bytes, 16 * GIB);
    assert_true(device_sample_process(&s, 100, &bytes));
    assert_int_equal(bytes, 500 * MIB);
    /* No file tells free memory, so it is not known. */
    assert_false(device_sample_free(&s, 1000, 2000, &bytes));
    assert_int_equal(s.has & (DEVICE_HAS_FREE | DEVICE_HAS_USED), 0);
    spec.index = 1;
    assert_int_equal(rig_sample(&device_source_intel, &spec, &s), 0);
    assert_int_equal(s.total_bytes, 16 * GIB);
    assert_true(device_sample_process(&s, 101, &bytes));
    assert_int_equal(bytes, GIB);
    spec.index = 2; /* integrated, or a driver that says nothing */
    assert_int_equal(rig_sample(&device_source_intel, &spec, &s), 0);
    assert_int_equal(s.has & DEVICE_HAS_MEMORY, 0);
    assert_true(s.why[0] != '\0');
}

#define IN_TREE(test) cmocka_unit_test_setup_teardown(test, rig_setup, rig_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_TREE(test_amd_card),
        IN_TREE(test_f41_apu_pool),
        IN_TREE(test_amd_garbage),
        IN_TREE(test_f41_impossible_half),
        IN_TREE(test_processes_of_a_card),
        IN_TREE(test_walks_are_rationed),
        IN_TREE(test_fdinfo_garbage),
        IN_TREE(test_intel),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
