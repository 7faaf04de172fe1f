/* Copies the gateway's state for the status pages. Loop thread only. */
#include "gateway/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* What the views point into, kept with the snapshot. */
struct snapshot_texts {
    char reason[320];
};

static size_t count_tiers(const struct gateway *g)
{
    size_t n = 0;
    for (size_t i = 0; i < g->current->service_count; i++)
        n += g->current->services[i].tier_count;
    return n;
}

static const char *worker_word(const struct gateway_worker *w)
{
    return w->worker ? worker_state_name(worker_get_state(w->worker)) : "stopped";
}

/* Proven: it may be used, and its last attempt was not a fault. */
static bool tier_is_proven(const struct gateway_tier *tier)
{
    return gateway_worker_may_serve(tier->worker) &&
           tier->worker->availability.state == AVAILABILITY_STATE_AVAILABLE;
}

/* Promising: proven, or suspended and seen to be there again: the next request will tell. */
static bool tier_is_promising(const struct gateway_tier *tier)
{
    const struct gateway_worker *w = tier->worker;
    bool there = w->worker && (worker_is_managed(w->worker) || w->answers);
    return tier_is_proven(tier) || (there && gateway_worker_may_serve(tier->worker));
}

static struct gateway_kv_snapshot kv_view(const struct gateway_worker *w)
{
    static const char *const kinds[] = {
        [KV_KIND_SLOTS] = "slots", [KV_KIND_UNIFIED] = "unified", [KV_KIND_PAGED] = "paged"};
    const struct kv *kv = &w->kv;
    if (!w->kv_known)
        return (struct gateway_kv_snapshot){0};
    return (struct gateway_kv_snapshot){
        .kind = kinds[kv->shape.kind],
        .tokens = kv->shape.tokens,
        .slots = kv->shape.slots,
        .page_tokens = kv->shape.page_tokens,
        .taken_tokens = kv->taken_tokens,
        .used_tokens = kv->taken_tokens + kv->others_tokens,
        .free_tokens = kv_free_tokens(kv),
    };
}

static struct gateway_memory_snapshot memory_view(const struct gateway_worker *w)
{
    struct gateway_memory_snapshot m = {
        .predicted_bytes = w->predicted_bytes,
        .formula_bytes = w->learn.formula_bytes,
        .measured_bytes = w->measured_bytes,
        .request_bytes = learned_request_bytes(w, LEARNING_USE_TEXT),
    };
    m.learned_bytes = learned_load_bytes(w, &m.loads_measured);
    return m;
}

static void fill_tier(const struct gateway *g, const struct gateway_service *s,
                      const struct gateway_tier *tier, struct snapshot_texts *texts,
                      struct gateway_tier_snapshot *out)
{
    const struct gateway_worker *w = tier->worker;
    uint64_t now_ms = uv_now(g->loop);
    gateway_worker_explain(w, texts->reason, sizeof(texts->reason));
    *out = (struct gateway_tier_snapshot){
        .service = s->config->name,
        .kind = config_service_kind_name(s->config->kind),
        .tier = tier->config->name,
        .engine = w->worker ? worker_engine_name(worker_get_engine(w->worker)) : "",
        .address = w->worker ? worker_address(w->worker) : "",
        .device = w->device,
        .managed = tier->config->managed,
        .pid = w->worker ? worker_pid(w->worker) : 0,
        .state = worker_word(w),
        .availability = availability_state_name(w->availability.state),
        .usable = gateway_worker_may_serve(tier->worker),
        .proven = tier_is_proven(tier),
        .promising = tier_is_promising(tier),
        .reason = texts->reason,
        .retry_in_ms = availability_retry_in_ms(&w->availability, now_ms),
        .consecutive_failures = w->availability.consecutive,
        .running = w->running,
        .waiting = w->waiting_count,
        .slots = w->slots,
        .restarts = w->worker ? worker_restarts(w->worker) : 0,
        .recycles = w->learn.recycles,
        .memory = memory_view(w),
        .attempts_total = w->attempts_total,
        .attempts_failed = w->attempts_failed,
        .kv = kv_view(w),
        .first_event = histogram_view(&w->first_event),
    };
    if (!w->worker)
        return;
    if (!texts->reason[0])
        gateway_worker_explain_short(w, texts->reason, sizeof(texts->reason));
    if (!texts->reason[0])
        learn_explain(w, texts->reason, sizeof(texts->reason));
    if (!texts->reason[0])
        out->reason = worker_warning(w->worker);
    out->state_age_ms = now_ms - worker_state_since_ms(w->worker);
    uint64_t at_ms = worker_retry_at_ms(w->worker);
    if (at_ms > now_ms && at_ms - now_ms > out->retry_in_ms)
        out->retry_in_ms = at_ms - now_ms;
}

static void fill_request(const struct gateway *g, const struct gateway_request *r,
                         struct gateway_request_snapshot *out)
{
    bool placed = r->service && r->state >= LIFECYCLE_STATE_WAITING;
    *out = (struct gateway_request_snapshot){
        .id = r->id,
        .service = r->service ? r->service->config->name : "",
        .operation = api_operation_name(r->route.operation),
        .state = lifecycle_state_name(r->state),
        .tier = placed ? r->service->tiers[r->tier_index].config->name : "",
        .degraded = placed ? degraded_kind(r) : "",
        .streamed = r->streamed,
        .committed = r->state == LIFECYCLE_STATE_RELAYING,
        .age_ms = uv_now(g->loop) - r->accepted_ms,
        .events_sent = r->events_sent,
        .attempts = r->attempts,
    };
}

