/* The HTTP client on a real loop against a raw, scripted server. */
#include "tests/unit/http/loop_rig.h"
#include "tests/unit/unit.h"

#include "http/client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct rig {
    uv_loop_t loop;
    int listener;
    uint16_t port;
    struct http_origin *origin;
    struct http_call *call;
    struct buf body;
    int status;
    unsigned heads, dones, fails;
    struct http_call_failure failure;
    bool ended, cancel_in_body;
};

static void on_head(struct http_call *c, int status, const struct http_fields *fields, void *ctx)
{
    (void)c;
    (void)fields;
    struct rig *rig = ctx;
    rig->status = status;
    rig->heads++;
}

static void on_body(struct http_call *c, struct span bytes, void *ctx)
{
    struct rig *rig = ctx;
    assert_int_equal(buf_append_span(&rig->body, bytes), 0);
    if (rig->cancel_in_body)
        http_call_cancel(c);
}

static void on_done(struct http_call *c, void *ctx)
{
    (void)c;
    struct rig *rig = ctx;
    rig->dones++;
    rig->ended = true;
}

static void on_fail(struct http_call *c, const struct http_call_failure *failure, void *ctx)
{
    (void)c;
    struct rig *rig = ctx;
    rig->fails++;
    rig->failure = *failure;
    rig->ended = true;
}

static const struct http_call_handler handler = {
    .on_head = on_head, .on_body = on_body, .on_done = on_done, .on_fail = on_fail};

static void create_origin(struct rig *rig, const char *host)
{
    char url[64];
    struct http_origin_options options;
    http_origin_options_default(&options);
    snprintf(url, sizeof(url), "http://%s:%u/pre/", host, rig->port);
    assert_int_equal(http_origin_create_url(&rig->loop, url, &options, &rig->origin), 0);
}

static int set_up(void **state)
{
    struct rig *rig = calloc(1, sizeof(*rig));
    uv_loop_init(&rig->loop);
    rig->listener = rig_listen(&rig->port);
    buf_init(&rig->body, (size_t)64 << 20);
    create_origin(rig, "127.0.0.1");
    *state = rig;
    return 0;
}

static int tear_down(void **state)
{
    struct rig *rig = *state;
    http_origin_destroy(rig->origin);
    rig_finish(&rig->loop);
    close(rig->listener);
    buf_free(&rig->body);
    free(rig);
    return 0;
}

static void call(struct rig *rig, const struct span *body, unsigned count)
{
    rig->ended = false;
    struct http_call_request request = {
        .method = SPAN_LIT("POST"),
        .target = SPAN_LIT("/x?y=1"),
        .body = body,
        .body_count = count,
        .has_body = true,
    };
    assert_int_equal(http_call_start(rig->origin, &request, &handler, rig, &rig->call), 0);
    assert_false(rig->ended);
}

