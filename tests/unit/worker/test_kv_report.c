/*
 * What engines say about their KV cache. Pages of llama-server v0.4.0 are recorded (long parts left
 * out); those of vLLM, SGLang, TGI and Ollama are made after their sources and the threads named in
 * kv_report.c.
 */
#include "tests/unit/unit.h"

#include "worker/kv_report.h"

#include <stdio.h>
#include <string.h>

/* Started with -c 8192 -np 4. */
#define PROPS                                                                                      \
    "{\"default_generation_settings\":{\"params\":{\"seed\":4294967295,\"temperature\":0.8,"       \
    "\"max_tokens\":-1,\"samplers\":[\"penalties\",\"dry\"]},\"n_ctx\":2048},\"total_slots\":4,"   \
    "\"model_alias\":\"m\",\"endpoint_slots\":true,\"chat_template\":\"{% for message in "         \
    "messages %}\",\"build_info\":\"b1-5b4ebc5\",\"is_sleeping\":false}"
/* Started with -c 8192 -np 4 --kv-unified: nothing else differs. */
#define PROPS_UNIFIED "{\"default_generation_settings\":{\"n_ctx\":8192},\"total_slots\":4}"
#define SLOTS                                                                                      \
    "[{\"id\":0,\"n_ctx\":2048,\"speculative\":false,\"is_processing\":true,\"id_task\":25,"       \
    "\"n_prompt_tokens\":150},{\"id\":1,\"n_ctx\":2048,\"speculative\":false,"                     \
    "\"is_processing\":false}]"
#define SLOTS_OFF                                                                                  \
    "{\"error\":{\"code\":501,\"message\":\"This server does not support slots endpoint. Start "   \
    "it with `--slots`\",\"type\":\"not_supported_error\"}}"

#define VLLM_CONFIG(labels) "vllm:cache_config_info{" labels "} 1.0\n"
#define VLLM_PAGE                                                                                  \
    "# HELP vllm:num_requests_running Number of requests in model execution batches.\n"            \
    "# TYPE vllm:num_requests_running gauge\n"                                                     \
    "vllm:num_requests_running{engine=\"0\",model_name=\"org/m\"} 7.0\n"                           \
    "vllm:num_requests_waiting{engine=\"0\",model_name=\"org/m\"} 3.0\n"                           \
    "vllm:num_requests_waiting_by_reason{engine=\"0\",reason=\"capacity\"} 72.0\n"                 \
    "vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"org/m\"} 0.25\n" VLLM_CONFIG(              \
        "block_size=\"16\",cache_dtype=\"auto\",enable_prefix_caching=\"True\",engine=\"0\","      \
        "gpu_memory_utilization=\"0.9\",num_cpu_blocks=\"None\",num_gpu_blocks=\"5080\"")
#define MODELS(len)                                                                                \
    "{\"object\":\"list\",\"data\":[{\"id\":\"org/"                                                \
    "m\",\"owned_by\":\"vllm\",\"max_model_len\":" len "}]}"

#define SGLANG_LABELS "{engine_type=\"unified\",model_name=\"m\",pp_rank=\"0\",tp_rank=\"0\"}"
#define SGLANG_PAGE                                                                                \
    "# TYPE sglang:token_usage gauge\n"                                                            \
    "sglang:num_running_reqs" SGLANG_LABELS " 2.0\n"                                               \
    "sglang:num_queue_reqs" SGLANG_LABELS " 1.0\n"                                                 \
    "sglang:num_queue_reqs_total" SGLANG_LABELS " 999\n"                                           \
    "sglang:token_usage" SGLANG_LABELS " 0.5 1790347303000\n"                                      \
    "sglang:full_token_usage" SGLANG_LABELS " 0.9\n"

typedef bool (*reader)(struct kv_report *, struct span);

static bool take(struct kv_report *r, reader read, const char *page)
{
    return read(r, span_from_str(page));
}

static void assert_shape(const struct kv_report *r, enum kv_kind kind, uint64_t tokens,
                         uint32_t slots, uint64_t page, uint64_t request)
{
    struct kv_shape s = {0};
    struct kv kv;
    struct kv_claim claims[4];

    assert_true(kv_report_shape(r, &s));
    assert_int_equal(s.kind, kind);
    assert_int_equal(s.tokens, tokens);
    assert_int_equal(s.slots, slots);
    assert_int_equal(s.page_tokens, page);
    assert_int_equal(s.request_tokens, request);
    assert_int_equal(kv_init(&kv, &s, claims, 4), 0);
}

