/*
 * A request from its exchange to its one outcome. Every change of state goes through
 * request_step(), which looks the change up in policy/lifecycle and does what the table says.
 *
 * Ownership: a request belongs to its gateway from request_begin() to request_finish(). Steps nest
 * (a fault leads to a decision leads to the next attempt), and callbacks from the HTTP client may
 * end the request while they are still on the stack: whoever uses it after a step brackets that
 * with request_enter() and request_leave().
 *
 * Loop thread only.
 */
#include "gateway/admit.h"

#include "base/log.h"
#include "http/head.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct api_error *request_error(struct gateway_request *r)
{
    if (!r->error)
        r->error = calloc(1, sizeof(*r->error));
    return r->error;
}

void request_enter(struct gateway_request *r)
{
    r->depth++;
}

static void request_free(struct gateway_request *r)
{
    attempt_free(r);
    free(r->api);
    free(r->error);
    for (unsigned i = 0; i < GATEWAY_MAX_TIERS; i++)
        free(r->tier_reasons[i]);
    generation_unref(r->generation);
    free(r);
}

void request_leave(struct gateway_request *r)
{
    if (--r->depth == 0 && r->doomed)
        request_free(r);
}

void request_note_tier(struct gateway_request *r, unsigned tier_index, const char *reason)
{
    free(r->tier_reasons[tier_index]);
    r->tier_reasons[tier_index] = strdup(reason);
}

static void request_finish(struct gateway_request *r)
{
    struct gateway *g = r->gateway;
    uint64_t now_ms = uv_now(g->loop);
    attempt_settle_doubts(r);
    if (r->service) {
        struct gateway_counters *c = r->service->counters;
        if (r->state == LIFECYCLE_STATE_DONE)
            c->done++;
        else if (r->state == LIFECYCLE_STATE_FAILED)
            c->failed++;
        else
            c->cancelled++;
        histogram_add_ms(&c->duration, now_ms - r->accepted_ms);
        log_debug("gateway", "%s: %s %s in %" PRIu64 " ms, %" PRIu64 " events, tier %s", r->id,
                  r->service->config->name, lifecycle_state_name(r->state), now_ms - r->accepted_ms,
                  r->events_sent, r->service->tiers[r->tier_index].config->name);
    }
    relay_forget(r);
    list_remove(&r->node);
    g->request_count--;
    r->doomed = true;
}

static void request_enqueue(struct gateway_request *r)
{
    struct gateway_worker *w = r->service->tiers[r->tier_index].worker;
    r->wait_since_ms = uv_now(r->gateway->loop);
    if (r->woken)
        list_push_front(&w->waiting, &r->queue_node);
    else
        list_push_back(&w->waiting, &r->queue_node);
    w->waiting_count++;
    r->woken = false;
}

static void request_leave_queue(struct gateway_request *r)
{
    struct gateway_worker *w = r->service->tiers[r->tier_index].worker;
    list_remove(&r->queue_node);
    w->waiting_count--;
    r->queue_ms += uv_now(r->gateway->loop) - r->wait_since_ms;
}

static void request_say_error(struct gateway_request *r)
{
    if (r->exchange)
        answer_error(r);
}

static void request_close(struct gateway_request *r)
{
    if (r->exchange) {
        http_exchange_set_user(r->exchange, NULL);
        http_exchange_abort(r->exchange);
        r->exchange = NULL;
    }
}

