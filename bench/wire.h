/*
 * What the fake upstream and the load generator have agreed on: how a request asks for an answer,
 * and what every byte of that answer is. Both programs share this file, so that the generator can
 * compare whole events and a proxy that loses, joins, repeats or changes one cannot look fast.
 *
 * A request carries its wishes in the text of the message, which every gateway passes on:
 *
 *     bench e=000050 i=020000 f=000000 [pad:abcd…]
 *
 * An event carries two moments of the host's monotonic clock: when its request had reached the
 * upstream, and when the event was handed to the kernel. Generator and upstream run on one host.
 *
 * Pure: no clock, no I/O, no allocation.
 */
#ifndef FAILSOFT_BENCH_WIRE_H
#define FAILSOFT_BENCH_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WIRE_EVENT_CAP  512u    /* the longest event fits, terminator included */
#define WIRE_EVENTS_MAX 100000u /* events an answer may have */
#define WIRE_WORDS_MAX  512u    /* events a non-streamed answer may have */
#define WIRE_HOLD_US    999999u /* interval_us: after the first event the stream stays silent */

struct wire_ask {
    uint32_t events;      /* content events, 1 … WIRE_EVENTS_MAX */
    uint32_t interval_us; /* between two content events; 0: all at once */
    uint32_t first_us;    /* from the request to the first content event */
    uint32_t pad_bytes;   /* filler in the message; its length comes back as prompt_tokens */
    bool stream;
    bool usage;    /* stream_options.include_usage */
    bool progress; /* return_progress, as a gateway asks a llama-server */
};

enum wire_kind {
    WIRE_KIND_ROLE,     /* role only, no output */
    WIRE_KIND_PROGRESS, /* role only, with prompt_progress */
    WIRE_KIND_CONTENT,
    WIRE_KIND_FINISH,
    WIRE_KIND_USAGE,
    WIRE_KIND_DONE,
};

struct wire_event {
    enum wire_kind kind;
    uint32_t seq;               /* of a content event, from 0 */
    uint64_t rx_ns;             /* content events: the request had arrived */
    uint64_t tx_ns;             /* content events: the event left */
    uint32_t prompt_tokens;     /* usage */
    uint32_t completion_tokens; /* usage */
};

/* Bytes of a chat completion request body for this wish; also the number written when it fits. */
size_t wire_request_format(char *out, size_t cap, const struct wire_ask *ask);

/*
 * Reads a request body. 0; -EBADMSG when it does not carry a wish; -EILSEQ when the filler has been
 * changed on the way.
 */
int wire_request_parse(const char *body, size_t len, struct wire_ask *ret_ask);

/* One SSE event with its blank line, NUL terminated; the number of bytes. cap ≥ WIRE_EVENT_CAP. */
size_t wire_event_format(char *out, size_t cap, const struct wire_event *event,
                         const struct wire_ask *ask);

/*
 * Reads one event as it came, blank line included. A content event is compared byte by byte with
 * what wire_event_format makes of the same numbers. 0; -EBADMSG.
 */
int wire_event_parse(const char *event, size_t len, struct wire_event *ret_event);

/* A whole non-streamed answer; the number of bytes. cap ≥ 1024 + 8 × events. */
size_t wire_answer_format(char *out, size_t cap, const struct wire_ask *ask);

/* Is this the whole answer to the wish, in whatever order its members come? */
bool wire_answer_check(const char *body, size_t len, const struct wire_ask *ask);

#endif
