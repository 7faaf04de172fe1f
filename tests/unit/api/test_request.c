/* Request bodies: facts, positions, and everything that is refused. */
#include "tests/unit/unit.h"

#include "api/request.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static const struct api_route chat = {
    .operation = API_OPERATION_CHAT, .dialect = API_DIALECT_OPENAI, .body = API_BODY_JSON};
static const struct api_route ollama = {.operation = API_OPERATION_OLLAMA_CHAT,
                                        .dialect = API_DIALECT_OLLAMA,
                                        .body = API_BODY_JSON,
                                        .stream_default = true};
static const struct api_route completions = {
    .operation = API_OPERATION_COMPLETIONS, .dialect = API_DIALECT_OPENAI, .body = API_BODY_JSON};
static const struct api_route audio = {.operation = API_OPERATION_TRANSCRIPTION,
                                       .dialect = API_DIALECT_OPENAI,
                                       .body = API_BODY_MULTIPART};

static struct api_request request;
static struct api_error error;

static int parse(const struct api_route *route, const char *body)
{
    memset(&error, 0, sizeof(error));
    return api_request_parse(route, SPAN_LIT("application/json"), span_from_str(body), &request,
                             &error);
}

static void test_facts(void **state)
{
    (void)state;
    assert_int_equal(parse(&chat, " { \"model\" : \"a\\/b \\u00e9\", \"stream\":true, \"n\": 3,\n"
                                  "\"tools\":[ {} ], \"return_progress\":true,"
                                  "\"stream_options\":{\"x\":1,\"include_usage\":true}} "),
                     0);
    assert_true(request.has_model);
    assert_string_equal(request.model, "a/b \xc3\xa9");
    assert_true(request.stream);
    assert_true(request.include_usage);
    assert_true(request.return_progress);
    assert_true(request.has_tools);
    assert_int_equal(request.n, 3);
    assert_int_equal(request.member_count, 6);
    assert_int_equal(request.object_open, 2);
    assert_true(span_equals_str(request.members[API_MEMBER_MODEL].value, "\"a\\/b \\u00e9\""));
}

static void test_absent_and_null(void **state)
{
    (void)state;
    assert_int_equal(parse(&chat, "{}"), 0);
    assert_false(request.has_model);
    assert_false(request.stream);
    assert_int_equal(request.n, 1);
    assert_int_equal(parse(&ollama, "{}"), 0);
    assert_true(request.stream);
    assert_int_equal(parse(&ollama, "{\"stream\":false}"), 0);
    assert_false(request.stream);
    assert_int_equal(parse(&ollama, "{\"stream\":null,\"name\":\"q\"}"), 0);
    assert_true(request.stream);
    assert_string_equal(request.model, "q");
    assert_int_equal(parse(&chat, "{\"model\":null,\"tools\":[ ],\"n\":null,\"name\":\"q\"}"), 0);
    assert_false(request.has_model);
    assert_false(request.has_tools);
    assert_int_equal(request.n, 1);
}

