/*
 * The bound over generated bodies: what an independent renderer, on yyjson, makes of the same body
 * is never longer than what was counted. In every dialect; spellings, white space and nesting vary.
 * The renderer writes what any template may (all texts, tools and calls with every habit of an
 * encoder), and still not a byte more than the bound.
 */
#include "tests/unit/unit.h"

#include "api/demand.h"

#include "base/buf.h"

#include <stdio.h>
#include <stdlib.h>
#include <yyjson.h>

enum { BODIES = 30000, BODY_MAX = 1 << 20 };

static uint64_t seed;

static unsigned roll(unsigned n)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (unsigned)(seed >> 33) % n;
}

static void put(struct buf *b, const char *text)
{
    assert_int_equal(buf_append_str(b, text), 0);
}

static void put_space(struct buf *b)
{
    static const char *const spaces[] = {" ", "\n", "\t ", "  "};
    if (roll(6) == 0)
        put(b, spaces[roll(UNIT_COUNT(spaces))]);
}

/* --- the generator --- */

static void put_string(struct buf *b)
{
    static const char *const pieces[] = {
        "a",       "word ", "<b>",     "&",       "'",
        "\\n",     "\\\\",  "\\\"",    "\\u0041", "é",
        "\\u00e9", "中",    "\\u4e2d", "😀",       "\\ud83d\\ude00",
        "\\/",     "\\t",   "\\b",     "\\f",     "{\\\"k\\\":1e20,\\\"x\\\":[1,2.5]}",
        ", ",      ": ",    "0",       "9e9",     "\\\\u0041",
        "\\u0000", "    ",
    };
    put(b, "\"");
    unsigned n = roll(12);
    if (roll(40) == 0)
        n = 200; /* longer than a block */
    for (unsigned i = 0; i < n; i++)
        put(b, pieces[roll(UNIT_COUNT(pieces))]);
    put(b, "\"");
}

static void put_number(struct buf *b)
{
    static const char *const numbers[] = {"0",    "-1", "1.5", "1e20", "12345678901234567890",
                                          "1E-7", "0.1"};
    put(b, numbers[roll(UNIT_COUNT(numbers))]);
}

static void put_key(struct buf *b, const char *name)
{
    put_space(b);
    put(b, "\"");
    /* Escaped now and then: a key is what it means. */
    if (roll(20) == 0) {
        char text[8];
        (void)snprintf(text, sizeof(text), "\\u%04x", (unsigned)(unsigned char)name[0]);
        put(b, text);
        name++;
    }
    put(b, name);
    put(b, "\"");
    put_space(b);
    put(b, ":");
    put_space(b);
}

/* Any value, as schemas and arguments are made of. */
static void put_value(struct buf *b, unsigned depth)
{
    static const char *const keys[] = {"type",   "properties", "content", "image_url",
                                       "source", "data",       "url",     "input",
                                       "x",      "tool_calls", "<é>"};
    static const char *const words[] = {"true", "false", "null"};
    unsigned what = roll(depth > 5 ? 3 : 6);
    if (what == 0)
        put_number(b);
    else if (what == 1)
        put(b, words[roll(3)]);
    else if (what == 2)
        put_string(b);
    else {
        unsigned n = roll(4);
        put(b, what == 3 ? "[" : "{");
        for (unsigned i = 0; i < n; i++) {
            put(b, i > 0 ? "," : "");
            if (what != 3)
                put_key(b, keys[roll(UNIT_COUNT(keys))]);
            put_space(b);
            put_value(b, depth + 1);
            put_space(b);
        }
        put(b, what == 3 ? "]" : "}");
    }
}

static void put_member(struct buf *b, unsigned *count, const char *name)
{
    put(b, (*count)++ > 0 ? "," : "");
    put_key(b, name);
}

static void put_source(struct buf *b)
{
    static const char *const types[] = {"\"base64\"", "\"text\"", "\"url\"", "\"content\"", "7"};
    unsigned n = 0;
    put(b, "{");
    for (unsigned i = roll(4); i > 0; i--) {
        if (roll(2) == 0) {
            put_member(b, &n, "type");
            put(b, types[roll(UNIT_COUNT(types))]);
        } else {
            put_member(b, &n, roll(3) > 0 ? "data" : "media_type");
            put_string(b);
        }
    }
    put(b, "}");
}

