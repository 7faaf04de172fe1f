/*
 * Reads and checks an answer. Everything that is not exactly right is an error with a text: the
 * benchmark counts such answers as failed, whatever their speed.
 */
#include "answer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define HEAD_MAX 16384u

void answer_begin(struct answer *a, const struct wire_ask *ask, const struct answer_sink *sink)
{
    struct net_buf line = a->line, body = a->body;

    line.off = line.len = body.off = body.len = 0;
    *a = (struct answer){.ask = ask, .sink = sink, .line = line, .body = body};
}

void answer_free(struct answer *a)
{
    net_buf_free(&a->line);
    net_buf_free(&a->body);
}

static int wrong(struct answer *a, const char *why, const char *data, size_t len)
{
    int show = len < 80 ? (int)len : 80;

    snprintf(a->why, sizeof(a->why), "%s%s%.*s", why, len ? ": " : "", show, data ? data : "");
    return -EBADMSG;
}

/* ---- content ------------------------------------------------------------------------------- */

static int event_check(struct answer *a, const char *text, size_t len, uint64_t now_ns)
{
    struct wire_event e;

    if (wire_event_parse(text, len, &e) < 0) {
        return wrong(a, "not one of our events", text, len);
    }
    if (a->saw_done) {
        return wrong(a, "an event behind [DONE]", text, len);
    }
    switch (e.kind) {
    case WIRE_KIND_PROGRESS: return wrong(a, "a progress report that was not asked for", text, len);
    case WIRE_KIND_ROLE:
        if (a->next_seq > 0 || a->saw_role) {
            return wrong(a, "a role out of place", text, len);
        }
        a->saw_role = true;
        return 0;
    case WIRE_KIND_CONTENT:
        if (e.seq != a->next_seq || a->saw_finish || !a->saw_role) {
            return wrong(a, "a content event out of order", text, len);
        }
        a->next_seq++;
        a->sink->on_content(a->sink->data, &e, now_ns);
        return 0;
    case WIRE_KIND_FINISH:
        if (a->next_seq != a->ask->events || a->saw_finish) {
            return wrong(a, "finished at the wrong place", text, len);
        }
        a->saw_finish = true;
        return 0;
    case WIRE_KIND_USAGE:
        if (e.completion_tokens != a->ask->events || a->saw_usage) {
            return wrong(a, "wrong usage", text, len);
        }
        a->saw_usage = true;
        return 0;
    case WIRE_KIND_DONE: a->saw_done = true; return 0;
    }
    return 0;
}

static int events_check(struct answer *a, uint64_t now_ns)
{
    for (;;) {
        const char *at = a->body.data + a->body.off;
        size_t len = a->body.len - a->body.off;
        const char *end = len ? memmem(at, len, "\n\n", 2) : NULL;
        if (!end) {
            return len > WIRE_EVENT_CAP ? wrong(a, "an event too long", at, len) : 0;
        }
        size_t event_len = (size_t)(end - at) + 2;
        int r = event_check(a, at, event_len, now_ns);
        if (r < 0) {
            return r;
        }
        net_buf_consume(&a->body, event_len);
    }
}

static int body_take(struct answer *a, const char *data, size_t len, uint64_t now_ns)
{
    net_buf_append(&a->body, data, len);
    if (a->status != 200 || !a->ask->stream) {
        return a->body.len > 1024 * 1024 ? wrong(a, "an answer too long", NULL, 0) : 0;
    }
    return events_check(a, now_ns);
}

static int answer_end(struct answer *a)
{
    const char *body = a->body.data + a->body.off;
    size_t len = a->body.len - a->body.off;

    a->state = ANSWER_DONE;
    if (a->status != 200) {
        char why[32];
        snprintf(why, sizeof(why), "status %u", a->status);
        return wrong(a, why, body, len);
    }
    if (!a->ask->stream) {
        return wire_answer_check(body, len, a->ask) ? 1 : wrong(a, "not the answer", body, len);
    }
    if (len) {
        return wrong(a, "half an event at the end", body, len);
    }
    if (!a->saw_finish || !a->saw_done || a->saw_usage != a->ask->usage) {
        return wrong(a, "a stream without its end", NULL, 0);
    }
    return 1;
}

/* ---- framing ------------------------------------------------------------------------------- */

