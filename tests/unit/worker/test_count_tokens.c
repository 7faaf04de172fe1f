/*
 * Which page counts the tokens of which request, and what its answer means. Answers of llama-server
 * v0.4.0 are recorded; each was seen to equal `usage.prompt_tokens` of the same request.
 */
#include "tests/unit/unit.h"

#include "worker/count_tokens.h"

#include <stdio.h>
#include <string.h>

static bool plan_of(enum worker_engine engine, enum kv_report_engine reported, const char *path,
                    const char *body, struct count_tokens_plan *ret)
{
    struct api_route route;
    struct api_request request;
    struct api_error error;

    assert_true(api_route_find(SPAN_LIT("POST"), span_from_str(path), &route));
    /* What is refused there never gets here. */
    if (api_request_parse(&route, SPAN_LIT("application/json"), span_from_str(body), &request,
                          &error) < 0)
        return false;
    return count_tokens_plan(engine, reported, route.operation, &request, ret);
}

static bool llama_plan(const char *path, const char *body, struct count_tokens_plan *ret)
{
    return plan_of(WORKER_ENGINE_LLAMA_SERVER, KV_REPORT_LLAMA_SERVER, path, body, ret);
}

static bool vllm_plan(const char *path, const char *body, struct count_tokens_plan *ret)
{
    return plan_of(WORKER_ENGINE_OPENAI, KV_REPORT_VLLM, path, body, ret);
}

static const char *body_of(const struct count_tokens_plan *plan, const char *model)
{
    static char text[512];
    struct span parts[COUNT_TOKENS_PARTS];
    unsigned count = count_tokens_body(plan, model, parts);
    size_t used = 0;

    assert_true(count <= COUNT_TOKENS_PARTS);
    for (unsigned i = 0; i < count; i++) {
        memcpy(text + used, parts[i].ptr, parts[i].len);
        used += parts[i].len;
    }
    text[used] = '\0';
    return text;
}

#define CHAT "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}]}"

