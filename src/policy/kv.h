/*
 * The KV cache of a running worker, counted in tokens before a request reaches it, so that what is
 * admitted together can finish together. An engine that starts four long prompts into a cache for
 * three stops, swaps or recomputes in the middle of an answer.
 *
 *   SLOTS    the context is divided: tokens ÷ slots each, whatever the others do (llama-server's
 *            default)
 *   UNIFIED  one cache for all slots: each may use all of it, together no more
 *   PAGED    whole pages of page_tokens, no fixed slots; others may use pages too (external engines)
 *
 * A request takes its prompt and its whole output at the start: what it may need, not what it has
 * used. Pure; the table is the caller's.
 */
#ifndef FAILSOFT_POLICY_KV_H
#define FAILSOFT_POLICY_KV_H

#include <stdbool.h>
#include <stdint.h>

enum kv_kind {
    KV_KIND_SLOTS = 0,
    KV_KIND_UNIFIED,
    KV_KIND_PAGED,
};

/* More tokens than any context: a broken figure. Sums over a table cannot wrap. */
#define KV_TOKENS_MAX (UINT64_C(1) << 40)

struct kv_shape {
    enum kv_kind kind;
    uint64_t tokens;           /* of the whole cache */
    uint32_t slots;            /* 0: no fixed number (PAGED) */
    uint64_t page_tokens;      /* 0 or 1: counted in tokens */
    uint64_t watermark_tokens; /* PAGED: what the engine keeps back */
    uint64_t request_tokens;   /* longest single request the engine takes; 0: no own limit */
};

struct kv_claim {
    uint64_t generation;
    uint64_t tokens; /* rounded up to pages; 0: unused entry */
};

struct kv {
    struct kv_shape shape;
    struct kv_claim *claims;
    uint32_t capacity;
    uint32_t taken_count;
    uint64_t taken_tokens;
    uint64_t others_tokens; /* PAGED: in use by requests that are not ours */
};

/* claims: capacity (≤ 65536) entries, the caller's. 0, -ERANGE (no such cache). */
int kv_init(struct kv *kv, const struct kv_shape *shape, struct kv_claim *claims,
            uint32_t capacity);

/* The engine reports how much is in use altogether. Ours that has begun is in it, so only what is
 * beyond our claims is somebody else's; unknown figures are simply not reported. */
void kv_observe(struct kv *kv, uint64_t used_tokens);

/* The longest request that can ever run. */
uint64_t kv_request_max(const struct kv *kv);

/* The longest request that can start now; 0 without a free slot. */
uint64_t kv_free_tokens(const struct kv *kv);

/* 0; -ENOSPC: not now; -E2BIG: never; -ENOBUFS: the table is full. */
int kv_take(struct kv *kv, uint64_t tokens, uint64_t *ret_id);

/* 0, -ENOENT. */
int kv_give(struct kv *kv, uint64_t id);

#endif
