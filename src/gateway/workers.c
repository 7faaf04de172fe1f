/*
 * Workers as the gateway sees them: a process or URL (worker/), whether it may be used
 * (policy/availability), and the requests that wait for room on it. Loop thread only.
 *
 * A worker with a known number of slots gets at most that many attempts at a time: engines queue
 * silently, and a request that waits inside an engine cannot be told from one that hangs.
 */
#include "gateway/internal.h"

#include "base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How long loading takes, for those who wait for a planned one; unknown again after one that failed. */
static void note_load(struct gateway_worker *w, enum worker_state from, enum worker_state to)
{
    uint64_t now_ms = uv_now(w->gateway->loop);
    if (to == WORKER_STATE_LOADING) {
        w->loading_since_ms = now_ms;
        memset(w->answered_bytes, 0, sizeof(w->answered_bytes));
    } else if (from == WORKER_STATE_LOADING && to == WORKER_STATE_READY) {
        w->load_ms = now_ms - w->loading_since_ms + 1;
    } else if (to == WORKER_STATE_BACKOFF || to == WORKER_STATE_FAILED) {
        w->load_ms = 0;
    }
}

static void on_state(struct worker *worker, enum worker_state from, enum worker_state to, void *ctx)
{
    struct gateway_worker *w = ctx;
    const char *reason = worker_reason(worker);
    enum log_level level = to == WORKER_STATE_FAILED || to == WORKER_STATE_BACKOFF
                               ? LOG_LEVEL_WARNING
                               : LOG_LEVEL_INFO;
    log_write(level, "worker", "%s/%s: %s -> %s%s%s", w->service, w->tier, worker_state_name(from),
              worker_state_name(to), reason[0] ? ": " : "", reason);
    note_load(w, from, to);
    devices_worker_changed(w, to);
    kv_watch_worker_changed(w);
    if (to == WORKER_STATE_READY)
        availability_restarted(&w->availability, uv_now(w->gateway->loop));
    gateway_worker_pump(w);
    if (to == WORKER_STATE_READY)
        requests_worker_ready(w);
}

static void on_engine(struct worker *worker, enum worker_engine engine, void *ctx)
{
    struct gateway_worker *w = ctx;
    log_info("worker", "%s/%s: %s speaks as %s", w->service, w->tier, worker_address(worker),
             worker_engine_name(engine));
    w->unload.single_model = false;
    kv_watch_worker_changed(w);
}

static void on_log_line(struct worker *worker, struct span line, void *ctx)
{
    (void)worker;
    struct gateway_worker *w = ctx;
    struct fault fault;
    fault_classify_log_line(line, w->device[0] != '\0', &fault);
    if (fault.class != FAULT_NONE) {
        w->log_fault = fault;
        w->log_fault_ms = uv_now(w->gateway->loop);
        learn_heard(w, &fault, line);
        log_warning("worker", "%s/%s: %s: %.*s", w->service, w->tier, fault_class_name(fault.class),
                    SPAN_FMT(line));
    } else {
        log_debug("engine", "%s/%s: %.*s", w->service, w->tier, SPAN_FMT(line));
    }
}

static bool may_start(struct worker *worker, char *why, size_t why_size, void *ctx)
{
    (void)worker;
    return devices_may_start(ctx, why, why_size);
}

static const struct worker_events events = {
    .may_start = may_start,
    .on_state = on_state,
    .on_log_line = on_log_line,
    .on_engine = on_engine,
};

static void worker_free(struct gateway_worker *w)
{
    recheck_worker_gone(w);
    kv_watch_worker_gone(w);
    unload_worker_gone(w);
    devices_worker_gone(w);
    predict_forget(w);
    list_remove(&w->node);
    worker_destroy(w->worker);
    free(w->service);
    free(w->tier);
    free(w->device);
    free(w);
}

struct availability_settings gateway_worker_settings(const struct config_tier *tier)
{
    return (struct availability_settings){
        .failures = tier->availability.failures,
        .hold_ms = tier->availability.hold_ms,
        .hold_max_ms = tier->availability.hold_max_ms,
    };
}

