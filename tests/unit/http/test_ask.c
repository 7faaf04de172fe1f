/* One question with a deadline and a bounded answer, against a raw socket that the test answers. */
#include "tests/unit/http/loop_rig.h"
#include "tests/unit/unit.h"

#include "http/ask.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LONG_MS = 60000 };

struct rig {
    uv_loop_t loop;
    int listener;
    struct http_origin *origin;
    struct http_ask *ask, *other;
    /* What `done` was told. */
    bool ended;
    unsigned calls;
    struct http_answer answer;
    char body[64];
    bool ask_again, cancel_other;
};

static int start(struct rig *rig, size_t max_body_bytes, uint64_t timeout_ms,
                 struct http_ask **slot);

static void done(const struct http_answer *answer, void *ctx)
{
    struct rig *rig = ctx;
    assert_null(rig->ask);
    rig->ended = true;
    rig->calls++;
    rig->answer = *answer;
    assert_true(answer->body.len < sizeof(rig->body));
    snprintf(rig->body, sizeof(rig->body), "%.*s", SPAN_FMT(answer->body));
    http_ask_cancel(&rig->ask); /* nothing runs any more */
    if (rig->cancel_other)
        http_ask_cancel(&rig->other);
    if (rig->ask_again) {
        rig->ask_again = false;
        assert_int_equal(start(rig, 16, LONG_MS, &rig->ask), 0);
    }
}

static int start(struct rig *rig, size_t max_body_bytes, uint64_t timeout_ms,
                 struct http_ask **slot)
{
    static const struct span part = SPAN_LIT("what?");
    struct http_call_request request = {
        .method = SPAN_LIT("POST"),
        .target = SPAN_LIT("/q"),
        .body = &part,
        .body_count = 1,
        .has_body = true,
        .beside_v1 = true,
        .fresh_connection = true,
    };
    rig->ended = false;
    int r = http_ask_start(rig->origin, &request, max_body_bytes, timeout_ms, done, rig, slot);
    assert_false(rig->ended);
    return r;
}

static int set_up(void **state)
{
    struct rig *rig = calloc(1, sizeof(*rig));
    struct http_origin_options options;
    uint16_t port;
    char url[64];

    uv_loop_init(&rig->loop);
    rig->listener = rig_listen(&port);
    http_origin_options_default(&options);
    snprintf(url, sizeof(url), "http://127.0.0.1:%u/v1", port);
    assert_int_equal(http_origin_create_url(&rig->loop, url, &options, &rig->origin), 0);
    *state = rig;
    return 0;
}

static int tear_down(void **state)
{
    struct rig *rig = *state;

    http_ask_cancel(&rig->ask);
    http_origin_destroy(rig->origin);
    rig_finish(&rig->loop);
    if (rig->listener >= 0)
        close(rig->listener);
    free(rig);
    return 0;
}

/* The other end of the next question, which was received whole. */
static int receive(struct rig *rig)
{
    struct buf asked;
    int fd = rig_accept(&rig->loop, rig->listener);

    buf_init(&asked, 4096);
    assert_true(rig_receive_until(&rig->loop, fd, &asked, "what?"));
    assert_true(span_starts_with(buf_span(&asked), SPAN_LIT("POST /q HTTP/1.1\r\n")));
    buf_free(&asked);
    return fd;
}

static void assert_closed(struct rig *rig, int fd)
{
    struct buf rest;

    buf_init(&rest, 4096);
    assert_true(rig_receive_to_end(&rig->loop, fd, &rest));
    assert_int_equal(rest.len, 0);
    buf_free(&rest);
    close(fd);
}

static void assert_answer(struct rig *rig, int error, bool connected, int status, const char *body)
{
    assert_true(rig_run_until(&rig->loop, &rig->ended));
    assert_int_equal(rig->calls, 1);
    assert_int_equal(rig->answer.error, error);
    assert_int_equal(rig->answer.connected, connected);
    assert_int_equal(rig->answer.status, status);
    assert_string_equal(rig->body, body);
}

static void an_answer(void **state)
{
    struct rig *rig = *state;

    assert_int_equal(start(rig, 16, LONG_MS, &rig->ask), 0);
    assert_non_null(rig->ask);
    assert_int_equal(start(rig, 16, LONG_MS, &rig->ask), -EALREADY);
    int fd = receive(rig);
    rig_send_text(&rig->loop, fd, "HTTP/1.1 503 Busy\r\nContent-Length: 16\r\n\r\n01234567");
    assert_false(rig->ended);
    rig_send_text(&rig->loop, fd, "89abcdef");
    assert_answer(rig, 0, true, 503, "0123456789abcdef");
    assert_false(rig->answer.too_long);
    close(fd);
}

/* Nothing of it is told: half an answer is none. */
static void an_answer_that_is_cut(void **state)
{
    struct rig *rig = *state;

    assert_int_equal(start(rig, 16, LONG_MS, &rig->ask), 0);
    int fd = receive(rig);
    rig_send_text(&rig->loop, fd, "HTTP/1.1 200 OK\r\nContent-Length: 16\r\n\r\n0123");
    close(fd);
    assert_answer(rig, -ECONNABORTED, true, 0, "");
}

