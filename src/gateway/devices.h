/*
 * Private to the files device*.c of this folder: what they share about one device.
 *
 *   devices.c         life, samples, events
 *   device_claims.c   who holds what: claim, settle, release; the gate before a start
 *   device_yield.c    giving memory back under pressure or by hand, and coming back
 *   device_show.c     for the status pages
 */
#ifndef FAILSOFT_GATEWAY_DEVICES_H
#define FAILSOFT_GATEWAY_DEVICES_H

#include "gateway/internal.h"

struct gateway_device *device_find(struct gateway *g, const char *name);
/* A worker that failsoft runs on this device. */
bool device_has_worker(const struct gateway_device *d, const struct gateway_worker *w);

/* --- device_claims.c --- */

/* The worker's process was measured: what it holds replaces what was predicted. */
void device_settle_worker(struct gateway_device *d, struct gateway_worker *w,
                          const struct device_sample *sample, uint64_t now_ms);
/* What starting waited for may have changed. */
void device_start_those_that_wait(struct gateway_device *d);

/* --- device_yield.c --- */

/* After a sample: who has to go, who may end, who may come back. */
void device_yield_step(struct gateway_device *d, const struct ledger_view *view, uint64_t now_ms);

#endif
