/* Which page of a worker counts the tokens of a prompt; see count_tokens.h. */
#include "worker/count_tokens.h"

#include "base/json_scan.h"
#include "policy/kv.h"

#include <string.h>

/* --- what to ask --- */

static bool takes_whole_body(enum api_operation operation)
{
    return operation == API_OPERATION_CHAT || operation == API_OPERATION_MESSAGES ||
           operation == API_OPERATION_RESPONSES;
}

/* The member that is the prompt; the second is an older name of it. NULL: not such an operation. */
static const char *prompt_member(enum api_operation operation, bool second)
{
    switch (operation) {
    case API_OPERATION_COMPLETIONS:
    case API_OPERATION_NATIVE_COMPLETION: return second ? NULL : "prompt";
    case API_OPERATION_EMBEDDINGS: return second ? NULL : "input";
    case API_OPERATION_NATIVE_EMBEDDING: return second ? "input" : "content";
    default: return NULL;
    }
}

/* Words of every dialect's parts that are not text. One that a user merely writes costs nothing but
 * the exact count. */
static bool names_media(struct span body)
{
    static const char *const words[] = {"image_url", "input_audio", "input_image", "input_file",
                                        "video_url", "audio_url",   "\"image\"",   "\"document\""};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (span_find(body, span_from_str(words[i])) >= 0)
            return true;
    }
    return false;
}

struct text_search {
    const char *name, *other;
    struct span text;
    unsigned found;
    bool broken; /* a key in disguise, or a value that is no text */
};

static void search_member(void *ctx, const struct json_member *m)
{
    struct text_search *s = ctx;

    if (m->key_has_escape)
        s->broken = true;
    if (!span_equals_str(m->key, s->name) &&
        (s->other == NULL || !span_equals_str(m->key, s->other)))
        return;
    s->found++;
    s->broken = s->broken || m->kind != JSON_KIND_STRING;
    s->text = m->value;
}

static bool find_text(enum api_operation operation, struct span body, struct span *ret_text)
{
    struct text_search s = {.name = prompt_member(operation, false),
                            .other = prompt_member(operation, true)};
    enum json_kind kind;

    if (s.name == NULL || body.len > COUNT_TOKENS_TEXT_BYTES ||
        json_scan(body, search_member, &s, &kind, NULL) < 0 || s.broken || s.found != 1)
        return false;
    *ret_text = s.text;
    return true;
}

static bool plan_llama(enum api_operation operation, const struct api_request *request,
                       struct count_tokens_plan *plan)
{
    if (takes_whole_body(operation)) {
        plan->path = operation == API_OPERATION_CHAT       ? "/v1/chat/completions/input_tokens"
                     : operation == API_OPERATION_MESSAGES ? "/v1/messages/count_tokens"
                                                           : "/v1/responses/input_tokens";
        plan->answer = COUNT_TOKENS_INPUT_TOKENS;
        return request->body.len <= COUNT_TOKENS_CHAT_BYTES && !names_media(request->body);
    }
    plan->path = "/tokenize";
    plan->member = "content";
    /* As the request itself will be: with the tokens that the model wants around a text. */
    plan->options = "\"add_special\":true,\"parse_special\":true";
    plan->answer = COUNT_TOKENS_LIST;
    return find_text(operation, request->body, &plan->text);
}

static bool plan_vllm(enum api_operation operation, const struct api_request *request,
                      struct count_tokens_plan *plan)
{
    plan->path = "/tokenize";
    plan->answer = COUNT_TOKENS_COUNT;
    if (operation == API_OPERATION_CHAT)
        return !request->has_tools && request->body.len <= COUNT_TOKENS_TEXT_BYTES &&
               !names_media(request->body);
    plan->member = "prompt";
    plan->name_model = true;
    return find_text(operation, request->body, &plan->text);
}

bool count_tokens_plan(enum worker_engine engine, enum kv_report_engine reported,
                       enum api_operation operation, const struct api_request *request,
                       struct count_tokens_plan *ret_plan)
{
    struct count_tokens_plan plan = {0};
    bool good = false;

