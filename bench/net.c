/*
 * Clock, loopback sockets and a growing buffer for the two programs of the benchmark.
 */
#include "net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

uint64_t net_now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

void net_die(const char *what)
{
    fprintf(stderr, "bench: %s: %s\n", what, strerror(errno));
    exit(3);
}

uint32_t net_number(const char *text, uint32_t max)
{
    char *end;

    errno = 0;
    unsigned long value = strtoul(text, &end, 10);
    if (errno || end == text || *end || text[0] == '-' || value > max) {
        fprintf(stderr, "bench: \"%s\" is not a number from 0 to %u\n", text, max);
        exit(2);
    }
    return (uint32_t)value;
}

static struct sockaddr_in loopback(uint16_t port)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = htons(port)};

    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return addr;
}

int net_listen(uint16_t port)
{
    struct sockaddr_in addr = loopback(port);
    int one = 1, r;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0) {
        return -errno;
    }
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) < 0 ||
        bind(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0 || listen(fd, 4096) < 0) {
        r = -errno;
        close(fd);
        return r;
    }
    return fd;
}

int net_connect(uint16_t port)
{
    struct sockaddr_in addr = loopback(port);
    int one = 1, r;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0) {
        return -errno;
    }
    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) < 0 ||
        (connect(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0 && errno != EINPROGRESS)) {
        r = -errno;
        close(fd);
        return r;
    }
    return fd;
}

void net_prepare_process(void)
{
    struct rlimit limit;

    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_TIMERSLACK, 1ul, 0ul, 0ul, 0ul);
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

void net_buf_reserve(struct net_buf *b, size_t n)
{
    if (b->cap - b->len >= n) {
        return;
    }
    if (b->off) {
        memmove(b->data, b->data + b->off, b->len - b->off);
        b->len -= b->off;
        b->off = 0;
    }
    if (b->cap - b->len < n) {
        size_t cap = b->cap ? b->cap : 4096;
        while (cap - b->len < n) {
            cap *= 2;
        }
        char *data = realloc(b->data, cap);
        if (!data) {
            net_die("buffer");
        }
        b->data = data;
        b->cap = cap;
    }
}

void net_buf_append(struct net_buf *b, const void *data, size_t n)
{
    net_buf_reserve(b, n);
    memcpy(b->data + b->len, data, n);
    b->len += n;
}

void net_buf_consume(struct net_buf *b, size_t n)
{
    b->off += n;
    if (b->off == b->len) {
        b->off = b->len = 0;
    }
}

void net_buf_free(struct net_buf *b)
{
    free(b->data);
    *b = (struct net_buf){0};
}
