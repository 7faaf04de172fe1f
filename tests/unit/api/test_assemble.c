/*
 * Streams as llama-server v0.4.0 writes them, and the whole answers it gave to the same requests
 * (both recorded, shortened). The result must be equal as JSON.
 */
#include "tests/unit/unit.h"

#include "api/assemble.h"

#include <errno.h>
#include <stdlib.h>
#include <yyjson.h>

enum { CAP = 1024 * 1024 };

#define META                                                                                       \
    "\"created\":17,\"id\":\"chatcmpl-x\",\"model\":\"m.gguf\",\"system_fingerprint\":\"b1\","     \
    "\"object\":\"chat.completion.chunk\""
#define CHOICE_OF(index, finish, delta)                                                            \
    "data: {\"choices\":[{\"finish_reason\":" finish ",\"index\":" index ",\"delta\":" delta       \
    "}]," META "}\n\n"
#define CHOICE(finish, delta) CHOICE_OF("0", finish, delta)
#define ROLE                  CHOICE("null", "{\"role\":\"assistant\",\"content\":null}")
#define PROGRESS                                                                                   \
    "data: {\"choices\":[{\"finish_reason\":null,\"index\":0,\"delta\":{\"role\":\"assistant\","   \
    "\"content\":null}}]," META ",\"prompt_progress\":{\"total\":9,\"cache\":0,\"processed\":4,"   \
    "\"time_ms\":3}}\n\n"
#define USAGE_OF(n)                                                                                \
    "data: {\"choices\":[]," META ",\"usage\":{\"completion_tokens\":" n                           \
    ",\"prompt_tokens\":9},\"timings\":{\"prompt_ms\":3.250,\"n\":" n "}}\n\n"
#define USAGE USAGE_OF("2")
#define DONE  "data: [DONE]\n\n"
#define WHOLE_TAIL_OF(n)                                                                           \
    ",\"created\":17,\"model\":\"m.gguf\",\"system_fingerprint\":\"b1\","                          \
    "\"object\":\"chat.completion\",\"usage\":{\"completion_tokens\":" n                           \
    ",\"prompt_tokens\":9},\"id\":\"chatcmpl-x\",\"timings\":{\"prompt_ms\":3.250,\"n\":" n "}}"
#define WHOLE_TAIL WHOLE_TAIL_OF("2")

/* Feeds a stream; returns the last result of add, and of finish in *ret_finish. */
static int assemble(enum api_operation operation, const char *stream, size_t cap, struct buf *out,
                    int *ret_finish, bool *ret_tool_call)
{
    struct api_assembly *a;
    struct framer f;
    struct framer_event ev;
    int r = 0;
    assert_int_equal(api_assembly_create(operation, cap, &a), 0);
    framer_init(&f, FRAMER_KIND_SSE, 64 * 1024);
    framer_feed(&f, span_from_str(stream));
    while (r >= 0 && framer_next(&f, &ev) > 0)
        r = api_assembly_add(a, &ev);
    framer_save(&f);
    framer_free(&f);
    *ret_finish = api_assembly_finish(a, out);
    if (ret_tool_call != NULL)
        *ret_tool_call = api_assembly_has_tool_call(a);
    api_assembly_destroy(a);
    return r;
}

static void check(enum api_operation operation, const char *stream, const char *whole)
{
    struct buf out;
    int finish;
    buf_init(&out, CAP);
    int r = assemble(operation, stream, CAP, &out, &finish, NULL);
    if (r <= 0 || finish != 0)
        fail_msg("add %d, finish %d", r, finish);
    yyjson_doc *got = yyjson_read(out.data, out.len, 0);
    yyjson_doc *want = yyjson_read(whole, strlen(whole), 0);
    assert_non_null(want);
    yyjson_mut_doc *a = got ? yyjson_doc_mut_copy(got, NULL) : NULL;
    yyjson_mut_doc *b = yyjson_doc_mut_copy(want, NULL);
    if (a == NULL || !yyjson_mut_equals(yyjson_mut_doc_get_root(a), yyjson_mut_doc_get_root(b)))
        fail_msg("got  %.*s\nwant %s", SPAN_FMT(buf_span(&out)), whole);
    yyjson_doc_free(got);
    yyjson_doc_free(want);
    yyjson_mut_doc_free(a);
    yyjson_mut_doc_free(b);
    buf_free(&out);
}

