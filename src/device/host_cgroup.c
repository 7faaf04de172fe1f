/*
 * Memory and CPU limits of this process's cgroup and of every folder above it.
 *
 *     /sys/fs/cgroup/            root: no limit of its own
 *       user.slice/              limit A ─┐
 *         user-1000.slice/       limit B ─┼─ available = the least of them
 *           app.slice/           limit C ─┘   (and of MemAvailable, by the caller)
 *
 * A missing file is "no limit here": the root has none, and neither has a level whose parent does
 * not hand the controller down. A file that is there and can not be read or understood is an error.
 */
#include "device/host.h"

#include "device/text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { CGROUP_TEXT = 16384, CGROUP_PATH = 1024 };

/* cgroup v1 says "no limit" with the largest page-aligned number, on any page size above this. */
#define CGROUP_V1_NONE (1ull << 62)

struct cgroup_walk {
    struct host_sample *s;
    const char *mount;
    bool own; /* the first folder of the walk: the process's own */
};

/* A limit file: "max" or a number. 0 with *ret_set, or -EINVAL. */
static int read_limit(const char *dir, const char *name, bool *ret_set, uint64_t *ret_bytes)
{
    char buffer[64];
    struct span text;
    uint64_t bytes;
    int rc = device_text_read(dir, name, buffer, sizeof(buffer), &text);

    *ret_set = false;
    if (rc == -ENOENT)
        return 0;
    if (rc < 0)
        return -EINVAL;
    if (span_equals_str(text, "max\n") || span_equals_str(text, "max"))
        return 0;
    if (device_text_parse_u64(text, &bytes) < 0)
        return -EINVAL;
    if (bytes >= CGROUP_V1_NONE)
        return 0;
    *ret_set = true;
    *ret_bytes = bytes;
    return 0;
}

/* limit - (current - inactive_file); what can not be read makes it less. */
static uint64_t level_available(uint64_t limit, uint64_t current, uint64_t inactive_file)
{
    uint64_t used = current - (inactive_file < current ? inactive_file : current);

    return used < limit ? limit - used : 0;
}

struct level_files {
    uint64_t active, inactive;
};

static void take_level(struct cgroup_walk *w, const char *dir, uint64_t limit, uint64_t current,
                       const struct level_files *files)
{
    struct host_sample *s = w->s;
    uint64_t available = level_available(limit, current, files->inactive);
    bool first = (s->has & HOST_HAS_CGROUP) == 0;

    if (first || limit < s->cgroup_limit_bytes)
        s->cgroup_limit_bytes = limit;
    if (!first && s->cgroup_available_bytes <= available)
        return;
    s->has |= HOST_HAS_CGROUP;
    s->cgroup_available_bytes = available;
    s->cgroup_active_file_bytes = files->active;
    snprintf(s->cgroup_level, sizeof(s->cgroup_level), "%.*s", DEVICE_LEVEL_MAX - 1,
             dir[strlen(w->mount)] != '\0' ? dir + strlen(w->mount) : "/");
}

/* What can not be read is none. `prefix` is "total_" where the figures of a level without those below
 * it stand beside. */
static struct level_files read_files(const char *dir, const char *prefix)
{
    char buffer[CGROUP_TEXT], key[32];
    struct level_files files = {0};
    struct span text;

    if (device_text_read(dir, "memory.stat", buffer, sizeof(buffer), &text) < 0)
        return files;
    snprintf(key, sizeof(key), "%sinactive_file", prefix);
    if (device_text_field_u64(text, key, ' ', &files.inactive) < 0)
        files.inactive = 0;
    snprintf(key, sizeof(key), "%sactive_file", prefix);
    if (device_text_field_u64(text, key, ' ', &files.active) < 0)
        files.active = 0;
    return files;
}

