/* Where a request runs: the six actions, their reasons, and the field cases. */
#include "tests/unit/policy/ledger_rig.h"

#include "policy/admission.h"

#include <string.h>

/* A GPU with a ledger, and a CPU tier in host memory of 64 GiB. */
struct place {
    struct rig gpu;
    struct rig host;
    struct ledger_view gpu_view;
    struct ledger_view host_view;
    struct admission_tier tiers[3];
    struct admission_facts facts;
};

static void look(struct place *p, uint64_t now_ms)
{
    p->gpu_view = ledger_view(&p->gpu.ledger, now_ms);
    p->host_view = ledger_view(&p->host.ledger, now_ms);
}

/* total and used of the GPU; a load of `need`, and half a GiB of host memory for the CPU tier. */
static void start(struct place *p, uint64_t total, uint64_t reserve, uint64_t used, uint64_t need)
{
    memset(p, 0, sizeof(*p));
    rig_start(&p->gpu, total, reserve, used);
    rig_start(&p->host, 64 * GIB, GIB, 8 * GIB);
    look(p, 1000);
    p->tiers[0] = (struct admission_tier){.name = "gpu",
                                          .kind = ADMISSION_TIER_GPU,
                                          .device = &p->gpu_view,
                                          .host = &p->host_view,
                                          .device_bytes = {need, need}};
    p->tiers[1] = (struct admission_tier){.name = "cpu",
                                          .kind = ADMISSION_TIER_CPU,
                                          .host = &p->host_view,
                                          .host_bytes = {GIB / 2, GIB / 2}};
    p->facts = (struct admission_facts){.tiers = p->tiers, .tier_count = 2};
}

#define assert_reason(decision, text)                                                              \
    do {                                                                                           \
        if (!strstr((decision).reason, (text)))                                                    \
            fail_msg("\"%s\" is not in \"%s\"", (text), (decision).reason);                        \
    } while (0)

static void assert_action(const struct admission_decision *d, enum admission_action action)
{
    if (d->action != action)
        fail_msg("%s, not %s: %s", admission_action_name(d->action), admission_action_name(action),
                 d->reason);
}

static void admits_what_fits(void **state)
{
    (void)state;
    struct place p;
    start(&p, 16 * GIB, GIB, 4 * GIB, 11 * GIB);
    struct admission_decision d = admission_decide(&p.facts);
    assert_action(&d, ADMISSION_ACTION_ADMIT);
    assert_string_equal(d.reason, "gpu: needs 11 GiB of 11 GiB headroom on gpu0");
    p.tiers[0].device_bytes.upper++;
    d = admission_decide(&p.facts);
    assert_action(&d, ADMISSION_ACTION_ROUTE);
    assert_int_equal(d.tier, 1);
}

static void says_who_holds_it_and_what_would_fit(void **state)
{
    (void)state;
    struct place p;
    uint64_t id = 0;
    start(&p, 8 * GIB, GIB, 0, 0);
    assert_int_equal(rig_open(&p.gpu, "stt", 3 * GIB, 1000, &id), 0);
    look(&p, 1000);
    p.tiers[0].device_bytes = (struct admission_amount){5 * GIB, 5 * GIB + 200 * MIB};
    p.tiers[0].context_tokens = 32768;
    p.tiers[0].bytes_per_context_token = 64 * 1024;
    struct admission_decision d = admission_decide(&p.facts);
    assert_action(&d, ADMISSION_ACTION_ROUTE);
    assert_reason(d, "gpu: needs 5.2 GiB of 4 GiB headroom on gpu0; stt holds 3 GiB; ");
    assert_reason(d, "context up to 13056 fits; cpu: needs 512 MiB of 55 GiB headroom on gpu0");
    assert_int_equal(d.would_fit_context, 13056);
}

/* F02 ollama/ollama#4985: 4096 MiB, 3300 used; a prompt of 80 KB adds more than is left. */
static void a_long_prompt_is_counted_before_it_runs(void **state)
{
    (void)state;
    struct place p;
    start(&p, 4096 * MIB, 100 * MIB, 3300 * MIB, 0);
    p.tiers[0].loaded = true;
    p.tiers[0].kv_request_max = 131072;
    p.tiers[0].kv_free_tokens = 131072;
    p.facts.prompt_tokens = 80 * 1024; /* at most one a byte */
    p.facts.output_tokens = 512;
    p.tiers[0].device_bytes = (struct admission_amount){900 * MIB, p.facts.prompt_tokens * 40960};
    struct admission_decision d = admission_decide(&p.facts);
    assert_action(&d, ADMISSION_ACTION_ROUTE);
    p.facts.tier_count = 1;
    d = admission_decide(&p.facts);
    assert_action(&d, ADMISSION_ACTION_REFUSE);
    assert_reason(d, "needs 3.1 GiB of 696 MiB headroom");
    /* A short one runs. */
    p.facts.prompt_tokens = 2000;
    p.tiers[0].device_bytes = (struct admission_amount){80 * MIB, 80 * MIB};
    d = admission_decide(&p.facts);
    assert_action(&d, ADMISSION_ACTION_ADMIT);
}

