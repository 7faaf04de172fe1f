/*
 * See unload.h. A call goes through its list of models:
 *
 *   list (where the models are not known) ─► one POST a model ─► outcome
 *
 * One timer for all, running only while a batch waits for its end.
 */
#include "gateway/internal.h"

#include "base/log.h"
#include "worker/loaded_models.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    UNLOAD_TIMER_MS = 250,
    UNLOAD_PATIENCE_MS = 5000,   /* for the answer to one question */
    UNLOAD_BATCH_KEEP_S = 5,     /* what a batch's requests ask for instead of 0 */
    UNLOAD_BATCH_QUIET_MS = 1000 /* without another request: the batch has ended */
};

enum unload_way { UNLOAD_WAY_NONE = 0, UNLOAD_WAY_PATH, UNLOAD_WAY_OLLAMA, UNLOAD_WAY_ROUTER };

struct unload_call {
    struct gateway_worker *worker;
    struct http_ask *ask;
    enum unload_way way;
    bool listing;     /* the list of models is asked for */
    char *path;       /* UNLOAD_WAY_PATH */
    struct buf names; /* of models to unload, each with its NUL */
    size_t next_name; /* offset of the next one */
    struct buf body;  /* of the request; borrowed by the question, as is its span */
    struct span part;
};

static enum unload_way way_of(const struct gateway_worker *w, const struct config_tier *tier)
{
    if (!w->worker || worker_is_managed(w->worker))
        return UNLOAD_WAY_NONE;
    if (tier && tier->unload)
        return UNLOAD_WAY_PATH;
    switch (worker_get_engine(w->worker)) {
    case WORKER_ENGINE_OLLAMA: return UNLOAD_WAY_OLLAMA;
    case WORKER_ENGINE_LLAMA_SERVER:
        return w->unload.single_model ? UNLOAD_WAY_NONE : UNLOAD_WAY_ROUTER;
    default: return UNLOAD_WAY_NONE;
    }
}

bool unload_is_known(const struct gateway_worker *w)
{
    return way_of(w, generation_tier_of(w)) != UNLOAD_WAY_NONE;
}

/* --- the call --- */

static void end_call(struct gateway_worker *w)
{
    struct unload_call *u = w->unload.call;
    if (!u)
        return;
    w->unload.call = NULL;
    http_ask_cancel(&u->ask);
    buf_free(&u->names);
    buf_free(&u->body);
    free(u->path);
    free(u);
}

static void finish(struct gateway_worker *w, enum unload_outcome outcome, const char *why)
{
    struct gateway_unload *u = &w->unload;
    end_call(w);
    u->outcome = outcome;
    u->answered_ms = uv_now(w->gateway->loop);
    snprintf(u->why, sizeof(u->why), "%s", why);
    if (outcome == UNLOAD_FAILED)
        log_warning("worker", "%s/%s: its unload failed: %s", w->service, w->tier, why);
    /* What came back is seen with the next figures. */
    if (w->device[0] && w->gateway->monitor)
        device_monitor_poke(w->gateway->monitor, w->device);
}

static void on_answer(const struct http_answer *answer, void *ctx);

static void send_call(struct unload_call *u, const char *method, const char *path)
{
    struct gateway_worker *w = u->worker;
    struct http_fields *fields = scratch_fields(w->gateway);
    bool post = !u->listing;
    u->part = buf_span(&u->body);
    struct http_call_request request = {
        .method = span_from_str(method),
        .target = span_from_str(path),
        .fields = fields,
        .body = &u->part,
        .body_count = post ? 1U : 0U,
        .has_body = post,
        .fresh_connection = true,
        .beside_v1 = true,
    };
    int r =
        post ? http_fields_add(fields, SPAN_LIT("Content-Type"), SPAN_LIT("application/json")) : 0;
    if (r == 0)
        r = http_ask_start(worker_origin(w->worker), &request, LOADED_MODELS_PAGE_BYTES,
                           UNLOAD_PATIENCE_MS, on_answer, u, &u->ask);
    if (r < 0)
        finish(w, UNLOAD_FAILED, strerror(-r));
}

