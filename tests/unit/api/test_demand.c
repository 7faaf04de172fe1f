/* Demand: sizes that are none, what counts as text, what does not. */
#include "tests/unit/unit.h"

#include "api/demand.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static const struct api_route openai = {
    .operation = API_OPERATION_CHAT, .dialect = API_DIALECT_OPENAI, .body = API_BODY_JSON};
static const struct api_route completions = {
    .operation = API_OPERATION_COMPLETIONS, .dialect = API_DIALECT_OPENAI, .body = API_BODY_JSON};
static const struct api_route native = {.operation = API_OPERATION_NATIVE_COMPLETION,
                                        .body = API_BODY_JSON};
static const struct api_route anthropic = {
    .operation = API_OPERATION_MESSAGES, .dialect = API_DIALECT_ANTHROPIC, .body = API_BODY_JSON};
static const struct api_route ollama = {
    .operation = API_OPERATION_OLLAMA_CHAT, .dialect = API_DIALECT_OLLAMA, .body = API_BODY_JSON};
static const struct api_route generate = {.operation = API_OPERATION_OLLAMA_GENERATE,
                                          .dialect = API_DIALECT_OLLAMA,
                                          .body = API_BODY_JSON};
static const struct api_route responses = {
    .operation = API_OPERATION_RESPONSES, .dialect = API_DIALECT_OPENAI, .body = API_BODY_JSON};
static const struct api_route embeddings = {
    .operation = API_OPERATION_EMBEDDINGS, .dialect = API_DIALECT_OPENAI, .body = API_BODY_JSON};
static const struct api_route rerank = {.operation = API_OPERATION_RERANK, .body = API_BODY_JSON};
static const struct api_route audio = {.operation = API_OPERATION_TRANSCRIPTION,
                                       .body = API_BODY_MULTIPART};
static const struct api_route pass = {.operation = API_OPERATION_PASS, .body = API_BODY_JSON};

static int demand_of(const struct api_route *route, struct span body, struct api_demand *ret,
                     struct api_error *error)
{
    struct api_request request;
    if (api_request_parse(route, SPAN_LIT("multipart/form-data; boundary=B"), body, &request,
                          error) < 0)
        fail_msg("%.*s: %s", SPAN_FMT(body), error->message);
    return api_demand_read(route, &request, ret, error);
}

static struct api_demand read_ok(const struct api_route *route, const char *body)
{
    struct api_demand d;
    struct api_error error;
    if (demand_of(route, span_from_str(body), &d, &error) < 0)
        fail_msg("%s: %s", body, error.message);
    return d;
}

static void sizes_that_are_none(void **state)
{
    (void)state;
    static const struct {
        const struct api_route *route;
        const char *before, *after, *param;
        bool open1, open2; /* -1 and -2 mean something */
    } places[] = {
        {&openai, "{\"max_tokens\":", "}", "max_tokens", true, false},
        {&openai, "{\"max_completion_tokens\":", "}", "max_completion_tokens", true, false},
        {&completions, "{\"max_tokens\":", "}", "max_tokens", true, false},
        {&native, "{\"n_predict\":", "}", "n_predict", true, true},
        {&anthropic, "{\"max_tokens\":", "}", "max_tokens", false, false},
        {&ollama, "{\"options\":{\"num_ctx\":", "}}", "options.num_ctx", false, false},
        {&ollama, "{\"options\":{\"num_predict\":", "}}", "options.num_predict", true, true},
    };
    static const char *const bad[] = {"2147483649",
                                      "9223372036854775808",
                                      "-3",
                                      "1e9",
                                      "\"131072\"",
                                      "true",
                                      "false",
                                      "[]",
                                      "0.5",
                                      "99999999999999999999999999",
                                      "18446744073709551617",
                                      "-9223372036854775808"};
    static const char *const good[] = {"0", "1", "2147483647", "2147483648", "8192.0", "null"};
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        struct api_demand d = {.messages = 77};
        struct api_error error;
        char body[256];
        for (size_t k = 0; k < sizeof(bad) / sizeof(bad[0]); k++) {
            (void)snprintf(body, sizeof(body), "%s%s%s", places[i].before, bad[k], places[i].after);
            assert_int_equal(demand_of(places[i].route, span_from_str(body), &d, &error), -EBADMSG);
            assert_int_equal(d.messages, 77);
            assert_int_equal(error.status, 400);
            assert_string_equal(error.param, places[i].param);
            assert_non_null(strstr(error.message, places[i].param));
            assert_non_null(strstr(error.message, bad[k]));
            assert_non_null(strstr(error.message, "2147483648"));
        }
        for (size_t k = 0; k < sizeof(good) / sizeof(good[0]); k++) {
            (void)snprintf(body, sizeof(body), "%s%s%s", places[i].before, good[k],
                           places[i].after);
            d = read_ok(places[i].route, body);
            if (strstr(places[i].before, "num_ctx"))
                assert_int_equal(d.context_tokens, strtoull(good[k], NULL, 10));
            else
                assert_int_equal(d.output_tokens, strtoull(good[k], NULL, 10));
            assert_int_equal(d.output_given || d.context_given, strcmp(good[k], "null") != 0);
        }
        for (int minus = 1; minus <= 2; minus++) {
            (void)snprintf(body, sizeof(body), "%s%s%s", places[i].before, minus == 1 ? "-1" : "-2",
                           places[i].after);
            bool ok = minus == 1 ? places[i].open1 : places[i].open2;
            assert_int_equal(demand_of(places[i].route, span_from_str(body), &d, &error),
                             ok ? 0 : -EBADMSG);
            if (ok)
                assert_false(d.output_given);
        }
    }
}

