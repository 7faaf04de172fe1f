/*
 * First fit in the card's pretended address space.
 *
 * Only blocks are stored. Free space is what lies between them, found by walking them in address
 * order: gaps next to each other are one gap by construction, nothing has to be merged, and no
 * crash can leave a wrong free list. What is free and what fits in one piece are different
 * numbers, as on a card.
 *
 * Spilled memory lies in a second region (SIM_SPILL_BASE) by the same rule, with no limit but
 * the region's size.
 */
#include <errno.h>
#include <string.h>

#include "sim/card_shared.h"

struct block_order {
    uint16_t index[SIM_BLOCKS_MAX];
    size_t count;
};

/* Blocks with base <= offset < end in address order. Insertion: the table is mostly in order. */
static void blocks_sort(const struct sim_shared *shared, uint64_t base, uint64_t end,
                        struct block_order *ret_order)
{
    ret_order->count = 0;
    for (size_t i = 0; i < SIM_BLOCKS_MAX; i++) {
        const struct sim_block *block = &shared->blocks[i];
        size_t at = ret_order->count;

        if (block->state == SIM_SLOT_FREE || block->offset < base || block->offset >= end)
            continue;
        while (at > 0 && shared->blocks[ret_order->index[at - 1]].offset > block->offset) {
            ret_order->index[at] = ret_order->index[at - 1];
            at--;
        }
        ret_order->index[at] = (uint16_t)i;
        ret_order->count++;
    }
}

/*
 * Walks the gaps of [base, end). Returns the largest; *ret_first, when not NULL, takes the start
 * of the first gap of at least `need` bytes, UINT64_MAX when there is none.
 */
static uint64_t gaps_walk(const struct sim_shared *shared, uint64_t base, uint64_t end,
                          uint64_t region_end, uint64_t need, uint64_t *ret_first)
{
    struct block_order order;
    uint64_t largest = 0;
    uint64_t cursor = base;
    uint64_t first = UINT64_MAX;

    blocks_sort(shared, base, region_end, &order);
    for (size_t i = 0; i <= order.count; i++) {
        const struct sim_block *next = i < order.count ? &shared->blocks[order.index[i]] : NULL;
        uint64_t gap_end = next != NULL && next->offset < end ? next->offset : end;

        if (gap_end > cursor) {
            if (gap_end - cursor > largest)
                largest = gap_end - cursor;
            if (first == UINT64_MAX && gap_end - cursor >= need)
                first = cursor;
        }
        if (next != NULL && next->offset + next->size_bytes > cursor)
            cursor = next->offset + next->size_bytes;
    }
    if (ret_first != NULL)
        *ret_first = first;
    return largest;
}

static void usage_sum(const struct sim_shared *shared, struct sim_usage *usage)
{
    const struct sim_settings *settings = &shared->settings;

    memset(usage, 0, sizeof *usage);
    usage->limit_bytes = settings->capacity_bytes > settings->reserve_bytes
                             ? settings->capacity_bytes - settings->reserve_bytes
                             : 0;
    for (size_t i = 0; i < SIM_BLOCKS_MAX; i++) {
        const struct sim_block *block = &shared->blocks[i];

        if (block->state == SIM_SLOT_FREE)
            continue;
        usage->n_blocks++;
        if (block->offset >= SIM_SPILL_BASE)
            usage->spilled_bytes += block->size_bytes;
        else
            usage->used_bytes += block->size_bytes;
        if (block->state == SIM_SLOT_RELEASING) {
            usage->releasing_bytes += block->size_bytes;
            if (block->release_at_ms > usage->release_last_ms)
                usage->release_last_ms = block->release_at_ms;
        }
    }
    if (usage->limit_bytes > usage->used_bytes)
        usage->free_bytes = usage->limit_bytes - usage->used_bytes;
}

void sim_usage_derive(const struct sim_shared *shared, struct sim_usage *ret_usage)
{
    uint64_t largest;

    usage_sum(shared, ret_usage);
    largest = gaps_walk(shared, 0, ret_usage->limit_bytes, SIM_SPILL_BASE, 0, NULL);
    /* After a shrink a gap may be wider than what is left to give. */
    ret_usage->largest_free_bytes =
        largest < ret_usage->free_bytes ? largest : ret_usage->free_bytes;
}

static int fault_check(struct sim_shared *shared, uint64_t bytes)
{
    struct sim_faults *faults = &shared->faults;

    if (faults->fail_next > 0) {
        faults->fail_next--;
        return -ENOMEM;
    }
    if (faults->fail_above_bytes != 0 && bytes > faults->fail_above_bytes)
        return -EOVERFLOW;
    if (shared->settings.max_alloc_bytes != 0 && bytes > shared->settings.max_alloc_bytes)
        return -EOVERFLOW;
    return 0;
}

