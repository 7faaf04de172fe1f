/*
 * A run of the load generator: who asks when, and what is said about it in the end.
 *
 * Closed loop: each connection asks again as soon as it was answered, until all requests are begun.
 * Open loop: a request is due every 1/rate s whatever happened to the others, over a connection
 * that is free or a new one; its time counts from when it was due, so that a stall is not left out.
 */
#include "load.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

static void count(char texts[][16], uint32_t *counts, const char *text)
{
    for (size_t i = 0; i < LOAD_TIERS; i++) {
        if (counts[i] == 0) {
            snprintf(texts[i], 16, "%s", text);
        }
        if (strcmp(texts[i], text) == 0) {
            counts[i]++;
            return;
        }
    }
}

static void count_error(struct load *l, const char *why)
{
    size_t i = 0;

    while (i + 1 < LOAD_ERROR_KINDS && l->error_counts[i] && strcmp(l->errors[i], why) != 0) {
        i++;
    }
    if (l->error_counts[i] == 0) {
        snprintf(l->errors[i], sizeof(l->errors[i]), "%s", why);
    }
    l->error_counts[i]++;
}

static const struct load_request *next_request(struct load *l)
{
    bool stream = l->options.mix ? l->begun % 2 == 1 : l->options.ask.stream;

    l->begun++;
    return stream ? &l->stream : &l->plain;
}

void load_request_over(struct load *l, struct client *c, const char *why)
{
    uint64_t now = net_now_ns();

    if (why) {
        l->failed++;
        count_error(l, why);
    } else {
        l->ok++;
        if (c->answer.tier_named) {
            count(l->tiers, l->tier_counts, c->answer.tier);
        }
    }
    samples_add(&l->latency, now - c->begin_ns);
    /* After a failure a connection is not asked again at once: a refusing target would spin. */
    if (!why && !l->options.rate && l->begun < l->options.requests) {
        client_ask(c, next_request(l), now);
    }
}

/* One with an open connection before one without; NULL when all are busy. */
static struct client *idle_client(struct load *l)
{
    struct client *closed = NULL;

    for (uint32_t i = 0; i < l->options.connections; i++) {
        if (l->clients[i].state == CLIENT_FREE) {
            return &l->clients[i];
        }
        if (l->clients[i].state == CLIENT_CLOSED) {
            closed = &l->clients[i];
        }
    }
    return closed;
}

/* The clients that have not asked yet do so when their moment of the ramp has come. */
static void ask_due(struct load *l, uint64_t now)
{
    if (l->options.rate) {
        while (l->begun < l->options.requests && l->next_due_ns <= now) {
            struct client *c = idle_client(l);
            if (!c) {
                net_die("more requests wait than --connections allows");
            }
            client_ask(c, next_request(l), l->next_due_ns);
            l->next_due_ns += 1000000000u / l->options.rate;
        }
        return;
    }
    for (uint32_t i = 0; i < l->options.connections && l->begun < l->options.requests; i++) {
        uint64_t due =
            l->begin_ns + (uint64_t)l->options.ramp_ms * 1000000u * i / l->options.connections;
        if (!l->clients[i].started) {
            if (due > now) {
                l->next_due_ns = due;
                return;
            }
            l->clients[i].started = true;
            client_ask(&l->clients[i], next_request(l), now);
        }
    }
    l->next_due_ns = UINT64_MAX;
}

static bool is_over(const struct load *l)
{
    if (l->options.hold) {
        return l->first_events + l->failed >= l->options.requests;
    }
    /* Where every connection failed, nobody is left to ask. */
    return l->ok + l->failed >= l->options.requests ||
           (!l->options.rate && l->failed >= l->options.connections);
}

static void turn(struct load *l, uint64_t deadline_ns)
{
    struct epoll_event events[256];
    uint64_t now = net_now_ns();
    uint64_t until = l->next_due_ns < deadline_ns ? l->next_due_ns : deadline_ns;
    uint64_t wait = until > now ? until - now : 0;
    struct timespec ts = {.tv_sec = (time_t)(wait / 1000000000u),
                          .tv_nsec = (long)(wait % 1000000000u)};
    int n = epoll_pwait2(l->epoll_fd, events, 256, &ts, NULL);

    if (n < 0 && errno != EINTR) {
        net_die("epoll_pwait2");
    }
    for (int i = 0; i < n; i++) {
        client_ready(events[i].data.ptr, events[i].events);
    }
}

