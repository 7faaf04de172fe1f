/* The HTTP server on a real loop with raw clients: what black-box tests cannot see from outside. */
#include "tests/unit/http/loop_rig.h"
#include "tests/unit/unit.h"

#include "http/server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct rig {
    uv_loop_t loop;
    struct http_server *server;
    struct http_server_limits limits;
    struct http_exchange *held; /* of a request to /hold */
    unsigned heads, requests, drained;
    bool gone, pause_asked, closed;
};

static void on_head(struct http_exchange *x, void *ctx)
{
    struct rig *rig = ctx;
    rig->heads++;
    if (span_equals_str(http_exchange_target(x), "/refuse"))
        http_exchange_reply(x, 503, NULL, SPAN_LIT("no room"));
}

static void on_request(struct http_exchange *x, void *ctx)
{
    struct rig *rig = ctx;
    rig->requests++;
    struct span target = http_exchange_target(x);
    if (span_equals_str(target, "/hold")) {
        rig->held = x;
        return;
    }
    struct buf out;
    buf_init(&out, (size_t)1 << 20);
    assert_int_equal(buf_printf(&out, "[%.*s %zu]", SPAN_FMT(target), http_exchange_body(x).len),
                     0);
    http_exchange_reply(x, 200, NULL, buf_span(&out));
    buf_free(&out);
}

static void on_drained(struct http_exchange *x, void *ctx)
{
    (void)x;
    struct rig *rig = ctx;
    rig->drained++;
    rig->pause_asked = false;
}

static void on_gone(struct http_exchange *x, void *ctx)
{
    struct rig *rig = ctx;
    assert_false(rig->gone && rig->held == x);
    rig->gone = true;
}

static const struct http_server_handler handler = {
    .on_head = on_head, .on_request = on_request, .on_drained = on_drained, .on_gone = on_gone};

static void start(struct rig *rig)
{
    assert_int_equal(
        http_server_listen(&rig->loop, "127.0.0.1", 0, &rig->limits, &handler, rig, &rig->server),
        0);
}

static int set_up(void **state)
{
    struct rig *rig = calloc(1, sizeof(*rig));
    uv_loop_init(&rig->loop);
    http_server_limits_default(&rig->limits);
    *state = rig;
    return 0;
}

static void on_closed(void *ctx)
{
    struct rig *rig = ctx;
    rig->closed = true;
}

static int tear_down(void **state)
{
    struct rig *rig = *state;
    http_server_close(rig->server, on_closed, rig);
    assert_true(rig_run_until(&rig->loop, &rig->closed));
    rig_finish(&rig->loop);
    free(rig);
    return 0;
}

static int dial(struct rig *rig)
{
    return rig_connect(http_server_port(rig->server));
}

