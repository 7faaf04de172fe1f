/*
 * Whether a suspended external worker answers again. Its next request is the probe that decides
 * (policy/availability); this look only tells the status pages that there is something to try, or
 * whoever waits for `/readyz` before sending a request would wait for ever.
 *
 * One timer for all, running only while some external worker is suspended. Any HTTP answer counts:
 * it proves that somebody listens, nothing more. Loop thread only.
 */
#include "gateway/internal.h"

enum {
    RECHECK_INTERVAL_MS = 1000,
    RECHECK_PATIENCE_MS = 2000,
};

static void end_call(struct gateway_worker *w)
{
    if (w->recheck_call)
        http_call_cancel(w->recheck_call);
    w->recheck_call = NULL;
}

static void on_head(struct http_call *c, int status, const struct http_fields *fields, void *ctx)
{
    (void)c;
    (void)status;
    (void)fields;
    struct gateway_worker *w = ctx;
    w->answers = true;
    end_call(w);
}

static void on_body(struct http_call *c, struct span bytes, void *ctx)
{
    (void)c;
    (void)bytes;
    (void)ctx;
}

static void on_done(struct http_call *c, void *ctx)
{
    (void)c;
    struct gateway_worker *w = ctx;
    w->recheck_call = NULL;
}

static void on_fail(struct http_call *c, const struct http_call_failure *failure, void *ctx)
{
    (void)c;
    (void)failure;
    struct gateway_worker *w = ctx;
    w->recheck_call = NULL;
}

static const struct http_call_handler handler = {
    .on_head = on_head, .on_body = on_body, .on_done = on_done, .on_fail = on_fail};

static bool is_wanted(const struct gateway_worker *w)
{
    return w->worker && !w->stopping && !worker_is_managed(w->worker) && !w->answers &&
           w->availability.state == AVAILABILITY_STATE_SUSPENDED;
}

static void look(struct gateway_worker *w, uint64_t now_ms)
{
    if (w->recheck_call) {
        if (now_ms - w->recheck_started_ms >= RECHECK_PATIENCE_MS)
            end_call(w);
        return;
    }
    struct http_call_request request = {
        .method = SPAN_LIT("GET"),
        .target = SPAN_LIT("/health"),
        .fresh_connection = true,
    };
    w->recheck_started_ms = now_ms;
    if (http_call_start(worker_origin(w->worker), &request, &handler, w, &w->recheck_call) < 0)
        w->recheck_call = NULL;
}

static void on_timer(uv_timer_t *timer)
{
    struct gateway *g = timer->data;
    bool any = false;
    LIST_FOR_EACH(node, &g->workers)
    {
        struct gateway_worker *w = LIST_ENTRY(node, struct gateway_worker, node);
        if (!is_wanted(w)) {
            end_call(w);
            continue;
        }
        any = true;
        look(w, uv_now(g->loop));
    }
    if (!any)
        uv_timer_stop(timer);
}

void recheck_init(struct gateway *g)
{
    uv_timer_init(g->loop, &g->recheck);
    g->recheck.data = g;
}

void recheck_worker_suspended(struct gateway_worker *w)
{
    struct gateway *g = w->gateway;
    w->answers = false;
    if (!uv_is_closing((uv_handle_t *)&g->recheck) && !uv_is_active((uv_handle_t *)&g->recheck))
        uv_timer_start(&g->recheck, on_timer, RECHECK_INTERVAL_MS, RECHECK_INTERVAL_MS);
}

void recheck_worker_gone(struct gateway_worker *w)
{
    end_call(w);
}