static void request_make(struct load *l, struct load_request *r, bool stream)
{
    size_t cap = 2048 + l->options.ask.pad_bytes;
    char *body = malloc(cap);

    r->wire = malloc(cap + 512);
    if (!body || !r->wire) {
        net_die("request");
    }
    r->ask = l->options.ask;
    r->ask.stream = stream;
    r->ask.usage = stream;
    size_t len = wire_request_format(body, cap, &r->ask);
    int n = snprintf(r->wire, 512,
                     "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:%u\r\n"
                     "User-Agent: bench/1\r\nAccept: application/json\r\n"
                     "Authorization: Bearer none\r\nContent-Type: application/json\r\n"
                     "Content-Length: %zu\r\n\r\n",
                     l->options.port, len);
    memcpy(r->wire + n, body, len);
    r->len = (size_t)n + len;
    free(body);
}

static void hold_until_told(void)
{
    char c;

    printf("ready\n");
    fflush(stdout);
    while (read(STDIN_FILENO, &c, 1) < 0 && errno == EINTR) {
    }
}

static void text_print(FILE *out, const char *text)
{
    fputc('"', out);
    for (; *text; text++) {
        if ((unsigned char)*text < 0x20 || (unsigned char)*text > 0x7e) {
            fprintf(out, "\\u%04x", (unsigned)(unsigned char)*text);
        } else {
            fprintf(out, *text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
        }
    }
    fputc('"', out);
}

static void result_print(struct load *l, double wall_s, double cpu_s, FILE *out)
{
    fprintf(out, "{\"requests\":%u,\"ok\":%u,\"failed\":%u,\"unfinished\":%u,\"events\":%llu,",
            l->begun, l->ok, l->failed, l->begun - l->ok - l->failed,
            (unsigned long long)l->events);
    fprintf(out, "\"wall_s\":%.4f,\"own_cpu_s\":%.4f,\"errors\":{", wall_s, cpu_s);
    for (size_t i = 0; i < LOAD_ERROR_KINDS && l->error_counts[i]; i++) {
        fputs(i ? "," : "", out);
        text_print(out, l->errors[i]);
        fprintf(out, ":%u", l->error_counts[i]);
    }
    fputs("},\"tiers\":{", out);
    for (size_t i = 0; i < LOAD_TIERS && l->tier_counts[i]; i++) {
        fputs(i ? "," : "", out);
        text_print(out, l->tiers[i]);
        fprintf(out, ":%u", l->tier_counts[i]);
    }
    fputs("},", out);
    samples_print(out, "latency_us", &l->latency);
    fputc(',', out);
    samples_print(out, "first_us", &l->first);
    fputc(',', out);
    samples_print(out, "event_us", &l->event);
    fputs("}\n", out);
    fflush(out);
}

void load_run(struct load *l, FILE *out)
{
    uint32_t connections = l->options.connections;
    uint64_t deadline_ns;

    l->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    l->clients = calloc(connections, sizeof(*l->clients));
    if (l->epoll_fd < 0 || !l->clients) {
        net_die("start");
    }
    request_make(l, &l->plain, false);
    request_make(l, &l->stream, true);
    for (uint32_t i = 0; i < connections; i++) {
        l->clients[i].load = l;
    }
    l->begin_ns = l->next_due_ns = net_now_ns();
    deadline_ns = l->begin_ns + (uint64_t)l->options.timeout_s * 1000000000u;
    for (uint64_t now = l->begin_ns; !is_over(l) && now < deadline_ns; now = net_now_ns()) {
        ask_due(l, now);
        turn(l, deadline_ns);
    }
    double wall_s = (double)(net_now_ns() - l->begin_ns) / 1e9;
    if (l->options.hold) {
        hold_until_told();
    }
    result_print(l, wall_s, (double)clock() / CLOCKS_PER_SEC, out);
    for (uint32_t i = 0; i < connections; i++) {
        client_close(&l->clients[i]);
        answer_free(&l->clients[i].answer);
    }
    free(l->clients);
    free(l->plain.wire);
    free(l->stream.wire);
    samples_free(&l->latency);
    samples_free(&l->first);
    samples_free(&l->event);
    close(l->epoll_fd);
}
