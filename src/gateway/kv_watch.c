/*
 * The KV cache of every worker, as its engine reports it (worker/kv_report), kept in
 * gateway_worker.kv for the admission of requests.
 *
 *   managed   asked when it gets ready; what it says of the cache holds until it leaves that state
 *   external  asked when its engine is found, and again while requests run on it or wait for it,
 *             now and then
 *   either    every 2 s while requests need it, where it reports what is in use
 *
 * One call at a time for a worker, with a deadline and a bounded body. An engine that does not say
 * is not known: kv_known stays false, and nothing is decided by its cache. One that falls silent
 * after it has said how much is in use keeps what it has said; after a while nothing more is given
 * to it than it has of ours already.
 *
 * The table of claims outlives every answer: requests hold claims in it, and give them back one by
 * one, whatever the engine says meanwhile.
 *
 * Loop thread only.
 */
#include "gateway/internal.h"

#include "base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    KV_WATCH_PATIENCE_MS = 2000,
    KV_WATCH_USAGE_MS = 2000,  /* between two looks at what is in use */
    KV_WATCH_SHAPE_MS = 30000, /* … at the cache itself: an engine restarts with other settings */
    KV_WATCH_UNKNOWN_MS = 60000, /* … where nothing is to be seen */
    KV_WATCH_STALE_MS = 10000,   /* without an answer for this long */
};

enum kv_page {
    KV_PAGE_NONE = 0,
    KV_PAGE_PROPS,
    KV_PAGE_SLOTS,
    KV_PAGE_METRICS,
    KV_PAGE_MODELS,
    KV_PAGE_SERVER_INFO,
    KV_PAGE_INFO,
    KV_PAGE_PS,
};

/* What is asked of one worker. */
struct kv_ask {
    struct gateway_worker *worker;
    struct http_ask *question; /* the page that is asked for */
    enum kv_page page;
    unsigned asked; /* bit per page */
    bool quick;     /* usage only: what other pages said is taken over */
    struct kv_report report;
};

static const char *page_path(enum kv_page page)
{
    static const char *const paths[] = {
        [KV_PAGE_NONE] = "",
        [KV_PAGE_PROPS] = "/props",
        [KV_PAGE_SLOTS] = "/slots",
        [KV_PAGE_METRICS] = "/metrics",
        [KV_PAGE_MODELS] = "/v1/models",
        [KV_PAGE_SERVER_INFO] = "/get_server_info",
        [KV_PAGE_INFO] = "/info",
        [KV_PAGE_PS] = "/api/ps",
    };
    return paths[page];
}

/* --- what to ask --- */

static bool is_new(const struct kv_ask *ask, enum kv_page page)
{
    return (ask->asked & 1U << page) == 0;
}

static enum kv_page next_openai_page(const struct kv_ask *ask)
{
    const struct kv_report *r = &ask->report;
    if (is_new(ask, KV_PAGE_METRICS))
        return KV_PAGE_METRICS;
    bool capacity_missing =
        r->engine == KV_REPORT_NONE || (r->engine == KV_REPORT_SGLANG && r->cache_tokens == 0);
    if (capacity_missing && is_new(ask, KV_PAGE_SERVER_INFO))
        return KV_PAGE_SERVER_INFO;
    if (r->engine == KV_REPORT_NONE && is_new(ask, KV_PAGE_INFO))
        return KV_PAGE_INFO;
    if (r->engine != KV_REPORT_NONE && r->request_tokens == 0 && is_new(ask, KV_PAGE_MODELS))
        return KV_PAGE_MODELS;
    return KV_PAGE_NONE;
}

static enum kv_page next_page(const struct kv_ask *ask)
{
    struct kv_shape shape;
    switch (worker_get_engine(ask->worker->worker)) {
    case WORKER_ENGINE_LLAMA_SERVER:
        if (is_new(ask, KV_PAGE_PROPS))
            return KV_PAGE_PROPS;
        /* Builds before they said the number of slots there. */
        if (!kv_report_shape(&ask->report, &shape) && is_new(ask, KV_PAGE_SLOTS))
            return KV_PAGE_SLOTS;
        return KV_PAGE_NONE;
    case WORKER_ENGINE_OPENAI: return next_openai_page(ask);
    case WORKER_ENGINE_OLLAMA: return is_new(ask, KV_PAGE_PS) ? KV_PAGE_PS : KV_PAGE_NONE;
    case WORKER_ENGINE_UNKNOWN:
    case WORKER_ENGINE_GENERIC: break;
    }
    return KV_PAGE_NONE;
}

