/*
 * From a request and its service's tiers, as they are at this moment, to the facts of a decision
 * (policy/admission), and from the decision to what is held while the attempt runs.
 *
 * The prompt's length is an upper bound from the bytes of the body until a worker has counted it,
 * which is asked for only where it would change the decision. Where nobody can count, a request is
 * refused for its length only when even a low guess of its tokens does not fit.
 *
 * Loop thread only.
 */
#include "gateway/admit.h"

#include "gateway/decisions.h"
#include "gateway/devices.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    ADMIT_WHY_BYTES = 320,
    /*
     * What a chat template adds to a message, and once more around them all. Templates are not run
     * here; those that models come with stay below it, system texts of their own included. One that
     * does not costs a request that the engine turns away by itself, as too long.
     */
    ADMIT_TEMPLATE_BYTES = 512,
    /* Drivers give memory back within this, mostly; some take several times as long. */
    ADMIT_RETURN_MS = 2000,
    /* No tokenizer makes a token of more bytes on average, save for long runs of one character. */
    ADMIT_LOW_GUESS_BYTES = 16,
};

static enum admission_tier_kind kind_of(int config_kind)
{
    switch (config_kind) {
    case CONFIG_TIER_KIND_GPU: return ADMISSION_TIER_GPU;
    case CONFIG_TIER_KIND_HYBRID: return ADMISSION_TIER_HYBRID;
    case CONFIG_TIER_KIND_SUBSTITUTE: return ADMISSION_TIER_SUBSTITUTE;
    case CONFIG_TIER_KIND_REMOTE: return ADMISSION_TIER_REMOTE;
    default: return ADMISSION_TIER_CPU;
    }
}

static enum admission_accept accept_of(const struct gateway_request *r)
{
    switch (r->accept) {
    case REQUEST_ACCEPT_SAME_MODEL: return ADMISSION_ACCEPT_SAME_MODEL;
    case REQUEST_ACCEPT_GPU_ONLY: return ADMISSION_ACCEPT_GPU_ONLY;
    default: return ADMISSION_ACCEPT_ANY;
    }
}

/* --- sizes of the request --- */

static bool has_tokens(const struct gateway_request *r)
{
    return r->service->config->kind == CONFIG_SERVICE_KIND_CHAT ||
           r->service->config->kind == CONFIG_SERVICE_KIND_EMBEDDINGS;
}

/* Pictures and sound become tokens that nobody counts for us: the length is not known then. */
static bool length_is_open(const struct gateway_request *r)
{
    return r->demand.images > 0 || r->demand.audio_parts > 0;
}

static enum learning_use use_of(const struct gateway_request *r)
{
    return length_is_open(r) ? LEARNING_USE_IMAGE : LEARNING_USE_TEXT;
}

/* Bytes of the text that has to fit into one context: texts of a batch are read one by one. */
static uint64_t prompt_bytes(const struct gateway_request *r)
{
    return r->demand.inputs > 0 ? r->demand.longest_input_bytes : r->demand.prompt_bytes;
}

/* What the engine's buffers grow with; never 0, so that a worker which has answered nothing may grow. */
static uint64_t size_of(const struct gateway_request *r)
{
    return r->demand.prompt_bytes + r->demand.images + 1;
}

static uint64_t prompt_upper(const struct gateway_request *r)
{
    if (r->prompt_exact)
        return r->prompt_tokens;
    struct api_demand one = r->demand;
    one.prompt_bytes = prompt_bytes(r);
    return api_demand_prompt_tokens_upper(&one, ADMIT_TEMPLATE_BYTES);
}

static uint64_t output_wanted(const struct gateway_request *r)
{
    if (!api_operation_generates(r->route.operation))
        return 0;
    return r->demand.output_given ? r->demand.output_tokens
                                  : r->service->config->assumed_output_tokens;
}

/* The longest request that the tier can ever run; 0: nothing limits it that we know of. */
static uint64_t request_max(const struct gateway_tier *tier)
{
    const struct gateway_worker *w = tier->worker;
    uint64_t most = w->kv_known ? kv_request_max(&w->kv) : 0;
    uint64_t own = tier->config->request_tokens;
    if (own > 0 && (most == 0 || own < most))
        return own;
    return most;
}

/* Its slots share one cache: what one takes, another lacks. */
static bool shares_cache(const struct gateway_worker *w)
{
    return w->kv_known && w->kv.shape.kind != KV_KIND_SLOTS;
}

