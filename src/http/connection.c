/*
 * The reading side of a client connection: feeds llhttp, enforces limits and strict framing, and
 * hands whole requests to the handler.
 *
 *        ┌────────────────────────────────────────────────┐ keep-alive
 *        ▼                                                │
 *      IDLE ──► HEAD ──► BODY ──► RESPONDING ─────────────┤
 *                 │        │           │                  │ close, body unread
 *                 └────────┴───────────┴──► LINGERING ──► CLOSED
 *                                           (or straight to CLOSED)
 *
 * Loop thread only. The parser is paused at the end of a head and at the end of a message, so that
 * the handler is never called from inside it and may answer, close or do nothing at will.
 * While a response runs, reading goes on: that is how a client that leaves is noticed at once.
 */
#include "http/request_rules.h"
#include "http/server_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum {
    CONNECTION_LINGER_MS = 5000,
    CONNECTION_LINGER_BYTES = 64 * 1024 * 1024,
    /* Chunk heads and extensions allowed beside the body: this much and 16 times the body. */
    CONNECTION_CHUNK_OVERHEAD_BYTES = 64 * 1024,
};

static const char connection_continue[] = "HTTP/1.1 100 Continue\r\n\r\n";

static struct http_exchange *of_parser(llhttp_t *p)
{
    return p->data;
}

static int on_url(llhttp_t *p, const char *at, size_t n)
{
    struct http_exchange *x = of_parser(p);
    x->target_too_long = buf_append(&x->target, at, n) < 0;
    return x->target_too_long ? HPE_USER : 0;
}

static int on_field_name(llhttp_t *p, const char *at, size_t n)
{
    struct http_exchange *x = of_parser(p);
    /* Trailer fields are dropped (RFC 9110 §6.5.1): nothing here merges them. */
    if (x->headers_complete)
        return 0;
    return http_fields_append_name(&x->fields, (struct span){at, n}) < 0 ? HPE_USER : 0;
}

static int on_field_value(llhttp_t *p, const char *at, size_t n)
{
    struct http_exchange *x = of_parser(p);
    if (x->headers_complete)
        return 0;
    return http_fields_append_value(&x->fields, (struct span){at, n}) < 0 ? HPE_USER : 0;
}

static int on_field_end(llhttp_t *p)
{
    struct http_exchange *x = of_parser(p);
    if (x->headers_complete)
        return 0;
    return http_fields_end(&x->fields) < 0 ? HPE_USER : 0;
}

static int on_headers_complete(llhttp_t *p)
{
    of_parser(p)->headers_complete = true;
    return HPE_PAUSED;
}

static int on_body(llhttp_t *p, const char *at, size_t n)
{
    struct http_exchange *x = of_parser(p);
    return buf_append(&x->body, at, n) < 0 ? HPE_USER : 0;
}

/* llhttp speaks RTSP and ICE as well. */
static int on_protocol(llhttp_t *p, const char *at, size_t n)
{
    struct http_exchange *x = of_parser(p);
    for (size_t i = 0; i < n; i++, x->protocol_bytes++) {
        if (x->protocol_bytes >= 4 || at[i] != "HTTP"[x->protocol_bytes]) {
            llhttp_set_error_reason(p, "only HTTP is spoken here");
            return HPE_INVALID_CONSTANT;
        }
    }
    return 0;
}

/* A chunk that announces more than may come is refused before it comes. */
static int on_chunk_header(llhttp_t *p)
{
    struct http_exchange *x = of_parser(p);
    return p->content_length > x->body.max - x->body.len ? HPE_USER : 0;
}

static int on_message_complete(llhttp_t *p)
{
    of_parser(p)->message_complete = true;
    return HPE_PAUSED;
}

void connection_init_settings(llhttp_settings_t *settings)
{
    llhttp_settings_init(settings);
    settings->on_protocol = on_protocol;
    settings->on_url = on_url;
    settings->on_header_field = on_field_name;
    settings->on_header_value = on_field_value;
    settings->on_header_value_complete = on_field_end;
    settings->on_headers_complete = on_headers_complete;
    settings->on_chunk_header = on_chunk_header;
    settings->on_body = on_body;
    settings->on_message_complete = on_message_complete;
}

