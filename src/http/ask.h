/*
 * One question to a server: a call with a deadline, whose answer is kept whole, up to a bound. For the
 * short questions that are put to workers beside the requests; these go through http/client.h.
 *
 * The caller holds a slot: NULL, or the question under way. It is NULL again when `done` is called, so
 * that the next one can be asked from there, and after http_ask_cancel(). The question frees itself.
 * The slot, `ctx` and the origin must outlive it: cancel first. Loop thread only.
 */
#ifndef FAILSOFT_HTTP_ASK_H
#define FAILSOFT_HTTP_ASK_H

#include "base/span.h"
#include "http/client.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct http_ask;

struct http_answer {
    int error;        /* 0; -ETIME: not complete in time; else as in struct http_call_failure */
    bool connected;   /* somebody accepted the connection */
    int status;       /* 0 with an error */
    bool too_long;    /* there is more than `body`: it was not read */
    struct span body; /* at most max_body_bytes; empty with an error; valid during the call */
};

/*
 * Asks. The parts of the request's body are borrowed until the end. With max_body_bytes 0 only the
 * head is waited for. `done` comes once, from the loop, never from inside this function and never
 * after http_ask_cancel(). 0; -EALREADY (*slot is not NULL); -ENOMEM and errors of http_call_start(),
 * then *slot is NULL.
 */
int http_ask_start(struct http_origin *o, const struct http_call_request *request,
                   size_t max_body_bytes, uint64_t timeout_ms,
                   void (*done)(const struct http_answer *answer, void *ctx), void *ctx,
                   struct http_ask **slot);

/* Closes the connection at once. Nothing where the slot is NULL. */
void http_ask_cancel(struct http_ask **slot);

#endif