/* F13 ggml-org/llama.cpp#18160: 20 GiB free, one buffer of 8.15 GiB, the largest possible is 4. */
static void one_buffer_may_be_too_large(void **state)
{
    (void)state;
    struct place p;
    start(&p, 24 * GIB, GIB, 3 * GIB, 9 * GIB);
    p.gpu_view.largest_bytes = 4 * GIB;
    p.tiers[0].largest_block_bytes = UINT64_C(8753520640);
    struct admission_decision d = admission_decide(&p.facts);
    assert_action(&d, ADMISSION_ACTION_ROUTE);
    assert_reason(d, "gpu: needs one buffer of 8.2 GiB; the largest on gpu0 is 4 GiB; cpu: ");
    p.facts.tier_count = 1;
    d = admission_decide(&p.facts);
    assert_action(&d, ADMISSION_ACTION_REFUSE);
    assert_true(d.permanent);
    assert_int_equal(d.retry_after_ms, 0);
    /* Seen to fail once: not tried again, whatever the device says. */
    p.gpu_view.largest_bytes = 0;
    d = admission_decide(&p.facts);
    assert_action(&d, ADMISSION_ACTION_ADMIT);
    p.tiers[0].unfit = true;
    d = admission_decide(&p.facts);
    assert_action(&d, ADMISSION_ACTION_REFUSE);
    assert_true(d.permanent);
}

/* F31 ollama/ollama#17099: needs 15.4 of 16 GiB; margins of 1.0 and 0.4 GiB. */
static void the_margin_says_what_it_costs(void **state)
{
    (void)state;
    struct place p;
    start(&p, 16 * GIB, GIB, 0, 154 * GIB / 10);
    p.facts.tier_count = 1;
    struct admission_decision d = admission_decide(&p.facts);
    assert_action(&d, ADMISSION_ACTION_REFUSE);
    assert_reason(d, "needs 15.4 GiB of 15 GiB headroom on gpu0; margin prevented full offload by "
                     "409.6 MiB");
    assert_int_equal(d.short_bytes, 154 * GIB / 10 - 15 * GIB);
    assert_int_equal(d.margin_bytes, d.short_bytes);
    start(&p, 16 * GIB, 4 * GIB / 10, 0, 154 * GIB / 10);
    d = admission_decide(&p.facts);
    assert_action(&d, ADMISSION_ACTION_ADMIT);
}

/* F33 ollama/ollama#8964, F48 immich-app/immich#25165: not sizes. */
static void nonsense_is_refused_and_no_capacity_fault(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {UINT64_C(4662799785353222400), UINT64_MAX, INT64_MAX,
                                     LEDGER_BYTES_MAX + 1};
    struct place p;
    for (unsigned i = 0; i < UNIT_COUNT(sizes); i++) {
        start(&p, 24 * GIB, GIB, 0, sizes[i]);
        p.tiers[1].host_bytes = (struct admission_amount){sizes[i], sizes[i]};
        struct admission_decision d = admission_decide(&p.facts);
        assert_action(&d, ADMISSION_ACTION_REFUSE);
        assert_true(d.nonsense && d.permanent);
        assert_reason(d, ": not a size");
        /* On one pool the two are added. */
        p.tiers[0].device_bytes = (struct admission_amount){LEDGER_BYTES_MAX, LEDGER_BYTES_MAX};
        p.tiers[0].host = p.tiers[0].device;
        p.tiers[0].host_bytes = p.tiers[0].device_bytes;
        p.facts.tier_count = 1;
        d = admission_decide(&p.facts);
        assert_action(&d, ADMISSION_ACTION_REFUSE);
    }
    /* 335445.83 MiB on a 24 GB card is a size, but none that ever fits. */
    start(&p, 24 * GIB, GIB, 0, UINT64_C(335446) * MIB);
    p.facts.tier_count = 1;
    struct admission_decision d = admission_decide(&p.facts);
    assert_true(d.permanent && !d.nonsense);
    assert_reason(d, "needs 327.6 GiB, and there is 24 GiB in all on gpu0");
    static const uint64_t tokens[] = {(UINT64_C(1) << 31) + 1, UINT64_C(1) << 63, UINT64_MAX};
    for (unsigned i = 0; i < UNIT_COUNT(tokens); i++) {
        start(&p, 24 * GIB, GIB, 0, GIB);
        p.facts.prompt_tokens = i ? tokens[i] : 0;
        p.facts.output_tokens = tokens[i];
        d = admission_decide(&p.facts);
        assert_action(&d, ADMISSION_ACTION_REFUSE);
        assert_true(d.nonsense && d.permanent);
        assert_reason(d, "the limit is 2147483648");
    }
    /* An upper bound below its value is no prediction. */
    start(&p, 24 * GIB, GIB, 0, GIB);
    p.tiers[0].device_bytes.value = 2 * GIB;
    d = admission_decide(&p.facts);
    assert_action(&d, ADMISSION_ACTION_ROUTE);
}

