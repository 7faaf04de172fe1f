/*
 * The writing side of a client connection: heads, chunked framing, and bytes the socket did not
 * take at once.
 *
 * Loop thread only. Whatever is written goes to the socket in one writev(2) with the framing around
 * it; only what the socket refuses is copied. Bytes in flight stay where they are until libuv has
 * written them, new ones gather in `out` meanwhile, so at most two buffers exist per slow client
 * and none for a fast one.
 */
#include "http/head.h"
#include "http/server_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { RESPONSE_MAX_PARTS = 64, RESPONSE_HEAD_BYTES = 768 };

const char *response_status_text(int status)
{
    static const struct {
        int status;
        const char *text;
    } table[] = {
        {200, "OK"},
        {201, "Created"},
        {202, "Accepted"},
        {204, "No Content"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {408, "Request Timeout"},
        {409, "Conflict"},
        {411, "Length Required"},
        {413, "Content Too Large"},
        {414, "URI Too Long"},
        {415, "Unsupported Media Type"},
        {417, "Expectation Failed"},
        {422, "Unprocessable Content"},
        {429, "Too Many Requests"},
        {499, "Client Closed Request"},
        {431, "Request Header Fields Too Large"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {502, "Bad Gateway"},
        {503, "Service Unavailable"},
        {504, "Gateway Timeout"},
        {505, "HTTP Version Not Supported"},
    };
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        if (table[i].status == status)
            return table[i].text;
    return "Status";
}

void response_reset(struct http_exchange *x)
{
    buf_free(&x->out);
    x->begun = false;
    x->chunked = false;
    x->ended = false;
    x->pause_asked = false;
    x->last_chunk_sent = false;
    x->body_left = 0;
}

static size_t response_in_flight(const struct http_exchange *x)
{
    return x->flight ? x->flight->bytes.len : 0;
}

size_t http_exchange_queued_bytes(const struct http_exchange *x)
{
    return response_in_flight(x) + x->out.len;
}

static void response_on_written(uv_write_t *request, int status);

/* Hands what is gathered to libuv, which waits for the socket. 0; -ENOMEM; -EPIPE. */
static int response_start_flight(struct http_exchange *x)
{
    struct response_flight *flight = calloc(1, sizeof(*flight));
    if (!flight)
        return -ENOMEM;
    flight->exchange = x;
    flight->bytes = x->out;
    buf_init(&x->out, x->out.max);
    uv_buf_t whole = uv_buf_init(flight->bytes.data, (unsigned)flight->bytes.len);
    if (uv_write(&flight->request, (uv_stream_t *)&x->tcp, &whole, 1, response_on_written) < 0) {
        buf_free(&flight->bytes);
        free(flight);
        return -EPIPE;
    }
    x->flight = flight;
    x->deadline_ms = server_now_ms(x->server) + x->server->limits.write_timeout_ms;
    return 0;
}

static void response_on_written(uv_write_t *request, int status)
{
    struct response_flight *flight = (struct response_flight *)(void *)request;
    struct http_exchange *x = flight->exchange;
    x->flight = NULL;
    buf_free(&flight->bytes);
    free(flight);
    if (x->state == CONNECTION_STATE_CLOSED)
        return;
    if (status < 0) {
        connection_close(x);
        return;
    }
    if (x->state == CONNECTION_STATE_RESPONDING)
        x->deadline_ms = 0;
    if (x->out.len > 0 && response_start_flight(x) < 0) {
        connection_close(x);
        return;
    }
    if (x->ended) {
        if (!x->flight)
            connection_response_ended(x);
        return;
    }
    if (x->pause_asked && http_exchange_queued_bytes(x) < x->server->limits.write_queue_bytes / 2) {
        x->pause_asked = false;
        x->server->handler->on_drained(x, x->server->ctx);
    }
}

/* Appends the parts to `out`, leaving out their first `skip` bytes. */
static int response_keep(struct http_exchange *x, const uv_buf_t *parts, unsigned count,
                         size_t skip)
{
    for (unsigned i = 0; i < count; i++) {
        size_t n = parts[i].len;
        size_t cut = skip < n ? skip : n;
        skip -= cut;
        int r = buf_append(&x->out, parts[i].base + cut, n - cut);
        if (r < 0)
            return r;
    }
    return 0;
}

/* Sends `out` and the parts, in this order; keeps what the socket does not take. */
static int response_send(struct http_exchange *x, uv_buf_t *parts, unsigned count)
{
    if (x->flight)
        return response_keep(x, parts, count, 0);
    uv_buf_t all[RESPONSE_MAX_PARTS + 4];
    unsigned n = 0;
    size_t head = x->out.len;
    if (head > 0)
        all[n++] = uv_buf_init(x->out.data, (unsigned)head);
    size_t total = head;
    for (unsigned i = 0; i < count; i++) {
        all[n++] = parts[i];
        total += parts[i].len;
    }
    if (total == 0)
        return 0;
    int written = uv_try_write((uv_stream_t *)&x->tcp, all, n);
    if (written < 0 && written != UV_EAGAIN)
        return -EPIPE;
    size_t done = written > 0 ? (size_t)written : 0;
    if (done == total) {
        buf_free(&x->out);
        return 0;
    }
    size_t from_out = done < head ? done : head;
    buf_consume(&x->out, from_out);
    int r = response_keep(x, parts, count, done - from_out);
    return r < 0 ? r : response_start_flight(x);
}

bool http_exchange_has_begun(const struct http_exchange *x)
{
    return x->begun;
}

int http_exchange_begin(struct http_exchange *x, int status, const struct http_fields *fields,
                        int64_t content_length)
{
    struct buf *out = &x->out;
    char code[HTTP_HEAD_DIGITS];
    size_t digits = http_head_digits(code + sizeof(code), (uint64_t)status, 10);
    const struct span line[] = {SPAN_LIT("HTTP/1.1 "),
                                {code + sizeof(code) - digits, digits},
                                SPAN_LIT(" "),
                                span_from_str(response_status_text(status)),
                                SPAN_LIT("\r\n")};
    /* Room for the whole head at once, in the usual case. */
    int r = buf_reserve(out, RESPONSE_HEAD_BYTES);
    if (r == 0)
        r = http_head_append(out, line, sizeof(line) / sizeof(line[0]));
    if (r == 0 && fields)
        r = http_head_append_fields(out, fields);
    bool bodiless = status == 204 || status == 304;
    if (r == 0 && !bodiless && content_length >= 0)
        r = http_head_append_number(out, SPAN_LIT("Content-Length"), (uint64_t)content_length);
    x->chunked = content_length < 0 && !x->http_1_0 && !bodiless;
    if (content_length < 0 && x->http_1_0)
        x->keep_alive = false;
    if (r == 0 && x->chunked)
        r = buf_append_str(out, "Transfer-Encoding: chunked\r\n");
    if (r == 0 && (!x->keep_alive || x->http_1_0))
        r = buf_append_str(out,
                           x->keep_alive ? "Connection: keep-alive\r\n" : "Connection: close\r\n");
    const struct span date[] = {SPAN_LIT("Date: "), span_from_str(server_date(x->server)),
                                SPAN_LIT("\r\n\r\n")};
    if (r == 0)
        r = http_head_append(out, date, sizeof(date) / sizeof(date[0]));
    if (r < 0)
        return r;
    x->body_left = content_length;
    x->begun = true;
    return 0;
}

/* Writes the parts as chunks; with `last` the end of a chunked body rides along. */
static int response_write_parts(struct http_exchange *x, const struct span *parts, unsigned count,
                                bool last)
{
    if (x->state == CONNECTION_STATE_CLOSED)
        return -EPIPE;
    char size[HTTP_HEAD_DIGITS + 2];
    uv_buf_t framed[RESPONSE_MAX_PARTS + 2];
    while (count > 0) {
        unsigned batch = count < RESPONSE_MAX_PARTS ? count : RESPONSE_MAX_PARTS;
        unsigned n = x->chunked ? 1 : 0;
        size_t total = 0;
        for (unsigned i = 0; i < batch; i++) {
            if (parts[i].len == 0)
                continue;
            framed[n++] = uv_buf_init((char *)parts[i].ptr, (unsigned)parts[i].len);
            total += parts[i].len;
        }
        parts += batch;
        count -= batch;
        /* An empty chunk would end the message. */
        if (total == 0 || x->head_request)
            continue;
        if (x->chunked) {
            bool ends = last && count == 0;
            size_t digits = http_head_digits(size + HTTP_HEAD_DIGITS, total, 16);
            memcpy(size + HTTP_HEAD_DIGITS, "\r\n", 2);
            framed[0] = uv_buf_init(size + HTTP_HEAD_DIGITS - digits, (unsigned)digits + 2);
            framed[n++] =
                ends ? uv_buf_init((char *)"\r\n0\r\n\r\n", 7) : uv_buf_init((char *)"\r\n", 2);
            x->last_chunk_sent = ends;
        }
        if (x->body_left > 0)
            x->body_left -= (int64_t)total;
        int r = response_send(x, framed, n);
        if (r < 0)
            return r;
    }
    return 0;
}

int http_exchange_write(struct http_exchange *x, const struct span *parts, unsigned count)
{
    int r = response_write_parts(x, parts, count, false);
    if (r < 0)
        return r;
    if (http_exchange_queued_bytes(x) > x->server->limits.write_queue_bytes) {
        x->pause_asked = true;
        return 1;
    }
    return 0;
}

static void response_finish(struct http_exchange *x)
{
    x->ended = true;
    x->handler_has_it = false;
    uv_buf_t last = uv_buf_init((char *)"0\r\n\r\n", 5);
    bool send_last = x->chunked && !x->head_request && !x->last_chunk_sent;
    if (response_send(x, &last, send_last ? 1 : 0) < 0) {
        connection_close(x);
        return;
    }
    if (!x->flight)
        connection_response_ended(x);
}

void http_exchange_end(struct http_exchange *x)
{
    /* Fewer bytes than announced: only a cut tells the client so. */
    if (x->body_left > 0 && !x->head_request) {
        http_exchange_abort(x);
        return;
    }
    response_finish(x);
}

void http_exchange_end_with(struct http_exchange *x, const struct span *parts, unsigned count)
{
    if (response_write_parts(x, parts, count, true) < 0)
        http_exchange_abort(x);
    else
        http_exchange_end(x);
}

void http_exchange_abort(struct http_exchange *x)
{
    x->handler_has_it = false;
    connection_close(x);
}

void http_exchange_reply(struct http_exchange *x, int status, const struct http_fields *fields,
                         struct span body)
{
    if (x->state == CONNECTION_STATE_CLOSED)
        return;
    if (x->state != CONNECTION_STATE_RESPONDING)
        /* Answered before the body was read: it never will be. */
        x->keep_alive = false;
    x->state = CONNECTION_STATE_RESPONDING;
    x->deadline_ms = 0;
    if (http_exchange_begin(x, status, fields, (int64_t)body.len) < 0 ||
        http_exchange_write(x, &body, 1) < 0) {
        http_exchange_abort(x);
        return;
    }
    x->body_left = 0;
    response_finish(x);
}

struct span http_exchange_method(const struct http_exchange *x)
{
    return span_from_str(llhttp_method_name((llhttp_method_t)x->parser.method));
}

struct span http_exchange_target(const struct http_exchange *x)
{
    return buf_span(&x->target);
}

const struct http_fields *http_exchange_fields(const struct http_exchange *x)
{
    return &x->fields;
}

struct span http_exchange_body(const struct http_exchange *x)
{
    return buf_span(&x->body);
}

void http_exchange_release_body(struct http_exchange *x)
{
    buf_free(&x->body);
}

void http_exchange_set_user(struct http_exchange *x, void *user)
{
    x->user = user;
}

void *http_exchange_user(const struct http_exchange *x)
{
    return x->user;
}
