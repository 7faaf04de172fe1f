/*
 * See ask.h. The memory lives until libuv has closed the timer, so `done` may cancel whatever it likes;
 * the call is gone by then.
 */
#include "http/ask.h"

#include "base/buf.h"
#include "http/client_internal.h"

#include <errno.h>
#include <stdlib.h>

struct http_ask {
    uv_timer_t timer;       /* the deadline */
    struct http_call *call; /* NULL: ended */
    struct http_ask **slot; /* the caller's */
    void (*done)(const struct http_answer *answer, void *ctx);
    void *ctx;
    struct buf body; /* of the answer */
    int status;
};

static void on_closed(uv_handle_t *handle)
{
    free(handle->data);
}

/* Lets go of everything but the body; the timer's end frees the rest. */
static void ask_close(struct http_ask *a)
{
    *a->slot = NULL;
    if (a->call)
        http_call_cancel(a->call);
    a->call = NULL;
    uv_close((uv_handle_t *)&a->timer, on_closed);
}

static void ask_end(struct http_ask *a, struct http_answer answer)
{
    ask_close(a);
    if (answer.error == 0) {
        answer.connected = true;
        answer.status = a->status;
        answer.body = buf_span(&a->body);
    }
    a->done(&answer, a->ctx);
    buf_free(&a->body);
}

static void on_head(struct http_call *c, int status, const struct http_fields *fields, void *ctx)
{
    (void)c;
    (void)fields;
    struct http_ask *a = ctx;
    a->status = status;
    if (a->body.max == 0)
        ask_end(a, (struct http_answer){.error = 0});
}

static void on_body(struct http_call *c, struct span bytes, void *ctx)
{
    (void)c;
    struct http_ask *a = ctx;
    size_t room = a->body.max - a->body.len;
    if (bytes.len <= room && buf_append_span(&a->body, bytes) == 0)
        return;
    /* What there is may tell enough. */
    (void)buf_append(&a->body, bytes.ptr, bytes.len < room ? bytes.len : room);
    ask_end(a, (struct http_answer){.too_long = true});
}

static void on_done(struct http_call *c, void *ctx)
{
    (void)c;
    struct http_ask *a = ctx;
    a->call = NULL;
    ask_end(a, (struct http_answer){.error = 0});
}

static void on_fail(struct http_call *c, const struct http_call_failure *failure, void *ctx)
{
    (void)c;
    struct http_ask *a = ctx;
    a->call = NULL;
    ask_end(a, (struct http_answer){.error = failure->error, .connected = failure->connected});
}

static void on_timeout(uv_timer_t *timer)
{
    struct http_ask *a = timer->data;
    bool connected = http_call_is_connected(a->call);
    ask_end(a, (struct http_answer){.error = -ETIME, .connected = connected});
}

int http_ask_start(struct http_origin *o, const struct http_call_request *request,
                   size_t max_body_bytes, uint64_t timeout_ms,
                   void (*done)(const struct http_answer *answer, void *ctx), void *ctx,
                   struct http_ask **slot)
{
    static const struct http_call_handler handler = {
        .on_head = on_head, .on_body = on_body, .on_done = on_done, .on_fail = on_fail};
    if (*slot)
        return -EALREADY;
    struct http_ask *a = calloc(1, sizeof(*a));
    if (!a)
        return -ENOMEM;
    int r = http_call_start(o, request, &handler, a, &a->call);
    if (r < 0) {
        free(a);
        return r;
    }
    a->slot = slot;
    a->done = done;
    a->ctx = ctx;
    buf_init(&a->body, max_body_bytes);
    uv_timer_init(o->loop, &a->timer);
    a->timer.data = a;
    uv_timer_start(&a->timer, on_timeout, timeout_ms, 0);
    *slot = a;
    return 0;
}

void http_ask_cancel(struct http_ask **slot)
{
    struct http_ask *a = *slot;
    if (!a)
        return;
    ask_close(a);
    buf_free(&a->body);
}