static void the_largest_bound_counts(void **state)
{
    (void)state;
    assert_int_equal(
        read_ok(&openai, "{\"max_tokens\":5,\"max_completion_tokens\":9,\"n_predict\":7}")
            .output_tokens,
        9);
    assert_false(read_ok(&openai, "{\"max_tokens\":5,\"n_predict\":-1}").output_given);
    /* An option with an escape in its name is the same option; a long value is shortened. */
    struct api_demand d;
    struct api_error error;
    assert_int_equal(
        demand_of(&ollama, SPAN_LIT("{\"options\":{\"num_\\u0063tx\":true}}"), &d, &error),
        -EBADMSG);
    assert_int_equal(
        demand_of(&ollama, SPAN_LIT("{\"options\":{\"num_ctx\":1,\"num_ctx\":2}}"), &d, &error),
        -EBADMSG);
    assert_int_equal(demand_of(&ollama, SPAN_LIT("{\"options\":7}"), &d, &error), -EBADMSG);
    assert_int_equal(
        demand_of(&openai,
                  SPAN_LIT("{\"max_tokens\":\"0123456789012345678901234567890123456789x\"}"), &d,
                  &error),
        -EBADMSG);
    assert_non_null(strstr(error.message, "…"));
    /* The names of other dialects, and unknown paths, are not ours to judge. */
    assert_false(read_ok(&openai, "{\"options\":{\"num_ctx\":true}}").context_given);
    assert_false(read_ok(&pass, "{\"max_tokens\":true}").output_given);
}

static void keep_alive(void **state)
{
    (void)state;
    static const struct {
        const char *body;
        uint64_t ms;
        bool forever;
    } good[] = {
        {"{\"keep_alive\":-1}", 0, true},
        {"{\"keep_alive\":\"-1\"}", 0, true},
        {"{\"keep_alive\":\"-1m\"}", 0, true},
        {"{\"keep_alive\":0}", 0, false},
        {"{\"keep_alive\":300}", 300000, false},
        {"{\"keep_alive\":\"24h\"}", 86400000, false},
        {"{\"keep_alive\":\"1h30m\"}", 5400000, false},
        {"{\"keep_alive\":\"1.5s\"}", 1500, false},
        {"{\"keep_alive\":\"90ms\"}", 90, false},
        {"{\"keep_alive\":99999999999999}", 0, true},
        {"{\"keep_alive\":1e9}", 1000000000000, false},
        {"{\"keep_alive\":1.5E+2}", 150000, false},
        {"{\"keep_alive\":2e-1}", 200, false},
        {"{\"keep_alive\":1e10}", 0, true},
        {"{\"keep_alive\":1e999999999999}", 0, true},
        {"{\"keep_alive\":-1e0}", 0, true},
        {"{\"keep_alive\":0e9999999}", 0, false},
        {"{\"keep_alive\":1e-99999999}", 0, false},
    };
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        struct api_demand d = read_ok(&ollama, good[i].body);
        assert_true(d.keep_alive_given);
        assert_int_equal(d.keep_alive_ms, good[i].ms);
        assert_int_equal(d.keep_alive_forever, good[i].forever);
    }
    assert_false(read_ok(&ollama, "{\"keep_alive\":null}").keep_alive_given);
    static const char *const bad[] = {"true", "\"\"",  "\"soon\"", "\"5 m\"",
                                      "[]",   "\"-\"", "\"1e9\"",  "\"1e9s\""};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct api_demand d;
        struct api_error error;
        char body[64];
        (void)snprintf(body, sizeof(body), "{\"keep_alive\":%s}", bad[i]);
        assert_int_equal(demand_of(&ollama, span_from_str(body), &d, &error), -EBADMSG);
        assert_string_equal(error.param, "keep_alive");
    }
}