/* F37, R4: what is needed and not known is not free. */
static void unknown_is_never_free(void **state)
{
    (void)state;
    struct place p;
    start(&p, 16 * GIB, GIB, 0, GIB);
    look(&p, 4000);
    rig_sample(&p.host, 64 * GIB, 8 * GIB, 4000);
    look(&p, 4000);
    struct admission_decision d = admission_decide(&p.facts);
    assert_action(&d, ADMISSION_ACTION_ROUTE);
    assert_reason(d, "gpu: needs 1 GiB on gpu0, whose memory figures are 3 s old; cpu: ");
    /* The owner's word does not make up for a source that has stopped to tell. */
    p.facts.trust_claims_alone = true;
    d = admission_decide(&p.facts);
    assert_action(&d, ADMISSION_ACTION_ROUTE);
    /* Broken figures, or a device that never tells: only by the owner's word. */
    p.gpu_view.trust = LEDGER_TRUST_NONE;
    d = admission_decide(&p.facts);
    assert_action(&d, ADMISSION_ACTION_ADMIT);
    p.facts.trust_claims_alone = false;
    d = admission_decide(&p.facts);
    assert_reason(d, "which does not tell how much is free");
    p.gpu_view.trust = LEDGER_TRUST_BROKEN;
    d = admission_decide(&p.facts);
    assert_reason(d, "cannot be right");
    p.tiers[0].device = NULL;
    d = admission_decide(&p.facts);
    assert_reason(d, "nothing is known about that memory");
    /* A worker that is loaded and needs no more goes on. */
    p.tiers[0].device = &p.gpu_view;
    p.tiers[0].loaded = true;
    p.tiers[0].device_bytes = (struct admission_amount){0, 0};
    d = admission_decide(&p.facts);
    assert_action(&d, ADMISSION_ACTION_ADMIT);
    /* Host memory is no exception. */
    start(&p, 16 * GIB, GIB, 15 * GIB, GIB);
    p.tiers[1].host = NULL;
    d = admission_decide(&p.facts);
    assert_action(&d, ADMISSION_ACTION_REFUSE);
}

/* F38 ollama/ollama#9016: the memory of a worker that is ending is waited for, within the bound. */
static void waits_for_memory_on_its_way_back(void **state)
{
    (void)state;
    struct place p;
    uint64_t id = 0;
    start(&p, 16 * GIB, GIB, 0, 10 * GIB);
    assert_int_equal(rig_open(&p.gpu, "old", 12 * GIB, 1000, &id), 0);
    assert_int_equal(ledger_claim_begin_release(&p.gpu.ledger, id, 1000), 0);
    look(&p, 1000);
    p.facts.delay_max_ms = 6000;
    struct admission_decision d = admission_decide(&p.facts);
    assert_action(&d, ADMISSION_ACTION_DELAY);
    assert_int_equal(d.delay_ms, 5000);
    assert_reason(d, "12 GiB on its way back");
    assert_reason(d, "; expected within 5 s");
    p.tiers[0].memory_back_ms = 700;
    d = admission_decide(&p.facts);
    assert_int_equal(d.delay_ms, 700);
    /* The bound is for all waits together. */
    p.facts.delayed_ms = 5400;
    d = admission_decide(&p.facts);
    assert_action(&d, ADMISSION_ACTION_ROUTE);
    /* Nowhere else to go: come back then. */
    p.facts.tier_count = 1;
    d = admission_decide(&p.facts);
    assert_action(&d, ADMISSION_ACTION_REFUSE);
    assert_int_equal(d.retry_after_ms, 700);
    assert_false(d.permanent);
    /* It would not be enough. */
    start(&p, 16 * GIB, GIB, 5 * GIB, 11 * GIB);
    assert_int_equal(rig_open(&p.gpu, "old", 2 * GIB, 1000, &id), 0);
    assert_int_equal(ledger_claim_begin_release(&p.gpu.ledger, id, 1000), 0);
    look(&p, 1000);
    p.facts.delay_max_ms = 60000;
    p.tiers[0].device_bytes = (struct admission_amount){13 * GIB, 13 * GIB};
    d = admission_decide(&p.facts);
    assert_action(&d, ADMISSION_ACTION_ROUTE);
}