void request_step(struct gateway_request *r, enum lifecycle_event event)
{
    struct lifecycle_step step = lifecycle_next(r->state, event);
    if (!step.legal) {
        log_error("gateway", "%s: event %s is not possible in state %s", r->id,
                  lifecycle_event_name(event), lifecycle_state_name(r->state));
        return;
    }
    r->state = step.next;
    request_enter(r);
    if (step.actions & LIFECYCLE_ACTION_DROP_ATTEMPT)
        attempt_drop(r);
    if (step.actions & LIFECYCLE_ACTION_LEAVE_QUEUE) {
        request_leave_queue(r);
        r->woken = event == LIFECYCLE_EVENT_WAKE;
    }
    if (step.actions & LIFECYCLE_ACTION_DROP_COUNT)
        count_cancel(r);
    if (step.actions & LIFECYCLE_ACTION_COMMIT)
        relay_commit(r);
    if (step.actions & LIFECYCLE_ACTION_REPLY)
        answer_whole(r);
    if (step.actions & LIFECYCLE_ACTION_SAY_ERROR)
        request_say_error(r);
    if (step.actions & LIFECYCLE_ACTION_SAY_CUT)
        answer_cut(r);
    if (step.actions & LIFECYCLE_ACTION_END)
        relay_end(r);
    if (step.actions & LIFECYCLE_ACTION_CLOSE)
        request_close(r);
    if (lifecycle_is_final(step.next))
        request_finish(r);
    /* Those that lead to further steps come last: nothing of this step may follow them. */
    if (step.actions & LIFECYCLE_ACTION_ENQUEUE)
        request_enqueue(r);
    if ((step.actions & LIFECYCLE_ACTION_PAUSE) && r->wait_deadline_ms == 0)
        request_step(r, LIFECYCLE_EVENT_WAKE);
    if (step.actions & LIFECYCLE_ACTION_DECIDE)
        request_decide(r);
    if (step.actions & LIFECYCLE_ACTION_START_COUNT)
        admit_start_count(r);
    if (step.actions & LIFECYCLE_ACTION_DISPATCH)
        attempt_start(r);
    request_leave(r);
}

/* Requests for the gateway itself. True when answered. */
static bool answer_local(struct gateway *g, struct http_exchange *x, const struct api_route *route)
{
    if (route->operation == API_OPERATION_MODELS || route->operation == API_OPERATION_MODEL) {
        answer_models(g, x, route);
        return true;
    }
    if (route->operation != API_OPERATION_PASS || !g->options.on_local)
        return false;
    return g->options.on_local(g, x, http_exchange_method(x), route->path, route->query,
                               g->options.ctx);
}

/* fs-SEED-NUMBER, both in hexadecimal: the seed is of the process, the number counts. */
static void make_id(const struct gateway *g, uint64_t number, char out[GATEWAY_REQUEST_ID_BYTES])
{
    char *end = out + GATEWAY_REQUEST_ID_BYTES - 1;
    size_t count = http_head_digits(end, number, 16);
    size_t seed = strlen(g->id_prefix);
    memmove(out + seed, end - count, count);
    memcpy(out, g->id_prefix, seed);
    out[seed + count] = '\0';
}

static struct gateway_request *request_create(struct gateway *g, struct http_exchange *x,
                                              const struct api_route *route)
{
    struct gateway_request *r = calloc(1, sizeof(*r));
    if (!r)
        return NULL;
    /* Filled by api_request_parse(), which clears it. */
    r->api = malloc(sizeof(*r->api));
    if (!r->api) {
        free(r);
        return NULL;
    }
    r->gateway = g;
    r->generation = g->current;
    g->current->references++;
    r->exchange = x;
    r->route = *route;
    r->number = ++g->next_number;
    r->retry_after_last_ms = -1;
    make_id(g, r->number, r->id);
    r->accepted_ms = uv_now(g->loop);
    list_init(&r->queue_node);
    list_push_back(&g->requests, &r->node);
    g->request_count++;
    gateway_start_tick(g);
    http_exchange_set_user(x, r);
    return r;
}