int gateway_worker_create(struct gateway *g, const struct config *config,
                          const struct config_service *service, const struct config_tier *tier,
                          struct gateway_worker **ret)
{
    struct worker_options options;
    int r = worker_options_from_config(config, service, tier, &options);
    if (r < 0)
        return r;
    struct gateway_worker *w = calloc(1, sizeof(*w));
    if (!w) {
        worker_options_release(&options);
        return -ENOMEM;
    }
    w->gateway = g;
    w->references = 1;
    w->slots = tier->slots;
    w->may_shrink_context =
        service->shrink == CONFIG_SHRINK_CONTEXT || service->shrink == CONFIG_SHRINK_BOTH;
    list_init(&w->waiting);
    list_push_back(&g->workers, &w->node);
    struct availability_settings settings = gateway_worker_settings(tier);
    availability_init(&w->availability, &settings);
    w->service = strdup(service->name);
    w->tier = strdup(tier->name);
    w->device = strdup(tier->device_name ? tier->device_name : "");
    if (w->device)
        devices_prepare_worker(w);
    r = w->service && w->tier && w->device
            ? worker_create(g->loop, &options, &events, w, &w->worker)
            : -ENOMEM;
    worker_options_release(&options);
    if (r < 0) {
        log_error("worker", "%s/%s: cannot be set up: %s", service->name, tier->name, strerror(-r));
        w->worker = NULL;
        worker_free(w);
        return r;
    }
    g->workers_open++;
    predict_start(w, config, service, tier);
    worker_start(w->worker);
    *ret = w;
    return 0;
}

void gateway_worker_ref(struct gateway_worker *w)
{
    w->references++;
}

static void on_stopped(struct worker *worker, void *ctx)
{
    (void)worker;
    struct gateway_worker *w = ctx;
    struct gateway *g = w->gateway;
    worker_destroy(w->worker);
    w->worker = NULL;
    if (w->references == 0)
        worker_free(w);
    g->workers_open--;
    gateway_check_stopped(g);
}

void gateway_worker_stop(struct gateway_worker *w)
{
    if (w->stopping || !w->worker)
        return;
    w->stopping = true;
    recheck_worker_gone(w);
    kv_watch_worker_gone(w);
    unload_worker_gone(w);
    worker_stop(w->worker, on_stopped, w);
}

void gateway_worker_unref(struct gateway_worker *w)
{
    if (!w || --w->references > 0)
        return;
    if (w->worker)
        gateway_worker_stop(w);
    else
        worker_free(w);
}

bool gateway_worker_has_room(const struct gateway_worker *w)
{
    return w->slots == 0 || w->running < w->slots;
}

bool gateway_worker_may_serve(const struct gateway_worker *w)
{
    return w->worker && !w->yielded && !(w->on && w->on->hung) && worker_is_usable(w->worker) &&
           availability_ask(&w->availability, uv_now(w->gateway->loop)) != AVAILABILITY_VERDICT_NO;
}

void gateway_worker_pump(struct gateway_worker *w)
{
    bool usable = gateway_worker_may_serve(w);
    enum worker_state state = w->worker ? worker_get_state(w->worker) : WORKER_STATE_STOPPED;
    bool loading = state == WORKER_STATE_STARTING || state == WORKER_STATE_LOADING;
    /* A woken request may fail, free itself, or queue again: always look at the front anew, and at
     * no more of them than there are now. */
    uint32_t left = w->waiting_count;
    while (left-- > 0 && !list_is_empty(&w->waiting)) {
        struct gateway_request *r = LIST_ENTRY(w->waiting.next, struct gateway_request, queue_node);
        if (usable && !gateway_worker_has_room(w))
            break;
        if (!usable && loading && r->waits_for != REQUEST_WAIT_SLOT)
            break;
        const struct list_node *front = w->waiting.next;
        request_step(r, LIFECYCLE_EVENT_WAKE);
        /* There was a slot and no room in the cache: it stands in front again, and nobody overtakes. */
        if (usable && w->waiting.next == front)
            break;
    }
}

void gateway_worker_explain(const struct gateway_worker *w, char *out, size_t out_size)
{
    out[0] = '\0';
    if (!w->worker) {
        snprintf(out, out_size, "stopped");
        return;
    }
    if (w->yielded) {
        snprintf(out, out_size, "%s", w->yield_text);
        return;
    }
    uint64_t now_ms = uv_now(w->gateway->loop);
    enum worker_state state = worker_get_state(w->worker);
    if (!worker_is_usable(w->worker)) {
        const char *why = worker_reason(w->worker);
        snprintf(out, out_size, "%s%s%s", worker_state_name(state), why[0] ? ": " : "", why);
        return;
    }
    if (w->on && w->on->hung) {
        snprintf(out, out_size, "the driver of %s does not answer", w->on->name);
        return;
    }
    switch (availability_ask(&w->availability, now_ms)) {
    case AVAILABILITY_VERDICT_NO:
        if (w->availability.state == AVAILABILITY_STATE_PROBING)
            snprintf(out, out_size, "being probed after: %s", w->fault_text);
        else
            snprintf(out, out_size, "suspended for %" PRIu64 " ms after: %s",
                     availability_retry_in_ms(&w->availability, now_ms), w->fault_text);
        return;
    case AVAILABILITY_VERDICT_PROBE:
        snprintf(out, out_size, "to be probed after: %s", w->fault_text);
        return;
    case AVAILABILITY_VERDICT_YES: return;
    }
}

