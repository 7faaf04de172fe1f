/*
 * Facts from a request body. JSON: one pass of the validating scanner, which reports each top-level
 * member as it goes; what is remembered are positions. Multipart: one walk over the parts.
 * Pure; any thread.
 */
#include "api/request.h"

#include "api/multipart.h"
#include "base/utf8.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_TEXT_MAX = 64 }; /* longer than every name failsoft knows */

/* With lengths: a key is compared with all of them. */
static const struct span member_names[API_MEMBER_COUNT] = {
    [API_MEMBER_MODEL] = {"model", sizeof("model") - 1},
    [API_MEMBER_STREAM] = {"stream", sizeof("stream") - 1},
    [API_MEMBER_STREAM_OPTIONS] = {"stream_options", sizeof("stream_options") - 1},
    [API_MEMBER_RETURN_PROGRESS] = {"return_progress", sizeof("return_progress") - 1},
    [API_MEMBER_N] = {"n", sizeof("n") - 1},
    [API_MEMBER_TOOLS] = {"tools", sizeof("tools") - 1},
    [API_MEMBER_LOGPROBS] = {"logprobs", sizeof("logprobs") - 1},
    [API_MEMBER_TOP_LOGPROBS] = {"top_logprobs", sizeof("top_logprobs") - 1},
    [API_MEMBER_N_PROBS] = {"n_probs", sizeof("n_probs") - 1},
    [API_MEMBER_VERBOSE] = {"verbose", sizeof("verbose") - 1},
    [API_MEMBER_N_INDENT] = {"n_indent", sizeof("n_indent") - 1},
    [API_MEMBER_STOP] = {"stop", sizeof("stop") - 1},
    [API_MEMBER_MAX_TOKENS] = {"max_tokens", sizeof("max_tokens") - 1},
    [API_MEMBER_MAX_COMPLETION_TOKENS] = {"max_completion_tokens",
                                          sizeof("max_completion_tokens") - 1},
    [API_MEMBER_MAX_OUTPUT_TOKENS] = {"max_output_tokens", sizeof("max_output_tokens") - 1},
    [API_MEMBER_N_PREDICT] = {"n_predict", sizeof("n_predict") - 1},
    [API_MEMBER_OPTIONS] = {"options", sizeof("options") - 1},
    [API_MEMBER_KEEP_ALIVE] = {"keep_alive", sizeof("keep_alive") - 1},
    [API_MEMBER_MESSAGES] = {"messages", sizeof("messages") - 1},
    [API_MEMBER_PROMPT] = {"prompt", sizeof("prompt") - 1},
    [API_MEMBER_INPUT] = {"input", sizeof("input") - 1},
    [API_MEMBER_CONTENT] = {"content", sizeof("content") - 1},
    [API_MEMBER_SYSTEM] = {"system", sizeof("system") - 1},
    [API_MEMBER_TEMPLATE] = {"template", sizeof("template") - 1},
    [API_MEMBER_CONTEXT] = {"context", sizeof("context") - 1},
    [API_MEMBER_IMAGES] = {"images", sizeof("images") - 1},
    [API_MEMBER_SUFFIX] = {"suffix", sizeof("suffix") - 1},
    [API_MEMBER_INSTRUCTIONS] = {"instructions", sizeof("instructions") - 1},
    [API_MEMBER_FUNCTIONS] = {"functions", sizeof("functions") - 1},
    [API_MEMBER_RESPONSE_FORMAT] = {"response_format", sizeof("response_format") - 1},
    [API_MEMBER_FORMAT] = {"format", sizeof("format") - 1},
    [API_MEMBER_JSON_SCHEMA] = {"json_schema", sizeof("json_schema") - 1},
    [API_MEMBER_TEXT] = {"text", sizeof("text") - 1},
    [API_MEMBER_CHAT_TEMPLATE] = {"chat_template", sizeof("chat_template") - 1},
    [API_MEMBER_CHAT_TEMPLATE_KWARGS] = {"chat_template_kwargs",
                                         sizeof("chat_template_kwargs") - 1},
    [API_MEMBER_INPUT_PREFIX] = {"input_prefix", sizeof("input_prefix") - 1},
    [API_MEMBER_INPUT_SUFFIX] = {"input_suffix", sizeof("input_suffix") - 1},
    [API_MEMBER_INPUT_EXTRA] = {"input_extra", sizeof("input_extra") - 1},
    [API_MEMBER_QUERY] = {"query", sizeof("query") - 1},
    [API_MEMBER_DOCUMENTS] = {"documents", sizeof("documents") - 1},
    [API_MEMBER_NAME] = {"name", sizeof("name") - 1},
};

