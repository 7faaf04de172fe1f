/* The table of a request's life. See the picture in lifecycle.h. */
#include "policy/lifecycle.h"

#include <stddef.h>

#define ST(x) LIFECYCLE_STATE_##x
#define EV(x) LIFECYCLE_EVENT_##x
#define DO(x) LIFECYCLE_ACTION_##x
#define ROW(next, actions)                                                                         \
    {                                                                                              \
        true, ST(next), (actions)                                                                  \
    }

static const struct lifecycle_step table[LIFECYCLE_STATE_COUNT][LIFECYCLE_EVENT_COUNT] =
    {
        [ST(RECEIVED)] =
            {
                [EV(IDENTIFIED)] = ROW(DECIDING, DO(DECIDE)),
                [EV(REFUSED)] = ROW(FAILED, DO(SAY_ERROR)),
                [EV(GONE)] = ROW(CANCELLED, DO(CLOSE)),
                [EV(CANCEL)] = ROW(CANCELLED, DO(SAY_ERROR)),
            },
        [ST(DECIDING)] =
            {
                [EV(ASK_COUNT)] = ROW(COUNTING, DO(START_COUNT)),
                [EV(SLOT)] = ROW(DISPATCHED, DO(DISPATCH)),
                [EV(QUEUED)] = ROW(WAITING, DO(ENQUEUE)),
                [EV(NO_TIER)] = ROW(FAILED, DO(SAY_ERROR)),
                [EV(GONE)] = ROW(CANCELLED, DO(CLOSE)),
                [EV(CANCEL)] = ROW(CANCELLED, DO(SAY_ERROR)),
            },
        [ST(COUNTING)] =
            {
                [EV(COUNTED)] = ROW(DECIDING, DO(DECIDE)),
                [EV(GONE)] = ROW(CANCELLED, DO(DROP_COUNT) | DO(CLOSE)),
                [EV(CANCEL)] = ROW(CANCELLED, DO(DROP_COUNT) | DO(SAY_ERROR)),
            },
        [ST(WAITING)] =
            {
                [EV(WAKE)] = ROW(DECIDING, DO(LEAVE_QUEUE) | DO(DECIDE)),
                [EV(EXPIRED)] = ROW(DECIDING, DO(LEAVE_QUEUE) | DO(DECIDE)),
                [EV(GONE)] = ROW(CANCELLED, DO(LEAVE_QUEUE) | DO(CLOSE)),
                [EV(CANCEL)] = ROW(CANCELLED, DO(LEAVE_QUEUE) | DO(SAY_ERROR)),
            },
        [ST(DISPATCHED)] =
            {
                [EV(OUTPUT)] = ROW(RELAYING, DO(COMMIT)),
                [EV(ANSWER)] = ROW(DONE, DO(DROP_ATTEMPT) | DO(REPLY)),
                [EV(FAULT_RETRY)] = ROW(PAUSED, DO(DROP_ATTEMPT) | DO(PAUSE)),
                [EV(FAULT_NEXT)] = ROW(DECIDING, DO(DROP_ATTEMPT) | DO(DECIDE)),
                [EV(FAULT_FINAL)] = ROW(FAILED, DO(DROP_ATTEMPT) | DO(REPLY)),
                [EV(GONE)] = ROW(CANCELLED, DO(DROP_ATTEMPT) | DO(CLOSE)),
                [EV(CANCEL)] = ROW(CANCELLED, DO(DROP_ATTEMPT) | DO(SAY_ERROR)),
            },
        [ST(PAUSED)] =
            {
                [EV(WAKE)] = ROW(DECIDING, DO(DECIDE)),
                [EV(GONE)] = ROW(CANCELLED, DO(CLOSE)),
                [EV(CANCEL)] = ROW(CANCELLED, DO(SAY_ERROR)),
            },
        [ST(RELAYING)] =
            {
                [EV(END)] = ROW(DONE, DO(DROP_ATTEMPT) | DO(END)),
                [EV(CUT)] = ROW(FAILED, DO(DROP_ATTEMPT) | DO(SAY_CUT)),
                [EV(GONE)] = ROW(CANCELLED, DO(DROP_ATTEMPT) | DO(CLOSE)),
                [EV(CANCEL)] = ROW(CANCELLED, DO(DROP_ATTEMPT) | DO(SAY_CUT)),
            },
};

struct lifecycle_step lifecycle_next(enum lifecycle_state state, enum lifecycle_event event)
{
    struct lifecycle_step stay = {false, state, 0};
    if ((unsigned)state >= LIFECYCLE_STATE_COUNT || (unsigned)event >= LIFECYCLE_EVENT_COUNT)
        return stay;
    return table[state][event].legal ? table[state][event] : stay;
}

bool lifecycle_is_final(enum lifecycle_state state)
{
    return state >= LIFECYCLE_STATE_DONE;
}

const char *lifecycle_state_name(enum lifecycle_state state)
{
    static const char *const names[LIFECYCLE_STATE_COUNT] = {
        "received", "deciding", "counting", "waiting", "dispatched",
        "paused",   "relaying", "done",     "failed",  "cancelled",
    };
    return (unsigned)state < LIFECYCLE_STATE_COUNT ? names[state] : "?";
}

const char *lifecycle_event_name(enum lifecycle_event event)
{
    static const char *const names[LIFECYCLE_EVENT_COUNT] = {
        "identified", "refused",     "ask-count", "counted", "slot",   "queued",
        "no-tier",    "wake",        "expired",   "output",  "answer", "fault-retry",
        "fault-next", "fault-final", "cut",       "end",     "gone",   "cancel",
    };
    return (unsigned)event < LIFECYCLE_EVENT_COUNT ? names[event] : "?";
}
