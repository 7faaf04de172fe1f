/*
 * One event → what it is. The common part (framing, [DONE], errors in disguise) is here; what each
 * dialect means by its members is in event_dialect.c.
 *
 * Memory: yyjson parses into a fixed buffer of the thread; only an event too large for it (above
 * about 5 KiB) costs an allocation. Any thread.
 */
#include "api/event.h"

#include "api/event_dialect.h"
#include "api/event_error.h"

#include <stdint.h>
#include <string.h>

enum { POOL_BYTES = 64 * 1024 };

static _Thread_local char pool[POOL_BYTES];

yyjson_doc *event_read_json(struct span text, yyjson_read_flag flags)
{
    yyjson_alc alc;
    const yyjson_alc *use = NULL;
    if (yyjson_read_max_memory_usage(text.len, flags) < POOL_BYTES - 256 &&
        yyjson_alc_pool_init(&alc, pool, sizeof(pool)))
        use = &alc;
    /* Without the in-place flag the text is not written to; the cast is the library's signature. */
    return yyjson_read_opts((char *)(uintptr_t)text.ptr, text.len, flags, use, NULL);
}

static struct span trim(struct span s)
{
    while (s.len > 0 && memchr(" \t\r\n", s.ptr[0], 4) != NULL) {
        s.ptr++;
        s.len--;
    }
    while (s.len > 0 && memchr(" \t\r\n", s.ptr[s.len - 1], 4) != NULL)
        s.len--;
    return s;
}

static bool parse_error(struct span text, bool named_error, bool *ret_is_json,
                        struct api_event_error *ret)
{
    yyjson_doc *doc = event_read_json(text, YYJSON_READ_NOFLAG);
    yyjson_val *root = yyjson_doc_get_root(doc);
    bool found = yyjson_is_obj(root) && event_error_take(root, named_error, ret);
    *ret_is_json = doc != NULL;
    yyjson_doc_free(doc);
    return found;
}

bool api_event_error_parse(struct span text, struct api_event_error *ret)
{
    bool is_json;
    return parse_error(trim(text), false, &is_json, ret);
}

bool api_event_error_in_answer(struct span text, bool *ret_is_json, struct api_event_error *ret)
{
    return parse_error(text, false, ret_is_json, ret);
}

/* An event that is an error by its name, whatever its text. */
static void set_named_error(struct span text, struct api_event_facts *ret)
{
    ret->kind = API_EVENT_ERROR;
    bool is_json;
    if (!parse_error(text, true, &is_json, &ret->error))
        event_error_take_text(text, &ret->error);
}

/* `error: {…}` as a field, or a bare JSON line where a field should be. True when it decides. */
static bool inspect_odd_line(const struct framer_event *ev, struct api_event_facts *ret)
{
    struct span line = trim(ev->odd_line);
    if (line.len == 0)
        return false;
    if (span_starts_with(line, SPAN_LIT("error:"))) {
        set_named_error(trim((struct span){line.ptr + 6, line.len - 6}), ret);
        return true;
    }
    if (line.ptr[0] == '{' || line.ptr[0] == '[') {
        /* Pretty-printed JSON is several odd lines: then only the whole is JSON. */
        bool is_json;
        if (parse_error(line, false, &is_json, &ret->error) ||
            parse_error(trim(ev->bytes), false, &is_json, &ret->error)) {
            ret->kind = API_EVENT_ERROR;
            return true;
        }
        ret->kind = API_EVENT_BROKEN;
        return ev->data.ptr == NULL;
    }
    if (line.ptr[0] == '<' && ev->data.ptr == NULL) {
        ret->kind = API_EVENT_BROKEN; /* a page of HTML */
        return true;
    }
    return false; /* unknown fields are ignored (WHATWG HTML §9.2.6) */
}

/* What the dialect said in flags becomes one kind. */
static void settle_kind(struct event_reading *reading, struct api_event_facts *ret)
{
    if (ret->ends_stream)
        ret->kind = API_EVENT_DONE;
    else if (ret->output)
        ret->kind = API_EVENT_OUTPUT;
    else if (ret->finish)
        ret->kind = API_EVENT_FINISH;
    else if (ret->progress || reading->ping)
        ret->kind = API_EVENT_PROGRESS;
    else if (reading->opening)
        ret->kind = API_EVENT_OPENING;
    else
        ret->kind = API_EVENT_OTHER;
}

static void inspect_json(enum api_operation operation, const struct framer_event *ev,
                         struct span text, struct api_event_facts *ret)
{
    bool named_error = span_equals_str(ev->name, "error");
    yyjson_doc *doc = event_read_json(text, YYJSON_READ_NOFLAG);
    yyjson_val *root = yyjson_doc_get_root(doc);
    if (root == NULL) {
        ret->kind = API_EVENT_BROKEN;
        if (named_error)
            set_named_error(text, ret);
        return;
    }
    if (yyjson_is_obj(root)) {
        if (event_error_take(root, named_error, &ret->error)) {
            ret->kind = API_EVENT_ERROR;
        } else {
            struct event_reading reading = {.facts = ret};
            event_dialect_read(operation, root, &reading);
            settle_kind(&reading, ret);
        }
    } else {
        ret->output = true; /* valid, unknown: in doubt it has an effect */
        ret->kind = API_EVENT_OUTPUT;
    }
    yyjson_doc_free(doc);
}

void api_event_inspect(enum api_operation operation, const struct framer_event *ev,
                       struct api_event_facts *ret)
{
    /* The error texts are large and stay undefined. */
    memset(ret, 0, offsetof(struct api_event_facts, error));
    if (ev->kind == FRAMER_EVENT_TAIL) {
        ret->kind = API_EVENT_OTHER;
        return;
    }
    if (ev->kind == FRAMER_EVENT_PIECE) {
        ret->kind = API_EVENT_OUTPUT;
        ret->output = true;
        return;
    }
    if (ev->odd_line.ptr != NULL && inspect_odd_line(ev, ret))
        return;
    struct span text = ev->data.ptr ? trim(ev->data) : SPAN_NONE;
    if (text.len == 0) {
        ret->kind = API_EVENT_EMPTY;
        if (span_equals_str(ev->name, "error"))
            set_named_error(SPAN_LIT("the worker sent an error event without a text"), ret);
        return;
    }
    if (span_equals_str(text, "[DONE]")) {
        ret->kind = API_EVENT_DONE;
        ret->ends_stream = true;
        return;
    }
    inspect_json(operation, ev, text, ret);
}
