/*
 * The card's lock: a robust, process-shared mutex.
 *
 * When its holder dies in the critical section the kernel hands the lock to the next one with
 * EOWNERDEAD. Slots are published by one store (card_shared.h), so nothing half-written is ever
 * visible; the repair still checks every slot and drops what is not valid, so that one wrong block
 * can not make every later sum wrong. A holder killed during the repair leaves EOWNERDEAD
 * again, and the next one repairs.
 *
 * A holder that is *stopped* is no crash: others give up after a while and say so.
 */
#include <errno.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "sim/card_shared.h"

void (*sim_test_point)(void);
uint64_t (*sim_test_now_ms)(void);
uint64_t sim_lock_timeout_ms = 5000;

/* Longest single sleep on the futex: a waker killed between store and wake costs this much. */
#define SIM_WAIT_SLICE_MS 500

uint64_t sim_now_ms(void)
{
    struct timespec now;

    if (sim_test_now_ms != NULL)
        return sim_test_now_ms();
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000u + (uint64_t)now.tv_nsec / 1000000u;
}

int sim_lock_init(struct sim_shared *shared)
{
    pthread_mutexattr_t attributes;
    int error = pthread_mutexattr_init(&attributes);

    if (error != 0)
        return -error;
    error = pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    if (error == 0)
        error = pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    if (error == 0)
        error = pthread_mutex_init(&shared->lock, &attributes);
    pthread_mutexattr_destroy(&attributes);
    return -error;
}

static bool block_in_bounds(const struct sim_block *block)
{
    return block->id != 0 && block->size_bytes != 0 && block->offset < SIM_SPACE_LIMIT &&
           block->size_bytes <= SIM_SPACE_LIMIT - block->offset &&
           (block->offset >= SIM_SPILL_BASE || block->offset + block->size_bytes <= SIM_SPILL_BASE);
}

static bool blocks_overlap(const struct sim_block *a, const struct sim_block *b)
{
    return a->offset < b->offset + b->size_bytes && b->offset < a->offset + a->size_bytes;
}

/* Of two blocks over the same bytes the younger one goes: the elder was there first. */
static bool block_valid(const struct sim_shared *shared, const struct sim_block *block)
{
    if (!block_in_bounds(block))
        return false;
    for (size_t i = 0; i < SIM_BLOCKS_MAX; i++) {
        const struct sim_block *other = &shared->blocks[i];

        if (other == block || other->state == SIM_SLOT_FREE || other->state > SIM_SLOT_RELEASING ||
            !block_in_bounds(other) || !blocks_overlap(block, other))
            continue;
        if (other->id < block->id || (other->id == block->id && other < block))
            return false;
    }
    return true;
}

void sim_shared_repair(struct sim_shared *shared)
{
    for (size_t i = 0; i < SIM_BLOCKS_MAX; i++) {
        struct sim_block *block = &shared->blocks[i];
        uint32_t state = block->state;

        if (state == SIM_SLOT_FREE)
            continue;
        if (state > SIM_SLOT_RELEASING || !block_valid(shared, block)) {
            block->state = SIM_SLOT_FREE;
            shared->counters.blocks_repaired++;
            continue;
        }
        /* Whose attachment is gone belongs to the dead: it comes back like theirs. */
        if (state == SIM_SLOT_HELD && sim_attachment_find(shared, block->owner) == NULL) {
            block->release_at_ms = sim_now_ms() + shared->settings.release_delay_ms;
            block->state = SIM_SLOT_RELEASING;
        }
        if (block->id >= shared->next_id)
            shared->next_id = block->id + 1;
    }
    for (size_t i = 0; i < SIM_PROCESSES_MAX; i++) {
        struct sim_attachment *attachment = &shared->attachments[i];

        if (attachment->state > SIM_SLOT_HELD)
            attachment->state = SIM_SLOT_FREE;
        if (attachment->state == SIM_SLOT_HELD && attachment->id >= shared->next_id)
            shared->next_id = attachment->id + 1;
    }
}

static void change_publish(struct sim_shared *shared)
{
    atomic_fetch_add(&shared->changes, 1);
    syscall(SYS_futex, &shared->changes, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

static int mutex_take(struct sim_shared *shared)
{
    struct timespec deadline;
    int error;

    clock_gettime(CLOCK_MONOTONIC, &deadline);
    deadline.tv_sec += (time_t)(sim_lock_timeout_ms / 1000);
    deadline.tv_nsec += (long)(sim_lock_timeout_ms % 1000) * 1000000L;
    if (deadline.tv_nsec >= 1000000000L) {
        deadline.tv_sec++;
        deadline.tv_nsec -= 1000000000L;
    }
    error = pthread_mutex_clocklock(&shared->lock, CLOCK_MONOTONIC, &deadline);
    if (error != EOWNERDEAD)
        return -error;
    sim_point();
    sim_shared_repair(shared);
    shared->counters.lock_recoveries++;
    sim_event_add(shared, SIM_EVENT_LOCK_RECOVERED, shared->holder, 0);
    sim_point();
    pthread_mutex_consistent(&shared->lock);
    change_publish(shared);
    return 0;
}

int sim_lock_only(struct sim_card *card)
{
    int r = mutex_take(card->shared);

    if (r < 0)
        return r;
    card->shared->holder = (int32_t)getpid();
    sim_point();
    return 0;
}

int sim_lock(struct sim_card *card)
{
    int r = sim_lock_only(card);

    if (r < 0)
        return r;
    if (sim_reap(card->shared, sim_now_ms()))
        change_publish(card->shared);
    sim_point();
    return 0;
}

void sim_unlock(struct sim_card *card, bool changed)
{
    struct sim_shared *shared = card->shared;

    sim_point();
    if (changed)
        change_publish(shared);
    shared->holder = 0;
    sim_point();
    pthread_mutex_unlock(&shared->lock);
}

uint32_t sim_card_changes(const struct sim_card *card)
{
    return atomic_load(&card->shared->changes);
}

void sim_card_wait(struct sim_card *card, uint32_t seen, uint64_t timeout_ms)
{
    uint64_t slice_ms = timeout_ms < SIM_WAIT_SLICE_MS ? timeout_ms : SIM_WAIT_SLICE_MS;
    struct timespec slice = {
        .tv_sec = (time_t)(slice_ms / 1000),
        .tv_nsec = (long)(slice_ms % 1000) * 1000000L,
    };

    /* One slice at most: callers look again in a loop of their own, so an early return is fine. */
    if (atomic_load(&card->shared->changes) == seen)
        syscall(SYS_futex, &card->shared->changes, FUTEX_WAIT, seen, &slice, NULL, 0);
}
