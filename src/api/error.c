/*
 * The wording of errors and their shape in each dialect. Pure; any thread.
 *
 * Every shape carries the same extra members, so that a program can act on them in any dialect:
 * retryable, retry_after_ms, events_sent, bytes_sent, resume, would_fit. What is "not said" is left
 * out rather than written as null.
 */
#include "api/error.h"

#include "base/utf8.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define TYPE_REQUEST     "invalid_request_error"
#define TYPE_NOT_FOUND   "not_found_error"
#define TYPE_TOO_LARGE   "request_too_large"
#define TYPE_UNAVAILABLE "unavailable_error"
#define TYPE_UPSTREAM    "upstream_error"
#define TYPE_TIMEOUT     "timeout_error"
#define TYPE_CANCELLED   "cancelled_error"

static const char ellipsis[] = "…";

/* Cuts a text that filled its field at the last whole UTF-8 sequence and marks the cut. */
static void cut_text(char *text, size_t size)
{
    size_t room = size - sizeof(ellipsis);
    size_t len = 0;
    size_t end = strlen(text);
    while (len < end) {
        size_t step = utf8_sequence_length(text + len, end - len);
        step = step ? step : 1;
        if (len + step > room)
            break;
        len += step;
    }
    memcpy(text + len, ellipsis, sizeof(ellipsis));
}

static void format_text(char *out, size_t size, const char *format, va_list args)
{
    int n = vsnprintf(out, size, format, args);
    if (n < 0)
        out[0] = '\0';
    else if ((size_t)n >= size)
        cut_text(out, size);
}

/* Appends to a text field; false when it had to be cut. */
static bool __attribute__((format(printf, 3, 4)))
add_text(char *out, size_t size, const char *format, ...)
{
    size_t len = strlen(out);
    va_list args;
    va_start(args, format);
    int n = vsnprintf(out + len, size - len, format, args);
    va_end(args);
    if (n >= 0 && (size_t)n < size - len)
        return true;
    cut_text(out, size);
    return false;
}

static void init(struct api_error *e, int status, const char *type, const char *code)
{
    *e = (struct api_error){
        .status = status,
        .type = type,
        .code = code,
        .retry_after_ms = -1,
        .events_sent = -1,
        .bytes_sent = -1,
    };
}

void api_error_set(struct api_error *ret, int status, const char *type, const char *code,
                   const char *format, ...)
{
    init(ret, status, type, code);
    va_list args;
    va_start(args, format);
    format_text(ret->message, sizeof(ret->message), format, args);
    va_end(args);
}

void api_error_bad_json(struct api_error *ret, size_t line, size_t column, size_t offset,
                        const char *what)
{
    api_error_set(
        ret, 400, TYPE_REQUEST, "json_invalid",
        "The body is not valid JSON: %s at line %zu, column %zu (byte %zu). No worker was "
        "asked.",
        what, line, column, offset);
}

void api_error_bad_member(struct api_error *ret, const char *param, const char *format, ...)
{
    init(ret, 400, TYPE_REQUEST, "member_invalid");
    ret->param = param;
    va_list args;
    va_start(args, format);
    format_text(ret->message, sizeof(ret->message), format, args);
    va_end(args);
}

void api_error_unknown_model(struct api_error *ret, struct span model, const char *const *names,
                             size_t name_count)
{
    init(ret, 404, TYPE_NOT_FOUND, "model_not_found");
    ret->param = "model";
    if (model.len == 0)
        add_text(ret->message, sizeof(ret->message), "The request names no model.");
    else
        add_text(ret->message, sizeof(ret->message), "There is no model '%.*s' here.",
                 (int)(model.len > 128 ? 128 : model.len), model.ptr);
    if (name_count == 0) {
        add_text(ret->message, sizeof(ret->message), " No service is configured.");
        return;
    }
    add_text(ret->message, sizeof(ret->message), " Models: ");
    for (size_t i = 0; i < name_count; i++)
        if (!add_text(ret->message, sizeof(ret->message), "%s%s", i ? ", " : "", names[i]))
            return;
    add_text(ret->message, sizeof(ret->message), ".");
}

void api_error_bad_method(struct api_error *ret, struct span method, const char *allow)
{
    api_error_set(ret, 405, TYPE_REQUEST, "method_not_allowed",
                  "Method %.*s is not allowed here; allowed: %s.",
                  (int)(method.len > 32 ? 32 : method.len), method.ptr, allow);
}