    if (request->body_kind != API_BODY_JSON || request->body.len == 0)
        return false;
    if (!takes_whole_body(operation) && prompt_member(operation, false) == NULL)
        return false;
    if (engine == WORKER_ENGINE_LLAMA_SERVER)
        good = plan_llama(operation, request, &plan);
    else if (engine == WORKER_ENGINE_OPENAI && reported == KV_REPORT_VLLM)
        good = plan_vllm(operation, request, &plan);
    if (good)
        *ret_plan = plan;
    return good;
}

/* Stands between quotes as it is. */
static bool is_plain(const char *model)
{
    for (const char *c = model; *c; c++) {
        if ((unsigned char)*c < 0x20 || *c == '"' || *c == '\\')
            return false;
    }
    return true;
}

unsigned count_tokens_body(const struct count_tokens_plan *plan, const char *model,
                           struct span parts[COUNT_TOKENS_PARTS])
{
    static const struct span contents = {"{\"content\":", 11}, prompt = {"{\"prompt\":", 10};
    unsigned n = 0;

    parts[n++] = strcmp(plan->member, "content") == 0 ? contents : prompt;
    parts[n++] = plan->text;
    if (plan->options != NULL) {
        parts[n++] = SPAN_LIT(",");
        parts[n++] = span_from_str(plan->options);
    }
    if (plan->name_model && model != NULL && is_plain(model)) {
        parts[n++] = SPAN_LIT(",\"model\":\"");
        parts[n++] = span_from_str(model);
        parts[n++] = SPAN_LIT("\"}");
    } else {
        parts[n++] = SPAN_LIT("}");
    }
    return n;
}

/* --- what is answered --- */

struct answer_search {
    const char *name;
    struct span value;
    enum json_kind kind;
};

static void answer_member(void *ctx, const struct json_member *m)
{
    struct answer_search *s = ctx;

    if (!span_equals_str(m->key, s->name))
        return;
    s->value = m->value;
    s->kind = m->kind;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool read_number(struct span s, uint64_t *ret)
{
    uint64_t value = 0;

    if (s.len == 0 || s.len > 13)
        return false;
    for (size_t i = 0; i < s.len; i++) {
        if (!is_digit(s.ptr[i]))
            return false;
        value = value * 10 + (uint64_t)(s.ptr[i] - '0');
    }
    *ret = value;
    return true;
}

/* Elements of an array that is known to be valid JSON. False: some are not token ids. */
static bool count_ids(struct span s, uint64_t *ret)
{
    uint64_t count = 0;

    for (size_t i = 1; i + 1 < s.len; i++) {
        if (is_digit(s.ptr[i]) && !is_digit(s.ptr[i - 1]))
            count++;
        else if (!is_digit(s.ptr[i]) && strchr(", \t\r\n", s.ptr[i]) == NULL)
            return false;
    }
    *ret = count;
    return true;
}

bool count_tokens_read(const struct count_tokens_plan *plan, struct span answer,
                       uint64_t *ret_tokens)
{
    static const char *const names[] = {
        [COUNT_TOKENS_INPUT_TOKENS] = "input_tokens",
        [COUNT_TOKENS_LIST] = "tokens",
        [COUNT_TOKENS_COUNT] = "count",
    };
    struct answer_search s = {.name = names[plan->answer]};
    uint64_t tokens = 0;
    enum json_kind kind;
    bool good;

    if (answer.len > COUNT_TOKENS_ANSWER_BYTES ||
        json_scan(answer, answer_member, &s, &kind, NULL) < 0)
        return false;
    if (plan->answer == COUNT_TOKENS_LIST)
        good = s.kind == JSON_KIND_ARRAY && count_ids(s.value, &tokens);
    else
        good = s.kind == JSON_KIND_NUMBER && read_number(s.value, &tokens);
    /* None at all: a server that read another member than the one it was sent. */
    if (!good || tokens == 0 || tokens > KV_TOKENS_MAX)
        return false;
    *ret_tokens = tokens;
    return true;
}
