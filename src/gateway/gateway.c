/*
 * The gateway as a whole: start, the tick that watches deadlines, reload, stop.
 *
 * One timer watches the deadlines of all requests, ten times a second, and only while there are
 * requests: they are seconds long, and a timer each would cost memory on every stream.
 *
 *   stop: drain (no new connections) ─► running requests end, or are cancelled after the grace
 *         ─► server closed, workers stopped ─► on_stopped
 *
 * Loop thread only.
 */
#include "gateway/internal.h"

#include "base/log.h"
#include "config/state_dir.h"
#include "gateway/learned.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void server_limits(const struct config *config, struct http_server_limits *ret)
{
    const struct config_limits *c = &config->limits;
    http_server_limits_default(ret);
    ret->head_bytes = (size_t)c->head_bytes;
    ret->body_bytes = (size_t)c->body_bytes;
    ret->write_queue_bytes = (size_t)c->write_queue_bytes;
    ret->head_timeout_ms = c->head_timeout_ms;
    ret->idle_timeout_ms = c->idle_timeout_ms;
    ret->body_timeout_ms = c->body_timeout_ms;
    ret->write_timeout_ms = c->write_timeout_ms;
    if (c->max_connections > 0 && c->max_connections < ret->max_connections)
        ret->max_connections = c->max_connections;
}

static void on_request(struct http_exchange *x, void *ctx)
{
    request_begin(ctx, x);
}

static void on_head(struct http_exchange *x, void *ctx)
{
    (void)ctx;
    /* Until it is a request of ours, nobody needs to hear that the client left. */
    http_exchange_set_user(x, NULL);
}

static void on_gone(struct http_exchange *x, void *ctx)
{
    (void)ctx;
    request_client_gone(x);
}

static void on_drained(struct http_exchange *x, void *ctx)
{
    (void)ctx;
    struct gateway_request *r = http_exchange_user(x);
    if (r)
        attempt_resume(r);
}

static const struct http_server_handler server_handler = {
    .on_head = on_head,
    .on_request = on_request,
    .on_drained = on_drained,
    .on_gone = on_gone,
    .on_refused = answer_refused,
};

static void on_timer_closed(uv_handle_t *handle)
{
    struct gateway *g = handle->data;
    g->timers_open--;
    gateway_check_stopped(g);
}

static void on_server_closed(void *ctx)
{
    struct gateway *g = ctx;
    g->server_closed = true;
    gateway_check_stopped(g);
}

static void gateway_free(struct gateway *g)
{
    LIST_FOR_EACH(node, &g->counters)
    {
        struct gateway_counters *c = LIST_ENTRY(node, struct gateway_counters, node);
        free(c->service);
        free(c);
    }
    http_fields_free(&g->scratch);
    free(g->config_error);
    free(g);
}

static void close_timers(struct gateway *g)
{
    uv_timer_stop(&g->tick);
    uv_timer_stop(&g->recheck);
    uv_timer_stop(&g->unload_timer);
    uv_close((uv_handle_t *)&g->tick, on_timer_closed);
    uv_close((uv_handle_t *)&g->recheck, on_timer_closed);
    uv_close((uv_handle_t *)&g->unload_timer, on_timer_closed);
}

static void on_learned_closed(void *ctx)
{
    struct gateway *g = ctx;
    g->learned_open = false;
    gateway_check_stopped(g);
}

/* Writes what was learned; nothing is learned from then on. */
static void close_learned(struct gateway *g)
{
    struct learned *learned = g->learned;
    g->learned = NULL;
    learned_close(learned, on_learned_closed, g);
}

static int open_learned(struct gateway *g, const struct config *config)
{
    char path[PATH_MAX];
    int r = state_dir_path(config, STATE_DIR_LEARNED, path, sizeof(path));
    if (r < 0) {
        log_info("learning", "no folder to keep what is learned in: set `state_dir`");
        path[0] = '\0';
    }
    r = learned_open(g->loop, path, LEARNED_WRITE_AFTER_MS, &g->learned);
    g->learned_open = r == 0;
    return r;
}

/* No request is left: let go of everything else. */
static void gateway_let_go(struct gateway *g)
{
    struct generation *last = g->current;
    if (!last)
        return;
    g->current = NULL;
    http_server_close(g->server, on_server_closed, g);
    LIST_FOR_EACH(node, &g->workers)
    gateway_worker_stop(LIST_ENTRY(node, struct gateway_worker, node));
    devices_stop(g);
    generation_unref(last);
    close_learned(g);
    close_timers(g);
}

void gateway_check_stopped(struct gateway *g)
{
    if (!g->stopping || g->current || !g->server_closed || g->timers_open > 0 ||
        g->workers_open > 0 || g->learned_open)
        return;
    void (*on_stopped)(void *) = g->on_stopped;
    void *ctx = g->on_stopped_ctx;
    gateway_free(g);
    if (on_stopped)
        on_stopped(ctx);
}

static void gateway_tick(uv_timer_t *timer)
{
    struct gateway *g = timer->data;
    uint64_t now_ms = uv_now(g->loop);
    bool cancel = g->stopping && (g->forced || now_ms >= g->stop_deadline_ms);
    kv_watch_tick(g, now_ms);
    /* A step may end other requests than its own: mark the place by number, not by node. */
    uint64_t seen = 0;
    for (bool found = true; found;) {
        found = false;
        LIST_FOR_EACH(node, &g->requests)
        {
            struct gateway_request *r = LIST_ENTRY(node, struct gateway_request, node);
            if (r->number <= seen)
                continue;
            seen = r->number;
            found = true;
            if (cancel)
                request_step(r, LIFECYCLE_EVENT_CANCEL);
            else if (request_needs_tick(r, now_ms))
                request_tick(r, now_ms);
            else
                continue;
            break;
        }
    }
    if (g->stopping && g->request_count == 0)
        gateway_let_go(g);
    else if (g->request_count == 0)
        uv_timer_stop(&g->tick);
}