static void assert_unknown(const struct kv_report *r)
{
    struct kv_shape s;

    assert_false(kv_report_shape(r, &s));
}

/* --- llama-server --- */

static void llama_divided_by_its_arguments(void **state)
{
    struct kv_report r = {0};

    (void)state;
    kv_report_arguments(&r, 8192, NULL, 0);
    assert_true(take(&r, kv_report_props, PROPS));
    assert_shape(&r, KV_KIND_SLOTS, 8192, 4, 0, 2048);
}

static void llama_unified_by_its_arguments(void **state)
{
    static const char *const words[][3] = {{"--kv-unified", "--no-mmap", "x"},
                                           {"-kvu", "x", "x"},
                                           {"-no-kvu", "-kvu", "x"},
                                           {"-np", "-1", "x"},
                                           {"x", "--parallel=-1", "x"}};
    static const char *const divided[][3] = {{"-kvu", "--no-kv-unified", "x"},
                                             {"-np", "2", "x"},
                                             {"--kv-unified-per-slot", "2048", "x"}};

    (void)state;
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        struct kv_report r = {0};

        kv_report_arguments(&r, 0, words[i], 3);
        assert_true(take(&r, kv_report_props, PROPS_UNIFIED));
        assert_shape(&r, KV_KIND_UNIFIED, 8192, 4, 0, 8192);
    }
    for (size_t i = 0; i < sizeof(divided) / sizeof(divided[0]); i++) {
        struct kv_report r = {0};

        kv_report_arguments(&r, 0, divided[i], 3);
        assert_true(take(&r, kv_report_props, PROPS));
        assert_shape(&r, KV_KIND_SLOTS, 8192, 4, 0, 2048);
    }
}

/* The model was made for 8192; four slots share what they were given all the same. */
static void llama_unified_beyond_the_model(void **state)
{
    static const char *const args[] = {"-kvu"}, *const sized[] = {"-kvu", "-c", "4096"};
    struct kv_report r = {0}, other = {0};

    (void)state;
    kv_report_arguments(&r, 32768, args, 1);
    assert_true(take(&r, kv_report_props, PROPS_UNIFIED));
    assert_shape(&r, KV_KIND_UNIFIED, 32768, 4, 0, 8192);
    /* The owner's own size wins over ours, and is read from the page. */
    kv_report_arguments(&other, 32768, sized, 3);
    assert_true(take(&other, kv_report_props, PROPS_UNIFIED));
    assert_shape(&other, KV_KIND_UNIFIED, 8192, 4, 0, 8192);
}

/* No page tells: the smaller of the two claims. */
static void llama_of_somebody_else(void **state)
{
    struct kv_report r = {0}, one = {0};

    (void)state;
    assert_true(take(&r, kv_report_props, PROPS));
    assert_shape(&r, KV_KIND_UNIFIED, 2048, 4, 0, 2048);
    assert_true(take(&one, kv_report_props,
                     "{\"default_generation_settings\":{\"n_ctx\":4096},\"total_slots\":1}"));
    assert_shape(&one, KV_KIND_SLOTS, 4096, 1, 0, 4096);
}

static void llama_slots_page(void **state)
{
    struct kv_report r = {0};

    (void)state;
    assert_true(take(&r, kv_report_props, "{\"default_generation_settings\":{}}"));
    assert_unknown(&r);
    assert_false(take(&r, kv_report_slots, SLOTS_OFF));
    assert_unknown(&r);
    kv_report_arguments(&r, 0, NULL, 0);
    assert_true(take(&r, kv_report_slots, SLOTS));
    assert_shape(&r, KV_KIND_SLOTS, 4096, 2, 0, 2048);
    assert_int_equal(r.requests_running, 1);
    /* Should they differ, the smallest is what every request finds. */
    assert_true(take(&r, kv_report_slots, "[{\"n_ctx\":1024},{\"n_ctx\":2048}]"));
    assert_shape(&r, KV_KIND_SLOTS, 2048, 2, 0, 1024);
}

