/*
 * What the gateway says itself: errors in the client's dialect, the typed end of a cut stream,
 * whole answers with the status headers, and the list of models. Loop thread only.
 */
#include "gateway/internal.h"

#include <inttypes.h>
#include <stdio.h>

enum { ANSWER_ERROR_BYTES = 64 * 1024 };

static const char json_type[] = "application/json; charset=utf-8";

static void add_retry_after(const struct api_error *e, struct http_fields *fields)
{
    if (e->retry_after_ms < 0)
        return;
    char text[24];
    snprintf(text, sizeof(text), "%" PRId64, (e->retry_after_ms + 999) / 1000);
    (void)http_fields_add(fields, SPAN_LIT("Retry-After"), span_from_str(text));
}

static void reply_error(struct http_exchange *x, const struct api_error *e,
                        enum api_dialect dialect, struct http_fields *fields)
{
    struct buf body;
    buf_init(&body, ANSWER_ERROR_BYTES);
    (void)api_error_write_body(e, dialect, &body);
    (void)http_fields_add(fields, SPAN_LIT("Content-Type"), span_from_str(json_type));
    add_retry_after(e, fields);
    http_exchange_reply(x, e->status, fields, buf_span(&body));
    http_fields_free(fields);
    buf_free(&body);
}

void answer_exchange_error(struct http_exchange *x, const struct api_error *e,
                           enum api_dialect dialect, const char *request_id)
{
    struct http_fields fields;
    http_fields_init(&fields, 4096);
    if (request_id)
        (void)http_fields_add(&fields, SPAN_LIT("X-Failsoft-Request"), span_from_str(request_id));
    reply_error(x, e, dialect, &fields);
}

void answer_bad_method(struct http_exchange *x, const struct api_route *route)
{
    struct api_error e;
    struct http_fields fields;
    http_fields_init(&fields, 4096);
    api_error_bad_method(&e, http_exchange_method(x), route->allow);
    (void)http_fields_add(&fields, SPAN_LIT("Allow"), span_from_str(route->allow));
    reply_error(x, &e, route->dialect, &fields);
}

/* An error inside a response that has begun: the event, then the proper end. */
static void answer_in_band(struct gateway_request *r, const struct api_error *e)
{
    struct attempt *a = &r->attempt;
    struct buf event;
    buf_init(&event, ANSWER_ERROR_BYTES);
    bool inside_event = a->mode == ATTEMPT_MODE_RAW || a->framer.in_pieces;
    struct http_exchange *x = r->exchange;
    int error = api_error_write_event(e, r->route.operation, r->route.framing, &event);
    if (inside_event || error < 0) {
        /* Words would be taken for a part of the answer: a cut is the only honest sign. */
        if (relay_flush(r)) {
            http_exchange_set_user(x, NULL);
            http_exchange_abort(x);
            r->exchange = NULL;
        }
    } else {
        relay_gather(r, buf_span(&event));
        relay_end(r);
    }
    buf_free(&event);
}

static const struct api_error out_of_memory = {
    .status = 503,
    .type = "overloaded_error",
    .code = "out_of_memory",
    .message = "the gateway is out of memory",
    .retryable = true,
    .retry_after_ms = 1000,
    .events_sent = -1,
    .bytes_sent = -1,
};

static const struct api_error *error_to_say(struct gateway_request *r)
{
    if (!r->error && r->state == LIFECYCLE_STATE_CANCELLED) {
        struct api_error *e = request_error(r);
        if (e)
            api_error_cancelled(e, r->gateway->stopping ? "the gateway is shutting down"
                                                        : "the owner of the gateway");
    }
    return r->error ? r->error : &out_of_memory;
}

void answer_error(struct gateway_request *r)
{
    const struct api_error *e = error_to_say(r);
    if (http_exchange_has_begun(r->exchange)) {
        answer_in_band(r, e);
        return;
    }
    http_exchange_set_user(r->exchange, NULL);
    answer_exchange_error(r->exchange, e, r->route.dialect, r->id);
    r->exchange = NULL;
}

void answer_cut(struct gateway_request *r)
{
    if (r->exchange)
        answer_in_band(r, error_to_say(r));
}