static void connection_free_request(struct http_exchange *x)
{
    http_fields_free(&x->fields);
    buf_free(&x->target);
    buf_free(&x->body);
}

static void connection_on_closed(uv_handle_t *handle)
{
    struct http_exchange *x = handle->data;
    connection_free_request(x);
    buf_free(&x->pipelined);
    buf_free(&x->out);
    server_connection_gone(x->server, x);
}

void connection_close(struct http_exchange *x)
{
    if (x->state == CONNECTION_STATE_CLOSED)
        return;
    x->state = CONNECTION_STATE_CLOSED;
    if (x->handler_has_it) {
        x->handler_has_it = false;
        x->server->handler->on_gone(x, x->server->ctx);
    }
    uv_close((uv_handle_t *)&x->tcp, connection_on_closed);
}

/* Answered, but the client may still be sending: shut our side and drop what comes. */
static void connection_linger(struct http_exchange *x)
{
    int fd;
    if (uv_fileno((uv_handle_t *)&x->tcp, &fd) < 0 || shutdown(fd, SHUT_WR) < 0) {
        connection_close(x);
        return;
    }
    x->state = CONNECTION_STATE_LINGERING;
    x->phase_bytes = 0;
    x->deadline_ms = server_now_ms(x->server) + CONNECTION_LINGER_MS;
    connection_free_request(x);
    buf_free(&x->pipelined);
}

static void connection_reset_for_next(struct http_exchange *x)
{
    const struct http_server_limits *limits = &x->server->limits;
    connection_free_request(x);
    http_fields_init(&x->fields, limits->head_bytes);
    buf_init(&x->target, limits->head_bytes);
    buf_init(&x->body, limits->body_bytes);
    llhttp_reset(&x->parser);
    response_reset(x);
    x->user = NULL;
    x->target_too_long = false;
    x->headers_complete = false;
    x->message_complete = false;
    x->head_request = false;
    x->http_1_0 = false;
    x->keep_alive = false;
    x->phase_bytes = 0;
    x->protocol_bytes = 0;
    x->state = CONNECTION_STATE_IDLE;
    x->deadline_ms = server_now_ms(x->server) + limits->idle_timeout_ms;
}

void connection_refuse(struct http_exchange *x, int status, const char *message)
{
    struct http_server *s = x->server;
    struct buf body;
    buf_init(&body, 4096);
    struct http_fields fields;
    http_fields_init(&fields, 1024);
    if (s->handler->on_refused) {
        struct span path = buf_span(&x->target);
        s->handler->on_refused(status, message, path, &body, s->ctx);
        (void)http_fields_add(&fields, SPAN_LIT("Content-Type"), SPAN_LIT("application/json"));
    } else {
        (void)buf_printf(&body, "%s\n", message);
        (void)http_fields_add(&fields, SPAN_LIT("Content-Type"), SPAN_LIT("text/plain"));
    }
    if (status == 503)
        (void)http_fields_add(&fields, SPAN_LIT("Retry-After"), SPAN_LIT("1"));
    x->keep_alive = false;
    x->state = CONNECTION_STATE_RESPONDING;
    if (x->handler_has_it) {
        /* The handler saw the head; from its side the client is gone. */
        x->handler_has_it = false;
        s->handler->on_gone(x, s->ctx);
    }
    http_exchange_reply(x, status, &fields, buf_span(&body));
    http_fields_free(&fields);
    buf_free(&body);
}

static void connection_refuse_parse(struct http_exchange *x, llhttp_errno_t error)
{
    if (error != HPE_USER && error != HPE_CB_CHUNK_HEADER) {
        const char *reason = llhttp_get_error_reason(&x->parser);
        /* The parser says "invalid version" for a line ending that it does not like, too. */
        bool version = error == HPE_INVALID_VERSION && reason && strstr(reason, "version") &&
                       !strstr(reason, "Expected");
        int status = version ? 505 : 400;
        connection_refuse(x, status, reason && reason[0] ? reason : "malformed HTTP request");
        return;
    }
    if (!x->headers_complete) {
        connection_refuse(x, x->target_too_long ? 414 : 431, "the request head is too large");
        return;
    }
    connection_refuse(x, 413, "the request body is larger than the limit");
}

