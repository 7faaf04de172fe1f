/*
 * Shared by the files of the HTTP server and nobody else: server.c (listening, time-outs, limits),
 * connection.c (reading requests), response.c (writing answers).
 */
#ifndef FAILSOFT_HTTP_SERVER_INTERNAL_H
#define FAILSOFT_HTTP_SERVER_INTERNAL_H

#include "base/buf.h"
#include "base/list.h"
#include "http/server.h"

#include <llhttp.h>
#include <uv.h>

enum connection_state {
    CONNECTION_STATE_IDLE,       /* between requests */
    CONNECTION_STATE_HEAD,       /* a part of a head is there */
    CONNECTION_STATE_BODY,       /* head complete, body is being read */
    CONNECTION_STATE_RESPONDING, /* the handler has the exchange */
    CONNECTION_STATE_LINGERING, /* answered, write side shut; what the client still sends is dropped
                                    so that a reset does not overtake the answer */
    CONNECTION_STATE_CLOSED,    /* uv_close called */
};

/* Bytes that a write(2) did not take; allocated only for clients that are slower than we are. */
struct response_flight {
    uv_write_t request;
    struct http_exchange *exchange;
    struct buf bytes;
};

/* One client connection and the exchange that runs on it. */
struct http_exchange {
    uv_tcp_t tcp;
    struct http_server *server;
    struct list_node node; /* in server->connections */
    void *user;
    llhttp_t parser;
    struct http_fields fields;
    struct buf target;
    struct buf body;
    struct buf pipelined; /* read ahead while a response runs */
    struct buf out;       /* response bytes not yet handed to the socket */
    struct response_flight *flight;
    uint64_t started_ms;
    uint64_t deadline_ms; /* when the sweeper acts; 0: never */
    size_t phase_bytes;   /* bytes read in the current head, or beside the body in a chunked body */
    unsigned char state;  /* enum connection_state */
    unsigned char protocol_bytes; /* of the protocol's name, checked so far */
    bool feeding;                 /* inside connection_feed: do not enter it again */
    bool read_stopped;
    bool keep_alive;   /* after this exchange */
    bool head_request; /* HEAD: no body in the answer */
    bool http_1_0;
    bool begun, chunked, ended, pause_asked, last_chunk_sent;
    bool message_complete, headers_complete;
    bool target_too_long; /* 414 instead of 431 */
    bool handler_has_it;  /* on_head was called and neither end nor on_gone happened */
    bool refused;         /* over the connection limit: not counted, answers 503 */
    int64_t body_left;    /* of a response with Content-Length */
};

struct http_server {
    uv_tcp_t tcp;
    uv_timer_t sweep;
    uv_loop_t *loop;
    struct http_server_limits limits;
    const struct http_server_handler *handler;
    void *ctx;
    struct list_node connections;
    unsigned connection_count; /* without refused ones */
    unsigned refused_open;
    uint64_t refused_total;
    llhttp_settings_t settings;
    char *read_buffer; /* one for all connections: what is read is consumed before the next read */
    char date[40];     /* cached Date field value */
    uint64_t date_at_ms;
    bool draining, closing;
    unsigned handles_open;
    void (*on_closed)(void *ctx);
    void *on_closed_ctx;
};

enum {
    HTTP_SERVER_READ_BYTES = 64 * 1024,
    HTTP_SERVER_PIPELINE_BYTES = 64 * 1024,
};

/* server.c */
uint64_t server_now_ms(const struct http_server *s);
void server_connection_gone(struct http_server *s, struct http_exchange *x);
const char *server_date(struct http_server *s);
/* Takes a connected stream socket over as if it had been accepted. 0 or a negative errno. */
int server_adopt(struct http_server *s, int fd);

/* connection.c */
void connection_init_settings(llhttp_settings_t *settings);
int connection_start(struct http_server *s, struct http_exchange *x);
/* Closes the socket; tells the handler if it has the exchange. */
void connection_close(struct http_exchange *x);
/* The response has been handed over completely: keep the connection, linger or close. */
void connection_response_ended(struct http_exchange *x);
/* Refuses the current request with a status of the server's own. */
void connection_refuse(struct http_exchange *x, int status, const char *message);

/* response.c */
const char *response_status_text(int status);
void response_reset(struct http_exchange *x);

#endif
