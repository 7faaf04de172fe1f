/*
 * The gateway: takes requests, chooses tiers, moves requests between them before their commit
 * point, relays answers, and owns the workers. One loop thread owns everything.
 *
 *   client ─► http/server ─► request ─► decide ─► attempt ─► http/client ─► worker
 *                               ▲                    │
 *                               └──── fault before ──┤
 *                                     the commit     ▼
 *   client ◄─ http/server ◄──────────────────────── relay / collect
 */
#ifndef FAILSOFT_GATEWAY_GATEWAY_H
#define FAILSOFT_GATEWAY_GATEWAY_H

#include "config/config.h"
#include "gateway/snapshot.h"
#include "http/server.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct gateway;

struct gateway_options {
    const char *version;
    /*
     * Answers the gateway's own pages (/failsoft/…, /healthz, /readyz, /metrics, /). True when it
     * answered (with http_exchange_reply) or will. Called for a GET or HEAD with its whole body.
     */
    bool (*on_local)(struct gateway *g, struct http_exchange *x, struct span method,
                     struct span path, struct span query, void *ctx);
    void *ctx;
};

/*
 * Creates workers and starts them, and listens. Takes the configuration over, also on failure.
 * 0; errors of http_server_listen and worker_create; -ENOMEM. *ret_what (static text) says which
 * step failed.
 */
int gateway_start(uv_loop_t *loop, struct config *config, const struct gateway_options *options,
                  struct gateway **ret_gateway, const char **ret_what);

/*
 * Swaps to a new configuration (taken over). Running requests end under the old one; workers whose
 * settings did not change go on. 0; or a negative errno with the old configuration still in force.
 * A changed listen address is not taken: *ret_warning (static text or NULL) says so.
 */
int gateway_reload(struct gateway *g, struct config *config, const char **ret_warning);

/* Remembers why a reload was refused, for the status page. Text is copied; NULL clears. */
void gateway_set_config_error(struct gateway *g, const char *text);

/*
 * Stops: no new connections; running requests may end within the configured grace, then they are
 * cut with a typed error; workers are stopped; on_stopped when no process and no handle is left.
 * A second call skips the grace.
 */
void gateway_stop(struct gateway *g, void (*on_stopped)(void *ctx), void *ctx);

uint16_t gateway_port(const struct gateway *g);

/* A copy of the state for the status pages; see snapshot.h. 0; -ENOMEM. Free with _release. */
int gateway_snapshot_take(struct gateway *g, struct gateway_snapshot *ret);
void gateway_snapshot_release(struct gateway_snapshot *s);

/*
 * Gives a device's memory back for a time: its managed workers take no new requests, and are stopped
 * when their running ones have ended. 0 ends it: they come back when there is room. 0; -ENOENT.
 */
int gateway_device_yield(struct gateway *g, struct span name, uint64_t for_ms);

/* Cancels a running request by its id. False: no such request. */
bool gateway_cancel_request(struct gateway *g, struct span id);

#endif