/*
 * What counts as the answer's length on this tier. llama-server and Ollama end an answer at the end of
 * the context by themselves, so no more counts than there is room for. Where a request has a cache of
 * its own, no more counts than is assumed of everybody: a client that asks for more than it needs must
 * not lose its fast tier for that.
 */
static uint64_t output_on(const struct gateway_request *r, const struct gateway_tier *tier,
                          uint64_t prompt)
{
    uint64_t output = output_wanted(r);
    const struct gateway_worker *w = tier->worker;
    uint64_t most = request_max(tier);
    if (!shares_cache(w) && output > r->service->config->assumed_output_tokens)
        output = r->service->config->assumed_output_tokens;
    bool ends_itself = !w->kv_known || w->kv.shape.kind != KV_KIND_PAGED;
    if (ends_itself && most > prompt && output > most - prompt)
        output = most - prompt;
    return output;
}

/* What the request takes of the cache: never more than the tier can give a single one. */
static uint64_t kv_tokens(const struct gateway_request *r, const struct gateway_tier *tier)
{
    uint64_t most = request_max(tier);
    uint64_t prompt = prompt_upper(r);
    uint64_t need = length_is_open(r) ? most : prompt + output_on(r, tier, prompt);
    return most > 0 && need > most ? most : need;
}

/* --- facts --- */

struct admit_room {
    struct admission_tier tiers[GATEWAY_MAX_TIERS];
    struct ledger_view devices[GATEWAY_MAX_TIERS];
    struct ledger_view host;
    char why[GATEWAY_MAX_TIERS][ADMIT_WHY_BYTES];
};

/* Starts or comes back as planned, and only the memory of others keeps it: that may be waited for. */
static bool waits_for_memory(const struct gateway_worker *w)
{
    return w->worker && !w->yielded && w->load_ms > 0 && worker_is_managed(w->worker) &&
           worker_get_state(w->worker) == WORKER_STATE_STARTING &&
           availability_ask(&w->availability, uv_now(w->gateway->loop)) == AVAILABILITY_VERDICT_YES;
}

static void exclude(struct admission_tier *t, const char *why)
{
    t->excluded = true;
    t->excluded_why = why;
}

static void look_at_device(const struct gateway_request *r, const struct gateway_worker *w,
                           struct admission_tier *t, struct ledger_view *view)
{
    struct gateway_device *d = w->on;
    /* What an external worker uses is foreign to the ledger: its own use must not speak against it. */
    if (!d || !worker_is_managed(w->worker))
        return;
    *view = ledger_view(&device_pool(d)->ledger, uv_now(r->gateway->loop));
    t->device = view;
    t->pressure = device_pressure(d);
    if (!t->loaded) {
        t->device_bytes = (struct admission_amount){w->predicted_bytes, w->predicted_bytes};
        uint64_t back_ms = view->return_in_ms;
        t->memory_back_ms = w->load_ms + (back_ms < ADMIT_RETURN_MS ? back_ms : ADMIT_RETURN_MS);
        return;
    }
    enum learning_use use = use_of(r);
    uint64_t grows = learned_request_bytes(w, use);
    t->device_bytes = (struct admission_amount){grows, grows};
    t->may_grow = w->answered_bytes[use] < size_of(r);
}

/* A worker on the machine itself: under critical pressure there it is given nothing new (F124). */
static void look_at_host(const struct gateway_request *r, const struct gateway_worker *w,
                         struct admission_tier *t, struct ledger_view *view)
{
    if (w->device[0] != '\0' || !worker_is_managed(w->worker) || !t->loaded)
        return;
    devices_host_view(r->gateway, view);
    t->host = view;
    t->pressure = devices_host_pressure(r->gateway);
}

static void look_at_tier(const struct gateway_request *r, unsigned i, uint32_t passed,
                         struct admit_room *room)
{
    const struct gateway_tier *tier = &r->service->tiers[i];
    const struct gateway_worker *w = tier->worker;
    struct admission_tier *t = &room->tiers[i];
    *t = (struct admission_tier){.name = tier->config->name, .kind = kind_of(tier->config->kind)};
    if ((r->excluded | passed) & (1U << i)) {
        exclude(t, r->tier_reasons[i]);
        return;
    }
    if (!tier_speaks(r, i)) {
        exclude(t, "does not speak this API");
        return;
    }
    t->loaded = gateway_worker_may_serve(w);
    if (!t->loaded && !waits_for_memory(w)) {
        gateway_worker_explain(w, room->why[i], sizeof(room->why[i]));
        exclude(t, room->why[i]);
        return;
    }
    look_at_device(r, w, t, &room->devices[i]);
    look_at_host(r, w, t, &room->host);
    if (!has_tokens(r))
        return;
    t->kv_request_max = request_max(tier);
    /* Room of the moment is waited for like a slot: see admit_has_kv_room(). */
    t->kv_free_tokens = t->kv_request_max;
}

