/*
 * Claims, and the balance of a device. What telemetry adds is in ledger_observe.c; the invariants
 * are in ledger.h.
 */
#include "policy/ledger.h"

#include "policy/claim_id.h"
#include "policy/ledger_internal.h"

#include <errno.h>
#include <string.h>

enum { RESERVE_SHARE = 20 }; /* 5 % */
#define RESERVE_LEAST_BYTES (UINT64_C(512) << 20)

static void ledger_copy_name(char *out, const char *name)
{
    size_t len = name ? strnlen(name, LEDGER_NAME_MAX - 1) : 0;
    memset(out, 0, LEDGER_NAME_MAX);
    if (len > 0)
        memcpy(out, name, len);
}

struct ledger_settings ledger_settings_default(void)
{
    return (struct ledger_settings){.stale_ms = 2000, .foreign_hold_ms = 10000, .release_ms = 5000};
}

void ledger_init(struct ledger *l, const char *name, const struct ledger_settings *settings,
                 struct ledger_claim *claims, uint32_t capacity)
{
    *l = (struct ledger){.settings = *settings, .claims = claims};
    l->capacity = capacity < CLAIM_ID_CAPACITY_MAX ? capacity : CLAIM_ID_CAPACITY_MAX;
    ledger_copy_name(l->name, name);
    foreign_init(&l->foreign, settings->foreign_hold_ms);
    memset(claims, 0, l->capacity * sizeof(*claims));
    if (settings->no_source)
        ledger_give_up_source(l);
}

void ledger_give_up_source(struct ledger *l)
{
    l->settings.no_source = true;
    l->total_bytes = l->settings.declared_bytes;
}

void ledger_set_limits(struct ledger *l, uint64_t reserve_bytes, uint64_t declared_bytes)
{
    l->settings.reserve_bytes = reserve_bytes;
    l->settings.declared_bytes = declared_bytes;
    if (l->settings.no_source)
        l->total_bytes = declared_bytes;
}

static struct ledger_claim *ledger_claim_at(const struct ledger *l, uint64_t id)
{
    uint32_t index = claim_id_index(id);
    if (id == LEDGER_CLAIM_NONE || index >= l->capacity)
        return NULL;
    struct ledger_claim *claim = &l->claims[index];
    bool same = claim->state != LEDGER_STATE_NONE && claim->generation == claim_id_generation(id);
    return same ? claim : NULL;
}

const struct ledger_claim *ledger_claim_find(const struct ledger *l, uint64_t id)
{
    return ledger_claim_at(l, id);
}

void ledger_claim_end(struct ledger_claim *claim)
{
    /* The generation stays: the next claim in this entry takes the one after it. */
    *claim = (struct ledger_claim){.generation = claim->generation};
}

static void ledger_claim_enter(struct ledger_claim *claim, enum ledger_state state, uint64_t now_ms)
{
    claim->state = state;
    claim->since_ms = now_ms;
}

struct ledger_sums ledger_sum(const struct ledger *l)
{
    struct ledger_sums sums = {0};
    for (uint32_t i = 0; i < l->capacity; i++) {
        const struct ledger_claim *claim = &l->claims[i];
        switch (claim->state) {
        case LEDGER_STATE_NONE: continue;
        case LEDGER_STATE_UNSETTLED: sums.unsettled += claim->held_bytes; break;
        case LEDGER_STATE_SETTLED: sums.settled += claim->held_bytes; break;
        case LEDGER_STATE_RELEASING:
            sums.releasing += claim->held_bytes;
            if (claim->since_ms >= l->sampled_ms)
                sums.releasing_unseen += claim->held_bytes;
            if (claim->deadline_ms > sums.deadline_ms)
                sums.deadline_ms = claim->deadline_ms;
            break;
        }
        sums.count++;
    }
    return sums;
}

static uint64_t ledger_reserve_bytes(const struct ledger *l)
{
    if (l->settings.reserve_bytes > 0)
        return l->settings.reserve_bytes;
    uint64_t share = l->total_bytes / RESERVE_SHARE;
    return share > RESERVE_LEAST_BYTES ? share : RESERVE_LEAST_BYTES;
}

