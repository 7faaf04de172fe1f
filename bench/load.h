/*
 * The load generator's parts: a client connection that asks and checks, and the run that owns all
 * of them. One thread, one epoll.
 *
 *   client:  free ──→ connecting ──→ sending ──→ reading ──→ free (keep-alive) or closed
 */
#ifndef FAILSOFT_BENCH_LOAD_H
#define FAILSOFT_BENCH_LOAD_H

#include "answer.h"
#include "net.h"
#include "samples.h"
#include "wire.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define LOAD_ERROR_KINDS 8
#define LOAD_TIERS       4

struct load_options {
    uint16_t port;
    uint32_t connections;
    uint32_t requests; /* of all connections together */
    uint32_t rate;    /* requests a second in an open loop; 0: each connection asks again at once */
    uint32_t ramp_ms; /* the first requests of the connections are spread over this */
    uint32_t timeout_s;
    bool mix; /* every other request streamed */
    bool
        hold; /* streams stay open after the first event; "ready" is printed, stdin is waited for */
    struct wire_ask ask;
};

struct load;

enum client_state {
    CLIENT_CLOSED,
    CLIENT_FREE,
    CLIENT_CONNECTING,
    CLIENT_SENDING,
    CLIENT_READING,
};

struct client {
    struct load *load;
    int fd;
    enum client_state state;
    bool started; /* was given its first request */
    const struct load_request *request;
    size_t sent;
    uint64_t begin_ns; /* the request was due; times count from here */
    uint64_t first_ns; /* the first content event came */
    struct answer answer;
    struct answer_sink sink;
};

/* A request as it goes on the wire, and what answer it asks for. */
struct load_request {
    char *wire;
    size_t len;
    struct wire_ask ask;
};

struct load {
    struct load_options options;
    int epoll_fd;
    struct client *clients;
    struct load_request plain, stream;
    uint32_t begun, ok, failed, first_events;
    uint64_t events;
    uint64_t begin_ns, next_due_ns;
    struct samples latency; /* from due to the last byte */
    struct samples first;   /* added on both ways, to the first content event */
    struct samples event;   /* added to each content event behind the first */
    char errors[LOAD_ERROR_KINDS][160];
    uint32_t error_counts[LOAD_ERROR_KINDS];
    char tiers[LOAD_TIERS][16];
    uint32_t tier_counts[LOAD_TIERS];
};

/* Begins a request that was due at `due_ns`, over a new connection where there is none. */
void client_ask(struct client *c, const struct load_request *request, uint64_t due_ns);

/* Handles epoll events. */
void client_ready(struct client *c, uint32_t events);

void client_close(struct client *c);

/* A client tells its run: the request is over, and why when it failed (NULL: it is right). */
void load_request_over(struct load *l, struct client *c, const char *why);

/* Runs what the options say, prints one JSON object to `out`. */
void load_run(struct load *l, FILE *out);

/*
 * Starts a program, asks it until it answers right, ends it with SIGTERM, prints one JSON object:
 * the time from fork to the first right answer. Exits with status 3 when there is none in time.
 */
void load_start_time(const struct load_options *options, char **argv, FILE *out);

#endif