static void test_chat(void **state)
{
    (void)state;
    check(API_OPERATION_CHAT,
          PROGRESS ":\n\n" ROLE CHOICE("null", "{\"reasoning_content\":\"Hm\"}")
              CHOICE("null", "{\"reasoning_content\":\".\"}") CHOICE("null", "{\"content\":\"Hi\"}")
                  CHOICE("null", "{\"content\":\" \\\"\\u00e9\\n\\ud83d\\ude00\"}")
                      CHOICE("\"stop\"", "{}") USAGE DONE,
          "{\"choices\":[{\"finish_reason\":\"stop\",\"index\":0,\"message\":{\"role\":"
          "\"assistant\",\"content\":\"Hi \\\"\\u00e9\\n\\ud83d\\ude00\",\"reasoning_content\":"
          "\"Hm.\"}}]" WHOLE_TAIL);
    /* Nothing was generated: content is there and empty. */
    check(API_OPERATION_CHAT, ROLE CHOICE("\"length\"", "{}") USAGE DONE,
          "{\"choices\":[{\"finish_reason\":\"length\",\"index\":0,\"message\":{\"role\":"
          "\"assistant\",\"content\":\"\"}}]" WHOLE_TAIL);
    /* The first token was half a character: no role chunk at all. */
    check(API_OPERATION_CHAT,
          CHOICE("null", "{\"content\":\"x\"}") CHOICE("\"stop\"", "{}") USAGE DONE,
          "{\"choices\":[{\"finish_reason\":\"stop\",\"index\":0,\"message\":{\"role\":"
          "\"assistant\",\"content\":\"x\"}}]" WHOLE_TAIL);
}

static void test_tool_calls(void **state)
{
    (void)state;
    check(API_OPERATION_CHAT,
          ROLE CHOICE("null", "{\"tool_calls\":[{\"index\":0,\"id\":\"G9\",\"type\":\"function\","
                              "\"function\":{\"name\":\"get_weather\",\"arguments\":\"{\"}}]}")
              CHOICE("null", "{\"tool_calls\":[{\"index\":1,\"id\":\"H1\",\"type\":\"function\","
                             "\"function\":{\"name\":\"other\"}}]}")
                  CHOICE("null", "{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":"
                                 "\"\\\"city\\\": \\\"Paris\\\"}\"}}]}")
                      CHOICE("null", "{\"tool_calls\":[{\"index\":1,\"function\":{\"arguments\":"
                                     "\"{}\"}}]}") CHOICE("\"tool_calls\"", "{}") USAGE DONE,
          "{\"choices\":[{\"finish_reason\":\"tool_calls\",\"index\":0,\"message\":{\"role\":"
          "\"assistant\",\"content\":\"\",\"tool_calls\":[{\"type\":\"function\",\"function\":"
          "{\"name\":\"get_weather\",\"arguments\":\"{\\\"city\\\": \\\"Paris\\\"}\"},\"id\":"
          "\"G9\"},{\"type\":\"function\",\"function\":{\"name\":\"other\",\"arguments\":\"{}\"},"
          "\"id\":\"H1\"}]}}]" WHOLE_TAIL);
}

