/*
 * What telemetry says, brought together with the claims:
 *
 *     used = explained by live claims + excess + foreign
 *
 * Explained is what our processes are seen to hold, each up to its claims; without figures per
 * process, settled claims as they were measured. The rest, X, is foreign, except that loads in
 * progress and memory on its way back (P bytes at most) hide in it. So foreign is somewhere in
 * [X − P, X]; it is taken to be where it last was, as near as those bounds allow. See ledger.h for
 * what admission makes of the doubt.
 *
 * What a process was last seen to hold, and holds no longer, is such memory on its way back. A driver
 * drops a dead process from its list before its memory (F38), the two figures of one sample are not of
 * one moment, and a loop that is busy hears of an exit after the sample that shows it. One sample long
 * where the process still holds something, else until its owner releases or measures it.
 */
#include "policy/ledger.h"

#include "policy/ledger_internal.h"

#include <errno.h>

/* Figures of one moment from two counters differ a little; more than this is a contradiction. */
#define LEDGER_SLACK_BYTES (UINT64_C(64) << 20)
enum { LEDGER_SLACK_SHARE = 64, RELEASE_LOOKS = 2 };

/* What a sample says about the claims. */
struct ledger_seen {
    uint64_t explained;
    uint64_t hidden;    /* loads that cannot be told from foreign memory */
    uint64_t processes; /* all that ours are said to hold */
};

/* Total and what is taken of it. 0, -ENODATA, -ERANGE. */
static int ledger_check(const struct ledger *l, const struct ledger_sample *s, uint64_t *ret_total,
                        uint64_t *ret_taken)
{
    if (!s->total_valid || (!s->used_valid && !s->free_valid))
        return -ENODATA;
    uint64_t total = s->total_bytes;
    if (total == 0 || total > LEDGER_BYTES_MAX || (s->free_valid && s->free_bytes > total))
        return -ERANGE;
    uint64_t taken = s->free_valid ? total - s->free_bytes : 0;
    if (s->used_valid) {
        /* More used than there is happens when a device is made smaller, but not without end. */
        if (s->used_bytes > 2 * total)
            return -ERANGE;
        if (s->used_bytes > taken)
            taken = s->used_bytes;
    }
    uint64_t declared = l->settings.declared_bytes;
    *ret_total = declared > 0 && declared < total ? declared : total;
    *ret_taken = taken;
    return 0;
}

static bool ledger_is_live(const struct ledger_claim *claim)
{
    return claim->state == LEDGER_STATE_UNSETTLED || claim->state == LEDGER_STATE_SETTLED;
}

/* The process's bytes; listed twice, it still has only one memory. */
static uint64_t ledger_process_bytes(const struct ledger_sample *s, uint32_t pid)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < s->process_count; i++) {
        if (s->processes[i].pid == pid && s->processes[i].bytes > bytes)
            bytes = s->processes[i].bytes;
    }
    return bytes;
}

/* What the process of claim `first` explains, once for all its claims. */
static void ledger_explain_process(const struct ledger *l, const struct ledger_sample *s,
                                   uint32_t first, struct ledger_seen *seen)
{
    uint32_t pid = l->claims[first].pid;
    uint64_t bytes = ledger_process_bytes(s, pid);
    if (bytes > LEDGER_BYTES_MAX)
        bytes = LEDGER_BYTES_MAX;
    uint64_t left = bytes;
    for (uint32_t i = 0; i < l->capacity; i++) {
        const struct ledger_claim *claim = &l->claims[i];
        if (!ledger_is_live(claim) || claim->pid != pid)
            continue;
        if (i < first)
            return;
        uint64_t part = left < claim->held_bytes ? left : claim->held_bytes;
        uint64_t before =
            claim->shown_bytes < claim->held_bytes ? claim->shown_bytes : claim->held_bytes;
        /* It ended, and may have grown since it was last seen. */
        if (bytes == 0 && claim->shown_bytes > 0)
            before = claim->held_bytes;
        left -= part;
        seen->explained += part;
        seen->hidden += before > part ? before - part : 0;
    }
    seen->processes += bytes;
}

/* Keeps what each process was shown to hold, in the order in which its claims explain it. */
static void ledger_note_shown(struct ledger *l, const struct ledger_sample *s)
{
    for (uint32_t i = 0; s->processes_valid && i < l->capacity; i++) {
        struct ledger_claim *claim = &l->claims[i];
        if (!ledger_is_live(claim) || claim->pid == 0)
            continue;
        uint64_t left = ledger_process_bytes(s, claim->pid);
        if (left == 0)
            continue;
        for (uint32_t j = 0; j < i && left > 0; j++) {
            const struct ledger_claim *other = &l->claims[j];
            if (ledger_is_live(other) && other->pid == claim->pid)
                left -= left < other->held_bytes ? left : other->held_bytes;
        }
        claim->shown_bytes = left < claim->held_bytes ? left : claim->held_bytes;
    }
}

static struct ledger_seen ledger_explain(const struct ledger *l, const struct ledger_sample *s)
{
    struct ledger_seen seen = {0};
    for (uint32_t i = 0; i < l->capacity; i++) {
        const struct ledger_claim *claim = &l->claims[i];
        if (!ledger_is_live(claim))
            continue;
        if (s->processes_valid && claim->pid != 0)
            ledger_explain_process(l, s, i, &seen);
        else if (claim->state == LEDGER_STATE_SETTLED && claim->since_ms < s->taken_ms)
            seen.explained += claim->held_bytes;
        else
            seen.hidden += claim->held_bytes;
    }
    return seen;
}

