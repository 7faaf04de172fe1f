/*
 * A stream put back together. One idea for all members: text that comes in pieces is appended to a
 * buffer, everything else is kept as the JSON text it came as, so that numbers keep their digits.
 *
 *   choice 0 ── members: content, reasoning_content, … (pieces joined)
 *      │     ── tools by index: id, type, name, arguments (pieces joined)
 *      │     ── logprobs: elements joined
 *      └ …   ── finish_reason
 *   usage, timings: those of choice 0, as the engine does it
 *
 * Owned by one caller; no thread of its own. What is held is counted against the cap.
 */
#include "api/assemble.h"

#include "api/event_dialect.h"
#include "api/event_error.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CHOICES_MAX = 128,
    TOOLS_MAX = 128,
    MEMBERS_MAX = 8,
    NAME_MAX_BYTES = 48,
};

/* A member of a message whose text comes in pieces, or the last raw value of an unknown one. */
struct member {
    char name[NAME_MAX_BYTES];
    struct buf text;
    bool raw;
};

struct tool {
    struct buf id, type, name, arguments;
    bool seen;
};

struct choice {
    struct member members[MEMBERS_MAX]; /* [0] is content: always there in a message */
    unsigned member_count;
    struct tool *tools;
    unsigned tool_count;
    struct buf logprobs;      /* elements, joined by commas */
    struct buf finish_reason; /* as JSON */
    bool seen;
};

struct api_assembly {
    enum api_operation operation;
    size_t max_bytes, held_bytes;
    struct choice *choices;
    unsigned choice_count;
    unsigned last_finished;
    struct buf id, created, model, fingerprint, usage, timings; /* as JSON */
    struct buf response; /* Responses: the last event's response, already as the whole answer */
    bool has_tool_call, ended;
};

bool api_assembly_can(const struct api_route *route, const struct api_request *request)
{
    bool known = route->operation == API_OPERATION_CHAT ||
                 route->operation == API_OPERATION_COMPLETIONS ||
                 route->operation == API_OPERATION_RESPONSES;
    return known && !request->whole_only;
}

int api_assembly_create(enum api_operation operation, size_t max_bytes, struct api_assembly **ret)
{
    if (operation != API_OPERATION_CHAT && operation != API_OPERATION_COMPLETIONS &&
        operation != API_OPERATION_RESPONSES)
        return -EINVAL;
    struct api_assembly *a = calloc(1, sizeof(*a));
    if (a == NULL)
        return -ENOMEM;
    a->operation = operation;
    a->max_bytes = max_bytes;
    struct buf *bufs[] = {&a->id,    &a->created, &a->model,   &a->fingerprint,
                          &a->usage, &a->timings, &a->response};
    for (size_t i = 0; i < sizeof(bufs) / sizeof(bufs[0]); i++)
        buf_init(bufs[i], max_bytes);
    *ret = a;
    return 0;
}

static void free_choice(struct choice *c)
{
    for (unsigned i = 0; i < c->member_count; i++)
        buf_free(&c->members[i].text);
    for (unsigned i = 0; i < c->tool_count; i++) {
        buf_free(&c->tools[i].id);
        buf_free(&c->tools[i].type);
        buf_free(&c->tools[i].name);
        buf_free(&c->tools[i].arguments);
    }
    free(c->tools);
    buf_free(&c->logprobs);
    buf_free(&c->finish_reason);
}

void api_assembly_destroy(struct api_assembly *a)
{
    if (a == NULL)
        return;
    for (unsigned i = 0; i < a->choice_count; i++)
        free_choice(&a->choices[i]);
    free(a->choices);
    buf_free(&a->id);
    buf_free(&a->created);
    buf_free(&a->model);
    buf_free(&a->fingerprint);
    buf_free(&a->usage);
    buf_free(&a->timings);
    buf_free(&a->response);
    free(a);
}

static int hold(struct api_assembly *a, struct buf *b, const char *text, size_t len)
{
    if (len > a->max_bytes - a->held_bytes)
        return -EMSGSIZE;
    int r = buf_append(b, text, len);
    if (r == 0)
        a->held_bytes += len;
    return r;
}

static int hold_string(struct api_assembly *a, struct buf *b, yyjson_val *value)
{
    return yyjson_is_str(value) ? hold(a, b, yyjson_get_str(value), yyjson_get_len(value)) : 0;
}

