/*
 * One call on one connection: connect, send, parse the response, hand it out.
 *
 * Loop thread only. The request body is borrowed and written from where it lies. A response may
 * arrive before the request is sent (a refusal); the connection is then not used again. Callbacks
 * may cancel the call at any point: the memory lives until libuv has closed the socket, and the
 * state says that nobody listens any more.
 */
#include "http/client_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct http_call *of_parser(llhttp_t *p)
{
    return p->data;
}

static int on_field_name(llhttp_t *p, const char *at, size_t n)
{
    struct http_call *c = of_parser(p);
    if (c->head_complete)
        return 0; /* trailer */
    return http_fields_append_name(&c->fields, (struct span){at, n}) < 0 ? HPE_USER : 0;
}

static int on_field_value(llhttp_t *p, const char *at, size_t n)
{
    struct http_call *c = of_parser(p);
    if (c->head_complete)
        return 0;
    return http_fields_append_value(&c->fields, (struct span){at, n}) < 0 ? HPE_USER : 0;
}

static int on_field_end(llhttp_t *p)
{
    struct http_call *c = of_parser(p);
    if (c->head_complete)
        return 0;
    return http_fields_end(&c->fields) < 0 ? HPE_USER : 0;
}

static int on_headers_complete(llhttp_t *p)
{
    struct http_call *c = of_parser(p);
    if (p->status_code / 100 == 1) {
        c->interim = true;
        return p->status_code == 101 ? -1 : 0;
    }
    c->head_complete = true;
    c->handler->on_head(c, p->status_code, &c->fields, c->ctx);
    if (c->state == CALL_STATE_CLOSED)
        return -1;
    http_fields_free(&c->fields);
    return c->is_head_method ? 1 : 0;
}

static int on_body(llhttp_t *p, const char *at, size_t n)
{
    struct http_call *c = of_parser(p);
    c->handler->on_body(c, (struct span){at, n}, c->ctx);
    return c->state == CALL_STATE_CLOSED ? HPE_USER : 0;
}

static int on_message_complete(llhttp_t *p)
{
    struct http_call *c = of_parser(p);
    if (c->interim) {
        /* RFC 9110 §15.2: any number of interim responses may come before the final one. */
        c->interim = false;
        http_fields_clear(&c->fields);
        return 0;
    }
    c->message_complete = true;
    c->keep_alive = llhttp_should_keep_alive(p) != 0;
    return HPE_PAUSED;
}

void call_init_settings(llhttp_settings_t *settings)
{
    llhttp_settings_init(settings);
    settings->on_header_field = on_field_name;
    settings->on_header_value = on_field_value;
    settings->on_header_value_complete = on_field_end;
    settings->on_headers_complete = on_headers_complete;
    settings->on_body = on_body;
    settings->on_message_complete = on_message_complete;
}

static void call_on_closed(uv_handle_t *handle)
{
    struct http_call *c = handle->data;
    origin_connection_gone(c->origin, c);
}

void call_close(struct http_call *c)
{
    if (c->state == CALL_STATE_CLOSED)
        return;
    if (c->state == CALL_STATE_IDLE)
        c->origin->idle_count--;
    c->state = CALL_STATE_CLOSED;
    list_remove(&c->node);
    if (!c->opened)
        origin_connection_gone(c->origin, c);
    else if (!uv_is_closing((uv_handle_t *)&c->socket.stream))
        /* A socket that is being replaced by the next address frees the call when it is gone. */
        uv_close((uv_handle_t *)&c->socket.stream, call_on_closed);
}

void call_fail(struct http_call *c, int error, const char *detail)
{
    if (c->state == CALL_STATE_CLOSED)
        return;
    if (c->state == CALL_STATE_IDLE) {
        call_close(c);
        return;
    }
    struct http_call_failure failure = {
        .error = error,
        .connected = c->state == CALL_STATE_ACTIVE,
        .reused = c->reused,
        .any_response_byte = c->any_byte,
        .head_complete = c->head_complete,
        .detail = detail,
    };
    const struct http_call_handler *handler = c->handler;
    void *ctx = c->ctx;
    /* Closed first: whatever the handler does next, this connection is out of play. The memory
     * stays until the loop has closed it (an unopened one is freed: do not touch c after). */
    bool opened = c->opened;
    if (opened)
        call_close(c);
    handler->on_fail(c, &failure, ctx);
    if (!opened)
        call_close(c);
}