/* Choices end in any order; usage and timings are those of the first. */
static void test_several_choices(void **state)
{
    (void)state;
    check(API_OPERATION_CHAT,
          CHOICE_OF("1", "null", "{\"role\":\"assistant\",\"content\":null}")
              ROLE CHOICE_OF("1", "null", "{\"content\":\"b\"}")
                  CHOICE("null", "{\"content\":\"a\"}") CHOICE_OF("1", "\"length\"", "{}")
                      USAGE_OF("7") CHOICE("null", "{\"content\":\"a\"}") CHOICE("\"stop\"", "{}")
                          USAGE_OF("3") DONE,
          "{\"choices\":[{\"finish_reason\":\"stop\",\"index\":0,\"message\":{\"role\":"
          "\"assistant\",\"content\":\"aa\"}},{\"finish_reason\":\"length\",\"index\":1,"
          "\"message\":{\"role\":\"assistant\",\"content\":\"b\"}}]" WHOLE_TAIL_OF("3"));
    /* The other way round. */
    check(API_OPERATION_CHAT,
          CHOICE("\"stop\"", "{}") USAGE_OF("3") CHOICE_OF("1", "\"length\"", "{}") USAGE_OF("7")
              DONE,
          "{\"choices\":[{\"finish_reason\":\"stop\",\"index\":0,\"message\":{\"role\":"
          "\"assistant\",\"content\":\"\"}},{\"finish_reason\":\"length\",\"index\":1,"
          "\"message\":{\"role\":\"assistant\",\"content\":\"\"}}]" WHOLE_TAIL_OF("3"));
}

/* Members that the engine may learn: text is joined, other things kept as they are. */
static void test_other_members(void **state)
{
    (void)state;
    check(API_OPERATION_CHAT,
          ROLE CHOICE("null", "{\"refusal\":\"No\",\"extra\":{\"a\":1.50}}")
              CHOICE("null", "{\"refusal\":\", no\",\"content\":null}") CHOICE("\"stop\"", "{}")
                  USAGE DONE,
          "{\"choices\":[{\"finish_reason\":\"stop\",\"index\":0,\"message\":{\"role\":"
          "\"assistant\",\"content\":\"\",\"refusal\":\"No, "
          "no\",\"extra\":{\"a\":1.50}}}]" WHOLE_TAIL);
}

#define TEXT(text, logprobs, finish, rest)                                                         \
    "data: {\"choices\":[{\"text\":\"" text "\",\"index\":0,\"logprobs\":" logprobs                \
    ",\"finish_reason\":" finish "}],\"created\":17,\"model\":\"m\",\"system_fingerprint\":"       \
    "\"b1\",\"object\":\"text_completion\",\"id\":\"c\"" rest "}\n\n"

static void test_completions(void **state)
{
    (void)state;
    check(API_OPERATION_COMPLETIONS,
          TEXT("", "null", "null", ",\"prompt_progress\":{\"total\":3}")
              TEXT(" a", "{\"content\":[{\"id\":5,\"logprob\":-0.16836148500442505}]}", "null", "")
                  TEXT("b", "{\"content\":[{\"id\":6,\"logprob\":-1}]}", "null", "")
                      TEXT("", "null", "\"length\"",
                           ",\"usage\":{\"completion_tokens\":2},"
                           "\"timings\":{\"n\":1}") DONE,
          "{\"choices\":[{\"text\":\" ab\",\"index\":0,\"logprobs\":{\"content\":[{\"id\":5,"
          "\"logprob\":-0.16836148500442505},{\"id\":6,\"logprob\":-1}]},\"finish_reason\":"
          "\"length\"}],\"created\":17,\"model\":\"m\",\"system_fingerprint\":\"b1\",\"object\":"
          "\"text_completion\",\"usage\":{\"completion_tokens\":2},\"id\":\"c\",\"timings\":"
          "{\"n\":1}}");
    check(API_OPERATION_COMPLETIONS, TEXT("a", "null", "\"stop\"", ",\"usage\":{}") DONE,
          "{\"choices\":[{\"text\":\"a\",\"index\":0,\"logprobs\":null,\"finish_reason\":"
          "\"stop\"}],\"created\":17,\"model\":\"m\",\"system_fingerprint\":\"b1\",\"object\":"
          "\"text_completion\",\"usage\":{},\"id\":\"c\"}");
}