struct collect {
    struct api_request *request;
    const struct api_route *route;
    struct api_error *error;
    bool failed;
};

/* The 400 for a member, with the position of its value in the message. */
static void fail_member(struct collect *c, const char *name, struct span at, const char *what)
{
    if (c->failed)
        return;
    c->failed = true;
    size_t line, column;
    size_t offset = (size_t)(at.ptr - c->request->body.ptr);
    json_scan_locate(c->request->body, offset, &line, &column);
    api_error_bad_member(c->error, name, "'%s' %s (line %zu, column %zu, byte %zu).", name, what,
                         line, column, offset);
}

static void remember_key(struct api_request *r, struct span key)
{
    size_t offset = (size_t)(key.ptr - r->body.ptr);
    r->member_count++;
    if (r->key_count == API_REQUEST_KEYS_MAX || offset > UINT32_MAX || key.len > UINT32_MAX)
        return; /* member_count > key_count tells api/edit.c to look again */
    r->keys[r->key_count].offset = (uint32_t)offset;
    r->keys[r->key_count].len = (uint32_t)key.len;
    r->key_count++;
}

static void on_member(void *ctx, const struct json_member *m)
{
    struct collect *c = ctx;
    struct api_request *r = c->request;
    remember_key(r, m->key);
    char text[KEY_TEXT_MAX];
    struct span key;
    if (!json_scan_get_key(m, text, sizeof(text), &key))
        return;
    for (int i = 0; i < API_MEMBER_COUNT; i++) {
        if (i == API_MEMBER_NAME && c->route->dialect != API_DIALECT_OLLAMA)
            continue;
        if (!span_equals_nocase(key, member_names[i]))
            continue;
        /* Some workers (Go's decoder) take "Model" for "model"; one letter is left alone. */
        if (!span_equals(key, member_names[i])) {
            if (i != API_MEMBER_N)
                fail_member(c, member_names[i].ptr, m->key,
                            "is written in other letter case, which workers read differently");
            return;
        }
        if (r->members[i].value.ptr != NULL)
            fail_member(c, member_names[i].ptr, m->key,
                        "occurs twice, and two parsers could take a different one");
        r->members[i] = (struct api_request_member){m->value, m->kind};
        return;
    }
}

static bool is_true(const struct api_request *r, enum api_member member)
{
    return r->members[member].kind == JSON_KIND_TRUE;
}

/* Absent and null are the same to every engine. */
static bool is_given(const struct api_request *r, enum api_member member)
{
    return r->members[member].kind != JSON_KIND_NONE && r->members[member].kind != JSON_KIND_NULL;
}

static void read_model(struct collect *c, enum api_member member)
{
    struct api_request *r = c->request;
    const struct api_request_member *m = &r->members[member];
    if (!is_given(r, member))
        return;
    if (m->kind != JSON_KIND_STRING) {
        fail_member(c, member_names[member].ptr, m->value, "must be a string");
        return;
    }
    int e = json_scan_get_string(m->value, r->model, sizeof(r->model));
    if (e == -EMSGSIZE)
        fail_member(c, member_names[member].ptr, m->value, "is longer than 255 bytes");
    else if (e < 0)
        fail_member(c, member_names[member].ptr, m->value, "holds a NUL or half a surrogate pair");
    else
        r->has_model = true;
}