/* A payload costs nothing of text; the words around it do. */
static void payloads(void **state)
{
    (void)state;
    static const struct {
        const struct api_route *route;
        const char *before, *after;
        unsigned images, sounds;
        bool is_text;
    } cases[] = {
        {&openai,
         "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":{"
         "\"url\":\"data:",
         "\"}}]}]}", 1, 0, false},
        {&openai, "{\"messages\":[{\"content\":[{\"input_audio\":{\"data\":\"",
         "\",\"format\":\"wav\"}}]}]}", 0, 1, false},
        {&anthropic, "{\"messages\":[{\"content\":[{\"type\":\"image\",\"source\":{\"data\":\"",
         "\",\"type\":\"base64\",\"media_type\":\"image/png\"}}]}]}", 1, 0, false},
        {&anthropic,
         "{\"messages\":[{\"content\":[{\"type\":\"tool_result\",\"content\":[{\"type\":\"image\","
         "\"source\":{\"type\":\"base64\",\"media_type\":\"image/png\",\"data\":\"",
         "\"}}]}]}]}", 1, 0, false},
        /* The type says what it is: not the label, not a second type, not one in escapes. */
        {&anthropic,
         "{\"messages\":[{\"content\":[{\"type\":\"document\",\"source\":{\"type\":\"text\","
         "\"media_type\":\"image/png\",\"data\":\"",
         "\"}}]}]}", 0, 0, true},
        {&anthropic,
         "{\"messages\":[{\"content\":[{\"type\":\"image\",\"source\":{\"media_type\":\"image/"
         "png\","
         "\"data\":\"",
         "\"}}]}]}", 0, 0, true},
        {&anthropic,
         "{\"messages\":[{\"content\":[{\"source\":{\"type\":\"text\",\"type\":\"base64\",\"data\":"
         "\"",
         "\"}}]}]}", 0, 0, true},
        {&anthropic, "{\"messages\":[{\"content\":[{\"source\":{\"type\":\"base64\",\"data\":\"",
         "\",\"t\\u0079pe\":\"text\"}}]}]}", 0, 0, true},
        {&anthropic,
         "{\"messages\":[{\"content\":[{\"type\":\"document\",\"source\":{\"type\":\"base64\","
         "\"media_type\":\"application/pdf\",\"data\":\"",
         "\"}}]}]}", 1, 0, false},
        {&anthropic,
         "{\"messages\":[{\"content\":[{\"source\":{\"type\":\"base64\",\"type\":7,\"data\":\"",
         "\"}}]}]}", 0, 0, true},
        /* The next part is judged anew. */
        {&anthropic,
         "{\"messages\":[{\"content\":[{\"source\":{\"type\":\"base64\",\"data\":\"x\"}},{"
         "\"source\":{"
         "\"type\":7,\"data\":\"",
         "\"}}]}]}", 1, 0, true},
        {&anthropic,
         "{\"messages\":[{\"content\":[{\"source\":{\"type\":\"base64\",\"data\":\"x\"}},{"
         "\"source\":{"
         "\"data\":\"",
         "\"}}]}]}", 1, 0, true},
        {&anthropic, "{\"messages\":[{\"content\":[{\"source\":{\"type\":\"url\",\"url\":\"data:",
         "\"}}]}]}", 1, 0, false},
        {&openai,
         "{\"messages\":[{\"content\":[{\"type\":\"file\",\"file\":{\"filename\":\"a\",\"file_"
         "data\":\"",
         "\"}}]}]}", 1, 0, false},
        {&responses,
         "{\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_image\",\"image_url\":"
         "\"data:",
         "\"}]}]}", 1, 0, false},
        {&responses,
         "{\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_file\",\"file_data\":\"",
         "\"}]}]}", 1, 0, false},
        {&responses,
         "{\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"",
         "\"}]}]}", 0, 0, true},
        {&responses, "{\"input\":[{\"type\":\"function_call_output\",\"output\":\"", "\"}]}", 0, 0,
         true},
        {&responses,
         "{\"input\":[{\"type\":\"function_call_output\",\"output\":[{\"type\":\"input_image\","
         "\"image_url\":\"",
         "\"}]}]}", 1, 0, false},
        {&responses, "{\"input\":\"", "\"}", 0, 0, true},
        {&responses, "{\"instructions\":\"", "\"}", 0, 0, true},
        {&native, "{\"input_extra\":[{\"filename\":\"a.c\",\"text\":\"", "\"}]}", 0, 0, true},
        {&native, "{\"prompt\":{\"prompt_string\":\"", "\",\"multimodal_data\":[\"QUJD\"]}}", 1, 0,
         true},
        {&native, "{\"prompt\":{\"prompt_string\":\"a\",\"multimodal_data\":[\"", "\"]}}", 1, 0,
         false},
        {&generate, "{\"suffix\":\"", "\"}", 0, 0, true},
        {&generate, "{\"system\":\"", "\"}", 0, 0, true},
        {&generate, "{\"format\":{\"type\":\"", "\"}}", 0, 0, true},
        {&openai, "{\"chat_template_kwargs\":{\"x\":\"", "\"}}", 0, 0, true},
        {&openai, "{\"messages\":[{\"tool_calls\":[{\"function\":{\"arguments\":\"", "\"}}]}]}", 0,
         0, true},
        {&openai, "{\"messages\":[{\"content\":[{\"image_url\":{\"detail\":\"", "\"}}]}]}", 0, 0,
         true},
        {&openai, "{\"messages\":[{\"tool_calls\":[{\"function\":{\"arguments\":{\"image_url\":\"",
         "\"}}}]}]}", 0, 0, true},
        {&openai, "{\"messages\":[{\"images\":[\"", "\"]}]}", 0, 0, true},
        {&anthropic,
         "{\"messages\":[{\"content\":[{\"type\":\"document\",\"source\":{\"type\":\"text\","
         "\"media_type\":\"text/plain\",\"data\":\"",
         "\"}}]}]}", 0, 0, true},
        {&anthropic,
         "{\"messages\":[{\"content\":[{\"type\":\"tool_use\",\"input\":{\"a\":{\"image_url\":\"",
         "\"}}}]}]}", 0, 0, true},
        {&ollama, "{\"messages\":[{\"role\":\"user\",\"content\":\"\",\"images\":[\"", "\"]}]}", 1,
         0, false},
        {&generate, "{\"prompt\":\"hi\",\"images\":[\"", "\"]}", 1, 0, false},
        {&openai, "{\"messages\":[{\"role\":\"user\",\"image_url\":\"", "\"}]}", 0, 0, true},
        {&openai, "{\"messages\":[{\"role\":\"user\",\"content\":\"", "\"}]}", 0, 0, true},
        {&anthropic, "{\"system\":\"", "\"}", 0, 0, true},
        {&anthropic, "{\"system\":[{\"type\":\"text\",\"text\":\"", "\"}]}", 0, 0, true},
        {&openai, "{\"tools\":[{\"function\":{\"description\":\"", "\"}}]}", 0, 0, true},
        {&openai, "{\"response_format\":{\"json_schema\":{\"schema\":{\"title\":\"", "\"}}}}", 0, 0,
         true},
        {&generate, "{\"template\":\"", "\"}", 0, 0, true},
        {&native, "{\"prompt\":\"", "\"}", 0, 0, true},
        {&completions, "{\"suffix\":\"", "\"}", 0, 0, true},
    };
    enum { PAYLOAD = 20000 };
    char *body = malloc(PAYLOAD + 1024);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        size_t n = strlen(cases[i].before);
        memcpy(body, cases[i].before, n);
        memset(body + n, 'A', PAYLOAD);
        memcpy(body + n + PAYLOAD, cases[i].after, strlen(cases[i].after) + 1);
        struct api_demand d = read_ok(cases[i].route, body);
        if (d.images != cases[i].images || d.audio_parts != cases[i].sounds ||
            (d.prompt_bytes >= PAYLOAD) != cases[i].is_text || d.prompt_bytes > PAYLOAD + 500)
            fail_msg("case %zu: %u pictures, %u sounds, %llu bytes", i, d.images, d.audio_parts,
                     (unsigned long long)d.prompt_bytes);
    }
    free(body);
}