/* F45: speech 7.7 GB beside an LLM of 18.3 on 24: the second waits or moves; with a context of 8192
 * (KV 6.1 → 1.25 GB) both are on the GPU. */
static void two_services_on_one_card(void **state)
{
    (void)state;
    enum { CONTEXT = 40960, KV_MB = 6100 };
    const uint64_t mb = 1000000;
    for (unsigned shrink = 0; shrink < 2; shrink++) {
        struct place p;
        uint64_t id = 0;
        start(&p, 24000 * mb, 250 * mb, 0, 18300 * mb);
        assert_int_equal(rig_open(&p.gpu, "whisper", 7700 * mb, 1000, &id), 0);
        look(&p, 1100);
        p.tiers[0].context_tokens = CONTEXT;
        p.tiers[0].bytes_per_context_token = KV_MB * mb / CONTEXT;
        p.facts.prompt_tokens = 3000;
        p.facts.output_tokens = 1000;
        p.facts.may_shrink_context = shrink == 1;
        struct admission_decision d = admission_decide(&p.facts);
        assert_reason(d, "needs 17 GiB of 14.9 GiB headroom on gpu0; whisper holds 7.2 GiB");
        if (!shrink) {
            assert_action(&d, ADMISSION_ACTION_ROUTE);
            assert_reason(d, "context up to 25600 fits");
            continue;
        }
        assert_action(&d, ADMISSION_ACTION_SHRINK);
        assert_int_equal(d.tier, 0);
        assert_int_equal(d.context_tokens, 25600);
        assert_reason(d, "context up to 25600 fits and is used");
        uint64_t need = 18300 * mb - (CONTEXT - 8192) * p.tiers[0].bytes_per_context_token;
        p.tiers[0].device_bytes = (struct admission_amount){need, need};
        d = admission_decide(&p.facts);
        assert_action(&d, ADMISSION_ACTION_ADMIT);
    }
}

static void a_context_shrinks_to_4096_and_to_the_request_at_most(void **state)
{
    (void)state;
    static const struct {
        uint64_t need_mib; /* of 4096 MiB */
        uint64_t slots;
        uint64_t prompt;
        uint64_t least;
        uint64_t context; /* 0: no shrink */
    } rows[] = {
        {4097, 0, 100, 0, 8192 - 256},    {4096 + 100, 0, 100, 0, 8192 - 1792 - 0},
        {4096 + 256, 0, 100, 0, 4096},    {4096 + 257, 0, 100, 0, 0},
        {4096 + 257, 0, 100, 2048, 3840}, {4096 + 256, 0, 4095, 0, 4096},
        {4096 + 256, 0, 4097, 0, 0},      {4096 + 256, 4, 1024, 0, 4096},
        {4096 + 256, 4, 1025, 0, 0},
    };
    for (unsigned i = 0; i < UNIT_COUNT(rows); i++) {
        struct place p;
        start(&p, 5120 * MIB, 1024 * MIB, 0, rows[i].need_mib * MIB);
        p.tiers[0].context_tokens = 8192;
        p.tiers[0].context_slots = rows[i].slots;
        p.tiers[0].bytes_per_context_token = 64 * 1024; /* 16 tokens a MiB */
        p.facts.may_shrink_context = true;
        p.facts.prompt_tokens = rows[i].prompt;
        p.facts.context_tokens_min = rows[i].least;
        struct admission_decision d = admission_decide(&p.facts);
        uint64_t context = d.action == ADMISSION_ACTION_SHRINK ? d.context_tokens : 0;
        if (context != rows[i].context)
            fail_msg("row %u: %s", i, d.reason);
    }
}

/* A context larger than the load that holds it: the facts contradict each other. */
static void a_context_that_cannot_be_shrinks_nothing(void **state)
{
    (void)state;
    static const struct {
        uint64_t context;
        uint64_t per_token;
    } rows[] = {{81921, 64 * 1024},
                {UINT64_C(1) << 40, 64 * 1024},
                {UINT64_C(1) << 40, UINT64_C(1) << 24},
                {(UINT64_C(1) << 40) + 8, UINT64_C(1) << 24}};
    struct place p;
    for (unsigned i = 0; i < UNIT_COUNT(rows); i++) {
        start(&p, 5120 * MIB, 1024 * MIB, 0, 5120 * MIB);
        p.facts.may_shrink_context = true;
        p.tiers[0].context_tokens = rows[i].context;
        p.tiers[0].bytes_per_context_token = rows[i].per_token;
        struct admission_decision d = admission_decide(&p.facts);
        assert_action(&d, ADMISSION_ACTION_ROUTE);
        assert_int_equal(d.would_fit_context, 0);
    }
}

