/*
 * Edits as splices. Members that exist are replaced in place; those that do not are inserted right
 * after the opening brace, in one splice, so that `{}`, `{ }` and a full object take the same path.
 * Pure; any thread.
 */
#include "api/edit.h"

#include <errno.h>
#include <string.h>

enum { INSERTED_MAX_BYTES = 64 * 1024, KEY_TEXT_MAX = 64, DIGITS_MAX = 21 };

struct editor {
    struct api_edit *edit;
    const struct api_request *request;
    const struct api_edit_options *options;
    struct buf fresh;      /* members to insert, joined by commas */
    uint64_t default_seen; /* bit i: options->defaults[i] is in the body */
    int error;
};

static void note(struct editor *e, int r)
{
    if (e->error == 0 && r < 0)
        e->error = r;
}

/* Records a splice, kept in ascending order (there are a handful). */
static void add_splice(struct editor *e, size_t offset, size_t remove, const char *prefix,
                       struct span text, bool as_string)
{
    struct api_edit *edit = e->edit;
    size_t start = edit->inserted.len;
    note(e, buf_append_str(&edit->inserted, prefix));
    note(e, as_string ? buf_append_json(&edit->inserted, text)
                      : buf_append_span(&edit->inserted, text));
    if (as_string)
        note(e, buf_append(&edit->inserted, "\"", 1));
    if (edit->count == API_EDIT_SPLICES_MAX)
        note(e, -EMSGSIZE);
    if (e->error < 0)
        return;
    unsigned at = edit->count++;
    while (at > 0 && edit->splices[at - 1].offset > offset) {
        edit->splices[at] = edit->splices[at - 1];
        at--;
    }
    edit->splices[at].offset = offset;
    edit->splices[at].remove = remove;
    edit->splices[at].insert_offset = start;
    edit->splices[at].insert_len = edit->inserted.len - start;
}

static void replace(struct editor *e, struct span old, const char *literal)
{
    size_t offset = (size_t)(old.ptr - e->request->body.ptr);
    add_splice(e, offset, old.len, "", span_from_str(literal), false);
}

/* `"name":` for a member that the body does not have. */
static void add_fresh_name(struct editor *e, const char *name)
{
    note(e, buf_append_str(&e->fresh, e->fresh.len ? ",\"" : "\""));
    note(e, buf_append_json(&e->fresh, span_from_str(name)));
    note(e, buf_append_str(&e->fresh, "\":"));
}

static void add_fresh(struct editor *e, const char *name, const char *literal)
{
    add_fresh_name(e, name);
    note(e, buf_append_str(&e->fresh, literal));
}

static void set_true(struct editor *e, enum api_member member, const char *name)
{
    const struct api_request_member *m = &e->request->members[member];
    if (m->kind == JSON_KIND_NONE)
        add_fresh(e, name, "true");
    else if (m->kind != JSON_KIND_TRUE)
        replace(e, m->value, "true");
}

static void set_model(struct editor *e)
{
    const struct api_request_member *m = &e->request->members[API_MEMBER_MODEL];
    const char *model = e->options->model;
    if (m->kind == JSON_KIND_NONE && e->request->members[API_MEMBER_NAME].kind != JSON_KIND_NONE)
        m = &e->request->members[API_MEMBER_NAME]; /* Ollama's older word */
    if (m->kind == JSON_KIND_NONE) {
        add_fresh_name(e, "model");
        note(e, buf_append(&e->fresh, "\"", 1));
        note(e, buf_append_json(&e->fresh, span_from_str(model)));
        note(e, buf_append(&e->fresh, "\"", 1));
        return;
    }
    size_t offset = (size_t)(m->value.ptr - e->request->body.ptr);
    add_splice(e, offset, m->value.len, "\"", span_from_str(model), true);
}

struct option_search {
    struct json_member include_usage;
    unsigned members;
};

static void on_option(void *ctx, const struct json_member *m)
{
    struct option_search *s = ctx;
    char text[KEY_TEXT_MAX];
    struct span key;
    s->members++;
    if (!json_scan_get_key(m, text, sizeof(text), &key))
        return;
    if (span_equals_str(key, "include_usage"))
        s->include_usage = *m;
}

static void set_include_usage(struct editor *e)
{
    const struct api_request_member *m = &e->request->members[API_MEMBER_STREAM_OPTIONS];
    if (e->request->include_usage)
        return;
    if (m->kind == JSON_KIND_NONE) {
        add_fresh(e, "stream_options", "{\"include_usage\":true}");
        return;
    }
    if (m->kind != JSON_KIND_OBJECT) {
        replace(e, m->value, "{\"include_usage\":true}");
        return;
    }
    struct option_search s = {0};
    enum json_kind kind;
    struct json_scan_error error;
    if (json_scan(m->value, on_option, &s, &kind, &error) < 0)
        note(e, -EINVAL); /* the body was validated: cannot be */
    else if (s.include_usage.kind != JSON_KIND_NONE)
        replace(e, s.include_usage.value, "true");
    else
        replace(e, (struct span){m->value.ptr + 1, 0},
                s.members ? "\"include_usage\":true," : "\"include_usage\":true");
}

