/*
 * One attempt: a request on its way to one worker and what comes back. Takes the slot, builds what
 * is sent, watches the deadlines, and turns every way of failing into evidence for the classifier.
 *
 *   start ─► head ─► events │ collected body ─► done
 *     └───────┴──────────┴──► fault ─► classify ─► count ─► retry, next tier, pass on, or cut
 *
 * The deadline is for output, not for bytes: headers, role-only chunks, progress reports and pings
 * do not move it. After the first output it is the longest gap between two events.
 *
 * Loop thread only.
 */
#include "gateway/admit.h"

#include "base/log.h"
#include "policy/failover.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A generated answer that comes whole may take this many times the wait for a first event. */
enum { ATTEMPT_SILENT_FACTOR = 5 };

static struct gateway_tier *attempt_tier(struct gateway_request *r)
{
    return &r->service->tiers[r->tier_index];
}

static bool expects_json(enum api_operation operation)
{
    return operation != API_OPERATION_PASS && operation != API_OPERATION_SPEECH &&
           operation != API_OPERATION_TRANSCRIPTION && operation != API_OPERATION_TRANSLATION;
}

void attempt_free(struct gateway_request *r)
{
    struct attempt *a = &r->attempt;
    if (a->has_edit)
        api_edit_free(&a->edit);
    a->has_edit = false;
    http_fields_free(&a->fields);
    framer_free(&a->framer);
    api_assembly_destroy(a->assembly);
    a->assembly = NULL;
    buf_free(&a->held);
}

void attempt_drop(struct gateway_request *r)
{
    struct attempt *a = &r->attempt;
    if (a->call) {
        http_call_cancel(a->call);
        a->call = NULL;
    }
    a->deadline_ms = 0;
    if (!a->holds_slot)
        return;
    a->holds_slot = false;
    a->worker->running--;
    admit_give(r);
    if (a->kept_for_batch)
        unload_batch_ended(a->worker);
    availability_give_up(&a->worker->availability, r->number, uv_now(r->gateway->loop));
    gateway_worker_pump(a->worker);
}

void attempt_settle_doubts(struct gateway_request *r)
{
    uint32_t doubts = r->doubts;
    r->doubts = 0;
    for (unsigned i = 0; doubts >> i != 0; i++) {
        if (doubts & (1U << i))
            gateway_worker_settle(r->service->tiers[i].worker, r->number, r->doubt_runs[i]);
    }
}

/* Another worker says the same of the request: no worker is to blame for its failing. */
static void forgive_doubts(struct gateway_request *r)
{
    uint32_t doubts = r->doubts;
    r->doubts = 0;
    log_info("gateway", "%s: the request's own error: %s answers it as others did", r->id,
             attempt_tier(r)->config->name);
    for (unsigned i = 0; doubts >> i != 0; i++) {
        if (doubts & (1U << i))
            gateway_worker_forgive(r->service->tiers[i].worker, r->number, r->doubt_runs[i]);
    }
}

void attempt_mark_output(struct gateway_request *r)
{
    struct attempt *a = &r->attempt;
    uint64_t now_ms = uv_now(r->gateway->loop);
    a->worker->last_event_ms = now_ms;
    if (!r->paused)
        a->deadline_ms = now_ms + attempt_tier(r)->config->stall_timeout_ms;
    if (a->first_output_seen)
        return;
    a->first_output_seen = true;
    admit_answered(r);
    histogram_add_ms(&a->worker->first_event, now_ms - a->started_ms);
    availability_success(&a->worker->availability, r->number);
    attempt_settle_doubts(r);
    if (a->worker->availability.state == AVAILABILITY_STATE_AVAILABLE && a->worker->fault_text[0]) {
        log_info("worker", "%s/%s: answers again", a->worker->service, a->worker->tier);
        a->worker->fault_text[0] = '\0';
        gateway_worker_pump(a->worker);
    }
}

static const struct http_call_handler attempt_handler;

