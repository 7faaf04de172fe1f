/*
 * The status API: one JSON object with all that is known now.
 */
#include "admin/json.h"
#include "admin/pages.h"

#include <inttypes.h>
#include <string.h>

static int write_worker(struct buf *out, const struct gateway_tier_snapshot *t)
{
    int r;

    if ((r = json_add_open(out, "worker", '{')) < 0 ||
        (r = json_add_text(out, "engine", t->engine)) < 0 ||
        (r = json_add_text(out, "address", t->address)) < 0 ||
        (r = json_add_bool(out, "managed", t->managed)) < 0 ||
        (r = json_add_number(out, "pid", t->pid > 0 ? (uint64_t)t->pid : 0)) < 0 ||
        (r = json_add_text(out, "state", t->state)) < 0 ||
        (r = json_add_number(out, "state_age_ms", t->state_age_ms)) < 0 ||
        (r = json_add_number(out, "restarts", t->restarts)) < 0 ||
        (r = json_add_number(out, "recycles", t->recycles)) < 0)
        return r;
    return buf_append(out, "}", 1);
}

static int write_memory(struct buf *out, const struct gateway_memory_snapshot *m)
{
    int r;

    if ((r = json_add_open(out, "memory", '{')) < 0 ||
        (r = json_add_number(out, "predicted_bytes", m->predicted_bytes)) < 0 ||
        (r = json_add_number(out, "formula_bytes", m->formula_bytes)) < 0 ||
        (r = json_add_number(out, "learned_bytes", m->learned_bytes)) < 0 ||
        (r = json_add_number(out, "loads_measured", m->loads_measured)) < 0 ||
        (r = json_add_number(out, "measured_bytes", m->measured_bytes)) < 0 ||
        (r = json_add_number(out, "request_bytes", m->request_bytes)) < 0)
        return r;
    return buf_append(out, "}", 1);
}

static int write_kv(struct buf *out, const struct gateway_kv_snapshot *kv)
{
    int r;

    if (!kv->kind)
        return buf_append_str(out, ",\"kv\":null");
    if ((r = json_add_open(out, "kv", '{')) < 0 || (r = json_add_text(out, "kind", kv->kind)) < 0 ||
        (r = json_add_number(out, "tokens", kv->tokens)) < 0 ||
        (r = json_add_number(out, "slots", kv->slots)) < 0 ||
        (r = json_add_number(out, "page_tokens", kv->page_tokens)) < 0 ||
        (r = json_add_number(out, "used_tokens", kv->used_tokens)) < 0 ||
        (r = json_add_number(out, "free_tokens", kv->free_tokens)) < 0)
        return r;
    return buf_append(out, "}", 1);
}

static int write_tier(struct buf *out, const struct gateway_tier_snapshot *t)
{
    int r;

    if ((r = json_separate(out)) < 0 || (r = buf_append(out, "{", 1)) < 0 ||
        (r = json_add_text(out, "name", t->tier)) < 0 ||
        (r = json_add_text(out, "device", t->device)) < 0 ||
        (r = json_add_bool(out, "usable", t->usable)) < 0 ||
        (r = json_add_text(out, "availability", t->availability)) < 0 ||
        (r = json_add_text(out, "reason", t->reason)) < 0 ||
        (r = json_add_number(out, "retry_in_ms", t->retry_in_ms)) < 0 ||
        (r = json_add_number(out, "consecutive_failures", t->consecutive_failures)) < 0 ||
        (r = json_add_number(out, "running", t->running)) < 0 ||
        (r = json_add_number(out, "waiting", t->waiting)) < 0 ||
        (r = json_add_number(out, "slots", t->slots)) < 0 ||
        (r = json_add_number(out, "attempts_total", t->attempts_total)) < 0 ||
        (r = json_add_number(out, "attempts_failed", t->attempts_failed)) < 0 ||
        (r = write_kv(out, &t->kv)) < 0 || (r = write_memory(out, &t->memory)) < 0 ||
        (r = write_worker(out, t)) < 0)
        return r;
    return buf_append(out, "}", 1);
}

