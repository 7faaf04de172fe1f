/*
 * Looking at the card: one consistent copy, and the short log of what happened to it.
 */
#include <errno.h>
#include <string.h>

#include "sim/card_shared.h"

void sim_event_add(struct sim_shared *shared, enum sim_event_kind kind, int32_t pid, uint64_t bytes)
{
    struct sim_event *event = &shared->events[shared->event_seq % SIM_EVENTS_MAX];

    event->seq = shared->event_seq;
    event->time_ms = sim_now_ms();
    event->bytes = bytes;
    event->pid = pid;
    event->kind = (uint32_t)kind;
    sim_point();
    shared->event_seq++;
}

const char *sim_event_name(enum sim_event_kind kind)
{
    static const char *const names[] = {
        [SIM_EVENT_CREATED] = "created",
        [SIM_EVENT_SETTINGS] = "settings changed",
        [SIM_EVENT_FAULT_SET] = "fault set",
        [SIM_EVENT_ALLOC_FAILED] = "allocation failed",
        [SIM_EVENT_LOST] = "device lost",
        [SIM_EVENT_RESET] = "reset",
        [SIM_EVENT_PROCESS_DIED] = "process died",
        [SIM_EVENT_RELEASED] = "memory back",
        [SIM_EVENT_LOCK_RECOVERED] = "lock recovered",
        [SIM_EVENT_ATTACHED] = "attached",
        [SIM_EVENT_DETACHED] = "detached",
    };

    return (size_t)kind < sizeof names / sizeof names[0] ? names[kind] : "unknown";
}

const char *sim_role_name(enum sim_role role)
{
    switch (role) {
    case SIM_ROLE_OBSERVER: return "observer";
    case SIM_ROLE_ENGINE: return "engine";
    case SIM_ROLE_HOG: return "hog";
    case SIM_ROLE_HOLD: return "hold";
    }
    return "unknown";
}

static void processes_copy(const struct sim_shared *shared, struct sim_snapshot *snapshot)
{
    for (size_t i = 0; i < SIM_PROCESSES_MAX; i++) {
        const struct sim_attachment *attachment = &shared->attachments[i];
        struct sim_process *process = &snapshot->processes[snapshot->n_processes];

        if (attachment->state != SIM_SLOT_HELD)
            continue;
        process->pid = attachment->pid;
        process->role = (enum sim_role)attachment->role;
        memcpy(process->program, attachment->program, sizeof process->program);
        process->program[sizeof process->program - 1] = '\0';
        process->graphs = attachment->graphs;
        process->stale = attachment->generation != shared->generation;
        for (size_t j = 0; j < SIM_BLOCKS_MAX; j++) {
            const struct sim_block *block = &shared->blocks[j];

            if (block->state != SIM_SLOT_HELD || block->owner != attachment->id)
                continue;
            if (block->offset >= SIM_SPILL_BASE)
                process->spilled_bytes += block->size_bytes;
            else
                process->used_bytes += block->size_bytes;
        }
        snapshot->n_processes++;
    }
}

static void events_copy(const struct sim_shared *shared, struct sim_snapshot *snapshot)
{
    uint64_t count = shared->event_seq < SIM_EVENTS_MAX ? shared->event_seq : SIM_EVENTS_MAX;

    for (uint64_t i = 0; i < count; i++)
        snapshot->events[i] = shared->events[(shared->event_seq - count + i) % SIM_EVENTS_MAX];
    snapshot->n_events = (size_t)count;
}

int sim_card_snapshot(struct sim_card *card, struct sim_snapshot *ret_snapshot)
{
    const struct sim_shared *shared = card->shared;
    struct sim_usage usage;
    int r = sim_lock(card);

    if (r < 0)
        return r;
    memset(ret_snapshot, 0, sizeof *ret_snapshot);
    memcpy(ret_snapshot->name, shared->name, sizeof ret_snapshot->name);
    ret_snapshot->now_ms = sim_now_ms();
    ret_snapshot->generation = shared->generation;
    ret_snapshot->settings = shared->settings;
    ret_snapshot->faults = shared->faults;
    ret_snapshot->counters = shared->counters;
    sim_usage_derive(shared, &usage);
    ret_snapshot->used_bytes = usage.used_bytes;
    ret_snapshot->free_bytes = usage.free_bytes;
    ret_snapshot->largest_free_bytes = usage.largest_free_bytes;
    if (usage.used_bytes > usage.limit_bytes)
        ret_snapshot->overcommitted_bytes = usage.used_bytes - usage.limit_bytes;
    ret_snapshot->spilled_bytes = usage.spilled_bytes;
    ret_snapshot->releasing_bytes = usage.releasing_bytes;
    if (usage.release_last_ms > ret_snapshot->now_ms)
        ret_snapshot->release_in_ms = usage.release_last_ms - ret_snapshot->now_ms;
    ret_snapshot->n_blocks = usage.n_blocks;
    processes_copy(shared, ret_snapshot);
    events_copy(shared, ret_snapshot);
    sim_unlock(card, false);
    return 0;
}

const char *sim_card_name(const struct sim_card *card)
{
    return card->shared->name;
}