static void fill_service(const struct gateway_counters *c, struct gateway_service_counters *out)
{
    *out = (struct gateway_service_counters){
        .service = c->service,
        .requests_total = c->requests,
        .done = c->done,
        .failed = c->failed,
        .cancelled = c->cancelled,
        .failovers = c->failovers,
        .retries = c->retries,
        .cut_after_commit = c->cuts,
        .duration = histogram_view(&c->duration),
    };
    _Static_assert((int)GATEWAY_ACTIONS == (int)DECISIONS_ACTIONS, "every action is shown");
    memcpy(out->decided, c->decided, sizeof(out->decided));
}

static size_t fill_decisions(const struct gateway *g, struct gateway_decision_snapshot *out)
{
    size_t n = 0;
    const struct decision *d;
    while ((d = decisions_get(&g->decisions, n)) != NULL)
        out[n++] = (struct gateway_decision_snapshot){
            .id = d->id,
            .service = d->service,
            .tier = d->tier,
            .action = admission_action_name(d->action),
            .reason = d->reason,
            .age_ms = uv_now(g->loop) - d->at_ms,
        };
    return n;
}

const char *gateway_action_name(unsigned action)
{
    return admission_action_name((enum admission_action)action);
}

/* Ready: every service has a tier to go to. Degraded: some first choice is not proven. */
static void judge(const struct gateway *g, struct gateway_snapshot *out)
{
    out->ready = true;
    for (size_t i = 0; i < g->current->service_count; i++) {
        const struct gateway_service *s = &g->current->services[i];
        bool any = false;
        for (size_t t = 0; t < s->tier_count; t++)
            any |= tier_is_promising(&s->tiers[t]);
        out->ready &= any;
        out->degraded |= s->tier_count > 0 && !tier_is_proven(&s->tiers[0]);
    }
}

int gateway_snapshot_take(struct gateway *g, struct gateway_snapshot *ret)
{
    if (!g->current)
        return -ECANCELED;
    size_t tier_count = count_tiers(g);
    size_t counters = 0;
    LIST_FOR_EACH(node, &g->counters)
    counters++;
    struct gateway_tier_snapshot *tiers = calloc(tier_count + 1, sizeof(*tiers));
    struct snapshot_texts *texts = calloc(tier_count + 1, sizeof(*texts));
    struct gateway_request_snapshot *requests = calloc(g->request_count + 1, sizeof(*requests));
    struct gateway_service_counters *services = calloc(counters + 1, sizeof(*services));
    size_t device_count = devices_count(g);
    struct gateway_device_snapshot *devices = calloc(device_count + 1, sizeof(*devices));
    struct gateway_claim_snapshot *claims =
        calloc((device_count + 1) * GATEWAY_DEVICE_CLAIMS, sizeof(*claims));
    struct gateway_decision_snapshot *decisions = calloc(DECISIONS_KEPT, sizeof(*decisions));
    if (!tiers || !texts || !requests || !services || !devices || !claims || !decisions) {
        free(decisions);
        free(devices);
        free(claims);
        free(tiers);
        free(texts);
        free(requests);
        free(services);
        return -ENOMEM;
    }
    size_t n = 0;
    for (size_t i = 0; i < g->current->service_count; i++)
        for (size_t t = 0; t < g->current->services[i].tier_count; t++, n++)
            fill_tier(g, &g->current->services[i], &g->current->services[i].tiers[t], &texts[n],
                      &tiers[n]);
    size_t request_count = 0;
    LIST_FOR_EACH(node, &g->requests)
    fill_request(g, LIST_ENTRY(node, struct gateway_request, node), &requests[request_count++]);
    size_t service_count = 0;
    LIST_FOR_EACH(node, &g->counters)
    fill_service(LIST_ENTRY(node, struct gateway_counters, node), &services[service_count++]);
    *ret = (struct gateway_snapshot){
        .version = g->options.version,
        .uptime_ms = uv_now(g->loop) - g->started_ms,
        .connections = http_server_connections(g->server),
        .connections_refused = http_server_refused(g->server),
        .config_generation = g->config_generation,
        .config_error = g->config_error ? g->config_error : "",
        .tiers = tiers,
        .tier_count = tier_count,
        .requests = requests,
        .request_count = request_count,
        .services = services,
        .service_count = service_count,
        .devices = devices,
        .device_count = device_count,
        .claims = claims,
        .decisions = decisions,
        .decision_count = fill_decisions(g, decisions),
        .texts = texts,
    };
    devices_fill(g, devices, claims);
    devices_fill_host(g, &ret->host, claims + device_count * GATEWAY_DEVICE_CLAIMS);
    judge(g, ret);
    return 0;
}

void gateway_snapshot_release(struct gateway_snapshot *s)
{
    free((void *)s->tiers);
    free((void *)s->requests);
    free((void *)s->services);
    free((void *)s->devices);
    free((void *)s->claims);
    free((void *)s->decisions);
    free(s->texts);
    *s = (struct gateway_snapshot){0};
}
