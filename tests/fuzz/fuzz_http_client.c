/*
 * The HTTP client's reading side on a real loop and a unix socket: whatever a worker sends, cut
 * anywhere. What is reported (head, body bytes, done or failure) must not depend on the cuts, and a
 * call ends exactly once.
 *
 * Input: byte 0 seeds the cuts; the rest is what the worker sends before it closes.
 */
#include "base/buf.h"
#include "http/client.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uv_loop_t loop;
static struct http_origin *origin;
static int listener = -1;

struct report {
    struct buf text;
    int ends;
};

static void on_head(struct http_call *c, int status, const struct http_fields *fields, void *ctx)
{
    (void)c;
    struct report *r = ctx;
    (void)buf_printf(&r->text, "%d/%u:", status, fields->count);
}

static void on_body(struct http_call *c, struct span bytes, void *ctx)
{
    (void)c;
    struct report *r = ctx;
    (void)buf_append_span(&r->text, bytes);
}

static void on_done(struct http_call *c, void *ctx)
{
    (void)c;
    struct report *r = ctx;
    r->ends++;
    (void)buf_append_str(&r->text, "|done");
}

static void on_fail(struct http_call *c, const struct http_call_failure *failure, void *ctx)
{
    (void)c;
    struct report *r = ctx;
    r->ends++;
    (void)buf_printf(&r->text, "|fail %s", failure->error == -EPROTO ? "framing" : "transport");
}

static const struct http_call_handler handler = {
    .on_head = on_head, .on_body = on_body, .on_done = on_done, .on_fail = on_fail};

static void start_once(void)
{
    if (origin)
        return;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof(address.sun_path), "/tmp/failsoft-fuzz-%d.sock",
             (int)getpid());
    unlink(address.sun_path);
    listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (bind(listener, (struct sockaddr *)&address, sizeof(address)) < 0 || listen(listener, 8) < 0)
        abort();
    struct http_origin_options options;
    http_origin_options_default(&options);
    options.max_idle = 0;
    options.head_bytes = 1024;
    uv_loop_init(&loop);
    if (http_origin_create_unix(&loop, address.sun_path, &options, &origin) < 0)
        abort();
}

static int accept_worker(void)
{
    for (int i = 0; i < 1000; i++) {
        uv_run(&loop, UV_RUN_NOWAIT);
        int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
        if (fd >= 0)
            return fd;
    }
    abort();
}

static void converse(const uint8_t *data, size_t size, uint32_t seed, struct report *report)
{
    *report = (struct report){0};
    buf_init(&report->text, (size_t)64 << 20);
    struct http_call *call;
    struct http_call_request request = {.method = SPAN_LIT("GET"), .target = SPAN_LIT("/")};
    if (http_call_start(origin, &request, &handler, report, &call) < 0)
        abort();
    int fd = accept_worker();
    uv_run(&loop, UV_RUN_NOWAIT);
    char sink[4096];
    for (size_t at = 0; at < size && report->ends == 0;) {
        size_t n = size - at;
        if (seed) {
            seed = seed * 1664525U + 1013904223U;
            size_t cut = 1 + (seed >> 8) % 48;
            n = n < cut ? n : cut;
        }
        ssize_t sent = send(fd, data + at, n, MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN)
            break;
        at += sent > 0 ? (size_t)sent : 0;
        uv_run(&loop, UV_RUN_NOWAIT);
        /* Read what we are sent, or the close would be a reset that discards our bytes. */
        while (recv(fd, sink, sizeof(sink), MSG_DONTWAIT) > 0)
            continue;
    }
    while (recv(fd, sink, sizeof(sink), MSG_DONTWAIT) > 0)
        continue;
    close(fd);
    for (int i = 0; i < 64 && report->ends == 0; i++)
        uv_run(&loop, UV_RUN_NOWAIT);
    if (report->ends != 1)
        abort();
    uv_run(&loop, UV_RUN_NOWAIT);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    start_once();
    if (size < 1)
        return 0;
    struct report whole, split;
    converse(data + 1, size - 1, 0, &whole);
    converse(data + 1, size - 1, data[0] + 1U, &split);
    if (whole.text.len != split.text.len ||
        (whole.text.len && memcmp(whole.text.data, split.text.data, whole.text.len) != 0)) {
        fprintf(stderr, "--- whole\n%.*s\n--- split\n%.*s\n", (int)whole.text.len, whole.text.data,
                (int)split.text.len, split.text.data);
        abort();
    }
    buf_free(&whole.text);
    buf_free(&split.text);
    return 0;
}