static void llama_figures_that_cannot_be(void **state)
{
    static const char *const pages[] = {
        "{\"default_generation_settings\":{\"n_ctx\":0},\"total_slots\":4}",
        "{\"default_generation_settings\":{\"n_ctx\":-2048},\"total_slots\":4}",
        "{\"default_generation_settings\":{\"n_ctx\":2048.5},\"total_slots\":4}",
        "{\"default_generation_settings\":{\"n_ctx\":\"2048\"},\"total_slots\":4}",
        "{\"default_generation_settings\":{\"n_ctx\":18446744073709551615},\"total_slots\":4}",
        "{\"default_generation_settings\":{\"n_ctx\":2048},\"total_slots\":0}",
        "{\"default_generation_settings\":{\"n_ctx\":2048},\"total_slots\":-1}",
        "{\"default_generation_settings\":{\"n_ctx\":2048},\"total_slots\":4294967297}",
        "{\"default_generation_settings\":{\"n_ctx\":2048}}",
        "{\"default_generation_settings\":{\"n_ctx\":2},\"total_slots\":4}",
        "{\"default_generation_settings\":[2048],\"total_slots\":4}",
        "{\"n_ctx\":2048,\"total_slots\":4}",
        "<html>2048</html>",
        "",
        "{\"default_generation_settings\":{\"n_ctx\":2048},\"total_slots\":4",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(pages) / sizeof(pages[0]); i++) {
        struct kv_report r = {0};

        (void)take(&r, kv_report_props, pages[i]);
        assert_unknown(&r);
    }
    static const char *const slots[] = {"[]", "[{\"id\":0}]", "[{\"n_ctx\":2048},{\"n_ctx\":-1}]",
                                        "[{\"n_ctx\":2048},7]", "{\"n_ctx\":2048}"};
    for (size_t i = 0; i < sizeof(slots) / sizeof(slots[0]); i++) {
        struct kv_report r = {0};

        assert_false(take(&r, kv_report_slots, slots[i]));
        assert_unknown(&r);
    }
}

/* --- vLLM --- */

static void vllm_in_pages(void **state)
{
    struct kv_report r = {0};
    struct kv_shape s = {.kind = KV_KIND_PAGED};
    uint64_t used;

    (void)state;
    assert_true(take(&r, kv_report_metrics, VLLM_PAGE));
    assert_int_equal(r.engine, KV_REPORT_VLLM);
    /* Pages times size are believed together with the longest request only. */
    assert_unknown(&r);
    assert_true(take(&r, kv_report_models, MODELS("32768")));
    assert_shape(&r, KV_KIND_PAGED, 81280, 0, 16, 32768);
    assert_true(kv_report_shape(&r, &s));
    assert_true(kv_report_used(&r, &s, &used));
    assert_int_equal(used, 20320);
    assert_int_equal(r.requests_running, 7);
    assert_int_equal(r.requests_waiting, 3);
    /* The next page replaces the figures, and what another page said stays. */
    assert_true(take(&r, kv_report_metrics,
                     "vllm:gpu_cache_usage_perc{model_name=\"m\"} 0.0001\n" VLLM_CONFIG(
                         "block_size=\"16\",num_gpu_blocks=\"5080\"")));
    assert_shape(&r, KV_KIND_PAGED, 81280, 0, 16, 32768);
    assert_true(kv_report_used(&r, &s, &used));
    assert_int_equal(used, 16);
}

/* vllm-project/vllm#51163, #42966: block_size is the smallest of several, or stale. */
static void vllm_whose_pages_are_of_several_sizes(void **state)
{
    struct kv_report r = {0}, better = {0};

    (void)state;
    assert_true(take(&r, kv_report_metrics,
                     VLLM_CONFIG("block_size=\"4\",engine=\"0\",num_gpu_blocks=\"2000\"")));
    assert_true(take(&r, kv_report_models, MODELS("32768")));
    assert_unknown(&r); /* 8000 tokens cannot hold the longest request */
    assert_true(take(&better, kv_report_metrics,
                     VLLM_CONFIG("block_size=\"4\",engine=\"0\",kv_cache_size_tokens=\"130000\","
                                 "num_gpu_blocks=\"2000\"")));
    assert_shape(&better, KV_KIND_PAGED, 130000, 0, 4, 0);
}

