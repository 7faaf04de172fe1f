/* Consecutive faults, hold, one probe. See availability.h. */
#include "policy/availability.h"

void availability_init(struct availability *a, const struct availability_settings *settings)
{
    *a = (struct availability){.settings = *settings, .next_hold_ms = settings->hold_ms};
}

void availability_configure(struct availability *a, const struct availability_settings *settings)
{
    a->settings = *settings;
    if (a->state == AVAILABILITY_STATE_AVAILABLE || a->next_hold_ms > settings->hold_max_ms)
        a->next_hold_ms = settings->hold_ms;
}

enum availability_verdict availability_ask(const struct availability *a, uint64_t now_ms)
{
    switch (a->state) {
    case AVAILABILITY_STATE_AVAILABLE: return AVAILABILITY_VERDICT_YES;
    case AVAILABILITY_STATE_SUSPENDED:
        return now_ms >= a->until_ms ? AVAILABILITY_VERDICT_PROBE : AVAILABILITY_VERDICT_NO;
    case AVAILABILITY_STATE_PROBING: break;
    }
    return AVAILABILITY_VERDICT_NO;
}

uint64_t availability_retry_in_ms(const struct availability *a, uint64_t now_ms)
{
    if (a->state == AVAILABILITY_STATE_SUSPENDED)
        return a->until_ms > now_ms ? a->until_ms - now_ms : 0;
    return a->state == AVAILABILITY_STATE_PROBING ? a->next_hold_ms : 0;
}

void availability_take_probe(struct availability *a, uint64_t owner)
{
    a->state = AVAILABILITY_STATE_PROBING;
    a->probe_owner = owner;
    a->doubted_probe = 0;
    a->run++;
}

void availability_success(struct availability *a, uint64_t owner)
{
    /* An attempt from before the suspension that ends well proves nothing about now. */
    if (a->state == AVAILABILITY_STATE_SUSPENDED)
        return;
    if (a->state == AVAILABILITY_STATE_PROBING && a->probe_owner != owner)
        return;
    a->state = AVAILABILITY_STATE_AVAILABLE;
    a->consecutive = 0;
    a->probe_owner = 0;
    a->next_hold_ms = a->settings.hold_ms;
    a->run++;
}

static void availability_suspend(struct availability *a, uint64_t now_ms)
{
    a->state = AVAILABILITY_STATE_SUSPENDED;
    a->probe_owner = 0;
    a->until_ms = now_ms + a->next_hold_ms;
    uint64_t max = a->settings.hold_max_ms;
    a->next_hold_ms = a->next_hold_ms > max / 2 ? max : a->next_hold_ms * 2;
}

bool availability_fault(struct availability *a, uint64_t owner, bool at_once, uint64_t now_ms)
{
    if (a->consecutive < UINT32_MAX)
        a->consecutive++;
    if (at_once)
        a->doubted_probe = 0; /* whatever becomes of the doubt, this has its hold */
    switch (a->state) {
    case AVAILABILITY_STATE_AVAILABLE:
        if (!at_once && a->consecutive < a->settings.failures)
            return false;
        availability_suspend(a, now_ms);
        return true;
    case AVAILABILITY_STATE_PROBING:
        if (a->probe_owner != owner)
            return false;
        availability_suspend(a, now_ms);
        return true;
    case AVAILABILITY_STATE_SUSPENDED: break;
    }
    return false;
}

bool availability_doubt(struct availability *a, uint64_t owner, uint64_t now_ms)
{
    if (a->state != AVAILABILITY_STATE_PROBING || a->probe_owner != owner)
        return false;
    a->doubted_hold_ms = a->next_hold_ms;
    a->doubted_probe = owner;
    return availability_fault(a, owner, false, now_ms);
}

bool availability_settle(struct availability *a, uint64_t owner, uint32_t run, uint64_t now_ms)
{
    if (run != a->run)
        return false;
    if (a->doubted_probe == owner) {
        a->doubted_probe = 0; /* counted already */
        return false;
    }
    return availability_fault(a, owner, false, now_ms);
}

bool availability_forgive(struct availability *a, uint64_t owner, uint32_t run, uint64_t now_ms)
{
    if (run != a->run || a->doubted_probe != owner)
        return false;
    /* As if the probe had been given up. */
    a->doubted_probe = 0;
    a->consecutive--;
    a->next_hold_ms = a->doubted_hold_ms;
    if (a->until_ms > now_ms)
        a->until_ms = now_ms;
    return true;
}

void availability_give_up(struct availability *a, uint64_t owner, uint64_t now_ms)
{
    if (a->state != AVAILABILITY_STATE_PROBING || a->probe_owner != owner)
        return;
    a->state = AVAILABILITY_STATE_SUSPENDED;
    a->probe_owner = 0;
    a->until_ms = now_ms;
}

void availability_restarted(struct availability *a, uint64_t now_ms)
{
    bool first_hold = a->next_hold_ms <= a->settings.hold_ms * 2;
    if (a->state == AVAILABILITY_STATE_SUSPENDED && first_hold && a->until_ms > now_ms)
        a->until_ms = now_ms;
}

const char *availability_state_name(enum availability_state state)
{
    switch (state) {
    case AVAILABILITY_STATE_AVAILABLE: return "available";
    case AVAILABILITY_STATE_SUSPENDED: return "suspended";
    case AVAILABILITY_STATE_PROBING: return "probing";
    }
    return "?";
}