static void call_finish(struct http_call *c)
{
    const struct http_call_handler *handler = c->handler;
    void *ctx = c->ctx;
    bool keep = c->keep_alive && c->sent && !c->writing && c->origin->options.max_idle > 0;
    if (keep) {
        buf_free(&c->head);
        llhttp_reset(&c->parser);
        c->head_complete = false;
        c->message_complete = false;
        c->any_byte = false;
        c->sent = false;
        c->body = NULL;
        c->body_count = 0;
        http_fields_init(&c->fields, c->origin->options.head_bytes);
        if (c->paused)
            http_call_resume(c);
        origin_put_idle(c->origin, c);
    } else {
        call_close(c);
    }
    handler->on_done(c, ctx);
}

/* Hands bytes to the parser and acts on where it stopped. */
static void call_feed(struct http_call *c, const char *data, size_t len)
{
    c->any_byte = true;
    llhttp_errno_t error = llhttp_execute(&c->parser, data, len);
    if (c->state == CALL_STATE_CLOSED)
        return;
    if (c->message_complete) {
        size_t used = (size_t)(llhttp_get_error_pos(&c->parser) - data);
        if (used != len)
            c->keep_alive = false; /* bytes after the message: nothing to trust */
        call_finish(c);
        return;
    }
    if (error != HPE_OK) {
        if (c->handler->on_read_end)
            c->handler->on_read_end(c, c->ctx);
        if (error == HPE_USER)
            call_fail(c, -EPROTO, "the response head is too large");
        else
            call_fail(c, -EPROTO, llhttp_get_error_reason(&c->parser));
        return;
    }
    if (c->handler->on_read_end)
        c->handler->on_read_end(c, c->ctx);
}

/* The other side closed. Without length or chunks that is how the message ends. */
static void call_on_eof(struct http_call *c)
{
    if (c->state == CALL_STATE_ACTIVE && c->head_complete && llhttp_message_needs_eof(&c->parser)) {
        /* Runs on_message_complete, which pauses: the flag tells, not the result. */
        (void)llhttp_finish(&c->parser);
        if (c->message_complete) {
            c->keep_alive = false;
            call_finish(c);
            return;
        }
    }
    call_fail(c, -ECONNABORTED, NULL);
}

static void call_on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *ret)
{
    (void)suggested;
    struct http_call *c = handle->data;
    *ret = uv_buf_init(c->origin->read_buffer, HTTP_CLIENT_READ_BYTES);
}

static void call_on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buffer)
{
    struct http_call *c = stream->data;
    if (n == 0)
        return;
    if (c->state == CALL_STATE_IDLE) {
        /* Closed by the worker, or bytes that nobody asked for. */
        call_close(c);
        return;
    }
    if (n == UV_EOF)
        call_on_eof(c);
    else if (n < 0)
        call_fail(c, (int)n, NULL);
    else
        call_feed(c, buffer->base, (size_t)n);
}

static void call_on_written(uv_write_t *request, int status)
{
    struct http_call *c = request->data;
    c->writing = false;
    if (c->state == CALL_STATE_CLOSED)
        return;
    if (status < 0) {
        /* A refusal may be waiting to be read: reading decides, unless it has nothing to say. */
        if (!uv_is_readable(&c->socket.stream) || status != UV_EPIPE)
            call_fail(c, status, NULL);
        return;
    }
    c->sent = true;
    buf_free(&c->head);
}

/* Fills parts with what is left to send, from `skip` bytes after the start of the head. */
static unsigned call_gather(struct http_call *c, size_t skip, uv_buf_t *parts, unsigned max,
                            size_t *ret_total)
{
    unsigned n = 0;
    size_t total = 0;
    if (skip < c->head.len) {
        parts[n++] = uv_buf_init(c->head.data + skip, (unsigned)(c->head.len - skip));
        total += c->head.len - skip;
        skip = 0;
    } else {
        skip -= c->head.len;
    }
    for (unsigned i = 0; i < c->body_count && n < max; i++) {
        size_t length = c->body[i].len;
        size_t cut = skip < length ? skip : length;
        skip -= cut;
        if (length == cut)
            continue;
        parts[n++] = uv_buf_init((char *)c->body[i].ptr + cut, (unsigned)(length - cut));
        total += length - cut;
    }
    *ret_total = total;
    return n;
}

