/*
 * An error as a client sees it, and how each dialect says it: as the body of an answer, and as an
 * event inside a stream that has already begun. One struct for all; the constructors hold the
 * wording, so that every message says what happened, with numbers, and what to do.
 *
 * Ownership: an api_error owns nothing; it is plain memory that can be copied. Texts longer than
 * their field are cut at a UTF-8 boundary with "…".
 */
#ifndef FAILSOFT_API_ERROR_H
#define FAILSOFT_API_ERROR_H

#include "api/route.h"
#include "base/buf.h"
#include "base/span.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { API_ERROR_TEXT_MAX = 640 };

struct api_error {
    int status;       /* HTTP status when nothing was sent yet */
    const char *type; /* static: invalid_request_error, not_found_error, overloaded_error, … */
    const char *code; /* static: json_invalid, model_not_found, upstream_cut, … */
    char message[API_ERROR_TEXT_MAX];
    const char *param;         /* static: the member that is wrong, or NULL */
    bool retryable;            /* the same request may work later, as it is */
    int64_t retry_after_ms;    /* -1: not said */
    int64_t events_sent;       /* output events the client already has; -1: not said */
    int64_t bytes_sent;        /* -1: not said */
    bool incomplete_tool_call; /* the client holds a part of a tool call: must not be executed */
    char request_id[64];       /* the resume handle; "" when not said */
    char would_fit[128];       /* what would be accepted instead; "" when not said */
};

/* A tier and why it cannot serve, for api_error_no_capacity. */
struct api_error_tier {
    const char *tier;
    const char *reason;
};

/* Everything said explicitly; `format` as printf. The other members get their "not said" value. */
void api_error_set(struct api_error *ret, int status, const char *type, const char *code,
                   const char *format, ...) __attribute__((format(printf, 5, 6)));

/* 400: the body is not JSON; line and column from 1, offset in bytes from 0. */
void api_error_bad_json(struct api_error *ret, size_t line, size_t column, size_t offset,
                        const char *what);
/* 400: a member is wrong. `param` static. */
void api_error_bad_member(struct api_error *ret, const char *param, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* 404: no such service; `names` are those that exist. */
void api_error_unknown_model(struct api_error *ret, struct span model, const char *const *names,
                             size_t name_count);
/* 405. */
void api_error_bad_method(struct api_error *ret, struct span method, const char *allow);
/* 413: limit_bytes in the text. */
void api_error_too_large(struct api_error *ret, uint64_t limit_bytes);
/* 503: no tier can serve now; the reason of each in the message. retry_after_ms < 0: not said. */
void api_error_no_capacity(struct api_error *ret, const char *service,
                           const struct api_error_tier *tiers, size_t tier_count,
                           int64_t retry_after_ms);
/* 502: every tier was tried and broke before any output. `reason` is the last fault in words. */
void api_error_upstream_failed(struct api_error *ret, const char *service,
                               const struct api_error_tier *tiers, size_t tier_count);
/* 504: no event within timeout_ms. */
void api_error_no_progress(struct api_error *ret, const char *tier, uint64_t timeout_ms);
/*
 * 502, in band: the worker broke after output had been forwarded. Never retried by the gateway.
 * With tool_call the message says that the tool call is incomplete and must not be executed.
 */
void api_error_cut(struct api_error *ret, const char *tier, const char *reason,
                   uint64_t events_sent, uint64_t bytes_sent, bool tool_call,
                   const char *request_id);
/* 499-like (status 503 where one must be sent): cancelled by the owner or at shutdown. */
void api_error_cancelled(struct api_error *ret, const char *by);

/*
 * Appends the whole JSON body of an error answer in the dialect's shape:
 *   OpenAI, plain  {"error":{"message","type","code","param","retryable",…}}
 *   Anthropic      {"type":"error","error":{"type","message",…},"request_id"}
 *   Ollama         {"error":"text","code",…}
 * 0, -EMSGSIZE, -ENOMEM.
 */
int api_error_write_body(const struct api_error *e, enum api_dialect dialect, struct buf *out);

/*
 * Appends one event that ends a stream of this route: SSE `data: {"error":…}`, Anthropic and
 * Responses `event: error`, Ollama an NDJSON line. Nothing may follow it: no [DONE], no finish
 * reason. 0, -EMSGSIZE, -ENOMEM.
 */
int api_error_write_event(const struct api_error *e, enum api_operation operation,
                          enum api_framing framing, struct buf *out);

#endif