void gateway_worker_explain_short(const struct gateway_worker *w, char *out, size_t out_size)
{
    out[0] = '\0';
    if (w->worker && w->short_context > 0)
        snprintf(out, out_size,
                 "its context is %" PRIu32 " tokens instead of %" PRIu32
                 ", for lack of memory when it was started",
                 w->short_context, worker_get_options(w->worker)->context_tokens);
}

void gateway_worker_suspend(struct gateway_worker *w, const char *why, bool restart)
{
    /* 0 is nobody's id: it can never end a probe that is under way. */
    if (!availability_fault(&w->availability, 0, true, uv_now(w->gateway->loop)))
        return;
    recheck_worker_suspended(w);
    snprintf(w->fault_text, sizeof(w->fault_text), "%s", why);
    if (restart && w->worker && worker_is_managed(w->worker))
        worker_recycle(w->worker, w->fault_text, true);
    gateway_worker_pump(w);
}

static void suspend_device(struct gateway_worker *from, const struct fault *fault)
{
    struct gateway *g = from->gateway;
    char why[sizeof(from->fault_text)];
    snprintf(why, sizeof(why), "%s (seen by %s/%s)", fault->reason, from->service, from->tier);
    LIST_FOR_EACH(node, &g->workers)
    {
        struct gateway_worker *w = LIST_ENTRY(node, struct gateway_worker, node);
        if (w != from && w->device[0] != '\0' && strcmp(w->device, from->device) == 0)
            gateway_worker_suspend(w, why, true);
    }
}

static void tell_suspended(struct gateway_worker *w)
{
    recheck_worker_suspended(w);
    log_warning("worker", "%s/%s: suspended for %" PRIu64 " ms after %s", w->service, w->tier,
                availability_retry_in_ms(&w->availability, uv_now(w->gateway->loop)),
                w->fault_text);
}

static void note_fault(struct gateway_worker *w, const struct fault *fault)
{
    snprintf(w->fault_text, sizeof(w->fault_text), "%s: %s", fault_class_name(fault->class),
             fault->reason);
}

void gateway_worker_doubt(struct gateway_worker *w, uint64_t owner, const struct fault *fault)
{
    note_fault(w, fault);
    if (availability_doubt(&w->availability, owner, uv_now(w->gateway->loop)))
        tell_suspended(w);
}

void gateway_worker_settle(struct gateway_worker *w, uint64_t owner, uint32_t run)
{
    w->attempts_failed++;
    if (availability_settle(&w->availability, owner, run, uv_now(w->gateway->loop)))
        tell_suspended(w);
}

void gateway_worker_forgive(struct gateway_worker *w, uint64_t owner, uint32_t run)
{
    if (availability_forgive(&w->availability, owner, run, uv_now(w->gateway->loop)))
        gateway_worker_pump(w);
    if (w->availability.state == AVAILABILITY_STATE_AVAILABLE && w->availability.consecutive == 0)
        w->fault_text[0] = '\0';
}

void gateway_worker_fault(struct gateway_worker *w, uint64_t owner, const struct fault *fault)
{
    uint64_t now_ms = uv_now(w->gateway->loop);
    if (!fault_counts(fault->class)) {
        availability_give_up(&w->availability, owner, now_ms);
        return;
    }
    note_fault(w, fault);
    w->attempts_failed++;
    bool at_once = fault->class == FAULT_DEVICE_LOST || fault->class == FAULT_DRIVER;
    bool suspended = availability_fault(&w->availability, owner, at_once, now_ms);
    if (suspended)
        tell_suspended(w);
    if (!w->worker)
        return;
    if (fault->class == FAULT_ENGINE_DEAD)
        worker_suspect(w->worker);
    /* An engine that has lost its device never finds it again (F11, F15): it must start anew. */
    if (fault_whole_device(fault->class) && suspended) {
        if (worker_is_managed(w->worker))
            worker_recycle(w->worker, fault->reason, true);
        if (w->device[0])
            suspend_device(w, fault);
    }
}
