/*
 * Reads what engines say about their KV cache; see kv_report.h for the pages and their names.
 * Threads that shaped it: vllm-project/vllm#3100 (cache_config_info), #16560 (its values can be
 * "None"), #42966 and #51163 (block_size × num_gpu_blocks is not the capacity of models whose
 * layers differ), #54662 (kv_cache_size_tokens is); sgl-project/sglang#1853 (metrics).
 */
#include "worker/kv_report.h"

#include "worker/metrics_text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <yyjson.h>

enum {
    KV_REPORT_SLOTS_MAX = 4096,
    KV_REPORT_PAGE_MAX = 1 << 20, /* tokens of one page */
    KV_REPORT_ENGINES_MAX = 64,
};

/* A figure that can be one: 1 to `max`. */
static bool number_in(yyjson_val *value, uint64_t max, uint64_t *ret)
{
    if (!yyjson_is_uint(value))
        return false;
    uint64_t number = yyjson_get_uint(value);
    if (number == 0 || number > max)
        return false;
    *ret = number;
    return true;
}

static bool double_in(double value, uint64_t max, uint64_t *ret)
{
    if (!(value >= 1) || value > (double)max)
        return false;
    *ret = (uint64_t)value;
    return true;
}

static yyjson_doc *read_json(struct span body)
{
    if (body.len == 0 || body.len > KV_REPORT_BODY_BYTES)
        return NULL;
    return yyjson_read(body.ptr, body.len, 0);
}

static void keep_least(uint64_t *figure, uint64_t value)
{
    if (*figure == 0 || value < *figure)
        *figure = value;
}

/* --- llama-server --- */

bool kv_report_props(struct kv_report *r, struct span body)
{
    yyjson_doc *doc = read_json(body);
    yyjson_val *root = yyjson_doc_get_root(doc);
    yyjson_val *defaults = yyjson_obj_get(root, "default_generation_settings");
    uint64_t slots, tokens;
    bool good = yyjson_is_obj(defaults);

    if (good) {
        r->engine = KV_REPORT_LLAMA_SERVER;
        if (number_in(yyjson_obj_get(root, "total_slots"), KV_REPORT_SLOTS_MAX, &slots))
            r->slots = (uint32_t)slots;
        if (number_in(yyjson_obj_get(defaults, "n_ctx"), KV_TOKENS_MAX, &tokens))
            r->slot_tokens = tokens;
    }
    yyjson_doc_free(doc);
    return good;
}

bool kv_report_slots(struct kv_report *r, struct span body)
{
    yyjson_doc *doc = read_json(body);
    yyjson_val *root = yyjson_doc_get_root(doc);
    size_t count = yyjson_arr_size(root), i, max;
    uint64_t least = 0, busy = 0;
    bool good = count > 0 && count <= KV_REPORT_SLOTS_MAX;
    yyjson_val *slot;

    yyjson_arr_foreach(root, i, max, slot)
    {
        uint64_t tokens;

        if (!good || !number_in(yyjson_obj_get(slot, "n_ctx"), KV_TOKENS_MAX, &tokens)) {
            good = false;
            break;
        }
        keep_least(&least, tokens);
        busy += yyjson_is_true(yyjson_obj_get(slot, "is_processing"));
    }
    if (good) {
        r->engine = KV_REPORT_LLAMA_SERVER;
        r->slots = (uint32_t)count;
        r->slot_tokens = least;
        r->requests_known = true;
        r->requests_running = busy;
    }
    yyjson_doc_free(doc);
    return good;
}

/* The value of `--flag N` or `--flag=N`; NULL: it is another flag. */
static const char *argument_value(const char *const *args, size_t count, size_t i, const char *flag)
{
    size_t len = strlen(flag);

    if (strncmp(args[i], flag, len) != 0)
        return NULL;
    if (args[i][len] == '=')
        return args[i] + len + 1;
    return args[i][len] == '\0' && i + 1 < count ? args[i + 1] : NULL;
}

static bool argument_is(const char *arg, const char *flag, const char *other)
{
    return strcmp(arg, flag) == 0 || strcmp(arg, other) == 0;
}

