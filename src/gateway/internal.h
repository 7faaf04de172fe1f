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

#include "api/assemble.h"
#include "api/demand.h"
#include "api/edit.h"
#include "api/error.h"
#include "api/event.h"
#include "api/request.h"
#include "api/route.h"
#include "base/list.h"
#include "config/config.h"
#include "device/monitor.h"
#include "device/watch.h"
#include "gateway/decisions.h"
#include "gateway/device_learn.h"
#include "gateway/gateway.h"
#include "gateway/histogram.h"
#include "gateway/unload.h"
#include "http/ask.h"
#include "http/client.h"
#include "http/framer.h"
#include "http/server.h"
#include "policy/availability.h"
#include "policy/kv.h"
#include "policy/ledger.h"
#include "policy/lifecycle.h"
#include "policy/pressure.h"
#include "worker/count_tokens.h"
#include "worker/fault.h"
#include "worker/kv_report.h"
#include "worker/tier_estimate.h"
#include "worker/worker.h"

enum {
    GATEWAY_TICK_MS = 100,
    GATEWAY_MAX_TIERS = 16,
    GATEWAY_PARTS_MAX = 48,
    GATEWAY_HELD_BYTES = 256 * 1024,      /* opening events held back before the commit point */
    GATEWAY_ERROR_BODY_BYTES = 64 * 1024, /* of a worker's error answer, kept to be read */
    GATEWAY_INSPECT_BYTES = 256 * 1024,   /* larger streamed events pass uninspected */
    GATEWAY_REQUEST_ID_BYTES = 32,
};

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

/* How the answer of an attempt is turned into the answer of the request. */
enum attempt_mode {
    ATTEMPT_MODE_UNKNOWN = 0, /* no response head yet */
    ATTEMPT_MODE_EVENTS,      /* relayed event by event */
    ATTEMPT_MODE_ASSEMBLE,    /* fetched as events, given out whole */
    ATTEMPT_MODE_WHOLE,       /* collected, then given out whole */
    ATTEMPT_MODE_RAW,         /* relayed as bytes: coded, or larger than may be collected */
    ATTEMPT_MODE_ERROR,       /* an error answer: collected and judged */
};

enum attempt_tail { ATTEMPT_TAIL_DROP = 0, ATTEMPT_TAIL_HOLD, ATTEMPT_TAIL_FORWARD };

struct attempt {
    struct http_call *call; /* NULL when none runs */
    struct gateway_worker *worker;
    struct api_edit edit;
    struct span parts[API_EDIT_PARTS_MAX]; /* of the edited body; borrowed by the call */
    bool has_edit;
    bool holds_slot;
    bool kept_for_batch;   /* see unload_keeps_for_batch() */
    uint64_t kv_claim;     /* of its worker's cache; 0: none */
    uint64_t memory_claim; /* of its worker's device; LEDGER_CLAIM_NONE: none */
    unsigned char mode;    /* enum attempt_mode */
    bool want_assembly;
    bool first_output_seen;
    bool ends_seen, tool_call_seen;
    unsigned finishes;  /* events with a finish reason; one a choice */
    unsigned char tail; /* enum attempt_tail: where the LF of a split CRLF goes */
    int status;
    int64_t retry_after_ms;
    uint64_t started_ms;
    uint64_t deadline_ms;      /* first output, or the next event afterwards */
    struct http_fields fields; /* of the response, until the commit point */
    struct framer framer;
    struct api_assembly *assembly;
    struct buf held; /* opening events; or the collected body */
};