static int read_level(struct cgroup_walk *w, const char *dir, const char *limit_name,
                      const char *high_name, const char *current_name, const char *stat_prefix)
{
    struct level_files files;
    bool has_limit, has_high = false;
    uint64_t limit = 0, high = 0, current;

    if (read_limit(dir, limit_name, &has_limit, &limit) < 0 ||
        (high_name != NULL && read_limit(dir, high_name, &has_high, &high) < 0))
        goto unknown;
    if (!has_limit && !has_high)
        return 0;
    if (!has_limit || (has_high && high < limit))
        limit = high;
    if (device_text_read_u64(dir, current_name, &current) < 0)
        goto unknown;
    files = read_files(dir, stat_prefix);
    take_level(w, dir, limit, current, &files);
    return 0;
unknown:
    snprintf(w->s->cgroup_level, sizeof(w->s->cgroup_level), "%.*s", DEVICE_LEVEL_MAX - 1, dir);
    return -EINVAL;
}

static void take_quota(struct host_sample *s, uint64_t quota_us, uint64_t period_us)
{
    uint64_t millis;

    if (quota_us == 0 || period_us == 0 || __builtin_mul_overflow(quota_us, 1000u, &millis))
        return;
    millis /= period_us;
    if ((s->has & HOST_HAS_CPU_QUOTA) != 0 && s->cpu_quota_millis <= millis)
        return;
    s->has |= HOST_HAS_CPU_QUOTA;
    s->cpu_quota_millis = millis;
}

/* --- version 2: one tree for everything --- */

static void read_cpu_v2(struct cgroup_walk *w, const char *dir)
{
    char buffer[4096];
    struct span text, quota;
    uint64_t quota_us, period_us;

    if (device_text_read(dir, "cpu.max", buffer, sizeof(buffer), &text) == 0 &&
        span_split_next(&text, ' ', &quota) && device_text_parse_u64(quota, &quota_us) == 0 &&
        device_text_parse_u64(text, &period_us) == 0)
        take_quota(w->s, quota_us, period_us);
    if (w->own && device_text_read(dir, "cpu.stat", buffer, sizeof(buffer), &text) == 0 &&
        device_text_field_u64(text, "throttled_usec", ' ', &w->s->cpu_throttled_us) == 0)
        w->s->has |= HOST_HAS_THROTTLED;
}

static int read_v2(struct cgroup_walk *w, const char *dir)
{
    char buffer[1024];
    struct span text;

    read_cpu_v2(w, dir);
    if (w->own && device_text_read(dir, "memory.events", buffer, sizeof(buffer), &text) == 0 &&
        device_text_field_u64(text, "oom_kill", ' ', &w->s->oom_kills) == 0 &&
        device_text_field_u64(text, "max", ' ', &w->s->limit_hits) == 0)
        w->s->has |= HOST_HAS_EVENTS;
    return read_level(w, dir, "memory.max", "memory.high", "memory.current", "");
}

/* --- version 1: a tree per controller --- */

static int read_v1_memory(struct cgroup_walk *w, const char *dir)
{
    char buffer[256];
    struct span text;
    uint64_t hierarchy;

    if (w->own) {
        if (device_text_read_u64(dir, "memory.failcnt", &w->s->limit_hits) == 0 &&
            device_text_read(dir, "memory.oom_control", buffer, sizeof(buffer), &text) == 0 &&
            device_text_field_u64(text, "oom_kill", ' ', &w->s->oom_kills) == 0)
            w->s->has |= HOST_HAS_EVENTS;
    } else if (device_text_read_u64(dir, "memory.use_hierarchy", &hierarchy) == 0 &&
               hierarchy == 0) {
        return 0; /* its limit is not for those below */
    }
    return read_level(w, dir, "memory.limit_in_bytes", NULL, "memory.usage_in_bytes", "total_");
}

static int read_v1_cpu(struct cgroup_walk *w, const char *dir)
{
    char buffer[1024];
    struct span text;
    uint64_t quota_us, period_us, throttled_ns;

    /* -1 is "no limit", and is no number here. */
    if (device_text_read_u64(dir, "cpu.cfs_quota_us", &quota_us) == 0 &&
        device_text_read_u64(dir, "cpu.cfs_period_us", &period_us) == 0)
        take_quota(w->s, quota_us, period_us);
    if (w->own && device_text_read(dir, "cpu.stat", buffer, sizeof(buffer), &text) == 0 &&
        device_text_field_u64(text, "throttled_time", ' ', &throttled_ns) == 0) {
        w->s->has |= HOST_HAS_THROTTLED;
        w->s->cpu_throttled_us = throttled_ns / 1000;
    }
    return 0;
}