/* Keeps a value as the JSON text it is, instead of what was there. Absent: nothing changes. */
static int hold_json(struct api_assembly *a, struct buf *b, yyjson_val *value)
{
    if (value == NULL)
        return 0;
    size_t len;
    char *text = yyjson_val_write(value, YYJSON_WRITE_NOFLAG, &len);
    if (text == NULL)
        return -ENOMEM;
    a->held_bytes -= b->len;
    buf_consume(b, b->len);
    int r = hold(a, b, text, len);
    free(text);
    return r;
}

/* Numbers are kept raw: a small index is read from its digits. False: not one. */
static bool read_index(yyjson_val *value, unsigned max, unsigned *ret)
{
    const char *text = yyjson_get_raw(value);
    size_t len = yyjson_get_len(value);
    if (text == NULL || len == 0 || len > 4)
        return false;
    unsigned n = 0;
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        n = n * 10 + (unsigned)(text[i] - '0');
    }
    *ret = n;
    return n < max;
}

/* Makes room for elements 0…index of an array; new ones are zero. */
static int grow(struct api_assembly *a, void **array, unsigned *count, unsigned index, size_t size)
{
    if (index < *count)
        return 0;
    size_t extra = (size_t)(index + 1 - *count) * size;
    if (extra > a->max_bytes - a->held_bytes)
        return -EMSGSIZE;
    char *bigger = realloc(*array, (size_t)(index + 1) * size);
    if (bigger == NULL)
        return -ENOMEM;
    memset(bigger + (size_t)*count * size, 0, extra);
    *array = bigger;
    *count = index + 1;
    a->held_bytes += extra;
    return 0;
}

static int get_choice(struct api_assembly *a, unsigned index, struct choice **ret)
{
    void *array = a->choices;
    int r = grow(a, &array, &a->choice_count, index, sizeof(*a->choices));
    a->choices = array;
    if (r < 0)
        return r;
    struct choice *c = &a->choices[index];
    if (!c->seen) {
        c->seen = true;
        c->member_count = 1;
        snprintf(c->members[0].name, sizeof(c->members[0].name), "content");
        buf_init(&c->members[0].text, a->max_bytes);
        buf_init(&c->logprobs, a->max_bytes);
        buf_init(&c->finish_reason, a->max_bytes);
    }
    *ret = c;
    return 0;
}

static struct member *get_member(struct api_assembly *a, struct choice *c, yyjson_val *key)
{
    for (unsigned i = 0; i < c->member_count; i++)
        if (yyjson_equals_str(key, c->members[i].name))
            return &c->members[i];
    if (c->member_count == MEMBERS_MAX || yyjson_get_len(key) >= NAME_MAX_BYTES)
        return NULL;
    struct member *m = &c->members[c->member_count++];
    *m = (struct member){0};
    memcpy(m->name, yyjson_get_str(key), yyjson_get_len(key) + 1);
    buf_init(&m->text, a->max_bytes);
    return m;
}

static int add_tool(struct api_assembly *a, struct choice *c, yyjson_val *call)
{
    unsigned index;
    if (!read_index(yyjson_obj_get(call, "index"), TOOLS_MAX, &index))
        return -EBADMSG;
    void *array = c->tools;
    int r = grow(a, &array, &c->tool_count, index, sizeof(*c->tools));
    c->tools = array;
    if (r < 0)
        return r;
    struct tool *t = &c->tools[index];
    if (!t->seen) {
        t->seen = true;
        buf_init(&t->id, a->max_bytes);
        buf_init(&t->type, a->max_bytes);
        buf_init(&t->name, a->max_bytes);
        buf_init(&t->arguments, a->max_bytes);
    }
    yyjson_val *function = yyjson_obj_get(call, "function");
    r = hold_string(a, &t->id, yyjson_obj_get(call, "id"));
    if (r == 0 && t->type.len == 0)
        r = hold_string(a, &t->type, yyjson_obj_get(call, "type"));
    if (r == 0)
        r = hold_string(a, &t->name, yyjson_obj_get(function, "name"));
    return r == 0 ? hold_string(a, &t->arguments, yyjson_obj_get(function, "arguments")) : r;
}

static int add_delta(struct api_assembly *a, struct choice *c, yyjson_val *delta)
{
    size_t i, max, j, calls;
    yyjson_val *key, *value, *call;
    int r = 0;
    if (!yyjson_is_obj(delta))
        return 0; /* a completion has none */
    yyjson_obj_foreach(delta, i, max, key, value)
    {
        if (r < 0)
            break;
        if (yyjson_equals_str(key, "role") || yyjson_is_null(value))
            continue;
        if (yyjson_equals_str(key, "tool_calls")) {
            yyjson_arr_foreach(value, j, calls, call) r = r == 0 ? add_tool(a, c, call) : r;
            continue;
        }
        struct member *m = get_member(a, c, key);
        if (m == NULL)
            r = -EBADMSG; /* dropping a part of an answer in silence is not an answer */
        else if (yyjson_is_str(value) && !m->raw)
            r = hold_string(a, &m->text, value);
        else if (event_error_is_something(value)) {
            m->raw = true;
            r = hold_json(a, &m->text, value);
        }
    }
    return r;
}

