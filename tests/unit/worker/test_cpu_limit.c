/* Threads by quota and affinity (F60), with a made-up /proc and /sys. */
#include "tests/unit/unit.h"

#include "worker/cpu_limit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[64];

static int make_root(void **state)
{
    (void)state;
    snprintf(root, sizeof(root), "/tmp/failsoft-test-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static void put(const char *path, const char *text)
{
    char full[512];
    FILE *f;

    snprintf(full, sizeof(full), "%s%s", root, path);
    for (char *p = full + strlen(root) + 1; (p = strchr(p, '/')) != NULL; p++) {
        *p = '\0';
        mkdir(full, 0700);
        *p = '/';
    }
    f = fopen(full, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static int drop_root(void **state)
{
    static const char *const files[] = {
        "/proc/self/cgroup",
        "/sys/fs/cgroup/cpu.max",
        "/sys/fs/cgroup/a/cpu.max",
        "/sys/fs/cgroup/a/b/cpu.max",
        "/sys/fs/cgroup/cpu/x/cpu.cfs_quota_us",
        "/sys/fs/cgroup/cpu/x/cpu.cfs_period_us",
    };
    static const char *const folders[] = {
        "/proc/self",
        "/proc",
        "/sys/fs/cgroup/a/b",
        "/sys/fs/cgroup/a",
        "/sys/fs/cgroup/cpu/x",
        "/sys/fs/cgroup/cpu",
        "/sys/fs/cgroup",
        "/sys/fs",
        "/sys",
        "",
    };
    char full[512];

    (void)state;
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        snprintf(full, sizeof(full), "%s%s", root, files[i]);
        unlink(full);
    }
    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
        snprintf(full, sizeof(full), "%s%s", root, folders[i]);
        rmdir(full);
    }
    return 0;
}

static void quota_texts(void **state)
{
    static const struct {
        const char *text;
        bool ok;
        unsigned cpus;
    } cases[] = {
        {"400000 100000\n", true, 4},
        {"765000 100000\n", true, 7},
        {"50000 100000\n", true, 1},
        {"max 100000\n", true, 0},
        {"max", true, 0},
        {"100000 100000", true, 1},
        {"", false, 0},
        {"maximum 1", false, 0},
        {"-1 100000", false, 0},
        {"100000", false, 0},
        {"100000 0", false, 0},
        {"1 2 3", false, 0},
        {"99999999999999 1", true, 65536},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        unsigned cpus = 12345;

        assert_int_equal(cpu_limit_parse_max(cases[i].text, &cpus), cases[i].ok);
        assert_int_equal(cpus, cases[i].ok ? cases[i].cpus : 12345);
    }
}

static void smallest_quota_on_the_way_up(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/a/b\n");
    put("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
    put("/sys/fs/cgroup/a/cpu.max", "765000 100000\n");
    assert_int_equal(cpu_limit_read(root, 16), 7);
    assert_int_equal(cpu_limit_read(root, 3), 3);
    put("/sys/fs/cgroup/a/b/cpu.max", "250000 100000\n");
    assert_int_equal(cpu_limit_read(root, 16), 2);
    put("/sys/fs/cgroup/cpu.max", "50000 100000\n");
    assert_int_equal(cpu_limit_read(root, 16), 1);
}

static void unknown_path_still_looks_at_the_mount(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/not/there\n");
    put("/sys/fs/cgroup/cpu.max", "300000 100000\n");
    assert_int_equal(cpu_limit_read(root, 16), 3);
}

static void version_one(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "11:memory:/x\n4:cpuset,cpuacct,cpu:/x\n");
    put("/sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "350000\n");
    put("/sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n");
    assert_int_equal(cpu_limit_read(root, 16), 3);
    put("/sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "-1\n");
    assert_int_equal(cpu_limit_read(root, 16), 16);
}

static void nothing_readable_is_no_limit(void **state)
{
    (void)state;
    assert_int_equal(cpu_limit_read(root, 5), 5);
    assert_int_equal(cpu_limit_read(root, 0), 1);
    assert_true(cpu_limit_affinity() >= 1);
}

static void threads_never_above_the_limit(void **state)
{
    (void)state;
    assert_int_equal(cpu_limit_threads(0, 4), 4);
    assert_int_equal(cpu_limit_threads(2, 4), 2);
    assert_int_equal(cpu_limit_threads(16, 4), 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quota_texts),
        cmocka_unit_test_setup_teardown(smallest_quota_on_the_way_up, make_root, drop_root),
        cmocka_unit_test_setup_teardown(unknown_path_still_looks_at_the_mount, make_root,
                                        drop_root),
        cmocka_unit_test_setup_teardown(version_one, make_root, drop_root),
        cmocka_unit_test_setup_teardown(nothing_readable_is_no_limit, make_root, drop_root),
        cmocka_unit_test(threads_never_above_the_limit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
