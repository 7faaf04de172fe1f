/*
 * The pages that failsoft serves about itself, written from a snapshot of the gateway's state. Pure:
 * no clock, no I/O; what they say is what the snapshot says, so they answer at once while a device
 * hangs.
 *
 * All return 0 or the errors of buf_append (-EMSGSIZE, -ENOMEM); on failure the buffer holds a part.
 */
#ifndef FAILSOFT_ADMIN_PAGES_H
#define FAILSOFT_ADMIN_PAGES_H

#include "base/buf.h"
#include "gateway/snapshot.h"

/* Media types of the pages. */
#define ADMIN_TYPE_JSON    "application/json"
#define ADMIN_TYPE_METRICS "text/plain; version=0.0.4; charset=utf-8"

/* `/failsoft/v1/status`: services with their tiers and workers, running requests, counters. */
int admin_write_status_json(const struct gateway_snapshot *s, struct buf *out);

/* One running request, as an object (after a comma where one is needed). */
int admin_write_request_json(const struct gateway_request_snapshot *q, struct buf *out);

/* `/metrics`: Prometheus text exposition format 0.0.4. Times in seconds. */
int admin_write_metrics(const struct gateway_snapshot *s, struct buf *out);

/* `/healthz`: the process lives and its loop turns. Always to be sent with 200. */
int admin_write_health(const struct gateway_snapshot *s, struct buf *out);

/*
 * `/readyz`: can every service be served? *ret_status is 200 (`ready`; `degraded`: by a tier that is
 * not the first) or 503 (`unavailable`), with a reason for each tier that can not serve.
 */
int admin_write_ready(const struct gateway_snapshot *s, struct buf *out, int *ret_status);

#endif
