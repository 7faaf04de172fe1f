/* Edits: a table of exact results, and a property over generated objects. */
#include "tests/unit/unit.h"

#include "api/edit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <yyjson.h>

static const struct api_route chat = {
    .operation = API_OPERATION_CHAT, .dialect = API_DIALECT_OPENAI, .body = API_BODY_JSON};
static const struct api_route audio = {.operation = API_OPERATION_TRANSCRIPTION,
                                       .body = API_BODY_MULTIPART};

/* Joins the parts of an edited body; the caller frees. The length must be what was announced. */
static char *apply(const struct api_route *route, struct span body,
                   const struct api_edit_options *options, size_t *ret_len)
{
    struct api_request request;
    struct api_error error;
    struct api_edit edit;
    struct span parts[API_EDIT_PARTS_MAX];
    if (api_request_parse(route, SPAN_LIT("multipart/form-data; boundary=B"), body, &request,
                          &error) < 0)
        fail_msg("%.*s: %s", SPAN_FMT(body), error.message);
    assert_int_equal(api_edit_prepare(&request, options, &edit), 0);
    unsigned n = api_edit_parts(&edit, parts);
    assert_true(n <= API_EDIT_PARTS_MAX);
    size_t len = 0;
    char *text = calloc(1, api_edit_length(&edit) + 1);
    for (unsigned i = 0; i < n; i++) {
        assert_true(parts[i].len > 0);
        assert_true(len + parts[i].len <= api_edit_length(&edit));
        memcpy(text + len, parts[i].ptr, parts[i].len);
        len += parts[i].len;
    }
    assert_int_equal(len, api_edit_length(&edit));
    *ret_len = len;
    api_edit_free(&edit);
    return text;
}

static const struct api_default some_defaults[] = {{"temperature", "0.8"}, {"seed", "[1,2]"}};

static void test_exact(void **state)
{
    const struct api_edit_options all = {.model = "m\"x",
                                         .stream = true,
                                         .return_progress = true,
                                         .include_usage = true,
                                         .defaults = some_defaults,
                                         .default_count = 1};
    const struct api_edit_options model = {.model = "new"};
    const struct api_edit_options stream = {.stream = true, .include_usage = true};
    const struct api_edit_options defaults = {.defaults = some_defaults, .default_count = 2};
    const struct api_edit_options none = {0};
    const struct {
        const struct api_edit_options *options;
        const char *body, *expected;
    } rows[] = {
        {&all, "{}",
         "{\"model\":\"m\\\"x\",\"stream\":true,\"return_progress\":true,"
         "\"stream_options\":{\"include_usage\":true},\"temperature\":0.8}"},
        {&all, " { } ",
         " {\"model\":\"m\\\"x\",\"stream\":true,\"return_progress\":true,"
         "\"stream_options\":{\"include_usage\":true},\"temperature\":0.8 } "},
        {&none, " { \"a\" : 1 } ", " { \"a\" : 1 } "},
        {&model, "{\"model\":\"old\"}", "{\"model\":\"new\"}"},
        {&model, "{\"mod\\u0065l\" : null , \"x\":1}", "{\"mod\\u0065l\" : \"new\" , \"x\":1}"},
        {&model, "{\"x\":1}", "{\"model\":\"new\",\"x\":1}"},
        {&stream, "{\"stream\":false,\"stream_options\":null}",
         "{\"stream\":true,\"stream_options\":{\"include_usage\":true}}"},
        {&stream, "{\"stream\":true,\"stream_options\":{}}",
         "{\"stream\":true,\"stream_options\":{\"include_usage\":true}}"},
        {&stream, "{\"stream\":true,\"stream_options\":{ \"a\":1}}",
         "{\"stream\":true,\"stream_options\":{\"include_usage\":true, \"a\":1}}"},
        {&stream, "{\"stream\":true,\"stream_options\":{\"include\\u005fusage\":false,\"a\":1}}",
         "{\"stream\":true,\"stream_options\":{\"include\\u005fusage\":true,\"a\":1}}"},
        {&stream, "{\"stream\":true,\"stream_options\":{\"include_usage\":true}}",
         "{\"stream\":true,\"stream_options\":{\"include_usage\":true}}"},
        {&stream, "{\"stream\":null,\"stream_options\":7}",
         "{\"stream\":true,\"stream_options\":{\"include_usage\":true}}"},
        {&defaults, "{\"temperature\":0}", "{\"seed\":[1,2],\"temperature\":0}"},
        {&defaults, "{\"t\\u0065mperature\":0,\"seed\" :\tnull}",
         "{\"t\\u0065mperature\":0,\"seed\" :\t[1,2]}"},
    };
    (void)state;
    for (size_t i = 0; i < UNIT_COUNT(rows); i++) {
        size_t len;
        char *text = apply(&chat, span_from_str(rows[i].body), rows[i].options, &len);
        assert_string_equal(text, rows[i].expected);
        free(text);
    }
}

