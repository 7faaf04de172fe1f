/*
 * The simulated accelerator: a card that several processes share.
 *
 * A card is one file in shared memory, /dev/shm/failsoft-sim-NAME-UID (folder replaceable by
 * FAILSOFT_SIM_DIR), mode 0600. It pretends to be the memory and the driver of one GPU: a
 * capacity, an address space with a first-fit allocator, and faults on command. Nobody owns it:
 * the engine's plug-in, `failsoft sim` and telemetry each map it and keep it true together.
 *
 * Invariants
 *   - The block table is the truth; every sum is derived from it, none is stored.
 *   - A block appears or disappears by one store of its state word, so a process killed anywhere
 *     leaves a valid table; the lock is robust and the next one in repairs what is left.
 *   - An attachment belongs to one process, known by pid and start time. Every operation on
 *     memory looks for the dead; what they held is `releasing` until the release delay has passed.
 *   - Two bytes are never handed out twice, and capacity is never exceeded unless spilling is on
 *     or capacity was lowered under what is in use (shown as overcommitted).
 *
 * Functions return 0 or a negative errno: -ENOENT no such card, -EPROTO a card of another version,
 * -ENODEV the card is lost, reset or destroyed under this process, -ENOMEM does not fit,
 * -ETIMEDOUT the lock was not to be had in 5 s (its holder is stopped). Outputs are untouched
 * on failure. A `struct sim_card` may be used from several threads.
 */
#ifndef FAILSOFT_SIM_CARD_H
#define FAILSOFT_SIM_CARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_NAME_MAX       32 /* with the closing NUL */
#define SIM_PROCESSES_MAX  64
#define SIM_BLOCKS_MAX     1024
#define SIM_EVENTS_MAX     64
#define SIM_PAGE_BYTES     4096u /* sizes are rounded up to it */
#define SIM_CAPACITY_MAX   (1ull << 44)
#define SIM_SLOWDOWN_MAX   100000u /* percent: a factor of 1000 */
#define SIM_RELEASE_MAX_MS 600000u
#define SIM_WHY_MAX        320
#define SIM_CARD_ENV       "FAILSOFT_SIM_CARD"
#define SIM_DIR_ENV        "FAILSOFT_SIM_DIR"
#define SIM_CARD_DEFAULT   "gpu0"

struct sim_card; /* one process's handle */

enum sim_role {
    SIM_ROLE_OBSERVER, /* looks and commands, holds nothing, does not show up */
    SIM_ROLE_ENGINE,   /* the plug-in inside an engine */
    SIM_ROLE_HOG,      /* `failsoft sim hog`: other GPU work */
    SIM_ROLE_HOLD,     /* `failsoft sim hold`: declared memory of a program that is not ggml */
};

enum sim_lose_mode {
    SIM_LOSE_GRAPH, /* graphs fail, the process lives on */
    SIM_LOSE_ABORT, /* the process prints a driver's message and aborts, as CUDA backends do */
};

enum sim_message {
    SIM_MESSAGE_CUDA,
    SIM_MESSAGE_VULKAN,
};

/* What the card is. Kept across a reset. */
struct sim_settings {
    uint64_t capacity_bytes;
    uint64_t reserve_bytes;   /* the driver's own share: part of the total, never free */
    uint64_t max_alloc_bytes; /* largest single buffer the driver grants; 0: no limit */
    uint64_t context_bytes;   /* taken by every engine that attaches (a runtime context) */
    uint64_t workspace_bytes; /* taken at compute time for each token of a batch, then kept */
    uint64_t release_delay_ms;
    uint32_t slowdown_pct;       /* 100: none, 300: graphs take three times as long */
    uint32_t spill_slowdown_pct; /* the same, for a process all of whose memory is spilled */
    bool spill;                  /* allocations over capacity succeed, outside the card */
    bool hidden;                 /* an engine that starts now finds no device */
};