static void pipelined_requests_are_answered_in_order(void **state)
{
    struct rig *rig = *state;
    start(rig);
    int fd = dial(rig);
    rig_send_text(&rig->loop, fd,
                  "GET /1 HTTP/1.1\r\nHost: a\r\n\r\n"
                  "POST /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"
                  "GET /3 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    struct buf in;
    buf_init(&in, 65536);
    assert_true(rig_receive_to_end(&rig->loop, fd, &in));
    ptrdiff_t one = span_find(buf_span(&in), SPAN_LIT("[/1 0]"));
    ptrdiff_t two = span_find(buf_span(&in), SPAN_LIT("[/2 3]"));
    ptrdiff_t three = span_find(buf_span(&in), SPAN_LIT("[/3 0]"));
    assert_true(one > 0 && two > one && three > two);
    buf_free(&in);
    close(fd);
}

/* A client that does not read: the writer is told to pause, memory stays bounded, nothing is lost. */
static void a_slow_client_pauses_the_writer(void **state)
{
    struct rig *rig = *state;
    rig->limits.write_queue_bytes = 64 * 1024;
    start(rig);
    int fd = dial(rig);
    rig_send_text(&rig->loop, fd, "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
    while (!rig->held)
        uv_run(&rig->loop, UV_RUN_NOWAIT);
    assert_int_equal(http_exchange_begin(rig->held, 200, NULL, -1), 0);
    char block[8192];
    memset(block, 'x', sizeof(block));
    struct span part = {block, sizeof(block)};
    size_t written = 0, most = 0;
    struct buf in;
    buf_init(&in, (size_t)256 << 20);
    while (written < (size_t)32 << 20) {
        if (!rig->pause_asked) {
            int r = http_exchange_write(rig->held, &part, 1);
            assert_true(r >= 0);
            rig->pause_asked = r > 0;
            written += sizeof(block);
        } else {
            (void)rig_receive(fd, &in);
            uv_run(&rig->loop, UV_RUN_NOWAIT);
        }
        if (http_exchange_queued_bytes(rig->held) > most)
            most = http_exchange_queued_bytes(rig->held);
    }
    assert_true(rig->drained > 0);
    assert_true(most <= rig->limits.write_queue_bytes + 2 * sizeof(block));
    http_exchange_end_with(rig->held, &part, 1);
    written += sizeof(block);
    assert_true(rig_receive_until(&rig->loop, fd, &in, "\r\n0\r\n\r\n"));
    size_t seen = 0;
    for (size_t i = 0; i < in.len; i++)
        seen += in.data[i] == 'x';
    assert_int_equal(seen, written);
    buf_free(&in);
    close(fd);
}

static void a_client_that_leaves_is_noticed_while_nothing_is_written(void **state)
{
    struct rig *rig = *state;
    start(rig);
    int fd = dial(rig);
    rig_send_text(&rig->loop, fd, "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
    while (!rig->held)
        uv_run(&rig->loop, UV_RUN_NOWAIT);
    close(fd);
    assert_true(rig_run_until(&rig->loop, &rig->gone));
}

static void a_body_over_the_limit_is_refused_before_it_is_read(void **state)
{
    struct rig *rig = *state;
    rig->limits.body_bytes = 1000;
    start(rig);
    int fd = dial(rig);
    rig_send_text(&rig->loop, fd, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n");
    struct buf in;
    buf_init(&in, 65536);
    assert_true(rig_receive_to_end(&rig->loop, fd, &in));
    assert_int_equal(span_find(buf_span(&in), SPAN_LIT("HTTP/1.1 413 ")), 0);
    assert_int_equal(rig->heads, 0);
    buf_free(&in);
    close(fd);
}

/* What is too long is named by what it is, not by how the bytes happened to arrive. */
static void a_head_over_the_limit_says_what_is_too_long(void **state)
{
    static const struct {
        int target, value;
        const char *status;
    } cases[] = {
        {4100, 10, "HTTP/1.1 414 "},
        {3500, 4100, "HTTP/1.1 431 "},
        {10, 4100, "HTTP/1.1 431 "},
        {3500, 3500, "HTTP/1.1 431 "}, /* neither by itself, but both together */
    };
    struct rig *rig = *state;
    char long_text[4101], head[10000];
    memset(long_text, 'x', sizeof(long_text));
    rig->limits.head_bytes = 4096;
    start(rig);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int n = snprintf(head, sizeof(head), "GET /%.*s HTTP/1.1\r\nHost: a\r\nX: %.*s\r\n\r\n",
                         cases[i].target, long_text, cases[i].value, long_text);
        for (int step = n; step > 0; step = step == n ? 40 : 0) {
            int fd = dial(rig);
            for (int at = 0; at < n; at += step) {
                char part[10000];
                snprintf(part, sizeof(part), "%.*s", step, head + at);
                rig_send_text(&rig->loop, fd, part);
                uv_run(&rig->loop, UV_RUN_NOWAIT);
            }
            struct buf in;
            buf_init(&in, 65536);
            assert_true(rig_receive_to_end(&rig->loop, fd, &in));
            assert_int_equal(span_find(buf_span(&in), span_from_str(cases[i].status)), 0);
            buf_free(&in);
            close(fd);
        }
    }
    assert_int_equal(rig->heads, 0);
}

static void continue_is_sent_only_when_the_body_is_wanted(void **state)
{
    struct rig *rig = *state;
    start(rig);
    const char *wanted = "POST /ok HTTP/1.1\r\nHost: a\r\nExpect: 100-Continue\r\n"
                         "Content-Length: 2\r\n\r\n";
    struct buf in;
    buf_init(&in, 65536);
    int fd = dial(rig);
    rig_send_text(&rig->loop, fd, wanted);
    assert_true(rig_receive_until(&rig->loop, fd, &in, "100 Continue\r\n\r\n"));
    rig_send_text(&rig->loop, fd, "hi");
    assert_true(rig_receive_until(&rig->loop, fd, &in, "[/ok 2]"));
    close(fd);
    in.len = 0;
    fd = dial(rig);
    rig_send_text(&rig->loop, fd,
                  "POST /refuse HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n"
                  "Content-Length: 2\r\n\r\n");
    assert_true(rig_receive_to_end(&rig->loop, fd, &in));
    assert_int_equal(span_find(buf_span(&in), SPAN_LIT("HTTP/1.1 503 ")), 0);
    assert_true(span_find(buf_span(&in), SPAN_LIT("100 Continue")) < 0);
    buf_free(&in);
    close(fd);
}

static void a_client_over_the_limit_gets_an_answer(void **state)
{
    struct rig *rig = *state;
    rig->limits.max_connections = 2;
    start(rig);
    int first = dial(rig), second = dial(rig);
    rig_send_text(&rig->loop, first, "GET /1 HTTP/1.1\r\nHost: a\r\n\r\n");
    rig_send_text(&rig->loop, second, "GET /2 HTTP/1.1\r\nHost: a\r\n\r\n");
    int third = dial(rig);
    struct buf in;
    buf_init(&in, 65536);
    assert_true(rig_receive_to_end(&rig->loop, third, &in));
    assert_int_equal(span_find(buf_span(&in), SPAN_LIT("HTTP/1.1 503 ")), 0);
    assert_true(span_find(buf_span(&in), SPAN_LIT("Retry-After")) > 0);
    assert_int_equal(http_server_refused(rig->server), 1);
    buf_free(&in);
    close(first);
    close(second);
    close(third);
}

static void fewer_bytes_than_announced_is_a_cut(void **state)
{
    struct rig *rig = *state;
    start(rig);
    int fd = dial(rig);
    rig_send_text(&rig->loop, fd, "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
    while (!rig->held)
        uv_run(&rig->loop, UV_RUN_NOWAIT);
    assert_int_equal(http_exchange_begin(rig->held, 200, NULL, 10), 0);
    struct span half = SPAN_LIT("12345");
    assert_int_equal(http_exchange_write(rig->held, &half, 1), 0);
    http_exchange_end(rig->held);
    struct buf in;
    buf_init(&in, 65536);
    assert_true(rig_receive_to_end(&rig->loop, fd, &in));
    assert_true(span_find(buf_span(&in), SPAN_LIT("12345")) > 0);
    buf_free(&in);
    close(fd);
}

static void an_old_client_gets_its_stream_without_chunks(void **state)
{
    struct rig *rig = *state;
    start(rig);
    int fd = dial(rig);
    rig_send_text(&rig->loop, fd, "GET /hold HTTP/1.0\r\n\r\n");
    while (!rig->held)
        uv_run(&rig->loop, UV_RUN_NOWAIT);
    assert_int_equal(http_exchange_begin(rig->held, 200, NULL, -1), 0);
    struct span part = SPAN_LIT("data: x\n\n");
    assert_int_equal(http_exchange_write(rig->held, &part, 1), 0);
    http_exchange_end_with(rig->held, &part, 1);
    struct buf in;
    buf_init(&in, 65536);
    assert_true(rig_receive_to_end(&rig->loop, fd, &in));
    assert_true(span_find(buf_span(&in), SPAN_LIT("\r\n\r\ndata: x\n\ndata: x\n\n")) > 0);
    assert_true(span_find(buf_span(&in), SPAN_LIT("chunked")) < 0);
    buf_free(&in);
    close(fd);
}

#define SERVER_TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SERVER_TEST(pipelined_requests_are_answered_in_order),
        SERVER_TEST(a_slow_client_pauses_the_writer),
        SERVER_TEST(a_client_that_leaves_is_noticed_while_nothing_is_written),
        SERVER_TEST(a_body_over_the_limit_is_refused_before_it_is_read),
        SERVER_TEST(a_head_over_the_limit_says_what_is_too_long),
        SERVER_TEST(continue_is_sent_only_when_the_body_is_wanted),
        SERVER_TEST(a_client_over_the_limit_gets_an_answer),
        SERVER_TEST(fewer_bytes_than_announced_is_a_cut),
        SERVER_TEST(an_old_client_gets_its_stream_without_chunks),
    };
    return cmocka_run_group_tests_name("http/server", tests, NULL, NULL);
}