/* The head is complete: judge it, ask the handler, and go on to the body. */
static void connection_head_complete(struct http_exchange *x)
{
    struct http_server *s = x->server;
    x->http_1_0 = x->parser.http_major == 1 && x->parser.http_minor == 0;
    x->head_request = x->parser.method == HTTP_HEAD;
    if (x->parser.http_major != 1 || x->parser.http_minor > 1) {
        connection_refuse(x, 505, "only HTTP/1.0 and HTTP/1.1 are spoken here");
        return;
    }
    struct http_request_facts facts = {
        .http_1_0 = x->http_1_0,
        .connect = x->parser.method == HTTP_CONNECT,
        .target = buf_span(&x->target),
        .fields = &x->fields,
    };
    struct http_request_verdict v = http_request_check(&facts);
    if (v.status != 0) {
        connection_refuse(x, v.status, v.message);
        return;
    }
    if (v.has_length && v.content_length > s->limits.body_bytes) {
        connection_refuse(x, 413, "the request body is larger than the limit");
        return;
    }
    /* An absolute form is cut in place, so that everybody sees the path only. */
    if (v.target.ptr != x->target.data) {
        if (v.target.ptr < x->target.data || v.target.ptr >= x->target.data + x->target.len) {
            x->target.len = 0;
            (void)buf_append_span(&x->target, v.target);
        } else {
            buf_consume(&x->target, (size_t)(v.target.ptr - x->target.data));
        }
    }
    x->state = CONNECTION_STATE_BODY;
    x->phase_bytes = 0;
    x->deadline_ms = server_now_ms(s) + s->limits.body_timeout_ms;
    x->handler_has_it = true;
    s->handler->on_head(x, s->ctx);
    if (x->state != CONNECTION_STATE_BODY)
        return;
    if (v.has_length && buf_reserve_exact(&x->body, (size_t)v.content_length) < 0) {
        connection_refuse(x, 503, "no memory for the request body");
        return;
    }
    if (v.expects_continue) {
        uv_buf_t interim =
            uv_buf_init((char *)connection_continue, sizeof(connection_continue) - 1);
        (void)uv_try_write((uv_stream_t *)&x->tcp, &interim, 1);
    }
}

static void connection_message_complete(struct http_exchange *x)
{
    struct http_server *s = x->server;
    x->keep_alive = llhttp_should_keep_alive(&x->parser) && !s->draining && !x->refused;
    x->state = CONNECTION_STATE_RESPONDING;
    x->deadline_ms = 0;
    s->handler->on_request(x, s->ctx);
}

/* False when the bytes beside the payload are more than any honest client sends. */
static bool connection_count_bytes(struct http_exchange *x, size_t used)
{
    x->phase_bytes += used;
    if (x->state == CONNECTION_STATE_HEAD)
        return x->phase_bytes <= x->server->limits.head_bytes + 1024;
    return x->phase_bytes / 16 <= x->body.len + CONNECTION_CHUNK_OVERHEAD_BYTES / 16;
}