/* Where the block goes, UINT64_MAX when nowhere. */
static uint64_t place_find(const struct sim_shared *shared, uint64_t bytes)
{
    struct sim_usage usage;
    uint64_t offset = UINT64_MAX;

    usage_sum(shared, &usage);
    if (bytes <= usage.free_bytes)
        gaps_walk(shared, 0, usage.limit_bytes, SIM_SPILL_BASE, bytes, &offset);
    if (offset == UINT64_MAX && shared->settings.spill)
        gaps_walk(shared, SIM_SPILL_BASE, SIM_SPACE_LIMIT, SIM_SPACE_LIMIT, bytes, &offset);
    return offset;
}

static struct sim_block *slot_find(struct sim_shared *shared)
{
    for (size_t i = 0; i < SIM_BLOCKS_MAX; i++)
        if (shared->blocks[i].state == SIM_SLOT_FREE)
            return &shared->blocks[i];
    return NULL;
}

static void peak_note(struct sim_shared *shared)
{
    struct sim_usage usage;

    usage_sum(shared, &usage);
    if (usage.used_bytes > shared->counters.peak_used_bytes)
        shared->counters.peak_used_bytes = usage.used_bytes;
}

static int block_place(struct sim_card *card, uint64_t bytes, uint64_t *ret_id)
{
    struct sim_shared *shared = card->shared;
    struct sim_block *block = slot_find(shared);
    uint64_t offset;
    int r = fault_check(shared, bytes);

    if (r < 0)
        return r;
    if (block == NULL)
        return -ENOSPC;
    offset = place_find(shared, bytes);
    if (offset == UINT64_MAX)
        return -ENOMEM;
    block->offset = offset;
    block->size_bytes = bytes;
    sim_point();
    block->owner = card->attachment;
    block->release_at_ms = 0;
    block->id = shared->next_id++;
    sim_point();
    block->state = SIM_SLOT_HELD;
    sim_point();
    *ret_id = block->id;
    return 0;
}

int sim_alloc_locked(struct sim_card *card, uint64_t bytes, uint64_t *ret_id)
{
    struct sim_shared *shared = card->shared;
    uint64_t rounded;
    int r;

    if (bytes == 0 || card->attachment == 0)
        return -EINVAL;
    r = sim_usable_locked(card, NULL);
    if (r < 0)
        return r;
    if (bytes > SIM_CAPACITY_MAX)
        r = -ENOMEM;
    rounded = (bytes + SIM_PAGE_BYTES - 1) / SIM_PAGE_BYTES * SIM_PAGE_BYTES;
    if (r == 0)
        r = block_place(card, rounded, ret_id);
    if (r < 0) {
        shared->counters.allocations_failed++;
        sim_event_add(shared, SIM_EVENT_ALLOC_FAILED, shared->holder, bytes);
        return r;
    }
    shared->counters.allocations++;
    peak_note(shared);
    return 0;
}

int sim_free_locked(struct sim_card *card, uint64_t id)
{
    struct sim_shared *shared = card->shared;

    for (size_t i = 0; i < SIM_BLOCKS_MAX; i++) {
        struct sim_block *block = &shared->blocks[i];

        if (block->state != SIM_SLOT_HELD || block->id != id || block->owner != card->attachment)
            continue;
        block->state = SIM_SLOT_FREE;
        sim_point();
        shared->counters.frees++;
        return 0;
    }
    return -ENOENT;
}

int sim_card_alloc(struct sim_card *card, uint64_t bytes, uint64_t *ret_id)
{
    int r = sim_lock(card);

    if (r < 0)
        return r;
    r = sim_alloc_locked(card, bytes, ret_id);
    sim_unlock(card, true);
    return r;
}

int sim_card_free(struct sim_card *card, uint64_t id)
{
    int r = sim_lock(card);

    if (r < 0)
        return r;
    r = sim_free_locked(card, id);
    sim_unlock(card, r == 0);
    return r;
}

int sim_card_memory(struct sim_card *card, uint64_t *ret_total_bytes, uint64_t *ret_free_bytes)
{
    struct sim_usage usage;
    int r = sim_lock(card);

    if (r < 0)
        return r;
    usage_sum(card->shared, &usage);
    *ret_total_bytes = card->shared->settings.capacity_bytes;
    *ret_free_bytes = card->shared->faults.lost ? 0 : usage.free_bytes;
    sim_unlock(card, false);
    return 0;
}

uint64_t sim_card_max_alloc(struct sim_card *card)
{
    uint64_t limit;

    if (sim_lock(card) < 0)
        return UINT64_MAX;
    limit = card->shared->settings.max_alloc_bytes;
    sim_unlock(card, false);
    return limit == 0 ? UINT64_MAX : limit;
}