/* Further slots or another size than ours: what we know of them comes from the pages alone. */
void kv_report_arguments(struct kv_report *r, uint64_t context_tokens, const char *const *args,
                         size_t arg_count)
{
    r->unified = KV_REPORT_UNIFIED_NO;
    r->shared_tokens = context_tokens <= KV_TOKENS_MAX ? context_tokens : 0;
    for (size_t i = 0; i < arg_count && args[i] != NULL; i++) {
        const char *slots = argument_value(args, arg_count, i, "-np");

        if (slots == NULL)
            slots = argument_value(args, arg_count, i, "--parallel");
        if (argument_is(args[i], "-kvu", "--kv-unified") || (slots != NULL && slots[0] == '-'))
            r->unified = KV_REPORT_UNIFIED_YES; /* a negative number of slots: auto, and shared */
        else if (argument_is(args[i], "-no-kvu", "--no-kv-unified"))
            r->unified = KV_REPORT_UNIFIED_NO;
        if (slots != NULL || argument_value(args, arg_count, i, "-c") != NULL ||
            argument_value(args, arg_count, i, "--ctx-size") != NULL)
            r->shared_tokens = 0;
    }
}

/* --- pages of metrics --- */

/* vLLM: one line an engine (data parallel); a request lives in one of them. */
static void read_cache_config(struct kv_report *r, struct span labels)
{
    uint64_t engine = 0, pages, page, tokens;
    struct span text;
    bool numbered = metrics_label_u64(labels, "engine", &engine);

    if ((!numbered && metrics_label(labels, "engine", &text)) || engine >= KV_REPORT_ENGINES_MAX ||
        (r->engines_seen & UINT64_C(1) << engine) != 0)
        return;
    r->engines_seen |= UINT64_C(1) << engine;
    if (metrics_label_u64(labels, "kv_cache_size_tokens", &tokens) && tokens > 0 &&
        tokens <= KV_TOKENS_MAX)
        r->cache_tokens += tokens;
    if (metrics_label_u64(labels, "block_size", &page) && page > 0 && page <= KV_REPORT_PAGE_MAX &&
        metrics_label_u64(labels, "num_gpu_blocks", &pages) && pages > 0 &&
        pages <= KV_TOKENS_MAX / page) {
        r->cache_pages += pages;
        r->page_tokens = page;
    }
}

static void read_usage(struct kv_report *r, double value)
{
    enum { PARTS = 1000 };

    /* Sums of many small parts may end a hair above 1. */
    if (!(value >= 0) || value > 1 + 1.0 / PARTS) {
        r->usage_broken = true;
        return;
    }
    value = value > 1 ? 1 : value;
    r->usage = r->usage_known && r->usage > value ? r->usage : value;
    r->usage_known = true;
}

static void read_requests(struct kv_report *r, uint64_t *figure, double value)
{
    uint64_t count;

    if (value == 0)
        count = 0;
    else if (!double_in(value, KV_TOKENS_MAX, &count))
        return;
    *figure = *figure > count ? *figure : count;
    r->requests_known = true;
}

static void read_vllm(struct kv_report *r, struct span name, const struct metrics_sample *s)
{
    r->engine = KV_REPORT_VLLM;
    if (span_equals_str(name, "cache_config_info"))
        read_cache_config(r, s->labels);
    else if (span_equals_str(name, "kv_cache_usage_perc") ||
             span_equals_str(name, "gpu_cache_usage_perc"))
        read_usage(r, s->value);
    else if (span_equals_str(name, "num_requests_running"))
        read_requests(r, &r->requests_running, s->value);
    else if (span_equals_str(name, "num_requests_waiting"))
        read_requests(r, &r->requests_waiting, s->value);
}

/* One line a rank; the smallest cache and the fullest count. */
static void read_sglang(struct kv_report *r, struct span name, const struct metrics_sample *s)
{
    uint64_t tokens;

    r->engine = KV_REPORT_SGLANG;
    if (span_equals_str(name, "max_total_num_tokens") &&
        double_in(s->value, KV_TOKENS_MAX, &tokens))
        keep_least(&r->cache_tokens, tokens);
    else if (span_equals_str(name, "context_len") && double_in(s->value, KV_TOKENS_MAX, &tokens))
        keep_least(&r->request_tokens, tokens);
    else if (span_equals_str(name, "token_usage"))
        read_usage(r, s->value);
    else if (span_equals_str(name, "num_running_reqs"))
        read_requests(r, &r->requests_running, s->value);
    else if (span_equals_str(name, "num_queue_reqs"))
        read_requests(r, &r->requests_waiting, s->value);
}

