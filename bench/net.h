/*
 * The few things that upstream and load generator both need from the system: the clock, loopback
 * sockets, and a byte buffer that grows. A program that cannot get one of them ends with a line
 * that says so: these are measuring tools, and half a measurement is none.
 */
#ifndef FAILSOFT_BENCH_NET_H
#define FAILSOFT_BENCH_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* CLOCK_MONOTONIC in ns, the same for all processes of the host. */
uint64_t net_now_ns(void);

/* Writes `what` and the text of errno to stderr, exits with status 3. */
_Noreturn void net_die(const char *what);

/* Decimal number of a command line, at most `max`; exits with status 2 when it is none. */
uint32_t net_number(const char *text, uint32_t max);

/* Nonblocking sockets on 127.0.0.1 with TCP_NODELAY. The descriptor, or a negative errno. */
int net_listen(uint16_t port);
int net_connect(uint16_t port);

/* Short timer slack, many descriptors, no SIGPIPE. */
void net_prepare_process(void);

struct net_buf {
    char *data;
    size_t off; /* consumed */
    size_t len; /* filled */
    size_t cap;
};

/* Room for `n` more bytes behind len; what was consumed is moved away first. Dies without memory.
 */
void net_buf_reserve(struct net_buf *b, size_t n);
void net_buf_append(struct net_buf *b, const void *data, size_t n);
void net_buf_consume(struct net_buf *b, size_t n);
void net_buf_free(struct net_buf *b);

#endif