void call_send(struct http_call *c)
{
    uv_buf_t parts[HTTP_CALL_MAX_BODY_PARTS + 1];
    size_t total;
    unsigned n = call_gather(c, 0, parts, HTTP_CALL_MAX_BODY_PARTS + 1, &total);
    int written = uv_try_write(&c->socket.stream, parts, n);
    size_t done = written > 0 ? (size_t)written : 0;
    if (done == total) {
        c->sent = true;
        buf_free(&c->head);
        return;
    }
    /* An error shows again in uv_write and is reported from the loop, never from inside here. */
    n = call_gather(c, done, parts, HTTP_CALL_MAX_BODY_PARTS + 1, &total);
    c->write.data = c;
    c->writing = true;
    if (uv_write(&c->write, &c->socket.stream, parts, n, call_on_written) < 0)
        c->writing = false; /* the read side will report the dead socket */
}

static void call_on_connected(uv_connect_t *request, int status);

static int call_open(struct http_call *c)
{
    struct http_origin *o = c->origin;
    int r = o->socket_path ? uv_pipe_init(o->loop, &c->socket.pipe, 0)
                           : uv_tcp_init(o->loop, &c->socket.tcp);
    if (r < 0)
        return r;
    c->opened = true;
    c->socket.stream.data = c;
    c->connect.data = c;
    c->state = CALL_STATE_CONNECTING;
    if (o->socket_path) {
        uv_pipe_connect(&c->connect, &c->socket.pipe, o->socket_path, call_on_connected);
        return 0;
    }
    const struct sockaddr *address = (const struct sockaddr *)&o->addresses[c->address_index];
    return uv_tcp_connect(&c->connect, &c->socket.tcp, address, call_on_connected);
}

int call_connect(struct http_call *c)
{
    int r = call_open(c);
    if ((r == UV_EMFILE || r == UV_ENFILE) && c->origin->idle_count > 0) {
        /* Idle connections must never stand in the way of a request. */
        http_origin_close_idle(c->origin);
        const struct sockaddr *address =
            (const struct sockaddr *)&c->origin->addresses[c->address_index];
        r = c->origin->socket_path
                ? r
                : uv_tcp_connect(&c->connect, &c->socket.tcp, address, call_on_connected);
    }
    return r;
}

static void call_on_socket_replaced(uv_handle_t *handle)
{
    struct http_call *c = handle->data;
    if (c->state == CALL_STATE_CLOSED) {
        origin_connection_gone(c->origin, c);
        return;
    }
    c->opened = false;
    int r = call_connect(c);
    if (r < 0)
        call_fail(c, r, NULL);
}

static void call_on_connected(uv_connect_t *request, int status)
{
    struct http_call *c = request->data;
    if (c->state == CALL_STATE_CLOSED || status == UV_ECANCELED)
        return;
    struct http_origin *o = c->origin;
    if (status < 0) {
        if (!o->socket_path && c->address_index + 1U < o->address_count) {
            c->address_index++;
            uv_close((uv_handle_t *)&c->socket.stream, call_on_socket_replaced);
            return;
        }
        if (!o->is_numeric)
            o->address_count = 0; /* resolve again at the next call */
        call_fail(c, status, NULL);
        return;
    }
    if (!o->socket_path)
        uv_tcp_nodelay(&c->socket.tcp, 1);
    c->state = CALL_STATE_ACTIVE;
    c->deadline_ms = 0;
    llhttp_init(&c->parser, HTTP_RESPONSE, &o->settings);
    c->parser.data = c;
    int r = uv_read_start(&c->socket.stream, call_on_alloc, call_on_read);
    if (r < 0) {
        call_fail(c, r, NULL);
        return;
    }
    if (c->paused)
        uv_read_stop(&c->socket.stream);
    call_send(c);
}

void http_call_take_fields(struct http_call *c, struct http_fields *ret)
{
    *ret = c->fields;
    http_fields_init(&c->fields, c->origin->options.head_bytes);
}

void http_call_pause(struct http_call *c)
{
    if (c->paused)
        return;
    c->paused = true;
    if (c->state == CALL_STATE_ACTIVE)
        uv_read_stop(&c->socket.stream);
}

void http_call_resume(struct http_call *c)
{
    if (!c->paused)
        return;
    c->paused = false;
    if (c->state == CALL_STATE_ACTIVE)
        (void)uv_read_start(&c->socket.stream, call_on_alloc, call_on_read);
}

bool http_call_is_sent(const struct http_call *c)
{
    return c->sent;
}

bool http_call_is_connected(const struct http_call *c)
{
    return c->state == CALL_STATE_ACTIVE;
}

void http_call_cancel(struct http_call *c)
{
    call_close(c);
}