static void vllm_with_several_engines(void **state)
{
    struct kv_report r = {0};
    struct kv_shape s;
    uint64_t used;

    (void)state;
    assert_true(take(
        &r, kv_report_metrics,
        VLLM_CONFIG("block_size=\"16\",engine=\"0\",num_gpu_blocks=\"1000\"") VLLM_CONFIG(
            "block_size=\"16\",engine=\"1\",num_gpu_blocks=\"1000\"")
            VLLM_CONFIG("block_size=\"16\",engine=\"1\",num_gpu_blocks=\"1000\"") VLLM_CONFIG(
                "block_size=\"16\",engine=\"x\",num_gpu_blocks=\"9\"") "vllm:kv_cache_usage_perc{"
                                                                       "engine=\"0\"} 0.75\n"
                                                                       "vllm:kv_cache_usage_perc{"
                                                                       "engine=\"1\"} 0.1\n"));
    assert_true(take(&r, kv_report_models, MODELS("8192")));
    assert_shape(&r, KV_KIND_PAGED, 32000, 0, 16, 8192);
    assert_true(kv_report_shape(&r, &s));
    assert_true(kv_report_used(&r, &s, &used));
    assert_int_equal(used, 24000);
}

static void vllm_figures_that_cannot_be(void **state)
{
    static const char *const configs[] = {
        /* vllm-project/vllm#16560 */
        VLLM_CONFIG("block_size=\"16\",num_gpu_blocks=\"None\""),
        VLLM_CONFIG("block_size=\"None\",num_gpu_blocks=\"5080\""),
        VLLM_CONFIG("block_size=\"0\",num_gpu_blocks=\"5080\""),
        VLLM_CONFIG("block_size=\"-16\",num_gpu_blocks=\"5080\""),
        VLLM_CONFIG("block_size=\"16\",num_gpu_blocks=\"0\""),
        VLLM_CONFIG("block_size=\"16\",num_gpu_blocks=\"99999999999999999\""),
        VLLM_CONFIG("block_size=\"16\",num_gpu_blocks=\"999999999999999999999999\""),
        VLLM_CONFIG("block_size=\"16.0\",num_gpu_blocks=\"5080\""),
        /* The product is 2^64 + 2^20. */
        VLLM_CONFIG("block_size=\"1048576\",num_gpu_blocks=\"17592186044417\""),
        VLLM_CONFIG("block_size=\"16\",engine=\"x\",num_gpu_blocks=\"5080\""),
        VLLM_CONFIG("kv_cache_size_tokens=\"0\""),
        VLLM_CONFIG("kv_cache_size_tokens=\"9999999999999999\""),
        "vllm:cache_config_info_extra{block_size=\"16\",num_gpu_blocks=\"5080\"} 1\n",
        "vllm:num_requests_running 1\n",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(configs) / sizeof(configs[0]); i++) {
        struct kv_report r = {0};

        assert_true(take(&r, kv_report_metrics, configs[i]));
        assert_true(take(&r, kv_report_models, MODELS("512")));
        assert_unknown(&r);
    }
    static const char *const usages[] = {"NaN", "-0.1", "1.5", "+Inf", "1e300"};
    for (size_t i = 0; i < sizeof(usages) / sizeof(usages[0]); i++) {
        struct kv_report r = {0};
        struct kv_shape s;
        char page[512];
        uint64_t used;

        snprintf(page, sizeof(page),
                 "vllm:kv_cache_usage_perc{engine=\"0\"} 0.1\n"
                 "vllm:kv_cache_usage_perc{engine=\"1\"} %s\n" VLLM_CONFIG(
                     "kv_cache_size_tokens=\"1000\""),
                 usages[i]);
        assert_true(take(&r, kv_report_metrics, page));
        assert_true(kv_report_shape(&r, &s));
        assert_false(kv_report_used(&r, &s, &used));
    }
    struct kv_report r = {0};
    static const char *const models[] = {
        MODELS("0"), MODELS("-5"), MODELS("\"32768\""), MODELS("4e9"), "{\"data\":[]}", "[]", "no"};
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++)
        assert_false(take(&r, kv_report_models, models[i]));
    assert_int_equal(r.request_tokens, 0);
    assert_true(take(&r, kv_report_models,
                     "{\"data\":[{\"max_model_len\":8192},{\"max_model_len\":0},"
                     "{\"max_model_len\":4096},{\"max_model_len\":32768},7]}"));
    assert_int_equal(r.request_tokens, 4096);
}