/* The part behind `prefix` and ':' or '_'. */
static bool strip_prefix(struct span name, const char *prefix, struct span *ret)
{
    size_t len = strlen(prefix);

    if (name.len <= len + 1 || !span_starts_with(name, (struct span){prefix, len}) ||
        (name.ptr[len] != ':' && name.ptr[len] != '_'))
        return false;
    *ret = (struct span){name.ptr + len + 1, name.len - len - 1};
    return true;
}

/* Figures of the page before are replaced as a whole; what other pages said stays. */
bool kv_report_metrics(struct kv_report *r, struct span body)
{
    struct metrics_sample sample;
    struct span name;
    struct kv_report page = {0};

    if (body.len > KV_REPORT_BODY_BYTES)
        return false;
    while (metrics_next(&body, &sample)) {
        if (strip_prefix(sample.name, "vllm", &name))
            read_vllm(&page, name, &sample);
        else if (strip_prefix(sample.name, "sglang", &name))
            read_sglang(&page, name, &sample);
    }
    if (page.engine == KV_REPORT_NONE)
        return false;
    if (page.request_tokens == 0)
        page.request_tokens = r->request_tokens;
    if (page.cache_tokens == 0 && page.engine == KV_REPORT_SGLANG)
        page.cache_tokens = r->cache_tokens;
    if (page.page_tokens == 0)
        page.page_tokens = r->page_tokens;
    *r = page;
    return true;
}

/* --- other pages in JSON --- */

bool kv_report_models(struct kv_report *r, struct span body)
{
    yyjson_doc *doc = read_json(body);
    yyjson_val *data = yyjson_obj_get(yyjson_doc_get_root(doc), "data"), *model;
    uint64_t least = 0, tokens;
    size_t i, max;

    yyjson_arr_foreach(data, i, max, model)
    {
        if (number_in(yyjson_obj_get(model, "max_model_len"), KV_TOKENS_MAX, &tokens))
            keep_least(&least, tokens);
    }
    yyjson_doc_free(doc);
    if (least == 0)
        return false;
    r->request_tokens = least;
    return true;
}

bool kv_report_server_info(struct kv_report *r, struct span body)
{
    yyjson_doc *doc = read_json(body);
    yyjson_val *root = yyjson_doc_get_root(doc);
    uint64_t tokens, longest, page;
    bool good = number_in(yyjson_obj_get(root, "max_total_num_tokens"), KV_TOKENS_MAX, &tokens);

    if (good) {
        r->engine = KV_REPORT_SGLANG;
        r->cache_tokens = tokens;
        if (number_in(yyjson_obj_get(root, "context_length"), KV_TOKENS_MAX, &longest))
            keep_least(&r->request_tokens, longest);
        if (number_in(yyjson_obj_get(root, "page_size"), KV_REPORT_PAGE_MAX, &page))
            r->page_tokens = page;
    }
    yyjson_doc_free(doc);
    return good;
}

bool kv_report_info(struct kv_report *r, struct span body)
{
    yyjson_doc *doc = read_json(body);
    yyjson_val *root = yyjson_doc_get_root(doc);
    uint64_t batch, request;
    bool good = number_in(yyjson_obj_get(root, "max_batch_total_tokens"), KV_TOKENS_MAX, &batch) &&
                number_in(yyjson_obj_get(root, "max_total_tokens"), KV_TOKENS_MAX, &request);

    if (good) {
        r->engine = KV_REPORT_TGI;
        r->cache_tokens = batch;
        r->request_tokens = request;
    }
    yyjson_doc_free(doc);
    return good;
}