static void texts_and_ids(void **state)
{
    (void)state;
    assert_int_equal(read_ok(&completions, "{\"prompt\":\"abcd\"}").prompt_bytes, 4);
    assert_int_equal(read_ok(&completions, "{\"prompt\":\"a\\u4e2d\\ud83d\\ude00\"}").prompt_bytes,
                     8);
    assert_int_equal(read_ok(&completions, "{\"prompt\":\"\\\\\"}").prompt_bytes, 2);
    assert_int_equal(read_ok(&completions, "{\"prompt\":[\"ab\",\"c\"]}").prompt_bytes, 3);
    assert_int_equal(read_ok(&completions, "{\"prompt\":[10,200,3000]}").prompt_bytes, 3);
    assert_int_equal(read_ok(&completions, "{\"prompt\":[[1,2],[3]]}").prompt_bytes, 3);
    assert_int_equal(read_ok(&generate, "{\"context\":[1,2,3],\"prompt\":\"ab\"}").prompt_bytes, 5);
    static const struct {
        const char *body;
        unsigned inputs, longest;
    } inputs[] = {
        {"{\"input\":\"abc\"}", 1, 3}, {"{\"input\":[\"a\",\"bcde\",\"\"]}", 3, 4},
        {"{\"input\":[1,2,3]}", 1, 3}, {"{\"input\":[[1],[2,3]]}", 2, 2},
        {"{\"input\":[]}", 0, 0},      {"{\"input\":null}", 0, 0},
    };
    for (size_t i = 0; i < sizeof(inputs) / sizeof(inputs[0]); i++) {
        struct api_demand d = read_ok(&embeddings, inputs[i].body);
        assert_int_equal(d.inputs, inputs[i].inputs);
        assert_int_equal(d.longest_input_bytes, inputs[i].longest);
    }
    struct api_demand d = read_ok(&rerank, "{\"query\":\"qq\",\"documents\":[\"abc\",\"d\"]}");
    assert_int_equal(d.inputs, 2);
    assert_int_equal(d.longest_input_bytes, 5);
    assert_int_equal(d.prompt_bytes, 8);
    assert_int_equal(read_ok(&openai, "{\"messages\":[ {} , {} , {\"a\":[1,2]} ]}").messages, 3);
    assert_int_equal(read_ok(&openai, "{\"messages\":[]}").messages, 0);
}