static void test_ollama_name(void **state)
{
    const struct api_route show = {.operation = API_OPERATION_OLLAMA_SHOW,
                                   .dialect = API_DIALECT_OLLAMA,
                                   .body = API_BODY_JSON};
    const struct api_edit_options model = {.model = "new"};
    size_t len;
    (void)state;
    char *text = apply(&show, SPAN_LIT("{\"name\":\"old\"}"), &model, &len);
    assert_string_equal(text, "{\"name\":\"new\"}");
    free(text);
}

static void test_form(void **state)
{
    static const char form[] = "--B\r\nContent-Disposition: form-data; name=\"file\"; "
                               "filename=\"f\"\r\n\r\n\0\xff\r\n--B\r\nContent-Disposition: "
                               "form-data; name=\"model\"\r\n\r\nold\r\n--B--\r\n";
    const struct api_edit_options model = {.model = "newer", .stream = true};
    size_t len;
    (void)state;
    char *text = apply(&audio, (struct span){form, sizeof(form) - 1}, &model, &len);
    assert_int_equal(len, sizeof(form) - 1 + 2);
    struct api_request request;
    struct api_error error;
    assert_int_equal(api_request_parse(&audio, SPAN_LIT("multipart/form-data; boundary=B"),
                                       (struct span){text, len}, &request, &error),
                     0);
    assert_string_equal(request.model, "newer");
    free(text);

    const struct api_edit_options bad = {.model = "a\r\n--B--"};
    struct api_edit edit;
    assert_int_equal(api_request_parse(&audio, SPAN_LIT("multipart/form-data; boundary=B"),
                                       (struct span){form, sizeof(form) - 1}, &request, &error),
                     0);
    assert_int_equal(api_edit_prepare(&request, &bad, &edit), -EINVAL);
}

static void test_other_bodies_are_left_alone(void **state)
{
    const struct api_route pass = {.operation = API_OPERATION_PASS};
    const struct api_edit_options model = {.model = "x", .stream = true};
    size_t len;
    (void)state;
    char *text = apply(&pass, SPAN_LIT("raw {"), &model, &len);
    assert_string_equal(text, "raw {");
    free(text);
    text = apply(&pass, SPAN_NONE, &model, &len);
    assert_int_equal(len, 0);
    free(text);
}

static void test_too_many_defaults(void **state)
{
    struct api_default many[API_EDIT_DEFAULTS_MAX + 1];
    struct api_request request;
    struct api_error error;
    struct api_edit edit;
    (void)state;
    for (size_t i = 0; i < UNIT_COUNT(many); i++)
        many[i] = some_defaults[0];
    const struct api_edit_options o = {.defaults = many, .default_count = UNIT_COUNT(many)};
    assert_int_equal(api_request_parse(&chat, SPAN_NONE, SPAN_LIT("{}"), &request, &error), 0);
    assert_int_equal(api_edit_prepare(&request, &o, &edit), -EMSGSIZE);
}

/* The body is not copied: every part lies in the body or in the small text of insertions. */
static void test_large_body_is_not_copied(void **state)
{
    enum { SIZE = 8 * 1024 * 1024 };
    const struct api_edit_options o = {.model = "new", .stream = true};
    struct api_request request;
    struct api_error error;
    struct api_edit edit;
    struct span parts[API_EDIT_PARTS_MAX];
    (void)state;
    char *body = malloc(SIZE);
    memset(body, 'x', SIZE);
    memcpy(body, "{\"image\":\"", 10);
    memcpy(body + SIZE - 16, "\",\"model\":\"old\"}", 16);
    assert_int_equal(
        api_request_parse(&chat, SPAN_NONE, (struct span){body, SIZE}, &request, &error), 0);
    assert_int_equal(api_edit_prepare(&request, &o, &edit), 0);
    unsigned n = api_edit_parts(&edit, parts);
    assert_true(edit.inserted.cap < 4096);
    size_t inside = 0;
    for (unsigned i = 0; i < n; i++)
        if (parts[i].ptr >= body && parts[i].ptr < body + SIZE)
            inside += parts[i].len;
    assert_true(inside > SIZE - 64);
    api_edit_free(&edit);
    free(body);
}

/* A small deterministic generator: the same objects in every run. */
static uint32_t seed_state;

static uint32_t pick(uint32_t n)
{
    seed_state = seed_state * 1664525u + 1013904223u;
    return (seed_state >> 16) % n;
}

static const char *spaces(void)
{
    static const char *const all[] = {"", "", " ", "\n\t", "  \r\n"};
    return all[pick(UNIT_COUNT(all))];
}

static void add_text(char *out, size_t size, const char *text)
{
    size_t len = strlen(out);
    assert_true(len + strlen(text) < size);
    memcpy(out + len, text, strlen(text) + 1);
}