static void output_shrinks_only_where_allowed(void **state)
{
    (void)state;
    struct place p;
    start(&p, 16 * GIB, GIB, 0, 0);
    p.tiers[0].loaded = true;
    p.tiers[0].kv_request_max = 8192;
    p.tiers[0].kv_free_tokens = 8192;
    p.facts.prompt_tokens = 6000;
    p.facts.output_tokens = 4000;
    struct admission_decision d = admission_decide(&p.facts);
    assert_action(&d, ADMISSION_ACTION_ROUTE);
    assert_reason(d, "gpu: needs 10000 tokens; a request can have 8192; cpu: ");
    p.facts.may_shrink_output = true;
    d = admission_decide(&p.facts);
    assert_action(&d, ADMISSION_ACTION_SHRINK);
    assert_int_equal(d.max_tokens, 2192);
    assert_reason(d, "output is limited to 2192 tokens");
    p.facts.prompt_tokens = 8177;
    d = admission_decide(&p.facts);
    assert_action(&d, ADMISSION_ACTION_ROUTE);
    p.facts.prompt_tokens = 8176;
    d = admission_decide(&p.facts);
    assert_int_equal(d.max_tokens, 16);
    /* Not while the cache is half full. */
    p.tiers[0].kv_free_tokens = 4000;
    d = admission_decide(&p.facts);
    assert_action(&d, ADMISSION_ACTION_ROUTE);
}

static void waits_for_room_in_the_cache(void **state)
{
    (void)state;
    struct place p;
    start(&p, 16 * GIB, GIB, 0, 0);
    p.tiers[0].loaded = true;
    p.tiers[0].kv_request_max = 8192;
    p.tiers[0].kv_free_tokens = 1000;
    p.tiers[0].kv_free_in_ms = 800;
    p.facts.prompt_tokens = 900;
    p.facts.output_tokens = 300;
    p.facts.delay_max_ms = 1000;
    p.facts.may_shrink_output = true;
    struct admission_decision d = admission_decide(&p.facts);
    assert_action(&d, ADMISSION_ACTION_DELAY);
    assert_int_equal(d.delay_ms, 800);
    assert_reason(d, "needs 1200 tokens; the cache has room for 1000 now; expected within 800 ms");
    /* Too long a wait: fewer tokens at once. */
    p.facts.delay_max_ms = 700;
    d = admission_decide(&p.facts);
    assert_action(&d, ADMISSION_ACTION_SHRINK);
    assert_int_equal(d.max_tokens, 100);
    p.facts.may_shrink_output = false;
    d = admission_decide(&p.facts);
    assert_action(&d, ADMISSION_ACTION_ROUTE);
    p.facts.tier_count = 1;
    d = admission_decide(&p.facts);
    assert_action(&d, ADMISSION_ACTION_REFUSE);
    assert_int_equal(d.retry_after_ms, 800);
    assert_int_equal(d.would_fit_tokens, 1000);
}

/* F41: device and host are one pool; both needs count, and the CPU tier is no way out. */
static void a_shared_pool_is_spent_once(void **state)
{
    (void)state;
    struct place p;
    start(&p, 128 * GIB, GIB, 27 * GIB, 70 * GIB);
    for (unsigned i = 0; i < 2; i++)
        p.tiers[i].host = &p.gpu_view;
    p.tiers[1].host_bytes = (struct admission_amount){70 * GIB, 70 * GIB};
    p.tiers[0].host_bytes = (struct admission_amount){31 * GIB, 31 * GIB};
    struct admission_decision d = admission_decide(&p.facts);
    assert_action(&d, ADMISSION_ACTION_ROUTE);
    assert_reason(d, "gpu: needs 101 GiB of 100 GiB headroom");
    p.tiers[0].host_bytes.upper = p.tiers[0].host_bytes.value = 30 * GIB;
    d = admission_decide(&p.facts);
    assert_action(&d, ADMISSION_ACTION_ADMIT);
    uint64_t id = 0;
    assert_int_equal(rig_open(&p.gpu, "llm", 70 * GIB, 1000, &id), 0);
    look(&p, 1000);
    p.tiers[0].excluded = true;
    d = admission_decide(&p.facts);
    assert_action(&d, ADMISSION_ACTION_REFUSE);
    assert_reason(d, "gpu: not available; cpu: needs 70 GiB of 30 GiB headroom on gpu0");
}

