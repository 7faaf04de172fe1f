/*
 * Header fields on their way through: hop-by-hop fields stay behind, framing is our own, what
 * failsoft has to say is added, everything else passes as it came. Loop thread only.
 */
#include "gateway/internal.h"
#include "http/head.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    SCRATCH_FIELDS_BYTES = 64 * 1024,
    SCRATCH_KEPT_BYTES = 8 * 1024,
};

#define NAME(text)                                                                                 \
    {                                                                                              \
        text, sizeof(text) - 1                                                                     \
    }

/* Fields of a request that never reach a worker, beside the hop-by-hop ones. */
static const struct span request_private[] = {
    NAME("host"),
    NAME("content-length"),
    NAME("content-type"),
    NAME("expect"),
    NAME("accept-encoding"),
    NAME("idempotency-key"),
    NAME("x-failsoft-accept"),
    NAME("x-failsoft-request"),
};

/* Fields of an answer that are made anew, beside the hop-by-hop ones. */
static const struct span response_private[] = {
    NAME("content-length"),    NAME("date"),
    NAME("server-timing"),     NAME("x-failsoft-request"),
    NAME("x-failsoft-tier"),   NAME("x-failsoft-degraded"),
    NAME("x-failsoft-reason"), NAME("x-failsoft-eta-ms"),
};

enum {
    REQUEST_PRIVATE_COUNT = sizeof(request_private) / sizeof(request_private[0]),
    RESPONSE_PRIVATE_COUNT = sizeof(response_private) / sizeof(response_private[0]),
};

static bool is_listed(struct span name, const struct span *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (span_equals_nocase(name, list[i]))
            return true;
    return false;
}

int headers_for_worker(const struct gateway_request *r, struct http_fields *out)
{
    const struct http_fields *in = http_exchange_fields(r->exchange);
    int error = 0;
    for (uint32_t i = 0; error == 0 && i < in->count; i++) {
        struct span name = http_fields_name(in, i);
        if (is_listed(name, request_private, REQUEST_PRIVATE_COUNT) ||
            http_fields_is_hop_by_hop(in, name))
            continue;
        error = http_fields_add(out, name, http_fields_value(in, i));
    }
    /* A JSON body is labelled as what it is: labels change limits on some servers (F104). */
    struct span type = r->route.body == API_BODY_JSON ? SPAN_LIT("application/json")
                                                      : http_fields_get(in, "content-type");
    if (error == 0 && type.ptr && http_exchange_body(r->exchange).len > 0)
        error = http_fields_add(out, SPAN_LIT("Content-Type"), type);
    if (error == 0)
        error = http_fields_add(out, SPAN_LIT("X-Failsoft-Request"), span_from_str(r->id));
    return error;
}

const char *degraded_kind(const struct gateway_request *r)
{
    if (!r->service)
        return "";
    if (r->tier_index == 0 && r->max_tokens > 0)
        return "short-answer";
    bool short_context =
        r->short_context > 0 || r->service->tiers[r->tier_index].worker->short_context > 0;
    if (r->tier_index == 0)
        return short_context ? "short-context" : "";
    const struct config_tier *first = r->service->tiers[0].config;
    const struct config_tier *tier = r->service->tiers[r->tier_index].config;
    if (tier->kind == CONFIG_TIER_KIND_SUBSTITUTE ||
        (tier->model && first->model && strcmp(tier->model, first->model) != 0) ||
        (tier->model_path && first->model_path && strcmp(tier->model_path, first->model_path) != 0))
        return "other-model";
    return "other-tier";
}

/* Appends "; tier: why", cut where out ends. */
static void add_reason(char *out, size_t out_size, const char *tier, const char *why)
{
    size_t used = strlen(out);
    if (used + 1 < out_size)
        snprintf(out + used, out_size - used, "%s%s: %s", used > 0 ? "; " : "", tier, why);
}

