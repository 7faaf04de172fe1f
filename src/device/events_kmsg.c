/*
 * The kernel's log as a source of events. A device may fall off the bus without an Xid and without
 * anybody asking it (NVIDIA/NVSentinel#155, leptonai/gpud#1209).
 *
 * /dev/kmsg gives one record a read(2), from the end of the log on; a reader that was overrun gets
 * EPIPE and goes on with the oldest record there is (Documentation/ABI/testing/dev-kmsg). Where it
 * may not be read (kernel.dmesg_restrict), there are no such events.
 */
#include "device/kernel_log.h"
#include "device/source.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

struct kmsg_reader {
    int fd;
    struct kernel_log log;
    char record[8192];
};

static int kmsg_open(const struct device_spec *spec, const struct device_roots *roots,
                     void **ret_state)
{
    struct kmsg_reader *r = calloc(1, sizeof(*r));
    int rc;

    (void)spec;
    if (r == NULL)
        return -ENOMEM;
    r->fd = open(roots->kmsg, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (r->fd < 0) {
        rc = errno == ENOENT || errno == EPERM || errno == EACCES ? -ENOTSUP : -errno;
        free(r);
        return rc;
    }
    /* What was before us is history. A pipe, as in tests, can not seek and has none. */
    (void)lseek(r->fd, 0, SEEK_END);
    *ret_state = r;
    return 0;
}

static void kmsg_close(void *state)
{
    struct kmsg_reader *r = state;

    if (r == NULL)
        return;
    close(r->fd);
    free(r);
}

/* One record: its first line; lines after it are "KEY=value" of the same record. */
static int read_record(struct kmsg_reader *r, struct device_event *ret_event)
{
    ssize_t n = read(r->fd, r->record, sizeof(r->record));
    const char *end;
    size_t len;

    if (n < 0)
        return errno == EPIPE || errno == EINTR || errno == EAGAIN ? 0 : -errno;
    if (n == 0)
        return -EIO;
    end = memchr(r->record, '\n', (size_t)n);
    len = end != NULL ? (size_t)(end - r->record) : (size_t)n;
    return kernel_log_line(&r->log, (struct span){r->record, len}, ret_event) ? 1 : 0;
}

static int kmsg_wait(void *state, unsigned timeout_ms, struct device_event *ret_event)
{
    struct kmsg_reader *r = state;
    struct pollfd p = {.fd = r->fd, .events = POLLIN};
    int n = poll(&p, 1, (int)timeout_ms);

    if (n <= 0)
        return n < 0 && errno != EINTR ? -errno : 0;
    return read_record(r, ret_event);
}

const struct device_events_ops device_events_kmsg = {"kmsg", kmsg_open, kmsg_wait, kmsg_close};
