/* Tokens and pages of a worker's KV cache. See kv.h. */
#include "policy/kv.h"

#include "policy/claim_id.h"

#include <errno.h>
#include <string.h>

static uint64_t kv_page_tokens(const struct kv *kv)
{
    return kv->shape.page_tokens > 1 ? kv->shape.page_tokens : 1;
}

static uint64_t kv_round_up(const struct kv *kv, uint64_t tokens)
{
    uint64_t page = kv_page_tokens(kv);
    return (tokens + page - 1) / page * page;
}

static uint64_t kv_round_down(const struct kv *kv, uint64_t tokens)
{
    return tokens / kv_page_tokens(kv) * kv_page_tokens(kv);
}

int kv_init(struct kv *kv, const struct kv_shape *shape, struct kv_claim *claims, uint32_t capacity)
{
    bool fixed = shape->kind != KV_KIND_PAGED;
    if (shape->tokens == 0 || shape->tokens > KV_TOKENS_MAX || shape->page_tokens > shape->tokens ||
        (fixed && shape->slots == 0) || (fixed && shape->slots > shape->tokens))
        return -ERANGE;
    *kv = (struct kv){.shape = *shape, .claims = claims};
    kv->capacity = capacity < CLAIM_ID_CAPACITY_MAX ? capacity : CLAIM_ID_CAPACITY_MAX;
    memset(claims, 0, kv->capacity * sizeof(*claims));
    return 0;
}

void kv_observe(struct kv *kv, uint64_t used_tokens)
{
    if (used_tokens > kv->shape.tokens)
        used_tokens = kv->shape.tokens;
    kv->others_tokens = used_tokens > kv->taken_tokens ? used_tokens - kv->taken_tokens : 0;
}

uint64_t kv_request_max(const struct kv *kv)
{
    uint64_t max = kv_round_down(kv, kv->shape.tokens);
    if (kv->shape.kind == KV_KIND_SLOTS)
        max = kv_round_down(kv, kv->shape.tokens / kv->shape.slots);
    if (kv->shape.kind == KV_KIND_PAGED)
        max = kv->shape.watermark_tokens < kv->shape.tokens
                  ? kv_round_down(kv, kv->shape.tokens - kv->shape.watermark_tokens)
                  : 0;
    uint64_t own = kv->shape.request_tokens;
    return own > 0 && own < max ? own : max;
}

uint64_t kv_free_tokens(const struct kv *kv)
{
    uint64_t max = kv_request_max(kv);
    if (kv->shape.slots > 0 && kv->taken_count >= kv->shape.slots)
        return 0;
    if (kv->shape.kind == KV_KIND_SLOTS)
        return max;
    uint64_t away = kv->taken_tokens + kv->others_tokens;
    if (kv->shape.kind == KV_KIND_PAGED)
        away += kv->shape.watermark_tokens;
    uint64_t rest = away < kv->shape.tokens ? kv_round_down(kv, kv->shape.tokens - away) : 0;
    return rest < max ? rest : max;
}

int kv_take(struct kv *kv, uint64_t tokens, uint64_t *ret_id)
{
    if (tokens == 0)
        tokens = 1;
    if (tokens > kv_request_max(kv))
        return -E2BIG;
    if (tokens > kv_free_tokens(kv))
        return -ENOSPC;
    uint32_t index = 0;
    while (index < kv->capacity && kv->claims[index].tokens > 0)
        index++;
    if (index == kv->capacity)
        return -ENOBUFS;
    struct kv_claim *claim = &kv->claims[index];
    claim->generation++;
    claim->tokens = kv_round_up(kv, tokens);
    kv->taken_count++;
    kv->taken_tokens += claim->tokens;
    *ret_id = claim_id_make(index, claim->generation);
    return 0;
}

int kv_give(struct kv *kv, uint64_t id)
{
    uint32_t index = claim_id_index(id);
    if (index >= kv->capacity || kv->claims[index].tokens == 0 ||
        kv->claims[index].generation != claim_id_generation(id))
        return -ENOENT;
    kv->taken_count--;
    kv->taken_tokens -= kv->claims[index].tokens;
    kv->claims[index].tokens = 0;
    return 0;
}
