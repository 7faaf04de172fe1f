/*
 * Answers that are given out whole: assembled from a stream, collected as they come, or a worker's
 * error answer that is to be judged. Nothing reaches the client before all of it is there, so a cut
 * costs the client nothing: the request moves on. Loop thread only.
 */
#include "gateway/internal.h"

#include "base/json_scan.h"

#include <errno.h>

/* JSON answers up to this size are looked at for an error in disguise. */
enum { COLLECT_ERROR_SCAN_BYTES = 64 * 1024 };

static void collect_fault(struct gateway_request *r, int status, bool in_band, struct span text)
{
    struct fault_evidence evidence = {
        .phase = r->attempt.first_output_seen ? FAULT_PHASE_STREAM : FAULT_PHASE_FIRST_EVENT,
        .status = status,
        .in_band = in_band,
        .text = text,
    };
    attempt_fault(r, &evidence);
}

/* One event of a stream that is put together. False when that ended the attempt. */
static bool assemble_event(struct gateway_request *r, const struct framer_event *ev)
{
    struct attempt *a = &r->attempt;
    if (ev->kind == FRAMER_EVENT_PIECE) {
        collect_fault(r, a->status, true, SPAN_LIT("an event is larger than the limit"));
        return false;
    }
    struct api_event_facts facts;
    api_event_inspect(r->route.operation, ev, &facts);
    if (facts.kind == API_EVENT_ERROR || facts.kind == API_EVENT_BROKEN) {
        bool said = facts.kind == API_EVENT_ERROR;
        struct span text = said && facts.error.message[0] ? span_from_str(facts.error.message)
                                                          : SPAN_LIT("an event that is not JSON");
        collect_fault(r, said && facts.error.status ? facts.error.status : a->status, true, text);
        return false;
    }
    if (facts.output)
        attempt_mark_output(r);
    a->ends_seen |= facts.ends_stream;
    int result = api_assembly_add_inspected(a->assembly, ev, &facts);
    if (result >= 0)
        return true;
    collect_fault(r, a->status, true,
                  result == -EMSGSIZE ? SPAN_LIT("the answer is larger than the limit")
                                      : SPAN_LIT("an event of an unexpected shape"));
    return false;
}

static void assemble_body(struct gateway_request *r, struct span bytes)
{
    struct attempt *a = &r->attempt;
    unsigned serial = r->attempts;
    framer_feed(&a->framer, bytes);
    struct framer_event ev;
    int more;
    while ((more = framer_next(&a->framer, &ev)) > 0)
        if (!assemble_event(r, &ev) || r->attempts != serial || !a->call)
            return;
    if (more == 0)
        more = framer_save(&a->framer);
    if (more < 0)
        collect_fault(r, a->status, true, SPAN_LIT("the gateway is out of memory"));
}

/* Larger than may be collected: from here on it is relayed as bytes. */
static void switch_to_raw(struct gateway_request *r, struct span bytes)
{
    struct attempt *a = &r->attempt;
    a->mode = ATTEMPT_MODE_RAW;
    /* The commit sends what was collected so far. */
    relay_body(r, bytes);
    (void)relay_flush(r);
}

void collect_body(struct gateway_request *r, struct span bytes)
{
    struct attempt *a = &r->attempt;
    switch ((enum attempt_mode)a->mode) {
    case ATTEMPT_MODE_ASSEMBLE: assemble_body(r, bytes); break;
    case ATTEMPT_MODE_ERROR: {
        /* What is beyond the cap is dropped: it is the start that says what happened. */
        size_t room = a->held.max - a->held.len;
        if (bytes.len > room)
            bytes.len = room;
        (void)buf_append_span(&a->held, bytes);
        break;
    }
    default:
        if (buf_append_span(&a->held, bytes) < 0)
            switch_to_raw(r, bytes);
        break;
    }
}

static void assemble_done(struct gateway_request *r)
{
    struct attempt *a = &r->attempt;
    struct buf out;
    buf_init(&out, (size_t)r->generation->config->limits.response_bytes);
    int result = api_assembly_finish(a->assembly, &out);
    if (result < 0) {
        buf_free(&out);
        struct fault_evidence evidence = {
            .phase = a->first_output_seen ? FAULT_PHASE_STREAM : FAULT_PHASE_FIRST_EVENT,
            .transport_error = result == -ENODATA ? -ECONNABORTED : result,
            .text = result == -ENODATA ? SPAN_LIT("the stream ended before the answer was complete")
                                       : SPAN_LIT("the answer is larger than the limit"),
        };
        attempt_fault(r, &evidence);
        return;
    }
    buf_free(&a->held);
    a->held = out;
    attempt_mark_output(r);
    request_step(r, LIFECYCLE_EVENT_ANSWER);
}

static bool is_json_answer(const struct attempt *a)
{
    struct span type = http_fields_get(&a->fields, "content-type");
    return type.ptr && span_find_nocase(type, SPAN_LIT("application/json")) == 0;
}

/* Is it JSON, and an error in disguise? A large answer is only scanned: it is no error. */
static bool whole_look(struct span body, bool *ret_is_json, struct api_event_error *ret_error)
{
    if (body.len <= COLLECT_ERROR_SCAN_BYTES)
        return api_event_error_in_answer(body, ret_is_json, ret_error);
    enum json_kind kind;
    struct json_scan_error where;
    *ret_is_json = json_scan(body, NULL, NULL, &kind, &where) == 0;
    return false;
}

static void whole_done(struct gateway_request *r)
{
    struct attempt *a = &r->attempt;
    struct span body = buf_span(&a->held);
    /* What an unknown path answers is not ours to judge. */
    bool known = r->route.operation != API_OPERATION_PASS;
    if (known && a->status < 400 && is_json_answer(a) &&
        !span_equals_str(http_exchange_method(r->exchange), "HEAD")) {
        struct api_event_error error;
        bool is_json;
        bool is_error = whole_look(body, &is_json, &error);
        if (!is_json) {
            collect_fault(r, a->status, true, SPAN_LIT("an answer that is not JSON"));
            return;
        }
        if (is_error) {
            collect_fault(r, error.status ? error.status : a->status, true,
                          error.message[0] ? span_from_str(error.message) : body);
            return;
        }
    }
    attempt_mark_output(r);
    request_step(r, LIFECYCLE_EVENT_ANSWER);
}

void collect_done(struct gateway_request *r)
{
    struct attempt *a = &r->attempt;
    switch ((enum attempt_mode)a->mode) {
    case ATTEMPT_MODE_ASSEMBLE: assemble_done(r); break;
    case ATTEMPT_MODE_ERROR: collect_fault(r, a->status, false, buf_span(&a->held)); break;
    default: whole_done(r); break;
    }
}