struct gateway_request {
    struct gateway *gateway;
    struct generation *generation;
    struct gateway_service *service; /* NULL until identified */
    struct http_exchange *exchange;  /* NULL when the client is gone or has been answered */
    struct list_node node;           /* in gateway->requests */
    struct list_node queue_node;     /* in a worker's waiting list */
    uint64_t number;
    char id[GATEWAY_REQUEST_ID_BYTES];
    enum lifecycle_state state;
    struct api_route route;
    struct api_request *api; /* freed at the commit point, with the body */
    unsigned tier_index;     /* of the running or waited-for attempt */
    unsigned tier_before;    /* of the last attempt that was started */
    uint32_t excluded;       /* bit per tier: not to be tried again */
    uint32_t loading;        /* bit per excluded tier that only said that it loads */
    unsigned attempts, retries, stale_retries;
    uint32_t doubts; /* bit per tier: a doubt waits for its worker, see policy/failover.h … */
    uint32_t doubt_runs[GATEWAY_MAX_TIERS]; /* … from this run of faults */
    bool retry_same;                        /* the next decision takes tier_index again */
    bool fresh_connection;
    unsigned choices;        /* asked for */
    bool streamed;           /* the client gets events */
    bool wants_progress;     /* it asked for the worker's progress reports */
    bool paused;             /* the client is slower than the worker */
    bool doomed;             /* finished inside a callback: freed by request_leave */
    unsigned depth;          /* callbacks on the stack that use it */
    unsigned char waits_for; /* enum request_wait */
    bool woken;              /* it was its turn: goes before those who wait */
    unsigned char accept;    /* enum request_accept */
    uint64_t accepted_ms, wait_since_ms;
    uint64_t wait_deadline_ms; /* waiting: as long as allowed; paused: the end of the pause */
    uint64_t wake_at_ms;       /* waiting: look again at this time; 0: when woken */
    uint64_t queue_ms;         /* spent waiting, over all waits */
    /* Admission, see admit.h. */
    struct api_demand demand;
    uint64_t prompt_tokens; /* by a tokenizer, when prompt_exact */
    bool prompt_exact;
    uint32_t count_asked;    /* bit per tier whose worker was asked for it */
    uint64_t delay_since_ms; /* first wait for memory; 0: none yet */
    uint64_t max_tokens;     /* the answer was limited to it; 0: it was not */
    uint64_t short_context;  /* the context that it asks for was limited to it; 0: it was not */
    uint64_t events_sent, bytes_sent;
    struct attempt attempt;
    struct api_error *error; /* what is said by SAY_ERROR and SAY_CUT; NULL: not known */
    bool timed_out_last, unreachable_last; /* how the last attempt failed */
    int status_last;                       /* HTTP status of the last failed attempt; 0: none */
    int64_t retry_after_last_ms;
    char *tier_reasons[GATEWAY_MAX_TIERS]; /* why a tier was left, for messages */
    struct count *count;                   /* its prompt is being counted, see count.c; or NULL */
};

enum request_wait { REQUEST_WAIT_SLOT = 0, REQUEST_WAIT_LOAD, REQUEST_WAIT_MEMORY };

enum request_accept { REQUEST_ACCEPT_ANY = 0, REQUEST_ACCEPT_SAME_MODEL, REQUEST_ACCEPT_GPU_ONLY };

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

/* count.c: the exact length of a request's prompt, by a worker's own tokenizer. */
/* There is a page to ask, and the request is one that it can count. Reads the body. */
bool count_can(const struct gateway_request *r, const struct gateway_worker *w);
/*
 * Asks; r->count is set until the answer. `done` comes once, from the loop, never from inside this
 * function and never after count_cancel(); known is false after a second without an answer, or when
 * there is none. r may be freed in it. 0; -EALREADY; -ENOTSUP (count_can() is false); -ENOMEM and
 * errors of http_ask_start(). The body of the request must stay while it runs.
 */
int count_start(struct gateway_request *r, struct gateway_worker *w,
                void (*done)(struct gateway_request *r, bool known, uint64_t tokens));
/* Nothing when none runs. Before r is freed, and when its client has left. */
void count_cancel(struct gateway_request *r);

/* gateway.c */
void gateway_start_tick(struct gateway *g);
/* Something that a stop waits for is over. */
void gateway_check_stopped(struct gateway *g);

