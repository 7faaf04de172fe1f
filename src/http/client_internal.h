/* Shared by origin.c (addresses, pool) and call.c (one call on one connection). */
#ifndef FAILSOFT_HTTP_CLIENT_INTERNAL_H
#define FAILSOFT_HTTP_CLIENT_INTERNAL_H

#include "base/buf.h"
#include "base/list.h"
#include "http/client.h"

#include <llhttp.h>
#include <uv.h>

enum { HTTP_ORIGIN_MAX_ADDRESSES = 4, HTTP_CLIENT_READ_BYTES = 64 * 1024 };

enum call_state {
    CALL_STATE_RESOLVING, /* waits for the name's addresses */
    CALL_STATE_CONNECTING,
    CALL_STATE_ACTIVE, /* request being sent, response being read */
    CALL_STATE_IDLE,   /* in the pool: a connection without a call */
    CALL_STATE_CLOSED,
};

/* A connection to the origin, and the call that runs on it. */
struct http_call {
    union {
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } socket;
    uv_connect_t connect;
    uv_write_t write; /* at most one at a time */
    struct http_origin *origin;
    struct list_node node;
    const struct http_call_handler *handler;
    void *ctx;
    llhttp_t parser;
    struct http_fields fields; /* of the response head, freed once handed out */
    struct buf head;           /* of the request, until sent */
    const struct span *body;   /* borrowed */
    unsigned body_count;
    uint64_t deadline_ms; /* connecting or idle: when to give up; else 0 */
    unsigned char state;  /* enum call_state */
    unsigned char address_index;
    bool opened; /* the handle is initialised and must be closed with uv_close */
    bool writing, sent, reused, any_byte, head_complete, message_complete, interim;
    bool is_head_method, paused, keep_alive;
};

struct http_origin {
    uv_loop_t *loop;
    struct http_origin_options options;
    char *host;       /* for resolving; without brackets */
    char *host_field; /* for the Host field */
    char *prefix;
    char *socket_path; /* unix socket, or NULL */
    uint16_t port;
    struct sockaddr_storage addresses[HTTP_ORIGIN_MAX_ADDRESSES];
    unsigned address_count;
    bool is_numeric, resolving, destroyed;
    uv_getaddrinfo_t resolver;
    uv_timer_t sweep;
    struct list_node calls; /* every connection that is not idle */
    struct list_node idle;  /* oldest first */
    unsigned idle_count;
    unsigned handles_open; /* connections, the sweep timer, a running resolution */
    llhttp_settings_t settings;
    char *read_buffer; /* one for all: what is read is consumed before the next read */
};

/* call.c */
void call_init_settings(llhttp_settings_t *settings);
/* Opens the socket and starts connecting. 0 or a negative errno. */
int call_connect(struct http_call *c);
/* Reports the failure and closes. */
void call_fail(struct http_call *c, int error, const char *detail);
/* Closes without a word. */
void call_close(struct http_call *c);
/* Sends what belongs to the call over its open connection. */
void call_send(struct http_call *c);

/* origin.c */
void origin_start_sweep(struct http_origin *o);
void origin_connection_gone(struct http_origin *o, struct http_call *c);
/* Takes back a connection after a complete exchange. */
void origin_put_idle(struct http_origin *o, struct http_call *c);

#endif