static void test_responses(void **state)
{
    (void)state;
    check(API_OPERATION_RESPONSES,
          "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{}}\n\n"
          "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\","
          "\"delta\":\"a\"}\n\n"
          "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"id\":"
          "\"r\",\"object\":\"response\",\"created_at\":17,\"status\":\"completed\",\"model\":"
          "\"m\",\"output\":[{\"type\":\"reasoning\",\"id\":\"rs\"},{\"type\":\"message\","
          "\"status\":\"completed\"}],\"usage\":{\"input_tokens\":1}},\"timings\":{\"n\":1}}\n\n",
          "{\"completed_at\":17,\"created_at\":17,\"id\":\"r\",\"model\":\"m\",\"object\":"
          "\"response\",\"output\":[{\"type\":\"reasoning\",\"id\":\"rs\",\"status\":"
          "\"completed\"},{\"type\":\"message\",\"status\":\"completed\"}],\"status\":"
          "\"completed\",\"usage\":{\"input_tokens\":1}}");
}

/* Cut before every event but the last: never an answer. */
static void test_every_cut(void **state)
{
    static const char *const events[] = {
        ROLE,
        CHOICE("null", "{\"content\":\"a\"}"),
        CHOICE("null", "{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"{\"}}]}"),
        CHOICE("\"tool_calls\"", "{}"),
        USAGE,
        DONE,
    };
    (void)state;
    for (size_t n = 0; n <= UNIT_COUNT(events); n++) {
        char stream[8192] = "";
        for (size_t i = 0; i < n; i++)
            memcpy(stream + strlen(stream), events[i], strlen(events[i]) + 1);
        struct buf out;
        int finish;
        bool tool_call;
        buf_init(&out, CAP);
        int r = assemble(API_OPERATION_CHAT, stream, CAP, &out, &finish, &tool_call);
        assert_int_equal(r, n == UNIT_COUNT(events) ? 1 : 0);
        assert_int_equal(finish, n == UNIT_COUNT(events) ? 0 : -ENODATA);
        assert_int_equal(out.len > 0, n == UNIT_COUNT(events));
        assert_int_equal(tool_call, n >= 3);
        buf_free(&out);
    }
}

static void test_not_complete(void **state)
{
    static const char *const streams[] = {
        DONE,
        ROLE CHOICE("null", "{\"content\":\"a\"}") USAGE DONE, /* no finish reason */
        CHOICE_OF("1", "\"stop\"", "{}") USAGE DONE,           /* choice 0 never came */
        CHOICE("\"stop\"", "{}") CHOICE_OF("1", "null", "{\"content\":\"a\"}") DONE,
    };
    (void)state;
    for (size_t i = 0; i < UNIT_COUNT(streams); i++) {
        struct buf out;
        int finish;
        buf_init(&out, CAP);
        assemble(API_OPERATION_CHAT, streams[i], CAP, &out, &finish, NULL);
        assert_int_equal(finish, -ENODATA);
        assert_int_equal(out.len, 0);
        buf_free(&out);
    }
}

static void test_refused(void **state)
{
    static const struct {
        enum api_operation operation;
        const char *stream;
        int error;
    } rows[] = {
        {API_OPERATION_CHAT, "data: {\"error\":{\"code\":500,\"message\":\"Compute error.\"}}\n\n",
         -EREMOTEIO},
        {API_OPERATION_CHAT, ROLE "error: {\"message\":\"x\"}\n\n", -EREMOTEIO},
        {API_OPERATION_CHAT, ROLE "data: {\"choices\":[{\n\n", -EBADMSG},
        {API_OPERATION_CHAT, "data: [1]\n\n", -EBADMSG},
        {API_OPERATION_CHAT, "data: {\"choices\":[{\"delta\":{}}]}\n\n", -EBADMSG},
        {API_OPERATION_CHAT, CHOICE_OF("128", "null", "{}"), -EBADMSG},
        {API_OPERATION_CHAT, CHOICE_OF("-1", "null", "{}"), -EBADMSG},
        {API_OPERATION_CHAT, CHOICE("null", "{\"tool_calls\":[{\"index\":128}]}"), -EBADMSG},
        {API_OPERATION_CHAT, CHOICE("null", "{\"tool_calls\":[{\"id\":\"a\"}]}"), -EBADMSG},
        {API_OPERATION_CHAT,
         CHOICE("null", "{\"a\":\"1\",\"b\":\"1\",\"c\":\"1\",\"d\":\"1\",\"e\":\"1\",\"f\":\"1\","
                        "\"g\":\"1\",\"h\":\"1\"}"),
         -EBADMSG},
        {API_OPERATION_RESPONSES,
         "event: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{\"error\":"
         "{\"message\":\"x\"}}}\n\n",
         -EREMOTEIO},
        {API_OPERATION_RESPONSES, "data: {\"type\":\"response.completed\"}\n\n", -EBADMSG},
    };
    (void)state;
    for (size_t i = 0; i < UNIT_COUNT(rows); i++) {
        struct buf out;
        int finish;
        buf_init(&out, CAP);
        int r = assemble(rows[i].operation, rows[i].stream, CAP, &out, &finish, NULL);
        if (r != rows[i].error)
            fail_msg("row %zu: %d", i, r);
        assert_int_equal(finish, -ENODATA);
        buf_free(&out);
    }
}

/* The cap holds for text, and for structures that a stream can make us allocate. */
static void test_cap(void **state)
{
    struct buf out;
    int finish;
    (void)state;
    buf_init(&out, CAP);
    assert_int_equal(
        assemble(API_OPERATION_CHAT, CHOICE_OF("127", "null", "{}"), 4096, &out, &finish, NULL),
        -EMSGSIZE);
    char stream[32768] = "";
    for (int i = 0; i < 100; i++)
        memcpy(stream + strlen(stream), CHOICE("null", "{\"content\":\"0123456789abcdef\"}"),
               sizeof(CHOICE("null", "{\"content\":\"0123456789abcdef\"}")));
    assert_int_equal(assemble(API_OPERATION_CHAT, stream, 2000, &out, &finish, NULL), -EMSGSIZE);
    assert_int_equal(assemble(API_OPERATION_CHAT, stream, CAP, &out, &finish, NULL), 0);
    buf_free(&out);
    struct api_assembly *a;
    struct framer_event piece = {.kind = FRAMER_EVENT_PIECE};
    assert_int_equal(api_assembly_create(API_OPERATION_CHAT, CAP, &a), 0);
    assert_int_equal(api_assembly_add(a, &piece), -EMSGSIZE);
    api_assembly_destroy(a);
    assert_int_equal(api_assembly_create(API_OPERATION_MESSAGES, CAP, &a), -EINVAL);
    api_assembly_destroy(NULL);
}

static void test_can(void **state)
{
    const struct {
        enum api_operation operation;
        bool whole_only, can;
    } rows[] = {
        {API_OPERATION_CHAT, false, true},        {API_OPERATION_CHAT, true, false},
        {API_OPERATION_COMPLETIONS, false, true}, {API_OPERATION_RESPONSES, false, true},
        {API_OPERATION_MESSAGES, false, false},   {API_OPERATION_NATIVE_COMPLETION, false, false},
        {API_OPERATION_EMBEDDINGS, false, false},
    };
    (void)state;
    for (size_t i = 0; i < UNIT_COUNT(rows); i++) {
        const struct api_route route = {.operation = rows[i].operation};
        const struct api_request request = {.whole_only = rows[i].whole_only};
        assert_int_equal(api_assembly_can(&route, &request), rows[i].can);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chat),
        cmocka_unit_test(test_tool_calls),
        cmocka_unit_test(test_several_choices),
        cmocka_unit_test(test_other_members),
        cmocka_unit_test(test_completions),
        cmocka_unit_test(test_responses),
        cmocka_unit_test(test_every_cut),
        cmocka_unit_test(test_not_complete),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_cap),
        cmocka_unit_test(test_can),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