/* One object with a random choice of known and unknown members, none twice. */
static void generate(char *out, size_t size)
{
    static const struct {
        const char *spellings[2];
        const char *values[5];
    } members[] = {
        {{"model", "mod\\u0065l"}, {"\"a\"", "null", "\"\\u00e9\\n\"", "\"\"", "\"x y\""}},
        {{"stream", "\\u0073tream"}, {"true", "false", "null", "true", "false"}},
        {{"return_progress", "return\\u005fprogress"}, {"true", "false", "null", "1", "\"x\""}},
        {{"stream_options", "stream_option\\u0073"},
         {"{}", "{ \"a\" : [1] }", "null", "{\"b\":1,\"include_usage\":false}",
          "{\"include_usage\":true}"}},
        {{"temperature", "temperatur\\u0065"}, {"0.5", "null", "1", "0", "-1e2"}},
        {{"seed", "s\\u0065ed"}, {"1", "null", "2", "3", "4"}},
        {{"messages", "mess\\u0061ges"},
         {"[]", "[{\"model\":\"inner\",\"stream\":false}]", "{\"model\":1}", "\"{}\"", "null"}},
        {{"x", "\\u0078"}, {"\"}\"", "\"\\\"{\"", "[{}]", "{\"stream\":true}", "1.50"}},
    };
    bool first = true;
    out[0] = '\0';
    add_text(out, size, spaces());
    add_text(out, size, "{");
    for (size_t i = 0; i < UNIT_COUNT(members); i++) {
        if (pick(2) == 0)
            continue;
        add_text(out, size, first ? "" : ",");
        add_text(out, size, spaces());
        add_text(out, size, "\"");
        add_text(out, size, members[i].spellings[pick(2)]);
        add_text(out, size, "\"");
        add_text(out, size, spaces());
        add_text(out, size, ":");
        add_text(out, size, spaces());
        add_text(out, size, members[i].values[pick(5)]);
        add_text(out, size, spaces());
        first = false;
    }
    add_text(out, size, spaces());
    add_text(out, size, "}");
    add_text(out, size, spaces());
}

static void put(yyjson_mut_doc *doc, yyjson_mut_val *root, const char *name, const char *literal)
{
    yyjson_doc *value = yyjson_read(literal, strlen(literal), 0);
    yyjson_mut_obj_remove_key(root, name);
    yyjson_mut_obj_add_val(doc, root, name, yyjson_val_mut_copy(doc, yyjson_doc_get_root(value)));
    yyjson_doc_free(value);
}

/* What the edit should give, on the DOM. */
static yyjson_mut_doc *expected_dom(const char *body, const struct api_edit_options *o)
{
    yyjson_doc *in = yyjson_read(body, strlen(body), 0);
    yyjson_mut_doc *doc = yyjson_doc_mut_copy(in, NULL);
    yyjson_mut_val *root = yyjson_mut_doc_get_root(doc);
    yyjson_doc_free(in);
    if (o->model != NULL)
        put(doc, root, "model", "\"wanted\"");
    if (o->stream)
        put(doc, root, "stream", "true");
    if (o->return_progress)
        put(doc, root, "return_progress", "true");
    if (o->include_usage) {
        yyjson_mut_val *options = yyjson_mut_obj_get(root, "stream_options");
        if (yyjson_mut_is_obj(options))
            put(doc, options, "include_usage", "true");
        else
            put(doc, root, "stream_options", "{\"include_usage\":true}");
    }
    for (size_t i = 0; i < o->default_count; i++) {
        yyjson_mut_val *there = yyjson_mut_obj_get(root, o->defaults[i].name);
        if (there == NULL || yyjson_mut_is_null(there))
            put(doc, root, o->defaults[i].name, o->defaults[i].literal);
    }
    return doc;
}

static void test_property(void **state)
{
    (void)state;
    seed_state = 20240607;
    for (int round = 0; round < 20000; round++) {
        char body[2048];
        generate(body, sizeof(body));
        const struct api_edit_options o = {
            .model = pick(2) ? "wanted" : NULL,
            .stream = pick(2) != 0,
            .return_progress = pick(2) != 0,
            .include_usage = pick(2) != 0,
            .defaults = some_defaults,
            .default_count = pick(3),
        };
        size_t len;
        char *text = apply(&chat, span_from_str(body), &o, &len);
        yyjson_doc *out = yyjson_read(text, len, 0);
        yyjson_mut_doc *got = yyjson_doc_mut_copy(out, NULL);
        yyjson_mut_doc *expected = expected_dom(body, &o);
        if (got == NULL ||
            !yyjson_mut_equals(yyjson_mut_doc_get_root(got), yyjson_mut_doc_get_root(expected)))
            fail_msg("round %d: %s became %s", round, body, text);
        yyjson_doc_free(out);
        yyjson_mut_doc_free(got);
        yyjson_mut_doc_free(expected);
        free(text);
    }
}