static void fill_facts(const struct gateway_request *r, uint32_t passed, struct admit_room *room,
                       struct admission_facts *facts)
{
    const struct config_service *s = r->service->config;
    uint64_t now_ms = uv_now(r->gateway->loop);
    *facts = (struct admission_facts){
        .tiers = room->tiers,
        .tier_count = r->service->tier_count,
        .accept = accept_of(r),
        .cpu_denied = s->cpu == CONFIG_CPU_DENY,
        .may_shrink_output = s->shrink == CONFIG_SHRINK_OUTPUT || s->shrink == CONFIG_SHRINK_BOTH,
        .trust_claims_alone =
            true, /* only devices that their owner vouches for are without a source */
        .delay_max_ms = s->memory_wait_ms,
        .delayed_ms = r->delay_since_ms > 0 ? now_ms - r->delay_since_ms : 0,
    };
    for (unsigned i = 0; i < r->service->tier_count; i++)
        look_at_tier(r, i, passed, room);
}

static void set_length(const struct gateway_request *r, uint64_t prompt,
                       struct admission_facts *facts, struct admit_room *room)
{
    facts->prompt_tokens = prompt < ADMISSION_TOKENS_MAX ? prompt : ADMISSION_TOKENS_MAX;
    facts->output_tokens = output_wanted(r);
    for (unsigned i = 0; i < r->service->tier_count; i++) {
        uint64_t output = output_on(r, &r->service->tiers[i], prompt);
        room->tiers[i].kv_output_tokens = output;
        /* 0 means "as asked"; an answer always has a first token. */
        if (output == 0 && facts->output_tokens > 0)
            room->tiers[i].kv_output_tokens = 1;
    }
}

bool admit_weighs(const struct gateway_request *r)
{
    if (!r->gateway->admission)
        return false;
    if (r->service->config->cpu == CONFIG_CPU_DENY)
        return true;
    for (unsigned i = 0; i < r->service->tier_count; i++) {
        const struct gateway_tier *tier = &r->service->tiers[i];
        if (tier->config->managed || tier->worker->kv_known || tier->config->request_tokens > 0)
            return true;
    }
    return false;
}

static void note_reasons(struct gateway_request *r, const struct admission_decision *d)
{
    char text[ADMISSION_REASON_MAX];
    for (unsigned i = 0; i < r->service->tier_count && i < ADMISSION_SAID_MAX; i++) {
        size_t len = (size_t)(d->said[i].end - d->said[i].start);
        bool taken = d->action != ADMISSION_ACTION_REFUSE && i >= d->tier &&
                     d->action != ADMISSION_ACTION_SHRINK;
        if (len == 0 || taken)
            continue;
        memcpy(text, d->reason + d->said[i].start, len);
        text[len] = '\0';
        request_note_tier(r, i, text);
    }
}

void admit_decide(struct gateway_request *r, uint32_t passed, struct admission_decision *ret)
{
    struct admit_room room;
    struct admission_facts facts;
    fill_facts(r, passed, &room, &facts);
    uint64_t upper = has_tokens(r) && !length_is_open(r) ? prompt_upper(r) : 0;
    set_length(r, upper, &facts, &room);
    *ret = admission_decide(&facts);
    if (ret->too_long && !r->prompt_exact) {
        /* By the bound alone. What surely does not fit is refused here, the rest is the engine's to say. */
        set_length(r, prompt_bytes(r) / ADMIT_LOW_GUESS_BYTES, &facts, &room);
        *ret = admission_decide(&facts);
    }
    note_reasons(r, ret);
    decisions_note(r, ret);
}

/* --- counting --- */

/* A tier whose worker can count the prompt of this request and was not asked yet; tier_count: none. */
static unsigned find_counter(const struct gateway_request *r)
{
    unsigned i = 0;
    for (; i < r->service->tier_count; i++) {
        const struct gateway_tier *tier = &r->service->tiers[i];
        /* A substitute has a tokenizer of its own. */
        if (tier->config->kind != CONFIG_TIER_KIND_SUBSTITUTE &&
            !((r->excluded | r->count_asked) & (1U << i)) &&
            gateway_worker_may_serve(tier->worker) && count_can(r, tier->worker))
            break;
    }
    return i;
}

