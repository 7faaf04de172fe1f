/*
 * connect → send → receive → parse with llhttp. Every wait is a poll() against the one deadline.
 */
#include "cli/fetch.h"

#include "config/address.h"

#include <errno.h>
#include <fcntl.h>
#include <llhttp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

struct fetch {
    llhttp_t parser;
    llhttp_settings_t settings;
    struct buf *body;
    bool complete;
    int error;
};

static uint64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* Waits for events on fd. 0; -ETIMEDOUT; another errno of poll. */
static int wait_for(int fd, short events, uint64_t deadline_ms)
{
    for (;;) {
        uint64_t now = now_ms();
        struct pollfd p = {.fd = fd, .events = events};
        int n;

        if (now >= deadline_ms)
            return -ETIMEDOUT;
        n = poll(&p, 1, (int)(deadline_ms - now));
        if (n > 0)
            return 0;
        if (n < 0 && errno != EINTR)
            return -errno;
    }
}

static int connect_one(const struct addrinfo *a, uint64_t deadline_ms, int *ret_fd)
{
    int fd = socket(a->ai_family, a->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, a->ai_protocol);
    int error = 0;
    socklen_t len = sizeof(error);
    int r = 0;

    if (fd < 0)
        return -errno;
    if (connect(fd, a->ai_addr, a->ai_addrlen) < 0) {
        r = -errno;
        if (r == -EINPROGRESS)
            r = wait_for(fd, POLLOUT, deadline_ms);
        if (r == 0 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0)
            r = -error;
    }
    if (r < 0) {
        close(fd);
        return r;
    }
    *ret_fd = fd;
    return 0;
}

static int connect_any(const struct address_url *url, uint64_t deadline_ms, int *ret_fd)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *list = NULL;
    char port[8];
    int r = -EHOSTUNREACH;

    snprintf(port, sizeof(port), "%u", url->port);
    if (getaddrinfo(url->host, port, &hints, &list) != 0)
        return -EHOSTUNREACH;
    for (const struct addrinfo *a = list; a; a = a->ai_next) {
        r = connect_one(a, deadline_ms, ret_fd);
        if (r == 0)
            break;
    }
    freeaddrinfo(list);
    return r;
}

static int send_all(int fd, const char *text, size_t len, uint64_t deadline_ms)
{
    while (len > 0) {
        ssize_t n = send(fd, text, len, MSG_NOSIGNAL);

        if (n > 0) {
            text += n;
            len -= (size_t)n;
        } else if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
            int r = wait_for(fd, POLLOUT, deadline_ms);

            if (r < 0)
                return r;
        } else {
            return -errno;
        }
    }
    return 0;
}

static int on_body(llhttp_t *parser, const char *at, size_t len)
{
    struct fetch *f = parser->data;

    f->error = buf_append(f->body, at, len);
    return f->error < 0 ? -1 : 0;
}

static int on_complete(llhttp_t *parser)
{
    struct fetch *f = parser->data;

    f->complete = true;
    return HPE_PAUSED;
}

static int receive(struct fetch *f, int fd, uint64_t deadline_ms)
{
    char bytes[16 * 1024];

    while (!f->complete) {
        ssize_t n = recv(fd, bytes, sizeof(bytes), 0);
        enum llhttp_errno e;

        if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
            int r = wait_for(fd, POLLIN, deadline_ms);

            if (r < 0)
                return r;
            continue;
        }
        if (n < 0)
            return -errno;
        e = n == 0 ? llhttp_finish(&f->parser) : llhttp_execute(&f->parser, bytes, (size_t)n);
        if (f->error < 0)
            return f->error;
        if (e != HPE_OK && e != HPE_PAUSED)
            return n == 0 ? -ECONNABORTED : -EPROTO;
        if (n == 0 && !f->complete)
            return -ECONNABORTED;
    }
    return 0;
}

static int exchange(struct fetch *f, int fd, const char *method, const struct address_url *url,
                    const char *path, uint64_t deadline_ms)
{
    bool v6 = strchr(url->host, ':') != NULL;
    char request[1024];
    int n = snprintf(request, sizeof(request),
                     "%s %.*s%s HTTP/1.1\r\nHost: %s%s%s:%u\r\nAccept: application/json\r\n"
                     "Content-Length: 0\r\nConnection: close\r\n\r\n",
                     method, (int)url->prefix_len, url->prefix, path, v6 ? "[" : "", url->host,
                     v6 ? "]" : "", url->port);
    int r;

    if (n < 0 || (size_t)n >= sizeof(request))
        return -EINVAL;
    r = send_all(fd, request, (size_t)n, deadline_ms);
    return r < 0 ? r : receive(f, fd, deadline_ms);
}

int cli_fetch(const char *method, const char *base_url, const char *path, uint64_t timeout_ms,
              struct buf *body, int *ret_status)
{
    uint64_t deadline_ms = now_ms() + timeout_ms;
    struct fetch f = {.body = body};
    struct address_url url;
    const char *why;
    int fd = -1;
    int r;

    if (address_parse_url(base_url, &url, &why) < 0)
        return -EINVAL;
    llhttp_settings_init(&f.settings);
    f.settings.on_body = on_body;
    f.settings.on_message_complete = on_complete;
    llhttp_init(&f.parser, HTTP_RESPONSE, &f.settings);
    f.parser.data = &f;
    r = connect_any(&url, deadline_ms, &fd);
    if (r < 0)
        return r;
    r = exchange(&f, fd, method, &url, path, deadline_ms);
    close(fd);
    if (r == 0)
        *ret_status = f.parser.status_code;
    return r;
}