static int attempt_call(struct gateway_request *r)
{
    struct attempt *a = &r->attempt;
    int error = attempt_prepare_body(r, attempt_tier(r)->config);
    if (error < 0)
        return error;
    struct http_fields *fields = scratch_fields(r->gateway);
    error = headers_for_worker(r, fields);
    struct span method = http_exchange_method(r->exchange);
    bool bodiless = span_equals_str(method, "GET") || span_equals_str(method, "HEAD");
    struct http_call_request request = {
        .method = method,
        .target = http_exchange_target(r->exchange),
        .fields = fields,
        .body = a->parts,
        .body_count = api_edit_parts(&a->edit, a->parts),
        .has_body = !bodiless,
        .fresh_connection = r->fresh_connection,
    };
    if (error == 0)
        error = http_call_start(worker_origin(a->worker->worker), &request, &attempt_handler, r,
                                &a->call);
    return error;
}

void attempt_start(struct gateway_request *r)
{
    struct attempt *a = &r->attempt;
    struct gateway_tier *tier = attempt_tier(r);
    struct gateway_worker *w = tier->worker;
    uint64_t now_ms = uv_now(r->gateway->loop);
    attempt_free(r);
    memset(a, 0, sizeof(*a));
    a->worker = w;
    a->retry_after_ms = -1;
    a->started_ms = now_ms;
    a->holds_slot = true;
    if (r->attempts > 0 && r->tier_index != r->tier_before)
        r->service->counters->failovers++;
    r->tier_before = r->tier_index;
    r->attempts++;
    r->woken = false;
    w->running++;
    w->attempts_total++;
    unload_batch_goes_on(w);
    admit_take(r);
    if (availability_ask(&w->availability, now_ms) == AVAILABILITY_VERDICT_PROBE)
        availability_take_probe(&w->availability, r->number);
    int error = attempt_call(r);
    /* A whole answer that is generated shows nothing until it is complete. */
    bool silent = !r->streamed && !a->want_assembly && api_operation_generates(r->route.operation);
    a->deadline_ms =
        now_ms + tier->config->first_event_timeout_ms * (silent ? ATTEMPT_SILENT_FACTOR : 1U);
    r->fresh_connection = false;
    if (error == 0)
        return;
    /* Our own lack of something: not the worker's fault, and no other tier has more of it. */
    char why[128];
    snprintf(why, sizeof(why), "the gateway could not start a call: %s", strerror(-error));
    request_note_tier(r, r->tier_index, why);
    r->unreachable_last = true;
    r->excluded |= 1U << r->tier_index;
    request_step(r, LIFECYCLE_EVENT_FAULT_NEXT);
}

static void remember_last(struct gateway_request *r, const struct fault_evidence *evidence)
{
    r->timed_out_last = evidence->timed_out;
    r->unreachable_last = evidence->phase == FAULT_PHASE_CONNECT;
    r->status_last = evidence->in_band ? 0 : evidence->status;
    r->retry_after_last_ms = r->attempt.retry_after_ms;
}

/*
 * The engine's log tells more than its answer: "Compute error." is said for a lost device and for a
 * workspace that did not fit alike, and a cut connection says nothing at all.
 */
static void classify(struct gateway_request *r, struct fault_evidence *evidence, struct fault *ret)
{
    struct gateway_worker *w = r->attempt.worker;
    evidence->on_device = w->device[0] != '\0';
    if (w->worker && worker_is_managed(w->worker)) {
        worker_read_log_now(w->worker);
        if (worker_pid(w->worker) == 0)
            evidence->exited = true;
    }
    fault_classify(evidence, ret);
    bool heard = w->log_fault.class != FAULT_NONE && w->log_fault_ms >= r->attempt.started_ms;
    bool own =
        ret->class == FAULT_REQUEST || ret->class == FAULT_BUSY || ret->class == FAULT_LOADING;
    if (heard && !own && !evidence->timed_out)
        *ret = w->log_fault;
}

static void fault_after_commit(struct gateway_request *r, const struct fault *fault)
{
    struct api_error *e = request_error(r);
    if (e)
        api_error_cut(e, attempt_tier(r)->config->name, fault->reason, r->events_sent,
                      r->bytes_sent, r->attempt.tool_call_seen, r->id);
    r->service->counters->cuts++;
    log_warning("gateway", "%s: cut after %" PRIu64 " events from %s: %s", r->id, r->events_sent,
                attempt_tier(r)->config->name, fault->reason);
    gateway_worker_fault(r->attempt.worker, r->number, fault);
    request_step(r, LIFECYCLE_EVENT_CUT);
}