/*
 * Every folder from mount/path up to the mount itself, which is looked at even where the path is
 * not known there (a container that sees its own cgroup as the root).
 */
static int walk_up(struct host_sample *s, const char *mount, struct span path,
                   int (*read)(struct cgroup_walk *, const char *))
{
    struct cgroup_walk w = {.s = s, .mount = mount, .own = true};
    size_t mount_len = strlen(mount);
    char dir[CGROUP_PATH];
    int n = snprintf(dir, sizeof(dir), "%s%.*s", mount, SPAN_FMT(path));
    int rc = 0;

    if (n < 0 || (size_t)n >= sizeof(dir))
        return -EINVAL;
    if (n > 0 && dir[n - 1] == '/')
        dir[n - 1] = '\0';
    for (;;) {
        char *slash;
        int r = read(&w, dir);

        if (r < 0)
            rc = r;
        w.own = false;
        if (strlen(dir) <= mount_len)
            return rc;
        slash = strrchr(dir, '/');
        if (slash == NULL || (size_t)(slash - dir) < mount_len)
            return rc;
        *slash = '\0';
    }
}

static bool has_controller(struct span list, const char *name)
{
    struct span item;

    while (span_split_next(&list, ',', &item)) {
        if (span_equals_str(item, name))
            return true;
    }
    return false;
}

/* Below the cgroup mount, if it is there. */
static int walk_below(struct host_sample *s, const char *root, const char *folder, struct span path,
                      int version, int (*read)(struct cgroup_walk *, const char *))
{
    char mount[CGROUP_PATH];

    if (!device_text_join(mount, sizeof(mount), root, folder))
        return -EINVAL;
    if (version > s->cgroup_version)
        s->cgroup_version = version;
    return walk_up(s, mount, path, read);
}

/*
 * A controller's tree has its name, and where several share one ("cpu,cpuacct"), the name of all of
 * them with links from each; the links may be missing. Looking twice changes nothing.
 */
static int walk_v1(struct host_sample *s, const char *root, const char *name, struct span all,
                   struct span path, int (*read)(struct cgroup_walk *, const char *))
{
    char folder[128];
    int rc = walk_below(s, root, name, path, 1, read);
    int n = snprintf(folder, sizeof(folder), "%.*s", SPAN_FMT(all));

    if (rc < 0 || n < 0 || (size_t)n >= sizeof(folder) || strcmp(folder, name) == 0)
        return rc;
    return walk_below(s, root, folder, path, 1, read);
}

/* One line of /proc/self/cgroup: `ID:CONTROLLERS:PATH` (cgroups(7)). */
static int read_membership(const char *root, struct span line, struct host_sample *s)
{
    struct span id, controllers;
    int rc = 0;

    if (!span_split_next(&line, ':', &id) || !span_split_next(&line, ':', &controllers) ||
        line.len == 0 || line.ptr[0] != '/')
        return -EINVAL;
    if (controllers.len == 0) {
        int r = walk_below(s, root, "", line, 2, read_v2);

        /* Beside version 1, the second version lies in a folder of its own. */
        rc = walk_below(s, root, "unified", line, 2, read_v2);
        return r < 0 ? r : rc;
    }
    if (has_controller(controllers, "memory"))
        rc = walk_v1(s, root, "memory", controllers, line, read_v1_memory);
    if (has_controller(controllers, "cpu"))
        (void)walk_v1(s, root, "cpu", controllers, line, read_v1_cpu);
    return rc;
}

int host_cgroup_read(const struct device_roots *roots, struct host_sample *s)
{
    char buffer[CGROUP_TEXT];
    struct span text, line;
    int rc = device_text_read(roots->proc, "self/cgroup", buffer, sizeof(buffer), &text);

    if (rc == -ENOENT)
        return 0; /* a kernel without cgroups has no limits */
    if (rc < 0)
        return rc;
    while (device_text_line(&text, &line)) {
        int r;

        if (line.len == 0)
            continue;
        r = read_membership(roots->cgroup, line, s);
        if (r < 0)
            rc = r;
    }
    return rc < 0 ? -EINVAL : 0;
}