static void connection_feed(struct http_exchange *x, const char *data, size_t len)
{
    x->feeding = true;
    bool resumed = false;
    while (x->state <= CONNECTION_STATE_BODY && (len > 0 || resumed)) {
        if (x->state == CONNECTION_STATE_IDLE) {
            x->state = CONNECTION_STATE_HEAD;
            x->started_ms = server_now_ms(x->server);
            x->deadline_ms = x->started_ms + x->server->limits.head_timeout_ms;
        }
        resumed = false;
        llhttp_errno_t error = llhttp_execute(&x->parser, data, len);
        size_t used = len;
        if (error == HPE_PAUSED || error == HPE_PAUSED_UPGRADE) {
            used = (size_t)(llhttp_get_error_pos(&x->parser) - data);
            if (error == HPE_PAUSED_UPGRADE)
                /* An upgrade that is offered is ignored (RFC 9110 §7.8). */
                llhttp_resume_after_upgrade(&x->parser);
            else
                llhttp_resume(&x->parser);
        } else if (error != HPE_OK) {
            connection_refuse_parse(x, error);
            break;
        }
        data += used;
        len -= used;
        if (!connection_count_bytes(x, used)) {
            if (x->state == CONNECTION_STATE_HEAD)
                connection_refuse(x, 431, "the request head is too large");
            else
                connection_refuse(x, 400, "too many bytes of framing");
            break;
        }
        if (x->state == CONNECTION_STATE_HEAD && x->headers_complete) {
            connection_head_complete(x);
            resumed = true;
        }
        if (x->state == CONNECTION_STATE_BODY && x->message_complete)
            connection_message_complete(x);
    }
    if (len > 0 && x->state == CONNECTION_STATE_RESPONDING && x->message_complete &&
        buf_append(&x->pipelined, data, len) < 0)
        x->keep_alive = false;
    x->feeding = false;
}

void connection_response_ended(struct http_exchange *x)
{
    if (x->state == CONNECTION_STATE_CLOSED)
        return;
    bool unread = !x->message_complete || x->pipelined.len > 0;
    if (!x->keep_alive || !x->message_complete || x->server->draining) {
        if (unread || x->feeding)
            connection_linger(x);
        else
            connection_close(x);
        return;
    }
    connection_reset_for_next(x);
    if (x->feeding)
        return;
    if (x->pipelined.len > 0) {
        struct buf ahead = x->pipelined;
        buf_init(&x->pipelined, HTTP_SERVER_PIPELINE_BYTES);
        connection_feed(x, ahead.data, ahead.len);
        buf_free(&ahead);
    }
}

static void connection_on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *ret)
{
    (void)suggested;
    struct http_exchange *x = handle->data;
    *ret = uv_buf_init(x->server->read_buffer, HTTP_SERVER_READ_BYTES);
}

static void connection_on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buffer)
{
    struct http_exchange *x = stream->data;
    if (n == 0)
        return;
    if (n < 0) {
        /* A response that is complete may still be on its way to a client that half-closed. */
        if (x->state == CONNECTION_STATE_RESPONDING && x->ended && n == UV_EOF) {
            uv_read_stop(stream);
            x->keep_alive = false;
            return;
        }
        connection_close(x);
        return;
    }
    switch ((enum connection_state)x->state) {
    case CONNECTION_STATE_IDLE:
    case CONNECTION_STATE_HEAD: connection_feed(x, buffer->base, (size_t)n); break;
    case CONNECTION_STATE_BODY:
        x->deadline_ms = server_now_ms(x->server) + x->server->limits.body_timeout_ms;
        connection_feed(x, buffer->base, (size_t)n);
        break;
    case CONNECTION_STATE_RESPONDING:
        if (x->keep_alive && buf_append(&x->pipelined, buffer->base, (size_t)n) < 0)
            x->keep_alive = false;
        break;
    case CONNECTION_STATE_LINGERING:
        x->phase_bytes += (size_t)n;
        if (x->phase_bytes > CONNECTION_LINGER_BYTES)
            connection_close(x);
        break;
    case CONNECTION_STATE_CLOSED: break;
    }
}

int connection_start(struct http_server *s, struct http_exchange *x)
{
    llhttp_init(&x->parser, HTTP_REQUEST, &s->settings);
    x->parser.data = x;
    buf_init(&x->pipelined, HTTP_SERVER_PIPELINE_BYTES);
    buf_init(&x->out, SIZE_MAX / 2);
    connection_reset_for_next(x);
    int r = uv_read_start((uv_stream_t *)&x->tcp, connection_on_alloc, connection_on_read);
    if (r == 0 && x->refused)
        connection_refuse(x, 503, "too many connections");
    return r;
}
