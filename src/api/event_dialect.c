/*
 * The dialects' events, member by member. Flags only say what was seen; what is neither known as
 * lifecycle nor empty counts as output.
 *
 * Sources: see api/event.h. Pure; any thread.
 */
#include "api/event_dialect.h"

#include "api/event_error.h"

#include <string.h>

#define is_something event_error_is_something

static bool ends_with(yyjson_val *value, const char *suffix)
{
    size_t len = yyjson_get_len(value), n = strlen(suffix);
    return yyjson_is_str(value) && len >= n &&
           memcmp(yyjson_get_str(value) + len - n, suffix, n) == 0;
}

static bool contains(yyjson_val *value, const char *part)
{
    return yyjson_is_str(value) && strstr(yyjson_get_str(value), part) != NULL;
}

static void set_output(struct event_reading *r)
{
    r->facts->output = true;
}

static void set_tool_call(struct event_reading *r)
{
    r->facts->output = true;
    r->facts->tool_call = true;
}

static void set_end(struct event_reading *r)
{
    r->facts->finish = true;
    r->facts->ends_stream = true;
}

/* usage, timings and prompt_progress at the top, where several dialects have them. */
static void read_common(yyjson_val *root, struct event_reading *r)
{
    if (is_something(yyjson_obj_get(root, "usage")))
        r->facts->usage = true;
    if (is_something(yyjson_obj_get(root, "prompt_progress")))
        r->facts->progress = true;
}

/* delta or message of a chat choice, message of Ollama: everything but the role is content. */
static void read_delta(yyjson_val *delta, struct event_reading *r)
{
    size_t i, max;
    yyjson_val *key, *value;
    if (!yyjson_is_obj(delta))
        return; /* the macro is for objects only */
    yyjson_obj_foreach(delta, i, max, key, value)
    {
        if (yyjson_equals_str(key, "role")) {
            r->opening = true;
        } else if (!is_something(value)) {
            continue;
        } else if (yyjson_equals_str(key, "tool_calls") ||
                   yyjson_equals_str(key, "function_call")) {
            set_tool_call(r);
        } else {
            set_output(r);
        }
    }
}

static void read_choice(yyjson_val *choice, struct event_reading *r)
{
    read_delta(yyjson_obj_get(choice, "delta"), r);
    read_delta(yyjson_obj_get(choice, "message"), r);
    if (is_something(yyjson_obj_get(choice, "text")) ||
        is_something(yyjson_obj_get(choice, "logprobs")))
        set_output(r);
    if (is_something(yyjson_obj_get(choice, "finish_reason")))
        r->facts->finish = true;
}

/* OpenAI chat and completions. choices may be empty, null or missing (F87). */
static void read_choices(yyjson_val *root, struct event_reading *r)
{
    yyjson_val *choices = yyjson_obj_get(root, "choices");
    read_common(root, r);
    if (yyjson_is_arr(choices)) {
        size_t i, max;
        yyjson_val *choice;
        yyjson_arr_foreach(choices, i, max, choice) read_choice(choice, r);
    } else if (choices == NULL && !r->facts->usage && !r->facts->progress &&
               yyjson_obj_get(root, "timings") == NULL && yyjson_obj_size(root) > 0) {
        set_output(r);
    } else if (choices != NULL && !yyjson_is_null(choices)) {
        set_output(r);
    }
}

/* llama-server /completion and /infill. */
static void read_native(yyjson_val *root, struct event_reading *r)
{
    yyjson_val *content = yyjson_obj_get(root, "content");
    yyjson_val *stop = yyjson_obj_get(root, "stop");
    read_common(root, r);
    if (content == NULL && stop == NULL)
        set_output(r); /* response_fields can leave everything out */
    /* A progress report carries the token id 0, which nobody generated (seen with v0.4.0). */
    bool has_tokens = !r->facts->progress && is_something(yyjson_obj_get(root, "tokens"));
    if (is_something(content) || has_tokens ||
        is_something(yyjson_obj_get(root, "completion_probabilities")))
        set_output(r);
    if (yyjson_is_true(stop))
        set_end(r);
}

/* An item or part that is announced: message and reasoning begin empty, calls show their name. */
static void read_announced(yyjson_val *item, struct event_reading *r)
{
    yyjson_val *type = yyjson_obj_get(item, "type");
    if (contains(type, "_call") || contains(type, "tool_use"))
        set_tool_call(r);
    else if (is_something(yyjson_obj_get(item, "content")) ||
             is_something(yyjson_obj_get(item, "text")) ||
             is_something(yyjson_obj_get(item, "thinking")) ||
             is_something(yyjson_obj_get(item, "summary")) ||
             !(yyjson_equals_str(type, "message") || yyjson_equals_str(type, "reasoning") ||
               contains(type, "text") || yyjson_equals_str(type, "thinking") ||
               yyjson_equals_str(type, "refusal")))
        set_output(r);
    else
        r->opening = true;
}

static void read_response_end(yyjson_val *root, struct event_reading *r)
{
    yyjson_val *response = yyjson_obj_get(root, "response");
    set_end(r);
    r->facts->usage = is_something(yyjson_obj_get(response, "usage"));
    yyjson_val *output = yyjson_obj_get(response, "output");
    if (is_something(output))
        set_output(r);
    size_t i, max;
    yyjson_val *item;
    yyjson_arr_foreach(output, i, max, item) if (contains(yyjson_obj_get(item, "type"), "_call"))
        set_tool_call(r);
}

