/*
 * What a request is: its route, the facts of its body, and the service it belongs to. Everything
 * that is the client's own mistake is found here, before a worker is touched. Loop thread only.
 */
#include "gateway/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The kind of service an operation needs, -1: any. */
static int operation_kind(enum api_operation operation)
{
    switch (operation) {
    case API_OPERATION_CHAT:
    case API_OPERATION_COMPLETIONS:
    case API_OPERATION_NATIVE_COMPLETION:
    case API_OPERATION_INFILL:
    case API_OPERATION_RESPONSES:
    case API_OPERATION_MESSAGES:
    case API_OPERATION_COUNT_TOKENS:
    case API_OPERATION_OLLAMA_CHAT:
    case API_OPERATION_OLLAMA_GENERATE: return CONFIG_SERVICE_KIND_CHAT;
    case API_OPERATION_EMBEDDINGS:
    case API_OPERATION_NATIVE_EMBEDDING:
    case API_OPERATION_OLLAMA_EMBED:
    case API_OPERATION_OLLAMA_EMBEDDINGS: return CONFIG_SERVICE_KIND_EMBEDDINGS;
    case API_OPERATION_TRANSCRIPTION:
    case API_OPERATION_TRANSLATION: return CONFIG_SERVICE_KIND_TRANSCRIPTION;
    default: return -1;
    }
}

static bool path_has_prefix(struct span path, const char *prefix)
{
    struct span p = span_from_str(prefix);
    while (p.len > 1 && p.ptr[p.len - 1] == '/')
        p.len--;
    return span_starts_with(path, p) &&
           (path.len == p.len || path.ptr[p.len] == '/' || p.ptr[p.len - 1] == '/');
}

static struct gateway_service *service_by_path(struct generation *gen, struct span path)
{
    struct gateway_service *best = NULL;
    size_t best_length = 0;
    for (size_t i = 0; i < gen->service_count; i++) {
        const struct config_strings *paths = &gen->services[i].config->paths;
        for (size_t k = 0; k < paths->count; k++) {
            size_t length = strlen(paths->items[k]);
            if (length >= best_length && path_has_prefix(path, paths->items[k])) {
                best = &gen->services[i];
                best_length = length;
            }
        }
    }
    return best;
}

static bool service_speaks_ollama(const struct gateway_service *s)
{
    for (size_t i = 0; i < s->tier_count; i++)
        if (s->tiers[i].config->engine == CONFIG_ENGINE_OLLAMA ||
            (s->tiers[i].worker->worker &&
             worker_get_engine(s->tiers[i].worker->worker) == WORKER_ENGINE_OLLAMA))
            return true;
    return false;
}

/* The only service that could be meant when no model is named. */
static struct gateway_service *service_by_elimination(struct generation *gen,
                                                      const struct api_route *route)
{
    int kind = operation_kind(route->operation);
    bool ollama_listing = route->dialect == API_DIALECT_OLLAMA && kind < 0;
    struct gateway_service *found = NULL;
    for (size_t i = 0; i < gen->service_count; i++) {
        struct gateway_service *s = &gen->services[i];
        if (kind >= 0 && s->config->kind != kind)
            continue;
        if (ollama_listing) {
            /* Lists of what an Ollama server has: the first one answers. */
            if (service_speaks_ollama(s))
                return s;
            continue;
        }
        if (found)
            return NULL;
        found = s;
    }
    return found;
}

static void say_unknown_model(struct gateway_request *r, struct span model)
{
    struct generation *gen = r->generation;
    const char **names = calloc(gen->service_count + 1, sizeof(*names));
    size_t count = 0;
    for (size_t i = 0; names && i < gen->service_count; i++)
        names[count++] = gen->services[i].config->name;
    struct api_error *e = request_error(r);
    if (e)
        api_error_unknown_model(e, model, names, count);
    free(names);
}

