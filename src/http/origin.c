/*
 * Where calls go: an address (TCP or unix socket), its resolution, and the pool of idle
 * connections.
 *
 * Loop thread only; names are resolved on libuv's threads. One timer per origin sweeps connects and
 * idle connections, and runs only while there are any. Idle connections keep reading, so that one
 * that the worker closed is never chosen once that is known; the case that is left, closing just
 * as a request arrives, is the caller's (`reused` and no byte received: safe to try again).
 */
#include "http/client_internal.h"
#include "http/head.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

enum { ORIGIN_SWEEP_MS = 250, ORIGIN_HEAD_BYTES = 768 };

void http_origin_options_default(struct http_origin_options *ret_options)
{
    *ret_options = (struct http_origin_options){
        .max_idle = 1024,
        .idle_timeout_ms = 3500,
        .connect_timeout_ms = 2000,
        .head_bytes = (size_t)64 * 1024,
    };
}

static void origin_maybe_free(struct http_origin *o)
{
    if (!o->destroyed || o->handles_open > 0)
        return;
    free(o->host);
    free(o->host_field);
    free(o->prefix);
    free(o->socket_path);
    free(o->read_buffer);
    free(o);
}

static void origin_sweep(uv_timer_t *timer)
{
    struct http_origin *o = timer->data;
    uint64_t now_ms = uv_now(o->loop);
    LIST_FOR_EACH(node, &o->idle)
    {
        struct http_call *c = LIST_ENTRY(node, struct http_call, node);
        if (c->deadline_ms > now_ms)
            break;
        call_close(c);
    }
    bool waiting = !list_is_empty(&o->idle);
    LIST_FOR_EACH(node, &o->calls)
    {
        struct http_call *c = LIST_ENTRY(node, struct http_call, node);
        if (c->state > CALL_STATE_CONNECTING)
            continue;
        if (c->deadline_ms <= now_ms) {
            /* The handler may cancel other calls: start over at the next tick. */
            call_fail(c, -ETIMEDOUT, NULL);
            return;
        }
        waiting = true;
    }
    if (!waiting)
        uv_timer_stop(&o->sweep);
}

void origin_start_sweep(struct http_origin *o)
{
    if (!uv_is_active((uv_handle_t *)&o->sweep))
        uv_timer_start(&o->sweep, origin_sweep, ORIGIN_SWEEP_MS, ORIGIN_SWEEP_MS);
}

void origin_connection_gone(struct http_origin *o, struct http_call *c)
{
    buf_free(&c->head);
    http_fields_free(&c->fields);
    free(c);
    o->handles_open--;
    origin_maybe_free(o);
}

void origin_put_idle(struct http_origin *o, struct http_call *c)
{
    list_remove(&c->node);
    if (o->destroyed || o->idle_count >= o->options.max_idle) {
        call_close(c);
        return;
    }
    c->state = CALL_STATE_IDLE;
    c->handler = NULL;
    c->ctx = NULL;
    c->deadline_ms = uv_now(o->loop) + o->options.idle_timeout_ms;
    list_push_back(&o->idle, &c->node);
    o->idle_count++;
    origin_start_sweep(o);
}

static int origin_create(uv_loop_t *loop, const struct http_origin_options *options,
                         struct http_origin **ret_origin)
{
    struct http_origin *o = calloc(1, sizeof(*o));
    if (!o)
        return -ENOMEM;
    o->read_buffer = malloc(HTTP_CLIENT_READ_BYTES);
    if (!o->read_buffer) {
        free(o);
        return -ENOMEM;
    }
    o->loop = loop;
    o->options = *options;
    list_init(&o->calls);
    list_init(&o->idle);
    call_init_settings(&o->settings);
    uv_timer_init(loop, &o->sweep);
    o->sweep.data = o;
    o->handles_open = 1;
    *ret_origin = o;
    return 0;
}

int http_origin_create_unix(uv_loop_t *loop, const char *socket_path,
                            const struct http_origin_options *options,
                            struct http_origin **ret_origin)
{
    if (strlen(socket_path) >= sizeof(((struct sockaddr_un *)0)->sun_path))
        return -ENAMETOOLONG;
    struct http_origin *o;
    int r = origin_create(loop, options, &o);
    if (r < 0)
        return r;
    o->socket_path = strdup(socket_path);
    o->host_field = strdup("localhost");
    o->prefix = strdup("");
    if (!o->socket_path || !o->host_field || !o->prefix) {
        http_origin_destroy(o);
        return -ENOMEM;
    }
    *ret_origin = o;
    return 0;
}

