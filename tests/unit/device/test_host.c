/* Host memory: meminfo, pressure, cgroups of both versions with every parent (F44, F120, F124). */
#include "device_rig.h"

#include "device/host.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct host_sample sample(void)
{
    struct host_sample s;

    memset(&s, 0, sizeof(s));
    s.sampled_at_ms = 1000;
    host_sample_read(&rig_roots, NULL, 0, &s);
    return s;
}

static void test_meminfo(void **state)
{
    struct host_sample s;
    uint64_t bytes;

    (void)state;
    rig_meminfo(64 * GIB, 8 * GIB);
    s = sample();
    assert_true((s.has & HOST_HAS_SWAP) != 0);
    assert_int_equal(s.swap_total_bytes, 2097148ull * 1024);
    assert_int_equal(s.has & (HOST_HAS_CGROUP | HOST_HAS_PSI), 0);
    assert_true(host_sample_available(&s, 1000, 2000, &bytes));
    assert_int_equal(bytes, 8 * GIB);
    assert_false(host_sample_available(&s, 3001, 2000, &bytes));
}

/* Garbage, a missing line, or what can not be: unknown, not zero and not MemFree. */
static void test_meminfo_that_is_none(void **state)
{
    static const char *const texts[] = {
        "",
        "MemTotal: 1000 kB\nMemFree: 900 kB\n",
        "MemTotal: 1000 kB\nMemAvailable: 1001 kB\n",
        "MemTotal: 1000 kB\nMemAvailable: -5 kB\n",
        "MemTotal: 1000 kB\nMemAvailable: lots\n",
        "MemTotal: 0 kB\nMemAvailable: 0 kB\n",
        "MemTotal: 99999999999999999999 kB\nMemAvailable: 5 kB\n",
        "MemAvailable: 1000 kB\n",
    };

    (void)state;
    for (size_t i = 0; i < UNIT_COUNT(texts); i++) {
        struct host_sample s;

        rig_put("proc/meminfo", "%s", texts[i]);
        s = sample();
        if ((s.has & (HOST_HAS_MEMINFO | HOST_HAS_AVAILABLE)) != 0)
            fail_msg("%zu is believed", i);
        assert_true(s.why[0] != '\0');
    }
    rig_remove("proc/meminfo");
    assert_int_equal(sample().has & HOST_HAS_AVAILABLE, 0);
}

static void test_f124_pressure(void **state)
{
    static const struct {
        const char *text;
        bool known;
        uint32_t some, full;
    } cases[] = {
        {"some avg10=80.25 avg60=10.00 avg300=1.00 total=123\n"
         "full avg10=7.05 avg60=0.00 avg300=0.00 total=45\n",
         true, 8025, 705},
        {"some avg10=0.00 avg60=0.00 avg300=0.00 total=0\nfull avg10=0.00 avg60=0.00\n", true, 0,
         0},
        {"some avg10=100.00 avg60=0\nfull avg10=0.00 a=1\n", true, 10000, 0},
        {"some avg10=80.25\n", false, 0, 0},
        {"some avg10=x\nfull avg10=0.00\n", false, 0, 0},
        {"some avg10=8\nfull avg10=0.00\n", false, 0, 0},
        {"some avg60=8.00\nfull avg10=0.00\n", false, 0, 0},
        {"", false, 0, 0},
    };

    (void)state;
    for (size_t i = 0; i < UNIT_COUNT(cases); i++) {
        struct host_sample s;

        rig_put("proc/pressure/memory", "%s", cases[i].text);
        s = sample();
        assert_int_equal((s.has & HOST_HAS_PSI) != 0, cases[i].known);
        assert_int_equal(s.psi_some_avg10, cases[i].some);
        assert_int_equal(s.psi_full_avg10, cases[i].full);
    }
}

/* --- cgroup version 2 --- */

static void put_level(const char *folder, const char *max, uint64_t current, uint64_t inactive)
{
    char path[256];

    snprintf(path, sizeof(path), "cgroup%s/memory.max", folder);
    rig_put(path, "%s\n", max);
    snprintf(path, sizeof(path), "cgroup%s/memory.current", folder);
    rig_put(path, "%" PRIu64 "\n", current);
    snprintf(path, sizeof(path), "cgroup%s/memory.stat", folder);
    rig_put(path, "anon 1\nfile 2\ninactive_file %" PRIu64 "\nactive_file 3\n", inactive);
}

static void setup_v2(void)
{
    rig_meminfo(64 * GIB, 32 * GIB);
    rig_put("proc/self/cgroup", "0::/user.slice/app.service\n");
    put_level("/user.slice/app.service", "max", GIB, 0);
    put_level("/user.slice", "max", GIB, 0);
}