static void read_stream(struct collect *c)
{
    struct api_request *r = c->request;
    r->stream = c->route->stream_default;
    if (!is_given(r, API_MEMBER_STREAM))
        return;
    r->stream = is_true(r, API_MEMBER_STREAM);
    if (!r->stream && r->members[API_MEMBER_STREAM].kind != JSON_KIND_FALSE)
        fail_member(c, "stream", r->members[API_MEMBER_STREAM].value, "must be true or false");
}

struct include_usage {
    bool value;
    unsigned seen;
};

static void on_option(void *ctx, const struct json_member *m)
{
    struct include_usage *u = ctx;
    char text[KEY_TEXT_MAX];
    struct span key;
    if (!json_scan_get_key(m, text, sizeof(text), &key) || !span_equals_str(key, "include_usage"))
        return;
    u->value = m->kind == JSON_KIND_TRUE;
    u->seen++;
}

static void read_stream_options(struct collect *c)
{
    const struct api_request_member *m = &c->request->members[API_MEMBER_STREAM_OPTIONS];
    if (m->kind != JSON_KIND_OBJECT)
        return;
    struct include_usage usage = {0};
    enum json_kind kind;
    struct json_scan_error error;
    if (json_scan(m->value, on_option, &usage, &kind, &error) < 0)
        return; /* validated already as a part of the body */
    if (usage.seen > 1)
        fail_member(c, "stream_options", m->value, "has include_usage twice");
    c->request->include_usage = usage.value;
}

/* A small non-negative integer, or `fallback` for everything else (the worker will say why not). */
static unsigned read_count(struct span value, enum json_kind kind, unsigned fallback)
{
    if (kind != JSON_KIND_NUMBER || value.len == 0 || value.len > 6)
        return fallback;
    unsigned n = 0;
    for (size_t i = 0; i < value.len; i++) {
        if (value.ptr[i] < '0' || value.ptr[i] > '9')
            return fallback;
        n = n * 10 + (unsigned)(value.ptr[i] - '0');
    }
    return n;
}

static bool has_elements(const struct api_request_member *m)
{
    if (m->kind != JSON_KIND_ARRAY)
        return false;
    for (size_t i = 1; i + 1 < m->value.len; i++)
        if (memchr(" \t\r\n", m->value.ptr[i], 4) == NULL)
            return true;
    return false;
}

/*
 * What llama-server v0.4.0 leaves out of a stream (server-context.cpp process_token,
 * server-task.cpp): chat drops the probabilities of tokens without a delta, completions those that
 * the whole answer trims with a stop word; __verbose has an empty text; n_indent cuts text that was
 * already sent.
 */
static bool needs_whole(const struct api_route *route, const struct api_request *r)
{
    bool probs = is_given(r, API_MEMBER_N_PROBS) ||
                 (is_given(r, API_MEMBER_LOGPROBS) &&
                  r->members[API_MEMBER_LOGPROBS].kind != JSON_KIND_FALSE);
    if (is_true(r, API_MEMBER_VERBOSE) || is_given(r, API_MEMBER_N_INDENT))
        return true;
    if (!probs)
        return false;
    return route->operation != API_OPERATION_COMPLETIONS || is_given(r, API_MEMBER_STOP);
}

static int parse_json(const struct api_route *route, struct api_request *r, struct api_error *ret)
{
    struct collect c = {.request = r, .route = route, .error = ret};
    enum json_kind kind;
    struct json_scan_error error;
    if (json_scan(r->body, on_member, &c, &kind, &error) < 0) {
        size_t line, column;
        json_scan_locate(r->body, error.offset, &line, &column);
        api_error_bad_json(ret, line, column, error.offset, error.message);
        return -EBADMSG;
    }
    if (kind != JSON_KIND_OBJECT) {
        api_error_set(ret, 400, "invalid_request_error", "json_not_object",
                      "The body is JSON, but not an object.");
        return -EBADMSG;
    }
    r->object_open =
        (size_t)((const char *)memchr(r->body.ptr, '{', r->body.len) - r->body.ptr) + 1;
    read_model(&c, API_MEMBER_MODEL);
    if (!r->has_model && route->dialect == API_DIALECT_OLLAMA)
        read_model(&c, API_MEMBER_NAME);
    read_stream(&c);
    read_stream_options(&c);
    if (c.failed)
        return -EBADMSG;
    r->return_progress = is_true(r, API_MEMBER_RETURN_PROGRESS);
    r->n = read_count(r->members[API_MEMBER_N].value, r->members[API_MEMBER_N].kind, 1);
    r->has_tools = has_elements(&r->members[API_MEMBER_TOOLS]);
    r->whole_only = needs_whole(route, r);
    return 0;
}

