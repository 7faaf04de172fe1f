/*
 * A fake llama-server that costs next to nothing, so that what is measured in front of it is the
 * proxy. One thread, one epoll, all streams in one heap ordered by when their next event is due.
 *
 *   read request ──→ answering ──→ read request (keep-alive) … closed by the peer
 *                       │ a stream waits in the heap between two events
 *
 * Each event is one chunk and one send(), as an engine writes it, unless the wish asks for all
 * events at once. When a stream falls behind (a peer that does not read), its events wait in the
 * connection's buffer. A moment that the loop missed is not made up for: the next event is due one
 * interval after the last was due, so that the pace holds on average.
 *
 * SIGUSR1: the next chat request to arrive kills this process (SIGKILL) 10 ms later, so that a
 * request is in flight when the worker dies.
 */
#include "net.h"
#include "request.h"
#include "wire.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define NOT_QUEUED UINT32_MAX
#define DIE_NS     10000000u

struct conn {
    int fd;
    bool answering; /* a stream or a delayed answer is not finished */
    bool head_sent; /* of a stream */
    bool role_sent; /* of a stream: the role chunk, behind any progress report */
    bool close_after;
    bool wants_out; /* EPOLLOUT is on */
    uint32_t heap_at;
    uint64_t due_ns;
    uint64_t rx_ns;
    uint32_t next_seq;
    struct wire_ask ask;
    struct net_buf in;
    struct net_buf out;
};

struct upstream {
    int epoll_fd;
    int listen_fd;
    bool llama; /* answers what only a llama-server answers */
    struct conn **heap;
    uint32_t heap_len, heap_cap;
    uint64_t die_at_ns;
    uint64_t requests, events, cancelled, connections, late_max_ns;
    char scratch[16 * 1024];
};

static volatile sig_atomic_t die_armed;

static void on_usr1(int number)
{
    (void)number;
    die_armed = 1;
}

/* ---- heap of due moments ------------------------------------------------------------------- */

static void heap_place(struct upstream *u, uint32_t at, struct conn *c)
{
    u->heap[at] = c;
    c->heap_at = at;
}

static void heap_sift(struct upstream *u, uint32_t at, struct conn *c)
{
    while (at > 0 && u->heap[(at - 1) / 2]->due_ns > c->due_ns) {
        heap_place(u, at, u->heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child + 1 < u->heap_len && u->heap[child + 1]->due_ns < u->heap[child]->due_ns) {
            child++;
        }
        if (child >= u->heap_len || u->heap[child]->due_ns >= c->due_ns) {
            break;
        }
        heap_place(u, at, u->heap[child]);
        at = child;
    }
    heap_place(u, at, c);
}

static void heap_set(struct upstream *u, struct conn *c, uint64_t due_ns)
{
    c->due_ns = due_ns;
    if (c->heap_at == NOT_QUEUED) {
        if (u->heap_len == u->heap_cap) {
            u->heap_cap = u->heap_cap ? 2 * u->heap_cap : 1024;
            u->heap = realloc(u->heap, u->heap_cap * sizeof(*u->heap));
            if (!u->heap) {
                net_die("heap");
            }
        }
        c->heap_at = u->heap_len++;
    }
    heap_sift(u, c->heap_at, c);
}

static void heap_remove(struct upstream *u, struct conn *c)
{
    uint32_t at = c->heap_at;

    if (at == NOT_QUEUED) {
        return;
    }
    c->heap_at = NOT_QUEUED;
    struct conn *last = u->heap[--u->heap_len];
    if (last != c) {
        heap_sift(u, at, last);
    }
}

/* ---- connections --------------------------------------------------------------------------- */

static void conn_close(struct upstream *u, struct conn *c)
{
    if (c->answering) {
        u->cancelled++;
    }
    heap_remove(u, c);
    close(c->fd);
    net_buf_free(&c->in);
    net_buf_free(&c->out);
    free(c);
}

/* Sends what waits. <0: the connection is dead. */
static int conn_flush(struct upstream *u, struct conn *c)
{
    while (c->out.len > c->out.off) {
        ssize_t n = send(c->fd, c->out.data + c->out.off, c->out.len - c->out.off, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0 && errno != EAGAIN) {
            return -errno;
        }
        if (n < 0) {
            break;
        }
        net_buf_consume(&c->out, (size_t)n);
    }
    bool wants_out = c->out.len > c->out.off;
    if (wants_out != c->wants_out) {
        struct epoll_event ev = {.events = EPOLLIN | EPOLLRDHUP | (wants_out ? EPOLLOUT : 0u),
                                 .data.ptr = c};
        if (epoll_ctl(u->epoll_fd, EPOLL_CTL_MOD, c->fd, &ev) < 0) {
            return -errno;
        }
        c->wants_out = wants_out;
    }
    return 0;
}