static int add_logprobs(struct api_assembly *a, struct choice *c, yyjson_val *logprobs)
{
    size_t i, max;
    yyjson_val *element;
    int r = 0;
    yyjson_arr_foreach(yyjson_obj_get(logprobs, "content"), i, max, element)
    {
        size_t len;
        char *text = r == 0 ? yyjson_val_write(element, YYJSON_WRITE_NOFLAG, &len) : NULL;
        if (r == 0 && text == NULL)
            r = -ENOMEM;
        if (r == 0 && c->logprobs.len > 0)
            r = hold(a, &c->logprobs, ",", 1);
        if (r == 0)
            r = hold(a, &c->logprobs, text, len);
        free(text);
    }
    return r;
}

static int add_choice(struct api_assembly *a, yyjson_val *choice, unsigned *ret_index)
{
    struct choice *c;
    if (!read_index(yyjson_obj_get(choice, "index"), CHOICES_MAX, ret_index))
        return -EBADMSG;
    int r = get_choice(a, *ret_index, &c);
    if (r < 0)
        return r;
    r = add_delta(a, c, yyjson_obj_get(choice, "delta"));
    if (r == 0) /* completions: `text` is what `content` is to chat */
        r = hold_string(a, &c->members[0].text, yyjson_obj_get(choice, "text"));
    if (r == 0)
        r = add_logprobs(a, c, yyjson_obj_get(choice, "logprobs"));
    yyjson_val *finish = yyjson_obj_get(choice, "finish_reason");
    if (r == 0 && event_error_is_something(finish)) {
        r = hold_json(a, &c->finish_reason, finish);
        a->last_finished = *ret_index;
    }
    return r;
}

/*
 * The whole answer takes usage and timings from its first choice. In the stream they hang on the
 * last event of each choice: the one with the finish reason, or the usage event right after it.
 */
static int add_totals(struct api_assembly *a, yyjson_val *root, unsigned index)
{
    int r = 0;
    if (a->usage.len == 0 || index == 0)
        r = hold_json(a, &a->usage, yyjson_obj_get(root, "usage"));
    if (r == 0 && (a->timings.len == 0 || index == 0))
        r = hold_json(a, &a->timings, yyjson_obj_get(root, "timings"));
    return r;
}

static int add_chunk(struct api_assembly *a, yyjson_val *root)
{
    size_t i, max;
    yyjson_val *choice, *choices = yyjson_obj_get(root, "choices");
    unsigned index = a->last_finished;
    int r = 0;
    yyjson_arr_foreach(choices, i, max, choice) r = r == 0 ? add_choice(a, choice, &index) : r;
    if (r == 0)
        r = add_totals(a, root, index);
    bool first = a->id.len == 0;
    if (r == 0 && (first || (a->choice_count > 0 && a->choices[0].finish_reason.len > 0)))
        r = hold_json(a, &a->created, yyjson_obj_get(root, "created"));
    if (r < 0 || !first)
        return r;
    r = hold_json(a, &a->id, yyjson_obj_get(root, "id"));
    if (r == 0)
        r = hold_json(a, &a->model, yyjson_obj_get(root, "model"));
    return r == 0 ? hold_json(a, &a->fingerprint, yyjson_obj_get(root, "system_fingerprint")) : r;
}

/* `"name":value`, with a comma where one is due. */
static int put_member(struct buf *out, const char *name, yyjson_val *value)
{
    size_t len;
    char *text = yyjson_val_write(value, YYJSON_WRITE_NOFLAG, &len);
    if (text == NULL)
        return -ENOMEM;
    bool first = out->len > 0 && (out->data[out->len - 1] == '{' || out->data[out->len - 1] == '[');
    int r = first ? 0 : buf_append(out, ",", 1);
    if (r == 0 && name != NULL) {
        r = buf_append(out, "\"", 1);
        if (r == 0)
            r = buf_append_json(out, span_from_str(name));
        if (r == 0)
            r = buf_append_str(out, "\":");
    }
    if (r == 0)
        r = buf_append(out, text, len);
    free(text);
    return r;
}