void api_error_too_large(struct api_error *ret, uint64_t limit_bytes)
{
    api_error_set(ret, 413, TYPE_TOO_LARGE, "body_too_large",
                  "The body is larger than the limit of %" PRIu64
                  " bytes. Send less, or raise the limit in the configuration.",
                  limit_bytes);
    snprintf(ret->would_fit, sizeof(ret->would_fit), "a body of at most %" PRIu64 " bytes",
             limit_bytes);
}

static void add_tiers(struct api_error *e, const struct api_error_tier *tiers, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!add_text(e->message, sizeof(e->message), "%s%s: %s", i ? "; " : "", tiers[i].tier,
                      tiers[i].reason))
            return;
    add_text(e->message, sizeof(e->message), ".");
}

void api_error_no_capacity(struct api_error *ret, const char *service,
                           const struct api_error_tier *tiers, size_t tier_count,
                           int64_t retry_after_ms)
{
    api_error_set(ret, 503, TYPE_UNAVAILABLE, "no_capacity", "No tier of '%s' can serve now. ",
                  service);
    add_tiers(ret, tiers, tier_count);
    ret->retryable = true;
    ret->retry_after_ms = retry_after_ms < 0 ? -1 : retry_after_ms;
}

void api_error_upstream_failed(struct api_error *ret, const char *service,
                               const struct api_error_tier *tiers, size_t tier_count)
{
    api_error_set(ret, 502, TYPE_UPSTREAM, "upstream_failed",
                  "Every tier of '%s' that could be tried failed before it gave any output. ",
                  service);
    add_tiers(ret, tiers, tier_count);
    ret->retryable = true;
}

void api_error_no_progress(struct api_error *ret, const char *tier, uint64_t timeout_ms)
{
    api_error_set(ret, 504, TYPE_TIMEOUT, "no_progress",
                  "Tier %s gave nothing within %" PRIu64 " ms and no other tier could take over.",
                  tier, timeout_ms);
    ret->retryable = true;
}

void api_error_cut(struct api_error *ret, const char *tier, const char *reason,
                   uint64_t events_sent, uint64_t bytes_sent, bool tool_call,
                   const char *request_id)
{
    api_error_set(ret, 502, TYPE_UPSTREAM, tool_call ? "upstream_cut_in_tool_call" : "upstream_cut",
                  "The answer was cut on tier %s after %" PRIu64 " events (%" PRIu64
                  " bytes): %s. ",
                  tier, events_sent, bytes_sent, reason);
    add_text(ret->message, sizeof(ret->message), "%s",
             tool_call ? "It holds an incomplete tool call, do not execute it."
                       : "What was sent is incomplete; it was not repeated on another tier.");
    ret->retryable = true;
    ret->incomplete_tool_call = tool_call;
    ret->events_sent = events_sent > INT64_MAX ? INT64_MAX : (int64_t)events_sent;
    ret->bytes_sent = bytes_sent > INT64_MAX ? INT64_MAX : (int64_t)bytes_sent;
    if (request_id != NULL)
        snprintf(ret->request_id, sizeof(ret->request_id), "%s", request_id);
}

void api_error_cancelled(struct api_error *ret, const char *by)
{
    api_error_set(ret, 503, TYPE_CANCELLED, "cancelled", "The request was cancelled by %s.", by);
}

/* Appends `,"name":"text"` (text escaped); `first` leaves the comma out. */
static int add_string(struct buf *out, bool first, const char *name, const char *text)
{
    int r = buf_printf(out, "%s\"%s\":\"", first ? "" : ",", name);
    if (r == 0)
        r = buf_append_json(out, span_from_str(text));
    return r == 0 ? buf_append(out, "\"", 1) : r;
}

static int add_number(struct buf *out, const char *name, int64_t value)
{
    return value < 0 ? 0 : buf_printf(out, ",\"%s\":%" PRId64, name, value);
}

/* The members that are ours, the same in every dialect. */
static int add_extras(const struct api_error *e, struct buf *out)
{
    int r = buf_printf(out, ",\"retryable\":%s", e->retryable ? "true" : "false");
    if (r == 0)
        r = add_number(out, "retry_after_ms", e->retry_after_ms);
    if (r == 0)
        r = add_number(out, "events_sent", e->events_sent);
    if (r == 0)
        r = add_number(out, "bytes_sent", e->bytes_sent);
    if (r == 0 && e->incomplete_tool_call)
        r = buf_append_str(out, ",\"incomplete_tool_call\":true");
    if (r == 0 && e->would_fit[0] != '\0')
        r = add_string(out, false, "would_fit", e->would_fit);
    if (r == 0 && e->request_id[0] != '\0')
        r = add_string(out, false, "resume", e->request_id);
    return r;
}