static void conn_accept_all(struct upstream *u)
{
    for (;;) {
        int fd = accept4(u->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            return;
        }
        struct conn *c = calloc(1, sizeof(*c));
        struct epoll_event ev = {.events = EPOLLIN | EPOLLRDHUP, .data.ptr = c};
        if (!c || epoll_ctl(u->epoll_fd, EPOLL_CTL_ADD, fd, &ev) < 0) {
            net_die("accept");
        }
        c->fd = fd;
        c->heap_at = NOT_QUEUED;
        u->connections++;
    }
}

/* ---- answers ------------------------------------------------------------------------------- */

static void answer_simple(struct conn *c, const char *status, const char *type, const char *body,
                          size_t len)
{
    char head[256];
    int n = snprintf(head, sizeof(head),
                     "HTTP/1.1 %s\r\nServer: llama.cpp\r\nContent-Type: %s\r\n"
                     "Content-Length: %zu\r\n%s\r\n",
                     status, type, len, c->close_after ? "Connection: close\r\n" : "");

    net_buf_append(&c->out, head, (size_t)n);
    net_buf_append(&c->out, body, len);
}

static void answer_json(struct conn *c, const char *status, const char *body)
{
    answer_simple(c, status, "application/json; charset=utf-8", body, strlen(body));
}

static void stream_event(struct upstream *u, struct conn *c, const struct wire_event *event)
{
    char text[WIRE_EVENT_CAP], size[16];
    size_t len = wire_event_format(text, sizeof(text), event, &c->ask);
    int n = snprintf(size, sizeof(size), "%zx\r\n", len);

    net_buf_append(&c->out, size, (size_t)n);
    net_buf_append(&c->out, text, len);
    net_buf_append(&c->out, "\r\n", 2);
    u->events++;
}

static void stream_start(struct upstream *u, struct conn *c, enum wire_kind kind)
{
    static const char head[] = "HTTP/1.1 200 OK\r\nServer: llama.cpp\r\n"
                               "Content-Type: text/event-stream\r\n"
                               "Transfer-Encoding: chunked\r\n\r\n";

    if (!c->head_sent) {
        net_buf_append(&c->out, head, sizeof(head) - 1);
        c->head_sent = true;
    }
    stream_event(u, c, &(struct wire_event){.kind = kind});
    c->role_sent = kind == WIRE_KIND_ROLE;
}

static void stream_end(struct upstream *u, struct conn *c)
{
    stream_event(u, c, &(struct wire_event){.kind = WIRE_KIND_FINISH});
    if (c->ask.usage) {
        stream_event(u, c, &(struct wire_event){.kind = WIRE_KIND_USAGE});
    }
    stream_event(u, c, &(struct wire_event){.kind = WIRE_KIND_DONE});
    net_buf_append(&c->out, "0\r\n\r\n", 5);
    c->answering = false;
}

/* The due part of a stream: one event, or all of them where the wish has no interval. */
static int stream_step(struct upstream *u, struct conn *c)
{
    int r;

    if (!c->role_sent) {
        stream_start(u, c, WIRE_KIND_ROLE);
        if (c->ask.interval_us > 0 && (r = conn_flush(u, c)) < 0) {
            return r;
        }
    }
    do {
        stream_event(u, c,
                     &(struct wire_event){.kind = WIRE_KIND_CONTENT,
                                          .seq = c->next_seq,
                                          .rx_ns = c->rx_ns,
                                          .tx_ns = net_now_ns()});
        c->next_seq++;
    } while (c->ask.interval_us == 0 && c->next_seq < c->ask.events);
    if (c->next_seq == c->ask.events) {
        stream_end(u, c);
    } else if (c->ask.interval_us != WIRE_HOLD_US) {
        heap_set(u, c, c->due_ns + (uint64_t)c->ask.interval_us * 1000);
    }
    return conn_flush(u, c);
}

static int answer_step(struct upstream *u, struct conn *c)
{
    if (c->ask.stream) {
        return stream_step(u, c);
    }
    size_t n = wire_answer_format(u->scratch, sizeof(u->scratch), &c->ask);
    answer_simple(c, "200 OK", "application/json; charset=utf-8", u->scratch, n);
    c->answering = false;
    return conn_flush(u, c);
}

