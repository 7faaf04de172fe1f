/*
 * The KV cache of a running engine, by the engine's own pages: how many tokens it holds, how they are
 * divided, the longest request, and how much is in use. Answers of several pages are gathered in one
 * struct kv_report, then asked for the shape.
 *
 * A figure that is missing, negative, not a number or beyond any cache is not known, and so is a
 * shape that contradicts itself: a wrong capacity would refuse what fits, or admit what does not.
 *
 * Where the figures are found (names checked against the engines' sources and threads):
 *   llama-server  GET /props: total_slots, default_generation_settings.n_ctx (of one slot);
 *                 GET /slots: n_ctx of each, 501 unless started with --slots
 *   vLLM          GET /metrics: vllm:cache_config_info{block_size,num_gpu_blocks,
 *                 kv_cache_size_tokens}, vllm:kv_cache_usage_perc (0 to 1; before its renaming
 *                 vllm:gpu_cache_usage_perc), vllm:num_requests_running, …_waiting;
 *                 GET /v1/models: max_model_len
 *   SGLang        GET /metrics, where enabled: sglang:max_total_num_tokens, sglang:token_usage,
 *                 sglang:context_len, sglang:num_running_reqs, sglang:num_queue_reqs (also with '_' for ':');
 *                 GET /get_server_info: max_total_num_tokens, context_length, page_size
 *   TGI           GET /info: max_batch_total_tokens, max_total_tokens
 *   Ollama        GET /api/ps: context_length of a loaded model; how many requests it takes at a
 *                 time is on no page
 *
 * Pure; bodies are at most KV_REPORT_BODY_BYTES.
 */
#ifndef FAILSOFT_WORKER_KV_REPORT_H
#define FAILSOFT_WORKER_KV_REPORT_H

#include "base/span.h"
#include "policy/kv.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A page of vLLM's metrics is some 100 KiB, /get_server_info of SGLang 150 KiB. */
enum { KV_REPORT_BODY_BYTES = 256 * 1024 };

enum kv_report_engine {
    KV_REPORT_NONE = 0, /* nothing known yet */
    KV_REPORT_LLAMA_SERVER,
    KV_REPORT_VLLM,
    KV_REPORT_SGLANG,
    KV_REPORT_TGI,
    KV_REPORT_OLLAMA,
};

/* Whether all slots of llama-server share one cache. No page says it. */
enum kv_report_unified {
    KV_REPORT_UNIFIED_UNKNOWN = 0, /* taken as shared: it is the default, and the smaller claim */
    KV_REPORT_UNIFIED_NO,
    KV_REPORT_UNIFIED_YES,
};

/* Every figure: 0 when not known. */
struct kv_report {
    enum kv_report_engine engine;
    enum kv_report_unified unified;
    uint32_t slots;
    uint64_t slot_tokens;    /* context of one slot */
    uint64_t shared_tokens;  /* llama-server: of the whole cache, by its arguments */
    uint64_t cache_tokens;   /* of the whole cache, as the engine counts them itself */
    uint64_t cache_pages;    /* … or in pages */
    uint64_t page_tokens;    /* of the page that reports cache_pages */
    uint64_t request_tokens; /* longest request, prompt and output */
    uint64_t engines_seen;   /* vLLM: bit per engine that was counted */
    bool usage_known;        /* the two below */
    bool usage_broken;       /* a usage that cannot be */
    double usage;            /* of the cache, 0 to 1; the fullest where there are several */
    bool requests_known;
    uint64_t requests_running, requests_waiting;
};

/*
 * Each takes one page's body and adds what it says. True: the page is what it should be and said
 * something. A report begins as all zeros.
 */
bool kv_report_props(struct kv_report *r, struct span body);
bool kv_report_slots(struct kv_report *r, struct span body);
bool kv_report_metrics(struct kv_report *r, struct span body);
bool kv_report_models(struct kv_report *r, struct span body);
bool kv_report_server_info(struct kv_report *r, struct span body);
bool kv_report_info(struct kv_report *r, struct span body);
/*
 * `model`: the name that the worker knows it by (NULL: the only one that is loaded), with or without
 * its tag `:latest`. `slots`: requests at a time, by the configuration; 0 makes it not known.
 */
bool kv_report_ps(struct kv_report *r, struct span body, const char *model, uint32_t slots);

/* A managed llama-server: what it was started with. `context_tokens` of all slots, 0: not known;
 * `args`: what the owner added, which wins. */
void kv_report_arguments(struct kv_report *r, uint64_t context_tokens, const char *const *args,
                         size_t arg_count);

/* False: not known. */
bool kv_report_shape(const struct kv_report *r, struct kv_shape *ret_shape);

/* Tokens in use by anybody, rounded up to pages. False: not known. */
bool kv_report_used(const struct kv_report *r, const struct kv_shape *shape, uint64_t *ret_tokens);

#endif