/* True when the member whose raw key ends at `key` has the value null; *ret_value is its place. */
static bool value_is_null(struct span body, struct span key, struct span *ret_value)
{
    const char *p = key.ptr + key.len + 1; /* behind the closing quote; the text is valid */
    const char *end = body.ptr + body.len;
    while (p < end && (*p == ' ' || *p == '\t' || *p == '\r' || *p == '\n' || *p == ':'))
        p++;
    *ret_value = (struct span){p, 4};
    return p < end && *p == 'n';
}

/* One member of the body against the list of defaults. Engines take null for absent. */
static void check_key(struct editor *e, struct span raw)
{
    char text[KEY_TEXT_MAX];
    struct span key = raw;
    if (memchr(raw.ptr, '\\', raw.len) != NULL) {
        if (json_scan_get_string((struct span){raw.ptr - 1, raw.len + 2}, text, sizeof(text)) < 0)
            return;
        key = span_from_str(text);
    }
    for (size_t i = 0; i < e->options->default_count; i++) {
        if (!span_equals_str(key, e->options->defaults[i].name))
            continue;
        struct span null;
        /* One splice is kept for the members that are inserted. */
        if (value_is_null(e->request->body, raw, &null) &&
            e->edit->count + 1 < API_EDIT_SPLICES_MAX)
            replace(e, null, e->options->defaults[i].literal);
        e->default_seen |= UINT64_C(1) << i;
    }
}

static void on_key(void *ctx, const struct json_member *m)
{
    check_key(ctx, m->key);
}

static void set_defaults(struct editor *e)
{
    const struct api_request *r = e->request;
    if (e->options->default_count == 0)
        return;
    if (r->key_count == r->member_count) {
        for (uint32_t i = 0; i < r->key_count; i++)
            check_key(e, (struct span){r->body.ptr + r->keys[i].offset, r->keys[i].len});
    } else {
        enum json_kind kind;
        struct json_scan_error error;
        note(e, json_scan(r->body, on_key, e, &kind, &error));
    }
    for (size_t i = 0; i < e->options->default_count; i++)
        if ((e->default_seen >> i & 1) == 0)
            add_fresh(e, e->options->defaults[i].name, e->options->defaults[i].literal);
}

/* The decimal digits of n, terminated. */
static const char *digits(uint64_t n, char text[DIGITS_MAX])
{
    char *p = text + DIGITS_MAX - 1;
    *p = '\0';
    do
        *--p = (char)('0' + n % 10);
    while ((n /= 10) > 0);
    return p;
}

/* Null stands for absent, but a second member of the name would be a duplicate: replaced too. */
static bool replace_size(struct editor *e, enum api_member member, uint64_t n)
{
    char text[DIGITS_MAX];
    const struct api_request_member *m = &e->request->members[member];
    if (m->kind != JSON_KIND_NONE)
        replace(e, m->value, digits(n, text));
    return m->kind != JSON_KIND_NONE;
}

/*
 * Every member that bounds the answer is set: engines differ in which of them they follow when
 * there are several.
 */
static void set_output(struct editor *e)
{
    static const enum api_member bounds[] = {API_MEMBER_MAX_TOKENS,
                                             API_MEMBER_MAX_COMPLETION_TOKENS,
                                             API_MEMBER_MAX_OUTPUT_TOKENS, API_MEMBER_N_PREDICT};
    uint64_t n = e->options->output_tokens;
    bool found = false;
    char text[DIGITS_MAX];
    for (size_t i = 0; i < sizeof(bounds) / sizeof(bounds[0]); i++)
        found |= replace_size(e, bounds[i], n);
    if (found)
        return;
    enum api_operation operation = e->options->operation;
    const char *name = "max_tokens";
    if (operation == API_OPERATION_NATIVE_COMPLETION || operation == API_OPERATION_INFILL)
        name = "n_predict";
    else if (operation == API_OPERATION_RESPONSES)
        name = "max_output_tokens";
    add_fresh(e, name, digits(n, text));
}

struct size_search {
    struct json_member num_ctx, num_predict;
    unsigned members;
};

static void on_size(void *ctx, const struct json_member *m)
{
    struct size_search *s = ctx;
    char text[KEY_TEXT_MAX];
    struct span key;
    s->members++;
    if (!json_scan_get_key(m, text, sizeof(text), &key))
        return;
    if (span_equals_str(key, "num_ctx"))
        s->num_ctx = *m;
    else if (span_equals_str(key, "num_predict"))
        s->num_predict = *m;
}

/* Replaces one option, or appends it to `missing`. */
static void set_option(struct editor *e, const struct json_member *old, const char *name,
                       uint64_t n, struct buf *missing)
{
    char text[DIGITS_MAX];
    if (old->kind != JSON_KIND_NONE)
        replace(e, old->value, digits(n, text));
    else
        note(e, buf_printf(missing, "%s\"%s\":%s", missing->len ? "," : "", name, digits(n, text)));
}

