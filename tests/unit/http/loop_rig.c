/* See loop_rig.h. The deadline is generous: it guards against hanging, nothing is timed. */
#include "tests/unit/http/loop_rig.h"

#include "tests/unit/unit.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { RIG_DEADLINE_MS = 20000 };

static uint64_t now_ms(void)
{
    return uv_hrtime() / 1000000;
}

static void keep_waking(uv_timer_t *timer)
{
    (void)timer;
}

/* One turn of the loop that waits for an event, a millisecond at most. */
static void turn(uv_loop_t *loop)
{
    uv_timer_t timer;
    uv_timer_init(loop, &timer);
    uv_timer_start(&timer, keep_waking, 1, 0);
    uv_run(loop, UV_RUN_ONCE);
    uv_close((uv_handle_t *)&timer, NULL);
    uv_run(loop, UV_RUN_NOWAIT);
}

static struct sockaddr_in address_of(uint16_t port)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET,
        .sin_port = htons(port),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
    };
}

int rig_connect(uint16_t port)
{
    struct sockaddr_in address = address_of(port);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    return fd;
}

int rig_listen(uint16_t *ret_port)
{
    struct sockaddr_in address = address_of(0);
    socklen_t length = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(fd, 16), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &length), 0);
    *ret_port = ntohs(address.sin_port);
    return fd;
}

int rig_accept(uv_loop_t *loop, int listener)
{
    uint64_t until = now_ms() + RIG_DEADLINE_MS;
    int fd = -1;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) < 0 && now_ms() < until)
        turn(loop);
    assert_true(fd >= 0);
    return fd;
}

void rig_send(uv_loop_t *loop, int fd, const char *bytes, size_t n)
{
    uint64_t until = now_ms() + RIG_DEADLINE_MS;
    while (n > 0 && now_ms() < until) {
        ssize_t sent = send(fd, bytes, n, MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN)
            return;
        bytes += sent > 0 ? sent : 0;
        n -= sent > 0 ? (size_t)sent : 0;
        turn(loop);
    }
    assert_int_equal(n, 0);
}

void rig_send_text(uv_loop_t *loop, int fd, const char *text)
{
    rig_send(loop, fd, text, strlen(text));
}

bool rig_receive(int fd, struct buf *into)
{
    char bytes[65536];
    ssize_t n;
    while ((n = recv(fd, bytes, sizeof(bytes), 0)) > 0)
        assert_int_equal(buf_append(into, bytes, (size_t)n), 0);
    return n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
}

bool rig_receive_until(uv_loop_t *loop, int fd, struct buf *into, const char *needle)
{
    uint64_t until = now_ms() + RIG_DEADLINE_MS;
    bool ended = false;
    while (!ended && now_ms() < until) {
        ended = rig_receive(fd, into);
        if (span_find(buf_span(into), span_from_str(needle)) >= 0)
            return true;
        turn(loop);
    }
    return false;
}

bool rig_receive_to_end(uv_loop_t *loop, int fd, struct buf *into)
{
    uint64_t until = now_ms() + RIG_DEADLINE_MS;
    while (now_ms() < until) {
        if (rig_receive(fd, into))
            return true;
        turn(loop);
    }
    return false;
}

bool rig_run_until(uv_loop_t *loop, const bool *flag)
{
    uint64_t until = now_ms() + RIG_DEADLINE_MS;
    while (!*flag && now_ms() < until)
        turn(loop);
    return *flag;
}

void rig_finish(uv_loop_t *loop)
{
    uint64_t until = now_ms() + RIG_DEADLINE_MS;
    while (uv_run(loop, UV_RUN_NOWAIT) != 0 && now_ms() < until)
        turn(loop);
    assert_int_equal(uv_loop_close(loop), 0);
}