void gateway_start_tick(struct gateway *g)
{
    if (!uv_is_active((uv_handle_t *)&g->tick) && !uv_is_closing((uv_handle_t *)&g->tick))
        uv_timer_start(&g->tick, gateway_tick, GATEWAY_TICK_MS, GATEWAY_TICK_MS);
}

static uint32_t make_seed(const struct gateway *g)
{
    uint64_t mixed = ((uint64_t)(unsigned)getpid() * 0x9E3779B97F4A7C15ULL) ^ uv_hrtime() ^
                     (uint64_t)(uintptr_t)g;
    return (uint32_t)(mixed ^ (mixed >> 32));
}

int gateway_start(uv_loop_t *loop, struct config *config, const struct gateway_options *options,
                  struct gateway **ret_gateway, const char **ret_what)
{
    struct gateway *g = calloc(1, sizeof(*g));
    if (!g) {
        config_free(config);
        *ret_what = "memory";
        return -ENOMEM;
    }
    g->loop = loop;
    g->options = *options;
    g->started_ms = uv_now(loop);
    snprintf(g->id_prefix, sizeof(g->id_prefix), "fs-%08x-", make_seed(g));
    g->config_generation = 1;
    g->admission = config->admission == CONFIG_SWITCH_ON;
    list_init(&g->generations);
    list_init(&g->workers);
    list_init(&g->requests);
    list_init(&g->counters);
    list_init(&g->devices);
    struct http_server_limits limits;
    server_limits(config, &limits);
    /* Listening comes first: a taken port must not start engines. */
    int r = http_server_listen(loop, config->host, config->port, &limits, &server_handler, g,
                               &g->server);
    if (r < 0) {
        *ret_what = "listen";
        config_free(config);
        gateway_free(g);
        return r;
    }
    uv_timer_init(loop, &g->tick);
    g->tick.data = g;
    recheck_init(g);
    unload_init(g);
    g->timers_open = 3;
    r = open_learned(g, config);
    if (r == 0)
        r = devices_start(g, config);
    if (r < 0)
        config_free(config);
    else
        r = generation_create(g, config, &g->current);
    if (r < 0) {
        devices_stop(g);
        *ret_what = "workers";
        g->stopping = true;
        http_server_close(g->server, on_server_closed, g);
        close_learned(g);
        close_timers(g);
        return r;
    }
    *ret_gateway = g;
    return 0;
}

uint16_t gateway_port(const struct gateway *g)
{
    return http_server_port(g->server);
}

void gateway_set_config_error(struct gateway *g, const char *text)
{
    free(g->config_error);
    g->config_error = text ? strdup(text) : NULL;
}

int gateway_reload(struct gateway *g, struct config *config, const char **ret_warning)
{
    *ret_warning = NULL;
    if (g->stopping) {
        config_free(config);
        return -ECANCELED;
    }
    const struct config *old_config = g->current->config;
    if (strcmp(old_config->host, config->host) != 0 || old_config->port != config->port)
        *ret_warning = "`listen` changed: that takes a restart, the old address stays";
    struct http_server_limits limits;
    server_limits(config, &limits);
    struct generation *fresh;
    bool admission = g->admission;
    g->admission = config->admission == CONFIG_SWITCH_ON;
    int r = generation_create(g, config, &fresh);
    if (r < 0) {
        g->admission = admission;
        return r;
    }
    struct generation *old = g->current;
    g->current = fresh;
    g->config_generation++;
    gateway_set_config_error(g, NULL);
    http_server_set_limits(g->server, &limits);
    if (!devices_reload(g, config))
        *ret_warning =
            "`devices` changed: their telemetry takes a restart, the old ones are watched";
    generation_unref(old);
    /* A reload is also a person's "try again now" for engines that wait before their next start. */
    learn_retry(g);
    LIST_FOR_EACH(node, &g->workers)
    {
        struct gateway_worker *w = LIST_ENTRY(node, struct gateway_worker, node);
        if (w->worker && !w->stopping)
            worker_retry_now(w->worker);
    }
    return 0;
}

void gateway_stop(struct gateway *g, void (*on_stopped)(void *ctx), void *ctx)
{
    if (g->stopping) {
        g->forced = true;
        return;
    }
    g->stopping = true;
    g->on_stopped = on_stopped;
    g->on_stopped_ctx = ctx;
    g->stop_deadline_ms = uv_now(g->loop) + g->current->config->shutdown_grace_ms;
    http_server_drain(g->server);
    if (g->request_count == 0)
        gateway_let_go(g);
    else
        gateway_start_tick(g);
}

bool gateway_cancel_request(struct gateway *g, struct span id)
{
    LIST_FOR_EACH(node, &g->requests)
    {
        struct gateway_request *r = LIST_ENTRY(node, struct gateway_request, node);
        if (!span_equals_str(id, r->id))
            continue;
        request_step(r, LIFECYCLE_EVENT_CANCEL);
        return true;
    }
    return false;
}
