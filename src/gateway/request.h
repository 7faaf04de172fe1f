/*
 * A request and its attempt: everything that is known of them between the exchange and the one outcome,
 * and the steps that the files of this folder take with them.
 *
 *   identify ─► decide (admit.h, count) ─► attempt ─► relay or collect ─► answer
 *        every change of state goes through request_step()
 *
 * Private to gateway/; included by internal.h.
 */
#ifndef FAILSOFT_GATEWAY_REQUEST_H
#define FAILSOFT_GATEWAY_REQUEST_H

#include "api/assemble.h"
#include "api/demand.h"
#include "api/edit.h"
#include "api/error.h"
#include "api/event.h"
#include "api/request.h"
#include "api/route.h"
#include "base/list.h"
#include "http/client.h"
#include "http/framer.h"
#include "http/server.h"
#include "policy/lifecycle.h"
#include "worker/count_tokens.h"
#include "worker/fault.h"

struct config_tier;
struct gateway;
struct gateway_service;
struct gateway_worker;
struct generation;

enum {
    GATEWAY_MAX_TIERS = 16,
    GATEWAY_HELD_BYTES = 256 * 1024,      /* opening events held back before the commit point */
    GATEWAY_ERROR_BODY_BYTES = 64 * 1024, /* of a worker's error answer, kept to be read */
    GATEWAY_INSPECT_BYTES = 256 * 1024,   /* larger streamed events pass uninspected */
    GATEWAY_REQUEST_ID_BYTES = 32,
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

/* attempt_body.c: what is sent, into r->attempt.edit. 0; errors of api_edit_prepare(). */
int attempt_prepare_body(struct gateway_request *r, const struct config_tier *tier);

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