static int chat_begin(struct upstream *u, struct conn *c, const struct request *request)
{
    int r = wire_request_parse(request->body, request->body_len, &c->ask);

    if (r < 0 || (!c->ask.stream && c->ask.events > WIRE_WORDS_MAX)) {
        answer_json(c, "400 Bad Request",
                    r == -EILSEQ
                        ? "{\"error\":{\"code\":400,\"message\":\"the filler was changed on the "
                          "way\",\"type\":\"invalid_request_error\"}}"
                        : "{\"error\":{\"code\":400,\"message\":\"the message holds no "
                          "wish\",\"type\":\"invalid_request_error\"}}");
        return conn_flush(u, c);
    }
    c->rx_ns = net_now_ns();
    c->next_seq = 0;
    c->answering = true;
    c->head_sent = c->role_sent = false;
    if (die_armed && !u->die_at_ns) {
        u->die_at_ns = c->rx_ns + DIE_NS;
    }
    if (c->ask.progress) {
        /* As a llama-server: reports while the prompt is read, the role with the first token. */
        stream_start(u, c, WIRE_KIND_PROGRESS);
        if (c->ask.interval_us > 0 && (r = conn_flush(u, c)) < 0) {
            return r;
        }
    }
    c->due_ns = c->rx_ns + (uint64_t)c->ask.first_us * 1000;
    if (c->ask.first_us > 0) {
        heap_set(u, c, c->due_ns);
        return 0;
    }
    return answer_step(u, c);
}

struct route {
    const char *path;
    bool llama_only;
    const char *type;
    const char *body;
};

static const struct route routes[] = {
    {"/health", false, "application/json; charset=utf-8", "{\"status\":\"ok\"}"},
    {"/v1/health", false, "application/json; charset=utf-8", "{\"status\":\"ok\"}"},
    {"/v1/models", false, "application/json; charset=utf-8",
     "{\"object\":\"list\",\"data\":[{\"id\":\"bench\",\"object\":\"model\","
     "\"created\":1733050000,\"owned_by\":\"llamacpp\",\"meta\":{\"vocab_type\":2,\"n_vocab\":"
     "49152,"
     "\"n_ctx_train\":8192,\"n_embd\":576,\"n_params\":134515008,\"size\":96649728}}]}"},
    {"/props", true, "application/json; charset=utf-8",
     "{\"default_generation_settings\":{\"n_ctx\":8388608,\"params\":{\"temperature\":0.8,"
     "\"top_k\":40,\"top_p\":0.95,\"min_p\":0.05}},\"total_slots\":1024,\"model_alias\":\"bench\","
     "\"model_path\":\"/models/bench.gguf\",\"modalities\":{\"vision\":false,\"audio\":false},"
     "\"chat_template\":\"{{ messages }}\",\"bos_token\":\"<s>\",\"eos_token\":\"</s>\","
     "\"build_info\":\"b1-bench\",\"is_sleeping\":false}"},
    {"/slots", true, "application/json; charset=utf-8",
     "[{\"id\":0,\"n_ctx\":8192,\"is_processing\":false}]"},
    {"/metrics", true, "text/plain; version=0.0.4", "llamacpp:requests_processing 0\n"},
};

static bool path_is(const struct request *request, const char *path)
{
    return request->path_len == strlen(path) && memcmp(request->path, path, request->path_len) == 0;
}

static int request_answer(struct upstream *u, struct conn *c, const struct request *request)
{
    bool post = request->method_len == 4 && memcmp(request->method, "POST", 4) == 0;

    c->close_after = request->close_after;
    if (post && path_is(request, "/v1/chat/completions")) {
        u->requests++;
        return chat_begin(u, c, request);
    }
    if (path_is(request, "/bench/stats")) {
        int n = snprintf(u->scratch, sizeof(u->scratch),
                         "{\"requests\":%llu,\"events\":%llu,\"cancelled\":%llu,"
                         "\"connections\":%llu,\"late_max_ns\":%llu}",
                         (unsigned long long)u->requests, (unsigned long long)u->events,
                         (unsigned long long)u->cancelled, (unsigned long long)u->connections,
                         (unsigned long long)u->late_max_ns);
        answer_simple(c, "200 OK", "application/json", u->scratch, (size_t)n);
        u->late_max_ns = 0;
        return conn_flush(u, c);
    }
    for (size_t i = 0; !post && i < sizeof(routes) / sizeof(routes[0]); i++) {
        if (path_is(request, routes[i].path) && (u->llama || !routes[i].llama_only)) {
            answer_simple(c, "200 OK", routes[i].type, routes[i].body, strlen(routes[i].body));
            return conn_flush(u, c);
        }
    }
    answer_json(c, "404 Not Found",
                "{\"error\":{\"code\":404,\"message\":\"File Not Found\","
                "\"type\":\"not_found_error\"}}");
    return conn_flush(u, c);
}

