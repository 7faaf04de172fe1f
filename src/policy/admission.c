/*
 * One tier at a time: may it, can it ever, is the memory there, are the tokens there. The first
 * obstacle is the tier's finding; the findings make the decision. See admission.h.
 */
#include "policy/admission.h"

#include "policy/admission_internal.h"

enum {
    OUTPUT_TOKENS_MIN = 16,
    CONTEXT_TOKENS_MIN = 4096,
    CONTEXT_TOKENS_STEP = 256, /* engines pad to it */
    RETRY_AFTER_MS = 5000,
};

static uint64_t add_or_max(uint64_t a, uint64_t b)
{
    uint64_t sum = 0;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

static uint64_t or_default(uint64_t value, uint64_t otherwise)
{
    return value > 0 ? value : otherwise;
}

static uint64_t at_least_zero(int64_t bytes)
{
    return bytes > 0 ? (uint64_t)bytes : 0;
}

static uint64_t admission_tokens(const struct admission_facts *facts,
                                 const struct admission_tier *tier)
{
    return add_or_max(facts->prompt_tokens,
                      or_default(tier->kv_output_tokens, facts->output_tokens));
}

static bool admission_is_nonsense(const struct admission_amount *amount)
{
    return amount->upper > LEDGER_BYTES_MAX || amount->value > amount->upper;
}

static bool admission_pool_trusted(const struct admission_facts *facts,
                                   const struct ledger_view *pool)
{
    if (pool->trust == LEDGER_TRUST_FRESH)
        return true;
    /* Stale is not vouched for by anyone: a device that has telemetry is expected to tell. */
    return facts->trust_claims_alone && pool->trust != LEDGER_TRUST_STALE;
}

/* What may be admitted; 0 where nothing may. */
static uint64_t admission_room(const struct ledger_view *pool)
{
    /* Only reached for trusted pools: one that is not fresh is trusted for its claims alone. */
    return at_least_zero(pool->trust == LEDGER_TRUST_FRESH ? pool->admissible_bytes
                                                           : pool->headroom_bytes);
}

/* May the tier be looked at for this request at all? */
static bool finding_permitted(const struct admission_facts *facts,
                              const struct admission_tier *tier, struct finding *f)
{
    f->verdict = FINDING_NOT_NOW;
    if (tier->excluded) {
        f->why = FINDING_WHY_EXCLUDED;
        return false;
    }
    bool unwanted =
        (facts->accept == ADMISSION_ACCEPT_GPU_ONLY && tier->kind != ADMISSION_TIER_GPU) ||
        (facts->accept == ADMISSION_ACCEPT_SAME_MODEL && tier->kind == ADMISSION_TIER_SUBSTITUTE);
    if (unwanted || (facts->cpu_denied && tier->kind == ADMISSION_TIER_CPU)) {
        f->why = unwanted ? FINDING_WHY_CLIENT : FINDING_WHY_SERVICE;
        f->verdict = FINDING_NEVER;
        return false;
    }
    if (admission_is_nonsense(&tier->device_bytes) || admission_is_nonsense(&tier->host_bytes)) {
        f->why = FINDING_WHY_NONSENSE;
        f->need = admission_is_nonsense(&tier->device_bytes) ? tier->device_bytes.upper
                                                             : tier->host_bytes.upper;
        f->verdict = FINDING_NEVER;
        return false;
    }
    if (tier->unfit && !tier->loaded) {
        f->why = FINDING_WHY_UNFIT;
        f->verdict = FINDING_NEVER;
        return false;
    }
    return true;
}

/* The state of the device or the host, whatever the sizes. */
static bool finding_device_open(const struct admission_tier *tier, struct finding *f)
{
    f->pool = tier->device ? tier->device : tier->host;
    if (tier->held_back_ms > 0) {
        f->why = FINDING_WHY_HELD_BACK;
        f->verdict = FINDING_LATER;
        f->wait_ms = tier->held_back_ms;
        return false;
    }
    bool adds = !tier->loaded || tier->may_grow ||
                (tier->device ? tier->device_bytes.upper : tier->host_bytes.upper) > 0;
    if (f->pool && (tier->pressure == PRESSURE_LEVEL_CRITICAL ||
                    (tier->pressure == PRESSURE_LEVEL_HIGH && adds))) {
        f->why = FINDING_WHY_PRESSURE;
        f->verdict = FINDING_NOT_NOW;
        return false;
    }
    uint64_t largest = tier->device ? tier->device->largest_bytes : 0;
    if (largest > 0 && tier->largest_block_bytes > largest) {
        f->why = FINDING_WHY_BLOCK;
        f->verdict = FINDING_NEVER;
        f->need = tier->largest_block_bytes;
        f->room = largest;
        return false;
    }
    return true;
}

/* The longest context whose load fits, in steps that engines know; 0: none that is allowed. */
static uint64_t admission_fitting_context(const struct admission_facts *facts,
                                          const struct admission_tier *tier, uint64_t short_bytes)
{
    uint64_t per_token = tier->bytes_per_context_token;
    uint64_t of_context = 0;
    /* A context that is larger than the load it is part of: nothing can be said. */
    if (tier->loaded || per_token == 0 ||
        __builtin_mul_overflow(per_token, tier->context_tokens, &of_context) ||
        of_context > tier->device_bytes.upper)
        return 0;
    uint64_t fewer = short_bytes / per_token + (short_bytes % per_token > 0 ? 1 : 0);
    if (fewer >= tier->context_tokens)
        return 0;
    uint64_t context = (tier->context_tokens - fewer) / CONTEXT_TOKENS_STEP * CONTEXT_TOKENS_STEP;
    uint64_t least = or_default(facts->context_tokens_min, CONTEXT_TOKENS_MIN);
    return context >= least ? context : 0;
}

/* Not enough memory: is it on its way back, would a shorter context do, would the reserve do? */
static void finding_lacks_memory(const struct admission_facts *facts,
                                 const struct admission_tier *tier, struct finding *f)
{
    const struct ledger_view *pool = f->pool;
    uint64_t missing = f->need - f->room;
    f->why = FINDING_WHY_MEMORY;
    uint64_t ever =
        pool->total_bytes > pool->reserve_bytes ? pool->total_bytes - pool->reserve_bytes : 0;
    f->verdict = f->need > ever ? FINDING_NEVER : FINDING_NOT_NOW;
    if (pool == tier->device) {
        f->fit_context = admission_fitting_context(facts, tier, missing);
        uint64_t slots = or_default(tier->context_slots, 1);
        if (facts->may_shrink_context && f->fit_context > 0 &&
            f->fit_context / slots >= admission_tokens(facts, tier)) {
            f->verdict = FINDING_SHRINKS;
            f->context_tokens = f->fit_context;
        }
    }
    if (missing <= pool->reserve_bytes)
        f->margin_bytes = missing;
    if (f->need <= ever && pool->releasing_bytes >= missing) {
        f->wait_ms = or_default(tier->memory_back_ms, pool->return_in_ms);
        /* Waiting gives all that was asked for; where it would take too long, shrinking is next. */
        if (facts->delay_max_ms >= add_or_max(facts->delayed_ms, f->wait_ms) ||
            f->verdict != FINDING_SHRINKS)
            f->verdict = FINDING_LATER;
    }
}

static bool finding_pool_fits(const struct admission_facts *facts,
                              const struct admission_tier *tier, const struct ledger_view *pool,
                              uint64_t need, struct finding *f)
{
    if (need == 0)
        return true;
    f->pool = pool;
    f->need = need;
    if (!pool || !admission_pool_trusted(facts, pool)) {
        f->why = FINDING_WHY_UNKNOWN;
        f->verdict = FINDING_NOT_NOW;
        return false;
    }
    f->room = admission_room(pool);
    if (need <= f->room)
        return true;
    finding_lacks_memory(facts, tier, f);
    return false;
}

static bool finding_memory_fits(const struct admission_facts *facts,
                                const struct admission_tier *tier, struct finding *f)
{
    uint64_t device = tier->device_bytes.upper;
    uint64_t host = tier->host_bytes.upper;
    bool one_pool = tier->device && tier->device == tier->host;
    bool fits = finding_pool_fits(facts, tier, tier->device, one_pool ? device + host : device, f);
    if (!fits && f->verdict != FINDING_SHRINKS)
        return false;
    /* A shorter context helps the device only. */
    struct finding on_host = {0};
    if (!one_pool && !finding_pool_fits(facts, tier, tier->host, host, &on_host)) {
        *f = on_host;
        return false;
    }
    if (!tier->loaded && tier->load_wait_ms > 0) {
        /* There is room beside the load in progress, but loads go one at a time. */
        *f = (struct finding){.why = FINDING_WHY_LOADING,
                              .verdict = FINDING_LATER,
                              .pool = tier->device ? tier->device : tier->host,
                              .wait_ms = tier->load_wait_ms};
        return false;
    }
    return fits;
}

/* Fewer output tokens into `room` tokens, where that is allowed and leaves enough. */
static bool finding_shrink_output(const struct admission_facts *facts, uint64_t room,
                                  struct finding *f)
{
    uint64_t least = or_default(facts->output_tokens_min, OUTPUT_TOKENS_MIN);
    if (!facts->may_shrink_output || room < facts->prompt_tokens ||
        room - facts->prompt_tokens < least)
        return false;
    f->verdict = FINDING_SHRINKS;
    f->max_tokens = room - facts->prompt_tokens;
    return true;
}

static bool finding_tokens_fit(const struct admission_facts *facts,
                               const struct admission_tier *tier, struct finding *f)
{
    f->need = admission_tokens(facts, tier);
    f->pool = NULL;
    if (tier->kv_request_max > 0 && f->need > tier->kv_request_max) {
        f->why = FINDING_WHY_CONTEXT;
        f->verdict = FINDING_NEVER;
        f->room = tier->kv_request_max;
        f->fit_tokens = tier->kv_request_max;
        /* What fits at the end must also fit now. */
        bool now = !tier->loaded || tier->kv_free_tokens >= tier->kv_request_max;
        if (now)
            finding_shrink_output(facts, tier->kv_request_max, f);
        return false;
    }
    if (!tier->loaded || tier->kv_request_max == 0 || f->need <= tier->kv_free_tokens)
        return true;
    f->why = FINDING_WHY_KV;
    f->room = tier->kv_free_tokens;
    f->fit_tokens = tier->kv_free_tokens;
    f->wait_ms = tier->kv_free_in_ms;
    bool soon = f->wait_ms > 0 && facts->delay_max_ms >= add_or_max(facts->delayed_ms, f->wait_ms);
    f->verdict = f->wait_ms > 0 ? FINDING_LATER : FINDING_NOT_NOW;
    if (!soon)
        finding_shrink_output(facts, tier->kv_free_tokens, f);
    return false;
}

static struct finding admission_look(const struct admission_facts *facts,
                                     const struct admission_tier *tier)
{
    struct finding f = {0};
    if (!finding_permitted(facts, tier, &f) || !finding_device_open(tier, &f))
        return f;
    /* Tokens that can never fit are found before memory that does not fit now, but an output that
     * shrinks is no use where the memory is missing. */
    struct finding tokens = {0};
    bool tokens_fit = finding_tokens_fit(facts, tier, &tokens);
    if (!tokens_fit && tokens.verdict == FINDING_NEVER)
        return tokens;
    if (!finding_memory_fits(facts, tier, &f)) {
        if (f.verdict == FINDING_SHRINKS)
            f.max_tokens = tokens.max_tokens;
        return f;
    }
    return tokens_fit ? (struct finding){0} : tokens;
}

static enum admission_action admission_action_for(const struct admission_facts *facts, size_t index)
{
    if (index == 0)
        return ADMISSION_ACTION_ADMIT;
    return facts->tiers[index].kind == ADMISSION_TIER_HYBRID ? ADMISSION_ACTION_OFFLOAD
                                                             : ADMISSION_ACTION_ROUTE;
}

/* Not to be had for this request, whatever its size. */
static bool finding_is_of_no_size(const struct finding *f)
{
    return f->why == FINDING_WHY_EXCLUDED || f->why == FINDING_WHY_CLIENT ||
           f->why == FINDING_WHY_SERVICE;
}

/* Takes what is told about a tier that was passed over into a later refusal. */
static void admission_remember(struct admission_decision *d, const struct finding *f, bool first)
{
    if (!finding_is_of_no_size(f))
        d->too_long = f->why == FINDING_WHY_CONTEXT && (first || d->too_long);
    if (first && !finding_is_of_no_size(f)) {
        d->would_fit_context = f->fit_context;
        d->would_fit_tokens = f->fit_tokens;
        d->margin_bytes = f->margin_bytes;
        if (f->why == FINDING_WHY_MEMORY || f->why == FINDING_WHY_BLOCK)
            d->short_bytes = f->need - f->room;
    }
    if (f->wait_ms > 0 && (d->retry_after_ms == 0 || f->wait_ms < d->retry_after_ms))
        d->retry_after_ms = f->wait_ms;
    if (f->verdict != FINDING_NEVER)
        d->permanent = false;
    if (f->why == FINDING_WHY_NONSENSE)
        d->nonsense = true;
}

static bool admission_waits(const struct admission_facts *facts, const struct finding *f)
{
    return f->verdict == FINDING_LATER &&
           facts->delay_max_ms >= add_or_max(facts->delayed_ms, f->wait_ms);
}

static void admission_refuse_nonsense(const struct admission_facts *facts,
                                      struct admission_decision *d, struct text *reason)
{
    d->nonsense = true;
    text_add_u64(reason, facts->prompt_tokens);
    text_add(reason, " prompt and ");
    text_add_u64(reason, facts->output_tokens);
    text_add(reason, " output tokens: not a size; the limit is ");
    text_add_u64(reason, ADMISSION_TOKENS_MAX);
}

struct admission_decision admission_decide(const struct admission_facts *facts)
{
    struct admission_decision d = {.action = ADMISSION_ACTION_REFUSE, .permanent = true};
    struct text reason;
    text_init(&reason, d.reason, sizeof(d.reason));
    if (facts->prompt_tokens > ADMISSION_TOKENS_MAX ||
        facts->output_tokens > ADMISSION_TOKENS_MAX) {
        admission_refuse_nonsense(facts, &d, &reason);
        return d;
    }
    if (facts->tier_count == 0)
        text_add(&reason, "no tier is configured");
    bool first = true;
    for (size_t i = 0; i < facts->tier_count; i++) {
        const struct admission_tier *tier = &facts->tiers[i];
        struct finding f = admission_look(facts, tier);
        if (i > 0)
            text_add(&reason, "; ");
        text_add(&reason, tier->name);
        text_add(&reason, ": ");
        uint16_t start = (uint16_t)reason.len;
        bool waits = admission_waits(facts, &f);
        if (f.verdict == FINDING_FITS) {
            admission_say_taken(&reason, tier);
            d.action = admission_action_for(facts, i);
        } else {
            admission_say_finding(&reason, tier, &f, i == 0);
            admission_remember(&d, &f, first);
            first = first && finding_is_of_no_size(&f);
        }
        if (i < ADMISSION_SAID_MAX) {
            d.said[i].start = start;
            d.said[i].end = (uint16_t)reason.len;
        }
        if (f.verdict != FINDING_FITS && f.verdict != FINDING_SHRINKS && !waits)
            continue;
        d.tier = i;
        d.permanent = d.nonsense = d.too_long = false;
        d.retry_after_ms = 0;
        if (f.verdict == FINDING_SHRINKS) {
            d.action = ADMISSION_ACTION_SHRINK;
            d.max_tokens = f.max_tokens;
            d.context_tokens = f.context_tokens;
        }
        if (waits) {
            d.action = ADMISSION_ACTION_DELAY;
            d.delay_ms = f.wait_ms;
        }
        return d;
    }
    if (d.permanent)
        d.retry_after_ms = 0;
    else if (d.retry_after_ms == 0)
        d.retry_after_ms = or_default(facts->retry_after_ms, RETRY_AFTER_MS);
    if (!d.permanent)
        d.nonsense = false;
    return d;
}

const char *admission_action_name(enum admission_action action)
{
    static const char *const names[] = {"admit", "delay", "shrink", "offload", "route", "refuse"};
    return (unsigned)action < sizeof(names) / sizeof(names[0]) ? names[action] : "?";
}