/* The streamed reasoning item has no status, the whole one has. */
static int put_output(struct buf *out, yyjson_val *items)
{
    size_t i, max;
    yyjson_val *item;
    int r = buf_append_str(out, ",\"output\":[");
    yyjson_arr_foreach(items, i, max, item)
    {
        if (r == 0)
            r = put_member(out, NULL, item);
        if (r == 0 && yyjson_equals_str(yyjson_obj_get(item, "type"), "reasoning") &&
            yyjson_obj_get(item, "status") == NULL) {
            out->len--; /* reopen the object */
            r = buf_append_str(out, ",\"status\":\"completed\"}");
        }
    }
    return r == 0 ? buf_append(out, "]", 1) : r;
}

/* response.completed holds the whole answer but for completed_at. */
static int take_response(struct api_assembly *a, yyjson_val *root)
{
    yyjson_val *response = yyjson_obj_get(root, "response");
    yyjson_val *created = yyjson_obj_get(response, "created_at");
    if (!yyjson_is_obj(response))
        return -EBADMSG;
    struct buf *out = &a->response;
    int r = buf_append(out, "{", 1);
    if (r == 0 && created != NULL && yyjson_obj_get(response, "completed_at") == NULL)
        r = put_member(out, "completed_at", created);
    size_t i, max;
    yyjson_val *key, *value;
    yyjson_obj_foreach(response, i, max, key, value)
    {
        if (r < 0)
            break;
        r = yyjson_equals_str(key, "output") && out->len > 1
                ? put_output(out, value)
                : put_member(out, yyjson_get_str(key), value);
    }
    return r == 0 ? buf_append(out, "}", 1) : r;
}

static int add_json(struct api_assembly *a, const struct framer_event *ev)
{
    yyjson_doc *doc = event_read_json(span_trim(ev->data), YYJSON_READ_NUMBER_AS_RAW);
    yyjson_val *root = yyjson_doc_get_root(doc);
    int r = -EBADMSG;
    if (yyjson_is_obj(root))
        r = a->operation == API_OPERATION_RESPONSES ? take_response(a, root) : add_chunk(a, root);
    yyjson_doc_free(doc);
    return r;
}

int api_assembly_add(struct api_assembly *a, const struct framer_event *ev)
{
    struct api_event_facts facts;
    api_event_inspect(a->operation, ev, &facts);
    return api_assembly_add_inspected(a, ev, &facts);
}

int api_assembly_add_inspected(struct api_assembly *a, const struct framer_event *ev,
                               const struct api_event_facts *facts)
{
    if (ev->kind == FRAMER_EVENT_TAIL)
        return a->ended ? 1 : 0;
    if (ev->kind == FRAMER_EVENT_PIECE)
        return -EMSGSIZE; /* an event beyond the window of the framer */
    if (facts->kind == API_EVENT_ERROR)
        return -EREMOTEIO;
    if (facts->kind == API_EVENT_BROKEN)
        return -EBADMSG;
    a->has_tool_call = a->has_tool_call || facts->tool_call;
    if (facts->kind == API_EVENT_EMPTY || a->ended)
        return a->ended ? 1 : 0;
    bool responses = a->operation == API_OPERATION_RESPONSES;
    if (responses && !facts->ends_stream)
        return 0;
    if (!responses && facts->ends_stream) { /* [DONE] */
        a->ended = true;
        return 1;
    }
    int r = add_json(a, ev);
    a->ended = r == 0 && responses;
    return r == 0 && a->ended ? 1 : r;
}

bool api_assembly_has_tool_call(const struct api_assembly *a)
{
    return a->has_tool_call;
}

static bool is_complete(const struct api_assembly *a)
{
    if (!a->ended)
        return false;
    if (a->operation == API_OPERATION_RESPONSES)
        return a->response.len > 0;
    for (unsigned i = 0; i < a->choice_count; i++)
        if (!a->choices[i].seen || a->choices[i].finish_reason.len == 0)
            return false;
    return a->choice_count > 0;
}

static int put_string(struct buf *out, const char *before, const struct buf *text)
{
    int r = buf_append_str(out, before);
    if (r == 0)
        r = buf_append(out, "\"", 1);
    if (r == 0)
        r = buf_append_json(out, buf_span(text));
    return r == 0 ? buf_append(out, "\"", 1) : r;
}