static void retry_or_move_on(struct gateway_request *r, const struct failover_decision *d,
                             const struct fault *fault)
{
    uint64_t now_ms = uv_now(r->gateway->loop);
    if (d->move == FAILOVER_MOVE_RETRY) {
        if (d->uncounted)
            r->stale_retries++;
        else
            r->retries++;
        r->service->counters->retries++;
        r->retry_same = true;
        r->fresh_connection = d->fresh_connection;
        r->wait_deadline_ms = d->pause_ms ? now_ms + d->pause_ms : 0;
        request_step(r, LIFECYCLE_EVENT_FAULT_RETRY);
        return;
    }
    r->excluded |= 1U << r->tier_index;
    if (fault->class == FAULT_LOADING)
        r->loading |= 1U << r->tier_index;
    r->retries = 0;
    r->stale_retries = 0;
    request_step(r, LIFECYCLE_EVENT_FAULT_NEXT);
}

/* The request's own error came inside a 200 answer: nothing was sent yet, so it gets its status. */
static void say_own_error(struct gateway_request *r, const struct fault_evidence *evidence)
{
    struct api_error *e = request_error(r);
    if (e)
        api_error_set(e, 400, "invalid_request_error", "worker_refused", "%.*s",
                      SPAN_FMT(evidence->text));
}

/* As decided: not at all, later, or now. */
static void count_fault(struct gateway_request *r, const struct failover_decision *d,
                        const struct fault *fault)
{
    struct gateway_worker *w = r->attempt.worker;
    if (d->uncounted) {
        availability_give_up(&w->availability, r->number, uv_now(r->gateway->loop));
    } else if (d->waits) {
        gateway_worker_doubt(w, r->number, fault);
        r->doubts |= 1U << r->tier_index;
        r->doubt_runs[r->tier_index] = w->availability.run;
    } else {
        gateway_worker_fault(w, r->number, fault);
    }
}

void attempt_fault(struct gateway_request *r, struct fault_evidence *evidence)
{
    struct attempt *a = &r->attempt;
    struct gateway_worker *w = a->worker;
    struct fault fault;
    classify(r, evidence, &fault);
    if (a->call) {
        http_call_cancel(a->call);
        a->call = NULL;
    }
    if (r->state == LIFECYCLE_STATE_RELAYING) {
        fault_after_commit(r, &fault);
        return;
    }
    remember_last(r, evidence);
    uint32_t bit = 1U << r->tier_index;
    struct failover_facts facts = {
        .own_error = fault.class == FAULT_REQUEST,
        .may_retry = fault_may_retry(fault.class),
        .doubt = fault.doubt,
        .doubted_here = (r->doubts & bit) != 0,
        .doubted = (r->doubts & ~bit) != 0,
        .others_left = fault.doubt && request_has_other_tier(r),
        .stale_connection = evidence->connection_reused,
        .worker_gone = !w->worker || !worker_is_usable(w->worker),
        .retries = r->retries,
        .stale_retries = r->stale_retries,
        .retry_after_ms = a->retry_after_ms,
        .retry_after_max_ms = attempt_tier(r)->config->retry_after_max_ms,
    };
    struct failover_decision d = failover_decide(&facts);
    if (d.move == FAILOVER_MOVE_PASS_ON) {
        availability_give_up(&w->availability, r->number, uv_now(r->gateway->loop));
        if (d.forgive)
            forgive_doubts(r);
        if (a->mode != ATTEMPT_MODE_ERROR)
            say_own_error(r, evidence);
        request_step(r, LIFECYCLE_EVENT_FAULT_FINAL);
        return;
    }
    char why[200];
    snprintf(why, sizeof(why), "%s: %s", fault_class_name(fault.class), fault.reason);
    request_note_tier(r, r->tier_index, why);
    log_info("gateway", "%s: %s/%s: %s, %s", r->id, w->service, w->tier, why,
             d.move == FAILOVER_MOVE_RETRY ? "once more" : "on to the next tier");
    count_fault(r, &d, &fault);
    retry_or_move_on(r, &d, &fault);
}