static void pressure_closes_the_device(void **state)
{
    (void)state;
    static const struct {
        enum pressure_level level;
        bool loaded;
        uint64_t need;
        enum admission_action action;
    } rows[] = {
        {PRESSURE_LEVEL_ELEVATED, false, GIB, ADMISSION_ACTION_ADMIT},
        {PRESSURE_LEVEL_HIGH, false, GIB, ADMISSION_ACTION_ROUTE},
        {PRESSURE_LEVEL_HIGH, true, MIB, ADMISSION_ACTION_ROUTE},
        {PRESSURE_LEVEL_HIGH, true, 0, ADMISSION_ACTION_ADMIT},
        {PRESSURE_LEVEL_CRITICAL, true, 0, ADMISSION_ACTION_ROUTE},
    };
    for (unsigned i = 0; i < UNIT_COUNT(rows); i++) {
        struct place p;
        start(&p, 16 * GIB, GIB, 3 * GIB, rows[i].need);
        p.tiers[0].pressure = rows[i].level;
        p.tiers[0].loaded = rows[i].loaded;
        struct admission_decision d = admission_decide(&p.facts);
        assert_action(&d, rows[i].action);
        if (d.action == ADMISSION_ACTION_ROUTE)
            assert_reason(d, "; others use 3 GiB; cpu: ");
    }
}

static void the_tier_that_gives_way(void **state)
{
    (void)state;
    struct place p;
    start(&p, 16 * GIB, GIB, 0, GIB);
    p.tiers[0].held_back_ms = 7200000;
    p.facts.delay_max_ms = 60000;
    struct admission_decision d = admission_decide(&p.facts);
    assert_action(&d, ADMISSION_ACTION_ROUTE);
    assert_reason(d, "gpu: gives way to others for 2 h; cpu: ");
}

static void loads_go_one_at_a_time(void **state)
{
    (void)state;
    struct place p;
    start(&p, 16 * GIB, GIB, 0, GIB);
    p.tiers[0].load_wait_ms = 900;
    p.facts.delay_max_ms = 1000;
    struct admission_decision d = admission_decide(&p.facts);
    assert_action(&d, ADMISSION_ACTION_DELAY);
    assert_reason(d, "another load is in progress on gpu0; expected within 900 ms");
    p.tiers[0].loaded = true;
    d = admission_decide(&p.facts);
    assert_action(&d, ADMISSION_ACTION_ADMIT);
    /* What does not fit beside it does not wait for it either. */
    p.tiers[0].loaded = false;
    p.tiers[0].device_bytes = (struct admission_amount){16 * GIB, 16 * GIB};
    d = admission_decide(&p.facts);
    assert_action(&d, ADMISSION_ACTION_ROUTE);
}

/* The same for host memory and a tier without a device. */
/* What a longer prompt than any before makes an engine allocate, nobody has measured. */
static void what_was_never_measured_stays_out_of_the_reserve(void **state)
{
    (void)state;
    struct place p;
    start(&p, 16 * GIB, GIB, 4 * GIB, 0);
    p.tiers[0].loaded = true;
    static const struct {
        enum pressure_level pressure;
        bool may_grow;
        enum admission_action action;
    } rows[] = {
        {PRESSURE_LEVEL_NORMAL, true, ADMISSION_ACTION_ADMIT},
        {PRESSURE_LEVEL_ELEVATED, true, ADMISSION_ACTION_ADMIT},
        {PRESSURE_LEVEL_HIGH, false, ADMISSION_ACTION_ADMIT},
        {PRESSURE_LEVEL_HIGH, true, ADMISSION_ACTION_ROUTE},
        {PRESSURE_LEVEL_CRITICAL, false, ADMISSION_ACTION_ROUTE},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        p.tiers[0].pressure = rows[i].pressure;
        p.tiers[0].may_grow = rows[i].may_grow;
        struct admission_decision d = admission_decide(&p.facts);
        assert_action(&d, rows[i].action);
    }
}

/* An engine that ends answers at the end of its own context counts them shorter than one that shares. */
static void an_answer_counts_by_the_engine_that_gives_it(void **state)
{
    (void)state;
    struct place p;
    start(&p, 16 * GIB, GIB, 4 * GIB, 0);
    p.tiers[0].loaded = p.tiers[1].loaded = true;
    p.tiers[1].host_bytes = (struct admission_amount){0, 0};
    for (unsigned i = 0; i < 2; i++)
        p.tiers[i].kv_request_max = p.tiers[i].kv_free_tokens = 4096;
    p.facts.prompt_tokens = 1000;
    p.facts.output_tokens = 8000;
    struct admission_decision d = admission_decide(&p.facts);
    assert_action(&d, ADMISSION_ACTION_REFUSE);
    p.tiers[1].kv_output_tokens = 3096;
    d = admission_decide(&p.facts);
    assert_action(&d, ADMISSION_ACTION_ROUTE);
    p.tiers[1].kv_output_tokens = 3097;
    d = admission_decide(&p.facts);
    assert_action(&d, ADMISSION_ACTION_REFUSE);
}

