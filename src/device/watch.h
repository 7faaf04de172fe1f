/*
 * Two detectors over time, pure: the caller brings the clock and the numbers.
 */
#ifndef FAILSOFT_DEVICE_WATCH_H
#define FAILSOFT_DEVICE_WATCH_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Suspend and resume: CLOCK_BOOTTIME counts while the host sleeps, CLOCK_MONOTONIC does not
 * (clock_gettime(2)), so their difference grows by the time slept. After it, every memory figure is
 * from before, and the driver may have lost its state (ollama/ollama#10053).
 */
struct suspend_watch {
    bool primed;
    uint64_t offset_ms;
};

/*
 * True when the host slept for more than threshold_ms since the step before, with the time slept.
 * The first step never does; a difference that shrinks (it can not) starts anew.
 */
bool suspend_watch_step(struct suspend_watch *w, uint64_t monotonic_ms, uint64_t boottime_ms,
                        uint64_t threshold_ms, uint64_t *ret_slept_ms);

/*
 * "Free never moves": a source that reports the same free memory whatever is loaded
 * (ggml-org/whisper.cpp#3254: free is always the total). Silence alone proves nothing, an idle card
 * does not move either; the evidence is memory of our own that came or went without a trace.
 *
 *   trusted --(our use changed by ≥ 64 MiB, `samples` samples on, free the same)--> unreliable
 *   unreliable --(free moved)--> trusted
 */
struct free_watch {
    bool primed;
    bool unreliable;
    uint64_t free_bytes; /* last seen */
    uint64_t own_bytes;  /* our use when free last moved */
    uint32_t unmoved;    /* samples since our use moved and free did not */
};

#define FREE_WATCH_EVIDENCE_BYTES (64ull << 20)
#define FREE_WATCH_SAMPLES        20u /* ten seconds: some drivers show a change late */

/*
 * One fresh sample. `own_bytes` is what our workers hold on the device by their own report (buffer
 * lines of the load), not by the same source. Returns w->unreliable.
 */
bool free_watch_step(struct free_watch *w, uint64_t free_bytes, uint64_t own_bytes);

#endif