/* OpenAI Responses: response.* by type. */
static void read_responses(yyjson_val *root, struct event_reading *r)
{
    yyjson_val *type = yyjson_obj_get(root, "type");
    read_common(root, r);
    if (yyjson_equals_str(type, "response.created")) {
        r->opening = true;
        r->facts->progress = false; /* a client needs this one, whatever hangs on it */
    } else if (yyjson_equals_str(type, "response.queued") ||
               yyjson_equals_str(type, "response.in_progress"))
        r->opening = true;
    else if (yyjson_equals_str(type, "response.output_item.added"))
        read_announced(yyjson_obj_get(root, "item"), r);
    else if (ends_with(type, "_part.added"))
        read_announced(yyjson_obj_get(root, "part"), r);
    else if (yyjson_equals_str(type, "response.completed") ||
             yyjson_equals_str(type, "response.incomplete"))
        read_response_end(root, r);
    else if (yyjson_equals_str(type, "keepalive") || yyjson_equals_str(type, "ping"))
        r->ping = true;
    else if (contains(type, "_call") ||
             contains(yyjson_obj_get(yyjson_obj_get(root, "item"), "type"), "_call"))
        set_tool_call(r);
    else
        set_output(r);
}

static void read_anthropic_delta(yyjson_val *delta, struct event_reading *r)
{
    yyjson_val *type = yyjson_obj_get(delta, "type");
    if (yyjson_equals_str(type, "input_json_delta")) {
        set_tool_call(r);
        return;
    }
    bool known_empty =
        (yyjson_equals_str(type, "text_delta") && !is_something(yyjson_obj_get(delta, "text"))) ||
        (yyjson_equals_str(type, "thinking_delta") &&
         !is_something(yyjson_obj_get(delta, "thinking")));
    if (!known_empty)
        set_output(r);
}

/* Anthropic messages. */
static void read_anthropic(yyjson_val *root, struct event_reading *r)
{
    yyjson_val *type = yyjson_obj_get(root, "type");
    if (yyjson_equals_str(type, "message_start")) {
        r->opening = true;
        if (is_something(yyjson_obj_get(yyjson_obj_get(root, "message"), "content")))
            set_output(r);
    } else if (yyjson_equals_str(type, "ping")) {
        r->ping = true;
    } else if (yyjson_equals_str(type, "content_block_start")) {
        read_announced(yyjson_obj_get(root, "content_block"), r);
    } else if (yyjson_equals_str(type, "content_block_delta")) {
        read_anthropic_delta(yyjson_obj_get(root, "delta"), r);
    } else if (yyjson_equals_str(type, "content_block_stop")) {
        return;
    } else if (yyjson_equals_str(type, "message_delta")) {
        read_common(root, r);
        if (is_something(yyjson_obj_get(yyjson_obj_get(root, "delta"), "stop_reason")))
            r->facts->finish = true;
    } else if (yyjson_equals_str(type, "message_stop")) {
        set_end(r);
    } else {
        set_output(r);
    }
}

/* Ollama: one object a line; the last has done: true and may carry text as well. */
static void read_ollama(yyjson_val *root, struct event_reading *r)
{
    yyjson_val *message = yyjson_obj_get(root, "message");
    yyjson_val *response = yyjson_obj_get(root, "response");
    yyjson_val *done = yyjson_obj_get(root, "done");
    if (message == NULL && response == NULL && done == NULL)
        set_output(r);
    read_delta(message, r);
    if (is_something(response) || is_something(yyjson_obj_get(root, "thinking")) ||
        is_something(yyjson_obj_get(root, "image")))
        set_output(r);
    if (is_something(yyjson_obj_get(root, "tool_calls")))
        set_tool_call(r);
    if (yyjson_obj_get(root, "eval_count") != NULL)
        r->facts->usage = true;
    if (yyjson_is_true(done))
        set_end(r);
}

/* Audio: transcript.text.delta and .done, speech.audio.delta and .done. */
static void read_audio(yyjson_val *root, struct event_reading *r)
{
    yyjson_val *type = yyjson_obj_get(root, "type");
    read_common(root, r);
    if (ends_with(type, ".done")) {
        set_end(r);
        if (is_something(yyjson_obj_get(root, "text")))
            set_output(r);
    } else if (!ends_with(type, ".delta") || is_something(yyjson_obj_get(root, "delta")) ||
               is_something(yyjson_obj_get(root, "audio"))) {
        set_output(r);
    }
}

void event_dialect_read(enum api_operation operation, yyjson_val *root,
                        struct event_reading *reading)
{
    switch (operation) {
    case API_OPERATION_CHAT:
    case API_OPERATION_COMPLETIONS: read_choices(root, reading); break;
    case API_OPERATION_NATIVE_COMPLETION:
    case API_OPERATION_INFILL: read_native(root, reading); break;
    case API_OPERATION_RESPONSES: read_responses(root, reading); break;
    case API_OPERATION_MESSAGES: read_anthropic(root, reading); break;
    case API_OPERATION_OLLAMA_CHAT:
    case API_OPERATION_OLLAMA_GENERATE: read_ollama(root, reading); break;
    case API_OPERATION_TRANSCRIPTION:
    case API_OPERATION_TRANSLATION:
    case API_OPERATION_SPEECH: read_audio(root, reading); break;
    default: set_output(reading); break;
    }
}