/* 16 GiB, 15.8 in use of which 12 are cached pages: 12.2 are to be had. */
static void test_f44_cached_pages_are_not_used(void **state)
{
    struct host_sample s;

    (void)state;
    setup_v2();
    put_level("/user.slice/app.service", "17179869184", 16964820992ull, 12 * GIB);
    s = sample();
    assert_true((s.has & HOST_HAS_AVAILABLE) != 0);
    assert_int_equal(s.available_bytes, 17179869184ull - (16964820992ull - 12 * GIB));
    assert_in_range(s.available_bytes, 12 * GIB, 12 * GIB + 300 * MIB);
    assert_string_equal(s.cgroup_level, "/user.slice/app.service");
    assert_int_equal(s.cgroup_version, 2);
}

static void test_f44_no_limit(void **state)
{
    struct host_sample s;

    (void)state;
    setup_v2();
    s = sample();
    assert_int_equal(s.has & HOST_HAS_CGROUP, 0);
    assert_int_equal(s.available_bytes, 32 * GIB);
}

static void test_f44_lower_limit_in_a_parent(void **state)
{
    struct host_sample s;

    (void)state;
    setup_v2();
    put_level("/user.slice/app.service", "17179869184", GIB, 0);
    put_level("/user.slice", "8589934592", 6 * GIB, GIB);
    s = sample();
    assert_int_equal(s.available_bytes, 3 * GIB);
    assert_int_equal(s.cgroup_limit_bytes, 8 * GIB);
    assert_int_equal(s.cgroup_active_file_bytes, 3);
    assert_string_equal(s.cgroup_level, "/user.slice");
    /* The lowest limit need not be the one that is closest to being reached. */
    put_level("/user.slice", "21474836480", 18 * GIB, 0);
    s = sample();
    assert_int_equal(s.available_bytes, 2 * GIB);
    assert_int_equal(s.cgroup_limit_bytes, 16 * GIB);
    put_level("/user.slice", "8589934592", 6 * GIB, GIB);
    /* The root of a container's own tree is a level as well. */
    put_level("", "4294967296", 3 * GIB, 0);
    s = sample();
    assert_int_equal(s.available_bytes, GIB);
    assert_string_equal(s.cgroup_level, "/");
    /* And the host has the last word. */
    rig_meminfo(64 * GIB, GIB / 2);
    assert_int_equal(sample().available_bytes, GIB / 2);
}

static void test_path_unknown_below_the_mount(void **state)
{
    (void)state;
    setup_v2();
    rig_put("proc/self/cgroup", "0::/not/seen/in/here\n");
    put_level("", "4294967296", 3 * GIB, 0);
    assert_int_equal(sample().available_bytes, GIB);
}

static void test_memory_high_is_a_limit(void **state)
{
    (void)state;
    setup_v2();
    put_level("/user.slice/app.service", "17179869184", GIB, 0);
    rig_put("cgroup/user.slice/app.service/memory.high", "2147483648\n");
    assert_int_equal(sample().available_bytes, GIB);
    rig_put("cgroup/user.slice/app.service/memory.high", "max\n");
    assert_int_equal(sample().available_bytes, 15 * GIB);
}

/* A limit that can not be told may be the lowest: then nothing is known. */
static void test_garbage_is_not_no_limit(void **state)
{
    static const char *const limits[] = {"", "-1", "many", "12 GB", "0x100", "max max"};

    (void)state;
    for (size_t i = 0; i < UNIT_COUNT(limits); i++) {
        struct host_sample s;
        uint64_t bytes;

        setup_v2();
        put_level("/user.slice", limits[i], GIB, 0);
        s = sample();
        if (host_sample_available(&s, 1000, 2000, &bytes))
            fail_msg("\"%s\" is believed", limits[i]);
        assert_true(s.why[0] != '\0');
    }
    setup_v2();
    put_level("/user.slice", "8589934592", GIB, 0);
    rig_put("cgroup/user.slice/memory.current", "?\n");
    assert_int_equal(sample().has & HOST_HAS_AVAILABLE, 0);
    setup_v2();
    rig_put("proc/self/cgroup", "nonsense\n");
    assert_int_equal(sample().has & HOST_HAS_AVAILABLE, 0);
}

/* Without memory.stat nothing is given back, which is the careful side. More cache than use: use. */
static void test_inactive_file_is_bounded(void **state)
{
    (void)state;
    setup_v2();
    put_level("/user.slice", "8589934592", 6 * GIB, 0);
    rig_put("cgroup/user.slice/memory.stat", "inactive_file many\n");
    assert_int_equal(sample().available_bytes, 2 * GIB);
    put_level("/user.slice", "8589934592", 6 * GIB, 7 * GIB);
    assert_int_equal(sample().available_bytes, 8 * GIB);
    put_level("/user.slice", "8589934592", 9 * GIB, 0);
    assert_int_equal(sample().available_bytes, 0); /* above its limit: none, and known */
}

