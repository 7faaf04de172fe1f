/*
 * How to ask a worker's own tokenizer what a prompt comes to: which of its pages, with what body, and
 * what the answer means. Only where the answer is exact and costs little; for everything else there
 * is the bound by bytes.
 *
 *   llama-server  POST /v1/chat/completions/input_tokens, /v1/messages/count_tokens,
 *                 /v1/responses/input_tokens: the request's own body → {"input_tokens":31,…};
 *                 POST /tokenize {"content":"…","add_special":true} → {"tokens":[19556,905]}
 *                 (v0.4.0, tools/server/server-context.cpp; seen to equal `usage.prompt_tokens`)
 *   vLLM          POST /tokenize, the request's own body or {"prompt":"…"} →
 *                 {"count":2,"max_model_len":4096,"tokens":[…]} (entrypoints/serve/tokenize,
 *                 classes TokenizeChatRequest and TokenizeCompletionRequest)
 *
 * Not asked: bodies with pictures or sound (llama-server would fetch and decode them), several prompts
 * in one request, prompts that are token ids, and on vLLM chats with tools, which older versions leave
 * out of the count.
 *
 * Pure. Spans point into the request's body.
 */
#ifndef FAILSOFT_WORKER_COUNT_TOKENS_H
#define FAILSOFT_WORKER_COUNT_TOKENS_H

#include "api/request.h"
#include "api/route.h"
#include "base/span.h"
#include "worker/kv_report.h"
#include "worker/options.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    COUNT_TOKENS_CHAT_BYTES = 1024 * 1024,   /* a larger body is not asked about */
    COUNT_TOKENS_TEXT_BYTES = 256 * 1024,    /* … one whose tokens come back one by one */
    COUNT_TOKENS_ANSWER_BYTES = 1024 * 1024, /* of an answer */
    COUNT_TOKENS_PARTS = 8,
};

enum count_tokens_answer {
    COUNT_TOKENS_INPUT_TOKENS = 0, /* member input_tokens */
    COUNT_TOKENS_LIST,             /* as many as `tokens` has */
    COUNT_TOKENS_COUNT,            /* member count */
};

struct count_tokens_plan {
    const char *path;    /* after the base URL, without its /v1 */
    const char *member;  /* of the body that is made: what the text is called; NULL: the body of the
                            request is sent, with the worker's own name of the model */
    const char *options; /* further members of the body that is made */
    bool name_model;     /* the body that is made names the model, where the worker has a name */
    struct span text;    /* raw JSON string */
    enum count_tokens_answer answer;
};

/* `reported`: what kind of engine its pages show it to be. False: there is nothing to ask. */
bool count_tokens_plan(enum worker_engine engine, enum kv_report_engine reported,
                       enum api_operation operation, const struct api_request *request,
                       struct count_tokens_plan *ret_plan);

/* The body that is made (plan->member is set), as parts; returns how many. `model`: the worker's name
 * of it, or NULL; left out when it would need escapes. Must outlive the parts. */
unsigned count_tokens_body(const struct count_tokens_plan *plan, const char *model,
                           struct span parts[COUNT_TOKENS_PARTS]);

/* Tokens by the answer with status 200. False: it does not say, or says none. */
bool count_tokens_read(const struct count_tokens_plan *plan, struct span answer,
                       uint64_t *ret_tokens);

#endif