/* Splits `host[:port]` or `[v6][:port]`. */
static int origin_parse_authority(struct http_origin *o, struct span authority)
{
    struct span host = authority;
    struct span port = SPAN_NONE;
    if (authority.len > 0 && authority.ptr[0] == '[') {
        const char *end = memchr(authority.ptr, ']', authority.len);
        if (!end)
            return -EINVAL;
        host = (struct span){authority.ptr + 1, (size_t)(end - authority.ptr) - 1};
        struct span rest = {end + 1, authority.len - (size_t)(end + 1 - authority.ptr)};
        if (rest.len > 0 && rest.ptr[0] != ':')
            return -EINVAL;
        if (rest.len > 0)
            port = (struct span){rest.ptr + 1, rest.len - 1};
    } else {
        const char *colon = authority.len ? memchr(authority.ptr, ':', authority.len) : NULL;
        if (colon) {
            host.len = (size_t)(colon - authority.ptr);
            port = (struct span){colon + 1, authority.len - host.len - 1};
        }
    }
    unsigned value = port.ptr ? 0 : 80;
    for (size_t i = 0; i < port.len; i++) {
        if (port.ptr[i] < '0' || port.ptr[i] > '9' || value > 65535)
            return -EINVAL;
        value = value * 10 + (unsigned)(port.ptr[i] - '0');
    }
    if (host.len == 0 || host.len > 253 || value == 0 || value > 65535)
        return -EINVAL;
    o->port = (uint16_t)value;
    o->host = strndup(host.ptr, host.len);
    o->host_field = strndup(authority.ptr, authority.len);
    return o->host && o->host_field ? 0 : -ENOMEM;
}

int http_origin_create_url(uv_loop_t *loop, const char *base_url,
                           const struct http_origin_options *options,
                           struct http_origin **ret_origin)
{
    struct span url = span_from_str(base_url);
    if (span_starts_with(url, SPAN_LIT("https://")))
        return -EPROTONOSUPPORT;
    if (!span_starts_with(url, SPAN_LIT("http://")))
        return -EINVAL;
    struct span rest = {url.ptr + 7, url.len - 7};
    const char *slash = rest.len ? memchr(rest.ptr, '/', rest.len) : NULL;
    struct span authority = {rest.ptr, slash ? (size_t)(slash - rest.ptr) : rest.len};
    struct span prefix = slash ? (struct span){slash, rest.len - authority.len} : SPAN_LIT("");
    while (prefix.len > 0 && prefix.ptr[prefix.len - 1] == '/')
        prefix.len--;
    struct http_origin *o;
    int r = origin_create(loop, options, &o);
    if (r < 0)
        return r;
    r = origin_parse_authority(o, authority);
    if (r < 0)
        goto fail;
    r = -ENOMEM;
    o->prefix = strndup(prefix.ptr, prefix.len);
    if (!o->prefix)
        goto fail;
    if (uv_ip4_addr(o->host, o->port, (struct sockaddr_in *)&o->addresses[0]) == 0 ||
        uv_ip6_addr(o->host, o->port, (struct sockaddr_in6 *)&o->addresses[0]) == 0) {
        o->is_numeric = true;
        o->address_count = 1;
    }
    *ret_origin = o;
    return 0;
fail:
    http_origin_destroy(o);
    return r;
}

static void origin_handle_closed(uv_handle_t *handle)
{
    struct http_origin *o = handle->data;
    o->handles_open--;
    origin_maybe_free(o);
}

void http_origin_close_idle(struct http_origin *o)
{
    LIST_FOR_EACH(node, &o->idle)
    call_close(LIST_ENTRY(node, struct http_call, node));
}

int http_origin_set_port(struct http_origin *o, uint16_t port)
{
    struct sockaddr_storage *address = &o->addresses[0];
    bool v6 = address->ss_family == AF_INET6;
    char *field = NULL;
    if (!o->is_numeric || port == 0)
        return -EINVAL;
    if (asprintf(&field, v6 ? "[%s]:%u" : "%s:%u", o->host, (unsigned)port) < 0)
        return -ENOMEM;
    http_origin_close_idle(o);
    free(o->host_field);
    o->host_field = field;
    o->port = port;
    /* The port lies at the same place in both. */
    ((struct sockaddr_in *)address)->sin_port = htons(port);
    return 0;
}

void http_origin_destroy(struct http_origin *o)
{
    if (!o || o->destroyed)
        return;
    o->destroyed = true;
    http_origin_close_idle(o);
    LIST_FOR_EACH(node, &o->calls)
    call_close(LIST_ENTRY(node, struct http_call, node));
    uv_timer_stop(&o->sweep);
    uv_close((uv_handle_t *)&o->sweep, origin_handle_closed);
    if (o->resolving)
        uv_cancel((uv_req_t *)&o->resolver);
}

const char *http_origin_prefix(const struct http_origin *o)
{
    return o->prefix;
}

const char *http_origin_host(const struct http_origin *o)
{
    return o->host_field;
}

static void origin_take_addresses(struct http_origin *o, const struct addrinfo *list)
{
    o->address_count = 0;
    for (const struct addrinfo *a = list; a && o->address_count < HTTP_ORIGIN_MAX_ADDRESSES;
         a = a->ai_next) {
        if (a->ai_addrlen > sizeof(o->addresses[0]))
            continue;
        memcpy(&o->addresses[o->address_count++], a->ai_addr, a->ai_addrlen);
    }
}