/* A worker's error answer for a client whose stream has already begun. */
static void answer_error_in_band(struct gateway_request *r)
{
    struct attempt *a = &r->attempt;
    struct api_event_error said;
    struct api_error e;
    bool parsed = api_event_error_parse(buf_span(&a->held), &said);
    api_error_set(&e, a->status, "upstream_error", "worker_refused", "%s",
                  parsed ? said.message : "the worker refused the request");
    answer_in_band(r, &e);
}

void answer_whole(struct gateway_request *r)
{
    struct attempt *a = &r->attempt;
    if (!r->exchange)
        return;
    if (r->error) {
        answer_error(r);
        return;
    }
    if (http_exchange_has_begun(r->exchange)) {
        answer_error_in_band(r);
        return;
    }
    struct http_fields *fields = scratch_fields(r->gateway);
    bool assembled = a->mode == ATTEMPT_MODE_ASSEMBLE;
    int error = 0;
    if (assembled)
        error = http_fields_add(fields, SPAN_LIT("Content-Type"), span_from_str(json_type));
    if (error == 0)
        error = headers_for_client(r, assembled ? NULL : &a->fields, false, fields);
    struct http_exchange *x = r->exchange;
    r->exchange = NULL;
    http_exchange_set_user(x, NULL);
    if (error < 0)
        answer_exchange_error(x, &out_of_memory, r->route.dialect, r->id);
    else
        http_exchange_reply(x, a->status, fields, buf_span(&a->held));
}

void answer_refused(int status, const char *message, struct span path, struct buf *ret_body,
                    void *ctx)
{
    struct gateway *g = ctx;
    struct api_route route;
    struct api_error e;
    enum api_dialect dialect = API_DIALECT_OPENAI;
    if (path.len > 0 && api_route_find(SPAN_LIT("POST"), path, &route))
        dialect = route.dialect;
    if (status == 413) {
        api_error_too_large(&e, g->current->config->limits.body_bytes);
    } else {
        const char *type = status >= 500 ? "overloaded_error" : "invalid_request_error";
        api_error_set(&e, status, type, "http_refused", "%s", message);
        e.retryable = status == 503 || status == 408;
    }
    (void)api_error_write_body(&e, dialect, ret_body);
}

static int write_model(struct buf *out, struct span id, const char *kind)
{
    int r = buf_append_str(out, "{\"id\":\"");
    if (r == 0)
        r = buf_append_json(out, id);
    if (r == 0)
        r = buf_printf(out,
                       "\",\"object\":\"model\",\"created\":0,\"owned_by\":\"failsoft\","
                       "\"kind\":\"%s\"}",
                       kind);
    return r;
}

void answer_models(struct gateway *g, struct http_exchange *x, const struct api_route *route)
{
    struct generation *gen = g->current;
    struct buf body;
    buf_init(&body, (size_t)4 * 1024 * 1024);
    if (route->operation == API_OPERATION_MODEL) {
        struct gateway_service *s = generation_find_service(gen, route->model);
        if (!s) {
            struct api_error e;
            api_error_unknown_model(&e, route->model, NULL, 0);
            answer_exchange_error(x, &e, route->dialect, NULL);
            return;
        }
        (void)write_model(&body, route->model, config_service_kind_name(s->config->kind));
    } else {
        (void)buf_append_str(&body, "{\"object\":\"list\",\"data\":[");
        bool first = true;
        for (size_t i = 0; i < gen->service_count; i++) {
            const struct config_service *c = gen->services[i].config;
            for (size_t k = 0; k <= c->aliases.count; k++) {
                const char *name = k == 0 ? c->name : c->aliases.items[k - 1];
                if (!first)
                    (void)buf_append_str(&body, ",");
                first = false;
                (void)write_model(&body, span_from_str(name), config_service_kind_name(c->kind));
            }
        }
        (void)buf_append_str(&body, "]}");
    }
    struct http_fields fields;
    http_fields_init(&fields, 256);
    (void)http_fields_add(&fields, SPAN_LIT("Content-Type"), span_from_str(json_type));
    http_exchange_reply(x, 200, &fields, buf_span(&body));
    http_fields_free(&fields);
    buf_free(&body);
}