/* Bytes of the releasing claims that began after this one; of those of one moment, the later entry. */
static uint64_t ledger_released_after(const struct ledger *l, uint32_t at)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < l->capacity; i++) {
        const struct ledger_claim *claim = &l->claims[i];
        bool after = claim->since_ms > l->claims[at].since_ms ||
                     (claim->since_ms == l->claims[at].since_ms && i > at);
        if (claim->state == LEDGER_STATE_RELEASING && after)
            bytes += claim->held_bytes;
    }
    return bytes;
}

/*
 * Lets the releasing claims go as far as two samples have shown their memory to be back. What is not
 * back is taken to be of those that began last: where workers follow each other fast, something is
 * always on its way, and the first of them would never end.
 */
static void ledger_return(struct ledger *l, const struct ledger_sample *s, uint64_t not_back)
{
    uint64_t left = not_back > l->last_not_back ? not_back : l->last_not_back;
    uint64_t releasing = 0;
    for (uint32_t i = 0; i < l->capacity; i++) {
        struct ledger_claim *claim = &l->claims[i];
        if (claim->state != LEDGER_STATE_RELEASING)
            continue;
        uint64_t later = ledger_released_after(l, i);
        uint64_t keep = left > later ? left - later : 0;
        keep = claim->held_bytes < keep ? claim->held_bytes : keep;
        /* A sample from before the release shows nothing, and the first one after it may be a slip. */
        if (s->taken_ms > claim->since_ms && claim->looks < RELEASE_LOOKS)
            claim->looks++;
        if (claim->looks == RELEASE_LOOKS)
            claim->held_bytes = keep;
        releasing += claim->held_bytes;
        if (claim->held_bytes == 0)
            ledger_claim_end(claim);
    }
    l->last_not_back = not_back < releasing ? not_back : releasing;
}

int ledger_tick(struct ledger *l, uint64_t now_ms)
{
    int ended = 0;
    uint64_t lost = 0;
    for (uint32_t i = 0; i < l->capacity; i++) {
        struct ledger_claim *claim = &l->claims[i];
        if (claim->state != LEDGER_STATE_RELEASING || now_ms < claim->deadline_ms)
            continue;
        if (claim->looks < RELEASE_LOOKS)
            lost += claim->held_bytes;
        ledger_claim_end(claim);
        ended++;
    }
    if (ended == 0 || l->settings.no_source)
        return ended;
    /* What is not back is foreign from now on, unless others may still explain it. Without two looks
     * nobody knows: then it is all of it. */
    uint64_t unexplained = l->base_bytes + l->excess_bytes;
    uint64_t doubt = l->hidden_bytes + ledger_sum(l).releasing;
    if (unexplained > doubt && unexplained - doubt > l->base_bytes)
        l->base_bytes = unexplained - doubt;
    l->excess_bytes = unexplained - l->base_bytes;
    l->base_bytes += lost;
    foreign_note(&l->foreign, l->base_bytes, now_ms);
    return ended;
}

int ledger_observe(struct ledger *l, const struct ledger_sample *sample, uint64_t now_ms)
{
    uint64_t total = 0;
    uint64_t taken = 0;
    ledger_tick(l, now_ms);
    if (sample->taken_ms > now_ms) {
        l->distrusted = true;
        return -ERANGE;
    }
    if (now_ms - sample->taken_ms > l->settings.stale_ms ||
        (l->sampled && sample->taken_ms < l->sampled_ms))
        return -ESTALE;
    int rc = ledger_check(l, sample, &total, &taken);
    if (rc == -ENODATA)
        return rc;
    struct ledger_seen seen = ledger_explain(l, sample);
    uint64_t slack = total / LEDGER_SLACK_SHARE;
    if (slack < LEDGER_SLACK_BYTES)
        slack = LEDGER_SLACK_BYTES;
    if (rc < 0 || seen.explained > taken + slack || seen.processes > taken + slack) {
        l->distrusted = true;
        return -ERANGE;
    }

    uint64_t unexplained = taken > seen.explained ? taken - seen.explained : 0;
    uint64_t releasing = ledger_sum(l).releasing;
    uint64_t doubt = seen.hidden + releasing;
    uint64_t least = unexplained > doubt ? unexplained - doubt : 0;
    if (l->base_bytes > unexplained || !l->sampled)
        l->base_bytes = unexplained;
    if (l->base_bytes < least)
        l->base_bytes = least;
    l->excess_bytes = unexplained - l->base_bytes;
    l->hidden_bytes = seen.hidden;
    l->total_bytes = total;
    l->largest_bytes = sample->largest_bytes;
    l->sampled = true;
    l->distrusted = false;
    l->sampled_ms = sample->taken_ms;
    foreign_note(&l->foreign, l->base_bytes, sample->taken_ms);
    ledger_note_shown(l, sample);
    ledger_return(l, sample, l->excess_bytes < releasing ? l->excess_bytes : releasing);
    return 0;
}