/* Which fields of struct sim_settings sim_card_set() takes over. */
#define SIM_SET_CAPACITY       (1u << 0)
#define SIM_SET_RESERVE        (1u << 1)
#define SIM_SET_MAX_ALLOC      (1u << 2)
#define SIM_SET_CONTEXT        (1u << 3)
#define SIM_SET_WORKSPACE      (1u << 4)
#define SIM_SET_RELEASE_DELAY  (1u << 5)
#define SIM_SET_SLOWDOWN       (1u << 6)
#define SIM_SET_SPILL_SLOWDOWN (1u << 7)
#define SIM_SET_SPILL          (1u << 8)
#define SIM_SET_HIDDEN         (1u << 9)
#define SIM_SET_ALL            ((1u << 10) - 1)

/* What is wrong with it. All cleared by a reset. */
struct sim_faults {
    uint64_t fail_next;        /* this many allocations fail, then it is over */
    uint64_t fail_above_bytes; /* allocations larger than this fail; 0: off */
    bool stalled;              /* graphs block */
    bool lost;
    bool lose_armed; /* lost when lose_after_graphs more graphs have been started */
    uint64_t lose_after_graphs;
    enum sim_lose_mode lose_mode;
    enum sim_message lose_message;
};

struct sim_counters {
    uint64_t allocations;
    uint64_t allocations_failed;
    uint64_t frees;
    uint64_t graphs;
    uint64_t graphs_failed;
    uint64_t processes_died;  /* attached ones found dead */
    uint64_t lock_recoveries; /* the lock's holder died in the critical section */
    uint64_t blocks_repaired; /* dropped as invalid by a recovery; 0 on every known path */
    uint64_t peak_used_bytes;
};

enum sim_event_kind {
    SIM_EVENT_CREATED,
    SIM_EVENT_SETTINGS,
    SIM_EVENT_FAULT_SET,
    SIM_EVENT_ALLOC_FAILED,
    SIM_EVENT_LOST,
    SIM_EVENT_RESET,
    SIM_EVENT_PROCESS_DIED,
    SIM_EVENT_RELEASED,
    SIM_EVENT_LOCK_RECOVERED,
    SIM_EVENT_ATTACHED,
    SIM_EVENT_DETACHED,
};

struct sim_event {
    uint64_t seq;
    uint64_t time_ms; /* CLOCK_MONOTONIC */
    uint64_t bytes;
    int32_t pid;
    uint32_t kind; /* enum sim_event_kind */
};

struct sim_process {
    int32_t pid;
    enum sim_role role;
    char program[16];
    uint64_t used_bytes;    /* on the card */
    uint64_t spilled_bytes; /* outside it */
    uint64_t graphs;
    bool stale; /* attached before the last reset: lost until it opens the card anew */
};

struct sim_snapshot {
    char name[SIM_NAME_MAX];
    uint64_t now_ms; /* CLOCK_MONOTONIC when taken */
    uint32_t generation;
    struct sim_settings settings;
    struct sim_faults faults;
    struct sim_counters counters;
    uint64_t used_bytes; /* on the card, releasing ones included */
    uint64_t free_bytes; /* capacity - reserve - used, never below 0 */
    uint64_t largest_free_bytes;
    uint64_t overcommitted_bytes; /* used beyond capacity - reserve */
    uint64_t spilled_bytes;
    uint64_t releasing_bytes; /* of dead processes, not yet back */
    uint64_t release_in_ms;   /* until the last of those is back */
    size_t n_blocks;
    size_t n_processes;
    struct sim_process processes[SIM_PROCESSES_MAX];
    size_t n_events; /* oldest first */
    struct sim_event events[SIM_EVENTS_MAX];
};

/* --- life of a card (card_open.c). `why` takes one clear sentence on failure; may be NULL. --- */

/* Letters, digits, '-' and '_', at most SIM_NAME_MAX - 1. */
bool sim_card_name_valid(const char *name);
/* Defaults for a new card: everything 0 or off, no slowdown, spilling 8 times slower, 500 ms. */
void sim_settings_init(struct sim_settings *settings, uint64_t capacity_bytes);
/* -EEXIST when there is one; never replaces it. */
int sim_card_create(const char *name, const struct sim_settings *settings, char *why,
                    size_t why_size);
/*
 * Maps the card and, for every role but the observer, attaches this process to it: takes a slot
 * of the process table and, for an engine, the runtime context. Caller owns *ret_card.
 */