bool admit_wants_count(struct gateway_request *r)
{
    if (r->prompt_exact || !has_tokens(r) || length_is_open(r))
        return false;
    uint64_t upper = prompt_upper(r);
    bool matters = false;
    for (unsigned i = 0; i < r->service->tier_count && !matters; i++) {
        const struct gateway_tier *tier = &r->service->tiers[i];
        uint64_t most = request_max(tier);
        uint64_t need = upper + output_on(r, tier, upper);
        matters = !(r->excluded & (1U << i)) && most > 0 &&
                  (need > most ||
                   (shares_cache(tier->worker) && need > kv_free_tokens(&tier->worker->kv)));
    }
    return matters && find_counter(r) < r->service->tier_count;
}

static void on_counted(struct gateway_request *r, bool known, uint64_t tokens)
{
    if (known) {
        r->prompt_exact = true;
        r->prompt_tokens = tokens;
    }
    request_step(r, LIFECYCLE_EVENT_COUNTED);
}

void admit_start_count(struct gateway_request *r)
{
    unsigned i = find_counter(r);
    bool found = i < r->service->tier_count;
    if (found)
        r->count_asked |= 1U << i;
    if (!found || count_start(r, r->service->tiers[i].worker, on_counted) < 0)
        request_step(r, LIFECYCLE_EVENT_COUNTED);
}

/* --- what an attempt holds --- */

bool admit_has_kv_room(const struct gateway_request *r, unsigned tier_index)
{
    const struct gateway_tier *tier = &r->service->tiers[tier_index];
    const struct gateway_worker *w = tier->worker;
    if (!r->gateway->admission || !w->kv_known || !has_tokens(r))
        return true;
    return kv_free_tokens(&w->kv) >= kv_tokens(r, tier);
}

void admit_take(struct gateway_request *r)
{
    const struct gateway_tier *tier = &r->service->tiers[r->tier_index];
    struct gateway_worker *w = tier->worker;
    struct attempt *a = &r->attempt;
    a->kv_claim = 0;
    a->memory_claim = LEDGER_CLAIM_NONE;
    learn_attempt(w, use_of(r));
    if (!r->gateway->admission)
        return;
    if (w->kv_known && has_tokens(r))
        (void)kv_take(&w->kv, kv_tokens(r, tier), &a->kv_claim);
    struct gateway_device *d = w->on;
    uint64_t grows = d && worker_is_managed(w->worker) ? learned_request_bytes(w, use_of(r)) : 0;
    if (grows == 0)
        return;
    struct ledger_request claim = {
        .owner = LEDGER_OWNER_ATTEMPT,
        .owner_id = r->number,
        .label = r->service->config->name,
        .bytes = grows,
    };
    (void)ledger_claim_open(&device_pool(d)->ledger, &claim, uv_now(r->gateway->loop),
                            &a->memory_claim);
}

void admit_give(struct gateway_request *r)
{
    struct attempt *a = &r->attempt;
    if (a->kv_claim != 0)
        (void)kv_give(&a->worker->kv, a->kv_claim);
    a->kv_claim = 0;
    struct gateway_device *d = a->worker->on;
    /* What was allocated is the worker's now, and measured with it. */
    if (d && a->memory_claim != LEDGER_CLAIM_NONE)
        (void)ledger_claim_cancel(&device_pool(d)->ledger, a->memory_claim);
    a->memory_claim = LEDGER_CLAIM_NONE;
}

void admit_answered(struct gateway_request *r)
{
    uint64_t *longest = &r->attempt.worker->answered_bytes[use_of(r)];
    if (*longest < size_of(r))
        *longest = size_of(r);
}

/* --- refusing --- */

static uint64_t longest(const struct gateway_request *r)
{
    uint64_t most = 0;
    for (unsigned i = 0; i < r->service->tier_count; i++) {
        uint64_t here = request_max(&r->service->tiers[i]);
        if (here > most)
            most = here;
    }
    return most;
}

void admit_refuse(const struct gateway_request *r, const struct admission_decision *d,
                  struct api_error *e)
{
    uint64_t prompt = r->prompt_exact ? r->prompt_tokens : prompt_bytes(r) / ADMIT_LOW_GUESS_BYTES;
    api_error_set(e, 400, "invalid_request_error", "context_length_exceeded",
                  "the prompt has %s%" PRIu64 " tokens, and the longest context of %s is %" PRIu64
                  ", prompt and answer together: %s",
                  r->prompt_exact ? "" : "at least about ", prompt, r->service->config->name,
                  longest(r), d->reason);
    snprintf(e->would_fit, sizeof(e->would_fit),
             "a prompt and an answer of at most %" PRIu64 " tokens", longest(r));
}
