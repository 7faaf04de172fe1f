/*
 * Events and bytes from a worker to the client. Decides per event: drop, hold back, forward, or
 * treat as a fault; and finds the commit point.
 *
 *   before the commit point          after it
 *     opening, closing notes  held     forwarded
 *     progress                dropped, or forwarded when the client asked for it
 *     comments, empty         dropped  dropped
 *     output                  commit: headers, what was held, the event
 *     error, broken           fault    fault (one typed error event, proper end)
 *
 * Bytes of an event are never changed. Events that arrive in one read go out in one write: they
 * are gathered as spans into the read buffer, and copied only if the client's socket is full.
 * Loop thread only.
 */
#include "gateway/internal.h"

#include <errno.h>
#include <stdlib.h>

enum { RELAY_END_WAIT_MS = 2000 };

void relay_gather(struct gateway_request *r, struct span bytes)
{
    struct gateway *g = r->gateway;
    if (g->parts_owner != r) {
        g->parts_owner = r;
        g->part_count = 0;
    }
    r->bytes_sent += bytes.len;
    if (g->part_count > 0) {
        struct span *last = &g->parts[g->part_count - 1];
        if (last->ptr + last->len == bytes.ptr) {
            last->len += bytes.len;
            return;
        }
    }
    if (g->part_count == GATEWAY_PARTS_MAX && !relay_flush(r))
        return;
    g->parts[g->part_count++] = bytes;
    g->parts_owner = r;
}

void relay_forget(struct gateway_request *r)
{
    if (r->gateway->parts_owner == r) {
        r->gateway->parts_owner = NULL;
        r->gateway->part_count = 0;
    }
}

bool relay_flush(struct gateway_request *r)
{
    struct gateway *g = r->gateway;
    if (g->parts_owner != r || g->part_count == 0 || !r->exchange)
        return r->exchange != NULL;
    unsigned count = g->part_count;
    relay_forget(r);
    int result = http_exchange_write(r->exchange, g->parts, count);
    if (result < 0) {
        request_step(r, LIFECYCLE_EVENT_GONE);
        return false;
    }
    if (result > 0 && !r->paused && r->attempt.call) {
        /* The client is slower than the worker: the worker has to wait, and is not to blame. */
        r->paused = true;
        r->attempt.deadline_ms = 0;
        http_call_pause(r->attempt.call);
    }
    if (r->attempt.held.len > 0 && r->state == LIFECYCLE_STATE_RELAYING)
        buf_free(&r->attempt.held);
    return true;
}

/* Status line and headers, once. */
static bool relay_begin(struct gateway_request *r)
{
    if (!r->exchange)
        return false;
    if (http_exchange_has_begun(r->exchange))
        return true;
    struct attempt *a = &r->attempt;
    bool events = a->mode == ATTEMPT_MODE_EVENTS;
    int64_t length = -1;
    struct span declared = http_fields_get(&a->fields, "content-length");
    if (!events && declared.ptr && declared.len > 0 && declared.len < 18) {
        length = 0;
        for (size_t i = 0; i < declared.len; i++)
            length = length * 10 + (declared.ptr[i] - '0');
    }
    struct http_fields *fields = scratch_fields(r->gateway);
    int error = headers_for_client(r, &a->fields, events, fields);
    if (error == 0)
        error = http_exchange_begin(r->exchange, a->status, fields, length);
    http_fields_free(&a->fields);
    return error == 0;
}

void relay_commit(struct gateway_request *r)
{
    struct attempt *a = &r->attempt;
    if (!relay_begin(r)) {
        request_step(r, LIFECYCLE_EVENT_GONE);
        return;
    }
    if (a->held.len > 0)
        relay_gather(r, buf_span(&a->held));
    /* Nothing is repeated from here on: what was kept for that is not needed any more. */
    if (!a->call || http_call_is_sent(a->call)) {
        if (a->has_edit)
            api_edit_free(&a->edit);
        a->has_edit = false;
        free(r->api);
        r->api = NULL;
        http_exchange_release_body(r->exchange);
    }
}