/* More members than positions are kept for: the same results by looking again. */
static void test_many_members(void **state)
{
    char body[4096] = "{\"k0\":0";
    const struct api_edit_options o = {.defaults = some_defaults, .default_count = 2};
    size_t len;
    (void)state;
    for (int i = 1; i < 100; i++)
        snprintf(body + strlen(body), sizeof(body) - strlen(body), ",\"k%d\":0", i);
    snprintf(body + strlen(body), sizeof(body) - strlen(body), ",\"temperature\":1}");
    char *text = apply(&chat, span_from_str(body), &o, &len);
    assert_int_equal(memcmp(text, "{\"seed\":[1,2],\"k0\":0", 20), 0);
    assert_null(strstr(text, "0.8"));
    free(text);
}

/* Sizes in the members of each dialect; the result stays JSON, the rest keeps its bytes. */
static void sizes(void **state)
{
    (void)state;
    const struct api_route ollama = {.operation = API_OPERATION_OLLAMA_CHAT,
                                     .dialect = API_DIALECT_OLLAMA,
                                     .body = API_BODY_JSON};
    const struct api_route responses = {
        .operation = API_OPERATION_RESPONSES, .dialect = API_DIALECT_OPENAI, .body = API_BODY_JSON};
    const struct api_route native = {.operation = API_OPERATION_NATIVE_COMPLETION,
                                     .body = API_BODY_JSON};
    static const struct {
        char
            route; /* c: chat, n: native, r: responses, o: ollama output and context, k: ollama keep_alive */
        const char *body, *want;
    } cases[] = {
        {'c', "{}", "{\"max_tokens\":7}"},
        {'c', "{\"a\":1}", "{\"max_tokens\":7,\"a\":1}"},
        {'c', "{\"max_completion_tokens\": 900 }", "{\"max_completion_tokens\": 7 }"},
        {'c', "{\"max_tokens\":null,\"n_predict\":-1}", "{\"max_tokens\":7,\"n_predict\":7}"},
        {'n', "{ }", "{\"n_predict\":7 }"},
        {'n', "{\"max_tokens\":9}", "{\"max_tokens\":7}"},
        {'r', "{\"a\":1}", "{\"max_output_tokens\":7,\"a\":1}"},
        {'r', "{\"max_output_tokens\":9}", "{\"max_output_tokens\":7}"},
        {'o', "{}", "{\"options\":{\"num_predict\":7,\"num_ctx\":4096}}"},
        {'o', "{\"options\":null}", "{\"options\":{\"num_predict\":7,\"num_ctx\":4096}}"},
        {'o', "{\"options\":{ }}", "{\"options\":{\"num_predict\":7,\"num_ctx\":4096 }}"},
        {'o', "{\"options\":{\"seed\":1,\"num_\\u0063tx\":99999}}",
         "{\"options\":{\"num_predict\":7,\"seed\":1,\"num_\\u0063tx\":4096}}"},
        {'o', "{\"options\":{\"num_ctx\":1,\"num_predict\":-2}}",
         "{\"options\":{\"num_ctx\":4096,\"num_predict\":7}}"},
        {'k', "{\"keep_alive\":-1}", "{\"keep_alive\":300}"},
        {'k', "{\"keep_alive\":\"24h\",\"a\":[]}", "{\"keep_alive\":300,\"a\":[]}"},
        {'k', "{\"a\":0}", "{\"keep_alive\":300,\"a\":0}"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct api_route *route = cases[i].route == 'c'   ? &chat
                                        : cases[i].route == 'n' ? &native
                                        : cases[i].route == 'r' ? &responses
                                                                : &ollama;
        struct api_edit_options o = {.dialect = route->dialect,
                                     .operation = route->operation,
                                     .set_output = cases[i].route != 'k',
                                     .set_context = cases[i].route == 'o',
                                     .set_keep_alive = cases[i].route == 'k',
                                     .output_tokens = 7,
                                     .context_tokens = 4096,
                                     .keep_alive_s = 300};
        size_t len;
        char *text = apply(route, span_from_str(cases[i].body), &o, &len);
        assert_string_equal(text, cases[i].want);
        yyjson_doc *doc = yyjson_read(text, len, 0);
        assert_non_null(doc);
        yyjson_doc_free(doc);
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes),
        cmocka_unit_test(test_exact),
        cmocka_unit_test(test_ollama_name),
        cmocka_unit_test(test_form),
        cmocka_unit_test(test_other_bodies_are_left_alone),
        cmocka_unit_test(test_too_many_defaults),
        cmocka_unit_test(test_large_body_is_not_copied),
        cmocka_unit_test(test_property),
        cmocka_unit_test(test_many_members),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