static void put_content(struct buf *b, unsigned depth)
{
    if (depth > 2 || roll(2) == 0) {
        put_string(b);
        return;
    }
    put(b, "[");
    for (unsigned i = 0, n = roll(4); i < n; i++) {
        unsigned count = 0;
        put(b, i > 0 ? "," : "");
        put(b, "{");
        switch (roll(5)) {
        case 0:
            put_member(b, &count, "source");
            put_source(b);
            break;
        case 1:
            put_member(b, &count, "content"); /* a tool result */
            put_content(b, depth + 1);
            break;
        case 2:
            put_member(b, &count, "input"); /* a tool use */
            put_value(b, 2);
            break;
        default: put_member(b, &count, "text"); put_string(b);
        }
        put(b, "}");
    }
    put(b, "]");
}

static void put_messages(struct buf *b)
{
    static const char *const roles[] = {"\"user\"", "\"system\"", "\"tool\"", "\"assistant\""};
    put(b, "[");
    for (unsigned i = 0, n = roll(5); i < n; i++) {
        unsigned count = 0;
        put(b, i > 0 ? "," : "");
        put_space(b);
        put(b, "{");
        put_member(b, &count, "role");
        put(b, roles[roll(4)]);
        if (roll(4) > 0) {
            put_member(b, &count, roll(6) > 0 ? "content" : "output");
            put_content(b, 0);
        }
        if (roll(4) == 0) {
            put_member(b, &count, "tool_calls");
            put_value(b, 1);
        }
        if (roll(8) == 0) {
            put_member(b, &count, "arguments");
            put_string(b);
        }
        put_space(b);
        put(b, "}");
    }
    put(b, "]");
}

/* --- the renderer --- */

/* As an encoder with every habit: indentation of four, ASCII only, & < > ' in hex. */
static size_t string_as_json(yyjson_val *v)
{
    const char *s = yyjson_get_str(v);
    size_t n = 2;
    for (size_t i = 0; i < yyjson_get_len(v);) {
        unsigned char c = (unsigned char)s[i];
        if (c >= 0xF0) {
            n += 12;
            i += 4;
        } else if (c >= 0x80) {
            n += 6;
            i += c >= 0xE0 ? 3 : 2;
        } else {
            bool hex = (c < 0x20 && c != '\n' && c != '\t' && c != '\r') || c == 0x7f || c == '<' ||
                       c == '>' || c == '&' || c == '\'';
            n += hex ? 6 : c == '"' || c == '\\' || c < 0x20 ? 2 : 1;
            i++;
        }
    }
    return n;
}

static size_t as_json(yyjson_val *v, size_t depth)
{
    size_t idx, max, n = 0;
    yyjson_val *key, *value;
    if (yyjson_is_str(v))
        return string_as_json(v);
    if (yyjson_is_arr(v)) {
        yyjson_arr_foreach(v, idx, max, value) n +=
            1 + 4 * (depth + 1) + as_json(value, depth + 1) + 1; /* \n, value, comma */
        return n > 0 ? n - 1 + 2 + 1 + 4 * depth : 2;
    }
    if (yyjson_is_obj(v)) {
        yyjson_obj_foreach(v, idx, max, key, value) n +=
            1 + 4 * (depth + 1) + string_as_json(key) + 2 + as_json(value, depth + 1) + 1;
        return n > 0 ? n - 1 + 2 + 1 + 4 * depth : 2;
    }
    if (yyjson_is_num(v)) {
        char text[64];
        return (size_t)snprintf(text, sizeof(text), "%.16g.0", yyjson_get_num(v));
    }
    return yyjson_is_null(v) ? 4 : yyjson_is_true(v) ? 4 : 5;
}

static bool named(yyjson_val *key, const char *name)
{
    return yyjson_equals_str(key, name);
}

static size_t as_text(yyjson_val *v);

/* Only a source that says "base64", once, is no text. */
static size_t source_text(yyjson_val *v)
{
    size_t idx, max, types = 0, n = 0;
    bool base64 = false;
    yyjson_val *key, *value;
    if (!yyjson_is_obj(v))
        return as_text(v);
    yyjson_obj_foreach(v, idx, max, key, value)
    {
        if (!named(key, "type"))
            continue;
        types++;
        base64 = yyjson_equals_str(value, "base64");
    }
    yyjson_obj_foreach(v, idx, max, key, value) if (named(key, "data") && !(base64 && types == 1))
        n += as_text(value);
    return n;
}

/* Texts side by side, and tool calls as JSON. */
static size_t as_text(yyjson_val *v)
{
    size_t idx, max, n = 0;
    yyjson_val *key, *value;
    if (yyjson_is_str(v))
        return yyjson_get_len(v);
    if (!yyjson_is_ctn(v))
        return 0;
    yyjson_arr_foreach(v, idx, max, value) n += as_text(value);
    yyjson_obj_foreach(v, idx, max, key, value)
    {
        if (named(key, "tool_calls") || named(key, "input") || named(key, "arguments"))
            n += as_json(value, 0);
        else if (named(key, "source"))
            n += source_text(value);
        else
            n += as_text(value);
    }
    return n;
}

