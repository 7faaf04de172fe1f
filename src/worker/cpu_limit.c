/*
 * Threads that the host's limits leave to an engine. Reads a handful of small files; called off the
 * loop thread. Figures that can not be read are no limit; the affinity always is one.
 */
#include "worker/cpu_limit.h"

#include <inttypes.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CPU_LIMIT_PATH = 1024, CPU_LIMIT_TEXT = 128 };

static unsigned whole_cpus(int64_t quota_us, int64_t period_us)
{
    int64_t cpus = quota_us / period_us;

    if (cpus < 1)
        return 1;
    return cpus > 65536 ? 65536 : (unsigned)cpus;
}

bool cpu_limit_parse_max(const char *text, unsigned *ret_cpus)
{
    int64_t quota, period;
    char *end;

    if (strncmp(text, "max", 3) == 0 && (text[3] == '\0' || strchr(" \n", text[3]) != NULL)) {
        *ret_cpus = 0;
        return true;
    }
    quota = strtoll(text, &end, 10);
    if (end == text || quota <= 0 || *end != ' ')
        return false;
    text = end + 1;
    period = strtoll(text, &end, 10);
    if (end == text || period <= 0 || (*end != '\0' && *end != '\n'))
        return false;
    *ret_cpus = whole_cpus(quota, period);
    return true;
}

/* The first line of a small file. */
static bool read_text(const char *path, char *out, size_t out_size)
{
    FILE *f = fopen(path, "re");
    bool ok;

    if (f == NULL)
        return false;
    ok = fgets(out, (int)out_size, f) != NULL;
    fclose(f);
    return ok;
}

static bool join(char *out, size_t out_size, const char *a, const char *b, const char *c)
{
    int n = snprintf(out, out_size, "%s%s/%s", a, b, c);

    return n >= 0 && (size_t)n < out_size;
}

static void take_min(unsigned *limit, unsigned cpus)
{
    if (cpus > 0 && cpus < *limit)
        *limit = cpus;
}

static void read_v2(const char *dir, unsigned *limit)
{
    char path[CPU_LIMIT_PATH], text[CPU_LIMIT_TEXT];
    unsigned cpus;

    if (join(path, sizeof(path), dir, "", "cpu.max") && read_text(path, text, sizeof(text)) &&
        cpu_limit_parse_max(text, &cpus))
        take_min(limit, cpus);
}

static void read_v1(const char *dir, unsigned *limit)
{
    char path[CPU_LIMIT_PATH], text[CPU_LIMIT_TEXT];
    int64_t quota, period;

    if (!join(path, sizeof(path), dir, "", "cpu.cfs_quota_us") ||
        !read_text(path, text, sizeof(text)))
        return;
    quota = strtoll(text, NULL, 10); /* -1: no limit */
    if (!join(path, sizeof(path), dir, "", "cpu.cfs_period_us") ||
        !read_text(path, text, sizeof(text)))
        return;
    period = strtoll(text, NULL, 10);
    if (quota > 0 && period > 0)
        take_min(limit, whole_cpus(quota, period));
}

/* Every folder from `mount/path` up to the mount, which is looked at even when the path is unknown
 * there (a container without a cgroup namespace). */
static void walk_up(const char *mount, const char *path, void (*read)(const char *, unsigned *),
                    unsigned *limit)
{
    char dir[CPU_LIMIT_PATH];
    size_t mount_len = strlen(mount);
    int n = snprintf(dir, sizeof(dir), "%s%s", mount, path);

    if (n < 0 || (size_t)n >= sizeof(dir)) {
        read(mount, limit);
        return;
    }
    for (;;) {
        char *slash;

        read(dir, limit);
        slash = strrchr(dir, '/');
        if (slash == NULL || (size_t)(slash - dir) < mount_len || strlen(dir) <= mount_len)
            break;
        *slash = '\0';
    }
}

static bool has_controller(const char *list, const char *name)
{
    size_t len = strlen(name);

    for (const char *p = list; p != NULL; p = strchr(p, ',')) {
        if (*p == ',')
            p++;
        if (strncmp(p, name, len) == 0 && (p[len] == ',' || p[len] == '\0'))
            return true;
    }
    return false;
}

/* One line of /proc/self/cgroup: `ID:CONTROLLERS:PATH` (cgroups(7)). */
static void read_line(const char *root, char *line, unsigned *limit)
{
    char mount[CPU_LIMIT_PATH];
    char *controllers, *path;

    line[strcspn(line, "\n")] = '\0';
    controllers = strchr(line, ':');
    path = controllers ? strchr(controllers + 1, ':') : NULL;
    if (path == NULL)
        return;
    *controllers++ = '\0';
    *path++ = '\0';
    if (controllers[0] == '\0') {
        if (join(mount, sizeof(mount), root, "/sys/fs", "cgroup"))
            walk_up(mount, path, read_v2, limit);
        if (join(mount, sizeof(mount), root, "/sys/fs/cgroup", "unified"))
            walk_up(mount, path, read_v2, limit);
    } else if (has_controller(controllers, "cpu")) {
        if (join(mount, sizeof(mount), root, "/sys/fs/cgroup", "cpu"))
            walk_up(mount, path, read_v1, limit);
        if (join(mount, sizeof(mount), root, "/sys/fs/cgroup", "cpu,cpuacct"))
            walk_up(mount, path, read_v1, limit);
    }
}

unsigned cpu_limit_read(const char *root, unsigned affinity)
{
    char path[CPU_LIMIT_PATH], line[CPU_LIMIT_PATH];
    unsigned limit = affinity > 0 ? affinity : 1;
    FILE *f;

    if (!join(path, sizeof(path), root, "/proc/self", "cgroup"))
        return limit;
    f = fopen(path, "re");
    if (f == NULL)
        return limit;
    while (fgets(line, sizeof(line), f) != NULL)
        read_line(root, line, &limit);
    fclose(f);
    return limit;
}

unsigned cpu_limit_affinity(void)
{
    cpu_set_t set;
    long n;

    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) > 0)
        return (unsigned)CPU_COUNT(&set);
    /* More processors than a cpu_set_t can say. */
    n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (unsigned)n : 1;
}

unsigned cpu_limit_threads(unsigned wanted, unsigned allowed)
{
    return wanted > 0 && wanted < allowed ? wanted : allowed;
}