static void test_events_and_processors(void **state)
{
    struct host_sample s;

    (void)state;
    setup_v2();
    rig_put("cgroup/user.slice/app.service/memory.events",
            "low 0\nhigh 3\nmax 17\noom 2\noom_kill 1\noom_group_kill 0\n");
    rig_put("cgroup/user.slice/app.service/cpu.max", "400000 100000\n");
    rig_put("cgroup/user.slice/cpu.max", "150000 100000\n");
    rig_put("cgroup/user.slice/app.service/cpu.stat",
            "usage_usec 1\nnr_periods 2\nnr_throttled 3\nthrottled_usec 456\n");
    s = sample();
    assert_true((s.has & HOST_HAS_EVENTS) != 0);
    assert_int_equal(s.oom_kills, 1);
    assert_int_equal(s.limit_hits, 17);
    assert_true((s.has & HOST_HAS_CPU_QUOTA) != 0);
    assert_int_equal(s.cpu_quota_millis, 1500);
    assert_true((s.has & HOST_HAS_THROTTLED) != 0);
    assert_int_equal(s.cpu_throttled_us, 456);
    rig_put("cgroup/user.slice/app.service/cpu.max", "max 100000\n");
    rig_remove("cgroup/user.slice/cpu.max");
    assert_int_equal(sample().has & HOST_HAS_CPU_QUOTA, 0);
}

/* --- cgroup version 1 --- */

static void put_level_v1(const char *folder, const char *limit, uint64_t usage, uint64_t inactive,
                         int hierarchy)
{
    char path[256];

    snprintf(path, sizeof(path), "cgroup/memory%s/memory.limit_in_bytes", folder);
    rig_put(path, "%s\n", limit);
    snprintf(path, sizeof(path), "cgroup/memory%s/memory.usage_in_bytes", folder);
    rig_put(path, "%" PRIu64 "\n", usage);
    snprintf(path, sizeof(path), "cgroup/memory%s/memory.stat", folder);
    rig_put(path, "inactive_file 1\ntotal_inactive_file %" PRIu64 "\n", inactive);
    snprintf(path, sizeof(path), "cgroup/memory%s/memory.use_hierarchy", folder);
    rig_put(path, "%d\n", hierarchy);
}

static void test_version_1(void **state)
{
    struct host_sample s;

    (void)state;
    rig_meminfo(64 * GIB, 32 * GIB);
    rig_put(
        "proc/self/cgroup",
        "12:memory:/docker/abc\n11:cpu,cpuacct:/docker/abc\n1:name=systemd:/docker/abc\n0::/\n");
    put_level_v1("", "9223372036854771712", 40 * GIB, 0, 1);
    put_level_v1("/docker", "8589934592", 7 * GIB, 0, 1);
    put_level_v1("/docker/abc", "17179869184", 10 * GIB, 6 * GIB, 1);
    rig_put("cgroup/memory/docker/abc/memory.failcnt", "5\n");
    rig_put("cgroup/memory/docker/abc/memory.oom_control", "oom_kill_disable 0\noom_kill 2\n");
    rig_put("cgroup/cpu/docker/abc/cpu.cfs_quota_us", "250000\n");
    rig_put("cgroup/cpu/docker/abc/cpu.cfs_period_us", "100000\n");
    rig_put("cgroup/cpu/docker/cpu.cfs_quota_us", "-1\n");
    rig_put("cgroup/cpu/docker/cpu.cfs_period_us", "100000\n");
    /* A tree that has the name of all its controllers. */
    rig_put("cgroup/cpu,cpuacct/docker/cpu.cfs_quota_us", "200000\n");
    rig_put("cgroup/cpu,cpuacct/docker/cpu.cfs_period_us", "100000\n");
    s = sample();
    assert_int_equal(s.available_bytes, GIB);
    assert_string_equal(s.cgroup_level, "/docker");
    assert_int_equal(s.limit_hits, 5);
    assert_int_equal(s.oom_kills, 2);
    assert_int_equal(s.cpu_quota_millis, 2000);
    /* A parent that is not hierarchical does not limit its children. */
    put_level_v1("/docker", "8589934592", 7 * GIB, 0, 0);
    assert_int_equal(sample().available_bytes, 12 * GIB);
    /* All at "no limit". */
    put_level_v1("/docker/abc", "9223372036854771712", 10 * GIB, 0, 1);
    s = sample();
    assert_int_equal(s.has & HOST_HAS_CGROUP, 0);
    assert_int_equal(s.available_bytes, 32 * GIB);
}

/* --- processes --- */