static void silence(void **state)
{
    static const char *const said[] = {"", "HTTP/1.1 200 OK\r\nContent-Length: 16\r\n\r\n0123"};
    struct rig *rig = *state;

    for (size_t i = 0; i < UNIT_COUNT(said); i++) {
        rig->calls = 0;
        assert_int_equal(start(rig, 16, 500, &rig->ask), 0);
        int fd = receive(rig);
        if (said[i][0] && !rig->ended)
            rig_send_text(&rig->loop, fd, said[i]);
        assert_answer(rig, -ETIME, true, 0, "");
        assert_closed(rig, fd);
    }
}

static void an_answer_that_is_too_long(void **state)
{
    struct rig *rig = *state;

    assert_int_equal(start(rig, 16, LONG_MS, &rig->ask), 0);
    int fd = receive(rig);
    rig_send_text(&rig->loop, fd, "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n0123456789");
    assert_false(rig->ended);
    rig_send_text(&rig->loop, fd, "abcdefg");
    assert_answer(rig, 0, true, 200, "0123456789abcdef");
    assert_true(rig->answer.too_long);
    assert_closed(rig, fd);
}

static void the_head_alone(void **state)
{
    struct rig *rig = *state;

    assert_int_equal(start(rig, 0, LONG_MS, &rig->ask), 0);
    int fd = receive(rig);
    rig_send_text(&rig->loop, fd, "HTTP/1.1 404 No\r\nContent-Length: 99\r\n\r\n");
    assert_answer(rig, 0, true, 404, "");
    assert_closed(rig, fd);
}

static void nobody_listens(void **state)
{
    struct rig *rig = *state;

    close(rig->listener);
    rig->listener = -1;
    assert_int_equal(start(rig, 16, LONG_MS, &rig->ask), 0);
    assert_answer(rig, -ECONNREFUSED, false, 0, "");
}

static void cancelled(void **state)
{
    struct rig *rig = *state;

    /* Before it is connected, and while it waits for the answer. */
    assert_int_equal(start(rig, 16, 1, &rig->ask), 0);
    http_ask_cancel(&rig->ask);
    assert_null(rig->ask);
    http_ask_cancel(&rig->ask);
    assert_closed(rig, rig_accept(&rig->loop, rig->listener));
    assert_int_equal(start(rig, 16, LONG_MS, &rig->ask), 0);
    int fd = receive(rig);
    rig_send_text(&rig->loop, fd, "HTTP/1.1 200 OK\r\nContent-Length: 16\r\n\r\n0123");
    http_ask_cancel(&rig->ask);
    assert_closed(rig, fd);
    assert_int_equal(rig->calls, 0);
}

/* In every way that a question ends. */
static void done_asks_and_cancels(void **state)
{
    static const struct {
        size_t max_body_bytes;
        uint64_t timeout_ms;
        const char *answer;
    } cases[] = {
        {16, LONG_MS, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n0"},
        {16, LONG_MS, "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n0123456789abcdefg"},
        {0, LONG_MS, "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n"},
        {16, LONG_MS, "nonsense\r\n\r\n"},
        {16, 500, ""},
    };
    struct rig *rig = *state;

    for (size_t i = 0; i < UNIT_COUNT(cases); i++) {
        rig->calls = 0;
        rig->ask_again = rig->cancel_other = true;
        assert_int_equal(start(rig, 16, LONG_MS, &rig->other), 0);
        int other = receive(rig);
        assert_int_equal(start(rig, cases[i].max_body_bytes, cases[i].timeout_ms, &rig->ask), 0);
        int first = receive(rig);
        rig_send_text(&rig->loop, first, cases[i].answer);
        int second = receive(rig);
        assert_int_equal(rig->calls, 1);
        assert_non_null(rig->ask);
        assert_null(rig->other);
        assert_closed(rig, other);
        rig->calls = 0;
        rig_send_text(&rig->loop, second, "HTTP/1.1 204 No\r\n\r\n");
        assert_answer(rig, 0, true, 204, "");
        close(first);
        close(second);
    }
}

static void nothing_can_be_asked(void **state)
{
    struct rig *rig = *state;
    struct http_call_request request = {
        .method = SPAN_LIT("POST"),
        .target = SPAN_LIT("/q"),
        .body_count = HTTP_CALL_MAX_BODY_PARTS + 1,
    };

    assert_int_equal(http_ask_start(rig->origin, &request, 16, LONG_MS, done, rig, &rig->ask),
                     -E2BIG);
    assert_null(rig->ask);
    assert_int_equal(rig->calls, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_answer, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_answer_that_is_cut, set_up, tear_down),
        cmocka_unit_test_setup_teardown(silence, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_answer_that_is_too_long, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_head_alone, set_up, tear_down),
        cmocka_unit_test_setup_teardown(nobody_listens, set_up, tear_down),
        cmocka_unit_test_setup_teardown(cancelled, set_up, tear_down),
        cmocka_unit_test_setup_teardown(done_asks_and_cancels, set_up, tear_down),
        cmocka_unit_test_setup_teardown(nothing_can_be_asked, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