void degraded_reason(const struct gateway_request *r, char *out, size_t out_size)
{
    out[0] = '\0';
    if (!r->service)
        return;
    for (unsigned i = 0; i < r->tier_index; i++)
        add_reason(out, out_size, r->service->tiers[i].config->name,
                   r->tier_reasons[i] ? r->tier_reasons[i] : "not chosen");
    /* What the tier that serves gives short, it says itself. */
    const struct gateway_tier *own = &r->service->tiers[r->tier_index];
    char why[96];
    if (r->max_tokens > 0 && r->tier_reasons[r->tier_index])
        add_reason(out, out_size, own->config->name, r->tier_reasons[r->tier_index]);
    gateway_worker_explain_short(own->worker, why, sizeof(why));
    if (r->short_context > 0)
        snprintf(why, sizeof(why),
                 "a context of %" PRIu64 " tokens was asked for, %" PRIu64 " is its limit",
                 r->demand.context_tokens, r->short_context);
    if (why[0])
        add_reason(out, out_size, own->config->name, why);
    /* A header value has no control characters and no bytes above ASCII. */
    for (char *p = out; *p; p++)
        if ((unsigned char)*p < 0x20 || (unsigned char)*p > 0x7e)
            *p = ' ';
}

static int add_text(struct http_fields *out, const char *name, const char *value)
{
    return http_fields_add(out, span_from_str(name), span_from_str(value));
}

struct http_fields *scratch_fields(struct gateway *g)
{
    if (g->scratch.text.max == 0)
        http_fields_init(&g->scratch, SCRATCH_FIELDS_BYTES);
    /* A freak of a head does not stay in memory for ever. */
    if (g->scratch.text.cap > SCRATCH_KEPT_BYTES)
        buf_free(&g->scratch.text);
    http_fields_clear(&g->scratch);
    return &g->scratch;
}

static int add_timing(const struct gateway_request *r, struct http_fields *out)
{
    if (r->attempt.started_ms == 0)
        return 0;
    uint64_t now_ms = uv_now(r->gateway->loop);
    const struct {
        struct span name;
        uint64_t ms;
    } parts[] = {
        {SPAN_LIT("queue;dur="), r->queue_ms},
        {SPAN_LIT(", worker;dur="), now_ms - r->attempt.started_ms},
        {SPAN_LIT(", total;dur="), now_ms - r->accepted_ms},
    };
    char text[128];
    size_t used = 0;
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        char digits[HTTP_HEAD_DIGITS];
        size_t count = http_head_digits(digits + sizeof(digits), parts[i].ms, 10);
        memcpy(text + used, parts[i].name.ptr, parts[i].name.len);
        used += parts[i].name.len;
        memcpy(text + used, digits + sizeof(digits) - count, count);
        used += count;
    }
    return http_fields_add(out, SPAN_LIT("Server-Timing"), (struct span){text, used});
}

int headers_for_client(const struct gateway_request *r, const struct http_fields *upstream,
                       bool event_stream, struct http_fields *out)
{
    int error = 0;
    for (uint32_t i = 0; error == 0 && upstream && i < upstream->count; i++) {
        struct span name = http_fields_name(upstream, i);
        if (is_listed(name, response_private, RESPONSE_PRIVATE_COUNT) ||
            http_fields_is_hop_by_hop(upstream, name))
            continue;
        error = http_fields_add(out, name, http_fields_value(upstream, i));
    }
    if (error == 0 && event_stream && !http_fields_get(out, "cache-control").ptr)
        error = add_text(out, "Cache-Control", "no-cache");
    if (error == 0 && event_stream && !http_fields_get(out, "x-accel-buffering").ptr)
        error = add_text(out, "X-Accel-Buffering", "no");
    if (error == 0)
        error = add_text(out, "X-Failsoft-Request", r->id);
    if (error < 0 || !r->service || !r->attempt.worker)
        return error;
    error = add_text(out, "X-Failsoft-Tier", r->service->tiers[r->tier_index].config->name);
    const char *kind = degraded_kind(r);
    if (error == 0 && kind[0]) {
        char reason[512];
        degraded_reason(r, reason, sizeof(reason));
        error = add_text(out, "X-Failsoft-Degraded", kind);
        if (error == 0)
            error = add_text(out, "X-Failsoft-Reason", reason);
    }
    return error < 0 ? error : add_timing(r, out);
}