/* Asks for the next model to go, or is done. */
static void unload_next(struct unload_call *u)
{
    struct gateway_worker *w = u->worker;
    if (u->next_name >= u->names.len) {
        finish(w, UNLOAD_DONE, "");
        return;
    }
    const char *name = u->names.data + u->next_name;
    u->next_name += strlen(name) + 1;
    buf_free(&u->body);
    int r = buf_append_str(&u->body, "{\"model\":\"");
    if (r == 0)
        r = buf_append_json(&u->body, span_from_str(name));
    if (r == 0)
        r = buf_append_str(&u->body, u->way == UNLOAD_WAY_OLLAMA ? "\",\"keep_alive\":0}" : "\"}");
    if (r < 0) {
        finish(w, UNLOAD_FAILED, strerror(-r));
        return;
    }
    log_info("worker", "%s/%s: is asked to unload %s", w->service, w->tier, name);
    send_call(u, "POST", u->way == UNLOAD_WAY_OLLAMA ? "/api/generate" : "/models/unload");
}

static void take_list(struct unload_call *u, struct span page)
{
    struct gateway_worker *w = u->worker;
    const struct config_tier *tier = generation_tier_of(w);
    int count = u->way == UNLOAD_WAY_OLLAMA
                    ? loaded_models_ollama(page, &u->names)
                    : loaded_models_router(page, tier ? tier->model : NULL, &u->names);
    u->listing = false;
    if (count == -ENOTSUP) {
        w->unload.single_model = true;
        finish(w, UNLOAD_IMPOSSIBLE, "");
    } else if (count < 0) {
        finish(w, UNLOAD_FAILED, "its list of models cannot be read");
    } else if (count == 0) {
        finish(w, UNLOAD_EMPTY, "");
    } else {
        unload_next(u);
    }
}

static const char *failure_text(const struct http_answer *answer)
{
    if (answer->error == -ETIME)
        return "no answer in time";
    return answer->connected ? "the connection broke" : "nobody listens";
}

static void on_answer(const struct http_answer *answer, void *ctx)
{
    struct unload_call *u = ctx;
    struct gateway_worker *w = u->worker;
    if (answer->error < 0) {
        finish(w, UNLOAD_FAILED, failure_text(answer));
    } else if (u->listing && u->way == UNLOAD_WAY_ROUTER && answer->status == 404) {
        /* Builds from before the router have no such page. */
        w->unload.single_model = true;
        finish(w, UNLOAD_IMPOSSIBLE, "");
    } else if (answer->status < 200 || answer->status > 299) {
        char why[32];
        snprintf(why, sizeof(why), "HTTP %d", answer->status);
        finish(w, UNLOAD_FAILED, why);
    } else if (!u->listing) {
        unload_next(u); /* the status says enough */
    } else if (answer->too_long) {
        finish(w, UNLOAD_FAILED, "its list of models is too long");
    } else {
        take_list(u, answer->body);
    }
}