/* ---- the loop ------------------------------------------------------------------------------- */

/* <0: the connection is over. */
static int conn_read(struct upstream *u, struct conn *c)
{
    for (;;) {
        net_buf_reserve(&c->in, 4096);
        size_t room = c->in.cap - c->in.len;
        ssize_t n = recv(c->fd, c->in.data + c->in.len, room, 0);
        if (n == 0) {
            return -ECONNRESET;
        }
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return errno == EAGAIN ? 0 : -errno;
        }
        c->in.len += (size_t)n;
        while (!c->answering && c->in.len > c->in.off) {
            struct request request = {0};
            int r = request_read(&c->in, &request);
            if (r < 0) {
                return r;
            }
            if (r == 0) {
                break;
            }
            r = request_answer(u, c, &request);
            net_buf_consume(&c->in, request.total);
            if (r < 0) {
                return r;
            }
            if (!c->answering && c->close_after && c->out.len == c->out.off) {
                return -ECONNRESET;
            }
        }
        if ((size_t)n < room) {
            return 0;
        }
    }
}

static void run_due(struct upstream *u)
{
    uint64_t now = net_now_ns();

    if (u->die_at_ns && now >= u->die_at_ns) {
        raise(SIGKILL);
    }
    while (u->heap_len && u->heap[0]->due_ns <= now) {
        struct conn *c = u->heap[0];
        uint64_t late_ns = now - c->due_ns;
        if (late_ns > u->late_max_ns) {
            u->late_max_ns = late_ns;
        }
        heap_remove(u, c);
        if (answer_step(u, c) < 0 || (!c->answering && c->close_after)) {
            conn_close(u, c);
        }
        now = net_now_ns();
    }
}

static struct timespec *next_wait(const struct upstream *u, struct timespec *ts)
{
    uint64_t due = u->heap_len ? u->heap[0]->due_ns : UINT64_MAX;
    uint64_t now = net_now_ns();

    if (u->die_at_ns && u->die_at_ns < due) {
        due = u->die_at_ns;
    }
    if (due == UINT64_MAX) {
        return NULL;
    }
    uint64_t wait = due > now ? due - now : 0;
    ts->tv_sec = (time_t)(wait / 1000000000u);
    ts->tv_nsec = (long)(wait % 1000000000u);
    return ts;
}

static void run(struct upstream *u)
{
    struct epoll_event events[256];
    struct timespec ts;

    for (;;) {
        int n = epoll_pwait2(u->epoll_fd, events, 256, next_wait(u, &ts), NULL);
        if (n < 0 && errno != EINTR) {
            net_die("epoll_pwait2");
        }
        for (int i = 0; i < n; i++) {
            struct conn *c = events[i].data.ptr;
            if (!c) {
                conn_accept_all(u);
                continue;
            }
            int r = (events[i].events & EPOLLERR) ? -ECONNRESET : 0;
            if (r == 0 && (events[i].events & EPOLLOUT)) {
                r = conn_flush(u, c);
            }
            if (r == 0 && (events[i].events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP))) {
                r = conn_read(u, c);
            }
            if (r < 0) {
                conn_close(u, c);
            }
        }
        run_due(u);
    }
}

int main(int argc, char **argv)
{
    struct upstream u = {.llama = true};
    uint16_t port = 0;

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--port") == 0 && i + 1 < argc) {
            port = (uint16_t)net_number(argv[++i], 65535);
        } else if (strcmp(argv[i], "--openai") == 0) {
            u.llama = false;
        } else {
            fprintf(stderr, "usage: bench-upstream --port N [--openai]\n");
            return 2;
        }
    }
    net_prepare_process();
    signal(SIGUSR1, on_usr1);
    u.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    u.listen_fd = net_listen(port);
    if (u.listen_fd < 0) {
        errno = -u.listen_fd;
        net_die("listen");
    }
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = NULL};
    if (u.epoll_fd < 0 || epoll_ctl(u.epoll_fd, EPOLL_CTL_ADD, u.listen_fd, &ev) < 0) {
        net_die("epoll");
    }
    printf("ready\n");
    fflush(stdout);
    run(&u);
}
