/* Findings in words and numbers: "needs 5.2 GiB of 4.1 GiB headroom on gpu0; stt holds 3 GiB; ...". */
#include "policy/admission_internal.h"

static void say_tokens(struct text *t, uint64_t tokens)
{
    text_add_u64(t, tokens);
    text_add(t, tokens == 1 ? " token" : " tokens");
}

static const char *pool_name(const struct ledger_view *pool)
{
    return pool && pool->name[0] ? pool->name : "the device";
}

/* Who has the memory: our own workers, those who are leaving, and others. */
static void say_holders(struct text *t, const struct ledger_view *pool)
{
    for (unsigned i = 0; i < LEDGER_HOLDERS_MAX && pool->holders[i].bytes > 0; i++) {
        text_add(t, "; ");
        text_add(t, pool->holders[i].label);
        text_add(t, " holds ");
        text_add_bytes(t, pool->holders[i].bytes);
    }
    if (pool->foreign_bytes > 0) {
        text_add(t, "; others use ");
        text_add_bytes(t, pool->foreign_bytes);
    }
    if (pool->releasing_bytes > 0) {
        text_add(t, "; ");
        text_add_bytes(t, pool->releasing_bytes);
        text_add(t, " on its way back");
    }
}

static void say_memory(struct text *t, const struct admission_tier *tier, const struct finding *f,
                       bool full)
{
    text_add(t, "needs ");
    text_add_bytes(t, f->need);
    bool larger_than_all = f->need > f->pool->total_bytes;
    text_add(t, larger_than_all ? ", and there is " : " of ");
    text_add_bytes(t, larger_than_all ? f->pool->total_bytes : f->room);
    text_add(t, larger_than_all ? " in all on " : " headroom on ");
    text_add(t, pool_name(f->pool));
    if (tier->low_confidence)
        text_add(t, " (upper bound of a rough estimate)");
    if (full)
        say_holders(t, f->pool);
    if (f->margin_bytes > 0) {
        text_add(t, f->pool == tier->device ? "; margin prevented full offload by "
                                            : "; margin prevented it by ");
        text_add_bytes(t, f->margin_bytes);
    }
    if (f->fit_context > 0) {
        text_add(t, "; context up to ");
        text_add_u64(t, f->fit_context);
        text_add(t, f->verdict == FINDING_SHRINKS ? " fits and is used" : " fits");
    }
}

static void say_unknown(struct text *t, const struct finding *f)
{
    text_add(t, "needs ");
    text_add_bytes(t, f->need);
    if (!f->pool) {
        text_add(t, ", and nothing is known about that memory");
        return;
    }
    text_add(t, " on ");
    text_add(t, pool_name(f->pool));
    switch (f->pool->trust) {
    case LEDGER_TRUST_STALE:
        text_add(t, ", whose memory figures are ");
        if (f->pool->total_bytes > 0) {
            text_add_ms(t, f->pool->age_ms);
            text_add(t, " old");
        } else {
            text_add(t, "not there yet");
        }
        return;
    case LEDGER_TRUST_BROKEN: text_add(t, ", whose memory figures cannot be right"); return;
    case LEDGER_TRUST_NONE: text_add(t, ", which does not tell how much is free"); return;
    case LEDGER_TRUST_FRESH: break;
    }
}

static void say_room(struct text *t, const struct finding *f, bool ever)
{
    text_add(t, "needs ");
    say_tokens(t, f->need);
    text_add(t, ever ? "; a request can have " : "; the cache has room for ");
    text_add_u64(t, f->room);
    if (!ever)
        text_add(t, " now");
}

static void say_why(struct text *t, const struct admission_tier *tier, const struct finding *f,
                    bool full)
{
    switch (f->why) {
    case FINDING_WHY_NONE: return;
    case FINDING_WHY_EXCLUDED:
        text_add(t, tier->excluded_why ? tier->excluded_why : "not available");
        return;
    case FINDING_WHY_CLIENT: text_add(t, "not accepted by the client"); return;
    case FINDING_WHY_SERVICE: text_add(t, "not allowed by the service"); return;
    case FINDING_WHY_NONSENSE:
        text_add(t, "asks for ");
        text_add_bytes(t, f->need);
        text_add(t, ": not a size");
        return;
    case FINDING_WHY_UNFIT: text_add(t, "this load failed before and would again"); return;
    case FINDING_WHY_HELD_BACK:
        text_add(t, "gives way to others for ");
        text_add_ms(t, f->wait_ms);
        return;
    case FINDING_WHY_PRESSURE:
        text_add(t, "memory pressure on ");
        text_add(t, pool_name(f->pool));
        text_add(t, " is ");
        text_add(t, pressure_level_name(tier->pressure));
        if (full)
            say_holders(t, f->pool);
        return;
    case FINDING_WHY_BLOCK:
        text_add(t, "needs one buffer of ");
        text_add_bytes(t, f->need);
        text_add(t, "; the largest on ");
        text_add(t, pool_name(f->pool));
        text_add(t, " is ");
        text_add_bytes(t, f->room);
        return;
    case FINDING_WHY_UNKNOWN: say_unknown(t, f); return;
    case FINDING_WHY_LOADING:
        text_add(t, "another load is in progress on ");
        text_add(t, pool_name(f->pool));
        return;
    case FINDING_WHY_MEMORY: say_memory(t, tier, f, full); return;
    case FINDING_WHY_CONTEXT: say_room(t, f, true); return;
    case FINDING_WHY_KV: say_room(t, f, false); return;
    }
}

void admission_say_finding(struct text *t, const struct admission_tier *tier,
                           const struct finding *f, bool full)
{
    say_why(t, tier, f, full);
    if (f->verdict == FINDING_SHRINKS && f->max_tokens > 0) {
        text_add(t, "; output is limited to ");
        say_tokens(t, f->max_tokens);
    }
    if (f->verdict == FINDING_LATER && f->wait_ms > 0 && f->why != FINDING_WHY_HELD_BACK) {
        text_add(t, "; expected within ");
        text_add_ms(t, f->wait_ms);
    }
}

void admission_say_taken(struct text *t, const struct admission_tier *tier)
{
    bool device = tier->device && tier->device_bytes.upper > 0;
    const struct ledger_view *pool = device ? tier->device : tier->host;
    uint64_t need = device ? tier->device_bytes.upper : tier->host_bytes.upper;
    if (!pool || need == 0) {
        text_add(t, tier->loaded ? "loaded, nothing more is needed" : "needs no memory here");
        return;
    }
    int64_t room =
        pool->trust == LEDGER_TRUST_FRESH ? pool->admissible_bytes : pool->headroom_bytes;
    text_add(t, "needs ");
    text_add_bytes(t, need);
    text_add(t, " of ");
    text_add_bytes(t, room > 0 ? (uint64_t)room : 0);
    text_add(t, " headroom on ");
    text_add(t, pool_name(pool));
}