/* request.c: from the exchange to a decision, and every step of the lifecycle. */
void request_begin(struct gateway *g, struct http_exchange *x);
void request_client_gone(struct http_exchange *x);
/* Takes the event, does what the table says. r may be freed afterwards unless entered. */
void request_step(struct gateway_request *r, enum lifecycle_event event);
/* Around callbacks that use r after a step: it is freed at the last leave. */
void request_enter(struct gateway_request *r);
void request_leave(struct gateway_request *r);
/* It can be used now: those who wait for another tier of their service to load need not. */
void requests_worker_ready(struct gateway_worker *w);
/* A deadline of the request has passed: request_tick() has something to do. */
bool request_needs_tick(const struct gateway_request *r, uint64_t now_ms);
void request_tick(struct gateway_request *r, uint64_t now_ms);
/* Remembers why a tier was left (copied). */
void request_note_tier(struct gateway_request *r, unsigned tier_index, const char *reason);

/* decide.c */
void request_decide(struct gateway_request *r);
/* Another tier than the current one may still be asked. */
bool request_has_other_tier(const struct gateway_request *r);
/* Whether the tier's engine knows the API that the request speaks. */
bool tier_speaks(const struct gateway_request *r, unsigned tier_index);

/* The error to be said; made on first use. NULL: out of memory. */
struct api_error *request_error(struct gateway_request *r);

/* identify.c: route, body, service. False: r->error is set. */
bool request_identify(struct gateway_request *r);

/* attempt.c */
void attempt_start(struct gateway_request *r);
/* Closes the call and releases the slot; what was received stays until attempt_free. */
void attempt_drop(struct gateway_request *r);
void attempt_free(struct gateway_request *r);
/* Classifies, counts, and steps the lifecycle on. */
void attempt_fault(struct gateway_request *r, struct fault_evidence *evidence);
void attempt_timed_out(struct gateway_request *r);
void attempt_resume(struct gateway_request *r);
/* Doubts about other workers count now: this one answers well, or the request ends. */
void attempt_settle_doubts(struct gateway_request *r);
/* The worker produced output for this request: it is alive. */
void attempt_mark_output(struct gateway_request *r);

/* relay.c: events and bytes to the client. */
void relay_body(struct gateway_request *r, struct span bytes);
/* Writes what was gathered. False: the client is gone, and the request with it. */
bool relay_flush(struct gateway_request *r);
/* Gathers bytes for the next flush; they must stay valid until then. */
void relay_gather(struct gateway_request *r, struct span bytes);
/*
 * All that an answer has was forwarded: its end mark, or the finish reason of every choice (some
 * servers send no end mark; a connection that breaks between the two takes nothing away).
 */
bool relay_is_complete(const struct gateway_request *r);
/* The message of the worker is complete (or nobody waits for its end). */
void relay_done(struct gateway_request *r);
/* Status, headers and what was held back. */
void relay_commit(struct gateway_request *r);
/* What is gathered and the proper end of the response, in one write. */
void relay_end(struct gateway_request *r);
/* Forgets what was gathered. */
void relay_forget(struct gateway_request *r);

/* collect.c: whole answers. */
void collect_body(struct gateway_request *r, struct span bytes);
void collect_done(struct gateway_request *r);

/* answer.c: what the gateway itself says. */
void answer_error(struct gateway_request *r);
void answer_cut(struct gateway_request *r);
void answer_whole(struct gateway_request *r);
void answer_exchange_error(struct http_exchange *x, const struct api_error *e,
                           enum api_dialect dialect, const char *request_id);
/* 405 with the methods that the route takes. */
void answer_bad_method(struct http_exchange *x, const struct api_route *route);
void answer_models(struct gateway *g, struct http_exchange *x, const struct api_route *route);
/* The client gets the answer of an attempt whole. */
void answer_refused(int status, const char *message, struct span path, struct buf *ret_body,
                    void *ctx);

/* headers.c */
/* An empty set of fields for one head; filled and written within one callback, kept for the next. */
struct http_fields *scratch_fields(struct gateway *g);
int headers_for_worker(const struct gateway_request *r, struct http_fields *out);
/* Status headers of failsoft, and the worker's own end-to-end fields (may be NULL). */
int headers_for_client(const struct gateway_request *r, const struct http_fields *upstream,
                       bool event_stream, struct http_fields *out);
/* "" when the request is served as asked; else the kind of degradation and its reason. */
const char *degraded_kind(const struct gateway_request *r);
void degraded_reason(const struct gateway_request *r, char *out, size_t out_size);

#endif
