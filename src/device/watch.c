/* Detectors over time. Pure; see watch.h for what they detect and why. */
#include "device/watch.h"

bool suspend_watch_step(struct suspend_watch *w, uint64_t monotonic_ms, uint64_t boottime_ms,
                        uint64_t threshold_ms, uint64_t *ret_slept_ms)
{
    uint64_t offset = boottime_ms > monotonic_ms ? boottime_ms - monotonic_ms : 0;
    bool slept = w->primed && offset > w->offset_ms && offset - w->offset_ms > threshold_ms;

    if (slept)
        *ret_slept_ms = offset - w->offset_ms;
    w->primed = true;
    w->offset_ms = offset;
    return slept;
}

static uint64_t distance(uint64_t a, uint64_t b)
{
    return a > b ? a - b : b - a;
}

bool free_watch_step(struct free_watch *w, uint64_t free_bytes, uint64_t own_bytes)
{
    if (!w->primed || free_bytes != w->free_bytes) {
        w->primed = true;
        w->unreliable = false;
        w->free_bytes = free_bytes;
        w->own_bytes = own_bytes;
        w->unmoved = 0;
        return false;
    }
    /* A load and its unload between two moves leave no evidence; only what stands now counts. */
    if (distance(own_bytes, w->own_bytes) < FREE_WATCH_EVIDENCE_BYTES)
        w->unmoved = 0;
    else if (w->unmoved < FREE_WATCH_SAMPLES && ++w->unmoved == FREE_WATCH_SAMPLES)
        w->unreliable = true;
    return w->unreliable;
}