/* A value that was kept as JSON; nothing when it never came. */
static int put_json(struct buf *out, const char *before, const struct buf *json)
{
    if (json->len == 0)
        return 0;
    int r = buf_append_str(out, before);
    return r == 0 ? buf_append_span(out, buf_span(json)) : r;
}

static int put_tools(struct buf *out, const struct choice *c)
{
    int r = buf_append_str(out, ",\"tool_calls\":[");
    bool first = true;
    for (unsigned i = 0; r == 0 && i < c->tool_count; i++) {
        const struct tool *t = &c->tools[i];
        if (!t->seen)
            continue;
        r = buf_append_str(out, first ? "{\"type\":\"function\"" : ",{\"type\":\"function\"");
        if (r == 0)
            r = put_string(out, ",\"function\":{\"name\":", &t->name);
        if (r == 0)
            r = put_string(out, ",\"arguments\":", &t->arguments);
        if (r == 0)
            r = buf_append(out, "}", 1);
        if (r == 0 && t->id.len > 0)
            r = put_string(out, ",\"id\":", &t->id);
        if (r == 0)
            r = buf_append(out, "}", 1);
        first = false;
    }
    return r == 0 ? buf_append(out, "]", 1) : r;
}

static int put_message(struct buf *out, const struct choice *c)
{
    int r = buf_append_str(out, ",\"message\":{\"role\":\"assistant\"");
    for (unsigned i = 0; r == 0 && i < c->member_count; i++) {
        const struct member *m = &c->members[i];
        if (i > 0 && m->text.len == 0)
            continue; /* the engine leaves empty ones out, content apart */
        char name[NAME_MAX_BYTES + 8];
        snprintf(name, sizeof(name), ",\"%s\":", m->name);
        r = m->raw ? put_json(out, name, &m->text) : put_string(out, name, &m->text);
    }
    if (r == 0 && c->tool_count > 0)
        r = put_tools(out, c);
    return r == 0 ? buf_append(out, "}", 1) : r;
}

static int put_logprobs(struct buf *out, const struct choice *c)
{
    int r = put_json(out, ",\"logprobs\":{\"content\":[", &c->logprobs);
    return r == 0 && c->logprobs.len > 0 ? buf_append_str(out, "]}") : r;
}

static int put_choice(const struct api_assembly *a, struct buf *out, unsigned index)
{
    const struct choice *c = &a->choices[index];
    bool chat = a->operation == API_OPERATION_CHAT;
    int r = buf_append_str(out, index ? ",{" : "{");
    if (r == 0)
        r = chat ? put_json(out, "\"finish_reason\":", &c->finish_reason)
                 : put_string(out, "\"text\":", &c->members[0].text);
    if (r == 0)
        r = buf_printf(out, ",\"index\":%u", index);
    if (r == 0 && chat)
        r = put_message(out, c);
    if (r == 0)
        r = chat || c->logprobs.len > 0 ? put_logprobs(out, c)
                                        : buf_append_str(out, ",\"logprobs\":null");
    if (r == 0 && !chat)
        r = put_json(out, ",\"finish_reason\":", &c->finish_reason);
    return r == 0 ? buf_append(out, "}", 1) : r;
}

static int put_answer(const struct api_assembly *a, struct buf *out)
{
    if (a->operation == API_OPERATION_RESPONSES)
        return buf_append_span(out, buf_span(&a->response));
    int r = buf_append_str(out, "{\"choices\":[");
    for (unsigned i = 0; r == 0 && i < a->choice_count; i++)
        r = put_choice(a, out, i);
    if (r == 0)
        r = buf_append(out, "]", 1);
    if (r == 0)
        r = put_json(out, ",\"created\":", &a->created);
    if (r == 0)
        r = put_json(out, ",\"model\":", &a->model);
    if (r == 0)
        r = put_json(out, ",\"system_fingerprint\":", &a->fingerprint);
    if (r == 0)
        r = buf_append_str(out, a->operation == API_OPERATION_CHAT
                                    ? ",\"object\":\"chat.completion\""
                                    : ",\"object\":\"text_completion\"");
    if (r == 0)
        r = put_json(out, ",\"usage\":", &a->usage);
    if (r == 0)
        r = put_json(out, ",\"id\":", &a->id);
    if (r == 0)
        r = put_json(out, ",\"timings\":", &a->timings);
    return r == 0 ? buf_append(out, "}", 1) : r;
}

int api_assembly_finish(struct api_assembly *a, struct buf *out)
{
    if (!is_complete(a))
        return -ENODATA;
    size_t before = out->len;
    int r = put_answer(a, out);
    if (r < 0)
        out->len = before;
    return r;
}
