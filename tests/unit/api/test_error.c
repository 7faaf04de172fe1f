/* Errors: wording, shapes per dialect, and that our own detector reads what we write. */
#include "tests/unit/unit.h"

#include "api/error.h"
#include "api/event.h"

#include <errno.h>
#include <stdlib.h>
#include <yyjson.h>

static struct api_error error;

static yyjson_doc *body_of(enum api_dialect dialect)
{
    struct buf out;
    buf_init(&out, 64 * 1024);
    assert_int_equal(api_error_write_body(&error, dialect, &out), 0);
    yyjson_doc *doc = yyjson_read(out.data, out.len, 0);
    if (doc == NULL)
        fail_msg("not JSON: %.*s", SPAN_FMT(buf_span(&out)));
    buf_free(&out);
    return doc;
}

static void make_cut(bool tool_call)
{
    api_error_cut(&error, "gpu", "the connection was cut", 12, 3456, tool_call, "req_1");
}

static void test_openai_shape(void **state)
{
    (void)state;
    make_cut(false);
    yyjson_doc *doc = body_of(API_DIALECT_OPENAI);
    yyjson_val *e = yyjson_obj_get(yyjson_doc_get_root(doc), "error");
    assert_true(yyjson_is_str(yyjson_obj_get(e, "message")));
    assert_string_equal(yyjson_get_str(yyjson_obj_get(e, "type")), "upstream_error");
    assert_string_equal(yyjson_get_str(yyjson_obj_get(e, "code")), "upstream_cut");
    assert_true(yyjson_is_null(yyjson_obj_get(e, "param")));
    assert_true(yyjson_is_true(yyjson_obj_get(e, "retryable")));
    assert_int_equal(yyjson_get_uint(yyjson_obj_get(e, "events_sent")), 12);
    assert_int_equal(yyjson_get_uint(yyjson_obj_get(e, "bytes_sent")), 3456);
    assert_string_equal(yyjson_get_str(yyjson_obj_get(e, "resume")), "req_1");
    assert_null(yyjson_obj_get(e, "retry_after_ms"));
    assert_null(yyjson_obj_get(e, "would_fit"));
    assert_null(yyjson_obj_get(e, "incomplete_tool_call"));
    yyjson_doc_free(doc);
    make_cut(true);
    doc = body_of(API_DIALECT_OPENAI);
    e = yyjson_obj_get(yyjson_doc_get_root(doc), "error");
    assert_true(yyjson_is_true(yyjson_obj_get(e, "incomplete_tool_call")));
    yyjson_doc_free(doc);
}

static void test_other_shapes(void **state)
{
    (void)state;
    const struct api_error_tier tiers[] = {{"gpu", "the GPU was lost"}, {"cpu", "queue full"}};
    api_error_no_capacity(&error, "chat", tiers, 2, 1500);
    yyjson_doc *doc = body_of(API_DIALECT_ANTHROPIC);
    yyjson_val *root = yyjson_doc_get_root(doc);
    assert_string_equal(yyjson_get_str(yyjson_obj_get(root, "type")), "error");
    yyjson_val *e = yyjson_obj_get(root, "error");
    assert_string_equal(yyjson_get_str(yyjson_obj_get(e, "type")), "overloaded_error");
    assert_int_equal(yyjson_get_uint(yyjson_obj_get(e, "retry_after_ms")), 1500);
    yyjson_doc_free(doc);
    doc = body_of(API_DIALECT_OLLAMA);
    root = yyjson_doc_get_root(doc);
    assert_string_equal(yyjson_get_str(yyjson_obj_get(root, "error")),
                        "No tier of 'chat' can serve now. gpu: the GPU was lost; cpu: queue full.");
    assert_true(yyjson_is_true(yyjson_obj_get(root, "retryable")));
    yyjson_doc_free(doc);
}

static void test_wording(void **state)
{
    static const char *const names[] = {"chat", "embed"};
    (void)state;
    api_error_bad_json(&error, 3, 7, 41, "expected a value");
    assert_int_equal(error.status, 400);
    assert_non_null(strstr(error.message, "expected a value at line 3, column 7 (byte 41)"));
    api_error_unknown_model(&error, SPAN_LIT("gpt-9"), names, 2);
    assert_int_equal(error.status, 404);
    assert_string_equal(error.message, "There is no model 'gpt-9' here. Models: chat, embed.");
    api_error_unknown_model(&error, SPAN_NONE, names, 1);
    assert_string_equal(error.message, "The request names no model. Models: chat.");
    api_error_unknown_model(&error, SPAN_LIT("x"), NULL, 0);
    assert_non_null(strstr(error.message, "No service is configured"));
    api_error_bad_method(&error, SPAN_LIT("GET"), "POST");
    assert_int_equal(error.status, 405);
    assert_string_equal(error.message, "Method GET is not allowed here; allowed: POST.");
    api_error_too_large(&error, 1048576);
    assert_int_equal(error.status, 413);
    assert_non_null(strstr(error.message, "1048576 bytes"));
    assert_string_equal(error.would_fit, "a body of at most 1048576 bytes");
    api_error_no_progress(&error, "cpu", 30000);
    assert_int_equal(error.status, 504);
    assert_true(error.retryable);
    api_error_cancelled(&error, "the owner");
    assert_false(error.retryable);
    make_cut(true);
    assert_true(error.incomplete_tool_call);
    assert_non_null(strstr(error.message, "incomplete tool call, do not execute"));
    make_cut(false);
    assert_null(strstr(error.message, "tool call"));
    const struct api_error_tier tiers[] = {{"gpu", "HTTP 500"}};
    api_error_upstream_failed(&error, "chat", tiers, 1);
    assert_int_equal(error.status, 502);
    assert_non_null(strstr(error.message, "gpu: HTTP 500."));
}

