/*
 * Workers as the gateway keeps them, and the devices that they are on: what is known of each, and what
 * the files about them offer to the rest of this folder.
 *
 *   workers.c                        queue, availability, what a fault does
 *   devices.c, device_*.c            telemetry, ledgers, claims, yielding (devices.h is theirs alone)
 *   predict.c, kv_watch.c, recheck.c what it will take, its KV cache, whether it answers again
 *
 * Private to gateway/; included by internal.h.
 */
#ifndef FAILSOFT_GATEWAY_WORKER_H
#define FAILSOFT_GATEWAY_WORKER_H

#include "base/list.h"
#include "config/config.h"
#include "device/monitor.h"
#include "device/watch.h"
#include "gateway/device_learn.h"
#include "gateway/gateway.h"
#include "gateway/histogram.h"
#include "gateway/unload.h"
#include "http/ask.h"
#include "policy/availability.h"
#include "policy/kv.h"
#include "policy/ledger.h"
#include "policy/pressure.h"
#include "worker/fault.h"
#include "worker/kv_report.h"
#include "worker/tier_estimate.h"
#include "worker/worker.h"

struct gateway_claim_snapshot;
struct gateway_device_snapshot;

enum { GATEWAY_DEVICE_CLAIMS = 64, GATEWAY_KV_CLAIMS = 64 };

struct gateway_device {
    struct gateway *gateway;
    struct list_node node; /* in gateway->devices */
    char *name;
    int kind; /* enum config_device_kind */
    struct device_spec spec;
    bool exclusive; /* the owner vouches: nobody else uses it */
    struct ledger ledger;
    struct ledger_claim claims[GATEWAY_DEVICE_CLAIMS];
    struct pressure pressure;
    uint64_t back_after_ms;
    bool hung; /* a call to its driver does not come back */
    struct free_watch free_watch;
    uint64_t since_ms;        /* watched since */
    uint64_t yield_until_ms;  /* by hand; 0: not */
    uint64_t foreign_before;  /* at the last sample, see device_external.c */
    char why[DEVICE_WHY_MAX]; /* what telemetry has to say; "" when all is well */
    /* Integrated: its memory is the machine's, and so are its claims: see device_host.c. */
    bool shared;
    bool takes_host_flag; /* telemetry may say so */
};

/* The memory of this machine: a pool like a device's, one a gateway. */
struct gateway_host {
    struct gateway_device pool; /* in no list */
    bool told;                  /* a sample has come, be it one that says nothing */
    bool warned;                /* … and that was said */
    bool stalled;               /* processes wait for memory more than they run (F124) */
    uint32_t stall_pct;         /* of the time, some of them; 0: not known */
    char limit[96]; /* " (limit of cgroup X)" where that decides; "" where it does not */
};

struct gateway_worker {
    struct gateway *gateway;
    struct list_node node; /* in gateway->workers */
    unsigned references;   /* tiers of generations that point here */
    struct worker *worker; /* NULL once destroyed */
    char *service;
    char *tier;
    char *device; /* "" when none */
    struct gateway_device
        *on;        /* that device; NULL: none, or not in the configuration at the start */
    uint32_t slots; /* 0: no limit known */
    struct availability availability;
    struct fault log_fault; /* the last fault that the engine's own log told */
    uint64_t log_fault_ms;
    char fault_text[200];     /* the last fault, for people; "" when the last attempt was fine */
    struct list_node waiting; /* requests, longest first */
    uint32_t waiting_count;
    uint32_t running;
    uint64_t last_event_ms; /* any attempt of it got an event with output */
    uint64_t attempts_total, attempts_failed;
    struct histogram first_event;
    bool stopping;
    bool answers;             /* suspended and external: somebody listens there again */
    uint64_t claim;           /* in its device's ledger; LEDGER_CLAIM_NONE: none */
    uint64_t predicted_bytes; /* upper bound of its load; 0: not known */
    /* Of its load, see predict.c; NULL: not known. */
    struct tier_estimate *estimate;
    struct predict_job *predict_job;
    uint64_t measured_bytes; /* of its process on the device, at the last sample */
    uint64_t need_bytes;     /* what it needs to be started again */
    /* The same of the machine's memory, see device_host.c. */
    uint64_t host_claim;           /* in the host's ledger */
    uint64_t host_predicted_bytes; /* upper bound of its process; 0: not known */
    uint64_t host_expected_bytes;  /* once all that it allocated has been touched */
    uint64_t host_cache_bytes;     /* and what its prompt cache may grow to (F121) */
    uint64_t host_apart_bytes;     /* of predicted_bytes: not in the machine's memory */
    uint64_t host_measured_bytes;  /* resident, at the last sample */
    uint64_t host_base_bytes;      /* resident without its prompt cache; 0: not settled yet */
    bool held_back;                /* no room to start it, and none is being given back */
    bool yielded;                  /* gives its device's memory back: no new requests */
    bool yield_stopped;            /* … and its process was told to end */
    uint64_t yielded_ms;
    char yield_text[200];
    struct comeback comeback;
    struct gateway_learning learn; /* see device_learn.h */
    struct gateway_unload unload;  /* external: see unload.h */
    struct http_ask *recheck;      /* the look at it, see recheck.c */
    /*
     * Its KV cache, see kv_watch.c. kv_take() only while kv_known: otherwise nothing is decided by
     * the cache. kv_give() at any time: the table of claims outlives what is known.
     */
    struct kv kv;
    struct kv_claim kv_claims[GATEWAY_KV_CLAIMS];
    bool kv_known;
    uint64_t kv_seen_ms; /* last answer of the engine */
    struct kv_report kv_report;
    struct kv_ask *kv_ask; /* under way; NULL: none */
    uint64_t kv_next_ms, kv_shape_ms, kv_silent_since_ms;
    bool may_shrink_context; /* its service allows a shorter one */
    uint32_t
        short_context; /* tokens of a slot that it was started with instead; 0: as configured */
    uint64_t loading_since_ms;
    uint64_t load_ms; /* how long its last load took; 0: not known, or it did not end well */
    /* Longest prompt that it has answered since its load, in bytes, by kind of use: what such a
     * request makes the engine allocate, it has allocated. */
    uint64_t answered_bytes[LEARNING_USE_COUNT];
};

