/*
 * The card as it lies in shared memory, and what the card_*.c files share. Private to sim/ and
 * its tests.
 *
 * Everything in struct sim_shared but `changes`, `magic` and `destroyed` is touched with the lock held.
 * What must be true together is published by one store: a slot's `state` word. So there is no
 * order of kill -9 that a repair could not make whole (card_lock.c).
 *
 *   block:    FREE --fill fields, then store--> HELD --owner dead: store release_at--> RELEASING
 *               ^                                 |  free, close, reset                  | delay over
 *               +---------------------------------+--------------------------------------+
 *
 * The pretended address space: [0, SIM_SPILL_BASE) is the card, above it lies spilled memory.
 */
#ifndef FAILSOFT_SIM_CARD_SHARED_H
#define FAILSOFT_SIM_CARD_SHARED_H

#include <pthread.h>
#include <stdatomic.h>

#include "sim/card.h"

#define SIM_MAGIC       0x314d4953544c4653ull /* "SFLTSIM1", little endian */
#define SIM_VERSION     1u
#define SIM_SPILL_BASE  (1ull << 45)
#define SIM_SPACE_LIMIT (1ull << 46)

enum sim_slot_state {
    SIM_SLOT_FREE,
    SIM_SLOT_HELD,
    SIM_SLOT_RELEASING, /* blocks only */
};

struct sim_block {
    _Atomic uint32_t state; /* enum sim_slot_state; the commit word */
    uint32_t pad;
    uint64_t id;
    uint64_t owner; /* attachment id */
    uint64_t offset;
    uint64_t size_bytes;
    uint64_t release_at_ms;
};

struct sim_attachment {
    _Atomic uint32_t state; /* FREE or HELD; the commit word */
    int32_t pid;
    uint64_t id;
    uint64_t start_ticks; /* field 22 of /proc/PID/stat: a reused pid has another */
    uint64_t graphs;
    uint32_t generation;
    uint32_t role;
    char program[16];
};

struct sim_shared {
    _Atomic uint64_t magic; /* stored last when made: a card without it is not one */
    uint32_t version;
    uint32_t size_bytes;
    char name[SIM_NAME_MAX];
    char boot_id[40];
    pthread_mutex_t lock;
    _Atomic uint32_t changes; /* futex word */
    _Atomic uint32_t destroyed;
    _Atomic int32_t holder; /* pid in the critical section, for the message of a time-out */
    uint32_t generation;
    uint64_t next_id;
    struct sim_settings settings;
    struct sim_faults faults;
    struct sim_counters counters;
    uint64_t event_seq;
    struct sim_event events[SIM_EVENTS_MAX];
    struct sim_attachment attachments[SIM_PROCESSES_MAX];
    struct sim_block blocks[SIM_BLOCKS_MAX];
};

struct sim_card {
    struct sim_shared *shared;
    uint64_t attachment; /* 0: observer */
    uint32_t generation; /* of the card when this handle was opened */
    uint64_t workspace_id;
    uint64_t workspace_bytes;
};

/* --- card_lock.c --- */

/* Takes the lock, repairs after a dead holder, and looks for the dead. 0 or -ETIMEDOUT. */
int sim_lock(struct sim_card *card);
/*
 * The same without looking for the dead, which costs a read of /proc per process: for what is done
 * for every token. An engine that somebody stops is so all but never stopped in here.
 */
int sim_lock_only(struct sim_card *card);
/* `changed` moves the change number and wakes who waits for it. */
void sim_unlock(struct sim_card *card, bool changed);
int sim_lock_init(struct sim_shared *shared);
void sim_shared_repair(struct sim_shared *shared);
uint64_t sim_now_ms(void);

/*
 * Called at every point of a critical section where a kill would hurt most. NULL outside tests,
 * which let it kill their own process at the nth point.
 */
extern void (*sim_test_point)(void);
/* How long an operation waits for the lock before it says -ETIMEDOUT. Tests shorten it. */
extern uint64_t sim_lock_timeout_ms;
/* Replaces the clock in tests. NULL: CLOCK_MONOTONIC. */
extern uint64_t (*sim_test_now_ms)(void);

static inline void sim_point(void)
{
    if (sim_test_point != NULL)
        sim_test_point();
}

/* --- card_process.c --- */

/* Start time of a live process in clock ticks. -ESRCH when it is gone or a zombie. */
int sim_process_start(int32_t pid, uint64_t *ret_ticks);
/* Marks blocks of the dead as releasing, frees what is due. True when anything changed. */
bool sim_reap(struct sim_shared *shared, uint64_t now_ms);
/* The attachment of that id, or NULL. */
struct sim_attachment *sim_attachment_find(struct sim_shared *shared, uint64_t id);
/* Adds this process. -EUSERS when the table is full. */
int sim_attach(struct sim_card *card, enum sim_role role);
void sim_detach(struct sim_card *card);

/* --- card_alloc.c, lock held --- */

struct sim_usage {
    uint64_t used_bytes;
    uint64_t limit_bytes; /* capacity - reserve */
    uint64_t free_bytes;
    uint64_t largest_free_bytes;
    uint64_t spilled_bytes;
    uint64_t releasing_bytes;
    uint64_t release_last_ms;
    size_t n_blocks;
};

void sim_usage_derive(const struct sim_shared *shared, struct sim_usage *ret_usage);
int sim_alloc_locked(struct sim_card *card, uint64_t bytes, uint64_t *ret_id);
int sim_free_locked(struct sim_card *card, uint64_t id);

/* --- card_graph.c, lock held --- */

/* 0, or -ENODEV with how to fail. */
int sim_usable_locked(const struct sim_card *card, struct sim_loss *ret_loss);

/* --- card_snapshot.c, lock held --- */

void sim_event_add(struct sim_shared *shared, enum sim_event_kind kind, int32_t pid,
                   uint64_t bytes);

#endif