void attempt_timed_out(struct gateway_request *r)
{
    struct attempt *a = &r->attempt;
    struct gateway_worker *w = a->worker;
    if (a->mode == ATTEMPT_MODE_EVENTS && relay_is_complete(r)) {
        /* The answer is complete; only the worker's connection did not end. */
        relay_done(r);
        return;
    }
    request_enter(r);
    bool silent_for_all =
        w->last_event_ms < a->started_ms ||
        (a->first_output_seen &&
         w->last_event_ms + attempt_tier(r)->config->stall_timeout_ms <= uv_now(r->gateway->loop));
    struct fault_evidence evidence = {
        .phase = a->first_output_seen ? FAULT_PHASE_STREAM : FAULT_PHASE_FIRST_EVENT,
        .status = 0,
        .timed_out = true,
    };
    attempt_fault(r, &evidence);
    /* Nobody got anything from it: its `/health` may say what it likes (F01, F53). */
    if (silent_for_all && w->worker && worker_is_managed(w->worker))
        worker_recycle(w->worker, "no output within the deadline", true);
    request_leave(r);
}

void attempt_resume(struct gateway_request *r)
{
    struct attempt *a = &r->attempt;
    if (!r->paused)
        return;
    r->paused = false;
    if (!a->call)
        return;
    a->deadline_ms = uv_now(r->gateway->loop) + attempt_tier(r)->config->stall_timeout_ms;
    http_call_resume(a->call);
}

static int64_t parse_retry_after(struct span value)
{
    value = span_trim(value);
    if (!value.ptr || value.len == 0 || value.len > 6)
        return -1;
    int64_t seconds = 0;
    for (size_t i = 0; i < value.len; i++) {
        if (value.ptr[i] < '0' || value.ptr[i] > '9')
            return -1; /* the date form: no worker of ours sends it */
        seconds = seconds * 10 + (value.ptr[i] - '0');
    }
    return seconds * 1000;
}

static bool media_type_is(struct span value, const char *type)
{
    struct span t = span_from_str(type);
    return value.ptr && value.len >= t.len &&
           span_equals_nocase((struct span){value.ptr, t.len}, t);
}

/* How the answer is to be handled, from its head. */
static enum attempt_mode choose_mode(const struct gateway_request *r, int status,
                                     const struct http_fields *fields)
{
    const struct attempt *a = &r->attempt;
    struct span type = http_fields_get(fields, "content-type");
    struct span coding = http_fields_get(fields, "content-encoding");
    if (status >= 400 && (r->route.operation != API_OPERATION_PASS || status >= 500))
        return ATTEMPT_MODE_ERROR;
    if (coding.ptr && !span_equals_nocase(span_trim(coding), SPAN_LIT("identity")))
        return ATTEMPT_MODE_RAW; /* coded although identity was asked for: untouched (F108) */
    bool sse = media_type_is(type, "text/event-stream");
    bool ndjson =
        media_type_is(type, "application/x-ndjson") || media_type_is(type, "application/jsonl");
    if (sse || ndjson)
        return a->want_assembly ? ATTEMPT_MODE_ASSEMBLE : ATTEMPT_MODE_EVENTS;
    return ATTEMPT_MODE_WHOLE;
}