/* What an encoder makes of tools is never longer than what was counted: indentation, escapes. */
static void tools_as_json(void **state)
{
    (void)state;
    struct api_demand d = read_ok(&openai, "{\"tools\":[{\"a\":1,\"b\":[\"<\\u00e9é\",1e20]}]}");
    static const char written[] = "[\n    {\n        \"a\": 1,\n        \"b\": [\n            "
                                  "\"\\u003c\\u00e9\\u00e9\",\n            "
                                  "100000000000000000000.0\n        ]\n    }\n]";
    assert_true(d.prompt_bytes >= sizeof(written) - 1);
    d = read_ok(&openai, "{\"messages\":[{\"tool_calls\":[{\"function\":{\"arguments\":"
                         "\"{\\\"a\\\":[1,1,1,1,1,1,1,1,1,1,1,1,1,1]}\"}}]}]}");
    assert_true(d.prompt_bytes >=
                sizeof("{\"a\": [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]}") - 1);
}

/* Bounds by hand: what is rendered, byte by byte, and what the marks around it cost. */
static void bounds_by_hand(void **state)
{
    (void)state;
    static const struct {
        const struct api_route *route;
        const char *body;
        uint64_t bytes;
        unsigned messages;
    } cases[] = {
        /* [ { role : user , content : hi } ] */
        {&openai, "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}", 7 + 4 + 4 + 7 + 2, 1},
        {&openai, "{ \"messages\" : [ { \"role\" : \"user\" } ] }", 5 + 4 + 4, 1},
        {&responses, "{\"input\":\"hello\"}", 5, 1},
        {&responses, "{\"input\":\"a\",\"instructions\":\"bc\"}", 3, 1},
        {&responses, "{\"input\":[{\"output\":\"ab\"},{\"text\":\"c\"}]}",
         2 + 1 + 2 + 1 + 2 + 1 + 6 + 2 + 4 + 1, 2},
        {&anthropic, "{\"system\":[{\"text\":\"ab\"}]}", 2 + 2 + 1 + 4 + 2, 0},
        {&native,
         "{\"input_extra\":[{\"text\":\"ab\"}],\"input_prefix\":\"c\",\"input_suffix\":\"de\"}",
         2 + 2 + 1 + 4 + 2 + 1 + 2, 0},
        {&native, "{\"prompt\":[1,\"ab\",22]}", 1 + 2 + 1, 0},
        {&native, "{\"prompt\":{\"prompt_string\":\"abc\"}}", 3, 0},
        {&generate, "{\"prompt\":\"a\",\"system\":\"bc\",\"suffix\":\"def\",\"context\":[7,8]}",
         1 + 2 + 3 + 2, 0},
        /* Elements are what stands directly in the list. */
        {&openai, "{\"messages\":[{\"a\":[1,2],\"b\":[3]},{}]}", 15 + 2 + 3, 2},
        /* Two texts in sources: each counts once. */
        {&anthropic,
         "{\"messages\":[{\"content\":[{\"source\":{\"data\":\"ab\"}},{\"source\":{\"data\":\"c\"}}"
         "]}]}",
         20 + 7 + 2 * (6 + 4) + 3, 1},
        {&openai, "{\"tools\":\"a,b:c\"}", 5 + 2 + 2, 0},
        /* A template of two bytes, around each of two messages and once more: [ {} , {} ] */
        {&ollama, "{\"messages\":[{},{}],\"template\":\"xy\"}", 7 + 2 * 3, 2},
        {&openai, "{\"chat_template\":\"xy\",\"messages\":[{},{}]}", 7 + 2 * 3, 2},
        /* Escapes: \n is two bytes or one, \u0041 one, é two, a pair four. */
        {&completions, "{\"prompt\":\"\\n\\u0041\\u00e9\\ud83d\\ude00\"}", 2 + 1 + 2 + 4, 0},
        {&completions, "{\"prompt\":\"\\\\u0041\"}", 7, 0},
        /* As JSON: { : } at depth one is 2 + 4 each, the colon 2; 25 for a number. */
        {&openai, "{\"response_format\":{\"a\":1}}", 6 + (1 + 2) + 2 + 25 + 6, 0},
        {&generate, "{\"format\":\"json\"}", 4 + 2, 0},
        {&openai, "{\"chat_template_kwargs\":{\"a\":\"<\"}}", 6 + (1 + 2) + 2 + (1 + 5 + 2) + 6, 0},
        {&openai, "{\"tools\":\"\\u00e9\\b1.5\"}", 6 + (2 + 4) + (3 + 25) + 2, 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct api_demand d = read_ok(cases[i].route, cases[i].body);
        if (d.prompt_bytes != cases[i].bytes || d.messages != cases[i].messages)
            fail_msg("%s: %llu bytes, not %llu; %u messages, not %u", cases[i].body,
                     (unsigned long long)d.prompt_bytes, (unsigned long long)cases[i].bytes,
                     d.messages, cases[i].messages);
    }
}

/* What is counted as JSON, in whatever spelling the key comes; behind it, texts are texts again. */
static void calls_as_json(void **state)
{
    (void)state;
    static const char *const as_json[] = {"tool_calls", "Tool_Calls",       "arguments",
                                          "input",      "tool_\\u0063alls", "function_call"};
    for (size_t i = 0; i < sizeof(as_json) / sizeof(as_json[0]); i++) {
        char body[256];
        (void)snprintf(body, sizeof(body), "{\"messages\":[{\"%s\":\"<<<<\",\"x\":\"<<<<\"}]}",
                       as_json[i]);
        uint64_t one = read_ok(&openai, body).prompt_bytes;
        (void)snprintf(body, sizeof(body), "{\"messages\":[{\"%s\":\"<<<<\",\"x\":\"<<<<\"}]}",
                       "o_t_h_e_r_");
        uint64_t none = read_ok(&openai, body).prompt_bytes;
        (void)snprintf(body, sizeof(body), "{\"messages\":[{\"%s\":\"<<<<\",\"%s\":\"<<<<\"}]}",
                       as_json[i], as_json[i]);
        uint64_t both = read_ok(&openai, body).prompt_bytes;
        assert_true(one >= none + 4 * 5);
        assert_true(both >= one + 4 * 5);
        assert_true(one < none + 2 * 4 * 5 + 20);
    }
}

static void bound_saturates(void **state)
{
    (void)state;
    struct api_demand d = {.prompt_bytes = 100, .messages = 2};
    assert_int_equal(api_demand_prompt_tokens_upper(&d, 10), 100 + 30 + API_DEMAND_EDGE_TOKENS);
    assert_true(api_demand_prompt_tokens_upper(&d, UINT64_MAX / 2) == UINT64_MAX);
    d.prompt_bytes = UINT64_MAX - 1;
    assert_true(api_demand_prompt_tokens_upper(&d, 0) == UINT64_MAX);
}

static void sound_files(void **state)
{
    (void)state;
    static const char head[] = "--B\r\nContent-Disposition: form-data; name=\"file\"; "
                               "filename=\"a.wav\"\r\n\r\n";
    static const char wav[] =
        "RIFF\0\0\0\0WAVEfmt \x10\0\0\0\1\0\1\0\x80\x3e\0\0\0\x7d\0\0\2\0\x10\0"
        "data\xff\xff\xff\xff";
    static const char tail[] = "\r\n--B--\r\n";
    enum { SECOND = 32000 };
    size_t size = sizeof(head) + sizeof(wav) + sizeof(tail) + SECOND + 2;
    char *body = calloc(1, size);
    size_t n = sizeof(head) - 1;
    memcpy(body, head, n);
    memcpy(body + n, wav, sizeof(wav) - 1);
    n += sizeof(wav) - 1 + SECOND;
    memcpy(body + n, tail, sizeof(tail) - 1);
    n += sizeof(tail) - 1;
    struct api_demand d;
    struct api_error error;
    assert_int_equal(demand_of(&audio, (struct span){body, n}, &d, &error), 0);
    assert_int_equal(d.audio_bytes, sizeof(wav) - 1 + SECOND);
    assert_int_equal(d.audio_ms, 1000);
    /* A part of a millisecond is one. */
    memcpy(body + n - (sizeof(tail) - 1), "xx", 2);
    memcpy(body + n - (sizeof(tail) - 1) + 2, tail, sizeof(tail) - 1);
    assert_int_equal(demand_of(&audio, (struct span){body, n + 2}, &d, &error), 0);
    assert_int_equal(d.audio_ms, 1001);
    memcpy(body + sizeof(head) - 1, "ID3", 3);
    assert_int_equal(demand_of(&audio, (struct span){body, n}, &d, &error), 0);
    assert_int_equal(d.audio_ms, d.audio_bytes);
    memcpy(body + sizeof(head) - 1, "fLaC", 4);
    assert_int_equal(demand_of(&audio, (struct span){body, n}, &d, &error), 0);
    assert_int_equal(d.audio_ms, 0);
    free(body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_that_are_none), cmocka_unit_test(the_largest_bound_counts),
        cmocka_unit_test(keep_alive),          cmocka_unit_test(payloads),
        cmocka_unit_test(texts_and_ids),       cmocka_unit_test(tools_as_json),
        cmocka_unit_test(bounds_by_hand),      cmocka_unit_test(calls_as_json),
        cmocka_unit_test(bound_saturates),     cmocka_unit_test(sound_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