/* workers.c: workers with their queue and availability. */
int gateway_worker_create(struct gateway *g, const struct config *config,
                          const struct config_service *service, const struct config_tier *tier,
                          struct gateway_worker **ret);
void gateway_worker_ref(struct gateway_worker *w);
/* What the tier's configuration says about availability. */
struct availability_settings gateway_worker_settings(const struct config_tier *tier);
/* The last reference stops the process. */
void gateway_worker_unref(struct gateway_worker *w);
/* Stops whatever the references say (shutdown). */
void gateway_worker_stop(struct gateway_worker *w);
bool gateway_worker_has_room(const struct gateway_worker *w);
/* May be given a request now, be it as the probe; room is another question. */
bool gateway_worker_may_serve(const struct gateway_worker *w);
/* Wakes requests that wait for it: as many as there is room for, or all when it can take none. */
void gateway_worker_pump(struct gateway_worker *w);
/* Why it cannot be given a request now, in words; "" when it can. Into out. */
void gateway_worker_explain(const struct gateway_worker *w, char *out, size_t out_size);
/* What it gives short although it works; "" when nothing. Into out. */
void gateway_worker_explain_short(const struct gateway_worker *w, char *out, size_t out_size);
/* Applies a classified fault: counters, availability, whole-device faults, restarts. */
void gateway_worker_fault(struct gateway_worker *w, uint64_t owner, const struct fault *fault);
/* A fault that may be the request's, that it was not, and that it was: policy/availability. */
void gateway_worker_doubt(struct gateway_worker *w, uint64_t owner, const struct fault *fault);
void gateway_worker_settle(struct gateway_worker *w, uint64_t owner, uint32_t run);
void gateway_worker_forgive(struct gateway_worker *w, uint64_t owner, uint32_t run);
/* Suspends it at once for a reason that no request of its own met; a managed one may be started anew. */
void gateway_worker_suspend(struct gateway_worker *w, const char *why, bool restart);

/* devices.c and device_*.c: telemetry, ledgers, pressure, and what follows for workers. */
int devices_start(struct gateway *g, const struct config *config);
void devices_stop(struct gateway *g);
/* For the status pages: how many, then each with its claims (at most GATEWAY_DEVICE_CLAIMS). */
size_t devices_count(const struct gateway *g);
void devices_fill(struct gateway *g, struct gateway_device_snapshot *ret_devices,
                  struct gateway_claim_snapshot *ret_claims);
void devices_fill_host(struct gateway *g, struct gateway_device_snapshot *ret_host,
                       struct gateway_claim_snapshot *ret_claims);
/* Takes over what can be changed while they are watched (reserve, memory, exclusive, back_after, and the
 * host's reserve). False: some device is another one now, which takes a restart. */
bool devices_reload(struct gateway *g, const struct config *config);
/* The machine's memory, and how close it is to running out: critical also when processes wait for
 * memory more than they run. With admission off, NORMAL. */
void devices_host_view(struct gateway *g, struct ledger_view *ret_view);
enum pressure_level devices_host_pressure(const struct gateway *g);
/* A new worker, before it is started; what it will take of the machine at most, once all of it has been
 * touched, and in its prompt cache (0: not known); a change of its state; before it is freed. */
void devices_prepare_worker(struct gateway_worker *w);
void devices_host_predicted(struct gateway_worker *w, uint64_t upper_bytes, uint64_t expected_bytes,
                            uint64_t cache_bytes);
void devices_worker_changed(struct gateway_worker *w, enum worker_state to);
void devices_worker_gone(struct gateway_worker *w);
/* May the worker's engine be started: is there room for it? Claims it. False: why says what is missing. */
bool devices_may_start(struct gateway_worker *w, char *why, size_t why_size);

/* predict.c: what a managed worker will take, of its device and of the host. */
void predict_start(struct gateway_worker *w, const struct config *config,
                   const struct config_service *service, const struct config_tier *tier);
void predict_forget(struct gateway_worker *w);

/* recheck.c: whether a suspended external worker answers again, for the status pages. */
void recheck_init(struct gateway *g);
void recheck_worker_suspended(struct gateway_worker *w);
/* Before its worker is stopped or freed. */
void recheck_worker_gone(struct gateway_worker *w);

/* kv_watch.c: what engines say of their KV cache. */
/* Its state or its engine changed. */
void kv_watch_worker_changed(struct gateway_worker *w);
/* Before its worker is stopped or freed. */
void kv_watch_worker_gone(struct gateway_worker *w);
/* While there are requests. */
void kv_watch_tick(struct gateway *g, uint64_t now_ms);

#endif