static void on_head(struct http_call *c, int status, const struct http_fields *fields, void *ctx)
{
    struct gateway_request *r = ctx;
    struct attempt *a = &r->attempt;
    request_enter(r);
    a->status = status;
    a->retry_after_ms = parse_retry_after(http_fields_get(fields, "retry-after"));
    a->mode = (unsigned char)choose_mode(r, status, fields);
    http_call_take_fields(c, &a->fields);
    fields = &a->fields;
    struct span type = http_fields_get(fields, "content-type");
    enum framer_kind kind =
        media_type_is(type, "text/event-stream") ? FRAMER_KIND_SSE : FRAMER_KIND_NDJSON;
    const struct config_limits *limits = &r->generation->config->limits;
    int error = 0;
    buf_init(&a->held, GATEWAY_HELD_BYTES);
    switch ((enum attempt_mode)a->mode) {
    case ATTEMPT_MODE_EVENTS: framer_init(&a->framer, kind, GATEWAY_INSPECT_BYTES); break;
    case ATTEMPT_MODE_ASSEMBLE:
        framer_init(&a->framer, kind, (size_t)limits->event_bytes);
        error =
            api_assembly_create(r->route.operation, (size_t)limits->response_bytes, &a->assembly);
        break;
    case ATTEMPT_MODE_ERROR: buf_init(&a->held, GATEWAY_ERROR_BODY_BYTES); break;
    case ATTEMPT_MODE_WHOLE: buf_init(&a->held, (size_t)limits->response_bytes); break;
    case ATTEMPT_MODE_RAW:
    case ATTEMPT_MODE_UNKNOWN: break;
    }
    bool html = media_type_is(type, "text/html") && expects_json(r->route.operation);
    if (error < 0 || (status < 400 && html)) {
        struct fault_evidence evidence = {
            .phase = FAULT_PHASE_FIRST_EVENT,
            .status = status,
            .in_band = true,
            .text = error < 0
                        ? SPAN_LIT("the gateway is out of memory")
                        : SPAN_LIT("an HTML page where JSON was expected: unknown server type"),
        };
        attempt_fault(r, &evidence);
    }
    request_leave(r);
}

static void on_body(struct http_call *c, struct span bytes, void *ctx)
{
    (void)c;
    struct gateway_request *r = ctx;
    request_enter(r);
    switch ((enum attempt_mode)r->attempt.mode) {
    case ATTEMPT_MODE_EVENTS:
    case ATTEMPT_MODE_RAW: relay_body(r, bytes); break;
    default: collect_body(r, bytes); break;
    }
    request_leave(r);
}

static void on_read_end(struct http_call *c, void *ctx)
{
    (void)c;
    struct gateway_request *r = ctx;
    request_enter(r);
    (void)relay_flush(r);
    request_leave(r);
}

static void on_done(struct http_call *c, void *ctx)
{
    (void)c;
    struct gateway_request *r = ctx;
    request_enter(r);
    r->attempt.call = NULL;
    switch ((enum attempt_mode)r->attempt.mode) {
    case ATTEMPT_MODE_EVENTS:
    case ATTEMPT_MODE_RAW: relay_done(r); break;
    default: collect_done(r); break;
    }
    request_leave(r);
}

static void on_fail(struct http_call *c, const struct http_call_failure *failure, void *ctx)
{
    (void)c;
    struct gateway_request *r = ctx;
    struct attempt *a = &r->attempt;
    a->call = NULL;
    request_enter(r);
    if (a->mode == ATTEMPT_MODE_EVENTS && relay_is_complete(r)) {
        /* All was said; how the connection ended afterwards does not matter. */
        relay_done(r);
        request_leave(r);
        return;
    }
    enum fault_phase phase = FAULT_PHASE_HEAD;
    if (!failure->connected)
        phase = FAULT_PHASE_CONNECT;
    else if (failure->head_complete)
        phase = a->first_output_seen ? FAULT_PHASE_STREAM : FAULT_PHASE_FIRST_EVENT;
    struct fault_evidence evidence = {
        .phase = phase,
        .status = 0,
        .transport_error = failure->error,
        .connection_reused = failure->reused && !failure->any_response_byte,
        .timed_out = failure->error == -ETIMEDOUT,
        .text = failure->detail ? span_from_str(failure->detail) : SPAN_LIT(""),
    };
    if (a->worker->worker && worker_is_managed(a->worker->worker))
        worker_suspect(a->worker->worker);
    attempt_fault(r, &evidence);
    request_leave(r);
}

static const struct http_call_handler attempt_handler = {
    .on_head = on_head,
    .on_body = on_body,
    .on_read_end = on_read_end,
    .on_done = on_done,
    .on_fail = on_fail,
};