/* Whatever a client sends, the answer is JSON and fits its field. */
static void test_hostile_texts(void **state)
{
    char name[4000];
    const char *names[300];
    (void)state;
    memset(name, 0xc3, sizeof(name)); /* not UTF-8 */
    memcpy(name, "\"\\\n\x01</script>", 14);
    api_error_unknown_model(&error, (struct span){name, sizeof(name)}, NULL, 0);
    yyjson_doc_free(body_of(API_DIALECT_OPENAI));
    for (size_t i = 0; i < UNIT_COUNT(names); i++)
        names[i] = "h\xc3\xa9llo";
    for (size_t cut = 0; cut < 4; cut++) { /* the cut falls on every byte of a name */
        static const char *const models[] = {"a", "ab", "abc", "abcd"};
        api_error_unknown_model(&error, span_from_str(models[cut]), names, UNIT_COUNT(names));
        assert_true(strlen(error.message) < API_ERROR_TEXT_MAX);
        assert_string_equal(error.message + strlen(error.message) - 3, "…");
        yyjson_doc *doc = body_of(API_DIALECT_OPENAI);
        yyjson_val *m =
            yyjson_obj_get(yyjson_obj_get(yyjson_doc_get_root(doc), "error"), "message");
        assert_string_equal(yyjson_get_str(m), error.message); /* nothing had to be replaced */
        yyjson_doc_free(doc);
    }
}

/* Every dialect's event ends a stream of its own, is read as an error, and is nothing else. */
static void test_events(void **state)
{
    static const struct {
        enum api_operation operation;
        enum api_framing framing;
        const char *start;
    } rows[] = {
        {API_OPERATION_CHAT, API_FRAMING_SSE, "data: {\"error\":{"},
        {API_OPERATION_COMPLETIONS, API_FRAMING_SSE, "data: {\"error\":{"},
        {API_OPERATION_NATIVE_COMPLETION, API_FRAMING_SSE, "data: {\"error\":{"},
        {API_OPERATION_TRANSCRIPTION, API_FRAMING_SSE, "data: {\"error\":{"},
        {API_OPERATION_RESPONSES, API_FRAMING_SSE, "event: error\ndata: {\"type\":\"error\","},
        {API_OPERATION_MESSAGES, API_FRAMING_SSE,
         "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\","},
        {API_OPERATION_OLLAMA_CHAT, API_FRAMING_NDJSON, "{\"error\":\"The answer was cut"},
        {API_OPERATION_OLLAMA_GENERATE, API_FRAMING_NDJSON, "{\"error\":\"The answer was cut"},
    };
    (void)state;
    for (size_t i = 0; i < UNIT_COUNT(rows); i++) {
        struct buf out;
        struct framer f;
        struct framer_event ev;
        struct api_event_facts facts;
        bool sse = rows[i].framing == API_FRAMING_SSE;
        buf_init(&out, 64 * 1024);
        make_cut(true);
        assert_int_equal(api_error_write_event(&error, rows[i].operation, rows[i].framing, &out),
                         0);
        if (!span_starts_with(buf_span(&out), span_from_str(rows[i].start)))
            fail_msg("row %zu: %.*s", i, SPAN_FMT(buf_span(&out)));
        assert_true(span_find(buf_span(&out), SPAN_LIT("[DONE]")) < 0);
        framer_init(&f, sse ? FRAMER_KIND_SSE : FRAMER_KIND_NDJSON, 64 * 1024);
        framer_feed(&f, buf_span(&out));
        assert_true(framer_next(&f, &ev) > 0);
        api_event_inspect(rows[i].operation, &ev, &facts);
        assert_int_equal(facts.kind, API_EVENT_ERROR);
        assert_string_equal(facts.error.code, "upstream_cut_in_tool_call");
        assert_non_null(strstr(facts.error.message, "do not execute"));
        assert_int_equal(framer_next(&f, &ev), 0);
        framer_free(&f);
        buf_free(&out);
    }
}

static void test_full_buffer(void **state)
{
    struct buf out;
    (void)state;
    make_cut(false);
    for (size_t max = 0; max < 300; max += 7) {
        buf_init(&out, max);
        assert_int_equal(api_error_write_body(&error, API_DIALECT_OPENAI, &out), -EMSGSIZE);
        buf_free(&out);
        buf_init(&out, max);
        assert_int_equal(
            api_error_write_event(&error, API_OPERATION_MESSAGES, API_FRAMING_SSE, &out),
            -EMSGSIZE);
        buf_free(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_openai_shape), cmocka_unit_test(test_other_shapes),
        cmocka_unit_test(test_wording),      cmocka_unit_test(test_hostile_texts),
        cmocka_unit_test(test_events),       cmocka_unit_test(test_full_buffer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