static enum ledger_trust ledger_trust_at(const struct ledger *l, uint64_t now_ms)
{
    if (l->settings.no_source)
        return LEDGER_TRUST_NONE;
    if (!l->sampled || (now_ms > l->sampled_ms && now_ms - l->sampled_ms > l->settings.stale_ms))
        return LEDGER_TRUST_STALE;
    return l->distrusted ? LEDGER_TRUST_BROKEN : LEDGER_TRUST_FRESH;
}

/* The identity and what may be admitted, without the holders. */
static struct ledger_view ledger_balance(const struct ledger *l, uint64_t now_ms)
{
    struct ledger_sums sums = ledger_sum(l);
    struct ledger_view view = {
        .trust = ledger_trust_at(l, now_ms),
        .total_bytes = l->total_bytes,
        .reserve_bytes = ledger_reserve_bytes(l),
        .foreign_bytes = foreign_held_bytes(&l->foreign, now_ms),
        .settled_bytes = sums.settled,
        .unsettled_bytes = sums.unsettled,
        .releasing_bytes = sums.releasing,
        .largest_bytes = l->largest_bytes,
        .claim_count = sums.count,
    };
    if (l->sampled && now_ms > l->sampled_ms)
        view.age_ms = now_ms - l->sampled_ms;
    if (sums.releasing > 0)
        view.return_in_ms = sums.deadline_ms > now_ms ? sums.deadline_ms - now_ms : 1;
    int64_t rest = (int64_t)view.total_bytes - (int64_t)view.reserve_bytes -
                   (int64_t)view.foreign_bytes - (int64_t)view.settled_bytes -
                   (int64_t)view.unsettled_bytes;
    view.headroom_bytes = rest - (int64_t)view.releasing_bytes;
    /* Used bytes that nobody explains are at worst all foreign, with every load still to come. What
     * was being released when they were seen is among them and can only get less. */
    uint64_t seen = sums.releasing - sums.releasing_unseen;
    uint64_t unclear = l->excess_bytes > seen ? l->excess_bytes : seen;
    view.admissible_bytes = rest - (int64_t)(sums.releasing_unseen + unclear);
    if (view.trust != LEDGER_TRUST_FRESH && view.admissible_bytes > 0)
        view.admissible_bytes = 0;
    return view;
}

/* Labels are filled up with zeros: a comparison of fixed length is a few instructions. */
static bool ledger_same_label(const struct ledger_claim *claim, const char *label)
{
    return memcmp(claim->label, label, LEDGER_NAME_MAX) == 0;
}

/* The claims of one label are one holder. Only the largest few are kept. */
static void ledger_add_holder(const struct ledger *l, uint32_t first, struct ledger_view *view)
{
    const char *label = l->claims[first].label;
    for (uint32_t i = 0; i < first; i++) {
        if (l->claims[i].state != LEDGER_STATE_NONE && ledger_same_label(&l->claims[i], label))
            return; /* counted with that one */
    }
    uint64_t bytes = 0;
    for (uint32_t i = first; i < l->capacity; i++) {
        if (l->claims[i].state != LEDGER_STATE_NONE && ledger_same_label(&l->claims[i], label))
            bytes += l->claims[i].held_bytes;
    }
    unsigned place = LEDGER_HOLDERS_MAX;
    while (place > 0 && view->holders[place - 1].bytes < bytes)
        place--;
    if (place == LEDGER_HOLDERS_MAX)
        return;
    for (unsigned i = LEDGER_HOLDERS_MAX - 1; i > place; i--)
        view->holders[i] = view->holders[i - 1];
    memcpy(view->holders[place].label, label, LEDGER_NAME_MAX);
    view->holders[place].bytes = bytes;
}

struct ledger_view ledger_view(const struct ledger *l, uint64_t now_ms)
{
    struct ledger_view view = ledger_balance(l, now_ms);
    memcpy(view.name, l->name, LEDGER_NAME_MAX);
    for (uint32_t i = 0; i < l->capacity; i++) {
        if (l->claims[i].state != LEDGER_STATE_NONE)
            ledger_add_holder(l, i, &view);
    }
    return view;
}

/* Is there room for so much more? */
static bool ledger_admits(const struct ledger *l, uint64_t bytes, uint64_t now_ms)
{
    return bytes == 0 || (int64_t)bytes <= ledger_balance(l, now_ms).admissible_bytes;
}