/* `model`: of Ollama, only this one; NULL: what the tier says, or all that are loaded. */
static void start_call(struct gateway_worker *w, const char *model)
{
    const struct config_tier *tier = generation_tier_of(w);
    enum unload_way way = model ? UNLOAD_WAY_OLLAMA : way_of(w, tier);
    end_call(w);
    if (way == UNLOAD_WAY_NONE) {
        finish(w, UNLOAD_IMPOSSIBLE, "");
        return;
    }
    struct unload_call *u = calloc(1, sizeof(*u));
    if (!u) {
        finish(w, UNLOAD_FAILED, strerror(ENOMEM));
        return;
    }
    u->worker = w;
    u->way = way;
    buf_init(&u->names, LOADED_MODELS_NAMES_BYTES);
    buf_init(&u->body, 8 * UNLOAD_MODEL_BYTES);
    w->unload.call = u;
    w->unload.outcome = UNLOAD_ASKED;
    if (!model && way == UNLOAD_WAY_OLLAMA && tier)
        model = tier->model;
    int r = 0;
    if (way == UNLOAD_WAY_PATH) {
        u->path = strdup(tier->unload);
        r = u->path ? buf_append_str(&u->body, "{}") : -ENOMEM;
    } else if (way == UNLOAD_WAY_OLLAMA && model) {
        r = buf_append(&u->names, model, strlen(model) + 1);
    }
    if (r < 0) {
        finish(w, UNLOAD_FAILED, strerror(-r));
    } else if (way == UNLOAD_WAY_PATH) {
        log_info("worker", "%s/%s: is asked to unload (%s)", w->service, w->tier, u->path);
        send_call(u, "POST", u->path);
    } else if (u->names.len > 0) {
        unload_next(u);
    } else {
        u->listing = true;
        send_call(u, "GET", way == UNLOAD_WAY_OLLAMA ? "/api/ps" : "/models");
    }
}

void unload_start(struct gateway_worker *w)
{
    w->unload.due_ms = 0;
    start_call(w, NULL);
}

/* --- the end of a batch --- */

static void on_timer(uv_timer_t *timer)
{
    struct gateway *g = timer->data;
    uint64_t now_ms = uv_now(g->loop);
    bool any = false;
    LIST_FOR_EACH(node, &g->workers)
    {
        struct gateway_worker *w = LIST_ENTRY(node, struct gateway_worker, node);
        struct gateway_unload *u = &w->unload;
        if (u->due_ms > 0 && now_ms >= u->due_ms) {
            u->due_ms = 0;
            if (!w->yielded)
                start_call(w, u->model);
        }
        any = any || u->due_ms > 0;
    }
    if (!any)
        uv_timer_stop(timer);
}

static void start_timer(struct gateway *g)
{
    if (!uv_is_closing((uv_handle_t *)&g->unload_timer) &&
        !uv_is_active((uv_handle_t *)&g->unload_timer))
        uv_timer_start(&g->unload_timer, on_timer, UNLOAD_TIMER_MS, UNLOAD_TIMER_MS);
}

bool unload_keeps_for_batch(const struct gateway_request *r, const struct config_tier *tier,
                            struct api_edit_options *options)
{
    struct gateway_worker *w = r->attempt.worker;
    const struct api_demand *d = &r->demand;
    const char *model = tier->model ? tier->model : r->api->model;
    bool at_once = d->keep_alive_given && !d->keep_alive_forever && d->keep_alive_ms == 0;
    /* Without a prompt it is no item of a batch but the order to unload. */
    if (!at_once || r->route.dialect != API_DIALECT_OLLAMA || d->prompt_bytes == 0 ||
        worker_get_engine(w->worker) != WORKER_ENGINE_OLLAMA ||
        tier->keep_alive_max_ms < UNLOAD_BATCH_KEEP_S * 1000U || !model ||
        strlen(model) >= sizeof(w->unload.model))
        return false;
    snprintf(w->unload.model, sizeof(w->unload.model), "%s", model);
    options->set_keep_alive = true;
    options->keep_alive_s = UNLOAD_BATCH_KEEP_S;
    return true;
}

void unload_batch_goes_on(struct gateway_worker *w)
{
    w->unload.due_ms = 0;
}

void unload_batch_ended(struct gateway_worker *w)
{
    /* Whoever still runs there says with its own request how long the model is to stay. */
    if (w->running > 0 || w->waiting_count > 0 || w->stopping || !w->worker)
        return;
    w->unload.due_ms = uv_now(w->gateway->loop) + UNLOAD_BATCH_QUIET_MS;
    start_timer(w->gateway);
}

/* --- lifetime --- */

void unload_init(struct gateway *g)
{
    uv_timer_init(g->loop, &g->unload_timer);
    g->unload_timer.data = g;
}

void unload_worker_gone(struct gateway_worker *w)
{
    end_call(w);
    w->unload.due_ms = 0;
}
