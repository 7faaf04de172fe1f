/*
 * The listening side of the HTTP server: accepts, counts, times out and closes connections.
 *
 * Loop thread only. One timer sweeps all connections twice a second, and only while there are any:
 * the deadlines here are seconds long, and a timer per connection would cost memory on each idle
 * stream. The connection limit keeps two descriptors per client (its own and one to a worker) and
 * a reserve, so that accept(2) itself never fails for lack of descriptors and a client over the
 * limit can be told so.
 */
#include "http/server_internal.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>

enum {
    SERVER_SWEEP_MS = 500,
    SERVER_BACKLOG = 1024,
    SERVER_RESERVED_DESCRIPTORS = 64,
    SERVER_REFUSED_OPEN_MAX = 16,
    SERVER_MIN_CONNECTIONS = 4,
};

void http_server_limits_default(struct http_server_limits *ret_limits)
{
    struct rlimit files;
    unsigned max = 4096;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        rlim_t room = files.rlim_cur > SERVER_RESERVED_DESCRIPTORS
                          ? (files.rlim_cur - SERVER_RESERVED_DESCRIPTORS) / 2
                          : 0;
        max = room > 65536 ? 65536 : (unsigned)room;
        if (max < SERVER_MIN_CONNECTIONS)
            max = SERVER_MIN_CONNECTIONS;
    }
    *ret_limits = (struct http_server_limits){
        .head_bytes = (size_t)32 * 1024,
        .body_bytes = (size_t)64 * 1024 * 1024,
        .write_queue_bytes = (size_t)256 * 1024,
        .head_timeout_ms = 15000,
        .idle_timeout_ms = 75000,
        .body_timeout_ms = 30000,
        .write_timeout_ms = 60000,
        .max_connections = max,
    };
}

uint64_t server_now_ms(const struct http_server *s)
{
    return uv_now(s->loop);
}

const char *server_date(struct http_server *s)
{
    uint64_t now_ms = server_now_ms(s);
    if (s->date[0] == '\0' || now_ms - s->date_at_ms >= 1000) {
        struct tm parts;
        time_t now = time(NULL);
        gmtime_r(&now, &parts);
        strftime(s->date, sizeof(s->date), "%a, %d %b %Y %H:%M:%S GMT", &parts);
        s->date_at_ms = now_ms;
    }
    return s->date;
}

static void server_sweep(uv_timer_t *timer)
{
    struct http_server *s = timer->data;
    uint64_t now_ms = server_now_ms(s);
    LIST_FOR_EACH(node, &s->connections)
    {
        struct http_exchange *x = LIST_ENTRY(node, struct http_exchange, node);
        if (x->deadline_ms == 0 || x->deadline_ms > now_ms)
            continue;
        if (x->state == CONNECTION_STATE_HEAD)
            connection_refuse(x, 408, "the request head took too long");
        else if (x->state == CONNECTION_STATE_BODY)
            connection_refuse(x, 408, "the request body stopped arriving");
        else
            connection_close(x);
    }
}

static void server_maybe_closed(struct http_server *s)
{
    if (!s->closing || s->handles_open > 0)
        return;
    void (*on_closed)(void *) = s->on_closed;
    void *ctx = s->on_closed_ctx;
    free(s->read_buffer);
    free(s);
    if (on_closed)
        on_closed(ctx);
}

void server_connection_gone(struct http_server *s, struct http_exchange *x)
{
    list_remove(&x->node);
    if (x->refused)
        s->refused_open--;
    else
        s->connection_count--;
    if (list_is_empty(&s->connections) && !s->closing)
        uv_timer_stop(&s->sweep);
    s->handles_open--;
    free(x);
    server_maybe_closed(s);
}

static void server_discard_closed(uv_handle_t *handle)
{
    free(handle);
}

/*
 * Accepts and closes, with a word on the way: what has arrived is read first, or the reset that
 * follows unread bytes would overtake it. Nothing is kept and nothing is waited for.
 */
static void server_accept_and_drop(struct http_server *s)
{
    static const char busy[] = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\n"
                               "Content-Length: 21\r\nConnection: close\r\n\r\n"
                               "too many connections\n";
    uv_tcp_t *tcp = malloc(sizeof(*tcp));
    if (!tcp)
        return;
    uv_tcp_init(s->loop, tcp);
    int fd;
    if (uv_accept((uv_stream_t *)&s->tcp, (uv_stream_t *)tcp) == 0 &&
        uv_fileno((uv_handle_t *)tcp, &fd) == 0) {
        (void)recv(fd, s->read_buffer, HTTP_SERVER_READ_BYTES, MSG_DONTWAIT);
        (void)send(fd, busy, sizeof(busy) - 1, MSG_DONTWAIT | MSG_NOSIGNAL);
        (void)shutdown(fd, SHUT_WR);
    }
    uv_close((uv_handle_t *)tcp, server_discard_closed);
}

/* A connection object, counted, without a socket yet. */
static struct http_exchange *server_new_connection(struct http_server *s, bool over_limit)
{
    struct http_exchange *x = calloc(1, sizeof(*x));
    if (!x)
        return NULL;
    x->server = s;
    x->refused = over_limit;
    uv_tcp_init(s->loop, &x->tcp);
    x->tcp.data = x;
    if (list_is_empty(&s->connections))
        uv_timer_start(&s->sweep, server_sweep, SERVER_SWEEP_MS, SERVER_SWEEP_MS);
    list_push_back(&s->connections, &x->node);
    s->handles_open++;
    if (over_limit) {
        s->refused_open++;
        s->refused_total++;
    } else {
        s->connection_count++;
    }
    return x;
}