static void sends_head_and_parts_in_order_and_pools_the_connection(void **state)
{
    struct rig *rig = *state;
    struct span parts[] = {SPAN_LIT("{\"a\":"), SPAN_LIT("1"), SPAN_LIT("}")};
    call(rig, parts, 3);
    int fd = rig_accept(&rig->loop, rig->listener);
    struct buf in;
    buf_init(&in, 65536);
    assert_true(rig_receive_until(&rig->loop, fd, &in, "{\"a\":1}"));
    assert_int_equal(span_find(buf_span(&in), SPAN_LIT("POST /pre/x?y=1 HTTP/1.1\r\n")), 0);
    assert_true(span_find(buf_span(&in), SPAN_LIT("Accept-Encoding: identity\r\n")) > 0);
    assert_true(span_find(buf_span(&in), SPAN_LIT("Content-Length: 7\r\n")) > 0);
    rig_send_text(&rig->loop, fd, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    assert_true(rig_run_until(&rig->loop, &rig->ended));
    assert_int_equal(rig->dones, 1);
    assert_span_equal(buf_span(&rig->body), "ok");
    in.len = 0;
    call(rig, parts, 3);
    assert_true(rig_receive_until(&rig->loop, fd, &in, "{\"a\":1}"));
    rig_send_text(&rig->loop, fd, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    assert_true(rig_run_until(&rig->loop, &rig->ended));
    assert_int_equal(rig->dones, 2);
    buf_free(&in);
    close(fd);
}

/* The keep-alive race (F106): the failure says that nothing was heard on a pooled connection. */
static void a_pooled_connection_that_dies_under_the_request_is_told_apart(void **state)
{
    struct rig *rig = *state;
    struct span body = SPAN_LIT("x");
    call(rig, &body, 1);
    int fd = rig_accept(&rig->loop, rig->listener);
    struct buf in;
    buf_init(&in, 65536);
    assert_true(rig_receive_until(&rig->loop, fd, &in, "\r\n\r\nx"));
    rig_send_text(&rig->loop, fd, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    assert_true(rig_run_until(&rig->loop, &rig->ended));
    call(rig, &body, 1);
    close(fd);
    assert_true(rig_run_until(&rig->loop, &rig->ended));
    assert_int_equal(rig->fails, 1);
    assert_true(rig->failure.reused);
    assert_true(rig->failure.connected);
    assert_false(rig->failure.any_response_byte);
    buf_free(&in);
}

static void an_idle_connection_that_was_closed_is_not_used_again(void **state)
{
    struct rig *rig = *state;
    struct span body = SPAN_LIT("x");
    call(rig, &body, 1);
    int fd = rig_accept(&rig->loop, rig->listener);
    struct buf in;
    buf_init(&in, 65536);
    assert_true(rig_receive_until(&rig->loop, fd, &in, "\r\n\r\nx"));
    rig_send_text(&rig->loop, fd, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    assert_true(rig_run_until(&rig->loop, &rig->ended));
    close(fd);
    for (int i = 0; i < 10; i++)
        uv_run(&rig->loop, UV_RUN_NOWAIT);
    call(rig, &body, 1);
    fd = rig_accept(&rig->loop, rig->listener);
    rig_send_text(&rig->loop, fd, "HTTP/1.1 204 No Content\r\n\r\n");
    assert_true(rig_run_until(&rig->loop, &rig->ended));
    assert_int_equal(rig->dones, 2);
    buf_free(&in);
    close(fd);
}

static void interim_answers_are_swallowed_and_close_ends_a_message(void **state)
{
    struct rig *rig = *state;
    call(rig, NULL, 0);
    int fd = rig_accept(&rig->loop, rig->listener);
    rig_send_text(&rig->loop, fd,
                  "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
                  "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: x\n\n");
    /* Read the request first: closing with unread bytes would be a reset. */
    struct buf in;
    buf_init(&in, 65536);
    assert_true(rig_receive_until(&rig->loop, fd, &in, "\r\n\r\n"));
    close(fd);
    assert_true(rig_run_until(&rig->loop, &rig->ended));
    assert_int_equal(rig->heads, 1);
    assert_int_equal(rig->status, 200);
    assert_int_equal(rig->dones, 1);
    assert_span_equal(buf_span(&rig->body), "data: x\n\n");
    buf_free(&in);
}

static void a_message_cut_short_is_a_failure(void **state)
{
    struct rig *rig = *state;
    static const char *const cut[] = {
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
        "HTTP/1.1 200 OK\r\nContent-",
        "",
    };
    for (size_t i = 0; i < UNIT_COUNT(cut); i++) {
        call(rig, NULL, 0);
        int fd = rig_accept(&rig->loop, rig->listener);
        struct buf in;
        buf_init(&in, 65536);
        assert_true(rig_receive_until(&rig->loop, fd, &in, "\r\n\r\n"));
        rig_send_text(&rig->loop, fd, cut[i]);
        close(fd);
        assert_true(rig_run_until(&rig->loop, &rig->ended));
        assert_int_equal(rig->fails, i + 1);
        assert_int_equal(rig->failure.error, -ECONNABORTED);
        assert_int_equal(rig->failure.any_response_byte, cut[i][0] != '\0');
        buf_free(&in);
    }
    assert_int_equal(rig->dones, 0);
}

static void a_refused_connect_says_so(void **state)
{
    struct rig *rig = *state;
    close(rig->listener);
    call(rig, NULL, 0);
    assert_true(rig_run_until(&rig->loop, &rig->ended));
    assert_int_equal(rig->failure.error, -ECONNREFUSED);
    assert_false(rig->failure.connected);
    rig->listener = -1;
}

static void no_callback_after_a_cancel_from_inside(void **state)
{
    struct rig *rig = *state;
    rig->cancel_in_body = true;
    call(rig, NULL, 0);
    int fd = rig_accept(&rig->loop, rig->listener);
    rig_send_text(
        &rig->loop, fd,
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n1\r\nb\r\n0\r\n\r\n");
    struct buf in;
    buf_init(&in, 65536);
    assert_true(rig_receive_to_end(&rig->loop, fd, &in));
    assert_span_equal(buf_span(&rig->body), "a");
    assert_int_equal(rig->dones + rig->fails, 0);
    buf_free(&in);
    close(fd);
}

static void a_large_body_arrives_whole(void **state)
{
    struct rig *rig = *state;
    size_t size = (size_t)8 << 20;
    char *bytes = malloc(size);
    for (size_t i = 0; i < size; i++)
        bytes[i] = (char)('a' + i % 26);
    struct span parts[] = {{bytes, 10}, {bytes + 10, size - 20}, {bytes + size - 10, 10}};
    call(rig, parts, 3);
    int fd = rig_accept(&rig->loop, rig->listener);
    struct buf in;
    buf_init(&in, size + 65536);
    while (in.len < size) {
        assert_false(rig_receive(fd, &in));
        uv_run(&rig->loop, UV_RUN_NOWAIT);
        if (http_call_is_sent(rig->call))
            break;
    }
    rig_send_text(&rig->loop, fd, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    assert_true(rig_run_until(&rig->loop, &rig->ended));
    (void)rig_receive(fd, &in);
    ptrdiff_t head = span_find(buf_span(&in), SPAN_LIT("\r\n\r\n"));
    assert_true(head > 0);
    assert_int_equal(in.len - (size_t)head - 4, size);
    assert_memory_equal(in.data + head + 4, bytes, size);
    free(bytes);
    buf_free(&in);
    close(fd);
}

static void a_refusal_before_the_body_is_sent_is_heard(void **state)
{
    struct rig *rig = *state;
    size_t size = (size_t)32 << 20;
    char *bytes = calloc(1, size);
    struct span part = {bytes, size};
    call(rig, &part, 1);
    int fd = rig_accept(&rig->loop, rig->listener);
    rig_send_text(&rig->loop, fd, "HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n");
    assert_true(rig_run_until(&rig->loop, &rig->ended));
    assert_int_equal(rig->status, 413);
    assert_int_equal(rig->dones, 1);
    /* Not pooled: half a request is on it. */
    struct buf in;
    buf_init(&in, size * 2);
    assert_true(rig_receive_to_end(&rig->loop, fd, &in));
    free(bytes);
    buf_free(&in);
    close(fd);
}

static void a_name_is_resolved(void **state)
{
    struct rig *rig = *state;
    http_origin_destroy(rig->origin);
    create_origin(rig, "localhost");
    call(rig, NULL, 0);
    int fd = rig_accept(&rig->loop, rig->listener);
    rig_send_text(&rig->loop, fd, "HTTP/1.1 204 No Content\r\n\r\n");
    assert_true(rig_run_until(&rig->loop, &rig->ended));
    assert_int_equal(rig->dones, 1);
    close(fd);
}

/* A worker that was restarted at another port: one origin, the next call goes there, and says so. */
static void an_origin_moves_to_another_port(void **state)
{
    struct rig *rig = *state;
    struct buf in;
    uint16_t port;
    char host[64];
    int other = rig_listen(&port);
    buf_init(&in, 65536);
    call(rig, NULL, 0);
    int fd = rig_accept(&rig->loop, rig->listener);
    assert_int_equal(http_origin_set_port(rig->origin, port), 0);
    /* The running call is left alone; its connection is one of the old server. */
    rig_send_text(&rig->loop, fd, "HTTP/1.1 204 No Content\r\n\r\n");
    assert_true(rig_run_until(&rig->loop, &rig->ended));
    assert_int_equal(rig->dones, 1);
    snprintf(host, sizeof(host), "127.0.0.1:%u", port);
    assert_string_equal(http_origin_host(rig->origin), host);
    assert_int_equal(http_origin_set_port(rig->origin, port), 0); /* closes what idles */
    call(rig, NULL, 0);
    int moved = rig_accept(&rig->loop, other);
    snprintf(host, sizeof(host), "Host: 127.0.0.1:%u\r\n", port);
    assert_true(rig_receive_until(&rig->loop, moved, &in, host));
    rig_send_text(&rig->loop, moved, "HTTP/1.1 204 No Content\r\n\r\n");
    assert_true(rig_run_until(&rig->loop, &rig->ended));
    assert_int_equal(rig->dones, 2);
    close(fd);
    close(moved);
    close(other);
    buf_free(&in);
}

static void only_a_numeric_origin_moves(void **state)
{
    struct rig *rig = *state;
    struct http_origin_options options;
    struct http_origin *o;
    http_origin_options_default(&options);
    assert_int_equal(http_origin_set_port(rig->origin, 0), -EINVAL);
    assert_int_equal(http_origin_create_url(&rig->loop, "http://[::1]:80", &options, &o), 0);
    assert_int_equal(http_origin_set_port(o, 8081), 0);
    assert_string_equal(http_origin_host(o), "[::1]:8081");
    http_origin_destroy(o);
    assert_int_equal(http_origin_create_url(&rig->loop, "http://a", &options, &o), 0);
    assert_int_equal(http_origin_set_port(o, 8081), -EINVAL);
    http_origin_destroy(o);
    assert_int_equal(http_origin_create_unix(&rig->loop, "/x", &options, &o), 0);
    assert_int_equal(http_origin_set_port(o, 8081), -EINVAL);
    http_origin_destroy(o);
}

static void urls_are_checked(void **state)
{
    struct rig *rig = *state;
    struct http_origin_options options;
    struct http_origin *o;
    http_origin_options_default(&options);
    static const char *const bad[] = {
        "",           "host:80",        "ftp://a",     "http://",      "http://a:0",
        "http://a:x", "http://a:70000", "http://[::1", "http://[::1]x"};
    for (size_t i = 0; i < UNIT_COUNT(bad); i++)
        assert_int_equal(http_origin_create_url(&rig->loop, bad[i], &options, &o), -EINVAL);
    assert_int_equal(http_origin_create_url(&rig->loop, "https://a", &options, &o),
                     -EPROTONOSUPPORT);
}

#define CLIENT_TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CLIENT_TEST(sends_head_and_parts_in_order_and_pools_the_connection),
        CLIENT_TEST(a_pooled_connection_that_dies_under_the_request_is_told_apart),
        CLIENT_TEST(an_idle_connection_that_was_closed_is_not_used_again),
        CLIENT_TEST(interim_answers_are_swallowed_and_close_ends_a_message),
        CLIENT_TEST(a_message_cut_short_is_a_failure),
        CLIENT_TEST(a_refused_connect_says_so),
        CLIENT_TEST(no_callback_after_a_cancel_from_inside),
        CLIENT_TEST(a_large_body_arrives_whole),
        CLIENT_TEST(a_refusal_before_the_body_is_sent_is_heard),
        CLIENT_TEST(a_name_is_resolved),
        CLIENT_TEST(an_origin_moves_to_another_port),
        CLIENT_TEST(only_a_numeric_origin_moves),
        CLIENT_TEST(urls_are_checked),
    };
    return cmocka_run_group_tests_name("http/client", tests, NULL, NULL);
}