static void test_f121_resident_memory(void **state)
{
    const int32_t pids[] = {100, 101, 102, 103};
    struct host_sample s;

    (void)state;
    rig_meminfo(64 * GIB, 32 * GIB);
    rig_put("proc/100/status", "Name:\tllama-server\nVmRSS:\t 9856614 kB\nRssAnon:\t 8388608 kB\n"
                               "RssFile:\t 1467904 kB\nRssShmem:\t     102 kB\n");
    rig_put("proc/101/status", "Name:\tzombie\nState:\tZ (zombie)\n");
    rig_put("proc/102/status", "Name:\tx\nVmRSS:\tmuch\n");
    memset(&s, 0, sizeof(s));
    host_sample_read(&rig_roots, pids, UNIT_COUNT(pids), &s);
    assert_int_equal(s.n_processes, 4);
    assert_true(s.processes[0].known);
    assert_int_equal(s.processes[0].rss_bytes, 9856614ull * 1024);
    assert_int_equal(s.processes[0].anon_bytes, (8388608ull + 102) * 1024);
    /* Locked pages stay, be they of a file (F125). */
    rig_put("proc/100/status", "Name:\tllama-server\nVmLck:\t 1000000 kB\nVmRSS:\t 9856614 kB\n"
                               "RssAnon:\t 8388608 kB\nRssFile:\t 1468006 kB\n");
    struct host_process locked;
    host_process_read(rig_roots.proc, 100, &locked);
    assert_int_equal(locked.anon_bytes, 9388608ull * 1024);
    for (size_t i = 1; i < 4; i++) {
        assert_int_equal(s.processes[i].pid, pids[i]);
        assert_false(s.processes[i].known);
    }
}

/* Whatever stands in the files: for the sanitizers. And what can not be is never believed. */
static void test_any_bytes(void **state)
{
    static const char *const files[] = {
        "proc/meminfo",
        "proc/pressure/memory",
        "proc/self/cgroup",
        "cgroup/user.slice/memory.max",
        "cgroup/user.slice/memory.current",
        "cgroup/user.slice/memory.stat",
        "cgroup/user.slice/cpu.max",
        "proc/100/status",
    };
    static const char letters[] = "0123456789 \n\t:=./maxMemAvailableTotalkB,-";
    const int32_t pid = 100;
    uint64_t seed = 88172645463325252ull;

    (void)state;
    for (int round = 0; round < 1500; round++) {
        char bytes[200];
        struct host_sample s;
        size_t len;

        if (round % 40 == 0)
            setup_v2();
        for (size_t i = 0; i < sizeof(bytes); i++) {
            seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
            bytes[i] =
                seed % 31 == 0 ? (char)(seed >> 8) : letters[(seed >> 16) % (sizeof(letters) - 1)];
        }
        len = seed % sizeof(bytes);
        rig_put_bytes(files[(seed >> 20) % UNIT_COUNT(files)], bytes, len);
        memset(&s, 0, sizeof(s));
        host_sample_read(&rig_roots, &pid, 1, &s);
        if ((s.has & HOST_HAS_AVAILABLE) != 0)
            assert_true(s.available_bytes <= s.total_bytes);
    }
}

/* The real files of this machine are understood. */
static void test_this_host(void **state)
{
    struct device_roots roots;
    struct host_sample s;
    const int32_t self = (int32_t)getpid();

    (void)state;
    memset(&s, 0, sizeof(s));
    device_roots_init(&roots);
    host_sample_read(&roots, &self, 1, &s);
    assert_true((s.has & HOST_HAS_MEMINFO) != 0);
    assert_true((s.has & HOST_HAS_AVAILABLE) != 0);
    assert_in_range(s.available_bytes, 1, s.total_bytes);
    assert_true(s.processes[0].known);
    assert_in_range(s.processes[0].rss_bytes, 1, s.total_bytes);
}

#define IN_TREE(test) cmocka_unit_test_setup_teardown(test, rig_setup, rig_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_TREE(test_meminfo),
        IN_TREE(test_meminfo_that_is_none),
        IN_TREE(test_f124_pressure),
        IN_TREE(test_f44_cached_pages_are_not_used),
        IN_TREE(test_f44_no_limit),
        IN_TREE(test_f44_lower_limit_in_a_parent),
        IN_TREE(test_path_unknown_below_the_mount),
        IN_TREE(test_memory_high_is_a_limit),
        IN_TREE(test_garbage_is_not_no_limit),
        IN_TREE(test_inactive_file_is_bounded),
        IN_TREE(test_events_and_processors),
        IN_TREE(test_version_1),
        IN_TREE(test_f121_resident_memory),
        IN_TREE(test_any_bytes),
        IN_TREE(test_this_host),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