static const char *kind_of(const struct gateway_snapshot *s, const char *service)
{
    for (size_t i = 0; i < s->tier_count; i++) {
        if (strcmp(s->tiers[i].service, service) == 0)
            return s->tiers[i].kind;
    }
    return "";
}

static int write_service(struct buf *out, const struct gateway_snapshot *s,
                         const struct gateway_service_counters *c)
{
    int r;

    if ((r = json_separate(out)) < 0 || (r = buf_append(out, "{", 1)) < 0 ||
        (r = json_add_text(out, "name", c->service)) < 0 ||
        (r = json_add_text(out, "kind", kind_of(s, c->service))) < 0 ||
        (r = json_add_text(out, "state", admin_service_state(s, c->service))) < 0 ||
        (r = json_add_number(out, "requests_total", c->requests_total)) < 0 ||
        (r = json_add_number(out, "done", c->done)) < 0 ||
        (r = json_add_number(out, "failed", c->failed)) < 0 ||
        (r = json_add_number(out, "cancelled", c->cancelled)) < 0 ||
        (r = json_add_number(out, "failovers", c->failovers)) < 0 ||
        (r = json_add_number(out, "retries", c->retries)) < 0 ||
        (r = json_add_number(out, "cut_after_commit", c->cut_after_commit)) < 0 ||
        (r = json_add_open(out, "tiers", '[')) < 0)
        return r;
    for (size_t i = 0; i < s->tier_count; i++) {
        if (strcmp(s->tiers[i].service, c->service) == 0 && (r = write_tier(out, &s->tiers[i])) < 0)
            return r;
    }
    return buf_append(out, "]}", 2);
}

int admin_write_request_json(const struct gateway_request_snapshot *q, struct buf *out)
{
    int r;

    if ((r = json_separate(out)) < 0 || (r = buf_append(out, "{", 1)) < 0 ||
        (r = json_add_text(out, "id", q->id)) < 0 ||
        (r = json_add_text(out, "service", q->service)) < 0 ||
        (r = json_add_text(out, "operation", q->operation)) < 0 ||
        (r = json_add_text(out, "state", q->state)) < 0 ||
        (r = json_add_text(out, "tier", q->tier)) < 0 ||
        (r = json_add_text(out, "degraded", q->degraded)) < 0 ||
        (r = json_add_bool(out, "streamed", q->streamed)) < 0 ||
        (r = json_add_bool(out, "committed", q->committed)) < 0 ||
        (r = json_add_number(out, "age_ms", q->age_ms)) < 0 ||
        (r = json_add_number(out, "events_sent", q->events_sent)) < 0 ||
        (r = json_add_number(out, "attempts", q->attempts)) < 0)
        return r;
    return buf_append(out, "}", 1);
}

static int write_claim(struct buf *out, const struct gateway_claim_snapshot *c)
{
    int r;

    if ((r = json_separate(out)) < 0 || (r = buf_append(out, "{", 1)) < 0 ||
        (r = json_add_text(out, "owner", c->label)) < 0 ||
        (r = json_add_text(out, "state", c->state)) < 0 ||
        (r = json_add_number(out, "bytes", c->bytes)) < 0 ||
        (r = json_add_number(out, "predicted_bytes", c->predicted_bytes)) < 0)
        return r;
    return buf_append(out, "}", 1);
}

