/*
 * One HTTP response as the load generator reads it: framing (length or chunks), and inside it the
 * whole JSON answer or every SSE event, compared with the only answer that is right.
 *
 * Pure but for the buffers it grows. The caller says when the bytes came in.
 */
#ifndef FAILSOFT_BENCH_ANSWER_H
#define FAILSOFT_BENCH_ANSWER_H

#include "net.h"
#include "wire.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum answer_state {
    ANSWER_HEAD,
    ANSWER_LENGTH,     /* so many bytes of body to come */
    ANSWER_CHUNK_SIZE, /* a line with a size */
    ANSWER_CHUNK,      /* so many bytes of chunk to come */
    ANSWER_CHUNK_END,  /* the line end behind a chunk */
    ANSWER_TRAILER,    /* lines up to an empty one */
    ANSWER_DONE,
};

/* What a content event tells of time; called for each. */
struct answer_sink {
    void *data;
    void (*on_content)(void *data, const struct wire_event *event, uint64_t now_ns);
};

struct answer {
    enum answer_state state;
    const struct wire_ask *ask;
    const struct answer_sink *sink;
    unsigned status;
    bool close; /* the connection ends with this answer */
    bool saw_role, saw_finish, saw_usage, saw_done;
    bool tier_named; /* the head holds x-failsoft-tier */
    char tier[16];
    uint32_t next_seq;
    uint64_t left;       /* bytes of the body or the chunk */
    struct net_buf line; /* of the head, or of a chunk's frame */
    struct net_buf body; /* what is not yet checked */
    char why[128];       /* what was wrong, for people */
};

void answer_begin(struct answer *a, const struct wire_ask *ask, const struct answer_sink *sink);

/* Takes bytes. >0: the answer is complete and right; 0: more to come; <0: wrong, a->why says how.
 */
int answer_feed(struct answer *a, const char *data, size_t len, uint64_t now_ns);

void answer_free(struct answer *a);

#endif