/* Too long is what its tokens alone keep from every tier that might have been taken. */
static void too_long_is_told_from_no_room(void **state)
{
    (void)state;
    struct place p;
    start(&p, 16 * GIB, GIB, 4 * GIB, 0);
    p.tiers[0].loaded = p.tiers[1].loaded = true;
    p.tiers[1].host_bytes = (struct admission_amount){0, 0};
    for (unsigned i = 0; i < 2; i++)
        p.tiers[i].kv_request_max = p.tiers[i].kv_free_tokens = 4096;
    p.facts.prompt_tokens = 5000;
    struct admission_decision d = admission_decide(&p.facts);
    assert_action(&d, ADMISSION_ACTION_REFUSE);
    assert_true(d.too_long && d.permanent);
    assert_int_equal(d.would_fit_tokens, 4096);
    p.tiers[0].excluded = true;
    d = admission_decide(&p.facts);
    assert_true(d.too_long && !d.permanent);
    assert_int_equal(d.would_fit_tokens, 4096);
    p.tiers[0].excluded = false;
    p.tiers[0].pressure = PRESSURE_LEVEL_CRITICAL; /* would it fit there? nobody looked */
    d = admission_decide(&p.facts);
    assert_false(d.too_long);
    p.tiers[0].excluded = p.tiers[1].excluded = true;
    d = admission_decide(&p.facts);
    assert_false(d.too_long);
    p.tiers[0].excluded = p.tiers[1].excluded = false;
    p.tiers[0].pressure = PRESSURE_LEVEL_NORMAL;
    p.tiers[1].kv_request_max = p.tiers[1].kv_free_tokens = 8192;
    d = admission_decide(&p.facts);
    assert_action(&d, ADMISSION_ACTION_ROUTE);
    assert_false(d.too_long);
}

static void said_of(const struct admission_decision *d, unsigned tier,
                    char out[ADMISSION_REASON_MAX])
{
    size_t len = (size_t)(d->said[tier].end - d->said[tier].start);
    memcpy(out, d->reason + d->said[tier].start, len);
    out[len] = '\0';
}

static void what_is_said_of_each_tier_can_be_told_apart(void **state)
{
    (void)state;
    struct place p;
    char text[ADMISSION_REASON_MAX];
    start(&p, 16 * GIB, GIB, 4 * GIB, 12 * GIB);
    p.tiers[2] = (struct admission_tier){.name = "remote", .kind = ADMISSION_TIER_REMOTE};
    p.facts.tier_count = 3;
    struct admission_decision d = admission_decide(&p.facts);
    assert_action(&d, ADMISSION_ACTION_ROUTE);
    said_of(&d, 0, text);
    assert_string_equal(text, "needs 12 GiB of 11 GiB headroom on gpu0; others use 4 GiB; "
                              "margin prevented full offload by 1 GiB");
    said_of(&d, 1, text);
    assert_string_equal(text, "needs 512 MiB of 55 GiB headroom on gpu0");
    said_of(&d, 2, text); /* was not looked at */
    assert_string_equal(text, "");
}

static void pressure_on_the_host(void **state)
{
    (void)state;
    struct place p;
    start(&p, 16 * GIB, GIB, 12 * GIB, 4 * GIB);
    p.tiers[1].pressure = PRESSURE_LEVEL_HIGH;
    struct admission_decision d = admission_decide(&p.facts);
    assert_action(&d, ADMISSION_ACTION_REFUSE);
    p.tiers[1].loaded = true;
    p.tiers[1].host_bytes = (struct admission_amount){0, 0};
    d = admission_decide(&p.facts);
    assert_action(&d, ADMISSION_ACTION_ROUTE);
    p.tiers[1].pressure = PRESSURE_LEVEL_CRITICAL;
    d = admission_decide(&p.facts);
    assert_action(&d, ADMISSION_ACTION_REFUSE);
    p.tiers[1].pressure = PRESSURE_LEVEL_NORMAL;
    p.tiers[1].host_bytes = (struct admission_amount){56 * GIB, 56 * GIB};
    d = admission_decide(&p.facts);
    assert_reason(d, "cpu: needs 56 GiB of 55 GiB headroom on gpu0; margin prevented it by 1 GiB");
}

