/*
 * HTTP/1.1 server: connections, strict request framing, limits, and responses with backpressure.
 * One loop thread owns everything. The server buffers the whole request body (bounded), because a
 * request must be validated before a worker sees it and repeatable until its commit point.
 *
 *   connection:  head → body → responding → head …            (keep-alive)
 *                  └──────┴────────┴──→ closing                (error, limit, client gone)
 *
 * An exchange is one request and its response. It is valid from on_head until exactly one of:
 * the response has ended (http_exchange_end / _reply), or on_gone has returned.
 */
#ifndef FAILSOFT_HTTP_SERVER_H
#define FAILSOFT_HTTP_SERVER_H

#include "base/span.h"
#include "http/fields.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct http_server;
struct http_exchange;

struct http_server_limits {
    size_t head_bytes;        /* request line and fields; above: 431 */
    size_t body_bytes;        /* above: 413, before the body is read where its length is declared */
    size_t write_queue_bytes; /* above: http_exchange_write asks to pause */
    uint64_t head_timeout_ms; /* from the first byte of a head to its end: 408 */
    uint64_t idle_timeout_ms; /* between requests: closed in silence */
    uint64_t body_timeout_ms; /* between two reads of a body: 408 */
    uint64_t write_timeout_ms; /* a client that takes nothing for this long is gone */
    unsigned max_connections;  /* above: 503 and close */
};

/* Sensible defaults; body_bytes 64 MiB. max_connections from RLIMIT_NOFILE. */
void http_server_limits_default(struct http_server_limits *ret_limits);

struct http_server_handler {
    /*
     * The head is there, the body is not. May answer at once (http_exchange_reply): then the body
     * is not read and the connection is closed after the answer when one was announced.
     */
    void (*on_head)(struct http_exchange *x, void *ctx);
    /* Head and body are there. Must lead to an answer, now or later. */
    void (*on_request)(struct http_exchange *x, void *ctx);
    /* Bytes queued for the client fell below half of write_queue_bytes after a pause was asked. */
    void (*on_drained)(struct http_exchange *x, void *ctx);
    /* The client left, or was cut for a limit, before the response ended. */
    void (*on_gone)(struct http_exchange *x, void *ctx);
    /*
     * The server refused a request on its own (400, 408, 413, 417, 431, 503…) before on_head;
     * writes the body of the answer. `path` may be empty. May be NULL: plain text then.
     */
    void (*on_refused)(int status, const char *message, struct span path, struct buf *ret_body,
                       void *ctx);
};

/*
 * Listens on host:port (numeric IPv4 or IPv6 host; port 0 picks one). 0; negative errno
 * (-EADDRINUSE, -EACCES, -EADDRNOTAVAIL, -EINVAL, -ENOMEM). The handler must outlive the server.
 */
int http_server_listen(uv_loop_t *loop, const char *host, uint16_t port,
                       const struct http_server_limits *limits,
                       const struct http_server_handler *handler, void *ctx,
                       struct http_server **ret_server);

/* The port that is listened on. */
uint16_t http_server_port(const struct http_server *s);

/* Open connections and answers refused for lack of room, for metrics. */
unsigned http_server_connections(const struct http_server *s);
uint64_t http_server_refused(const struct http_server *s);

/* Applies new limits to what comes from now on. */
void http_server_set_limits(struct http_server *s, const struct http_server_limits *limits);

/* Takes no new connections and closes idle ones; running exchanges go on. */
void http_server_drain(struct http_server *s);

/* Closes everything at once (on_gone for running exchanges); on_closed when no handle is left. */
void http_server_close(struct http_server *s, void (*on_closed)(void *ctx), void *ctx);

/* The request. Spans are valid as long as the exchange. */
struct span http_exchange_method(const struct http_exchange *x);
struct span http_exchange_target(const struct http_exchange *x); /* path and query, raw */
const struct http_fields *http_exchange_fields(const struct http_exchange *x);
struct span http_exchange_body(const struct http_exchange *x);
/* Frees the body early (after the commit point it is not needed again). */
void http_exchange_release_body(struct http_exchange *x);

/* One pointer for the user of the exchange. */
void http_exchange_set_user(struct http_exchange *x, void *user);
void *http_exchange_user(const struct http_exchange *x);

/*
 * Starts a response. `fields` are written as they are; the server adds Content-Length or
 * Transfer-Encoding, Connection and Date. content_length < 0: unknown (chunked, or closed at the
 * end for an HTTP/1.0 client). 0; -EPIPE (client gone), -ENOMEM.
 * Nothing is written to the socket until the first body bytes or the end.
 */
int http_exchange_begin(struct http_exchange *x, int status, const struct http_fields *fields,
                        int64_t content_length);

/* True after http_exchange_begin. */
bool http_exchange_has_begun(const struct http_exchange *x);

/*
 * Body bytes: sent at once as far as the socket takes them (one system call), the rest is copied
 * and queued. >0: more than write_queue_bytes is queued, pause and wait for on_drained; 0: go on;
 * -EPIPE, -ENOMEM.
 */
int http_exchange_write(struct http_exchange *x, const struct span *parts, unsigned count);

/* Bytes queued and not yet taken by the socket. */
size_t http_exchange_queued_bytes(const struct http_exchange *x);

/* Ends the response properly. The exchange is invalid afterwards. */
void http_exchange_end(struct http_exchange *x);

/* The last body bytes and the proper end in one write. The exchange is invalid afterwards. */
void http_exchange_end_with(struct http_exchange *x, const struct span *parts, unsigned count);

/* Cuts the connection without a proper end. The exchange is invalid afterwards; no on_gone. */
void http_exchange_abort(struct http_exchange *x);

/*
 * A whole response in one. `fields` may be NULL. The exchange is invalid afterwards.
 * For a HEAD request the body is left out and its length kept.
 */
void http_exchange_reply(struct http_exchange *x, int status, const struct http_fields *fields,
                         struct span body);

#endif