/* {"message":…,"type":…,"code":…,"param":…,…} */
static int add_openai_object(const struct api_error *e, struct buf *out)
{
    int r = buf_append_str(out, "{");
    if (r == 0)
        r = add_string(out, true, "message", e->message);
    if (r == 0)
        r = add_string(out, false, "type", e->type);
    if (r == 0)
        r = add_string(out, false, "code", e->code);
    if (r == 0)
        r = e->param ? add_string(out, false, "param", e->param)
                     : buf_append_str(out, ",\"param\":null");
    if (r == 0)
        r = add_extras(e, out);
    return r == 0 ? buf_append_str(out, "}") : r;
}

static int add_openai(const struct api_error *e, struct buf *out)
{
    int r = buf_append_str(out, "{\"error\":");
    if (r == 0)
        r = add_openai_object(e, out);
    return r == 0 ? buf_append_str(out, "}") : r;
}

/* The types that Anthropic's clients know, by status (docs: "Errors"). */
static const char *anthropic_type(const struct api_error *e)
{
    switch (e->status) {
    case 400:
    case 405:
    case 415:
    case 422: return "invalid_request_error";
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 413: return "request_too_large";
    case 429: return "rate_limit_error";
    case 503: return "overloaded_error";
    case 504: return "timeout_error";
    default: return "api_error";
    }
}

static int add_anthropic(const struct api_error *e, struct buf *out)
{
    int r = buf_append_str(out, "{\"type\":\"error\",\"error\":{");
    if (r == 0)
        r = add_string(out, true, "type", anthropic_type(e));
    if (r == 0)
        r = add_string(out, false, "message", e->message);
    if (r == 0)
        r = add_string(out, false, "code", e->code);
    if (r == 0)
        r = add_extras(e, out);
    if (r == 0)
        r = buf_append_str(out, "}");
    if (r == 0 && e->request_id[0] != '\0')
        r = add_string(out, false, "request_id", e->request_id);
    return r == 0 ? buf_append_str(out, "}") : r;
}

static int add_ollama(const struct api_error *e, struct buf *out)
{
    int r = buf_append_str(out, "{");
    if (r == 0)
        r = add_string(out, true, "error", e->message);
    if (r == 0)
        r = add_string(out, false, "type", e->type);
    if (r == 0)
        r = add_string(out, false, "code", e->code);
    if (r == 0)
        r = add_extras(e, out);
    return r == 0 ? buf_append_str(out, "}") : r;
}

/*
 * The Responses API has an `error` event of its own whose members stand at the top; the `error`
 * object beside them is what the official clients of before look for.
 */
static int add_responses_event(const struct api_error *e, struct buf *out)
{
    int r = buf_append_str(out, "{\"type\":\"error\"");
    if (r == 0)
        r = add_string(out, false, "code", e->code);
    if (r == 0)
        r = add_string(out, false, "message", e->message);
    if (r == 0)
        r = buf_printf(out, ",\"param\":null,\"sequence_number\":%" PRId64 ",\"error\":",
                       e->events_sent < 0 ? 0 : e->events_sent);
    if (r == 0)
        r = add_openai_object(e, out);
    return r == 0 ? buf_append_str(out, "}") : r;
}

int api_error_write_body(const struct api_error *e, enum api_dialect dialect, struct buf *out)
{
    switch (dialect) {
    case API_DIALECT_ANTHROPIC: return add_anthropic(e, out);
    case API_DIALECT_OLLAMA: return add_ollama(e, out);
    default: return add_openai(e, out);
    }
}

int api_error_write_event(const struct api_error *e, enum api_operation operation,
                          enum api_framing framing, struct buf *out)
{
    if (framing == API_FRAMING_NDJSON) {
        int line =
            operation == API_OPERATION_OLLAMA_CHAT || operation == API_OPERATION_OLLAMA_GENERATE
                ? add_ollama(e, out)
                : add_openai(e, out);
        return line == 0 ? buf_append(out, "\n", 1) : line;
    }
    bool named = operation == API_OPERATION_MESSAGES || operation == API_OPERATION_RESPONSES;
    int r = buf_append_str(out, named ? "event: error\ndata: " : "data: ");
    if (r == 0) {
        if (operation == API_OPERATION_MESSAGES)
            r = add_anthropic(e, out);
        else if (operation == API_OPERATION_RESPONSES)
            r = add_responses_event(e, out);
        else
            r = add_openai(e, out);
    }
    return r == 0 ? buf_append_str(out, "\n\n") : r;
}