/* What stands between the braces. */
static int write_device(struct buf *out, const struct gateway_device_snapshot *d)
{
    int r;

    if ((r = json_add_text(out, "name", d->name)) < 0 ||
        (r = json_add_text(out, "kind", d->kind)) < 0 ||
        (r = json_add_text(out, "trust", d->trust)) < 0 ||
        (r = json_add_text(out, "pressure", d->pressure)) < 0 ||
        (r = json_add_text(out, "reason", d->reason)) < 0 ||
        (r = json_add_number(out, "age_ms", d->age_ms)) < 0 ||
        (r = json_add_number(out, "total_bytes", d->total_bytes)) < 0 ||
        (r = json_add_number(out, "reserve_bytes", d->reserve_bytes)) < 0 ||
        (r = json_add_number(out, "foreign_bytes", d->foreign_bytes)) < 0 ||
        (r = json_add_number(out, "settled_bytes", d->settled_bytes)) < 0 ||
        (r = json_add_number(out, "unsettled_bytes", d->unsettled_bytes)) < 0 ||
        (r = json_add_number(out, "releasing_bytes", d->releasing_bytes)) < 0 ||
        (r = buf_printf(out, ",\"headroom_bytes\":%" PRId64, d->headroom_bytes)) < 0 ||
        (r = json_add_number(out, "yield_left_ms", d->yield_left_ms)) < 0 ||
        (r = json_add_bool(out, "integrated", d->integrated)) < 0 ||
        (r = json_add_open(out, "claims", '[')) < 0)
        return r;
    for (size_t i = 0; i < d->claim_count; i++) {
        if ((r = write_claim(out, &d->claims[i])) < 0)
            return r;
    }
    return buf_append(out, "]}", 2);
}

static int write_decision(struct buf *out, const struct gateway_decision_snapshot *d)
{
    int r;

    if ((r = json_separate(out)) < 0 || (r = buf_append(out, "{", 1)) < 0 ||
        (r = json_add_text(out, "request", d->id)) < 0 ||
        (r = json_add_text(out, "service", d->service)) < 0 ||
        (r = json_add_text(out, "action", d->action)) < 0 ||
        (r = json_add_text(out, "tier", d->tier)) < 0 ||
        (r = json_add_text(out, "reason", d->reason)) < 0 ||
        (r = json_add_number(out, "age_ms", d->age_ms)) < 0)
        return r;
    return buf_append(out, "}", 1);
}

static int write_host(struct buf *out, const struct gateway_device_snapshot *host)
{
    int r;

    if (!host->name)
        return 0;
    if ((r = json_add_open(out, "host", '{')) < 0 ||
        (r = json_add_number(out, "stall_pct", host->stall_pct)) < 0)
        return r;
    return write_device(out, host);
}

int admin_write_status_json(const struct gateway_snapshot *s, struct buf *out)
{
    int r;

    if ((r = buf_append(out, "{", 1)) < 0 || (r = json_add_text(out, "version", s->version)) < 0 ||
        (r = json_add_text(out, "state", admin_overall_state(s))) < 0 ||
        (r = json_add_number(out, "uptime_ms", s->uptime_ms)) < 0 ||
        (r = json_add_number(out, "connections", s->connections)) < 0 ||
        (r = json_add_number(out, "connections_refused", s->connections_refused)) < 0 ||
        (r = json_add_open(out, "config", '{')) < 0 ||
        (r = json_add_number(out, "generation", s->config_generation)) < 0 ||
        (r = json_add_text(out, "error", s->config_error)) < 0 ||
        (r = buf_append(out, "}", 1)) < 0 || (r = json_add_open(out, "services", '[')) < 0)
        return r;
    for (size_t i = 0; i < s->service_count; i++) {
        if ((r = write_service(out, s, &s->services[i])) < 0)
            return r;
    }
    if ((r = buf_append(out, "]", 1)) < 0 || (r = json_add_open(out, "devices", '[')) < 0)
        return r;
    for (size_t i = 0; i < s->device_count; i++) {
        if ((r = json_separate(out)) < 0 || (r = buf_append(out, "{", 1)) < 0 ||
            (r = write_device(out, &s->devices[i])) < 0)
            return r;
    }
    if ((r = buf_append(out, "]", 1)) < 0 || (r = write_host(out, &s->host)) < 0 ||
        (r = json_add_open(out, "requests", '[')) < 0)
        return r;
    for (size_t i = 0; i < s->request_count; i++) {
        if ((r = admin_write_request_json(&s->requests[i], out)) < 0)
            return r;
    }
    if ((r = buf_append(out, "]", 1)) < 0 || (r = json_add_open(out, "decisions", '[')) < 0)
        return r;
    for (size_t i = 0; i < s->decision_count; i++) {
        if ((r = write_decision(out, &s->decisions[i])) < 0)
            return r;
    }
    return buf_append_str(out, "]}\n");
}
