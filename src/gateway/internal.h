/*
 * The gateway's own structures, shared by the files of this folder and nobody else.
 *
 *   gateway ──► generation (one configuration, counted: requests hold theirs)
 *                  └─ services ─► tiers ─► gateway_worker (counted: shared by generations when a
 *                                            reload did not change its settings)
 *   gateway ──► requests ─► attempt (at most one at a time: one voice)
 */
#ifndef FAILSOFT_GATEWAY_INTERNAL_H
#define FAILSOFT_GATEWAY_INTERNAL_H

#include "base/list.h"
#include "config/config.h"
#include "gateway/decisions.h"
#include "gateway/gateway.h"
#include "gateway/histogram.h"
#include "gateway/request.h"
#include "gateway/worker.h"

enum {
    GATEWAY_TICK_MS = 100,
    GATEWAY_PARTS_MAX = 48,
};

/* Lives as long as the gateway, over reloads, by name. */
struct gateway_counters {
    struct list_node node;
    char *service;
    uint64_t requests, done, failed, cancelled, failovers, retries, cuts;
    uint64_t decided[DECISIONS_ACTIONS]; /* by admission, per action */
    struct histogram duration;
};

struct gateway_tier {
    const struct config_tier *config;
    struct gateway_worker *worker;
};

struct gateway_service {
    const struct config_service *config;
    struct gateway_counters *counters;
    struct gateway_tier *tiers;
    size_t tier_count;
    struct api_default *sampling;
    size_t sampling_count;
};

struct generation {
    struct gateway *gateway;
    struct list_node node; /* in gateway->generations */
    struct config *config;
    struct gateway_service *services;
    size_t service_count;
    unsigned references; /* requests, and one while it is the current one */
};

struct gateway {
    uv_loop_t *loop;
    struct gateway_options options;
    struct http_server *server;
    uv_timer_t tick;
    uv_timer_t recheck;
    uv_timer_t unload_timer;
    /*
     * Events of one read, gathered for one write. One for all requests: it is filled and emptied
     * within one callback.
     */
    struct span parts[GATEWAY_PARTS_MAX];
    unsigned part_count;
    const struct gateway_request *parts_owner;
    struct http_fields scratch; /* see scratch_fields() */
    struct decisions decisions;
    struct generation *current;
    struct list_node generations, workers, requests, counters, devices;
    struct learned *learned; /* NULL once the gateway lets go */
    bool learned_open;       /* its file may still be written */
    struct device_monitor *monitor;
    struct gateway_host host;
    bool admission; /* memory decides what is started and where requests go */
    unsigned request_count;
    uint64_t started_ms;
    uint64_t next_number;
    char id_prefix[16]; /* of request ids: fs-SEED- */
    uint64_t config_generation;
    char *config_error;
    bool stopping, forced, server_closed;
    unsigned timers_open;
    uint64_t stop_deadline_ms;
    unsigned workers_open;
    void (*on_stopped)(void *ctx);
    void *on_stopped_ctx;
};

/* generation.c: the running form of a configuration. */
int generation_create(struct gateway *g, struct config *config, struct generation **ret);
void generation_unref(struct generation *gen);
struct gateway_service *generation_find_service(struct generation *gen, struct span name);
/* What the current configuration says of a worker, the first where several share it; NULL: it is of an
 * older one. */
const struct config_tier *generation_tier_of(const struct gateway_worker *w);

/* gateway.c */
void gateway_start_tick(struct gateway *g);
/* Something that a stop waits for is over. */
void gateway_check_stopped(struct gateway *g);

#endif