/* `name` and `name:latest` are one model. */
static bool same_model(const char *a, const char *b)
{
    static const char latest[] = ":latest";
    size_t a_len = strlen(a), b_len = strlen(b), n = a_len < b_len ? a_len : b_len;

    if (strncmp(a, b, n) != 0)
        return false;
    return a_len == b_len || strcmp(a_len > b_len ? a + n : b + n, latest) == 0;
}

bool kv_report_ps(struct kv_report *r, struct span body, const char *model, uint32_t slots)
{
    yyjson_doc *doc = read_json(body);
    yyjson_val *models = yyjson_obj_get(yyjson_doc_get_root(doc), "models"), *one;
    uint64_t tokens = 0;
    size_t i, max;
    bool good = yyjson_is_arr(models), found = false;

    yyjson_arr_foreach(models, i, max, one)
    {
        const char *name = yyjson_get_str(yyjson_obj_get(one, "model"));

        if (model != NULL ? name == NULL || !same_model(name, model) : max != 1)
            continue;
        found = number_in(yyjson_obj_get(one, "context_length"), KV_TOKENS_MAX, &tokens);
        break;
    }
    if (good) {
        r->engine = KV_REPORT_OLLAMA;
        r->slots = slots <= KV_REPORT_SLOTS_MAX ? slots : 0;
        r->slot_tokens = found ? tokens : 0;
    }
    yyjson_doc_free(doc);
    return good;
}

/* --- what follows --- */

static bool shape_of_slots(const struct kv_report *r, struct kv_shape *ret)
{
    bool divided = r->engine == KV_REPORT_OLLAMA || r->unified == KV_REPORT_UNIFIED_NO;

    if (r->slots == 0 || r->slot_tokens == 0)
        return false;
    *ret = (struct kv_shape){
        .kind = divided || r->slots == 1 ? KV_KIND_SLOTS : KV_KIND_UNIFIED,
        .tokens = r->slot_tokens,
        .slots = r->slots,
        .request_tokens = r->slot_tokens,
    };
    if (divided)
        ret->tokens *= r->slots;
    else if (r->shared_tokens > ret->tokens)
        ret->tokens = r->shared_tokens; /* one slot is capped by the model, all together are not */
    return true;
}

static bool shape_of_pages(const struct kv_report *r, struct kv_shape *ret)
{
    uint64_t tokens = r->cache_tokens;

    if (tokens == 0 && r->engine == KV_REPORT_VLLM) {
        if (r->cache_pages == 0 || r->request_tokens == 0)
            return false;
        tokens = r->cache_pages * r->page_tokens;
    }
    /*
     * An engine does not start when its longest request does not fit: less than that is a figure
     * that means something else.
     */
    if (tokens == 0 || tokens > KV_TOKENS_MAX ||
        (r->engine != KV_REPORT_SGLANG && tokens < r->request_tokens))
        return false;
    *ret = (struct kv_shape){
        .kind = KV_KIND_PAGED,
        .tokens = tokens,
        .page_tokens = r->page_tokens <= tokens ? r->page_tokens : 0,
        .request_tokens = r->request_tokens,
    };
    return true;
}

bool kv_report_shape(const struct kv_report *r, struct kv_shape *ret_shape)
{
    struct kv_shape shape;
    bool known = false;

    switch (r->engine) {
    case KV_REPORT_NONE: break;
    case KV_REPORT_LLAMA_SERVER:
    case KV_REPORT_OLLAMA: known = shape_of_slots(r, &shape); break;
    case KV_REPORT_VLLM:
    case KV_REPORT_SGLANG:
    case KV_REPORT_TGI: known = shape_of_pages(r, &shape); break;
    }
    if (!known || shape.tokens > KV_TOKENS_MAX || (shape.slots > 0 && shape.slots > shape.tokens))
        return false;
    *ret_shape = shape;
    return true;
}

bool kv_report_used(const struct kv_report *r, const struct kv_shape *shape, uint64_t *ret_tokens)
{
    uint64_t page = shape->page_tokens > 1 ? shape->page_tokens : 1;

    if (!r->usage_known || r->usage_broken || shape->kind != KV_KIND_PAGED)
        return false;
    uint64_t used = (uint64_t)ceil(r->usage * (double)shape->tokens / (double)page) * page;
    *ret_tokens = used < shape->tokens ? used : shape->tokens;
    return true;
}