static void server_on_connection(uv_stream_t *listener, int status)
{
    struct http_server *s = listener->data;
    if (status < 0)
        return;
    bool over = s->draining || s->connection_count >= s->limits.max_connections;
    bool drop = over && s->refused_open >= SERVER_REFUSED_OPEN_MAX;
    struct http_exchange *x = drop ? NULL : server_new_connection(s, over);
    if (!x) {
        s->refused_total++;
        server_accept_and_drop(s);
        return;
    }
    if (uv_accept(listener, (uv_stream_t *)&x->tcp) < 0 || connection_start(s, x) < 0)
        connection_close(x);
}

int server_adopt(struct http_server *s, int fd)
{
    struct http_exchange *x = server_new_connection(s, false);
    if (!x)
        return -ENOMEM;
    int r = uv_tcp_open(&x->tcp, fd);
    if (r == 0)
        r = connection_start(s, x);
    if (r < 0)
        connection_close(x);
    return r;
}

static void server_handle_closed(uv_handle_t *handle)
{
    struct http_server *s = handle->data;
    s->handles_open--;
    server_maybe_closed(s);
}

static int server_bind(struct http_server *s, const struct sockaddr *address)
{
    int r = uv_tcp_bind(&s->tcp, address, 0);
    if (r < 0)
        return r;
    /* Accepted sockets inherit these on Linux: no system call per connection. */
    int fd;
    if (uv_fileno((uv_handle_t *)&s->tcp, &fd) == 0) {
        int on = 1;
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    }
    return uv_listen((uv_stream_t *)&s->tcp, SERVER_BACKLOG, server_on_connection);
}

int http_server_listen(uv_loop_t *loop, const char *host, uint16_t port,
                       const struct http_server_limits *limits,
                       const struct http_server_handler *handler, void *ctx,
                       struct http_server **ret_server)
{
    struct sockaddr_storage address;
    if (uv_ip4_addr(host, port, (struct sockaddr_in *)&address) < 0 &&
        uv_ip6_addr(host, port, (struct sockaddr_in6 *)&address) < 0)
        return -EINVAL;
    struct http_server *s = calloc(1, sizeof(*s));
    if (!s)
        return -ENOMEM;
    s->read_buffer = malloc(HTTP_SERVER_READ_BYTES);
    if (!s->read_buffer) {
        free(s);
        return -ENOMEM;
    }
    s->loop = loop;
    s->limits = *limits;
    s->handler = handler;
    s->ctx = ctx;
    list_init(&s->connections);
    connection_init_settings(&s->settings);
    uv_tcp_init(loop, &s->tcp);
    s->tcp.data = s;
    uv_timer_init(loop, &s->sweep);
    s->sweep.data = s;
    s->handles_open = 2;
    int r = server_bind(s, (const struct sockaddr *)&address);
    if (r < 0) {
        http_server_close(s, NULL, NULL);
        return r;
    }
    *ret_server = s;
    return 0;
}

uint16_t http_server_port(const struct http_server *s)
{
    struct sockaddr_storage address;
    int length = sizeof(address);
    if (uv_tcp_getsockname(&s->tcp, (struct sockaddr *)&address, &length) < 0)
        return 0;
    return address.ss_family == AF_INET6 ? ntohs(((struct sockaddr_in6 *)&address)->sin6_port)
                                         : ntohs(((struct sockaddr_in *)&address)->sin_port);
}

unsigned http_server_connections(const struct http_server *s)
{
    return s->connection_count;
}

uint64_t http_server_refused(const struct http_server *s)
{
    return s->refused_total;
}

void http_server_set_limits(struct http_server *s, const struct http_server_limits *limits)
{
    s->limits = *limits;
}

void http_server_drain(struct http_server *s)
{
    if (s->draining)
        return;
    s->draining = true;
    /* New connections are refused by the kernel from here on, so another process can take over. */
    if (!uv_is_closing((uv_handle_t *)&s->tcp))
        uv_close((uv_handle_t *)&s->tcp, server_handle_closed);
    LIST_FOR_EACH(node, &s->connections)
    {
        struct http_exchange *x = LIST_ENTRY(node, struct http_exchange, node);
        if (x->state == CONNECTION_STATE_IDLE)
            connection_close(x);
        else
            x->keep_alive = false;
    }
}

void http_server_close(struct http_server *s, void (*on_closed)(void *ctx), void *ctx)
{
    if (!s)
        return;
    s->closing = true;
    s->draining = true;
    s->on_closed = on_closed;
    s->on_closed_ctx = ctx;
    LIST_FOR_EACH(node, &s->connections)
    connection_close(LIST_ENTRY(node, struct http_exchange, node));
    uv_timer_stop(&s->sweep);
    uv_close((uv_handle_t *)&s->sweep, server_handle_closed);
    if (!uv_is_closing((uv_handle_t *)&s->tcp))
        uv_close((uv_handle_t *)&s->tcp, server_handle_closed);
}