void relay_end(struct gateway_request *r)
{
    struct gateway *g = r->gateway;
    if (!r->exchange)
        return;
    unsigned count = g->parts_owner == r ? g->part_count : 0;
    http_exchange_set_user(r->exchange, NULL);
    http_exchange_end_with(r->exchange, g->parts, count);
    r->exchange = NULL;
    relay_forget(r);
}

/* A fault inside a 200 stream; status is what the event itself named, or 0. */
static void relay_fault(struct gateway_request *r, struct span text, int status)
{
    struct fault_evidence evidence = {
        .phase = r->attempt.first_output_seen ? FAULT_PHASE_STREAM : FAULT_PHASE_FIRST_EVENT,
        .status = status ? status : r->attempt.status,
        .in_band = true,
        .text = text,
    };
    attempt_fault(r, &evidence);
}

/* False when the event ended the attempt. */
static bool relay_forward(struct gateway_request *r, const struct framer_event *ev)
{
    relay_gather(r, ev->bytes);
    r->attempt.tail = ATTEMPT_TAIL_FORWARD;
    return r->exchange != NULL;
}

static bool relay_hold(struct gateway_request *r, const struct framer_event *ev)
{
    struct attempt *a = &r->attempt;
    a->tail = ATTEMPT_TAIL_HOLD;
    if (buf_append_span(&a->held, ev->bytes) == 0)
        return true;
    relay_fault(r, SPAN_LIT("too many events without output"), 0);
    return false;
}

static bool relay_progress(struct gateway_request *r, const struct framer_event *ev)
{
    struct attempt *a = &r->attempt;
    a->tail = ATTEMPT_TAIL_DROP;
    if (!r->wants_progress)
        return true;
    if (!relay_begin(r)) {
        request_step(r, LIFECYCLE_EVENT_GONE);
        return false;
    }
    return relay_forward(r, ev);
}

static bool relay_tail(struct gateway_request *r, const struct framer_event *ev)
{
    switch ((enum attempt_tail)r->attempt.tail) {
    case ATTEMPT_TAIL_DROP: return true;
    case ATTEMPT_TAIL_HOLD:
        if (r->state != LIFECYCLE_STATE_RELAYING)
            return relay_hold(r, ev);
        break;
    case ATTEMPT_TAIL_FORWARD: break;
    }
    return relay_forward(r, ev);
}

static bool relay_commit_now(struct gateway_request *r)
{
    attempt_mark_output(r);
    if (r->state == LIFECYCLE_STATE_DISPATCHED)
        request_step(r, LIFECYCLE_EVENT_OUTPUT);
    return r->state == LIFECYCLE_STATE_RELAYING;
}

static bool relay_output(struct gateway_request *r, const struct framer_event *ev)
{
    if (!relay_commit_now(r))
        return false;
    r->events_sent++;
    return relay_forward(r, ev);
}

/* One event. False when nothing more of this attempt is to be looked at. */
static bool relay_event(struct gateway_request *r, const struct framer_event *ev)
{
    struct attempt *a = &r->attempt;
    if (ev->kind == FRAMER_EVENT_TAIL)
        return relay_tail(r, ev);
    if (a->ends_seen) {
        a->tail = ATTEMPT_TAIL_DROP;
        return true;
    }
    struct api_event_facts facts;
    api_event_inspect(r->route.operation, ev, &facts);
    if (facts.kind == API_EVENT_ERROR) {
        relay_fault(r, facts.error.message[0] ? span_from_str(facts.error.message) : ev->data,
                    facts.error.status);
        return false;
    }
    if (facts.kind == API_EVENT_BROKEN) {
        relay_fault(r, SPAN_LIT("an event that is not JSON"), 0);
        return false;
    }
    if (facts.kind == API_EVENT_EMPTY) {
        a->tail = ATTEMPT_TAIL_DROP;
        return true;
    }
    a->tool_call_seen |= facts.tool_call;
    a->finishes += facts.finish;
    if (facts.ends_stream) {
        a->ends_seen = true;
        if (a->call)
            a->deadline_ms = uv_now(r->gateway->loop) + RELAY_END_WAIT_MS;
    }
    if (facts.output || ev->kind == FRAMER_EVENT_PIECE)
        return relay_output(r, ev);
    if (facts.kind == API_EVENT_PROGRESS)
        return relay_progress(r, ev);
    bool committed = r->state == LIFECYCLE_STATE_RELAYING;
    if (!committed && a->ends_seen) {
        if (a->finishes == 0 && api_operation_generates(r->route.operation)) {
            /* Some servers say nothing but the end when they fail (F89). */
            relay_fault(r, SPAN_LIT("the stream ended without an answer"), 0);
            return false;
        }
        /* An answer that finishes without any output is an answer, too. */
        committed = relay_commit_now(r);
    }
    return committed ? relay_forward(r, ev) : relay_hold(r, ev);
}