int sim_card_open(const char *name, enum sim_role role, struct sim_card **ret_card, char *why,
                  size_t why_size);
/* Frees what this handle holds on the card, at once, and the handle. NULL is fine. */
void sim_card_close(struct sim_card *card);
/* Gives back what this handle holds; it stays open and holds nothing any more. For exit handlers. */
void sim_card_leave(struct sim_card *card);
/* Unlinks it; those attached find it lost. -EBUSY while live processes are, unless forced. */
int sim_card_destroy(const char *name, bool force, char *why, size_t why_size);
/* Names of this user's cards, sorted, at most max; returns how many there are, or -errno. */
int sim_card_list(char (*ret_names)[SIM_NAME_MAX], size_t max);

/* --- memory (card_alloc.c) --- */

/*
 * First fit. *ret_id names the block until sim_card_free(); 0 bytes is -EINVAL. -ENOSPC: the block
 * table is full. -EOVERFLOW: over max_alloc_bytes or a fail-above fault.
 */
int sim_card_alloc(struct sim_card *card, uint64_t bytes, uint64_t *ret_id);
/* -ENOENT when this handle holds no such block (a reset may have taken it). */
int sim_card_free(struct sim_card *card, uint64_t id);
/* Total and free bytes, as a driver reports them. A lost card reports 0 free. */
int sim_card_memory(struct sim_card *card, uint64_t *ret_total_bytes, uint64_t *ret_free_bytes);
/* The largest single allocation the driver grants, UINT64_MAX without a limit. */
uint64_t sim_card_max_alloc(struct sim_card *card);

/* --- computing (card_graph.c) --- */

/* How this process is to fail when a call below says -ENODEV. */
struct sim_loss {
    enum sim_lose_mode mode;
    enum sim_message message;
};

/*
 * Before a graph over `tokens` tokens: waits while stalled, counts, takes the workspace.
 * -ENODEV (see *ret_loss), -ENOMEM (the workspace does not fit), -ETIMEDOUT.
 */
int sim_card_graph_begin(struct sim_card *card, uint64_t tokens, struct sim_loss *ret_loss);
/*
 * After it, `elapsed_ns` later: waits until it has taken as long as the slowdown asks, -ENODEV
 * when the card went away meanwhile.
 */
int sim_card_graph_end(struct sim_card *card, uint64_t elapsed_ns, struct sim_loss *ret_loss);
/* Is the card usable for this handle? 0 or -ENODEV with *ret_loss filled (which may be NULL). */
int sim_card_check(struct sim_card *card, struct sim_loss *ret_loss);
/* The lines a driver writes when it dies like this, with a first line that says it is simulated. */
void sim_card_loss_text(const char *card_name, enum sim_message message, char *out,
                        size_t out_size);

/* --- commands (card_command.c) --- */

/* -EINVAL when a value is out of bounds. */
int sim_card_set(struct sim_card *card, const struct sim_settings *settings, uint32_t mask);
int sim_card_set_fail(struct sim_card *card, uint64_t fail_next, uint64_t fail_above_bytes);
int sim_card_set_stalled(struct sim_card *card, bool stalled);
/* Lost after that many more graphs were started by anybody; 0: now. */
int sim_card_lose(struct sim_card *card, enum sim_lose_mode mode, enum sim_message message,
                  uint64_t after_graphs);
/*
 * Driver reset: faults end, all memory of those attached is gone at once, and they stay lost
 * until they open the card anew.
 */
int sim_card_reset(struct sim_card *card);

/* --- looking (card_snapshot.c) --- */

int sim_card_snapshot(struct sim_card *card, struct sim_snapshot *ret_snapshot);
const char *sim_event_name(enum sim_event_kind kind);
const char *sim_role_name(enum sim_role role);
const char *sim_card_name(const struct sim_card *card);

/*
 * The number that changes with every allocation, fault, setting, death noticed, and release.
 * Read it, look at the card, and wait for it to move: nothing between is missed.
 */
uint32_t sim_card_changes(const struct sim_card *card);
/* Until it differs from `seen` or timeout_ms passed. A futex: no polling. */
void sim_card_wait(struct sim_card *card, uint32_t seen, uint64_t timeout_ms);

#endif