/* Ollama keeps its sizes in `options`, which may be absent, null or empty. */
static void set_ollama_sizes(struct editor *e)
{
    const struct api_edit_options *o = e->options;
    const struct api_request_member *m = &e->request->members[API_MEMBER_OPTIONS];
    struct size_search s = {0};
    struct buf missing;
    char text[DIGITS_MAX];
    enum json_kind kind;
    if (o->set_keep_alive && !replace_size(e, API_MEMBER_KEEP_ALIVE, o->keep_alive_s))
        add_fresh(e, "keep_alive", digits(o->keep_alive_s, text));
    if (!o->set_output && !o->set_context)
        return;
    buf_init(&missing, INSERTED_MAX_BYTES);
    if (m->kind == JSON_KIND_OBJECT)
        note(e, json_scan(m->value, on_size, &s, &kind, NULL));
    if (o->set_output)
        set_option(e, &s.num_predict, "num_predict", o->output_tokens, &missing);
    if (o->set_context)
        set_option(e, &s.num_ctx, "num_ctx", o->context_tokens, &missing);
    if (missing.len > 0 && m->kind == JSON_KIND_OBJECT) {
        if (s.members > 0)
            note(e, buf_append(&missing, ",", 1));
        size_t offset = (size_t)(m->value.ptr - e->request->body.ptr) + 1;
        add_splice(e, offset, 0, "", buf_span(&missing), false);
    } else if (missing.len > 0) {
        note(e, buf_append(&missing, "}", 1));
        if (m->kind == JSON_KIND_NONE) {
            add_fresh_name(e, "options");
            note(e, buf_append(&e->fresh, "{", 1));
            note(e, buf_append_span(&e->fresh, buf_span(&missing)));
        } else {
            size_t offset = (size_t)(m->value.ptr - e->request->body.ptr);
            add_splice(e, offset, m->value.len, "{", buf_span(&missing), false);
        }
    }
    buf_free(&missing);
}

static void edit_json(struct editor *e)
{
    const struct api_edit_options *o = e->options;
    if (o->dialect == API_DIALECT_OLLAMA)
        set_ollama_sizes(e);
    else if (o->set_output)
        set_output(e);
    if (o->model != NULL)
        set_model(e);
    if (o->stream)
        set_true(e, API_MEMBER_STREAM, "stream");
    if (o->return_progress)
        set_true(e, API_MEMBER_RETURN_PROGRESS, "return_progress");
    if (o->include_usage)
        set_include_usage(e);
    set_defaults(e);
    if (e->fresh.len == 0)
        return;
    if (e->request->member_count > 0)
        note(e, buf_append(&e->fresh, ",", 1));
    add_splice(e, e->request->object_open, 0, "", buf_span(&e->fresh), false);
}

static void edit_multipart(struct editor *e)
{
    const char *model = e->options->model;
    struct span old = e->request->multipart_model;
    if (model == NULL || old.ptr == NULL)
        return;
    if (strpbrk(model, "\r\n") != NULL)
        note(e, -EINVAL);
    else
        replace(e, old, model);
}

int api_edit_prepare(const struct api_request *request, const struct api_edit_options *options,
                     struct api_edit *ret)
{
    struct api_edit edit = {.body = request->body};
    struct editor e = {.edit = &edit, .request = request, .options = options};
    if (options->default_count > API_EDIT_DEFAULTS_MAX)
        return -EMSGSIZE;
    buf_init(&edit.inserted, INSERTED_MAX_BYTES);
    buf_init(&e.fresh, INSERTED_MAX_BYTES);
    if (request->body_kind == API_BODY_JSON)
        edit_json(&e);
    else if (request->body_kind == API_BODY_MULTIPART)
        edit_multipart(&e);
    buf_free(&e.fresh);
    if (e.error < 0) {
        buf_free(&edit.inserted);
        return e.error;
    }
    *ret = edit;
    return 0;
}

unsigned api_edit_parts(const struct api_edit *e, struct span parts[API_EDIT_PARTS_MAX])
{
    unsigned n = 0;
    size_t at = 0;
    for (unsigned i = 0; i < e->count; i++) {
        if (e->splices[i].offset > at)
            parts[n++] = (struct span){e->body.ptr + at, e->splices[i].offset - at};
        if (e->splices[i].insert_len > 0)
            parts[n++] = (struct span){e->inserted.data + e->splices[i].insert_offset,
                                       e->splices[i].insert_len};
        at = e->splices[i].offset + e->splices[i].remove;
    }
    if (at < e->body.len)
        parts[n++] = (struct span){e->body.ptr + at, e->body.len - at};
    return n;
}

size_t api_edit_length(const struct api_edit *e)
{
    size_t length = e->body.len;
    for (unsigned i = 0; i < e->count; i++)
        length = length - e->splices[i].remove + e->splices[i].insert_len;
    return length;
}

void api_edit_free(struct api_edit *e)
{
    if (e == NULL)
        return;
    buf_free(&e->inserted);
    e->count = 0;
}