/* The name that the engine knows the tier's model by; NULL: the clients' own. */
static const char *model_of(const struct gateway_worker *w)
{
    const struct config_tier *tier = generation_tier_of(w);
    return tier ? tier->model : NULL;
}

static void read_page(struct kv_ask *ask, struct span body)
{
    struct kv_report *r = &ask->report;
    switch (ask->page) {
    case KV_PAGE_NONE: break;
    case KV_PAGE_PROPS: (void)kv_report_props(r, body); break;
    case KV_PAGE_SLOTS: (void)kv_report_slots(r, body); break;
    case KV_PAGE_METRICS: (void)kv_report_metrics(r, body); break;
    case KV_PAGE_MODELS: (void)kv_report_models(r, body); break;
    case KV_PAGE_SERVER_INFO: (void)kv_report_server_info(r, body); break;
    case KV_PAGE_INFO: (void)kv_report_info(r, body); break;
    case KV_PAGE_PS: (void)kv_report_ps(r, body, model_of(ask->worker), ask->worker->slots); break;
    }
}

/* --- what is known --- */

static void say_shape(const struct gateway_worker *w)
{
    static const char *const kinds[] = {
        [KV_KIND_SLOTS] = "divided among its slots",
        [KV_KIND_UNIFIED] = "shared by its slots",
        [KV_KIND_PAGED] = "in pages",
    };
    const struct kv_shape *s = &w->kv.shape;
    log_info("worker",
             "%s/%s: KV cache of %" PRIu64 " tokens %s, requests of at most %" PRIu64 " tokens",
             w->service, w->tier, s->tokens, kinds[s->kind], kv_request_max(&w->kv));
}

/* Claims that are held stay as they are: only what is counted against changes. */
static bool take_shape(struct gateway_worker *w, const struct kv_shape *shape)
{
    struct kv sound;
    struct kv_claim none[1];
    if (kv_init(&sound, shape, none, 1) < 0)
        return false;
    if (!w->kv.claims)
        return kv_init(&w->kv, shape, w->kv_claims, GATEWAY_KV_CLAIMS) == 0;
    w->kv.shape = *shape;
    return true;
}

static void forget(struct gateway_worker *w)
{
    if (w->kv_known)
        log_info("worker", "%s/%s: KV cache not known any more", w->service, w->tier);
    w->kv_known = false;
    w->kv_silent_since_ms = 0;
    w->kv.others_tokens = 0;
    w->kv_report = (struct kv_report){0};
}

static void publish(struct gateway_worker *w, const struct kv_report *report)
{
    struct kv_shape shape, before = w->kv.shape;
    uint64_t used;
    bool was_known = w->kv_known;
    if (!kv_report_shape(report, &shape) || !take_shape(w, &shape)) {
        forget(w);
        w->kv_report.engine = report->engine;
        return;
    }
    w->kv_report = *report;
    w->kv_known = true;
    w->kv_seen_ms = uv_now(w->gateway->loop);
    if (kv_report_used(report, &shape, &used))
        kv_observe(&w->kv, used);
    if (!was_known || before.tokens != shape.tokens || before.kind != shape.kind ||
        before.request_tokens != shape.request_tokens)
        say_shape(w);
}

/* --- asking --- */

static void end_ask(struct gateway_worker *w)
{
    struct kv_ask *ask = w->kv_ask;
    if (!ask)
        return;
    w->kv_ask = NULL;
    http_ask_cancel(&ask->question);
    free(ask);
}

static uint64_t pause_until_next(const struct gateway_worker *w)
{
    if (!w->kv_known && w->kv_report.engine != KV_REPORT_LLAMA_SERVER &&
        w->kv_report.engine != KV_REPORT_OLLAMA)
        return KV_WATCH_UNKNOWN_MS;
    bool moves = !w->kv_known || w->kv_report.usage_known || w->kv_report.usage_broken ||
                 w->kv_report.engine == KV_REPORT_OLLAMA;
    return moves ? KV_WATCH_USAGE_MS : KV_WATCH_SHAPE_MS;
}

static void finish(struct kv_ask *ask)
{
    struct gateway_worker *w = ask->worker;
    uint64_t now_ms = uv_now(w->gateway->loop);
    publish(w, &ask->report);
    if (!ask->quick)
        w->kv_shape_ms = now_ms;
    w->kv_silent_since_ms = 0;
    w->kv_next_ms = now_ms + pause_until_next(w);
    end_ask(w);
    gateway_worker_pump(w); /* there may be room now for those who wait */
}