static const char *field(const char *line, size_t len, const char *name)
{
    size_t n = strlen(name);

    if (len <= n || strncasecmp(line, name, n) != 0 || line[n] != ':') {
        return NULL;
    }
    line += n + 1;
    return line + strspn(line, " \t");
}

/* The whole head is in `line`, NUL terminated behind its empty line. */
static int head_read(struct answer *a)
{
    const char *at = a->line.data;
    const char *value;
    bool chunked = false, sized = false;

    if (strncmp(at, "HTTP/1.1 ", 9) != 0) {
        return wrong(a, "not HTTP/1.1", at, strcspn(at, "\r"));
    }
    a->status = (unsigned)strtoul(at + 9, NULL, 10);
    while ((at = strstr(at, "\r\n")) != NULL && at[2] != '\r') {
        at += 2;
        size_t len = strcspn(at, "\r");
        if ((value = field(at, len, "content-length"))) {
            sized = true;
            a->left = strtoull(value, NULL, 10);
        } else if ((value = field(at, len, "transfer-encoding"))) {
            chunked = strncasecmp(value, "chunked", 7) == 0;
        } else if ((value = field(at, len, "connection"))) {
            a->close = strncasecmp(value, "close", 5) == 0;
        } else if ((value = field(at, len, "x-failsoft-tier"))) {
            a->tier_named = true;
            snprintf(a->tier, sizeof(a->tier), "%.*s", (int)strcspn(value, "\r"), value);
        }
    }
    if (sized == chunked) {
        return wrong(a, "neither or both of length and chunks", a->line.data, a->line.len);
    }
    a->state = chunked ? ANSWER_CHUNK_SIZE : ANSWER_LENGTH;
    a->line.len = 0;
    return sized && a->left == 0 ? answer_end(a) : 0;
}

/* Moves bytes up to and including `end` into `line`. True when the end is there. */
static bool line_take(struct answer *a, const char *end, const char **data, size_t *len)
{
    size_t end_len = strlen(end);

    while (*len) {
        net_buf_append(&a->line, *data, 1);
        (*data)++;
        (*len)--;
        if (a->line.len >= end_len &&
            memcmp(a->line.data + a->line.len - end_len, end, end_len) == 0) {
            net_buf_append(&a->line, "", 1);
            a->line.len--;
            return true;
        }
    }
    return false;
}

static int frame_read(struct answer *a)
{
    switch (a->state) {
    case ANSWER_HEAD: return head_read(a);
    case ANSWER_CHUNK_SIZE: {
        char *end;
        a->left = strtoull(a->line.data, &end, 16);
        if (end == a->line.data) {
            return wrong(a, "not a chunk size", a->line.data, a->line.len);
        }
        a->state = a->left ? ANSWER_CHUNK : ANSWER_TRAILER;
        break;
    }
    case ANSWER_CHUNK_END:
        if (a->line.len != 2) {
            return wrong(a, "a chunk longer than it said", a->line.data, a->line.len);
        }
        a->state = ANSWER_CHUNK_SIZE;
        break;
    case ANSWER_TRAILER:
        if (a->line.len == 2) {
            return answer_end(a);
        }
        break;
    default: break;
    }
    a->line.len = 0;
    return 0;
}

int answer_feed(struct answer *a, const char *data, size_t len, uint64_t now_ns)
{
    int r = 0;

    while (len && r == 0) {
        if (a->state == ANSWER_DONE) {
            return wrong(a, "bytes behind the end", data, len);
        }
        if (a->state == ANSWER_LENGTH || a->state == ANSWER_CHUNK) {
            size_t n = len < a->left ? len : (size_t)a->left;
            r = body_take(a, data, n, now_ns);
            data += n;
            len -= n;
            a->left -= n;
            if (r == 0 && a->left == 0) {
                r = a->state == ANSWER_LENGTH ? answer_end(a) : 0;
                a->state = a->state == ANSWER_CHUNK ? ANSWER_CHUNK_END : a->state;
            }
        } else if (line_take(a, a->state == ANSWER_HEAD ? "\r\n\r\n" : "\r\n", &data, &len)) {
            r = frame_read(a);
        } else if (a->line.len > HEAD_MAX) {
            r = wrong(a, "a head without an end", a->line.data, a->line.len);
        }
    }
    return r > 0 && len ? wrong(a, "bytes behind the end", data, len) : r;
}