static bool find_service(struct gateway_request *r)
{
    struct generation *gen = r->generation;
    struct span model = span_from_str(r->api->model);
    if (r->api->has_model) {
        r->service = generation_find_service(gen, model);
        if (r->service)
            return true;
    }
    r->service = service_by_path(gen, r->route.path);
    if (r->service)
        return true;
    if (r->api->has_model && r->route.operation != API_OPERATION_PASS) {
        say_unknown_model(r, model);
        return false;
    }
    r->service = service_by_elimination(gen, &r->route);
    if (r->service)
        return true;
    struct api_error *e = request_error(r);
    if (!e)
        return false;
    if (r->route.operation == API_OPERATION_PASS)
        api_error_set(e, 404, "not_found_error", "unknown_path",
                      "%.*s belongs to no service: name one with `model` in a JSON body, or give a "
                      "service this path (`paths:`) in the configuration",
                      SPAN_FMT(r->route.path));
    else if (r->route.dialect == API_DIALECT_OLLAMA)
        api_error_set(e, 404, "not_found_error", "unknown_path",
                      "no service here has a tier that speaks Ollama's API");
    else
        api_error_bad_member(e, "model",
                             "`model` is missing and more than one service could be "
                             "meant; GET /v1/models lists their names");
    return false;
}

static bool check_kind(struct gateway_request *r)
{
    int kind = operation_kind(r->route.operation);
    int have = r->service->config->kind;
    bool text_on_other =
        kind == CONFIG_SERVICE_KIND_CHAT &&
        (have == CONFIG_SERVICE_KIND_EMBEDDINGS || have == CONFIG_SERVICE_KIND_TRANSCRIPTION);
    if (!text_on_other)
        return true;
    struct api_error *e = request_error(r);
    if (e)
        api_error_bad_member(e, "model", "service %s is for %s and cannot answer %.*s",
                             r->service->config->name, config_service_kind_name(have),
                             SPAN_FMT(r->route.path));
    return false;
}

static bool parse_accept(struct gateway_request *r)
{
    struct span value = http_fields_get(http_exchange_fields(r->exchange), "x-failsoft-accept");
    if (!value.ptr || span_equals_nocase(value, SPAN_LIT("any")))
        r->accept = REQUEST_ACCEPT_ANY;
    else if (span_equals_nocase(value, SPAN_LIT("same-model")))
        r->accept = REQUEST_ACCEPT_SAME_MODEL;
    else if (span_equals_nocase(value, SPAN_LIT("gpu-only")))
        r->accept = REQUEST_ACCEPT_GPU_ONLY;
    else {
        struct api_error *e = request_error(r);
        if (e)
            api_error_set(e, 400, "invalid_request_error", "bad_accept",
                          "X-Failsoft-Accept is one of gpu-only, same-model, any");
        return false;
    }
    return true;
}

static bool parse_body(struct gateway_request *r)
{
    struct span type = http_fields_get(http_exchange_fields(r->exchange), "content-type");
    struct span body = http_exchange_body(r->exchange);
    struct api_error error;
    if (r->route.operation == API_OPERATION_PASS) {
        /* An unknown path may still name a model; whether its body is right is the worker's to say. */
        struct api_route as_json = r->route;
        as_json.body = API_BODY_JSON;
        bool json = type.ptr && span_find_nocase(type, SPAN_LIT("application/json")) == 0;
        if (json && body.len > 0 && api_request_parse(&as_json, type, body, r->api, &error) == 0) {
            /* Its `stream` has a meaning that is not known here. */
            r->api->stream = false;
            return true;
        }
    }
    if (!type.ptr)
        type = SPAN_LIT("");
    int result = api_request_parse(&r->route, type, body, r->api, &error);
    if (result == 0)
        return true;
    struct api_error *e = request_error(r);
    if (e)
        *e = error;
    return false;
}

static bool read_demand(struct gateway_request *r)
{
    struct api_error error;
    if (api_demand_read(&r->route, r->api, &r->demand, &error) == 0)
        return true;
    struct api_error *e = request_error(r);
    if (e)
        *e = error;
    return false;
}

bool request_identify(struct gateway_request *r)
{
    if (!parse_accept(r) || !parse_body(r) || !read_demand(r) || !find_service(r) || !check_kind(r))
        return false;
    r->streamed = r->api->stream && r->route.framing != API_FRAMING_NONE;
    r->wants_progress = r->api->return_progress;
    r->choices = r->api->n;
    return true;
}
