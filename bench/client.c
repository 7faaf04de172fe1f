/*
 * One connection of the load generator: writes a request, reads and checks the answer, stays open
 * for the next one when the answer lets it.
 */
#include "load.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

static void on_content(void *data, const struct wire_event *event, uint64_t now_ns)
{
    struct client *c = data;
    struct load *l = c->load;
    uint64_t down_ns = now_ns > event->tx_ns ? now_ns - event->tx_ns : 0;

    l->events++;
    if (event->seq > 0) {
        samples_add(&l->event, down_ns);
        return;
    }
    c->first_ns = now_ns;
    l->first_events++;
    samples_add(&l->first, down_ns + (event->rx_ns > c->begin_ns ? event->rx_ns - c->begin_ns : 0));
}

void client_close(struct client *c)
{
    if (c->state != CLIENT_CLOSED) {
        close(c->fd);
        c->state = CLIENT_CLOSED;
    }
}

static void client_fail(struct client *c, const char *why)
{
    client_close(c);
    load_request_over(c->load, c, why);
}

static void watch(struct client *c, int op, uint32_t events)
{
    struct epoll_event ev = {.events = events, .data.ptr = c};

    if (epoll_ctl(c->load->epoll_fd, op, c->fd, &ev) < 0) {
        net_die("epoll_ctl");
    }
}

static void client_send(struct client *c)
{
    while (c->sent < c->request->len) {
        ssize_t n =
            send(c->fd, c->request->wire + c->sent, c->request->len - c->sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0 && errno == EAGAIN) {
            if (c->state == CLIENT_READING) {
                watch(c, EPOLL_CTL_MOD, EPOLLIN | EPOLLOUT);
            }
            c->state = CLIENT_SENDING;
            return;
        }
        if (n < 0) {
            client_fail(c, "closed while sending");
            return;
        }
        c->sent += (size_t)n;
    }
    if (c->state != CLIENT_READING) {
        watch(c, EPOLL_CTL_MOD, EPOLLIN);
    }
    c->state = CLIENT_READING;
}

void client_ask(struct client *c, const struct load_request *request, uint64_t due_ns)
{
    c->request = request;
    c->sent = 0;
    c->begin_ns = due_ns;
    c->first_ns = 0;
    c->sink = (struct answer_sink){.data = c, .on_content = on_content};
    answer_begin(&c->answer, &request->ask, &c->sink);
    if (c->state == CLIENT_FREE) {
        c->state = CLIENT_READING;
        client_send(c);
        return;
    }
    c->fd = net_connect(c->load->options.port);
    if (c->fd < 0) {
        load_request_over(c->load, c, "cannot connect");
        return;
    }
    c->state = CLIENT_CONNECTING;
    watch(c, EPOLL_CTL_ADD, EPOLLOUT);
}

static void client_read(struct client *c)
{
    static char chunk[128 * 1024];

    for (;;) {
        ssize_t n = recv(c->fd, chunk, sizeof(chunk), 0);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0 && errno == EAGAIN) {
            return;
        }
        if (c->state == CLIENT_FREE) {
            client_close(c); /* an idle connection was ended by the other side: its right */
            return;
        }
        if (n <= 0) {
            client_fail(c, n == 0 ? "closed before the end" : "reset before the end");
            return;
        }
        int r = answer_feed(&c->answer, chunk, (size_t)n, net_now_ns());
        if (r < 0) {
            client_fail(c, c->answer.why);
            return;
        }
        if (r > 0) {
            if (c->answer.close) {
                client_close(c);
            } else {
                c->state = CLIENT_FREE;
            }
            load_request_over(c->load, c, NULL);
            return;
        }
        if ((size_t)n < sizeof(chunk)) {
            return;
        }
    }
}

void client_ready(struct client *c, uint32_t events)
{
    if (c->state == CLIENT_CLOSED) {
        return;
    }
    if (c->state == CLIENT_CONNECTING) {
        int error = 0;
        socklen_t len = sizeof(error);
        if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0 || error) {
            client_fail(c, "connection refused");
            return;
        }
        c->state = CLIENT_SENDING;
    }
    /* An answer may come before the request is out: 413, or a worker that died. */
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
        client_read(c);
    }
    if (c->state == CLIENT_SENDING && (events & EPOLLOUT)) {
        client_send(c);
    }
}
