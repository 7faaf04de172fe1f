/*
 * Properties of decisions over random facts: what is decided can be claimed, nothing is said without
 * being allowed, everything has a reason, and less room never admits more.
 */
#include "tests/unit/policy/ledger_rig.h"
#include "tests/unit/policy/random.h"

#include "policy/admission.h"
#include "policy/kv.h"

#include <string.h>

enum { TIERS = 3, WALKS = 60000 };

struct scene {
    struct rig rigs[2];
    struct ledger_view views[2];
    struct admission_tier tiers[TIERS];
    struct admission_facts facts;
    uint64_t now_ms;
};

static uint64_t some_bytes(uint64_t *seed)
{
    uint64_t bytes = random_below(seed, 12 * GIB);
    switch (random_below(seed, 16)) {
    case 0: return random_next(seed);
    case 1: return bytes * 2;
    case 2:
    case 3: return 0;
    case 4:
    case 5: return bytes / 1000;
    default: return bytes;
    }
}

static void make_ledger(struct scene *s, unsigned i, uint64_t *seed)
{
    uint64_t id = 0;
    rig_start(&s->rigs[i], 16 * GIB, random_below(seed, 2) * GIB, random_below(seed, 8 * GIB));
    for (uint64_t n = random_below(seed, 4); n > 0; n--) {
        if (rig_open(&s->rigs[i], n % 2 ? "stt" : "chat", random_below(seed, 4 * GIB), 1000, &id) ==
                0 &&
            random_below(seed, 3) == 0)
            ledger_claim_begin_release(&s->rigs[i].ledger, id, 1000);
    }
}

static void make_tier(struct scene *s, unsigned i, uint64_t *seed)
{
    static const char *const names[] = {"gpu", "hybrid", "cpu", "substitute", "remote"};
    struct admission_tier *t = &s->tiers[i];
    *t = (struct admission_tier){.kind = (enum admission_tier_kind)random_below(seed, 5)};
    t->name = names[t->kind];
    t->device = random_below(seed, 5) ? &s->views[0] : NULL;
    t->host = random_below(seed, 5) ? &s->views[random_below(seed, 4) ? 1 : 0] : NULL;
    t->pressure = random_below(seed, 4) ? 0 : (enum pressure_level)random_below(seed, 4);
    t->loaded = random_below(seed, 2);
    t->may_grow = random_below(seed, 3) == 0;
    t->excluded = random_below(seed, 9) == 0;
    t->unfit = random_below(seed, 9) == 0;
    t->held_back_ms = random_below(seed, 9) ? 0 : random_below(seed, 5000);
    t->load_wait_ms = random_below(seed, 6) ? 0 : random_below(seed, 5000);
    t->device_bytes.upper = some_bytes(seed);
    t->device_bytes.value = random_below(seed, 19) ? t->device_bytes.upper / 2 : random_next(seed);
    t->host_bytes.upper = some_bytes(seed) / 4;
    t->largest_block_bytes = random_below(seed, 4) ? 0 : some_bytes(seed);
    t->low_confidence = random_below(seed, 2);
    t->kv_request_max = random_below(seed, 4) ? random_below(seed, 40000) : 0;
    t->kv_free_tokens = random_below(seed, t->kv_request_max + 1);
    t->kv_free_in_ms = random_below(seed, 3000);
    t->context_tokens = random_below(seed, 40000);
    t->context_slots = random_below(seed, 4);
    t->bytes_per_context_token =
        random_below(seed, 3) ? t->device_bytes.upper / (t->context_tokens + 1) : 0;
}

static void make_scene(struct scene *s, uint64_t *seed)
{
    memset(s, 0, sizeof(*s));
    s->now_ms = 1000 + (random_below(seed, 6) ? 0 : random_below(seed, 4000));
    for (unsigned i = 0; i < 2; i++) {
        make_ledger(s, i, seed);
        s->views[i] = ledger_view(&s->rigs[i].ledger, s->now_ms);
        if (random_below(seed, 5) == 0)
            s->views[i].largest_bytes = random_below(seed, 8 * GIB);
    }
    for (unsigned i = 0; i < TIERS; i++)
        make_tier(s, i, seed);
    s->facts = (struct admission_facts){
        .tiers = s->tiers,
        .tier_count = random_below(seed, TIERS + 1),
        .prompt_tokens = random_below(seed, 20) ? random_below(seed, 9000) : random_next(seed),
        .output_tokens = random_below(seed, 20) ? random_below(seed, 3000) : random_next(seed),
        .accept = (enum admission_accept)random_below(seed, 3),
        .may_shrink_output = random_below(seed, 2),
        .may_shrink_context = random_below(seed, 2),
        .cpu_denied = random_below(seed, 5) == 0,
        .delay_max_ms = random_below(seed, 8000),
        .delayed_ms = random_below(seed, 4000),
    };
}

static bool has_reason(const struct admission_decision *d)
{
    size_t len = strnlen(d->reason, ADMISSION_REASON_MAX);
    if (len < 8 || len >= ADMISSION_REASON_MAX)
        return false;
    for (size_t i = 0; i < len; i++) {
        if (d->reason[i] < ' ' || d->reason[i] > '~')
            return false;
    }
    return true;
}