static void origin_on_resolved(uv_getaddrinfo_t *request, int status, struct addrinfo *list)
{
    struct http_origin *o = request->data;
    o->resolving = false;
    o->handles_open--;
    if (status == 0)
        origin_take_addresses(o, list);
    uv_freeaddrinfo(list);
    if (o->destroyed) {
        origin_maybe_free(o);
        return;
    }
    /* A handler may cancel others: take one at a time from the start. */
    for (bool again = true; again;) {
        again = false;
        LIST_FOR_EACH(node, &o->calls)
        {
            struct http_call *c = LIST_ENTRY(node, struct http_call, node);
            if (c->state != CALL_STATE_RESOLVING)
                continue;
            int r = status == 0 && o->address_count > 0 ? call_connect(c) : -EHOSTUNREACH;
            if (r < 0)
                call_fail(c, r, r == -EHOSTUNREACH ? "the host name does not resolve" : NULL);
            again = true;
            break;
        }
    }
}

static int origin_resolve(struct http_origin *o)
{
    if (o->resolving)
        return 0;
    char service[8];
    snprintf(service, sizeof(service), "%u", (unsigned)o->port);
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    o->resolver.data = o;
    int r = uv_getaddrinfo(o->loop, &o->resolver, origin_on_resolved, o->host, service, &hints);
    if (r < 0)
        return r;
    o->resolving = true;
    o->handles_open++;
    return 0;
}

static struct http_call *origin_take_idle(struct http_origin *o)
{
    if (list_is_empty(&o->idle))
        return NULL;
    /* The youngest is the least likely to be closed by the other side meanwhile. */
    struct http_call *c = LIST_ENTRY(o->idle.prev, struct http_call, node);
    list_remove(&c->node);
    o->idle_count--;
    c->reused = true;
    c->deadline_ms = 0;
    return c;
}

static struct http_call *origin_new_call(struct http_origin *o)
{
    struct http_call *c = calloc(1, sizeof(*c));
    if (!c)
        return NULL;
    c->origin = o;
    c->deadline_ms = uv_now(o->loop) + o->options.connect_timeout_ms;
    list_init(&c->node);
    buf_init(&c->head, (size_t)256 * 1024);
    http_fields_init(&c->fields, o->options.head_bytes);
    o->handles_open++;
    return c;
}

static struct span call_prefix(const struct http_origin *o, const struct http_call_request *q)
{
    struct span prefix = span_from_str(o->prefix), api = SPAN_LIT("/v1");
    if (q->beside_v1 && prefix.len >= api.len &&
        memcmp(prefix.ptr + prefix.len - api.len, api.ptr, api.len) == 0)
        prefix.len -= api.len;
    return prefix;
}

static int call_build_head(struct http_call *c, const struct http_call_request *q)
{
    struct http_origin *o = c->origin;
    struct buf *h = &c->head;
    h->len = 0;
    const struct span opening[] = {q->method,
                                   SPAN_LIT(" "),
                                   call_prefix(o, q),
                                   q->target,
                                   SPAN_LIT(" HTTP/1.1\r\nHost: "),
                                   span_from_str(o->host_field),
                                   SPAN_LIT("\r\nAccept-Encoding: identity\r\n")};
    int r = buf_reserve(h, ORIGIN_HEAD_BYTES);
    if (r == 0)
        r = http_head_append(h, opening, sizeof(opening) / sizeof(opening[0]));
    if (r == 0 && q->fields)
        r = http_head_append_fields(h, q->fields);
    size_t length = 0;
    for (unsigned i = 0; i < q->body_count; i++)
        length += q->body[i].len;
    if (r == 0 && (q->has_body || length > 0))
        r = http_head_append_number(h, SPAN_LIT("Content-Length"), length);
    if (r == 0)
        r = buf_append_str(h, o->options.max_idle > 0 ? "\r\n" : "Connection: close\r\n\r\n");
    return r;
}

int http_call_start(struct http_origin *o, const struct http_call_request *request,
                    const struct http_call_handler *handler, void *ctx, struct http_call **ret_call)
{
    if (request->body_count > HTTP_CALL_MAX_BODY_PARTS)
        return -E2BIG;
    struct http_call *c = request->fresh_connection ? NULL : origin_take_idle(o);
    if (!c)
        c = origin_new_call(o);
    if (!c)
        return -ENOMEM;
    c->handler = handler;
    c->ctx = ctx;
    c->body = request->body;
    c->body_count = request->body_count;
    c->is_head_method = span_equals_str(request->method, "HEAD");
    list_push_back(&o->calls, &c->node);
    int r = call_build_head(c, request);
    if (r < 0)
        goto fail;
    if (c->reused) {
        c->state = CALL_STATE_ACTIVE;
        call_send(c);
    } else if (o->socket_path || o->address_count > 0) {
        r = call_connect(c);
    } else {
        c->state = CALL_STATE_RESOLVING;
        r = origin_resolve(o);
    }
    if (r < 0)
        goto fail;
    origin_start_sweep(o);
    *ret_call = c;
    return 0;
fail:
    call_close(c);
    return r;
}
