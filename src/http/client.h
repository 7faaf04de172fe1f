/*
 * HTTP/1.1 client: calls to one origin over TCP or a unix socket, with a small pool of idle
 * connections. One loop thread owns everything.
 *
 *   call:  connecting → sending → head → body → done
 *             └────────────┴───────┴──────┴──→ failed (handler->on_fail, once)
 *
 * A connection goes back to the pool only after a complete response to a complete request; after
 * any failure, cancel or close it is never used again.
 */
#ifndef FAILSOFT_HTTP_CLIENT_H
#define FAILSOFT_HTTP_CLIENT_H

#include "base/span.h"
#include "http/fields.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct http_origin;
struct http_call;

struct http_origin_options {
    unsigned max_idle;        /* idle connections kept; 0: no pool, `Connection: close` */
    uint64_t idle_timeout_ms; /* an idle connection is closed after this; keep it under 4 s */
    uint64_t connect_timeout_ms;
    size_t head_bytes; /* cap of a response head */
};

void http_origin_options_default(struct http_origin_options *ret_options);

/*
 * An origin from a base URL `http://host[:port][/prefix]`; a host name is resolved off the loop
 * at the first call and again when a connect fails. 0; -EINVAL; -EPROTONOSUPPORT (https); -ENOMEM.
 */
int http_origin_create_url(uv_loop_t *loop, const char *base_url,
                           const struct http_origin_options *options,
                           struct http_origin **ret_origin);

/* An origin behind a unix socket. 0; -ENAMETOOLONG; -ENOMEM. */
int http_origin_create_unix(uv_loop_t *loop, const char *socket_path,
                            const struct http_origin_options *options,
                            struct http_origin **ret_origin);

/* Closes idle connections, fails running calls with -ECANCELED (no callback), frees when closed. */
void http_origin_destroy(struct http_origin *o);

/* Closes the idle connections (a worker restarted: they are dead). */
void http_origin_close_idle(struct http_origin *o);

/*
 * The server of a numeric address listens at another port from now on: closes the idle connections;
 * running calls go on with theirs. What http_origin_host() gave before is invalid.
 * 0; -EINVAL (a host name, a unix socket, port 0); -ENOMEM, nothing changed.
 */
int http_origin_set_port(struct http_origin *o, uint16_t port);

/* Path prefix of the base URL without trailing slash, "" when none; value for the Host field. */
const char *http_origin_prefix(const struct http_origin *o);
const char *http_origin_host(const struct http_origin *o);

struct http_call_failure {
    int error;      /* negative errno; -ETIMEDOUT connect took too long; -EPROTO bad framing;
                               -ECONNRESET / -EPIPE / UV_EOF as UV_ECONNRESET etc. are errno too; a
                               clean FIN before the end of the message is -ECONNABORTED */
    bool connected; /* the connection had been made */
    bool reused;    /* it came from the pool */
    bool any_response_byte; /* something was received */
    bool head_complete;
    const char *detail; /* static text of a framing error, or NULL */
};

struct http_call_handler {
    /* Response head. `fields` valid during the call only. Interim (1xx) responses are swallowed. */
    void (*on_head)(struct http_call *c, int status, const struct http_fields *fields, void *ctx);
    /* Decoded body bytes, valid until on_read_end, on_done or on_fail of the same read returns. */
    void (*on_body)(struct http_call *c, struct span bytes, void *ctx);
    /* One read from the socket has been handed out completely: time to write what was gathered.
     * Not called for the read that completes the message: on_done follows at once. */
    void (*on_read_end)(struct http_call *c, void *ctx);
    /* The message is complete. The call is invalid afterwards. */
    void (*on_done)(struct http_call *c, void *ctx);
    /* The call failed. The call is invalid afterwards. */
    void (*on_fail)(struct http_call *c, const struct http_call_failure *failure, void *ctx);
};

enum { HTTP_CALL_MAX_BODY_PARTS = 40 };

struct http_call_request {
    struct span method;
    struct span target;               /* path and query, after the origin's prefix */
    const struct http_fields *fields; /* end-to-end fields; Host, Content-Length, Connection and
                                         Accept-Encoding are the client's own; copied */
    const struct span *body;          /* parts; borrowed until sent, done, failed or cancelled */
    unsigned body_count;
    bool has_body;         /* send Content-Length even when it is 0 */
    bool fresh_connection; /* do not use a pooled one */
    bool beside_v1; /* the origin's prefix counts without a `/v1` at its end: for pages that an
                       engine has beside its API (`/metrics`) */
};

/*
 * Starts a call. Callbacks never come from inside this function. May be cancelled at any time.
 * 0; -ENOMEM; -EMFILE, -ENFILE (no descriptor); -E2BIG (too many body parts).
 */
int http_call_start(struct http_origin *o, const struct http_call_request *request,
                    const struct http_call_handler *handler, void *ctx,
                    struct http_call **ret_call);

/*
 * Inside on_head: moves the response's fields to *ret, which the caller then owns (and frees with
 * http_fields_free). What was in *ret is overwritten.
 */
void http_call_take_fields(struct http_call *c, struct http_fields *ret);

/* Stops and resumes reading (backpressure). */
void http_call_pause(struct http_call *c);
void http_call_resume(struct http_call *c);

/* The request has been written completely; the body is not needed by this call any more. */
bool http_call_is_sent(const struct http_call *c);
bool http_call_is_connected(const struct http_call *c);

/* Closes the connection at once; no callback afterwards; the call is invalid. May be called from
 * inside a callback of the same call. */
void http_call_cancel(struct http_call *c);

#endif
