/* Routes: exact paths are known, look-alikes are refused, the rest passes through. */
#include "tests/unit/unit.h"

#include "api/route.h"

static bool find(const char *method, const char *target, struct api_route *r)
{
    memset(r, 0, sizeof(*r));
    return api_route_find(span_from_str(method), span_from_str(target), r);
}

static void test_known_paths(void **state)
{
    static const struct {
        const char *method, *target;
        enum api_operation operation;
        enum api_dialect dialect;
        enum api_body_kind body;
        enum api_framing framing;
        bool stream_default;
    } rows[] = {
        {"POST", "/v1/chat/completions", API_OPERATION_CHAT, API_DIALECT_OPENAI, API_BODY_JSON,
         API_FRAMING_SSE, false},
        {"POST", "/chat/completions", API_OPERATION_CHAT, API_DIALECT_OPENAI, API_BODY_JSON,
         API_FRAMING_SSE, false},
        {"POST", "/v1/completions", API_OPERATION_COMPLETIONS, API_DIALECT_OPENAI, API_BODY_JSON,
         API_FRAMING_SSE, false},
        {"POST", "/completions", API_OPERATION_NATIVE_COMPLETION, API_DIALECT_OPENAI, API_BODY_JSON,
         API_FRAMING_SSE, false},
        {"POST", "/v1/responses", API_OPERATION_RESPONSES, API_DIALECT_OPENAI, API_BODY_JSON,
         API_FRAMING_SSE, false},
        {"POST", "/v1/embeddings", API_OPERATION_EMBEDDINGS, API_DIALECT_OPENAI, API_BODY_JSON,
         API_FRAMING_NONE, false},
        {"POST", "/embedding", API_OPERATION_NATIVE_EMBEDDING, API_DIALECT_OPENAI, API_BODY_JSON,
         API_FRAMING_NONE, false},
        {"GET", "/v1/models", API_OPERATION_MODELS, API_DIALECT_OPENAI, API_BODY_NONE,
         API_FRAMING_NONE, false},
        {"HEAD", "/v1/models", API_OPERATION_MODELS, API_DIALECT_OPENAI, API_BODY_NONE,
         API_FRAMING_NONE, false},
        {"POST", "/v1/audio/transcriptions", API_OPERATION_TRANSCRIPTION, API_DIALECT_OPENAI,
         API_BODY_MULTIPART, API_FRAMING_SSE, false},
        {"POST", "/v1/messages", API_OPERATION_MESSAGES, API_DIALECT_ANTHROPIC, API_BODY_JSON,
         API_FRAMING_SSE, false},
        {"POST", "/v1/messages/count_tokens", API_OPERATION_COUNT_TOKENS, API_DIALECT_ANTHROPIC,
         API_BODY_JSON, API_FRAMING_NONE, false},
        {"POST", "/api/chat", API_OPERATION_OLLAMA_CHAT, API_DIALECT_OLLAMA, API_BODY_JSON,
         API_FRAMING_NDJSON, true},
        {"POST", "/api/generate", API_OPERATION_OLLAMA_GENERATE, API_DIALECT_OLLAMA, API_BODY_JSON,
         API_FRAMING_NDJSON, true},
        {"POST", "/api/embed", API_OPERATION_OLLAMA_EMBED, API_DIALECT_OLLAMA, API_BODY_JSON,
         API_FRAMING_NONE, false},
        {"GET", "/api/tags", API_OPERATION_OLLAMA_TAGS, API_DIALECT_OLLAMA, API_BODY_NONE,
         API_FRAMING_NONE, false},
        {"PATCH", "/predict", API_OPERATION_PASS, API_DIALECT_PLAIN, API_BODY_ANY, API_FRAMING_NONE,
         false},
        {"POST", "/v1/chat/completions/", API_OPERATION_PASS, API_DIALECT_PLAIN, API_BODY_ANY,
         API_FRAMING_NONE, false},
        {"POST", "/V1/chat/completions", API_OPERATION_PASS, API_DIALECT_PLAIN, API_BODY_ANY,
         API_FRAMING_NONE, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct api_route r;
        assert_true(find(rows[i].method, rows[i].target, &r));
        assert_int_equal(r.operation, rows[i].operation);
        assert_int_equal(r.dialect, rows[i].dialect);
        assert_int_equal(r.body, rows[i].body);
        assert_int_equal(r.framing, rows[i].framing);
        assert_int_equal(r.stream_default, rows[i].stream_default);
        assert_true(r.method_ok);
    }
}

static void test_wrong_method(void **state)
{
    struct api_route r;
    (void)state;
    assert_true(find("GET", "/v1/chat/completions", &r));
    assert_false(r.method_ok);
    assert_string_equal(r.allow, "POST");
    assert_true(find("POST", "/v1/models", &r));
    assert_false(r.method_ok);
    assert_string_equal(r.allow, "GET, HEAD");
    assert_true(find("post", "/v1/embeddings", &r)); /* methods are case-sensitive */
    assert_false(r.method_ok);
    assert_true(find("DELETE", "/anything", &r));
    assert_true(r.method_ok);
}

static void test_query_and_model(void **state)
{
    struct api_route r;
    (void)state;
    assert_true(find("POST", "/v1/chat/completions?a=1&b=/../?", &r));
    assert_int_equal(r.operation, API_OPERATION_CHAT);
    assert_true(span_equals_str(r.query, "a=1&b=/../?"));
    assert_true(span_equals_str(r.path, "/v1/chat/completions"));
    assert_true(find("POST", "/v1/chat/completions", &r));
    assert_null(r.query.ptr);
    assert_true(find("GET", "/v1/models/org%2Fmodel:7b", &r));
    assert_int_equal(r.operation, API_OPERATION_MODEL);
    assert_true(span_equals_str(r.model, "org%2Fmodel:7b"));
    assert_true(find("GET", "/v1/models/", &r));
    assert_int_equal(r.operation, API_OPERATION_PASS);
}

static void test_ambiguous_paths_are_refused(void **state)
{
    static const char *const targets[] = {
        "",
        "*",
        "v1/models",
        "http://other/v1/models",
        "//v1/chat/completions",
        "/v1//chat/completions",
        "/v1/./chat/completions",
        "/x/../v1/chat/completions",
        "/v1/chat/completions/..",
        "/v1/chat/completions/.",
        "/v1/ch%61t/completions",
        "/v1/chat%2fcompletions",
        "/v1/chat%5ccompletions",
        "/v1/%2e%2e/chat",
        "/v1/chat\\completions",
        "/v1/chat/completions%00",
        "/v1/chat/completions%0d%0aX: y",
        "/v1/chat completions",
        "/v1/chat\tcompletions",
        "/v1/chat/completions#x",
        "/v1/chat/completions%",
        "/v1/chat/completions%2",
        "/v1/chat/completions%zz",
        "/v1/models/a%2e",
        "/v1/models/../chat",
    };
    (void)state;
    for (size_t i = 0; i < sizeof(targets) / sizeof(targets[0]); i++) {
        struct api_route r;
        if (find("POST", targets[i], &r))
            fail_msg("'%s' was taken", targets[i]);
        assert_non_null(r.reject);
    }
}

static void test_plain_paths_pass(void **state)
{
    static const char *const targets[] = {
        "/", "/a%20b", "/%C3%A9", "/x/.hidden", "/x/..y", "/x/...", "/a+b;c=d",
    };
    (void)state;
    for (size_t i = 0; i < sizeof(targets) / sizeof(targets[0]); i++) {
        struct api_route r;
        if (!find("GET", targets[i], &r))
            fail_msg("'%s' was refused: %s", targets[i], r.reject);
        assert_int_equal(r.operation, API_OPERATION_PASS);
    }
}

static void test_names(void **state)
{
    (void)state;
    for (int i = 0; i < API_OPERATION_COUNT; i++)
        assert_non_null(api_operation_name((enum api_operation)i));
    assert_string_equal(api_operation_name(API_OPERATION_CHAT), "chat");
    assert_true(api_operation_generates(API_OPERATION_OLLAMA_CHAT));
    assert_false(api_operation_generates(API_OPERATION_EMBEDDINGS));
    assert_false(api_operation_generates(API_OPERATION_PASS));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_paths),      cmocka_unit_test(test_wrong_method),
        cmocka_unit_test(test_query_and_model),  cmocka_unit_test(test_ambiguous_paths_are_refused),
        cmocka_unit_test(test_plain_paths_pass), cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
