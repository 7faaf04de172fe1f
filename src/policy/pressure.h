/*
 * How close a device is to running out, and whether it has been quiet long enough to come back.
 *
 *            headroom, less what foreign memory grew by in the last window
 *   NORMAL     ≥ the reserve                      everything is admitted that fits
 *   ELEVATED   ≥ 0                                fits, but not much more would
 *   HIGH       ≥ −(critical share) of the reserve the reserve is being used: no new loads
 *   CRITICAL   below                              drain and unload before the device runs out
 *
 * Growth counts as if it went on once more: a game that took 2 GiB in the window may take 2 GiB more.
 * Only foreign growth does; a load of our own was admitted and is no emergency. And memory that was being
 * given back, and is called foreign when it does not come, has not grown.
 *
 * So growth from before a load would undo it right after: who starts one asks pressure_with first.
 *
 * Hysteresis: worse at once, better one level at a time, each after the headroom has been `back_pct`
 * of the reserve above the level's own limit for calm_ms without a break. Figures that are not
 * trusted never make it better.
 *
 * Pure.
 */
#ifndef FAILSOFT_POLICY_PRESSURE_H
#define FAILSOFT_POLICY_PRESSURE_H

#include <stdbool.h>
#include <stdint.h>

enum pressure_level {
    PRESSURE_LEVEL_NORMAL = 0,
    PRESSURE_LEVEL_ELEVATED,
    PRESSURE_LEVEL_HIGH,
    PRESSURE_LEVEL_CRITICAL,
};

struct pressure_settings {
    uint32_t critical_pct; /* of the reserve that may be used up before it is critical: 50 */
    uint32_t back_pct;     /* of the reserve, on top, before it gets better: 25 */
    uint64_t calm_ms;      /* 10000 */
    uint64_t window_ms;    /* of growth: 2000 */
};

struct pressure_facts {
    int64_t headroom_bytes; /* ledger_view.headroom_bytes */
    uint64_t reserve_bytes;
    uint64_t foreign_bytes;
    uint64_t releasing_bytes;
    bool trusted; /* fresh figures */
};

enum { PRESSURE_HISTORY = 8 };

struct pressure {
    struct pressure_settings settings;
    enum pressure_level level;
    bool calm; /* the headroom is there for the next better level, since calm_since_ms */
    uint64_t calm_since_ms;
    uint64_t grown_bytes;   /* by foreign memory, in the last window */
    uint64_t foreign_bytes; /* at the last trusted figures */
    uint64_t releasing_bytes;
    int64_t renamed_bytes; /* foreign now, and on its way back before; ever */
    struct {
        uint64_t at_ms;
        int64_t taken_bytes;
    } history[PRESSURE_HISTORY];
    uint32_t history_count; /* ever noted; the last PRESSURE_HISTORY are kept */
};

struct pressure_settings pressure_settings_default(void);

void pressure_init(struct pressure *p, const struct pressure_settings *settings);

/* The figures at now_ms; at every sample and every change of a claim. Returns the level. */
enum pressure_level pressure_update(struct pressure *p, const struct pressure_facts *facts,
                                    uint64_t now_ms);

/* What the level would be with so much more taken by a load: now, and by what is known of the last
 * window. Never better than the level is. */
enum pressure_level pressure_with(const struct pressure *p, const struct pressure_facts *facts,
                                  uint64_t load_bytes);

const char *pressure_level_name(enum pressure_level level);

/*
 * A worker that was unloaded because of pressure comes back when there has been room for it, and
 * for a margin on top, without a break for hold_ms.
 */
struct comeback {
    uint64_t margin_bytes; /* on top of what it needs */
    uint64_t hold_ms;
    bool waiting; /* room is there since since_ms */
    uint64_t since_ms;
};

void comeback_init(struct comeback *c, uint64_t margin_bytes, uint64_t hold_ms);

/* The figures at now_ms. True: the worker may be loaded now. Untrusted figures break the wait. */
bool comeback_update(struct comeback *c, int64_t admissible_bytes, uint64_t needed_bytes,
                     enum pressure_level level, uint64_t now_ms);

/* How long it takes at best; hold_ms while there is no room. */
uint64_t comeback_in_ms(const struct comeback *c, uint64_t now_ms);

#endif