/* The claims that the caller opens next must succeed. */
static void assert_claimable(struct scene *s, const struct admission_decision *d)
{
    const struct admission_tier *t = &s->tiers[d->tier];
    uint64_t device = t->device_bytes.upper;
    uint64_t tokens = s->facts.prompt_tokens + s->facts.output_tokens;
    uint64_t id = 0;
    if (d->context_tokens > 0)
        device -= (t->context_tokens - d->context_tokens) * t->bytes_per_context_token;
    const uint64_t needs[] = {device, t->host_bytes.upper};
    const struct ledger_view *const pools[] = {t->device, t->host};
    for (unsigned i = 0; i < 2; i++) {
        if (needs[i] == 0)
            continue;
        assert_non_null(pools[i]);
        struct rig *r = &s->rigs[pools[i] == &s->views[1]];
        int rc = rig_open(r, "next", needs[i], s->now_ms, &id);
        if (rc != 0)
            fail_msg("claim %u of %s: %d: %s", i, t->name, rc, d->reason);
    }
    if (d->max_tokens > 0)
        tokens = s->facts.prompt_tokens + d->max_tokens;
    if (t->loaded && t->kv_request_max > 0)
        assert_true(tokens <= t->kv_free_tokens);
    if (t->kv_request_max > 0)
        assert_true(tokens <= t->kv_request_max);
}

static void assert_permitted(const struct scene *s, const struct admission_decision *d)
{
    const struct admission_facts *f = &s->facts;
    const struct admission_tier *t = &f->tiers[d->tier];
    assert_false(t->excluded);
    assert_false(t->kind == ADMISSION_TIER_CPU && f->cpu_denied);
    assert_false(t->kind != ADMISSION_TIER_GPU && f->accept == ADMISSION_ACCEPT_GPU_ONLY);
    assert_false(t->kind == ADMISSION_TIER_SUBSTITUTE && f->accept == ADMISSION_ACCEPT_SAME_MODEL);
    assert_true(d->max_tokens == 0 || f->may_shrink_output);
    assert_true(d->context_tokens == 0 || f->may_shrink_context);
    assert_true((d->action == ADMISSION_ACTION_SHRINK) ==
                (d->max_tokens > 0 || d->context_tokens > 0));
    if (d->action == ADMISSION_ACTION_DELAY) {
        assert_true(d->delay_ms > 0 && f->delayed_ms + d->delay_ms <= f->delay_max_ms);
        return;
    }
    assert_true(t->held_back_ms == 0);
    assert_true(t->loaded || t->load_wait_ms == 0);
    assert_true(t->loaded || !t->unfit);
    assert_false((t->device || t->host) && t->pressure == PRESSURE_LEVEL_CRITICAL);
    if (d->action == ADMISSION_ACTION_ADMIT)
        assert_int_equal(d->tier, 0);
    if (d->action == ADMISSION_ACTION_OFFLOAD || d->action == ADMISSION_ACTION_ROUTE) {
        assert_true(d->tier > 0);
        assert_true((d->action == ADMISSION_ACTION_OFFLOAD) == (t->kind == ADMISSION_TIER_HYBRID));
    }
}

static void decisions_can_be_carried_out(void **state)
{
    (void)state;
    unsigned seen[6] = {0};
    uint64_t seed = 7;
    for (unsigned i = 0; i < WALKS; i++) {
        struct scene s;
        make_scene(&s, &seed);
        struct admission_decision d = admission_decide(&s.facts);
        seen[d.action]++;
        if (!has_reason(&d))
            fail_msg("walk %u: \"%s\"", i, d.reason);
        if (d.action == ADMISSION_ACTION_REFUSE) {
            assert_true(d.permanent == (d.retry_after_ms == 0));
            continue;
        }
        assert_permitted(&s, &d);
        if (d.action != ADMISSION_ACTION_DELAY)
            assert_claimable(&s, &d);
    }
    for (unsigned i = 0; i < 6; i++)
        if (seen[i] < WALKS / 500)
            fail_msg("%s: %u times only", admission_action_name((enum admission_action)i), seen[i]);
}

/* The same scene with more foreign memory: a tier at which it ran whole is no worse a place before. */
static void less_room_never_admits_more(void **state)
{
    (void)state;
    uint64_t seed = 9;
    for (unsigned i = 0; i < WALKS; i++) {
        struct scene s;
        make_scene(&s, &seed);
        s.facts.delay_max_ms = 0;
        struct admission_decision before = admission_decide(&s.facts);
        for (unsigned k = 0; k < 2; k++) {
            int64_t more = (int64_t)random_below(&seed, 4 * GIB);
            s.views[k].foreign_bytes += (uint64_t)more;
            s.views[k].headroom_bytes -= more;
            s.views[k].admissible_bytes -= more;
        }
        struct admission_decision after = admission_decide(&s.facts);
        if (after.action == ADMISSION_ACTION_REFUSE)
            continue;
        if (before.action == ADMISSION_ACTION_REFUSE || before.tier > after.tier)
            fail_msg("walk %u: before: %s\nafter: %s", i, before.reason, after.reason);
        if (before.tier == after.tier && before.action == ADMISSION_ACTION_SHRINK &&
            before.context_tokens > 0)
            assert_true(after.context_tokens > 0 && after.context_tokens <= before.context_tokens);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decisions_can_be_carried_out),
        cmocka_unit_test(less_room_never_admits_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