static void pages_of_nobody(void **state)
{
    struct kv_report r = {0};
    static char large[KV_REPORT_BODY_BYTES + 64];

    (void)state;
    assert_false(take(&r, kv_report_metrics, "go_goroutines 7\nvllmx:a 1\nvllm 2\n"));
    assert_false(take(&r, kv_report_metrics, "<html>"));
    assert_false(take(&r, kv_report_metrics, ""));
    /* A page that is too long is not read in part. */
    memset(large, '\n', sizeof(large) - 1);
    memcpy(large, VLLM_PAGE, sizeof(VLLM_PAGE) - 1);
    assert_false(take(&r, kv_report_metrics, large));
    assert_unknown(&r);
}

/* --- SGLang, TGI, Ollama --- */

static void sglang_with_metrics(void **state)
{
    struct kv_report r = {0};
    struct kv_shape s;
    uint64_t used;

    (void)state;
    assert_true(take(&r, kv_report_metrics, SGLANG_PAGE));
    assert_int_equal(r.engine, KV_REPORT_SGLANG);
    assert_unknown(&r);
    assert_true(take(&r, kv_report_server_info,
                     "{\"model_path\":\"m\",\"context_length\":null,\"page_size\":1,"
                     "\"status\":\"ready\",\"max_total_num_tokens\":20480,"
                     "\"max_req_input_len\":20474,\"internal_states\":[{\"x\":1}]}"));
    assert_shape(&r, KV_KIND_PAGED, 20480, 0, 1, 0);
    assert_true(take(&r, kv_report_models, MODELS("32768")));
    /* Its context may be longer than its cache: it takes what the cache holds. */
    assert_shape(&r, KV_KIND_PAGED, 20480, 0, 1, 32768);
    assert_true(kv_report_shape(&r, &s));
    assert_true(kv_report_used(&r, &s, &used));
    assert_int_equal(used, 10240);
    assert_int_equal(r.requests_running, 2);
    assert_int_equal(r.requests_waiting, 1);
    /* Of the next page the capacity may be missing. */
    assert_true(take(&r, kv_report_metrics, SGLANG_PAGE));
    assert_shape(&r, KV_KIND_PAGED, 20480, 0, 1, 32768);
}

static void sglang_ranks_and_spellings(void **state)
{
    struct kv_report r = {0};
    struct kv_shape s;
    uint64_t used;

    (void)state;
    assert_true(take(&r, kv_report_metrics,
                     "sglang_max_total_num_tokens{dp_rank=\"0\"} 570979.0\n"
                     "sglang_max_total_num_tokens{dp_rank=\"1\"} 500000.0\n"
                     "sglang_context_len{dp_rank=\"0\"} 131072.0\n"
                     "sglang_token_usage{dp_rank=\"0\"} 0.1\n"
                     "sglang_token_usage{dp_rank=\"1\"} 0.2\n"));
    assert_shape(&r, KV_KIND_PAGED, 500000, 0, 0, 131072);
    assert_true(kv_report_shape(&r, &s));
    assert_true(kv_report_used(&r, &s, &used));
    assert_int_equal(used, 100000);
    static const char *const values[] = {"NaN", "-1", "0", "+Inf", "1e40", "1e15"};
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        struct kv_report bad = {0};
        char page[128];

        snprintf(page, sizeof(page), "sglang:max_total_num_tokens %s\n", values[i]);
        assert_true(take(&bad, kv_report_metrics, page));
        assert_int_equal(bad.cache_tokens, 0);
        assert_unknown(&bad);
    }
}

static void server_info_of_nobody(void **state)
{
    static const char *const pages[] = {"{\"max_total_num_tokens\":null}",
                                        "{\"max_total_num_tokens\":-20480}",
                                        "{\"max_total_num_tokens\":20480.0}",
                                        "{}",
                                        "[]",
                                        "x"};
    struct kv_report r = {0};

    (void)state;
    for (size_t i = 0; i < sizeof(pages) / sizeof(pages[0]); i++)
        assert_false(take(&r, kv_report_server_info, pages[i]));
    assert_int_equal(r.engine, KV_REPORT_NONE);
}