static void test_refused(void **state)
{
    static const struct {
        const char *body, *code, *needle;
    } rows[] = {
        {"", "json_invalid", "line 1, column 1 (byte 0)"},
        {"{\n \"a\": tru}", "json_invalid", "line 2"},
        {"{\"a\":1,}", "json_invalid", "byte 7"},
        {"{\"a\":1} x", "json_invalid", "byte 8"},
        {"{\"a\":\"\xff\"}", "json_invalid", "byte 6"},
        {"{\"a\":\"\xc3\"}", "json_invalid", "UTF-8"},
        {"{\"a\":[1,2", "json_invalid", "byte 9"},
        {"[1]", "json_not_object", "not an object"},
        {"\"x\"", "json_not_object", "not an object"},
        {"{\"model\":7}", "member_invalid", "'model' must be a string (line 1, column 10, byte 9)"},
        {"{\"model\":[\"a\"]}", "member_invalid", "must be a string"},
        {"{\"model\":\"a\\u0000b\"}", "member_invalid", "NUL"},
        {"{\"stream\":\"true\"}", "member_invalid", "'stream' must be true or false"},
        {"{\"stream\":1}", "member_invalid", "'stream' must be true or false"},
        {"{\"model\":\"a\",\"model\":\"a\"}", "member_invalid", "occurs twice"},
        {"{\"model\":\"a\",\"mod\\u0065l\":\"b\"}", "member_invalid", "occurs twice"},
        {"{\"stream\":true,\"\\u0073tream\":false}", "member_invalid", "occurs twice"},
        {"{\"tools\":[],\"tools\":[{}]}", "member_invalid", "occurs twice"},
        {"{\"Model\":\"a\"}", "member_invalid", "letter case"},
        {"{\"model\":\"a\",\"STREAM\":true}", "member_invalid", "letter case"},
        {"{\"stream_options\":{\"include_usage\":true,\"include_usage\":false}}", "member_invalid",
         "include_usage twice"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (parse(&chat, rows[i].body) != -EBADMSG)
            fail_msg("'%s' was taken", rows[i].body);
        assert_int_equal(error.status, 400);
        assert_string_equal(error.code, rows[i].code);
        if (strstr(error.message, rows[i].needle) == NULL)
            fail_msg("'%s' gave: %s", rows[i].body, error.message);
        assert_false(error.retryable);
    }
}

static void test_model_length(void **state)
{
    char body[400];
    char name[300];
    (void)state;
    memset(name, 'm', sizeof(name));
    snprintf(body, sizeof(body), "{\"model\":\"%.*s\"}", 255, name);
    assert_int_equal(parse(&chat, body), 0);
    assert_int_equal(strlen(request.model), 255);
    snprintf(body, sizeof(body), "{\"model\":\"%.*s\"}", 256, name);
    assert_int_equal(parse(&chat, body), -EBADMSG);
    assert_non_null(strstr(error.message, "255"));
}

/* Unknown members may repeat and have any name: they are the worker's business. */
static void test_other_members_are_free(void **state)
{
    (void)state;
    assert_int_equal(parse(&chat, "{\"x\":1,\"x\":2,\"N\":4,\"model\":\"a\",\"Name\":1}"), 0);
    char body[4096] = "{\"k0\":0";
    for (int i = 1; i < 200; i++)
        snprintf(body + strlen(body), sizeof(body) - strlen(body), ",\"k%d\":0", i);
    snprintf(body + strlen(body), sizeof(body) - strlen(body), ",\"model\":\"far\"}");
    assert_int_equal(parse(&chat, body), 0);
    assert_string_equal(request.model, "far");
    assert_int_equal(request.member_count, 201);
    assert_int_equal(request.key_count, API_REQUEST_KEYS_MAX);
}

static void test_whole_only(void **state)
{
    static const struct {
        const struct api_route *route;
        const char *body;
        bool whole;
    } rows[] = {
        {&chat, "{}", false},
        {&chat, "{\"logprobs\":true}", true},
        {&chat, "{\"logprobs\":false}", false},
        {&chat, "{\"logprobs\":null}", false},
        {&chat, "{\"n_probs\":4}", true},
        {&chat, "{\"verbose\":true}", true},
        {&chat, "{\"n_indent\":2}", true},
        {&chat, "{\"stop\":[\"x\"]}", false},
        {&completions, "{\"logprobs\":5}", false},
        {&completions, "{\"logprobs\":5,\"stop\":\"x\"}", true},
        {&completions, "{\"verbose\":true}", true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(parse(rows[i].route, rows[i].body), 0);
        if (request.whole_only != rows[i].whole)
            fail_msg("%s", rows[i].body);
    }
}

static int parse_form(const char *type, struct span body)
{
    memset(&error, 0, sizeof(error));
    return api_request_parse(&audio, span_from_str(type), body, &request, &error);
}

#define FORM_TYPE "multipart/form-data; boundary=XyZ"
#define FIELD(name, value)                                                                         \
    "--XyZ\r\nContent-Disposition: form-data; name=\"" name "\"\r\n\r\n" value "\r\n"
#define FILE_FIELD(value)                                                                          \
    "--XyZ\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\\\"b.wav\"\r\n"          \
    "Content-Type: audio/wav\r\n\r\n" value "\r\n"
#define FORM_END "--XyZ--\r\n"

static void test_form(void **state)
{
    /* NUL, 0xFF, things that look like the boundary: all content. */
    static const char body[] =
        FILE_FIELD("RIFF\0\xff\r\n--XyZw\r\n--Xy\r\n --XyZ\r\n--XyZ-\r\r\n\n--XyZ\n")
            FIELD("model", "whisper-1") FIELD("stream", "True") FORM_END;
    (void)state;
    assert_int_equal(parse_form(FORM_TYPE, (struct span){body, sizeof(body) - 1}), 0);
    assert_string_equal(request.model, "whisper-1");
    assert_true(request.stream);
    assert_true(request.multipart_model.ptr > body &&
                request.multipart_model.ptr < body + sizeof(body));
    assert_true(span_equals_str(request.multipart_model, "whisper-1"));

    static const char quoted[] = FIELD("model", "") FORM_END;
    assert_int_equal(parse_form("Multipart/Form-Data; charset=utf-8; boundary=\"XyZ\"",
                                (struct span){quoted, sizeof(quoted) - 1}),
                     0);
    assert_true(request.has_model);
    assert_string_equal(request.model, "");
    static const char none[] = FIELD("other", "model") "--XyZ--";
    assert_int_equal(parse_form(FORM_TYPE, (struct span){none, sizeof(none) - 1}), 0);
    assert_false(request.has_model);
}

/* An empty part whose delimiter's CRLF is the one that ends its headers. */
static void test_form_empty_part(void **state)
{
    static const char body[] = "--XyZ\r\nContent-Disposition: form-data; name=model\r\n\r\n--XyZ--";
    (void)state;
    assert_int_equal(parse_form(FORM_TYPE, (struct span){body, sizeof(body) - 1}), 0);
    assert_true(request.has_model);
    assert_string_equal(request.model, "");
}

static void test_form_refused(void **state)
{
    static const struct {
        const char *type, *body;
        int status;
    } rows[] = {
        {"application/json", FIELD("model", "a") FORM_END, 415},
        {"multipart/form-data", FIELD("model", "a") FORM_END, 415},
        {"multipart/form-data; boundary=", FIELD("model", "a") FORM_END, 415},
        {"multipart/form-data; boundary=XyZ; boundary=Q", FIELD("model", "a") FORM_END, 415},
        {"multipart/form-data; boundary=\"XyZ", FIELD("model", "a") FORM_END, 415},
        {"multipart/form-data; boundary=a b", FIELD("model", "a") FORM_END, 415},
        {"multipart/mixed; boundary=XyZ", FIELD("model", "a") FORM_END, 415},
        {FORM_TYPE, "", 400},
        {FORM_TYPE, "\r\n" FIELD("model", "a") FORM_END, 400},
        {FORM_TYPE, FIELD("model", "a"), 400},
        {FORM_TYPE, FIELD("model", "a") "--XyZ", 400},
        {FORM_TYPE, FIELD("model", "a") FORM_END FIELD("model", "b"), 400},
        {FORM_TYPE, FIELD("model", "a") FIELD("model", "b") FORM_END, 400},
        {FORM_TYPE, FIELD("stream", "true") FIELD("stream", "true") FORM_END, 400},
        {FORM_TYPE, FIELD("model", "a\nb") FORM_END, 400},
        {FORM_TYPE, FIELD("model", "\xff") FORM_END, 400},
        {FORM_TYPE,
         "--XyZ\r\nContent-Disposition: form-data; name=\"model\"; filename=\"x\"\r\n"
         "\r\na\r\n--XyZ--",
         400},
        {FORM_TYPE,
         "--XyZ\r\nContent-Disposition: form-data; name=\"model\"; name=\"y\"\r\n"
         "\r\na\r\n--XyZ--",
         400},
        {FORM_TYPE,
         "--XyZ\r\nContent-Disposition: form-data; name*=utf-8''model\r\n\r\na\r\n"
         "--XyZ--",
         400},
        {FORM_TYPE, "--XyZ\r\nContent-Disposition: attachment; name=\"model\"\r\n\r\na\r\n--XyZ--",
         400},
        {FORM_TYPE,
         "--XyZ\r\nContent-Disposition: form-data; name=\"model\"\r\n"
         "Content-Transfer-Encoding: base64\r\n\r\nYQ==\r\n--XyZ--",
         400},
        {FORM_TYPE, "--XyZ\r\nContent-Disposition: form-data; name=\"model\"\n\r\n\r\na\r\n--XyZ--",
         400},
        {FORM_TYPE, "--XyZ\r\n name=\"model\"\r\n\r\na\r\n--XyZ--", 400},
        {FORM_TYPE, "--XyZ\r\n\r\na\r\n--XyZ--", 400},
        {FORM_TYPE, "--XyZ \r\nContent-Disposition: form-data; name=\"model\"\r\n\r\na\r\n--XyZ--",
         400},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (parse_form(rows[i].type, span_from_str(rows[i].body)) != -EBADMSG)
            fail_msg("row %zu was taken", i);
        if (error.status != rows[i].status)
            fail_msg("row %zu: %d %s", i, error.status, error.message);
    }
}

/* Every cut of a form is refused, and never read past its end. */
static void test_form_cut(void **state)
{
    static const char body[] = FILE_FIELD("RIFF") FIELD("model", "whisper") "--XyZ--";
    (void)state;
    for (size_t n = 0; n < sizeof(body) - 1; n++) {
        char *copy = malloc(n + 1);
        memcpy(copy, body, n);
        if (parse_form(FORM_TYPE, (struct span){copy, n}) != -EBADMSG)
            fail_msg("cut at %zu was taken", n);
        free(copy);
    }
}

static void test_any_body(void **state)
{
    const struct api_route pass = {.operation = API_OPERATION_PASS};
    (void)state;
    assert_int_equal(api_request_parse(&pass, SPAN_NONE, SPAN_LIT("{not json"), &request, &error),
                     0);
    assert_false(request.has_model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_facts),
        cmocka_unit_test(test_absent_and_null),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_model_length),
        cmocka_unit_test(test_other_members_are_free),
        cmocka_unit_test(test_whole_only),
        cmocka_unit_test(test_form),
        cmocka_unit_test(test_form_empty_part),
        cmocka_unit_test(test_form_refused),
        cmocka_unit_test(test_form_cut),
        cmocka_unit_test(test_any_body),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
