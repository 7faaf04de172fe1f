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

static void on_answer(const struct http_answer *answer, void *ctx)
{
    struct gateway_worker *w = ctx;
    if (answer->error == 0)
        w->answers = true;
}

static bool is_wanted(const struct gateway_worker *w)
{
    return w->worker && !w->stopping && !worker_is_managed(w->worker) && !w->answers &&
           w->availability.state == AVAILABILITY_STATE_SUSPENDED;
}

static void look(struct gateway_worker *w)
{
    struct http_call_request request = {
        .method = SPAN_LIT("GET"),
        .target = SPAN_LIT("/health"),
        .fresh_connection = true,
    };
    /* One that is under way goes on; one that cannot be started is tried at the next tick. */
    (void)http_ask_start(worker_origin(w->worker), &request, 0, RECHECK_PATIENCE_MS, on_answer, w,
                         &w->recheck);
}

static void on_timer(uv_timer_t *timer)
{
    struct gateway *g = timer->data;
    bool any = false;
    LIST_FOR_EACH(node, &g->workers)
    {
        struct gateway_worker *w = LIST_ENTRY(node, struct gateway_worker, node);
        if (!is_wanted(w)) {
            http_ask_cancel(&w->recheck);
            continue;
        }
        any = true;
        look(w);
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
    http_ask_cancel(&w->recheck);
}
