/* The host's memory, pressure and processes. See host.h; the cgroup part is in host_cgroup.c. */
#include "device/host.h"

#include "device/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { HOST_TEXT = 16384 };

int host_meminfo_read(const char *proc, struct host_meminfo *ret)
{
    char buffer[HOST_TEXT];
    struct host_meminfo info = {0};
    struct span text;
    int rc = device_text_read(proc, "meminfo", buffer, sizeof(buffer), &text);

    if (rc < 0)
        return rc;
    rc = device_text_field_size(text, "MemTotal", ':', &info.total_bytes);
    if (rc == 0)
        rc = device_text_field_size(text, "MemAvailable", ':', &info.available_bytes);
    if (rc < 0)
        return rc;
    if (info.total_bytes == 0 || info.available_bytes > info.total_bytes)
        return -EINVAL;
    info.has_swap = device_text_field_size(text, "SwapTotal", ':', &info.swap_total_bytes) == 0 &&
                    device_text_field_size(text, "SwapFree", ':', &info.swap_free_bytes) == 0 &&
                    info.swap_free_bytes <= info.swap_total_bytes;
    *ret = info;
    return 0;
}

/* "12.34" → 1234. */
static int parse_hundredths(struct span text, uint32_t *ret)
{
    ptrdiff_t dot = span_find(text, SPAN_LIT("."));
    uint64_t whole, part;

    if (dot < 0 || text.len != (size_t)dot + 3 ||
        device_text_parse_u64((struct span){text.ptr, (size_t)dot}, &whole) < 0 ||
        device_text_parse_u64((struct span){text.ptr + dot + 1, 2}, &part) < 0 || whole > 100)
        return -EINVAL;
    *ret = (uint32_t)(whole * 100 + part);
    return 0;
}

/* The line `KIND avg10=0.00 avg60=…`. */
static int psi_line(struct span text, const char *kind, uint32_t *ret)
{
    struct span value, item;

    if (!device_text_field(text, kind, ' ', &value))
        return -EINVAL;
    while (span_split_next(&value, ' ', &item)) {
        if (span_starts_with(item, SPAN_LIT("avg10=")))
            return parse_hundredths((struct span){item.ptr + 6, item.len - 6}, ret);
    }
    return -EINVAL;
}

int host_psi_read(const char *proc, uint32_t *ret_some, uint32_t *ret_full)
{
    char buffer[512];
    struct span text;
    uint32_t some = 0, full = 0;
    int rc = device_text_read(proc, "pressure/memory", buffer, sizeof(buffer), &text);

    if (rc < 0)
        return rc;
    rc = psi_line(text, "some", &some);
    if (rc == 0)
        rc = psi_line(text, "full", &full);
    if (rc < 0)
        return rc;
    *ret_some = some;
    *ret_full = full;
    return 0;
}

void host_process_read(const char *proc, int32_t pid, struct host_process *ret)
{
    char path[64], buffer[HOST_TEXT];
    uint64_t rss, anon, shmem = 0, locked = 0;
    struct span text;

    memset(ret, 0, sizeof(*ret));
    ret->pid = pid;
    snprintf(path, sizeof(path), "%" PRId32 "/status", pid);
    if (device_text_read(proc, path, buffer, sizeof(buffer), &text) < 0)
        return;
    /* A zombie has no memory lines: it is gone, and that is not zero bytes of a living one. */
    if (device_text_field_size(text, "VmRSS", ':', &rss) < 0)
        return;
    if (device_text_field_size(text, "RssAnon", ':', &anon) < 0)
        anon = rss;
    else
        (void)device_text_field_size(text, "RssShmem", ':', &shmem);
    (void)device_text_field_size(text, "VmLck", ':', &locked);
    if (__builtin_add_overflow(anon, shmem, &anon) || __builtin_add_overflow(anon, locked, &anon))
        return;
    /* Locked pages may be anonymous as well, and are then counted twice. */
    if (locked > 0 && anon > rss)
        anon = rss;
    ret->known = true;
    ret->rss_bytes = rss;
    ret->anon_bytes = anon;
}

static void read_meminfo(const char *proc, struct host_sample *s)
{
    struct host_meminfo info;
    int rc = host_meminfo_read(proc, &info);

    if (rc < 0) {
        snprintf(s->why, sizeof(s->why), "meminfo: %s", strerror(-rc));
        return;
    }
    s->has |= HOST_HAS_TOTAL | HOST_HAS_MEMINFO;
    s->total_bytes = info.total_bytes;
    s->meminfo_available_bytes = info.available_bytes;
    if (info.has_swap) {
        s->has |= HOST_HAS_SWAP;
        s->swap_total_bytes = info.swap_total_bytes;
        s->swap_free_bytes = info.swap_free_bytes;
    }
}

void host_sample_read(const struct device_roots *roots, const int32_t *pids, size_t n_pids,
                      struct host_sample *s)
{
    int rc;

    read_meminfo(roots->proc, s);
    if (host_psi_read(roots->proc, &s->psi_some_avg10, &s->psi_full_avg10) == 0)
        s->has |= HOST_HAS_PSI;
    rc = host_cgroup_read(roots, s);
    if (rc < 0)
        snprintf(s->why, sizeof(s->why), "a limit at cgroup %.100s can not be told",
                 s->cgroup_level);
    /* Both or nothing: a limit that can not be read may be the lower one. */
    if (rc == 0 && (s->has & HOST_HAS_MEMINFO) != 0) {
        s->has |= HOST_HAS_AVAILABLE;
        s->available_bytes = s->meminfo_available_bytes;
        if ((s->has & HOST_HAS_CGROUP) != 0 && s->cgroup_available_bytes < s->available_bytes)
            s->available_bytes = s->cgroup_available_bytes;
    }
    for (size_t i = 0; i < n_pids && i < DEVICE_WATCH_MAX; i++)
        host_process_read(roots->proc, pids[i], &s->processes[s->n_processes++]);
}