static void llama_counts_the_request_itself(void **state)
{
    static const struct {
        const char *path, *body, *page;
    } cases[] = {
        {"/v1/chat/completions", CHAT, "/v1/chat/completions/input_tokens"},
        {"/v1/chat/completions",
         "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"tools\":[{\"type\":\"function\"}]"
         "}",
         "/v1/chat/completions/input_tokens"},
        {"/v1/messages", CHAT, "/v1/messages/count_tokens"},
        {"/v1/responses", "{\"model\":\"m\",\"input\":\"Hello\"}", "/v1/responses/input_tokens"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct count_tokens_plan plan;

        assert_true(llama_plan(cases[i].path, cases[i].body, &plan));
        assert_string_equal(plan.path, cases[i].page);
        assert_null(plan.member);
        assert_int_equal(plan.answer, COUNT_TOKENS_INPUT_TOKENS);
    }
}

static void llama_counts_a_text(void **state)
{
    static const struct {
        const char *path, *body, *text;
    } cases[] = {
        {"/v1/completions", "{\"model\":\"m\",\"prompt\":\"a \\\"b\\\"\"}", "\"a \\\"b\\\"\""},
        {"/completion", "{\"n_predict\":1,\"prompt\":\"Hello\"}", "\"Hello\""},
        {"/v1/embeddings", "{\"model\":\"m\",\"input\" : \"Hello\" }", "\"Hello\""},
        {"/embedding", "{\"content\":\"Hello\"}", "\"Hello\""},
        {"/embedding", "{\"input\":\"Hello\"}", "\"Hello\""},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct count_tokens_plan plan;
        char expected[256];

        assert_true(llama_plan(cases[i].path, cases[i].body, &plan));
        assert_string_equal(plan.path, "/tokenize");
        assert_int_equal(plan.answer, COUNT_TOKENS_LIST);
        snprintf(expected, sizeof(expected),
                 "{\"content\":%s,\"add_special\":true,\"parse_special\":true}", cases[i].text);
        assert_string_equal(body_of(&plan, "m"), expected);
    }
}

static void what_is_not_asked(void **state)
{
    static const struct {
        const char *path, *body;
    } cases[] = {
        {"/v1/completions", "{\"prompt\":[\"a\",\"b\"]}"},
        {"/v1/completions", "{\"prompt\":[1,2,3]}"},
        {"/v1/completions", "{\"suffix\":\"a\"}"},
        {"/v1/completions", "{\"prompt\":\"a\",\"prompt\":\"b\"}"},
        {"/v1/completions", "{\"prompt\":\"a\",\"pr\\u006fmpt\":\"b\"}"},
        {"/v1/embeddings", "{\"input\":[\"a\"]}"},
        {"/embedding", "{\"content\":\"a\",\"input\":\"b\"}"},
        {"/infill", "{\"input_prefix\":\"a\",\"input_suffix\":\"b\"}"},
        {"/v1/rerank", "{\"query\":\"a\",\"documents\":[\"b\"]}"},
        {"/api/chat", CHAT},
        {"/v1/chat/completions",
         "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":"
         "{\"url\":\"http://x/y.png\"}}]}]}"},
        {"/v1/chat/completions",
         "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_audio\"}]}]}"},
        {"/v1/messages",
         "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image\",\"source\":{}}]}]}"},
        {"/v1/responses", "{\"input\":[{\"content\":[{\"type\":\"input_image\"}]}]}"},
    };
    struct count_tokens_plan plan;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (llama_plan(cases[i].path, cases[i].body, &plan))
            fail_msg("%s %s is counted", cases[i].path, cases[i].body);
    }
    /* Engines that have no such page, or that are not known to have one. */
    assert_false(
        plan_of(WORKER_ENGINE_OPENAI, KV_REPORT_NONE, "/v1/chat/completions", CHAT, &plan));
    assert_false(
        plan_of(WORKER_ENGINE_OPENAI, KV_REPORT_SGLANG, "/v1/chat/completions", CHAT, &plan));
    assert_false(
        plan_of(WORKER_ENGINE_OLLAMA, KV_REPORT_OLLAMA, "/v1/chat/completions", CHAT, &plan));
    assert_false(
        plan_of(WORKER_ENGINE_GENERIC, KV_REPORT_NONE, "/v1/chat/completions", CHAT, &plan));
    assert_false(
        plan_of(WORKER_ENGINE_UNKNOWN, KV_REPORT_NONE, "/v1/chat/completions", CHAT, &plan));
}

static void bodies_that_are_too_long(void **state)
{
    static const char start[] = "{\"prompt\":\"", chat[] = "{\"messages\":[],\"x\":\"";
    static char body[COUNT_TOKENS_CHAT_BYTES + 64];
    struct count_tokens_plan plan;

    (void)state;
    memset(body, 'a', sizeof(body));
    memcpy(body, start, sizeof(start) - 1);
    memcpy(body + COUNT_TOKENS_TEXT_BYTES - 2, "\"}", 3);
    assert_true(llama_plan("/v1/completions", body, &plan));
    memcpy(body + COUNT_TOKENS_TEXT_BYTES - 2, "aa\"}", 5);
    assert_false(llama_plan("/v1/completions", body, &plan));
    memcpy(body, chat, sizeof(chat) - 1);
    assert_true(llama_plan("/v1/chat/completions", body, &plan));
    assert_false(vllm_plan("/v1/chat/completions", body, &plan));
    memset(body + COUNT_TOKENS_TEXT_BYTES - 2, 'a', 8);
    memcpy(body + COUNT_TOKENS_CHAT_BYTES, "\"}", 3);
    assert_false(llama_plan("/v1/chat/completions", body, &plan));
}