struct form {
    struct api_request *request;
    const char *wrong; /* what is wrong with `param` */
    const char *param;
    bool has_stream;
};

static void form_fail(struct form *f, const char *param, const char *what)
{
    if (f->wrong != NULL)
        return;
    f->param = param;
    f->wrong = what;
}

static bool is_text(struct span s)
{
    for (size_t i = 0; i < s.len;) {
        size_t step = utf8_sequence_length(s.ptr + i, s.len - i);
        if (step == 0 || (unsigned char)s.ptr[i] < 0x20 || s.ptr[i] == 0x7f)
            return false;
        i += step;
    }
    return true;
}

static void on_part(void *ctx, const struct multipart_part *part)
{
    struct form *f = ctx;
    struct api_request *r = f->request;
    if (span_equals_str(part->name, "model")) {
        if (r->has_model)
            form_fail(f, "model", "occurs twice in the form");
        else if (part->is_file || part->is_encoded)
            form_fail(f, "model", "must be a plain form field");
        else if (part->content.len >= sizeof(r->model))
            form_fail(f, "model", "is longer than 255 bytes");
        else if (!is_text(part->content))
            form_fail(f, "model", "is not UTF-8 text");
        else {
            memcpy(r->model, part->content.ptr, part->content.len);
            r->model[part->content.len] = '\0';
            r->multipart_model = part->content;
            r->has_model = true;
        }
    } else if (span_equals_str(part->name, "file")) {
        r->multipart_file = part->content;
    } else if (span_equals_str(part->name, "stream")) {
        static const char *const yes[] = {"true", "1", "yes", "on", "t", "y"};
        if (f->has_stream)
            form_fail(f, "stream", "occurs twice in the form");
        f->has_stream = true;
        for (size_t i = 0; i < sizeof(yes) / sizeof(yes[0]); i++)
            if (span_equals_nocase(part->content, span_from_str(yes[i])))
                r->stream = true;
    }
}

static int parse_multipart(struct span content_type, struct api_request *r, struct api_error *ret)
{
    struct span boundary;
    if (!multipart_boundary(content_type, &boundary)) {
        api_error_set(ret, 415, "invalid_request_error", "not_multipart",
                      "This needs a multipart/form-data body with a boundary in its Content-Type.");
        return -EBADMSG;
    }
    struct form form = {.request = r};
    const char *what;
    size_t offset;
    if (multipart_each(r->body, boundary, on_part, &form, &what, &offset) < 0) {
        api_error_set(ret, 400, "invalid_request_error", "multipart_invalid",
                      "The multipart body is broken: %s (byte %zu). No worker was asked.", what,
                      offset);
        return -EBADMSG;
    }
    if (form.wrong != NULL) {
        api_error_bad_member(ret, form.param, "'%s' %s.", form.param, form.wrong);
        return -EBADMSG;
    }
    return 0;
}

int api_request_parse(const struct api_route *route, struct span content_type, struct span body,
                      struct api_request *ret, struct api_error *ret_error)
{
    *ret = (struct api_request){.body = body, .body_kind = route->body, .n = 1};
    switch (route->body) {
    case API_BODY_JSON: return parse_json(route, ret, ret_error);
    case API_BODY_MULTIPART: return parse_multipart(content_type, ret, ret_error);
    default: return 0;
    }
}
