/*
 * The HTTP server's reading side on a real loop and a socket pair: any bytes, cut anywhere. The
 * answers must not depend on where the bytes were cut; nothing may crash, leak, or hang. One thing
 * may differ: of a request that is both too long and malformed, either fault may be the first.
 *
 * Input: byte 0 seeds the cuts; the rest is what the client sends.
 */
#include "http/server_internal.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uv_loop_t loop;
static struct http_server *server;

static void on_head(struct http_exchange *x, void *ctx)
{
    (void)x;
    (void)ctx;
}

/* Echoes what was understood, so that a difference in understanding shows. */
static void on_request(struct http_exchange *x, void *ctx)
{
    (void)ctx;
    struct buf out;
    buf_init(&out, (size_t)1 << 20);
    struct span target = http_exchange_target(x);
    struct span method = http_exchange_method(x);
    if (target.len == 0 || target.len > (size_t)1 << 16)
        abort();
    (void)buf_printf(&out, "%.*s %.*s %u ", SPAN_FMT(method), SPAN_FMT(target),
                     http_exchange_fields(x)->count);
    (void)buf_append_span(&out, http_exchange_body(x));
    http_exchange_reply(x, 200, NULL, buf_span(&out));
    buf_free(&out);
}

static void on_gone(struct http_exchange *x, void *ctx)
{
    (void)x;
    (void)ctx;
}

static const struct http_server_handler handler = {
    .on_head = on_head,
    .on_request = on_request,
    .on_gone = on_gone,
};

static void start_once(void)
{
    if (server)
        return;
    struct http_server_limits limits;
    http_server_limits_default(&limits);
    limits.head_bytes = 1024;
    limits.body_bytes = 2048;
    uv_loop_init(&loop);
    if (http_server_listen(&loop, "127.0.0.1", 0, &limits, &handler, NULL, &server) < 0)
        abort();
}

static void drain(int fd, struct buf *answers)
{
    char bytes[16384];
    ssize_t n;
    while ((n = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0)
        (void)buf_append(answers, bytes, (size_t)n);
}

/* The Date field and its value change with the second. */
static void strip_dates(struct buf *b)
{
    for (size_t i = 0; i + 37 <= b->len; i++)
        if (memcmp(b->data + i, "\r\nDate: ", 8) == 0)
            memset(b->data + i + 8, 'x', 29);
}

static void converse(const uint8_t *data, size_t size, uint32_t seed, struct buf *answers)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) < 0)
        return;
    buf_init(answers, (size_t)64 << 20);
    if (server_adopt(server, pair[1]) < 0)
        abort();
    size_t at = 0;
    while (at < size) {
        size_t n = size - at;
        if (seed) {
            seed = seed * 1664525U + 1013904223U;
            size_t cut = 1 + (seed >> 8) % 64;
            n = n < cut ? n : cut;
        }
        ssize_t sent = send(pair[0], data + at, n, MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN)
            break;
        at += sent > 0 ? (size_t)sent : 0;
        uv_run(&loop, UV_RUN_NOWAIT);
        drain(pair[0], answers);
    }
    shutdown(pair[0], SHUT_WR);
    /* Every handle of the connection is gone after the end was seen and closed. */
    for (int i = 0; i < 64 && !list_is_empty(&server->connections); i++) {
        uv_run(&loop, UV_RUN_NOWAIT);
        drain(pair[0], answers);
    }
    if (!list_is_empty(&server->connections))
        abort();
    close(pair[0]);
    strip_dates(answers);
}

/* Where the last answer begins, when it is the refusal that ends a connection; else the end. */
static size_t refusal_at(const struct buf *answers)
{
    for (size_t at = answers->len; at-- > 0;) {
        struct span rest = {answers->data + at, answers->len - at};
        if (span_starts_with(rest, SPAN_LIT("HTTP/1.1 ")))
            return span_starts_with(rest, SPAN_LIT("HTTP/1.1 4")) &&
                           span_find(rest, SPAN_LIT("\r\nConnection: close\r\n")) > 0
                       ? at
                       : answers->len;
    }
    return answers->len;
}

static bool is_about_length(struct span refusal)
{
    return span_starts_with(refusal, SPAN_LIT("HTTP/1.1 413 ")) ||
           span_starts_with(refusal, SPAN_LIT("HTTP/1.1 414 ")) ||
           span_starts_with(refusal, SPAN_LIT("HTTP/1.1 431 "));
}

/* The same answers, and then refused by both, by at least one because of a length. */
static bool differ_in_which_fault_is_first(const struct buf *a, const struct buf *b)
{
    size_t at = refusal_at(a);
    if (at != refusal_at(b) || at == a->len || at == b->len)
        return false;
    return (at == 0 || memcmp(a->data, b->data, at) == 0) &&
           (is_about_length((struct span){a->data + at, a->len - at}) ||
            is_about_length((struct span){b->data + at, b->len - at}));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    start_once();
    if (size < 1)
        return 0;
    struct buf whole, split;
    converse(data + 1, size - 1, 0, &whole);
    converse(data + 1, size - 1, data[0] + 1U, &split);
    if (!span_equals(buf_span(&whole), buf_span(&split)) &&
        !differ_in_which_fault_is_first(&whole, &split)) {
        fprintf(stderr, "--- whole\n%.*s\n--- split\n%.*s\n", (int)whole.len, whole.data,
                (int)split.len, split.data);
        abort();
    }
    buf_free(&whole);
    buf_free(&split);
    return 0;
}