void request_begin(struct gateway *g, struct http_exchange *x)
{
    struct api_route route;
    struct api_error error;
    if (!api_route_find(http_exchange_method(x), http_exchange_target(x), &route)) {
        api_error_set(&error, 400, "invalid_request_error", "bad_path", "%s", route.reject);
        answer_exchange_error(x, &error, API_DIALECT_PLAIN, NULL);
        return;
    }
    if (!route.method_ok) {
        answer_bad_method(x, &route);
        return;
    }
    if (answer_local(g, x, &route))
        return;
    struct gateway_request *r = request_create(g, x, &route);
    if (!r) {
        api_error_set(&error, 503, "overloaded_error", "out_of_memory",
                      "the gateway is out of memory");
        answer_exchange_error(x, &error, route.dialect, NULL);
        return;
    }
    bool identified = request_identify(r);
    if (identified)
        r->service->counters->requests++;
    else
        r->service = NULL;
    request_step(r, identified ? LIFECYCLE_EVENT_IDENTIFIED : LIFECYCLE_EVENT_REFUSED);
}

void request_client_gone(struct http_exchange *x)
{
    struct gateway_request *r = http_exchange_user(x);
    if (!r)
        return;
    /* The server closes the exchange itself. */
    http_exchange_set_user(x, NULL);
    r->exchange = NULL;
    request_step(r, LIFECYCLE_EVENT_GONE);
}

void requests_worker_ready(struct gateway_worker *w)
{
    LIST_FOR_EACH(node, &w->gateway->requests)
    {
        struct gateway_request *r = LIST_ENTRY(node, struct gateway_request, node);
        if (r->state != LIFECYCLE_STATE_WAITING || r->waits_for != REQUEST_WAIT_LOAD)
            continue;
        for (unsigned i = 0; i < r->service->tier_count; i++) {
            if (r->service->tiers[i].worker != w || i == r->tier_index)
                continue;
            request_step(r, LIFECYCLE_EVENT_WAKE);
            break;
        }
    }
}

bool request_needs_tick(const struct gateway_request *r, uint64_t now_ms)
{
    switch (r->state) {
    case LIFECYCLE_STATE_WAITING:
        return now_ms >= r->wait_deadline_ms || (r->wake_at_ms != 0 && now_ms >= r->wake_at_ms);
    case LIFECYCLE_STATE_PAUSED: return now_ms >= r->wait_deadline_ms;
    case LIFECYCLE_STATE_DISPATCHED:
    case LIFECYCLE_STATE_RELAYING:
        return r->attempt.deadline_ms != 0 && now_ms >= r->attempt.deadline_ms;
    default: return false;
    }
}

static const char *waited_in_vain(const struct gateway_request *r)
{
    switch ((enum request_wait)r->waits_for) {
    case REQUEST_WAIT_LOAD: return "still loading after the time that may be waited";
    case REQUEST_WAIT_MEMORY: return "its memory was not back in the time that may be waited";
    case REQUEST_WAIT_SLOT: break;
    }
    return "no slot became free in the time that may be waited";
}

/* With what the worker is about: a load that never begins waits for something, too. */
static void note_wait_in_vain(struct gateway_request *r)
{
    char state[320] = "", why[448];
    if (r->waits_for == REQUEST_WAIT_LOAD)
        gateway_worker_explain(r->service->tiers[r->tier_index].worker, state, sizeof(state));
    snprintf(why, sizeof(why), "%s%s%s", waited_in_vain(r), state[0] ? "; " : "", state);
    request_note_tier(r, r->tier_index, why);
}

void request_tick(struct gateway_request *r, uint64_t now_ms)
{
    switch (r->state) {
    case LIFECYCLE_STATE_WAITING:
        if (now_ms < r->wait_deadline_ms) {
            request_step(r, LIFECYCLE_EVENT_WAKE);
            break;
        }
        note_wait_in_vain(r);
        r->excluded |= 1U << r->tier_index;
        request_step(r, LIFECYCLE_EVENT_EXPIRED);
        break;
    case LIFECYCLE_STATE_PAUSED: request_step(r, LIFECYCLE_EVENT_WAKE); break;
    case LIFECYCLE_STATE_DISPATCHED:
    case LIFECYCLE_STATE_RELAYING: attempt_timed_out(r); break;
    default: break;
    }
}
