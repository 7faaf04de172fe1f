/*
 * Reads what a worker said about a failure, whatever shape it chose (F89: seven shapes seen in the
 * field). Pure; any thread.
 */
#include "api/event_error.h"

#include "base/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Copies as much as fits, cut at a UTF-8 boundary; control characters become spaces. */
static void copy_text(char *out, size_t size, struct span text)
{
    size_t len = 0;
    while (len < text.len) {
        size_t step = utf8_sequence_length(text.ptr + len, text.len - len);
        step = step ? step : 1;
        if (len + step >= size)
            break;
        for (size_t i = 0; i < step; i++) {
            unsigned char c = (unsigned char)text.ptr[len + i];
            out[len + i] = c < 0x20 || c == 0x7f ? ' ' : text.ptr[len + i];
        }
        len += step;
    }
    out[len] = '\0';
}

static void copy_string(char *out, size_t size, yyjson_val *value)
{
    if (yyjson_is_str(value))
        copy_text(out, size, (struct span){yyjson_get_str(value), yyjson_get_len(value)});
}

static void take_status(struct api_event_error *e, long status)
{
    if (e->status == 0 && status >= 100 && status <= 599)
        e->status = (int)status;
}

/* A code may be 504, "504" or "context_length_exceeded"; a number may be the HTTP status. */
static void take_code(struct api_event_error *e, yyjson_val *value)
{
    if (yyjson_is_int(value)) {
        long long n = yyjson_is_uint(value) ? (long long)(yyjson_get_uint(value) & INT64_MAX)
                                            : (long long)yyjson_get_sint(value);
        if (e->code[0] == '\0')
            snprintf(e->code, sizeof(e->code), "%lld", n);
        if (n <= 599)
            take_status(e, (long)n);
    } else if (yyjson_is_str(value) && yyjson_get_len(value) > 0) {
        if (e->code[0] == '\0')
            copy_string(e->code, sizeof(e->code), value);
        if (yyjson_get_len(value) == 3)
            take_status(e, strtol(yyjson_get_str(value), NULL, 10));
    }
}

/* The members of one error object, nested or at the top. */
static void take_object(struct api_event_error *e, yyjson_val *object)
{
    static const char *const status_names[] = {"status", "status_code", "http_status"};
    copy_string(e->message, sizeof(e->message), yyjson_obj_get(object, "message"));
    copy_string(e->type, sizeof(e->type), yyjson_obj_get(object, "type"));
    take_code(e, yyjson_obj_get(object, "code"));
    for (size_t i = 0; i < sizeof(status_names) / sizeof(status_names[0]); i++) {
        yyjson_val *status = yyjson_obj_get(object, status_names[i]);
        if (yyjson_is_uint(status) && yyjson_get_uint(status) <= 599)
            take_status(e, (long)yyjson_get_uint(status));
    }
    if (e->message[0] == '\0') {
        static const char *const other_names[] = {"detail", "msg", "reason", "error"};
        for (size_t i = 0; i < sizeof(other_names) / sizeof(other_names[0]); i++)
            if (e->message[0] == '\0')
                copy_string(e->message, sizeof(e->message), yyjson_obj_get(object, other_names[i]));
    }
}

bool event_error_is_something(yyjson_val *value)
{
    switch (yyjson_get_type(value)) {
    case YYJSON_TYPE_STR: return yyjson_get_len(value) > 0;
    case YYJSON_TYPE_ARR: return yyjson_arr_size(value) > 0;
    case YYJSON_TYPE_OBJ: return yyjson_obj_size(value) > 0;
    case YYJSON_TYPE_BOOL: return yyjson_get_bool(value);
    case YYJSON_TYPE_NUM: return true;
    default: return false; /* absent, null */
    }
}

bool event_error_take(yyjson_val *root, bool named_error, struct api_event_error *ret)
{
    struct api_event_error e = {0};
    yyjson_val *error = yyjson_obj_get(root, "error");
    yyjson_val *type = yyjson_obj_get(root, "type");
    yyjson_val *object = yyjson_obj_get(root, "object");
    if (yyjson_equals_str(type, "response.failed"))
        error = yyjson_obj_get(yyjson_obj_get(root, "response"), "error");
    if (yyjson_is_obj(error) && event_error_is_something(error)) {
        take_object(&e, error);
        take_code(&e, yyjson_obj_get(root, "code")); /* some put the status beside it */
        yyjson_val *status = yyjson_obj_get(root, "status");
        if (yyjson_is_uint(status) && yyjson_get_uint(status) <= 599)
            take_status(&e, (long)yyjson_get_uint(status));
    } else if (event_error_is_something(error)) {
        if (yyjson_is_str(error))
            take_object(&e, root); /* Ollama: {"error":"text"}, maybe with a code beside it */
        copy_string(e.message, sizeof(e.message), error);
    } else if (named_error || yyjson_equals_str(type, "error") ||
               yyjson_equals_str(type, "response.failed") || yyjson_equals_str(object, "error")) {
        take_object(&e, root);
    } else {
        return false;
    }
    *ret = e;
    return true;
}

void event_error_take_text(struct span text, struct api_event_error *ret)
{
    *ret = (struct api_event_error){0};
    copy_text(ret->message, sizeof(ret->message), span_trim(text));
}
