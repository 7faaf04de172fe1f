/*
 * Samples: what can not be is dropped here, and the two doors through which admission reads free
 * memory. Pure.
 */
#include "device/sample.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* No card has that much; a driver that says so read something else. */
#define SAMPLE_TOTAL_MAX   (1ull << 44)
#define SAMPLE_HOST_FACTOR 64u

void device_sample_init(struct device_sample *s, const char *device, const char *source)
{
    memset(s, 0, sizeof(*s));
    snprintf(s->device, sizeof(s->device), "%s", device);
    s->source = source;
}

void device_sample_say(struct device_sample *s, const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    vsnprintf(s->why, sizeof(s->why), format, ap);
    va_end(ap);
}

static void drop_memory(struct device_sample *s)
{
    s->has &= ~DEVICE_HAS_MEMORY;
    s->flags |= DEVICE_FLAG_IMPOSSIBLE;
    s->total_bytes = s->used_bytes = s->free_bytes = s->reserved_bytes = 0;
    s->largest_free_bytes = s->max_alloc_bytes = 0;
    s->releasing_bytes = s->overcommitted_bytes = s->dedicated_free_bytes = 0;
}

static bool above_total(const struct device_sample *s, uint32_t bit, uint64_t bytes)
{
    return (s->has & bit) != 0 && bytes > s->total_bytes;
}

static void check_processes(struct device_sample *s)
{
    for (size_t i = 0; i < s->n_processes; i++) {
        struct device_process *p = &s->processes[i];

        if (p->has_bytes && p->bytes > s->total_bytes) {
            p->has_bytes = false;
            p->bytes = 0;
            s->flags |= DEVICE_FLAG_PROCESSES_PARTIAL;
        }
    }
}

void device_sample_check(struct device_sample *s, uint64_t host_total_bytes)
{
    uint64_t total = s->total_bytes;
    bool total_wrong;

    if ((s->has & DEVICE_HAS_TOTAL) == 0) {
        /* A free figure without a total can not be checked, so it is not trusted. */
        if ((s->has & DEVICE_HAS_FREE) != 0) {
            drop_memory(s);
            device_sample_say(s, "free memory without a total");
        }
        return;
    }
    total_wrong = total == 0 || total > SAMPLE_TOTAL_MAX ||
                  (host_total_bytes != 0 && total / SAMPLE_HOST_FACTOR > host_total_bytes);
    /* More used than there is can be true (capacity lowered under what is in use), but only where
     * the source counts that apart. */
    if (total_wrong) {
        drop_memory(s);
        device_sample_say(s, "a total of %llu bytes can not be", (unsigned long long)total);
    } else if (above_total(s, DEVICE_HAS_FREE, s->free_bytes) ||
               (above_total(s, DEVICE_HAS_USED, s->used_bytes) &&
                (s->has & DEVICE_HAS_OVERCOMMITTED) == 0) ||
               above_total(s, DEVICE_HAS_RESERVED, s->reserved_bytes)) {
        device_sample_say(s,
                          "free %llu, used %llu, reserved %llu of a total of %llu bytes can not be",
                          (unsigned long long)s->free_bytes, (unsigned long long)s->used_bytes,
                          (unsigned long long)s->reserved_bytes, (unsigned long long)total);
        drop_memory(s);
    } else {
        check_processes(s);
    }
}

bool device_sample_is_stale(const struct device_sample *s, uint64_t now_ms, uint64_t stale_ms)
{
    /* A time in the future is not young: clocks of one machine do not run backwards. */
    return s->sampled_at_ms == 0 || s->sampled_at_ms > now_ms ||
           now_ms - s->sampled_at_ms > stale_ms;
}

bool device_sample_free(const struct device_sample *s, uint64_t now_ms, uint64_t stale_ms,
                        uint64_t *ret_bytes)
{
    uint32_t bad = DEVICE_FLAG_IMPOSSIBLE | DEVICE_FLAG_STALE | DEVICE_FLAG_RESUMED;

    if (s->state != DEVICE_STATE_PRESENT || (s->has & DEVICE_HAS_FREE) == 0 ||
        (s->flags & bad) != 0 || device_sample_is_stale(s, now_ms, stale_ms))
        return false;
    *ret_bytes = s->free_bytes;
    return true;
}

bool device_sample_process(const struct device_sample *s, int32_t pid, uint64_t *ret_bytes)
{
    for (size_t i = 0; i < s->n_processes; i++) {
        if (s->processes[i].pid == pid && s->processes[i].has_bytes) {
            *ret_bytes = s->processes[i].bytes;
            return true;
        }
    }
    return false;
}

struct device_process *device_sample_add_process(struct device_sample *s, int32_t pid)
{
    struct device_process *p;

    for (size_t i = 0; i < s->n_processes; i++) {
        if (s->processes[i].pid == pid)
            return &s->processes[i];
    }
    if (s->n_processes == DEVICE_PROCESSES_MAX) {
        s->flags |= DEVICE_FLAG_PROCESSES_PARTIAL;
        return NULL;
    }
    p = &s->processes[s->n_processes++];
    memset(p, 0, sizeof(*p));
    p->pid = pid;
    return p;
}

bool host_sample_available(const struct host_sample *s, uint64_t now_ms, uint64_t stale_ms,
                           uint64_t *ret_bytes)
{
    uint32_t bad = DEVICE_FLAG_STALE | DEVICE_FLAG_RESUMED;

    if ((s->has & HOST_HAS_AVAILABLE) == 0 || (s->flags & bad) != 0 || s->sampled_at_ms == 0 ||
        s->sampled_at_ms > now_ms || now_ms - s->sampled_at_ms > stale_ms)
        return false;
    *ret_bytes = s->available_bytes;
    return true;
}

const char *device_state_name(enum device_state state)
{
    static const char *const names[] = {
        [DEVICE_STATE_UNKNOWN] = "unknown",     [DEVICE_STATE_PRESENT] = "present",
        [DEVICE_STATE_ABSENT] = "absent",       [DEVICE_STATE_HIDDEN] = "hidden",
        [DEVICE_STATE_LOST] = "lost",           [DEVICE_STATE_RESET_REQUIRED] = "reset-required",
        [DEVICE_STATE_NO_DRIVER] = "no-driver", [DEVICE_STATE_MISMATCH] = "driver-mismatch",
    };

    return (size_t)state < sizeof(names) / sizeof(names[0]) ? names[state] : "unknown";
}

const char *device_fault_name(enum device_fault fault)
{
    static const char *const names[] = {
        [DEVICE_FAULT_NONE] = "none",       [DEVICE_FAULT_APPLICATION] = "application",
        [DEVICE_FAULT_SUSPECT] = "suspect", [DEVICE_FAULT_RESET] = "reset-required",
        [DEVICE_FAULT_LOST] = "lost",
    };

    return (size_t)fault < sizeof(names) / sizeof(names[0]) ? names[fault] : "none";
}