static void tgi_by_its_batch(void **state)
{
    struct kv_report r = {0}, wrong = {0};

    (void)state;
    assert_true(take(&r, kv_report_info,
                     "{\"model_id\":\"m\",\"max_concurrent_requests\":128,\"max_input_tokens\":"
                     "4095,\"max_total_tokens\":4096,\"max_batch_total_tokens\":20000}"));
    assert_shape(&r, KV_KIND_PAGED, 20000, 0, 0, 4096);
    assert_false(take(&wrong, kv_report_info,
                      "{\"max_total_tokens\":4096,\"max_batch_total_tokens\":null}"));
    assert_true(
        take(&wrong, kv_report_info, "{\"max_total_tokens\":4096,\"max_batch_total_tokens\":16}"));
    assert_unknown(&wrong);
}

#define OLLAMA_PAGE                                                                                \
    "{\"models\":[{\"name\":\"gemma4:latest\",\"model\":\"gemma4:latest\",\"size\":6591830464,"    \
    "\"size_vram\":5333539264,\"context_length\":4096},{\"name\":\"other:1b\","                    \
    "\"model\":\"other:1b\",\"context_length\":8192}]}"

static void ollama_takes_the_configured_number(void **state)
{
    static const struct {
        const char *page, *model;
        uint32_t slots;
        uint64_t tokens; /* of one slot; 0: not known */
    } cases[] = {
        {OLLAMA_PAGE, "gemma4", 2, 4096},
        {OLLAMA_PAGE, "gemma4:latest", 1, 4096},
        {OLLAMA_PAGE, "other:1b", 2, 8192},
        {OLLAMA_PAGE, "gemma4", 0, 0}, /* nobody says how many at a time */
        {OLLAMA_PAGE, "other", 2, 0},  /* another tag is another model */
        {OLLAMA_PAGE, "gemma", 2, 0},
        {OLLAMA_PAGE, NULL, 2, 0},           /* one of two */
        {"{\"models\":[]}", "gemma4", 2, 0}, /* not loaded */
        {"{\"models\":[{\"model\":\"a\",\"context_length\":2048}]}", NULL, 2, 2048},
        {"{\"models\":[{\"model\":\"a\"}]}", "a", 2, 0}, /* older versions */
        {"{\"models\":[{\"model\":\"a\",\"context_length\":-1}]}", "a", 2, 0},
        {"{\"models\":[{\"model\":7,\"context_length\":2048}]}", "a", 2, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct kv_report r = {0};

        assert_true(kv_report_ps(&r, span_from_str(cases[i].page), cases[i].model, cases[i].slots));
        assert_int_equal(r.engine, KV_REPORT_OLLAMA);
        if (cases[i].tokens > 0)
            assert_shape(&r, KV_KIND_SLOTS, cases[i].tokens * cases[i].slots, cases[i].slots, 0,
                         cases[i].tokens);
        else
            assert_unknown(&r);
    }
    struct kv_report r = {0};
    assert_false(kv_report_ps(&r, SPAN_LIT("{\"version\":\"0.1\"}"), "a", 1));
    assert_false(kv_report_ps(&r, SPAN_LIT("nothing"), "a", 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama_divided_by_its_arguments),
        cmocka_unit_test(llama_unified_by_its_arguments),
        cmocka_unit_test(llama_unified_beyond_the_model),
        cmocka_unit_test(llama_of_somebody_else),
        cmocka_unit_test(llama_slots_page),
        cmocka_unit_test(llama_figures_that_cannot_be),
        cmocka_unit_test(vllm_in_pages),
        cmocka_unit_test(vllm_whose_pages_are_of_several_sizes),
        cmocka_unit_test(vllm_with_several_engines),
        cmocka_unit_test(vllm_figures_that_cannot_be),
        cmocka_unit_test(pages_of_nobody),
        cmocka_unit_test(sglang_with_metrics),
        cmocka_unit_test(sglang_ranks_and_spellings),
        cmocka_unit_test(server_info_of_nobody),
        cmocka_unit_test(tgi_by_its_batch),
        cmocka_unit_test(ollama_takes_the_configured_number),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