static size_t render(yyjson_val *root)
{
    static const char *const json[] = {"tools", "response_format", "format", "json_schema",
                                       "chat_template_kwargs"};
    static const char *const text[] = {"messages", "input",        "system",     "prompt",
                                       "suffix",   "instructions", "input_extra"};
    size_t n = 0;
    for (size_t i = 0; i < UNIT_COUNT(json); i++) {
        yyjson_val *value = yyjson_obj_get(root, json[i]);
        if (value && !yyjson_is_null(value)) /* null is absent */
            n += as_json(value, 0);
    }
    for (size_t i = 0; i < UNIT_COUNT(text); i++)
        n += as_text(yyjson_obj_get(root, text[i]));
    return n;
}

/* --- the property --- */

static const struct dialect {
    struct api_route route;
    const char *messages, *texts[3], *json[3];
} dialects[] = {
    {{.operation = API_OPERATION_CHAT, .dialect = API_DIALECT_OPENAI, .body = API_BODY_JSON},
     "messages",
     {NULL},
     {"tools", "response_format", "chat_template_kwargs"}},
    {{.operation = API_OPERATION_RESPONSES, .dialect = API_DIALECT_OPENAI, .body = API_BODY_JSON},
     "input",
     {"instructions", NULL},
     {"tools", NULL}},
    {{.operation = API_OPERATION_MESSAGES, .dialect = API_DIALECT_ANTHROPIC, .body = API_BODY_JSON},
     "messages",
     {"system", NULL},
     {"tools", NULL}},
    {{.operation = API_OPERATION_OLLAMA_CHAT, .dialect = API_DIALECT_OLLAMA, .body = API_BODY_JSON},
     "messages",
     {NULL},
     {"tools", "format", NULL}},
    {{.operation = API_OPERATION_OLLAMA_GENERATE,
      .dialect = API_DIALECT_OLLAMA,
      .body = API_BODY_JSON},
     NULL,
     {"prompt", "system", "suffix"},
     {"format", NULL}},
    {{.operation = API_OPERATION_NATIVE_COMPLETION, .body = API_BODY_JSON},
     "input_extra",
     {"prompt", NULL},
     {"json_schema", NULL}},
};

static void make_body(struct buf *b, const struct dialect *d)
{
    unsigned count = 0;
    b->len = 0;
    put_space(b);
    put(b, "{");
    if (d->messages != NULL) {
        put_member(b, &count, d->messages);
        put_messages(b);
    }
    for (unsigned i = 0; i < 3 && d->texts[i] != NULL; i++) {
        if (roll(2) == 0)
            continue;
        put_member(b, &count, d->texts[i]);
        put_string(b);
    }
    for (unsigned i = 0; i < 3 && d->json[i] != NULL; i++) {
        if (roll(2) == 0)
            continue;
        put_member(b, &count, d->json[i]);
        put_value(b, 0);
    }
    put(b, "}");
}

static void rendered_is_no_longer(void **state)
{
    (void)state;
    struct buf b;
    size_t tight = 0;
    buf_init(&b, BODY_MAX);
    seed = 20240229;
    for (unsigned i = 0; i < BODIES; i++) {
        const struct dialect *d = &dialects[roll(UNIT_COUNT(dialects))];
        make_body(&b, d);
        struct api_request request;
        struct api_demand demand;
        struct api_error error;
        if (api_request_parse(&d->route, SPAN_NONE, buf_span(&b), &request, &error) < 0 ||
            api_demand_read(&d->route, &request, &demand, &error) < 0)
            fail_msg("body %u: %s: %.*s", i, error.message, SPAN_FMT(buf_span(&b)));
        yyjson_doc *doc = yyjson_read(b.data, b.len, 0);
        assert_non_null(doc);
        size_t rendered = render(yyjson_doc_get_root(doc));
        yyjson_doc_free(doc);
        if (demand.prompt_bytes < rendered)
            fail_msg("body %u: %llu bytes counted, %zu rendered: %.*s", i,
                     (unsigned long long)demand.prompt_bytes, rendered, SPAN_FMT(buf_span(&b)));
        /* And it is a bound, not a wild guess: all but JSON within the body and its marks. */
        tight += demand.prompt_bytes <= 30 * (uint64_t)b.len;
    }
    assert_int_equal(tight, BODIES);
    buf_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rendered_is_no_longer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
