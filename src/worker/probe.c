/*
 * The judging of answers, see probe.h. Body shapes: llama.cpp tools/server/README.md (/health, /props),
 * ollama docs/api.md (/api/version), OpenAI /v1/models.
 */
#include "worker/probe.h"

#include <stdio.h>
#include <string.h>
#include <yyjson.h>

/* The first byte that is no white space of JSON or HTML; 0 when there is none. */
static char first_char(struct span body)
{
    for (size_t i = 0; i < body.len; i++) {
        if (body.ptr[i] == '\0' || strchr(" \t\r\n", body.ptr[i]) == NULL)
            return body.ptr[i];
    }
    return '\0';
}

static bool string_is(yyjson_val *value, const char *text)
{
    return yyjson_is_str(value) && strcmp(yyjson_get_str(value), text) == 0;
}

/* {"error":{"message":"Loading model",…}} or, in old builds, {"status":"loading model"}. */
static bool says_loading(yyjson_val *root)
{
    yyjson_val *message = yyjson_obj_get(yyjson_obj_get(root, "error"), "message");
    const char *status = yyjson_get_str(yyjson_obj_get(root, "status"));
    const char *text = yyjson_get_str(message);

    return (text != NULL && span_find_nocase(span_from_str(text), SPAN_LIT("loading")) >= 0) ||
           (status != NULL && span_find_nocase(span_from_str(status), SPAN_LIT("loading")) >= 0);
}

static void quote_start(struct span body, char *out, size_t out_size)
{
    size_t n = body.len < 40 ? body.len : 40;

    n = n < out_size - 1 ? n : out_size - 1;
    for (size_t i = 0; i < n; i++)
        out[i] = body.ptr[i] >= 0x20 && body.ptr[i] < 0x7f ? body.ptr[i] : ' ';
    out[n] = '\0';
}

enum probe_health probe_judge_health(int status, struct span body, char *why, size_t why_size)
{
    yyjson_doc *doc = body.len > 0 ? yyjson_read(body.ptr, body.len, 0) : NULL;
    yyjson_val *root = yyjson_doc_get_root(doc);
    enum probe_health health = PROBE_HEALTH_NOT_YET;
    char start[48];

    quote_start(body, start, sizeof(start));
    if (says_loading(root)) {
        snprintf(why, why_size, "loading the model");
        health = PROBE_HEALTH_LOADING;
    } else if (status == 200 && (string_is(yyjson_obj_get(root, "status"), "ok") ||
                                 /* builds of 2024: all slots busy, so it does work */
                                 string_is(yyjson_obj_get(root, "status"), "no slot available"))) {
        why[0] = '\0';
        health = PROBE_HEALTH_READY;
    } else if (status == 200) {
        snprintf(why, why_size,
                 "unknown server type: /health answered 200 with %s instead of {\"status\":\"ok\"}",
                 first_char(body) == '<' ? "HTML" : (root != NULL ? "other JSON" : "no JSON"));
        health = PROBE_HEALTH_STRANGER;
    } else {
        snprintf(why, why_size, "/health answered %d %s", status, start);
    }
    yyjson_doc_free(doc);
    return health;
}

enum probe_health probe_judge_path(const char *path, int status, struct span body, char *why,
                                   size_t why_size)
{
    char start[48];

    if (status >= 200 && status <= 299) {
        why[0] = '\0';
        return PROBE_HEALTH_READY;
    }
    quote_start(body, start, sizeof(start));
    if (status == 404 || status == 405)
        snprintf(
            why, why_size,
            "%s answered %d: it has no such path; `health` must be one that answers 200 when the "
            "program is ready",
            path, status);
    else
        snprintf(why, why_size, "%s answered %d %s", path, status, start);
    return PROBE_HEALTH_NOT_YET;
}

static const struct {
    const char *path;
    enum worker_engine engine;
} engine_steps[PROBE_ENGINE_STEPS] = {
    {"/props", WORKER_ENGINE_LLAMA_SERVER},
    {"/api/version", WORKER_ENGINE_OLLAMA},
    {"/v1/models", WORKER_ENGINE_OPENAI},
};

const char *probe_engine_path(unsigned step)
{
    return step < PROBE_ENGINE_STEPS ? engine_steps[step].path : NULL;
}

/* Bodies may be cut (a chat template, a long list), so they are searched and not parsed. */
static bool has(struct span body, const char *text)
{
    return span_find(body, span_from_str(text)) >= 0;
}

enum worker_engine probe_judge_engine(unsigned step, int status, struct span body)
{
    if (step >= PROBE_ENGINE_STEPS || first_char(body) != '{')
        return WORKER_ENGINE_UNKNOWN;
    switch (engine_steps[step].engine) {
    case WORKER_ENGINE_LLAMA_SERVER:
        if ((status == 200 && has(body, "\"default_generation_settings\"")) ||
            (status == 503 && (has(body, "Loading model") || has(body, "loading model"))))
            return WORKER_ENGINE_LLAMA_SERVER;
        break;
    case WORKER_ENGINE_OLLAMA:
        if (status == 200 && has(body, "\"version\""))
            return WORKER_ENGINE_OLLAMA;
        break;
    case WORKER_ENGINE_OPENAI:
        if (status == 200 && has(body, "\"data\""))
            return WORKER_ENGINE_OPENAI;
        /* Behind an API key it still answers in the API's shape. */
        if ((status == 401 || status == 403) && has(body, "\"error\""))
            return WORKER_ENGINE_OPENAI;
        break;
    case WORKER_ENGINE_UNKNOWN:
    case WORKER_ENGINE_GENERIC: break;
    }
    return WORKER_ENGINE_UNKNOWN;
}
