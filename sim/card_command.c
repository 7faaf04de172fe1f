/*
 * Commands to the card: settings, faults, reset.
 *
 * A command is a few stores under the lock. Each value is valid alone, so one that is
 * killed in between leaves a card that works, with part of the command done.
 */
#include <errno.h>

#include "sim/card_shared.h"

static bool settings_valid(const struct sim_settings *settings)
{
    return settings->capacity_bytes <= SIM_CAPACITY_MAX &&
           settings->reserve_bytes <= SIM_CAPACITY_MAX &&
           settings->max_alloc_bytes <= SIM_CAPACITY_MAX &&
           settings->context_bytes <= SIM_CAPACITY_MAX &&
           settings->workspace_bytes <= SIM_CAPACITY_MAX &&
           settings->release_delay_ms <= SIM_RELEASE_MAX_MS && settings->slowdown_pct >= 100 &&
           settings->slowdown_pct <= SIM_SLOWDOWN_MAX && settings->spill_slowdown_pct >= 100 &&
           settings->spill_slowdown_pct <= SIM_SLOWDOWN_MAX;
}

static void settings_merge(struct sim_settings *into, const struct sim_settings *from,
                           uint32_t mask)
{
    if (mask & SIM_SET_CAPACITY)
        into->capacity_bytes = from->capacity_bytes;
    if (mask & SIM_SET_RESERVE)
        into->reserve_bytes = from->reserve_bytes;
    if (mask & SIM_SET_MAX_ALLOC)
        into->max_alloc_bytes = from->max_alloc_bytes;
    if (mask & SIM_SET_CONTEXT)
        into->context_bytes = from->context_bytes;
    if (mask & SIM_SET_WORKSPACE)
        into->workspace_bytes = from->workspace_bytes;
    if (mask & SIM_SET_RELEASE_DELAY)
        into->release_delay_ms = from->release_delay_ms;
    if (mask & SIM_SET_SLOWDOWN)
        into->slowdown_pct = from->slowdown_pct;
    if (mask & SIM_SET_SPILL_SLOWDOWN)
        into->spill_slowdown_pct = from->spill_slowdown_pct;
    if (mask & SIM_SET_SPILL)
        into->spill = from->spill;
    if (mask & SIM_SET_HIDDEN)
        into->hidden = from->hidden;
}

int sim_card_set(struct sim_card *card, const struct sim_settings *settings, uint32_t mask)
{
    struct sim_settings merged;
    int r = sim_lock(card);

    if (r < 0)
        return r;
    merged = card->shared->settings;
    settings_merge(&merged, settings, mask);
    if (!settings_valid(&merged)) {
        sim_unlock(card, false);
        return -EINVAL;
    }
    sim_point();
    settings_merge(&card->shared->settings, settings, mask);
    sim_event_add(card->shared, SIM_EVENT_SETTINGS, card->shared->holder, merged.capacity_bytes);
    sim_unlock(card, true);
    return 0;
}

int sim_card_set_fail(struct sim_card *card, uint64_t fail_next, uint64_t fail_above_bytes)
{
    int r = sim_lock(card);

    if (r < 0)
        return r;
    card->shared->faults.fail_next = fail_next;
    sim_point();
    card->shared->faults.fail_above_bytes = fail_above_bytes;
    sim_event_add(card->shared, SIM_EVENT_FAULT_SET, card->shared->holder, fail_above_bytes);
    sim_unlock(card, true);
    return 0;
}

int sim_card_set_stalled(struct sim_card *card, bool stalled)
{
    int r = sim_lock(card);

    if (r < 0)
        return r;
    card->shared->faults.stalled = stalled;
    sim_event_add(card->shared, SIM_EVENT_FAULT_SET, card->shared->holder, 0);
    sim_unlock(card, true);
    return 0;
}

int sim_card_lose(struct sim_card *card, enum sim_lose_mode mode, enum sim_message message,
                  uint64_t after_graphs)
{
    struct sim_faults *faults;
    int r = sim_lock(card);

    if (r < 0)
        return r;
    faults = &card->shared->faults;
    faults->lose_mode = mode;
    faults->lose_message = message;
    faults->lose_after_graphs = after_graphs;
    sim_point();
    faults->lose_armed = after_graphs != 0;
    faults->lost = after_graphs == 0;
    sim_event_add(card->shared, after_graphs == 0 ? SIM_EVENT_LOST : SIM_EVENT_FAULT_SET,
                  card->shared->holder, 0);
    sim_unlock(card, true);
    return 0;
}

int sim_card_reset(struct sim_card *card)
{
    struct sim_shared *shared = card->shared;
    int r = sim_lock(card);

    if (r < 0)
        return r;
    /* First the generation: from here on nobody attached before can allocate or compute. */
    shared->generation++;
    card->generation = card->attachment == 0 ? shared->generation : card->generation;
    sim_point();
    for (size_t i = 0; i < SIM_BLOCKS_MAX; i++) {
        shared->blocks[i].state = SIM_SLOT_FREE;
        sim_point();
    }
    shared->faults.fail_next = 0;
    shared->faults.fail_above_bytes = 0;
    shared->faults.lose_armed = false;
    shared->faults.lose_after_graphs = 0;
    shared->faults.stalled = false;
    shared->faults.lost = false;
    sim_event_add(shared, SIM_EVENT_RESET, shared->holder, 0);
    sim_unlock(card, true);
    return 0;
}
