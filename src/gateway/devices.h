/*
 * Private to the files device*.c of this folder: what they share about one device.
 *
 *   devices.c         life, samples, events
 *   device_claims.c   who holds what: claim, settle, release; the gate before a start
 *   device_events.c   Xids, sleep, drivers that hang, free memory that never moves
 *   device_yield.c    giving memory back under pressure or by hand, and coming back
 *   device_external.c the same of servers that failsoft does not run
 *   device_host.c     the machine's memory: samples, pressure; device_host_claims.c: who holds it
 *   device_show.c     for the status pages
 */
#ifndef FAILSOFT_GATEWAY_DEVICES_H
#define FAILSOFT_GATEWAY_DEVICES_H

#include "gateway/internal.h"

struct gateway_device *device_find(struct gateway *g, const char *name);
/* The pool that its claims are in: its own, or the host's where it is the same memory. */
struct gateway_device *device_pool(struct gateway_device *d);
enum pressure_level device_pressure(const struct gateway_device *d);
/* A worker that failsoft runs on this device. */
bool device_has_worker(const struct gateway_device *d, const struct gateway_worker *w);

/* --- device_events.c --- */

/* For the monitor; ctx is the gateway. */
void device_on_event(void *ctx, const char *device, const struct device_event *event);
/* Whether free memory moves when that of our workers does; at every good sample. */
bool device_moves(struct gateway_device *d, const struct device_sample *sample);

/* --- device_claims.c --- */

/* The worker's process was measured: what it holds replaces what was predicted. */
void device_settle_worker(struct gateway_device *d, struct gateway_worker *w,
                          const struct device_sample *sample, uint64_t now_ms);
/* It cannot be started, and that will last: nobody waits for it. Those who do are woken. */
void device_hold_back(struct gateway_worker *w, bool lasting, const char *why);
/* What starting waited for may have changed. */
void device_start_those_that_wait(struct gateway_device *d);

/* Its owner ended, or will: the claim counts until its bytes are seen to be back. *claim is NONE after,
 * and may be before. */
void device_claim_release(struct ledger *l, uint64_t *claim, uint64_t now_ms);
/* Opens a claim of the worker's in that ledger; `what`: its bytes, pid and adopt. Errors of
 * ledger_claim_open(). */
int device_claim_open(struct ledger *l, const struct gateway_worker *w, struct ledger_request what,
                      uint64_t now_ms, uint64_t *ret_claim);
/* "waits for memory: needs …", with who holds what. `place`: " on gpu0", " of the machine". */
void device_describe_lack(const struct ledger_view *v, uint64_t need_bytes, const char *place,
                          const char *limit, char *out, size_t size);

/* --- device_host.c --- */

void device_host_init(struct gateway *g, const struct config *config);
/* of device_monitor_calls; ctx is the gateway */
void device_host_sampled(void *ctx, const struct host_sample *sample);
/* Which processes the next samples are to look at. */
void device_host_watch(struct gateway *g);

/* --- device_host_claims.c --- */

/* What its claim has to hold, from what was measured of it. */
uint64_t device_host_held_bytes(const struct gateway_worker *w);
/* The worker's process was measured: `bytes` resident. */
void device_host_settle(struct gateway_worker *w, uint64_t bytes, uint64_t now_ms);
/* May it be started, for the machine's memory? Claims it. False: why says what is missing. */
bool device_host_may_start(struct gateway_worker *w, char *why, size_t why_size);
void device_host_worker_changed(struct gateway_worker *w, enum worker_state to);
void device_host_worker_gone(struct gateway_worker *w);

/* --- device_yield.c --- */

enum { DEVICE_DRAIN_MS = 5000 };

/* After a sample: who has to go, who may end, who may come back. */
void device_yield_step(struct gateway_device *d, const struct ledger_view *view, uint64_t now_ms);
/* It takes no new requests from now on. */
void device_yield_worker(struct gateway_worker *w, const char *why);

/* --- device_external.c --- */

/* The next one to yield under pressure; NULL: none that could be made to give memory back. */
struct gateway_worker *device_external_next(const struct gateway_device *d);
void device_external_yield(struct gateway_device *d, struct gateway_worker *w, const char *why);
void device_external_yield_all(struct gateway_device *d, const char *why);
/* What one of them was asked for may still come back. */
bool device_external_is_giving(const struct gateway_device *d, uint64_t now_ms);
/* After a sample. may_come: one may come back. */
void device_external_step(struct gateway_device *d, const struct ledger_view *view, bool may_come,
                          uint64_t now_ms);

#endif