static void relay_raw(struct gateway_request *r, struct span bytes)
{
    attempt_mark_output(r);
    if (r->state == LIFECYCLE_STATE_DISPATCHED)
        request_step(r, LIFECYCLE_EVENT_OUTPUT);
    if (r->state == LIFECYCLE_STATE_RELAYING)
        relay_gather(r, bytes);
}

void relay_body(struct gateway_request *r, struct span bytes)
{
    struct attempt *a = &r->attempt;
    if (a->mode == ATTEMPT_MODE_RAW) {
        relay_raw(r, bytes);
        return;
    }
    unsigned serial = r->attempts;
    /* An event that began in an earlier read lies in the framer's own memory until the next save. */
    bool copied = a->framer.pending.len > 0;
    framer_feed(&a->framer, bytes);
    struct framer_event ev;
    int more;
    while ((more = framer_next(&a->framer, &ev)) > 0)
        if (!relay_event(r, &ev) || r->attempts != serial || !a->call)
            return;
    if (copied && !relay_flush(r))
        return;
    if (more == 0)
        more = framer_save(&a->framer);
    if (more < 0)
        relay_fault(r, SPAN_LIT("the gateway is out of memory"), 0);
}

/*
 * The body ended inside an event. It counts only when it is the last word of the answer, whose
 * blank line some servers leave out; anything else is half an event. False when that ended the
 * attempt.
 */
static bool relay_rest(struct gateway_request *r)
{
    struct attempt *a = &r->attempt;
    struct framer_event ev;
    unsigned serial = r->attempts;
    if (framer_finish(&a->framer, &ev) <= 0 || a->ends_seen)
        return true;
    if (!api_operation_generates(r->route.operation))
        return relay_event(r, &ev) && r->attempts == serial;
    struct api_event_facts facts;
    api_event_inspect(r->route.operation, &ev, &facts);
    bool last_word = ev.kind == FRAMER_EVENT_WHOLE &&
                     (facts.ends_stream || facts.finish || facts.kind == API_EVENT_ERROR);
    return !last_word || (relay_event(r, &ev) && r->attempts == serial);
}

bool relay_is_complete(const struct gateway_request *r)
{
    const struct attempt *a = &r->attempt;
    return a->ends_seen || (a->finishes > 0 && a->finishes >= r->choices);
}

void relay_done(struct gateway_request *r)
{
    struct attempt *a = &r->attempt;
    request_enter(r);
    if (a->mode == ATTEMPT_MODE_EVENTS) {
        if (!relay_rest(r))
            goto out;
        bool needs_end = api_operation_generates(r->route.operation);
        if (needs_end && !relay_is_complete(r)) {
            struct fault_evidence evidence = {
                .phase = a->first_output_seen ? FAULT_PHASE_STREAM : FAULT_PHASE_FIRST_EVENT,
                .transport_error = -ECONNABORTED,
                .text = SPAN_LIT("the stream ended before the answer was complete"),
            };
            attempt_fault(r, &evidence);
            goto out;
        }
    }
    if (r->state == LIFECYCLE_STATE_DISPATCHED && !relay_commit_now(r))
        goto out;
    if (r->state == LIFECYCLE_STATE_RELAYING)
        request_step(r, LIFECYCLE_EVENT_END);
out:
    request_leave(r);
}