/* No answer, or one that tells of a passing trouble: what was known stays. */
static void give_up(struct gateway_worker *w)
{
    w->kv_next_ms = uv_now(w->gateway->loop) + KV_WATCH_USAGE_MS;
    end_ask(w);
}

static void on_answer(const struct http_answer *answer, void *ctx);

/* Asks for the next page, or is done. */
static void go_on(struct kv_ask *ask)
{
    struct gateway_worker *w = ask->worker;
    ask->page = next_page(ask);
    if (ask->page == KV_PAGE_NONE) {
        finish(ask);
        return;
    }
    ask->asked |= 1U << ask->page;
    struct http_call_request request = {
        .method = SPAN_LIT("GET"),
        .target = span_from_str(page_path(ask->page)),
        .beside_v1 = true,
        .fresh_connection = true,
    };
    if (http_ask_start(worker_origin(w->worker), &request, KV_REPORT_BODY_BYTES,
                       KV_WATCH_PATIENCE_MS, on_answer, ask, &ask->question) < 0)
        give_up(w);
}

static void on_answer(const struct http_answer *answer, void *ctx)
{
    struct kv_ask *ask = ctx;
    struct gateway_worker *w = ask->worker;
    /* Nobody listens: what comes back there may be another engine. */
    if (answer->error < 0 && answer->error != -ETIME && !answer->connected)
        forget(w);
    if (answer->error < 0 || (answer->status >= 500 && answer->status != 501)) {
        give_up(w);
        return;
    }
    /* Half a page is no page: nothing of it is believed. */
    if (answer->status == 200 && !answer->too_long)
        read_page(ask, answer->body);
    go_on(ask);
}

static void start_ask(struct gateway_worker *w, bool quick)
{
    struct kv_ask *ask = w->kv_ask ? NULL : calloc(1, sizeof(*ask));
    if (!ask)
        return;
    ask->worker = w;
    ask->quick = quick;
    if (quick) {
        ask->report.request_tokens = w->kv_report.request_tokens;
        ask->report.cache_tokens = w->kv_report.cache_tokens;
        ask->report.page_tokens = w->kv_report.page_tokens;
    }
    const struct worker_options *o = worker_get_options(w->worker);
    if (worker_is_managed(w->worker))
        kv_report_arguments(&ask->report,
                            (uint64_t)worker_context_tokens(w->worker) * (o->slots ? o->slots : 1),
                            o->args, o->arg_count);
    w->kv_ask = ask;
    if (w->kv_silent_since_ms == 0)
        w->kv_silent_since_ms = uv_now(w->gateway->loop);
    go_on(ask);
}

static bool can_be_asked(const struct gateway_worker *w)
{
    if (!w->worker || w->stopping || !worker_is_usable(w->worker))
        return false;
    enum worker_engine engine = worker_get_engine(w->worker);
    return engine != WORKER_ENGINE_UNKNOWN && engine != WORKER_ENGINE_GENERIC;
}

/* --- for the others --- */

void kv_watch_worker_changed(struct gateway_worker *w)
{
    end_ask(w);
    forget(w);
    if (can_be_asked(w))
        start_ask(w, false);
}

void kv_watch_worker_gone(struct gateway_worker *w)
{
    end_ask(w);
    forget(w);
}

/* What is in use was told, and is not any more: all that is not ours counts as somebody's. */
static void distrust(struct gateway_worker *w, uint64_t now_ms)
{
    if (w->kv_known && w->kv_report.usage_known && w->kv_silent_since_ms > 0 &&
        now_ms - w->kv_silent_since_ms >= KV_WATCH_STALE_MS)
        kv_observe(&w->kv, w->kv.shape.tokens);
}

void kv_watch_tick(struct gateway *g, uint64_t now_ms)
{
    LIST_FOR_EACH(node, &g->workers)
    {
        struct gateway_worker *w = LIST_ENTRY(node, struct gateway_worker, node);
        if ((w->running == 0 && w->waiting_count == 0) || !can_be_asked(w))
            continue;
        /* Its state changes when anything does, except how much is in use. */
        bool moves = w->kv_report.usage_known || w->kv_report.usage_broken;
        if (worker_is_managed(w->worker) && w->kv_known && !moves)
            continue;
        if (!w->kv_ask && now_ms >= w->kv_next_ms) {
            bool quick = w->kv_known && now_ms - w->kv_shape_ms < KV_WATCH_SHAPE_MS;
            start_ask(w, quick);
        }
        distrust(w, now_ms);
    }
}