int ledger_claim_open(struct ledger *l, const struct ledger_request *request, uint64_t now_ms,
                      uint64_t *ret_id)
{
    if (request->bytes > LEDGER_BYTES_MAX)
        return -ERANGE;
    uint32_t index = 0;
    while (index < l->capacity && l->claims[index].state != LEDGER_STATE_NONE)
        index++;
    if (index == l->capacity)
        return -ENOBUFS;
    if (!request->adopt && !ledger_admits(l, request->bytes, now_ms))
        return -ENOSPC;
    struct ledger_claim *claim = &l->claims[index];
    *claim = (struct ledger_claim){
        .owner = request->owner,
        .generation = claim->generation + 1,
        .owner_id = request->owner_id,
        .pid = request->pid,
        .held_bytes = request->bytes,
        .predicted_bytes = request->bytes,
    };
    ledger_copy_name(claim->label, request->label);
    ledger_claim_enter(claim, LEDGER_STATE_UNSETTLED, now_ms);
    *ret_id = claim_id_make(index, claim->generation);
    return 0;
}

int ledger_claim_set_pid(struct ledger *l, uint64_t id, uint32_t pid)
{
    struct ledger_claim *claim = ledger_claim_at(l, id);
    if (!claim)
        return -ENOENT;
    claim->pid = pid;
    return 0;
}

int ledger_claim_settle(struct ledger *l, uint64_t id, uint64_t measured_bytes, uint64_t now_ms)
{
    struct ledger_claim *claim = ledger_claim_at(l, id);
    if (!claim)
        return -ENOENT;
    if (measured_bytes > LEDGER_BYTES_MAX)
        return -ERANGE;
    if (claim->state == LEDGER_STATE_RELEASING)
        return -EALREADY;
    claim->measured_bytes = measured_bytes;
    claim->held_bytes = measured_bytes;
    ledger_claim_enter(claim, LEDGER_STATE_SETTLED, now_ms);
    return 0;
}

int ledger_claim_resize(struct ledger *l, uint64_t id, uint64_t bytes, uint64_t now_ms)
{
    struct ledger_claim *claim = ledger_claim_at(l, id);
    if (!claim)
        return -ENOENT;
    if (bytes > LEDGER_BYTES_MAX)
        return -ERANGE;
    if (claim->state == LEDGER_STATE_RELEASING)
        return -EALREADY;
    if (bytes > claim->held_bytes) {
        if (!ledger_admits(l, bytes - claim->held_bytes, now_ms))
            return -ENOSPC;
        /* What is added is not there yet: as a settled claim it would count as seen. */
        ledger_claim_enter(claim, LEDGER_STATE_UNSETTLED, now_ms);
    } else if (claim->state == LEDGER_STATE_SETTLED && bytes < claim->held_bytes) {
        return -EBUSY;
    }
    claim->predicted_bytes = bytes;
    claim->held_bytes = bytes;
    return 0;
}

int ledger_claim_cancel(struct ledger *l, uint64_t id)
{
    struct ledger_claim *claim = ledger_claim_at(l, id);
    if (!claim)
        return -ENOENT;
    if (claim->state != LEDGER_STATE_UNSETTLED)
        return -EBUSY;
    ledger_claim_end(claim);
    return 0;
}

int ledger_claim_begin_release(struct ledger *l, uint64_t id, uint64_t now_ms)
{
    struct ledger_claim *claim = ledger_claim_at(l, id);
    if (!claim)
        return -ENOENT;
    if (claim->state == LEDGER_STATE_RELEASING)
        return -EALREADY;
    ledger_claim_enter(claim, LEDGER_STATE_RELEASING, now_ms);
    claim->deadline_ms = now_ms + l->settings.release_ms;
    claim->looks = 0;
    return 0;
}

int ledger_claim_finish_release(struct ledger *l, uint64_t id)
{
    struct ledger_claim *claim = ledger_claim_at(l, id);
    if (!claim)
        return -ENOENT;
    if (claim->state != LEDGER_STATE_RELEASING)
        return -EBUSY;
    ledger_claim_end(claim);
    return 0;
}

const char *ledger_state_name(enum ledger_state state)
{
    static const char *const names[] = {"none", "unsettled", "settled", "releasing"};
    return (unsigned)state < sizeof(names) / sizeof(names[0]) ? names[state] : "?";
}

const char *ledger_trust_name(enum ledger_trust trust)
{
    static const char *const names[] = {"fresh", "stale", "broken", "none"};
    return (unsigned)trust < sizeof(names) / sizeof(names[0]) ? names[trust] : "?";
}