static void vllm_counts_by_one_page(void **state)
{
    struct count_tokens_plan plan;

    (void)state;
    assert_true(vllm_plan("/v1/chat/completions", CHAT, &plan));
    assert_string_equal(plan.path, "/tokenize");
    assert_null(plan.member);
    assert_int_equal(plan.answer, COUNT_TOKENS_COUNT);
    assert_true(vllm_plan("/v1/completions", "{\"prompt\":\"a\"}", &plan));
    assert_string_equal(body_of(&plan, "org/m"), "{\"prompt\":\"a\",\"model\":\"org/m\"}");
    assert_string_equal(body_of(&plan, NULL), "{\"prompt\":\"a\"}");
    assert_string_equal(body_of(&plan, "a\"b"), "{\"prompt\":\"a\"}");
    /* Older versions leave the tools out: the count would be too small. */
    assert_false(vllm_plan("/v1/chat/completions",
                           "{\"messages\":[],\"tools\":[{\"type\":\"function\"}]}", &plan));
    assert_false(vllm_plan("/v1/messages", CHAT, &plan));
    assert_false(vllm_plan("/v1/responses", "{\"input\":\"a\"}", &plan));
}

static void answers(void **state)
{
    static const struct {
        enum count_tokens_answer kind;
        const char *answer;
        uint64_t tokens; /* 0: not known */
    } cases[] = {
        {COUNT_TOKENS_INPUT_TOKENS, "{\"input_tokens\":31,\"object\":\"response.input_tokens\"}",
         31},
        {COUNT_TOKENS_INPUT_TOKENS, "{\"input_tokens\":17}", 17},
        {COUNT_TOKENS_LIST, "{\"tokens\":[19556,905]}", 2},
        {COUNT_TOKENS_LIST, "{\"tokens\":[101,7592,2088,102]}", 4},
        {COUNT_TOKENS_LIST, "{ \"tokens\" : [ 1 , 22\n,333 ] }", 3},
        {COUNT_TOKENS_COUNT,
         "{\"count\":2,\"max_model_len\":4096,\"tokens\":[9707,1879],"
         "\"token_strs\":null}",
         2},
        {COUNT_TOKENS_COUNT, "{\"tokens\":[1,2,3],\"count\":3,\"max_model_len\":4096}", 3},
        /* Nothing is known by these. */
        {COUNT_TOKENS_LIST, "{\"tokens\":[]}", 0}, /* the text was not understood as one */
        {COUNT_TOKENS_LIST, "{\"tokens\":[{\"id\":1,\"piece\":\"a, b\"}]}", 0},
        {COUNT_TOKENS_LIST, "{\"tokens\":7}", 0},
        {COUNT_TOKENS_LIST, "{\"tokens\":[1,-2]}", 0},
        {COUNT_TOKENS_LIST, "{\"tokens\":[1,2", 0},
        {COUNT_TOKENS_INPUT_TOKENS, "{\"input_tokens\":0}", 0},
        {COUNT_TOKENS_INPUT_TOKENS, "{\"input_tokens\":-1}", 0},
        {COUNT_TOKENS_INPUT_TOKENS, "{\"input_tokens\":1.5}", 0},
        {COUNT_TOKENS_INPUT_TOKENS, "{\"input_tokens\":1e3}", 0},
        {COUNT_TOKENS_INPUT_TOKENS, "{\"input_tokens\":\"31\"}", 0},
        {COUNT_TOKENS_INPUT_TOKENS, "{\"input_tokens\":9999999999999}", 0},
        {COUNT_TOKENS_INPUT_TOKENS, "{\"input_tokens\":18446744073709551633}", 0}, /* 2^64 + 17 */
        {COUNT_TOKENS_INPUT_TOKENS, "{\"tokens\":[1,2]}", 0},
        {COUNT_TOKENS_INPUT_TOKENS, "<html>31</html>", 0},
        {COUNT_TOKENS_INPUT_TOKENS, "", 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct count_tokens_plan plan = {.answer = cases[i].kind};
        uint64_t tokens = 4711;
        bool known = count_tokens_read(&plan, span_from_str(cases[i].answer), &tokens);

        if (known != (cases[i].tokens > 0) || tokens != (known ? cases[i].tokens : 4711))
            fail_msg("%s: %llu", cases[i].answer, (unsigned long long)tokens);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama_counts_the_request_itself),
        cmocka_unit_test(llama_counts_a_text),
        cmocka_unit_test(what_is_not_asked),
        cmocka_unit_test(bodies_that_are_too_long),
        cmocka_unit_test(vllm_counts_by_one_page),
        cmocka_unit_test(answers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
