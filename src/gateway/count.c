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
    struct gateway_request *request;
    struct http_ask *ask;
    void (*done)(struct gateway_request *r, bool known, uint64_t tokens);
    struct count_tokens_plan plan;
    struct api_edit edit;
    bool has_edit;
    struct span parts[API_EDIT_PARTS_MAX]; /* borrowed by the question */
};

static void count_end(struct count *count)
{
    http_ask_cancel(&count->ask);
    if (count->has_edit)
        api_edit_free(&count->edit);
    count->request->count = NULL;
    free(count);
}

static void on_answer(const struct http_answer *answer, void *ctx)
{
    struct count *count = ctx;
    struct gateway_request *r = count->request;
    void (*done)(struct gateway_request *, bool, uint64_t) = count->done;
    uint64_t tokens = 0;
    bool known = answer->status == 200 && !answer->too_long &&
                 count_tokens_read(&count->plan, answer->body, &tokens);
    count_end(count);
    done(r, known, tokens);
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

static int ask(struct count *count, struct gateway_worker *w)
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
        error = http_ask_start(worker_origin(w->worker), &request, COUNT_TOKENS_ANSWER_BYTES,
                               COUNT_PATIENCE_MS, on_answer, count, &count->ask);
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
    r->count = count;
    int error = ask(count, w);
    if (error < 0)
        count_end(count);
    return error;
}

void count_cancel(struct gateway_request *r)
{
    if (r->count)
        count_end(r->count);
}
