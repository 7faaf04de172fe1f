/*
 * The exact length of a request's prompt, asked of the worker that would run it: its tokenizer and
 * its chat template decide, and nobody else knows them. One short call a request, before it is
 * admitted; when the answer does not come at once, the bound by bytes has to do.
 *
 * The credentials of the client go along: an engine with an API key answers nobody else.
 * Loop thread only.
 */
#include "gateway/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT_PATIENCE_MS = 1000 };

struct count {
    uv_timer_t timer; /* freed when it is closed */
    struct gateway_request *request;
    struct http_call *call;
    void (*done)(struct gateway_request *r, bool known, uint64_t tokens);
    struct count_tokens_plan plan;
    struct api_edit edit;
    bool has_edit;
    struct span parts[API_EDIT_PARTS_MAX]; /* borrowed by the call */
    struct buf answer;
    int status;
};

static void on_closed(uv_handle_t *handle)
{
    free(handle->data);
}

/* Lets go of it; the timer frees the rest. */
static void count_end(struct count *count)
{
    if (count->call)
        http_call_cancel(count->call);
    count->call = NULL;
    if (count->has_edit)
        api_edit_free(&count->edit);
    buf_free(&count->answer);
    count->request->count = NULL;
    uv_timer_stop(&count->timer);
    uv_close((uv_handle_t *)&count->timer, on_closed);
}

static void count_finish(struct count *count, bool known, uint64_t tokens)
{
    struct gateway_request *r = count->request;
    void (*done)(struct gateway_request *, bool, uint64_t) = count->done;
    count_end(count);
    done(r, known, tokens);
}

static void on_head(struct http_call *c, int status, const struct http_fields *fields, void *ctx)
{
    (void)c;
    (void)fields;
    struct count *count = ctx;
    count->status = status;
}

static void on_body(struct http_call *c, struct span bytes, void *ctx)
{
    (void)c;
    struct count *count = ctx;
    if (buf_append_span(&count->answer, bytes) < 0)
        count_finish(count, false, 0);
}

static void on_done(struct http_call *c, void *ctx)
{
    (void)c;
    struct count *count = ctx;
    uint64_t tokens = 0;
    count->call = NULL;
    bool known =
        count->status == 200 && count_tokens_read(&count->plan, buf_span(&count->answer), &tokens);
    count_finish(count, known, tokens);
}

static void on_fail(struct http_call *c, const struct http_call_failure *failure, void *ctx)
{
    (void)c;
    (void)failure;
    struct count *count = ctx;
    count->call = NULL;
    count_finish(count, false, 0);
}

static const struct http_call_handler handler = {
    .on_head = on_head, .on_body = on_body, .on_done = on_done, .on_fail = on_fail};

static void on_timeout(uv_timer_t *timer)
{
    count_finish(timer->data, false, 0);
}

/* The worker's own name of the model, NULL: the client's. */
static const char *model_of(const struct gateway_request *r, const struct gateway_worker *w)
{
    for (size_t i = 0; i < r->service->tier_count; i++)
        if (r->service->tiers[i].worker == w)
            return r->service->tiers[i].config->model;
    return NULL;
}

static bool plan_for(const struct gateway_request *r, const struct gateway_worker *w,
                     struct count_tokens_plan *ret)
{
    if (!r->exchange || !r->api || !r->service || !w->worker || w->stopping ||
        !worker_is_usable(w->worker))
        return false;
    return count_tokens_plan(worker_get_engine(w->worker), w->kv_report.engine, r->route.operation,
                             r->api, ret);
}

bool count_can(const struct gateway_request *r, const struct gateway_worker *w)
{
    struct count_tokens_plan plan;
    return plan_for(r, w, &plan);
}

/* 0 with the number of parts in *ret_count. */
static int make_body(struct count *count, const char *model, unsigned *ret_count)
{
    if (count->plan.member) {
        *ret_count = count_tokens_body(&count->plan, model, count->parts);
        return 0;
    }
    struct api_edit_options options = {.model = model};
    int error = api_edit_prepare(count->request->api, &options, &count->edit);
    if (error < 0)
        return error;
    count->has_edit = true;
    *ret_count = api_edit_parts(&count->edit, count->parts);
    return 0;
}

static int make_call(struct count *count, struct gateway_worker *w)
{
    struct gateway_request *r = count->request;
    struct http_fields *fields = scratch_fields(r->gateway);
    struct http_call_request request = {
        .method = SPAN_LIT("POST"),
        .target = span_from_str(count->plan.path),
        .fields = fields,
        .body = count->parts,
        .has_body = true,
        .beside_v1 = true,
    };
    int error = make_body(count, model_of(r, w), &request.body_count);
    if (error == 0)
        error = headers_for_worker(r, fields);
    if (error == 0)
        error = http_call_start(worker_origin(w->worker), &request, &handler, count, &count->call);
    return error;
}

int count_start(struct gateway_request *r, struct gateway_worker *w,
                void (*done)(struct gateway_request *r, bool known, uint64_t tokens))
{
    if (r->count)
        return -EALREADY;
    struct count *count = calloc(1, sizeof(*count));
    if (!count)
        return -ENOMEM;
    if (!plan_for(r, w, &count->plan)) {
        free(count);
        return -ENOTSUP;
    }
    count->request = r;
    count->done = done;
    buf_init(&count->answer, COUNT_TOKENS_ANSWER_BYTES);
    uv_timer_init(r->gateway->loop, &count->timer);
    count->timer.data = count;
    r->count = count;
    int error = make_call(count, w);
    if (error < 0)
        count_end(count);
    else
        uv_timer_start(&count->timer, on_timeout, COUNT_PATIENCE_MS, 0);
    return error;
}

void count_cancel(struct gateway_request *r)
{
    if (r->count)
        count_end(r->count);
}
