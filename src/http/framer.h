/*
 * Cuts a response body into events without changing a byte: SSE (WHATWG HTML §9.2.6) by blank
 * lines, NDJSON by LF. Line endings LF, CRLF and lone CR in any mixture, a byte order mark at the
 * start, and any split over reads are handled; an event is given out the moment its last byte is
 * there.
 *
 *   feed(input) → next() → next() → 0 → save()      once for every read
 *   finish()                                        once at the end of the body
 *
 * An event that lies within one input points into it, so neighbours can go out in one write; only
 * the unfinished rest is copied, in save(). `bytes` is valid until save() or the next feed(); the
 * fields taken from it until the next call of framer_next().
 *
 * The window is an exact bound: an event longer than it is never held or inspected and comes out as
 * FRAMER_EVENT_PIECE parts, one no longer comes out WHOLE, however the reads were cut. (The LF of a
 * CRLF that ends an event is not counted, because it may come later, as a TAIL.)
 */
#ifndef FAILSOFT_HTTP_FRAMER_H
#define FAILSOFT_HTTP_FRAMER_H

#include "base/buf.h"
#include "base/span.h"

#include <stdbool.h>
#include <stddef.h>

enum framer_kind {
    FRAMER_KIND_SSE,
    FRAMER_KIND_NDJSON,
};

enum framer_event_kind {
    FRAMER_EVENT_WHOLE, /* one complete event; `data` and the rest are filled */
    FRAMER_EVENT_PIECE, /* a raw part of an event that outgrew the window; last_piece ends it */
    FRAMER_EVENT_TAIL, /* the LF of a CRLF whose CR already ended the event before; belongs to it */
};

struct framer_event {
    enum framer_event_kind kind;
    struct span bytes; /* exactly as received, with its line endings */
    /*
     * SSE: the value of the data field, lines joined with LF; NDJSON: the line without its ending.
     * .ptr is NULL when the event has no data field at all (comment-only, id-only, retry-only,
     * empty) and for a blank NDJSON line.
     */
    struct span data;
    struct span name; /* SSE `event:`; .ptr NULL when absent */
    struct span id;   /* SSE `id:`; .ptr NULL when absent */
    /*
     * SSE: a line with a field name outside the standard (e.g. `error: {json}`) or a line that is
     * bare JSON (no field name): the whole line, the first such one; bare JSON over several lines
     * is one piece of text with its line endings. .ptr NULL when there is none.
     */
    struct span odd_line;
    bool first_piece, last_piece; /* FRAMER_EVENT_PIECE */
};

struct framer {
    enum framer_kind kind;
    unsigned char state; /* where the scan stands; see framer.c */
    bool in_pieces;      /* the current event outgrew the window */
    bool pending_given;  /* what pending holds belongs to an event that was given out */
    bool at_start;       /* no event yet: a byte order mark may come */
    size_t window_bytes;
    struct buf pending; /* the unfinished event, from earlier reads; never above the window */
    struct buf joined;  /* scratch for data of several lines */
    struct span input;  /* what is left of the current feed */
    size_t scanned;     /* bytes of input already looked at, without an end of the event */
};

/* Prepares a framer. window_bytes: largest event that is held and inspected. Allocates nothing. */
void framer_init(struct framer *f, enum framer_kind kind, size_t window_bytes);
void framer_free(struct framer *f);

/* Gives the next input; the bytes must stay valid until framer_save(). */
void framer_feed(struct framer *f, struct span input);

/* >0: *ret_event filled; 0: no complete event left in what was fed; -ENOMEM. */
int framer_next(struct framer *f, struct framer_event *ret_event);

/*
 * Keeps the unfinished rest of the input. 0; -ENOMEM; -EBUSY when framer_next() has not returned 0
 * yet (the events that are left would be lost).
 */
int framer_save(struct framer *f);

/*
 * At the end of the body: what was left unfinished. >0 with *ret_event when there is a rest: bytes
 * and fields of the cut event, kind WHOLE, its unfinished last line taken as a line; kind PIECE with
 * no bytes when the cut event had outgrown the window. 0 when the body ended on an event boundary;
 * errors as framer_save(). Spans are valid until the next call. A last NDJSON line without LF is a
 * rest too; the caller decides whether it counts.
 */
int framer_finish(struct framer *f, struct framer_event *ret_event);

#endif
