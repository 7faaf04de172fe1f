/* Levels with hysteresis. See pressure.h. */
#include "policy/pressure.h"

enum { PRESSURE_PERCENT = 100 };

struct pressure_settings pressure_settings_default(void)
{
    return (struct pressure_settings){
        .critical_pct = 50, .back_pct = 25, .calm_ms = 10000, .window_ms = 2000};
}

void pressure_init(struct pressure *p, const struct pressure_settings *settings)
{
    *p = (struct pressure){.settings = *settings};
}

static int64_t pressure_share(uint64_t reserve_bytes, uint32_t pct)
{
    return (int64_t)(reserve_bytes / PRESSURE_PERCENT * pct);
}

/* The least headroom of a level. */
static int64_t pressure_limit(const struct pressure *p, uint64_t reserve_bytes,
                              enum pressure_level level)
{
    switch (level) {
    case PRESSURE_LEVEL_NORMAL: return (int64_t)reserve_bytes;
    case PRESSURE_LEVEL_ELEVATED: return 0;
    case PRESSURE_LEVEL_HIGH: return -pressure_share(reserve_bytes, p->settings.critical_pct);
    case PRESSURE_LEVEL_CRITICAL: break;
    }
    return INT64_MIN / 2;
}

static enum pressure_level pressure_of(const struct pressure *p, uint64_t reserve_bytes,
                                       int64_t headroom_bytes)
{
    enum pressure_level level = PRESSURE_LEVEL_NORMAL;
    while (headroom_bytes < pressure_limit(p, reserve_bytes, level))
        level++;
    return level;
}

/* Foreign memory, but for what was on its way back before it was called foreign. */
static int64_t pressure_taken(struct pressure *p, const struct pressure_facts *facts)
{
    if (p->history_count > 0 && facts->foreign_bytes > p->foreign_bytes &&
        facts->releasing_bytes < p->releasing_bytes) {
        uint64_t more = facts->foreign_bytes - p->foreign_bytes;
        uint64_t fewer = p->releasing_bytes - facts->releasing_bytes;
        p->renamed_bytes += (int64_t)(more < fewer ? more : fewer);
    }
    p->foreign_bytes = facts->foreign_bytes;
    p->releasing_bytes = facts->releasing_bytes;
    return (int64_t)facts->foreign_bytes - p->renamed_bytes;
}

/* By how much that is above its least in the window, this moment included. */
static uint64_t pressure_note_growth(struct pressure *p, int64_t taken_bytes, uint64_t now_ms)
{
    /* Entries are at least a fraction of the window apart, so that they reach across it however
     * often the figures come. */
    uint64_t apart_ms = p->settings.window_ms / (PRESSURE_HISTORY - 1);
    uint32_t last = (p->history_count + PRESSURE_HISTORY - 1) % PRESSURE_HISTORY;
    if (p->history_count > 0 && now_ms - p->history[last].at_ms < apart_ms) {
        if (taken_bytes < p->history[last].taken_bytes)
            p->history[last].taken_bytes = taken_bytes;
    } else {
        uint32_t next = p->history_count % PRESSURE_HISTORY;
        p->history[next].at_ms = now_ms;
        p->history[next].taken_bytes = taken_bytes;
        /* Wraps to a multiple, so that the position and "full" stay right. */
        p->history_count =
            p->history_count + 1 == 2 * PRESSURE_HISTORY ? PRESSURE_HISTORY : p->history_count + 1;
    }
    int64_t least = taken_bytes;
    uint32_t kept = p->history_count < PRESSURE_HISTORY ? p->history_count : PRESSURE_HISTORY;
    for (uint32_t i = 0; i < kept; i++) {
        if (now_ms - p->history[i].at_ms <= p->settings.window_ms &&
            p->history[i].taken_bytes < least)
            least = p->history[i].taken_bytes;
    }
    return (uint64_t)(taken_bytes - least);
}

enum pressure_level pressure_update(struct pressure *p, const struct pressure_facts *facts,
                                    uint64_t now_ms)
{
    if (facts->trusted)
        p->grown_bytes = pressure_note_growth(p, pressure_taken(p, facts), now_ms);
    int64_t headroom = facts->headroom_bytes - (int64_t)p->grown_bytes;
    enum pressure_level now = pressure_of(p, facts->reserve_bytes, headroom);
    if (now >= p->level) {
        p->calm = false;
        /* Old figures are no reason to unload anything, only to load nothing more. */
        if (!facts->trusted && now > PRESSURE_LEVEL_HIGH && p->level < PRESSURE_LEVEL_CRITICAL)
            now = PRESSURE_LEVEL_HIGH;
        p->level = now;
    }
    if (p->level == PRESSURE_LEVEL_NORMAL)
        return p->level;
    int64_t back = pressure_limit(p, facts->reserve_bytes, p->level - 1) +
                   pressure_share(facts->reserve_bytes, p->settings.back_pct);
    if (!facts->trusted || headroom < back) {
        p->calm = false;
    } else if (!p->calm) {
        p->calm = true;
        p->calm_since_ms = now_ms;
    } else if (now_ms - p->calm_since_ms >= p->settings.calm_ms) {
        p->level--;
        p->calm = false;
    }
    return p->level;
}

enum pressure_level pressure_with(const struct pressure *p, const struct pressure_facts *facts,
                                  uint64_t load_bytes)
{
    int64_t headroom = facts->headroom_bytes - (int64_t)load_bytes - (int64_t)p->grown_bytes;
    enum pressure_level then = pressure_of(p, facts->reserve_bytes, headroom);
    return then > p->level ? then : p->level;
}

const char *pressure_level_name(enum pressure_level level)
{
    static const char *const names[] = {"normal", "elevated", "high", "critical"};
    return (unsigned)level < sizeof(names) / sizeof(names[0]) ? names[level] : "?";
}

void comeback_init(struct comeback *c, uint64_t margin_bytes, uint64_t hold_ms)
{
    *c = (struct comeback){.margin_bytes = margin_bytes, .hold_ms = hold_ms};
}

bool comeback_update(struct comeback *c, int64_t admissible_bytes, uint64_t needed_bytes,
                     enum pressure_level level, uint64_t now_ms)
{
    bool room = level < PRESSURE_LEVEL_HIGH && admissible_bytes >= 0 &&
                (uint64_t)admissible_bytes >= needed_bytes &&
                (uint64_t)admissible_bytes - needed_bytes >= c->margin_bytes;
    if (!room) {
        c->waiting = false;
        return false;
    }
    if (!c->waiting) {
        c->waiting = true;
        c->since_ms = now_ms;
    }
    return now_ms - c->since_ms >= c->hold_ms;
}

uint64_t comeback_in_ms(const struct comeback *c, uint64_t now_ms)
{
    if (!c->waiting)
        return c->hold_ms;
    uint64_t waited = now_ms - c->since_ms;
    return waited < c->hold_ms ? c->hold_ms - waited : 0;
}