/* F51: a service that is cpu-first is where it belongs. The client's and the service's word. */
static void tiers_that_are_wanted(void **state)
{
    (void)state;
    static const struct {
        enum admission_tier_kind second;
        enum admission_accept accept;
        bool cpu_denied;
        enum admission_action action;
    } rows[] = {
        {ADMISSION_TIER_CPU, ADMISSION_ACCEPT_ANY, false, ADMISSION_ACTION_ROUTE},
        {ADMISSION_TIER_CPU, ADMISSION_ACCEPT_ANY, true, ADMISSION_ACTION_REFUSE},
        {ADMISSION_TIER_CPU, ADMISSION_ACCEPT_GPU_ONLY, false, ADMISSION_ACTION_REFUSE},
        {ADMISSION_TIER_CPU, ADMISSION_ACCEPT_SAME_MODEL, false, ADMISSION_ACTION_ROUTE},
        {ADMISSION_TIER_SUBSTITUTE, ADMISSION_ACCEPT_SAME_MODEL, false, ADMISSION_ACTION_REFUSE},
        {ADMISSION_TIER_SUBSTITUTE, ADMISSION_ACCEPT_ANY, true, ADMISSION_ACTION_ROUTE},
        {ADMISSION_TIER_HYBRID, ADMISSION_ACCEPT_ANY, true, ADMISSION_ACTION_OFFLOAD},
        {ADMISSION_TIER_HYBRID, ADMISSION_ACCEPT_GPU_ONLY, false, ADMISSION_ACTION_REFUSE},
        {ADMISSION_TIER_REMOTE, ADMISSION_ACCEPT_ANY, false, ADMISSION_ACTION_ROUTE},
    };
    struct place p;
    for (unsigned i = 0; i < UNIT_COUNT(rows); i++) {
        start(&p, 16 * GIB, GIB, 12 * GIB, 4 * GIB);
        p.tiers[1].kind = rows[i].second;
        p.facts.accept = rows[i].accept;
        p.facts.cpu_denied = rows[i].cpu_denied;
        struct admission_decision d = admission_decide(&p.facts);
        assert_action(&d, rows[i].action);
        if (d.action == ADMISSION_ACTION_REFUSE) {
            assert_false(d.permanent);
            assert_int_equal(d.retry_after_ms, 5000);
            assert_int_equal(d.tier, 0);
        }
    }
    start(&p, 8 * GIB, GIB, 0, GIB);
    p.facts.tiers = &p.tiers[1];
    p.facts.tier_count = 1;
    struct admission_decision d = admission_decide(&p.facts);
    assert_action(&d, ADMISSION_ACTION_ADMIT);
    p.facts.tier_count = 0;
    d = admission_decide(&p.facts);
    assert_action(&d, ADMISSION_ACTION_REFUSE);
    assert_reason(d, "no tier");
}

/* F39 and F50 in one: after a decision the claim is taken, so the next decision sees it. */
static void a_decision_and_its_claim(void **state)
{
    (void)state;
    struct place p;
    uint64_t id = 0;
    start(&p, 16 * GIB, GIB, 0, 10 * GIB);
    struct admission_decision d = admission_decide(&p.facts);
    assert_action(&d, ADMISSION_ACTION_ADMIT);
    assert_int_equal(rig_open(&p.gpu, "chat", 10 * GIB, 1000, &id), 0);
    look(&p, 1050);
    d = admission_decide(&p.facts);
    assert_action(&d, ADMISSION_ACTION_ROUTE);
    assert_reason(d, "chat holds 10 GiB");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(admits_what_fits),
        cmocka_unit_test(says_who_holds_it_and_what_would_fit),
        cmocka_unit_test(a_long_prompt_is_counted_before_it_runs),
        cmocka_unit_test(one_buffer_may_be_too_large),
        cmocka_unit_test(the_margin_says_what_it_costs),
        cmocka_unit_test(nonsense_is_refused_and_no_capacity_fault),
        cmocka_unit_test(unknown_is_never_free),
        cmocka_unit_test(waits_for_memory_on_its_way_back),
        cmocka_unit_test(two_services_on_one_card),
        cmocka_unit_test(a_context_shrinks_to_4096_and_to_the_request_at_most),
        cmocka_unit_test(a_context_that_cannot_be_shrinks_nothing),
        cmocka_unit_test(output_shrinks_only_where_allowed),
        cmocka_unit_test(waits_for_room_in_the_cache),
        cmocka_unit_test(a_shared_pool_is_spent_once),
        cmocka_unit_test(pressure_closes_the_device),
        cmocka_unit_test(what_was_never_measured_stays_out_of_the_reserve),
        cmocka_unit_test(an_answer_counts_by_the_engine_that_gives_it),
        cmocka_unit_test(too_long_is_told_from_no_room),
        cmocka_unit_test(what_is_said_of_each_tier_can_be_told_apart),
        cmocka_unit_test(pressure_on_the_host),
        cmocka_unit_test(the_tier_that_gives_way),
        cmocka_unit_test(loads_go_one_at_a_time),
        cmocka_unit_test(tiers_that_are_wanted),
        cmocka_unit_test(a_decision_and_its_claim),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
